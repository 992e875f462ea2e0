// purpose: The fewest steps by which one event may have contributed to another.
// param run: id of the run
// param source integer = null: id of the earlier event; default: the first in the slowest round's window
// param event integer = null: id of the later event; default: the one that closes the slowest round
// param rounds integer = 2: number of windows before the later event's own to look through
// over: event and rounds
// returns: one row per step, in time order: step, type, worker, to_worker, start_ns, duration_ns, operator (name), src, dst; none where
//   no way leads from one to the other in the windows looked at
// example: skewed
//   step | type     | worker | to_worker | start_ns | duration_ns | operator | src           | dst
//   0    | busy     | 3      | 3         | 14733190 | 672         | Dataflow | 3298534883816 | 3298534883818
//   1    | spinning | 3      | 3         | 14733862 | 410         | Input    | 3298534883818 | 3298534883820
//   2    | busy     | 3      | 3         | 14734272 | 642         | Dataflow | 3298534883820 | 3298534883824
//   44 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(window:Epoch {published: true, detail: 'full'})
WITH window ORDER BY window.start_ns DESC, window.end_ns DESC
WITH collect(window) AS windows
CALL (windows) {
  UNWIND windows AS round
  WITH round ORDER BY round.role = 'round' DESC, round.end_ns - round.start_ns DESC, round.epoch LIMIT 1
  MATCH (round)-[:FIRST]->(first:Event)
  RETURN first.id AS opening, round.end_vertex AS closing ORDER BY first.t_ns, first.id LIMIT 1
}
MATCH (effect:Event {run: $run, id: coalesce($event, closing)})
MATCH (cause:Event {run: $run, id: coalesce($source, opening)})
WITH cause, effect, windows,
     head([round IN windows WHERE round.after_ns < effect.t_ns AND effect.t_ns <= round.end_ns]) AS own
WITH cause, effect, reduce(back = {ns: own.start_ns, left: $rounds}, round IN windows |
       CASE WHEN round.end_ns = back.ns AND back.left > 0 THEN {ns: round.start_ns, left: back.left - 1} ELSE back END
     ).ns AS from_ns
WHERE cause.t_ns > from_ns
MATCH path = SHORTEST 1 (cause)(()-[]->(later:Event) WHERE later.t_ns <= effect.t_ns)+(effect)
WITH nodes(path) AS events, relationships(path) AS steps
UNWIND range(0, size(steps) - 1) AS step
WITH step, events[step] AS src, events[step + 1] AS dst, steps[step] AS activity
OPTIONAL MATCH (operator:Operator {run: $run, operator: activity.operator})
RETURN step,
       toLower(type(activity)) AS type,
       src.worker AS worker,
       dst.worker AS to_worker,
       activity.start_ns AS start_ns,
       activity.duration_ns AS duration_ns,
       operator.name AS operator,
       src.id AS src,
       dst.id AS dst
ORDER BY step;
