// purpose: How long data took on each channel from send to read, as percentiles.
// param run: id of the run
// param first_epoch integer = null: first epoch of the messages; default: the first loaded one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// over: epochs
// returns: one row per channel of data, the highest p95 first: channel, from_operator, to_operator (names, null if
//   unknown), messages, records, p50_ns, p95_ns, p99_ns, longest_ns (from send to read), buffered_ns (of all, lying at
//   the receiver)
// example: skewed
//   channel | from_operator | to_operator | messages | records | p50_ns | p95_ns  | p99_ns  | longest_ns | buffered_ns
//   6       | Filter        | Exchange    | 60       | 59452   | 755920 | 1811283 | 1854183 | 1854183    | 40083798
//   1 row

MATCH (round:Epoch {run: $run, published: true, detail: 'full'})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
MATCH (:Event)-[message:DATA_MESSAGE {run: $run, epoch: round.epoch}]->(arrival:Event)
WITH message.channel AS channel, message.records AS records,
     CASE WHEN message.read = arrival.id THEN 0 ELSE coalesce(message.receive_buffer_ns, 0) END AS after_ns,
     coalesce(message.receive_buffer_ns, 0) AS buffered_ns, message.duration_ns AS transfer_ns
WITH channel, records, buffered_ns, transfer_ns + after_ns AS delivered_ns
WITH channel, count(*) AS messages, sum(records) AS records, percentileDisc(delivered_ns, 0.5) AS p50_ns,
     percentileDisc(delivered_ns, 0.95) AS p95_ns, percentileDisc(delivered_ns, 0.99) AS p99_ns,
     max(delivered_ns) AS longest_ns, sum(buffered_ns) AS buffered_ns
OPTIONAL MATCH (source:Operator)-[:FEEDS {run: $run, channel: channel}]->(target:Operator)
RETURN channel,
       source.name AS from_operator,
       target.name AS to_operator,
       messages,
       records,
       p50_ns,
       p95_ns,
       p99_ns,
       longest_ns,
       buffered_ns
ORDER BY p95_ns DESC, channel;
