// purpose: Where one run took longer than another: the critical paths of all rounds, by activity and operator. The
//   differences add up exactly to the difference of the rounds' lengths.
// param run: id of the run
// param against string = null: id of the run to compare with; default: the one that started before it
// param limit integer = 1000: largest number of rows
// over: rounds of both runs
// returns: one row per activity and operator on a path of either, largest difference first: type, operator (name), address,
//   before_ns (of the other run, all rounds), after_ns (of this one), difference_ns, before_rounds and after_rounds (that
//   are loaded). Operators are the same where name and address are. All rows add up to the difference of all rounds.
// example: bfs
//   type       | operator | address | before_ns | after_ns | difference_ns | before_rounds | after_rounds
//   processing | FlatMap  | 0.4     | 29270075  | 0        | -29270075     | 9             | 20
//   wake_up    |          |         | 296785    | 12079605 | 11782820      | 9             | 20
//   busy       | Iterate  | 0.4     | 0         | 10221907 | 10221907      | 9             | 20
//   58 rows

MATCH (this:Run {id: $run})
CALL (this) {
  MATCH (other:Run)
  WHERE other.id IS NOT NULL
    AND CASE WHEN $against IS NULL THEN other.origin_unix_ns < this.origin_unix_ns ELSE other.id = $against END
  RETURN other.id AS against
  ORDER BY other.origin_unix_ns DESC, against
  LIMIT 1
}
// A run counts once beside itself.
UNWIND CASE WHEN against = $run THEN [against] ELSE [against, $run] END AS id
MATCH (:Run {id: id})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
MATCH (round)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
WITH against, id, collect(snapshot) AS snapshots
WITH against, collect({id: id, snapshots: snapshots}) AS both
WITH against, both, head([each IN both WHERE each.id = against | size(each.snapshots)]) AS before_rounds,
     head([each IN both WHERE each.id = $run | size(each.snapshots)]) AS after_rounds
UNWIND both AS each
UNWIND each.snapshots AS snapshot
// Bound once: a list of a node is read anew for each of its members.
WITH against, before_rounds, after_rounds, each.id AS id, snapshot.path_types AS types, snapshot.path_operators AS operators,
     snapshot.path_times_ns AS times_ns
UNWIND range(0, coalesce(size(times_ns), 0) - 1) AS i
WITH against, before_rounds, after_rounds, id, types[i] AS type, operators[i] AS operator, sum(times_ns[i]) AS part_ns
OPTIONAL MATCH (named:Operator {run: id, operator: operator})
WITH before_rounds, after_rounds, type, named.name AS operator, named.address AS address,
     sum(CASE WHEN id = against THEN part_ns ELSE 0 END) AS before_ns,
     sum(CASE WHEN id = $run THEN part_ns ELSE 0 END) AS after_ns
RETURN type,
       operator,
       address,
       before_ns,
       after_ns,
       after_ns - before_ns AS difference_ns,
       before_rounds,
       after_rounds
ORDER BY abs(difference_ns) DESC, type, address, operator
LIMIT $limit;
