// purpose: What every worker was doing at an instant.
// param run: id of the run
// param at_ns integer: the instant, in ns from the run's origin
// over: instant
// returns: one row per worker: worker, type, operator (name), since_ns, for_ns, until_ns, event (id of the last event up
//   to the instant), epoch (that it carries). No row for a worker whose time there is not loaded.
// example: skewed --at_ns 16000000
//   worker | type       | operator | since_ns | for_ns | until_ns | event         | epoch
//   0      | processing | FlatMap  | 15880685 | 119315 | 18516813 | 956           | 4
//   1      | waiting    |          | 15892772 | 107228 | 18534726 | 1099511628316 | 4
//   2      | waiting    |          | 15902350 | 97650  | 18534726 | 2199023256112 | 4
//   3      | waiting    |          | 15869173 | 130827 | 18534726 | 3298534883924 | 4
//   4 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(window:Epoch {published: true, detail: 'full'})
WHERE window.after_ns < $at_ns AND window.end_ns >= $at_ns
WITH window ORDER BY window.start_ns LIMIT 1
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at) {
  MATCH (last:Event {run: $run, worker: at.worker})
  WHERE last.t_ns <= $at_ns
  RETURN last
  ORDER BY last.run DESC, last.worker DESC, last.t_ns DESC, last.pos DESC
  LIMIT 1
}
OPTIONAL MATCH (last)-[activity:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN]->(next:Event)
OPTIONAL MATCH (operator:Operator {run: $run, operator: activity.operator})
RETURN at.worker AS worker,
       toLower(type(activity)) AS type,
       operator.name AS operator,
       last.t_ns AS since_ns,
       $at_ns - last.t_ns AS for_ns,
       next.t_ns AS until_ns,
       last.id AS event,
       last.epoch AS epoch
ORDER BY worker;
