// purpose: Lead from the snapshots that are shown to the alerts that began with their epochs: one may come later than those.
// param run: id of the run
// param id: ids of the alerts

UNWIND $id AS id
MATCH (alert:Finding {run: $run, id: id})
MATCH (snapshot:Snapshot {run: $run, epoch: alert.first_epoch})
WHERE snapshot.current
MERGE (snapshot)-[:CONTAINS]->(alert);
