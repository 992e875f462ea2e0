// purpose: Remove the epochs that were still open and are hidden now.
// param run: id of the run
// param open_epoch: the first epoch that was open

MATCH (epoch:Epoch {run: $run})
WHERE epoch.epoch >= $open_epoch AND NOT epoch.published
DETACH DELETE epoch;
