// purpose: Which operators took more time than in the rounds before.
// param run: id of the run
// param epoch: number of the epoch
// param rounds integer = 5: number of rounds before the epoch to compare with
// param limit integer = 20: largest number of rows
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

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
CALL (window) {
  MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
  WHERE round.end_ns <= window.start_ns
  WITH round ORDER BY round.end_ns DESC LIMIT $rounds
  RETURN collect(round) AS before
}
UNWIND [window] + before AS round
MATCH (round)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
MATCH (snapshot)-[spent:SPENT]->(named:Operator)
WHERE spent.type IN ['processing', 'serialization', 'deserialization', 'buffer', 'io', 'gc', 'application']
WITH named, size(before) AS rounds,
     sum(CASE WHEN round = window THEN spent.ns ELSE 0 END) AS now_ns,
     sum(CASE WHEN round = window THEN 0 ELSE spent.ns END) AS sum_ns
WITH named, rounds, now_ns, CASE WHEN rounds > 0 THEN toFloat(sum_ns) / rounds END AS before_ns
RETURN named.operator AS operator,
       named.name AS name,
       named.address AS address,
       now_ns,
       toInteger(round(before_ns)) AS before_ns,
       now_ns - toInteger(round(before_ns)) AS grew_ns,
       CASE WHEN before_ns > 0 THEN round(now_ns / before_ns, 3) END AS ratio,
       rounds
ORDER BY coalesce(grew_ns, now_ns) DESC, operator
LIMIT $limit;
