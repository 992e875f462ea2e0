// purpose: Lead from a run to its findings, and remove those that its store no longer has.
// param run: id of the run
// param id: ids of all its findings

MATCH (run:Run {id: $run})
CALL (run) {
  UNWIND $id AS id
  MATCH (finding:Finding {run: $run, id: id})
  MERGE (run)-[:HAS_FINDING]->(finding)
}
MATCH (old:Finding {run: $run})
WHERE NOT old.id IN $id
DETACH DELETE old;
