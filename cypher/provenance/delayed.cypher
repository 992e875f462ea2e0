// purpose: Everything that an event delayed or may have delayed: all events that happened after it and because of it.
// param run: id of the run
// param event integer = null: id of the event; default: the first in the slowest round's window
// param ahead_ns integer = null: how far ahead in time to look; default: to the end of its window
// param limit integer = 100: largest number of rows
// over: event and ahead_ns
// returns: one row per event, soonest first: event, worker, t_ns, after_ns (how long after), kind, operator (name), epoch,
//   ended_wait (whether a wait ended there)
// example: skewed
//   event         | worker | t_ns     | after_ns | kind  | operator | epoch | ended_wait
//   3298534883818 | 3      | 14733862 | 672      | start | Input    | 4     | false
//   3298534883820 | 3      | 14734272 | 1082     | stop  | Input    | 4     | false
//   3298534883824 | 3      | 14734914 | 1724     | start | Filter   | 4     | false
//   100 rows
//
// Only epochs that are published, one after the other without a gap, are walked. Each event is found once, however many
// ways lead to it.

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(window:Epoch {published: true, detail: 'full'})
WITH window ORDER BY window.start_ns, window.end_ns
WITH collect(window) AS windows
CALL (windows) {
  UNWIND windows AS round
  WITH round ORDER BY round.role = 'round' DESC, round.end_ns - round.start_ns DESC, round.epoch LIMIT 1
  MATCH (round)-[:FIRST]->(first:Event)
  RETURN first.id AS opening ORDER BY first.t_ns, first.id LIMIT 1
}
MATCH (cause:Event {run: $run, id: coalesce($event, opening)})
WITH cause, windows, head([round IN windows WHERE round.after_ns < cause.t_ns AND cause.t_ns <= round.end_ns]) AS own
WITH cause, own, reduce(to_ns = own.end_ns, round IN windows |
       CASE WHEN round.start_ns = to_ns THEN round.end_ns ELSE to_ns END) AS to_ns
WITH cause, CASE
       WHEN $ahead_ns IS NULL THEN own.end_ns
       WHEN cause.t_ns + $ahead_ns > to_ns THEN to_ns
       ELSE cause.t_ns + $ahead_ns
     END AS to_ns
MATCH (cause)((earlier:Event)-[]->(later:Event) WHERE later.t_ns <= to_ns)+(effect:Event)
WITH DISTINCT cause, effect
ORDER BY effect.t_ns, effect.id
LIMIT $limit
OPTIONAL MATCH (operator:Operator {run: $run, operator: effect.operator})
RETURN effect.id AS event,
       effect.worker AS worker,
       effect.t_ns AS t_ns,
       effect.t_ns - cause.t_ns AS after_ns,
       effect.kind AS kind,
       operator.name AS operator,
       effect.epoch AS epoch,
       EXISTS { (effect)<-[:WAITING]-(:Event) } AS ended_wait
ORDER BY t_ns, event;
