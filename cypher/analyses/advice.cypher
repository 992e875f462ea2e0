// purpose: What `pag neo4j advise` found for an epoch, or for windows that contain it: where one more thread may help.
// param run: id of the run
// param epoch: number of an epoch
// returns: one row per port or number of workers, best first: rank, kind, operator_name, new_threads, utility, predicted_ns,
//   low_ns, high_ns, verdict, reason, moved (operators whose work would go along)
// example: skewed --epoch 4
//   rank | kind  | operator_name | new_threads | utility | predicted_ns | low_ns  | high_ns | verdict     | reason   | moved
//   1    | widen |               | 1           | 0.2216  | 3835220      | 1195689 | 3890893 | cannot_tell | skew     | 0
//   2    | port  | Filter        | 1           | 0.9786  | 3808138      | 3808138 | 4030845 | cannot_tell | transfer | 1
//   3    | port  | InspectBatch  | 1           | 0.9946  | 3870495      | 3870264 | 4943270 | cannot_tell | transfer | 2
//   5 rows

MATCH (:Epoch {run: $run, epoch: $epoch, published: true})-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
// From the advice on the run, which is little: a snapshot also contains every step of its critical path.
MATCH (advice:Advice {run: $run})
USING INDEX advice:Advice(run, id)
WHERE advice.id IS NOT NULL AND EXISTS { (snapshot)-[:CONTAINS]->(advice) }
OPTIONAL MATCH (advice)-[:AT]->(operator:Operator)
OPTIONAL MATCH (advice)-[:MOVES]->(moved:Operator)
WITH advice, operator, count(moved) AS moved
RETURN advice.rank AS rank,
       advice.kind AS kind,
       operator.name AS operator_name,
       advice.new_threads AS new_threads,
       advice.utility AS utility,
       advice.predicted_ns AS predicted_ns,
       advice.low_ns AS low_ns,
       advice.high_ns AS high_ns,
       advice.verdict AS verdict,
       advice.reason AS reason,
       moved
ORDER BY rank, operator.operator;
