// purpose: How much of the time of each type of activity is on the critical path. An activity beside the path costs
//   nothing; one with all its time on the path costs the most.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per type, most time on the path first: type, path_ns (on the critical path), share (path_ns of the
//   window's length; adds up to 1), total_ns (of all workers in the window; 0 for messages), on_path (path_ns of total_ns),
//   per_worker_ns (total_ns over the workers), imbalance_ns (path_ns - per_worker_ns: what perfect balance could take off
//   the path; the same as the analysis `imbalance`)
// example: skewed --epoch 4
//   type       | path_ns | share  | total_ns | on_path | per_worker_ns | imbalance_ns
//   processing | 3641079 | 0.9358 | 3820344  | 0.9531  | 955086        | 2685993
//   busy       | 211362  | 0.0543 | 490906   | 0.4306  | 122726.5      | 88635.5
//   wake_up    | 38131   | 0.0098 | 624568   | 0.0611  | 156142        | -118011
//   spinning   | 321     | 0.0001 | 13454    | 0.0239  | 3363.5        | -3042.5
//   6 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at, opens_ns, closes_ns) {
  MATCH (end:Event {run: $run, worker: at.worker})
  WHERE end.t_ns > opens_ns AND end.t_ns <= closes_ns
  MATCH (begin:Event)-[step {critical: true}]->(end)
  RETURN type(step) AS type, null AS running, 0 AS total_ns,
         end.t_ns - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS path_ns
  UNION ALL
  WITH at, opens_ns, closes_ns
  CALL (at, opens_ns, closes_ns) {
    MATCH (begin:Event {run: $run, worker: at.worker})
    WHERE begin.t_ns <= opens_ns
    RETURN begin
    ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
    LIMIT 1
    UNION ALL
    MATCH (begin:Event {run: $run, worker: at.worker})
    WHERE begin.t_ns > opens_ns AND begin.t_ns < closes_ns
    RETURN begin
  }
  MATCH (begin)-[activity:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN]->(end:Event)
  RETURN type(activity) AS type, at.worker AS running, 0 AS path_ns,
         CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
         - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS total_ns
}
WITH closes_ns - opens_ns AS span_ns, type, sum(path_ns) AS path_ns, sum(total_ns) AS total_ns,
     collect(DISTINCT running) AS running
WITH span_ns, collect({type: type, path_ns: path_ns, total_ns: total_ns, running: running}) AS types
WITH span_ns, types, size(reduce(workers = [], each IN types | workers + [w IN each.running WHERE NOT w IN workers])) AS workers
UNWIND types AS each
WITH span_ns, each.type AS type, each.path_ns AS path_ns, each.total_ns AS total_ns,
     CASE WHEN workers > 0 THEN toFloat(each.total_ns) / workers ELSE 0.0 END AS per_worker_ns
WHERE path_ns <> 0 OR total_ns <> 0
RETURN toLower(type) AS type,
       path_ns,
       round(toFloat(path_ns) / span_ns, 4) AS share,
       total_ns,
       CASE WHEN total_ns > 0 THEN round(toFloat(path_ns) / total_ns, 4) END AS on_path,
       round(per_worker_ns, 1) AS per_worker_ns,
       round(path_ns - per_worker_ns, 1) AS imbalance_ns
ORDER BY path_ns DESC, total_ns DESC, type;
