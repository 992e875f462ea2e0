// purpose: What was advised on an epoch, or on windows that hold it: where a thread more may help (`pag neo4j advice`).
// param run: id of the run
// param epoch: number of an epoch
// returns: one row per port or number of workers, best first: rank, kind, operator_name, new_threads, utility, predicted_ns,
//   low_ns, high_ns, verdict, reason, moved (operators whose work would go along)
// example: skewed --epoch 4

MATCH (:Epoch {run: $run, epoch: $epoch, published: true})-[:HAS_SNAPSHOT]->(:Snapshot {current: true})
      -[:CONTAINS]->(advice:Advice)
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
