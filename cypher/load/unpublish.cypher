// purpose: Hide every epoch whose window shows events of epochs that were still open; appended events change it.
// param run: id of the run
// param open_epoch: the first epoch that was open

MATCH (epoch:Epoch {run: $run})
WHERE epoch.highest_epoch >= $open_epoch
SET epoch.published = false;
