// purpose: Which channels carry most of the delay.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 20: largest number of rows
// returns: one row per channel and type of message, most waiting first: channel, type, from_operator, to_operator
//   (names, null if unknown), waited_ns (waits inside the window that its messages ended), waits, messages (sent in the
//   window), records, delivered_ns (their time from send to read), buffered_ns (of it, lying at the receiver).
// example: bfs --epoch 11
//   channel | type             | from_operator | to_operator     | waited_ns | waits | messages | records | delivered_ns | buffered_ns
//   47      | progress_message |               |                 | 2906927   | 16    | 60       | 170     | 4242030      | 4242030
//   33      | data_message     | Concatenate   | Arrange: Reduce | 82523     | 6     | 14       | 55      | 3069126      | 3069126
//   57      | data_message     | AsCollection  | Exchange        | 3323      | 1     | 1        | 4       | 30450        | 30450
//   6 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns, window.after_ns AS after_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at, after_ns, closes_ns) {
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns <= after_ns
  RETURN begin
  ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
  LIMIT 1
  UNION ALL
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns > after_ns AND begin.t_ns <= closes_ns
  RETURN begin
}
MATCH (begin)-[edge:WAITING|DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]->(end:Event)
OPTIONAL MATCH (:Event {run: $run, id: edge.ended_by})-[ender:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]->(end)
WITH opens_ns, closes_ns, after_ns, begin, end, edge, ender, type(edge) = 'WAITING' AS is_wait
// A wait counts for the message that ended it, a message for itself, in the window in which it was sent.
WHERE CASE WHEN is_wait THEN ender IS NOT NULL AND (begin.t_ns < closes_ns OR end.t_ns <= closes_ns)
           ELSE begin.t_ns > after_ns END
WITH CASE WHEN is_wait THEN ender.channel ELSE edge.channel END AS channel,
     CASE WHEN is_wait THEN type(ender) ELSE type(edge) END AS type,
     is_wait,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS inside_ns,
     coalesce(edge.records, 0) AS records,
     edge.duration_ns
     + CASE WHEN edge.read <> end.id THEN coalesce(edge.receive_buffer_ns, 0) ELSE 0 END AS delivered_ns,
     coalesce(edge.receive_buffer_ns, 0) AS buffered_ns
WITH channel, type,
     sum(CASE WHEN is_wait THEN inside_ns ELSE 0 END) AS waited_ns,
     sum(CASE WHEN is_wait THEN 1 ELSE 0 END) AS waits,
     sum(CASE WHEN is_wait THEN 0 ELSE 1 END) AS messages,
     sum(CASE WHEN is_wait THEN 0 ELSE records END) AS records,
     sum(CASE WHEN is_wait THEN 0 ELSE delivered_ns END) AS delivered_ns,
     sum(CASE WHEN is_wait THEN 0 ELSE buffered_ns END) AS buffered_ns
ORDER BY waited_ns DESC, delivered_ns DESC, channel, type
LIMIT $limit
OPTIONAL MATCH (source:Operator)-[:FEEDS {run: $run, channel: channel}]->(target:Operator)
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
