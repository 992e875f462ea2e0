// purpose: What happened within k hops before the waits of an epoch ended, hop by hop; the same as the analysis `k-hops`.
// param run: id of the run
// param epoch: number of the epoch
// param k integer = 3: number of hops, from 1 to 6
// returns: one row per hop, type, worker and operator, in this order: hop, type, worker, operator, walks, edges, walk_ns,
//   edge_ns. `walks` counts the walks of `hop` steps that end with a message which ended a wait or was read right after
//   one; `edges` the different activities among their first steps. Messages weigh from send to read.
// example: skewed --epoch 4 --k 2
//   hop | type             | worker | operator | walks | edges | walk_ns | edge_ns
//   1   | progress_message | 0      |          | 3     | 3     | 361946  | 361946
//   1   | progress_message | 1      |          | 1     | 1     | 21125   | 21125
//   1   | progress_message | 2      |          | 2     | 2     | 42305   | 42305
//   2   | busy             | 0      | 1        | 3     | 1     | 4989    | 1663
//   6 rows
//
// Walks are counted by how many reach an event, and never listed: each hop costs no more than the activities it meets.

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (window, at) {
  MATCH (end:Event {run: $run, worker: at.worker})
  WHERE end.t_ns > window.after_ns AND end.t_ns <= window.end_ns
  RETURN end
}
MATCH (end)<-[activity:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]-(begin:Event)
CALL (window, end, activity) {
  // Either it ended a wait, or it is data that was read in the stretch that the end of a wait in this window began.
  MATCH (end)<-[:WAITING]-()
  RETURN true AS is_seed
  UNION
  MATCH (opened:Event {run: $run, id: end.segment})<-[:WAITING]-()
  WHERE type(activity) = 'DATA_MESSAGE' AND opened.t_ns > window.after_ns
  RETURN true AS is_seed
}
WITH window, collect({begin: begin, end: end, activity: activity, walks: 1}) AS hop1
CALL (window, hop1) {
  WITH window, hop1 WHERE $k >= 2
  UNWIND hop1 AS hop
  WITH window, hop.begin AS later, sum(hop.walks) AS walks
  MATCH (later)<-[activity]-(begin:Event)
  WHERE later.t_ns > window.after_ns
  RETURN collect({begin: begin, end: later, activity: activity, walks: walks}) AS hop2
}
CALL (window, hop2) {
  WITH window, hop2 WHERE $k >= 3
  UNWIND hop2 AS hop
  WITH window, hop.begin AS later, sum(hop.walks) AS walks
  MATCH (later)<-[activity]-(begin:Event)
  WHERE later.t_ns > window.after_ns
  RETURN collect({begin: begin, end: later, activity: activity, walks: walks}) AS hop3
}
CALL (window, hop3) {
  WITH window, hop3 WHERE $k >= 4
  UNWIND hop3 AS hop
  WITH window, hop.begin AS later, sum(hop.walks) AS walks
  MATCH (later)<-[activity]-(begin:Event)
  WHERE later.t_ns > window.after_ns
  RETURN collect({begin: begin, end: later, activity: activity, walks: walks}) AS hop4
}
CALL (window, hop4) {
  WITH window, hop4 WHERE $k >= 5
  UNWIND hop4 AS hop
  WITH window, hop.begin AS later, sum(hop.walks) AS walks
  MATCH (later)<-[activity]-(begin:Event)
  WHERE later.t_ns > window.after_ns
  RETURN collect({begin: begin, end: later, activity: activity, walks: walks}) AS hop5
}
CALL (window, hop5) {
  WITH window, hop5 WHERE $k >= 6
  UNWIND hop5 AS hop
  WITH window, hop.begin AS later, sum(hop.walks) AS walks
  MATCH (later)<-[activity]-(begin:Event)
  WHERE later.t_ns > window.after_ns
  RETURN collect({begin: begin, end: later, activity: activity, walks: walks}) AS hop6
}
WITH window, [hop1, hop2, hop3, hop4, hop5, hop6] AS hops
UNWIND range(1, 6) AS hop
UNWIND hops[hop - 1] AS step
WITH hop, step.activity AS activity, step.begin AS begin, step.walks AS walks,
     step.end.t_ns
     - CASE WHEN step.begin.t_ns < window.start_ns THEN window.start_ns ELSE step.begin.t_ns END
     + CASE WHEN step.activity.read <> step.end.id THEN coalesce(step.activity.receive_buffer_ns, 0) ELSE 0 END
       AS weight_ns
RETURN hop,
       toLower(type(activity)) AS type,
       begin.worker AS worker,
       activity.operator AS operator,
       sum(walks) AS walks,
       count(*) AS edges,
       sum(walks * weight_ns) AS walk_ns,
       sum(weight_ns) AS edge_ns
ORDER BY hop, type, worker, coalesce(operator, -1);
