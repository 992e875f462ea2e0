// purpose: Which workers waited in the window of an epoch, and whose messages ended their waits.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per waiting worker, worker waited for, type and channel of the message, longest first: worker,
//   from_worker, type, channel, waits, waiting_ns; only the part of a wait inside the window counts. The other worker,
//   type and channel are null where no message is known.
// example: skewed --epoch 4
//   worker | from_worker | type             | channel | waits | waiting_ns
//   3      | 0           | progress_message | 13      | 1     | 2665553
//   1      | 0           | progress_message | 13      | 1     | 2641954
//   2      | 0           | progress_message | 13      | 1     | 2632376
//   6 rows

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
OPTIONAL MATCH (awake)<-[message:RELEASED]-(sender:Segment)
WITH at.worker AS worker, sender.worker AS from_worker, message.type AS type, message.channel AS channel,
     CASE WHEN awake.start_ns > closes_ns THEN closes_ns ELSE awake.start_ns END
     - CASE WHEN wait.start_ns < opens_ns THEN opens_ns ELSE wait.start_ns END AS waited_ns
RETURN worker, from_worker, type, channel, count(*) AS waits, sum(waited_ns) AS waiting_ns
ORDER BY waiting_ns DESC, worker, from_worker, type, channel;
