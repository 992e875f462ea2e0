// purpose: Waits that were ended by data from another worker: the worker had nothing left to work on. The motif of the
//   same name finds the same matches.
// param run: id of the run
// param first_epoch integer = null: first epoch of the matches; default: the first loaded one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// param min_ns integer = 0: least length of the wait
// param limit integer = 1000: largest number of rows
// over: epochs
// returns: one row per wait, longest first: worker, from_worker, wait_start_ns, waited_ns, message (its type), channel, records,
//   sent and wait_end (events)
// example: bfs --limit 3
//   worker | from_worker | wait_start_ns | waited_ns | message      | channel | records | sent          | wait_end
//   0      | 1           | 16396378      | 192902    | data_message | 33      | 2       | 1099511646420 | 18909
//   1      | 0           | 15843006      | 137124    | data_message | 33      | 3       | 18298         | 1099511645875
//   1      | 0           | 4197020       | 122471    | data_message | 33      | 12      | 3616          | 1099511632243
//   3 rows

MATCH (round:Epoch {run: $run, published: true})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
MATCH (z:Segment {run: $run, epoch: round.epoch})
MATCH (z)<-[wait:THEN]-(:Segment)
WHERE wait.waited_ns >= $min_ns
MATCH (z)<-[message:RELEASED {type: 'data_message'}]-(s:Segment)
RETURN z.worker AS worker,
       s.worker AS from_worker,
       wait.start_ns AS wait_start_ns,
       wait.waited_ns AS waited_ns,
       message.type AS message,
       message.channel AS channel,
       message.records AS records,
       message.src AS sent,
       z.id AS wait_end
ORDER BY waited_ns DESC, wait_end, sent
LIMIT $limit;
