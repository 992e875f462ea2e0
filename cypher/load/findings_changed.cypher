// purpose: Lead from a run to findings that are new, and remove those that its store no longer has.
// param run: id of the run
// param id: ids of findings that are new, or say something else than before
// param gone: ids of those that are to be removed

MATCH (run:Run {id: $run})
CALL (run) {
  UNWIND $id AS id
  MATCH (finding:Finding {run: $run, id: id})
  MERGE (run)-[:HAS_FINDING]->(finding)
}
UNWIND $gone AS id
MATCH (old:Finding {run: $run, id: id})
DETACH DELETE old;
