// purpose: From an output back to the input: to which rounds of input the events belong that led to the output, and
//   where and when each of these rounds began.
// param run: id of the run
// param event integer = null: id of the output's event; default: the one that closes the slowest round
// param rounds integer = 2: number of windows before its own to look back
// over: event and rounds
// returns: one row per round of input and worker, latest round first: epoch, worker, events (that led to the output),
//   first_event, entered_ns (when), before_ns (how long before the output), is_own (whether the output carries this round)
// example: skewed
//   epoch | worker | events | first_event   | entered_ns | before_ns | is_own
//   4     | 0      | 20     | 906           | 15787591   | 2809642   | true
//   4     | 1      | 10     | 1099511628236 | 14894857   | 3702376   | true
//   4     | 2      | 10     | 2199023256050 | 15028196   | 3569037   | true
//   4     | 3      | 59     | 3298534883816 | 14733190   | 3864043   | true
//   15 rows
//
// Only epochs that are published, one after the other without a gap, are walked.

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
WITH effect, reduce(back = {ns: own.start_ns, left: $rounds}, round IN windows |
       CASE WHEN round.end_ns = back.ns AND back.left > 0 THEN {ns: round.start_ns, left: back.left - 1} ELSE back END
     ).ns AS from_ns
MATCH (effect)((later:Event)<-[]-(earlier:Event) WHERE earlier.t_ns > from_ns)+(cause:Event)
WITH DISTINCT effect, cause
ORDER BY cause.t_ns, cause.id
WITH effect, cause.epoch AS epoch, cause.worker AS worker, count(*) AS events, head(collect(cause)) AS first
RETURN epoch,
       worker,
       events,
       first.id AS first_event,
       first.t_ns AS entered_ns,
       effect.t_ns - first.t_ns AS before_ns,
       epoch = effect.epoch AS is_own
ORDER BY epoch DESC, worker;
