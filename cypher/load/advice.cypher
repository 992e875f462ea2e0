// purpose: Lead from what the epochs of a window were seen as to the advice on it, and remove what was advised on it before.
// param run: id of the run
// param epoch: epochs of the window
// param start_ns: its start
// param end_ns: its end
// param id: ids of all advice on it

UNWIND $epoch AS number
MATCH (epoch:Epoch {run: $run, epoch: number})
WHERE epoch.published
MATCH (epoch)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
CALL (snapshot) {
  UNWIND $id AS id
  MATCH (advice:Advice {run: $run, id: id})
  MERGE (snapshot)-[:CONTAINS]->(advice)
}
CALL (snapshot) {
  MATCH (snapshot)-[:CONTAINS]->(old:Advice {start_ns: $start_ns, end_ns: $end_ns})
  WHERE NOT old.id IN $id
  DETACH DELETE old
}
RETURN count(snapshot) AS snapshots;
