// purpose: Data that lay unread at a worker that was busy with something else: the receiver was late. The motif of the
//   same name finds the same matches.
// param run: id of the run
// param first_epoch integer = null: first epoch of the matches; default: the first loaded one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// param min_ns integer = 100000: least time from the arrival to the read
// param limit integer = 1000: largest number of rows
// over: epochs
// returns: one row per message, longest first: worker, from_worker, lay_ns, read_ns, channel, records, activity (what the worker
//   did just before the read), operator, activity_ns, sent and read (events)
// example: triangles --limit 3
//   worker | from_worker | lay_ns  | read_ns  | channel | records | activity   | operator | activity_ns | sent | read
//   1      | 0           | 4023884 | 11575655 | 27      | 204     | processing | 26       | 1653        | 1194 | 1099511629860
//   1      | 0           | 3992686 | 11582999 | 27      | 204     | processing | 26       | 7344        | 1200 | 1099511629862
//   1      | 0           | 3975173 | 11592346 | 27      | 204     | processing | 26       | 9347        | 1204 | 1099511629864
//   3 rows

MATCH (round:Epoch {run: $run, published: true, detail: 'full'})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
MATCH (s:Event)-[message:DATA_MESSAGE {run: $run, epoch: round.epoch}]->(r:Event)
WHERE message.read = r.id AND message.receive_buffer_ns >= $min_ns
MATCH (r)<-[activity]-(p:Event)
WHERE p.worker = r.worker
RETURN r.worker AS worker,
       s.worker AS from_worker,
       message.receive_buffer_ns AS lay_ns,
       r.t_ns AS read_ns,
       message.channel AS channel,
       message.records AS records,
       toLower(type(activity)) AS activity,
       activity.operator AS operator,
       activity.duration_ns AS activity_ns,
       s.id AS sent,
       r.id AS read
ORDER BY lay_ns DESC, read, sent
LIMIT $limit;
