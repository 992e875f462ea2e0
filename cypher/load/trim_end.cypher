// purpose: Say that all is removed that epochs no longer show; those that go altogether are removed, with their snapshots.
//   Parameters but for `run` are columns: lists of one value per epoch.
// param run: id of the run
// param epoch: number of the epoch
// param detail: how much of it stays: summary, waits or critical; null where it goes altogether

UNWIND range(0, size($epoch) - 1) AS i
MATCH (epoch:Epoch {run: $run, epoch: $epoch[i]})
REMOVE epoch.trims
WITH i, epoch
WHERE $detail[i] IS NULL
OPTIONAL MATCH (epoch)-[:HAS_SNAPSHOT]->(snapshot:Snapshot)
DETACH DELETE snapshot, epoch;
