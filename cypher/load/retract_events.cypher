// purpose: Remove some events of epochs that were still open, and say how many; to be repeated until none is left.
// param run: id of the run
// param open_epoch: the first epoch that was open
// param kept_events: ids of those that stay, as `load/kept` says
// param batch_rows: how many events to remove in this transaction
// returns: one row: removed (how many)

MATCH (event:Event)
WHERE event.epoch >= $open_epoch AND event.run = $run AND NOT event.id IN $kept_events
WITH event LIMIT $batch_rows
DETACH DELETE event
RETURN count(*) AS removed;
