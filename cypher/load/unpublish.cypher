// purpose: Hide every epoch whose window shows events of epochs that were still open; appended events change it. Those that
//   the store no longer has stay as they are: nothing could load them again.
// param run: id of the run
// param open_epoch: the first epoch that was open
// param first_epoch: epochs before this one were removed from the store

MATCH (epoch:Epoch {run: $run})
WHERE epoch.highest_epoch >= $open_epoch AND epoch.epoch >= $first_epoch
SET epoch.published = false;
