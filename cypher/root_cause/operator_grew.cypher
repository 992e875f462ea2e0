// purpose: Which operators took more time than in the rounds before.
// param run: id of the run
// param epoch: number of the epoch
// param rounds integer = 5: how many rounds before the epoch to compare with
// param limit integer = 20: how many rows at most
// over: epoch and rounds before
// returns: one row per operator, by how much it grew: operator, name, address, now_ns (its processing in the window, all
//   workers), before_ns (mean of the rounds before, also of those without it), grew_ns, ratio (null where it did nothing
//   before), rounds (that were found loaded). Time beside waits and empty activations only.
// example: skewed --epoch 4
//   operator | name     | address | now_ns  | before_ns | grew_ns | ratio | rounds
//   7        | FlatMap  | 0.4     | 3528446 | 3405326   | 123120  | 1.036 | 3
//   3        | Filter   | 0.2     | 254996  | 184261    | 70735   | 1.384 | 3
//   5        | Exchange | 0.3     | 10480   | 8560      | 1920    | 1.224 | 3
//   5 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
CALL (window) {
  MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, detail: 'full', role: 'round'})
  WHERE round.end_ns <= window.start_ns
  WITH round ORDER BY round.end_ns DESC LIMIT $rounds
  RETURN collect(round) AS before
}
UNWIND [window] + before AS round
WITH round = window AS is_now, size(before) AS rounds, round.start_ns AS opens_ns, round.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
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
MATCH (begin)-[activity:PROCESSING|SERIALIZATION|DESERIALIZATION|BUFFER|IO|GC|APPLICATION]->(end:Event)
WHERE activity.operator IS NOT NULL
WITH activity.operator AS operator, rounds, is_now,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS inside_ns
WITH operator, rounds,
     sum(CASE WHEN is_now THEN inside_ns ELSE 0 END) AS now_ns,
     sum(CASE WHEN is_now THEN 0 ELSE inside_ns END) AS sum_ns
WITH operator, rounds, now_ns, CASE WHEN rounds > 0 THEN toFloat(sum_ns) / rounds END AS before_ns
OPTIONAL MATCH (named:Operator {run: $run, operator: operator})
RETURN operator,
       named.name AS name,
       named.address AS address,
       now_ns,
       toInteger(round(before_ns)) AS before_ns,
       now_ns - toInteger(round(before_ns)) AS grew_ns,
       CASE WHEN before_ns > 0 THEN round(now_ns / before_ns, 3) END AS ratio,
       rounds
ORDER BY coalesce(grew_ns, now_ns) DESC, operator
LIMIT $limit;
