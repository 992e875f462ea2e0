// purpose: Which workers waited for many others: waits by receiver, with all senders that they waited for.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per worker that waited, most senders first: worker, senders (how many), from_workers, waits,
//   waiting_ns (inside the window), longest_ns, data_waits (ended by data), most_from (worker that it waited for longest),
//   most_ns (how long)
// example: skewed --epoch 4
//   worker | senders | from_workers | waits | waiting_ns | longest_ns | data_waits | most_from | most_ns
//   3      | 3       | [0, 1, 2]    | 3     | 2899299    | 2665553    | 0          | 0         | 2665553
//   1      | 2       | [0, 2]       | 2     | 2759774    | 2641954    | 0          | 0         | 2641954
//   2      | 1       | [0]          | 1     | 2632376    | 2632376    | 0          | 0         | 2632376
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
OPTIONAL MATCH (awake)<-[message:RELEASED]-(sender:Segment)
WITH at.worker AS worker, sender.worker AS from_worker, coalesce(message.type = 'data_message', false) AS is_data,
     CASE WHEN awake.start_ns > closes_ns THEN closes_ns ELSE awake.start_ns END
     - CASE WHEN wait.start_ns < opens_ns THEN opens_ns ELSE wait.start_ns END AS waited_ns
WITH worker, from_worker, count(*) AS waits, sum(waited_ns) AS waiting_ns, max(waited_ns) AS longest_ns,
     sum(CASE WHEN is_data THEN 1 ELSE 0 END) AS data_waits
ORDER BY worker, waiting_ns DESC, from_worker
WITH worker, collect(from_worker) AS from_workers, sum(waits) AS waits, sum(waiting_ns) AS waiting_ns,
     max(longest_ns) AS longest_ns, sum(data_waits) AS data_waits,
     head(collect({worker: from_worker, ns: waiting_ns})) AS most
RETURN worker,
       size(from_workers) AS senders,
       from_workers,
       waits,
       waiting_ns,
       longest_ns,
       data_waits,
       most.worker AS most_from,
       most.ns AS most_ns
ORDER BY senders DESC, waiting_ns DESC, worker;
