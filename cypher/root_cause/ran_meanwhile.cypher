// purpose: What the other workers did while a worker waited.
// param run: id of the run
// param epoch: number of the epoch
// param worker integer: worker that waited
// returns: one row per other worker, activity and operator, most time first: worker, type, operator (name), ran_ns (time
//   that falls into waits of the worker inside the window), share (of all its waiting there); the times of each worker
//   add up to that waiting.
// example: skewed --epoch 4 --worker 1
//   worker | type       | operator | ran_ns  | share
//   3      | waiting    |          | 2745863 | 0.995
//   0      | processing | FlatMap  | 2741861 | 0.9935
//   2      | waiting    |          | 2632376 | 0.9538
//   21 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns
CALL (opens_ns, closes_ns) {
  MATCH (begin:Event {run: $run, worker: $worker})
  WHERE begin.t_ns <= opens_ns
  RETURN begin
  ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
  LIMIT 1
  UNION ALL
  MATCH (begin:Event {run: $run, worker: $worker})
  WHERE begin.t_ns > opens_ns AND begin.t_ns < closes_ns
  RETURN begin
}
MATCH (begin)-[:WAITING]->(end:Event)
WITH CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS opens_ns,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END AS closes_ns
WHERE closes_ns > opens_ns
WITH collect([opens_ns, closes_ns]) AS waits, sum(closes_ns - opens_ns) AS waiting_ns
UNWIND waits AS wait
WITH waiting_ns, wait[0] AS opens_ns, wait[1] AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0 AND at.worker <> $worker
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
WITH waiting_ns, at.worker AS worker, toLower(type(activity)) AS type, activity.operator AS operator,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS inside_ns
WITH waiting_ns, worker, type, operator, sum(inside_ns) AS ran_ns
WHERE ran_ns > 0
OPTIONAL MATCH (named:Operator {run: $run, operator: operator})
RETURN worker, type, named.name AS operator, ran_ns, round(toFloat(ran_ns) / waiting_ns, 4) AS share
ORDER BY ran_ns DESC, worker, type, operator;
