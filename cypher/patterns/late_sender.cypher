// purpose: Waits that had already begun when the message that ended them was sent: the sender was late. The motif of
//   the same name finds the same matches.
// param run: id of the run
// param first_epoch integer = null: first epoch of the matches; default: the first loaded one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// param min_ns integer = 1: least time from the beginning of the wait to the send
// param limit integer = 1000: largest number of rows
// over: epochs
// returns: one row per wait, longest first: worker, from_worker, wait_start_ns, waited_ns, message (its type), channel, records,
//   sent and wait_end (events), send_ns
// example: skewed --limit 3
//   worker | from_worker | wait_start_ns | waited_ns | message          | channel | records | sent | wait_end      | send_ns
//   3      | 0           | 15869173      | 2665553   | progress_message | 13      | 3       | 1028 | 3298534883925 | 18534726
//   1      | 0           | 15892772      | 2641954   | progress_message | 13      | 3       | 1028 | 1099511628317 | 18534726
//   2      | 0           | 15902350      | 2632376   | progress_message | 13      | 3       | 1028 | 2199023256113 | 18534726
//   3 rows

MATCH (round:Epoch {run: $run, published: true})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
MATCH (z:Segment {run: $run, epoch: round.epoch})
MATCH (z)<-[wait:THEN]-(:Segment)
MATCH (z)<-[message:RELEASED]-(s:Segment)
WHERE message.sent_ns - wait.start_ns >= $min_ns
RETURN z.worker AS worker,
       s.worker AS from_worker,
       wait.start_ns AS wait_start_ns,
       wait.waited_ns AS waited_ns,
       message.type AS message,
       message.channel AS channel,
       message.records AS records,
       message.src AS sent,
       z.id AS wait_end,
       message.sent_ns AS send_ns
ORDER BY waited_ns DESC, wait_end, sent
LIMIT $limit;
