// purpose: Workers that had nothing to do while data lay unread at another worker: work that could have been done
//   elsewhere. The motif of the same name finds the same matches.
// param run: id of the run
// param first_epoch integer = null: first epoch of the matches; default: the first loaded one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// param min_ns integer = 100000: least time that both lasted at once
// param limit integer = 1000: largest number of rows
// over: epochs
// returns: one row per idle time and message, the longest idle time first: idle_worker, idle_type, idle_start_ns, idle_ns,
//   busy_worker, lay_ns (from the arrival to the read), read_ns, records, idle_end and read (events)
// example: skewed --limit 3
//   idle_worker | idle_type | idle_start_ns | idle_ns | busy_worker | lay_ns  | read_ns | records | idle_end      | read
//   3           | waiting   | 5182214       | 2052104 | 0           | 1296833 | 6418073 | 1024    | 3298534883519 | 396
//   3           | waiting   | 5182214       | 2052104 | 0           | 1283087 | 6418233 | 957     | 3298534883519 | 398
//   2           | waiting   | 5195180       | 2039138 | 0           | 1296833 | 6418073 | 1024    | 2199023255793 | 396
//   3 rows

MATCH (round:Epoch {run: $run, published: true, detail: 'full'})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
WITH collect(round.epoch) AS epochs
CALL (epochs) {
  UNWIND epochs AS own
  MATCH (:Event)-[message:DATA_MESSAGE {run: $run, epoch: own}]->(r:Event)
  WHERE message.read = r.id AND message.receive_buffer_ns >= $min_ns
  RETURN collect({read: r.id, worker: r.worker, t_ns: r.t_ns, lay_ns: message.receive_buffer_ns,
                  records: message.records}) AS messages
}
UNWIND epochs AS own
CALL (own) {
  MATCH (a:Event)-[idle:WAITING {run: $run, epoch: own}]->(z:Event)
  WHERE idle.duration_ns >= $min_ns
  RETURN a, idle, z
  UNION ALL
  MATCH (a:Event)-[idle:INPUT_WAIT {run: $run, epoch: own}]->(z:Event)
  WHERE idle.duration_ns >= $min_ns
  RETURN a, idle, z
  UNION ALL
  MATCH (a:Event)-[idle:IDLE {run: $run, epoch: own}]->(z:Event)
  WHERE idle.duration_ns >= $min_ns
  RETURN a, idle, z
}
UNWIND messages AS message
WITH a, idle, z, message
WHERE z.worker <> message.worker
  AND z.t_ns - (message.t_ns - message.lay_ns) >= $min_ns
  AND message.t_ns - a.t_ns >= $min_ns
RETURN z.worker AS idle_worker,
       toLower(type(idle)) AS idle_type,
       idle.start_ns AS idle_start_ns,
       idle.duration_ns AS idle_ns,
       message.worker AS busy_worker,
       message.lay_ns AS lay_ns,
       message.t_ns AS read_ns,
       message.records AS records,
       z.id AS idle_end,
       message.read AS read
ORDER BY idle_ns DESC, idle_end, read_ns, read
LIMIT $limit;
