// purpose: What the longest activity of a worker delayed: everything in the window that happened after it and because
//   of it, on all workers.
// param run: id of the run
// param epoch: number of the epoch
// param worker integer: the straggler
// returns: one row per worker that it reached, soonest first: worker, first_ns (when it was reached), after_ns (since the
//   activity ended), events (reached), waits (that ended only after it), waited_ns (inside the window), activity (type of
//   the straggler's longest activity), operator (its name), activity_ns
// example: bfs --epoch 11 --worker 1
//   worker | first_ns | after_ns | events | waits | waited_ns | activity | operator | activity_ns
//   1      | 35023727 | 0        | 743    | 7     | 100770    | wake_up  |          | 2628448
//   0      | 35066246 | 42519    | 839    | 14    | 2876443   | wake_up  |          | 2628448
//   2 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns
CALL (opens_ns, closes_ns) {
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
  MATCH (begin)-[activity:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN&!WAITING]->(end:Event)
  WITH activity, begin, end,
       CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS activity_ns
  RETURN activity, end AS origin, activity_ns
  ORDER BY activity_ns DESC, begin.t_ns
  LIMIT 1
}
CALL (origin, closes_ns) {
  RETURN origin AS reached
  UNION
  MATCH (origin)((earlier:Event)-[]->(later:Event) WHERE later.t_ns <= closes_ns)+(reached:Event)
  RETURN DISTINCT reached
}
OPTIONAL MATCH (asleep:Event)-[wait:WAITING]->(reached)
WITH activity, activity_ns, origin, reached.worker AS worker, reached.t_ns AS t_ns,
     reached.t_ns - CASE WHEN asleep.t_ns < opens_ns THEN opens_ns ELSE asleep.t_ns END AS waited_ns
WITH activity, activity_ns, origin, worker, min(t_ns) AS first_ns, count(*) AS events, count(waited_ns) AS waits,
     coalesce(sum(waited_ns), 0) AS waited_ns
OPTIONAL MATCH (operator:Operator {run: $run, operator: activity.operator})
RETURN worker,
       first_ns,
       first_ns - origin.t_ns AS after_ns,
       events,
       waits,
       waited_ns,
       toLower(type(activity)) AS activity,
       operator.name AS operator,
       activity_ns
ORDER BY first_ns, worker;
