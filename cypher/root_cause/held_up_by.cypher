// purpose: Which worker held the others up.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per worker, most time on the critical path first: worker, path_ns (its activities on the critical
//   path), path_share (of the window), work_ns, waiting_ns (of its own), others_waited_ns (waits of others that its
//   messages ended), others_waits (how many); all inside the window.
// example: skewed --epoch 4
//   worker | path_ns | path_share | work_ns | waiting_ns | others_waited_ns | others_waits
//   0      | 3828386 | 0.9839     | 3890572 | 0          | 7939883          | 3
//   3      | 62507   | 0.0161     | 220295  | 2899299    | 0                | 0
//   2      | 0       | 0          | 461708  | 2632376    | 221729           | 2
//   1      | 0       | 0          | 363243  | 2759774    | 129837           | 1
//   4 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns, window.after_ns AS after_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at, after_ns, closes_ns) {
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns <= after_ns
  RETURN begin
  ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
  LIMIT 1
  UNION ALL
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns > after_ns AND begin.t_ns <= closes_ns
  RETURN begin
}
MATCH (begin)-[activity:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN]->(end:Event)
// What only begins where the window ends is no part of it, unless it has no length.
WHERE begin.t_ns < closes_ns OR end.t_ns <= closes_ns OR opens_ns = closes_ns
OPTIONAL MATCH (sender:Event {run: $run, id: activity.ended_by})
WITH opens_ns, closes_ns, at.worker AS worker, sender.worker AS by_worker, type(activity) AS type,
     activity.critical AND end.t_ns <= closes_ns AS is_critical,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS inside_ns
WITH closes_ns - opens_ns AS span_ns, worker, by_worker,
     sum(CASE WHEN is_critical THEN inside_ns ELSE 0 END) AS path_ns,
     sum(CASE WHEN type IN ['WAITING', 'IDLE', 'SPINNING', 'INPUT_WAIT', 'UNKNOWN'] THEN 0 ELSE inside_ns END) AS work_ns,
     sum(CASE WHEN type = 'WAITING' THEN inside_ns ELSE 0 END) AS waiting_ns,
     sum(CASE WHEN type = 'WAITING' THEN 1 ELSE 0 END) AS waits
WITH collect({worker: worker, by_worker: by_worker, path_ns: path_ns, work_ns: work_ns, waiting_ns: waiting_ns,
     waits: waits, span_ns: span_ns}) AS parts
UNWIND parts AS part
WITH parts, part.worker AS worker, max(part.span_ns) AS span_ns, sum(part.path_ns) AS path_ns,
     sum(part.work_ns) AS work_ns, sum(part.waiting_ns) AS waiting_ns
WITH *, [part IN parts WHERE part.by_worker = worker] AS ended
RETURN worker,
       path_ns,
       CASE WHEN span_ns > 0 THEN round(toFloat(path_ns) / span_ns, 4) ELSE 0.0 END AS path_share,
       work_ns,
       waiting_ns,
       reduce(ns = 0, part IN ended | ns + part.waiting_ns) AS others_waited_ns,
       reduce(n = 0, part IN ended | n + part.waits) AS others_waits
ORDER BY path_ns DESC, others_waited_ns DESC, worker;
