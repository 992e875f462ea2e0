// purpose: Show completely loaded epochs, each with its snapshot. Parameters but for `run`, `detail` and `model` are
//   columns: lists of one value per epoch.
// param run: id of the run
// param epoch: number of the epoch
// param detail: how much of it is there: waits, critical or full
// param model: version of the model that it is loaded in
// param snapshot: id of its snapshot
// param commit: id of the commit that made the snapshot

UNWIND range(0, size($epoch) - 1) AS i
MATCH (epoch:Epoch {run: $run, epoch: $epoch[i]})
SET epoch.published = true,
    epoch.detail = $detail,
    epoch.model = $model
WITH i, epoch
MATCH (snapshot:Snapshot {run: $run, id: $snapshot[i]})
MATCH (job:Job {id: $commit[i]})
SET snapshot.current = true
MERGE (epoch)-[:HAS_SNAPSHOT]->(snapshot)
MERGE (snapshot)-[:WAS_GENERATED_BY]->(job)
WITH i, epoch, snapshot
// What a load that was killed wrote of an earlier commit, and never showed.
CALL (i, snapshot) {
  MATCH (unshown:Snapshot {run: $run, epoch: $epoch[i]})
  WHERE unshown <> snapshot AND unshown.current IS NULL AND NOT EXISTS { (unshown)<-[:HAS_SNAPSHOT]-() }
  DETACH DELETE unshown
}
WITH i, epoch, snapshot
MATCH (older:Snapshot {run: $run, epoch: $epoch[i]})
WHERE older <> snapshot AND older.current
SET older.current = false
MERGE (snapshot)-[:WAS_REVISION_OF]->(older)
MERGE (epoch)-[:HAS_SNAPSHOT]->(older);
