// purpose: Pairs of workers that waited for each other in the window of an epoch: neither could go on without the other.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per pair, by the shorter of both sums, longest first: worker, other, waits (of worker, ended by other),
//   waiting_ns (of these, inside the window), other_waits, other_waiting_ns, both_ns (the shorter of both sums)
// example: bfs --epoch 11
//   worker | other | waits | waiting_ns | other_waits | other_waiting_ns | both_ns
//   0      | 1     | 15    | 2880728    | 8           | 112045           | 112045
//   1 row

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns, window.after_ns AS after_ns
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
MATCH (awake)<-[:RELEASED]-(sender:Segment)
WHERE sender.worker <> at.worker
WITH at.worker AS waiter, sender.worker AS sender,
     CASE WHEN awake.start_ns > closes_ns THEN closes_ns ELSE awake.start_ns END
     - CASE WHEN wait.start_ns < opens_ns THEN opens_ns ELSE wait.start_ns END AS waited_ns
WITH CASE WHEN waiter < sender THEN waiter ELSE sender END AS worker,
     CASE WHEN waiter < sender THEN sender ELSE waiter END AS other,
     sum(CASE WHEN waiter < sender THEN 1 ELSE 0 END) AS waits,
     sum(CASE WHEN waiter < sender THEN waited_ns ELSE 0 END) AS waiting_ns,
     sum(CASE WHEN waiter < sender THEN 0 ELSE 1 END) AS other_waits,
     sum(CASE WHEN waiter < sender THEN 0 ELSE waited_ns END) AS other_waiting_ns
WHERE waits > 0 AND other_waits > 0
RETURN worker,
       other,
       waits,
       waiting_ns,
       other_waits,
       other_waiting_ns,
       CASE WHEN waiting_ns < other_waiting_ns THEN waiting_ns ELSE other_waiting_ns END AS both_ns
ORDER BY both_ns DESC, worker, other;
