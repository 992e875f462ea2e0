// purpose: Remove the epochs that were still open, but for those that are exchanged: they lose only what leads to their
//   ends, so that whoever asks meanwhile finds them.
// param run: id of the run
// param open_epoch: the first epoch that was open
// param kept: numbers of the epochs that are exchanged

CALL () {
  MATCH (epoch:Epoch {run: $run})-[end:FIRST|LAST]->()
  WHERE epoch.highest_epoch >= $open_epoch
  DELETE end
}
MATCH (epoch:Epoch {run: $run})
WHERE epoch.epoch >= $open_epoch AND NOT epoch.epoch IN $kept
DETACH DELETE epoch;
