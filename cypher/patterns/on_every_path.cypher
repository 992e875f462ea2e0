// purpose: Operators that are on the critical path of every round, or of most rounds.
// param run: id of the run
// param share number = 1.0: list operators on the paths of at least this share of the rounds
// over: rounds
// returns: one row per operator, most time first: operator, name, address, rounds (on whose path it is), of_rounds (that
//   are loaded), path_ns (on all of them), least_ns and most_ns (on one of them), most_epoch (the first with so much)
// example: skewed
//   operator | name     | address | rounds | of_rounds | path_ns  | least_ns | most_ns | most_epoch
//   7        | FlatMap  | 0.4     | 9      | 9         | 29270075 | 3066741  | 3528446 | 4
//   1        | Dataflow | 0       | 9      | 9         | 1075148  | 66884    | 165745  | 4
//   3        | Filter   | 0.2     | 9      | 9         | 570807   | 20449    | 128881  | 3
//   7 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
MATCH (round)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
WITH collect({epoch: round.epoch, snapshot: snapshot}) AS rounds
UNWIND rounds AS round
// Bound once: a list of a node is read anew for each of its members.
WITH size(rounds) AS of_rounds, round.epoch AS epoch, round.snapshot.path_operators AS operators,
     round.snapshot.path_times_ns AS times_ns
UNWIND range(0, coalesce(size(times_ns), 0) - 1) AS i
WITH of_rounds, epoch, operators[i] AS operator, sum(times_ns[i]) AS path_ns
WHERE operator >= 0
ORDER BY operator, path_ns DESC, epoch
WITH of_rounds, operator, count(*) AS rounds, sum(path_ns) AS path_ns, min(path_ns) AS least_ns, max(path_ns) AS most_ns,
     head(collect(epoch)) AS most_epoch
WHERE rounds >= $share * of_rounds
OPTIONAL MATCH (named:Operator {run: $run, operator: operator})
RETURN operator,
       named.name AS name,
       named.address AS address,
       rounds,
       of_rounds,
       path_ns,
       least_ns,
       most_ns,
       most_epoch
ORDER BY path_ns DESC, operator;
