// purpose: The operators upstream of an operator: where its data comes from.
// param run: id of the run
// param operator string = null: name or address of the operator; default: the one with most time on the critical paths
// over: rounds
// returns: one row per operator, nearest first: hops (channels between them, the fewest), operator, name, address, spent_ns (in all
//   rounds, on all workers, without waits, input and idle time), path_ns (of it on the critical paths), feeds (the operator asked for)
// example: skewed
//   hops | operator | name     | address | spent_ns | path_ns | feeds
//   1    | 5        | Exchange | 0.3     | 117127   | 43825   | FlatMap
//   2    | 3        | Filter   | 0.2     | 1704628  | 570807  | FlatMap
//   3    | 2        | Input    | 0.1     | 19066    | 3257    | FlatMap
//   3 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
MATCH (round)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
MATCH (snapshot)-[spent:SPENT]->(any:Operator)
WITH any, sum(CASE WHEN spent.type IN ['waiting', 'input_wait', 'idle', 'unknown'] THEN 0 ELSE spent.ns END) AS spent_ns,
     sum(spent.path_ns) AS path_ns
ORDER BY path_ns DESC, any.operator
WITH collect({operator: any, spent_ns: spent_ns, path_ns: path_ns}) AS busy
MATCH (blamed:Operator {run: $run})
WHERE blamed.operator >= 0
  AND CASE WHEN $operator IS NULL THEN blamed = busy[0].operator ELSE $operator IN [blamed.name, blamed.address] END
MATCH path = SHORTEST 1 (source:Operator)-[:FEEDS]->+(blamed)
WHERE source <> blamed
WITH busy, blamed, source, length(path) AS hops
WITH blamed, source, hops, head([each IN busy WHERE each.operator = source]) AS work
RETURN hops,
       source.operator AS operator,
       source.name AS name,
       source.address AS address,
       coalesce(work.spent_ns, 0) AS spent_ns,
       coalesce(work.path_ns, 0) AS path_ns,
       blamed.name AS feeds
ORDER BY hops, operator, feeds;
