// purpose: What all workers did in the time just before an instant.
// param run: id of the run
// param epoch: number of the epoch
// param at_ns integer = null: the instant, in ns from the run's origin; default: the arrival of the message that ended
//   the epoch's longest wait
// param back_ns integer = 5000000: how far before the instant to look; at most to the start of the window
// param limit integer = 100: largest number of rows
// returns: one row per worker, activity and operator, most time first: worker, type, operator (name), spent_ns (inside the time looked
//   at), times (how often), from_ns and to_ns (the time looked at)
// example: skewed --epoch 4 --back_ns 1000000
//   worker | type    | operator | spent_ns | times | from_ns  | to_ns
//   1      | waiting |          | 1000000  | 1     | 17534726 | 18534726
//   2      | waiting |          | 1000000  | 1     | 17534726 | 18534726
//   3      | waiting |          | 1000000  | 1     | 17534726 | 18534726
//   7 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
CALL (window) {
  MATCH (:Segment)-[wait:THEN]->(awake:Segment {run: $run, round: window.epoch})
  RETURN awake.start_ns AS longest_ns
  ORDER BY wait.waited_ns DESC, awake.start_ns, awake.id
  LIMIT 1
  UNION ALL
  RETURN null AS longest_ns
}
WITH window, max(longest_ns) AS longest_ns
WITH window, coalesce($at_ns, longest_ns, window.end_ns) AS to_ns
WHERE window.start_ns < to_ns AND to_ns <= window.end_ns
WITH to_ns, CASE WHEN to_ns - $back_ns < window.start_ns THEN window.start_ns ELSE to_ns - $back_ns END AS from_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at, from_ns, to_ns) {
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns <= from_ns
  RETURN begin
  ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
  LIMIT 1
  UNION ALL
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns > from_ns AND begin.t_ns < to_ns
  RETURN begin
}
MATCH (begin)-[activity:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN]->(end:Event)
WITH at.worker AS worker, activity, from_ns, to_ns,
     CASE WHEN end.t_ns > to_ns THEN to_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < from_ns THEN from_ns ELSE begin.t_ns END AS inside_ns
WHERE inside_ns > 0
WITH worker, toLower(type(activity)) AS type, activity.operator AS number, from_ns, to_ns, sum(inside_ns) AS spent_ns,
     count(*) AS times
OPTIONAL MATCH (operator:Operator {run: $run, operator: number})
RETURN worker, type, operator.name AS operator, spent_ns, times, from_ns, to_ns
ORDER BY spent_ns DESC, worker, type, operator
LIMIT $limit;
