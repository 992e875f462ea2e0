// purpose: Remove some steps of the critical paths of hidden epochs, and say how many; to be repeated until none is left.
// param run: id of the run
// param open_epoch: the first epoch that was open
// param batch_rows: how many steps to remove in this transaction
// returns: one row: removed (how many)

MATCH (epoch:Epoch {run: $run})
WHERE epoch.highest_epoch >= $open_epoch AND NOT epoch.published
MATCH (step:CriticalStep {run: $run, epoch: epoch.epoch})
WITH step LIMIT $batch_rows
DETACH DELETE step
RETURN count(*) AS removed;
