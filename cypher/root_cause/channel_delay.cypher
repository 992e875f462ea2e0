// purpose: Which channels carry most of the delay.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 20: how many rows at most
// returns: one row per channel and type of message, most waiting first: channel, type, from_operator, to_operator
//   (names, null where not known), waited_ns (waits inside the window that its messages ended), waits, messages (sent in
//   the window), records, delivered_ns (their time from send to read), buffered_ns (of it, lying at the receiver).
// example: bfs --epoch 11
//   channel | type             | from_operator | to_operator     | waited_ns | waits | messages | records | delivered_ns | buffered_ns
//   47      | progress_message |               |                 | 2906927   | 16    | 60       | 170     | 4242030      | 4242030
//   33      | data_message     | Concatenate   | Arrange: Reduce | 82523     | 6     | 14       | 55      | 3069126      | 3069126
//   57      | data_message     | AsCollection  | Exchange        | 3323      | 1     | 1        | 4       | 30450        | 30450
//   6 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at, opens_ns, closes_ns) {
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns <= opens_ns
  RETURN begin
  ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
  LIMIT 1
  UNION ALL
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns > opens_ns AND begin.t_ns < closes_ns
  RETURN begin
}
CALL (begin, opens_ns, closes_ns) {
  MATCH (begin)-[:WAITING]->(end:Event)<-[message:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]-(:Event)
  RETURN message.channel AS channel, type(message) AS type,
         CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
         - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS waited_ns,
         1 AS waits, 0 AS messages, 0 AS records, 0 AS delivered_ns, 0 AS buffered_ns
  UNION ALL
  MATCH (begin)-[message:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]->(read:Event)
  WHERE begin.t_ns > opens_ns OR opens_ns = 0
  WITH message, message.duration_ns
       + CASE WHEN message.read <> read.id THEN coalesce(message.receive_buffer_ns, 0) ELSE 0 END AS delivered_ns
  RETURN message.channel AS channel, type(message) AS type, 0 AS waited_ns, 0 AS waits, 1 AS messages,
         coalesce(message.records, 0) AS records, delivered_ns, coalesce(message.receive_buffer_ns, 0) AS buffered_ns
}
WITH channel, type, sum(waited_ns) AS waited_ns, sum(waits) AS waits, sum(messages) AS messages, sum(records) AS records,
     sum(delivered_ns) AS delivered_ns, sum(buffered_ns) AS buffered_ns
ORDER BY waited_ns DESC, delivered_ns DESC, channel, type
LIMIT $limit
OPTIONAL MATCH (source:Operator {run: $run})-[:FEEDS {channel: channel}]->(target:Operator)
WHERE source.operator >= 0
RETURN channel,
       toLower(type) AS type,
       source.name AS from_operator,
       target.name AS to_operator,
       waited_ns,
       waits,
       messages,
       records,
       delivered_ns,
       buffered_ns
ORDER BY waited_ns DESC, delivered_ns DESC, channel, type;
