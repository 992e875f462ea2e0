// purpose: Every wait of an epoch with what ended it; the detail `waits` is enough.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 50: largest number of rows
// returns: one row per wait, longest first: worker, start_ns, end_ns (uncut), waited_ns (inside the window), from_worker,
//   message, channel, sent_ns, critical (whether the critical path leads over the message), sender_did (the operator that
//   was most active in the stretch that the message came from), segment (that the wait's end began)
// example: skewed --epoch 4 --limit 3
//   worker | start_ns | end_ns   | waited_ns | from_worker | message          | channel | sent_ns  | critical | sender_did | segment
//   3      | 15869173 | 18534726 | 2665553   | 0           | progress_message | 13      | 18534726 | true     | FlatMap    | 3298534883925
//   1      | 15892772 | 18534726 | 2641954   | 0           | progress_message | 13      | 18534726 | false    | FlatMap    | 1099511628317
//   2      | 15902350 | 18534726 | 2632376   | 0           | progress_message | 13      | 18534726 | false    | FlatMap    | 2199023256113
//   3 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns, window.after_ns AS after_ns
// With a bound on the second property the index on both finds the workers of a run.
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at, after_ns, closes_ns) {
  MATCH (awake:Segment {run: $run, worker: at.worker})
  WHERE awake.start_ns > after_ns AND awake.start_ns <= closes_ns
  RETURN awake
  UNION ALL
  // The wait that lasts beyond the window's end is the one before the first segment after it.
  MATCH (awake:Segment {run: $run, worker: at.worker})
  WHERE awake.start_ns > closes_ns
  RETURN awake
  ORDER BY awake.run, awake.worker, awake.start_ns, awake.id
  LIMIT 1
}
MATCH (:Segment)-[wait:THEN]->(awake)
WHERE wait.start_ns < closes_ns OR awake.start_ns <= closes_ns
WITH at, awake, wait,
     CASE WHEN awake.start_ns > closes_ns THEN closes_ns ELSE awake.start_ns END
     - CASE WHEN wait.start_ns < opens_ns THEN opens_ns ELSE wait.start_ns END AS waited_ns
ORDER BY waited_ns DESC, at.worker, wait.start_ns
LIMIT $limit
OPTIONAL MATCH (awake)<-[message:RELEASED]-(sender:Segment)
OPTIONAL MATCH (operator:Operator {run: $run, operator: head(sender.operators)})
RETURN at.worker AS worker,
       wait.start_ns AS start_ns,
       awake.start_ns AS end_ns,
       waited_ns,
       sender.worker AS from_worker,
       message.type AS message,
       message.channel AS channel,
       message.sent_ns AS sent_ns,
       coalesce(message.critical, false) AS critical,
       operator.name AS sender_did,
       awake.id AS segment
ORDER BY waited_ns DESC, worker, start_ns;
