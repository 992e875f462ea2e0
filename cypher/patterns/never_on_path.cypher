// purpose: Operators that worked, but were on no critical path: making them faster gains nothing.
// param run: id of the run
// param share number = 0.0: also list operators with at most this share of their time on critical paths
// over: rounds
// returns: one row per operator, most time first: operator, name, address, spent_ns (in all rounds, on all workers, without waits,
//   input and idle time), rounds (in which it did something), of_rounds (that are loaded), path_ns (of its time on critical paths)
// example: skewed --share 0.5
//   operator | name     | address | spent_ns | rounds | of_rounds | path_ns
//   1        | Dataflow | 0       | 2342928  | 9      | 9         | 1075148
//   3        | Filter   | 0.2     | 1704628  | 9      | 9         | 570807
//   5        | Exchange | 0.3     | 117127   | 9      | 9         | 43825
//   4 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
MATCH (round)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
WITH collect(snapshot) AS snapshots
UNWIND snapshots AS snapshot
MATCH (snapshot)-[spent:SPENT]->(named:Operator)
WITH named, size(snapshots) AS of_rounds, snapshot, sum(spent.path_ns) AS path_ns,
     sum(CASE WHEN spent.type IN ['waiting', 'input_wait', 'idle', 'unknown'] THEN 0 ELSE spent.ns END) AS spent_ns
WITH named, of_rounds, count(*) AS rounds, sum(path_ns) AS path_ns, sum(spent_ns) AS spent_ns
WHERE spent_ns > 0 AND path_ns <= $share * spent_ns
RETURN named.operator AS operator, named.name AS name, named.address AS address, spent_ns, rounds, of_rounds,
       path_ns
ORDER BY spent_ns DESC, operator;
