// purpose: Everything that led to an event: all events that happened before it and may have contributed to it.
// param run: id of the run
// param event integer = null: id of the event; default: the one that closes the slowest round
// param back_ns integer = null: how far back in time to look; default: to the start of its window
// param limit integer = 100: largest number of rows
// over: event and back_ns
// returns: one row per event, latest first: event, worker, t_ns, before_ns (how long before), kind, operator (name), epoch
// example: skewed
//   event         | worker | t_ns     | before_ns | kind  | operator | epoch
//   3298534883944 | 3      | 18595409 | 1824      | stop  | Dataflow | 4
//   3298534883942 | 3      | 18595099 | 2134      | stop  | Probe    | 4
//   3298534883940 | 3      | 18594467 | 2766      | start | Probe    | 4
//   100 rows
//
// Only epochs that are published, one after the other without a gap, are walked. Each event is found once, however many
// ways lead to it.

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(window:Epoch {published: true, detail: 'full'})
WITH window ORDER BY window.start_ns DESC, window.end_ns DESC
WITH collect(window) AS windows
CALL (windows) {
  UNWIND windows AS round
  WITH round ORDER BY round.role = 'round' DESC, round.end_ns - round.start_ns DESC, round.epoch
  RETURN head(collect(round.end_vertex)) AS closing
}
MATCH (effect:Event {run: $run, id: coalesce($event, closing)})
WITH effect, windows, head([round IN windows WHERE round.after_ns < effect.t_ns AND effect.t_ns <= round.end_ns]) AS own
WITH effect, own, reduce(from_ns = own.start_ns, round IN windows |
       CASE WHEN round.end_ns = from_ns THEN round.start_ns ELSE from_ns END) AS from_ns
WITH effect, CASE
       WHEN $back_ns IS NULL THEN own.start_ns
       WHEN effect.t_ns - $back_ns < from_ns THEN from_ns
       ELSE effect.t_ns - $back_ns
     END AS from_ns
MATCH (effect)((later:Event)<-[]-(earlier:Event) WHERE earlier.t_ns > from_ns)+(cause:Event)
WITH DISTINCT effect, cause
ORDER BY cause.t_ns DESC, cause.id DESC
LIMIT $limit
OPTIONAL MATCH (operator:Operator {run: $run, operator: cause.operator})
RETURN cause.id AS event,
       cause.worker AS worker,
       cause.t_ns AS t_ns,
       effect.t_ns - cause.t_ns AS before_ns,
       cause.kind AS kind,
       operator.name AS operator,
       cause.epoch AS epoch
ORDER BY t_ns DESC, event DESC;
