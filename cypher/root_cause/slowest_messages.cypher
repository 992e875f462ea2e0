// purpose: Which messages delayed their receivers most.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 20: largest number of rows
// returns: one row per message that ended a wait, longest wait first: from_worker, to_worker, type, channel,
//   from_operator, to_operator (names, null if unknown), sent_ns, arrived_ns, transfer_ns, waited_ns (inside the
//   window), critical (whether the critical path leads over it), alternatives (other messages that may have ended the
//   wait as well).
// example: skewed --epoch 4 --limit 3
//   from_worker | to_worker | type             | channel | from_operator | to_operator | sent_ns  | arrived_ns | transfer_ns | waited_ns | critical | alternatives
//   0           | 3         | progress_message | 13      |               |             | 18534726 | 18534726   | 0           | 2665553   | true     | 0
//   0           | 1         | progress_message | 13      |               |             | 18534726 | 18534726   | 0           | 2641954   | false    | 0
//   0           | 2         | progress_message | 13      |               |             | 18534726 | 18534726   | 0           | 2632376   | false    | 0
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
MATCH (awake)<-[message:RELEASED]-(sender:Segment)
WITH message, sender, awake,
     CASE WHEN awake.start_ns > closes_ns THEN closes_ns ELSE awake.start_ns END
     - CASE WHEN wait.start_ns < opens_ns THEN opens_ns ELSE wait.start_ns END AS waited_ns
ORDER BY waited_ns DESC, message.sent_ns, awake.id
LIMIT $limit
OPTIONAL MATCH (source:Operator)-[:FEEDS {run: $run, channel: message.channel}]->(target:Operator)
RETURN sender.worker AS from_worker,
       awake.worker AS to_worker,
       message.type AS type,
       message.channel AS channel,
       source.name AS from_operator,
       target.name AS to_operator,
       message.sent_ns AS sent_ns,
       awake.start_ns AS arrived_ns,
       message.arrived_ns - message.sent_ns AS transfer_ns,
       waited_ns,
       coalesce(message.critical, false) AS critical,
       message.alternatives AS alternatives
ORDER BY waited_ns DESC, sent_ns, to_worker;
