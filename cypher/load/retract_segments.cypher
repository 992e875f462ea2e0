// purpose: Remove some segments that begin in epochs that were still open, and say how many; to be repeated until none is
//   left.
// param run: id of the run
// param open_epoch: the first epoch that was open
// param batch_rows: how many segments to remove in this transaction
// returns: one row: removed (how many)

MATCH (segment:Segment {run: $run})
WHERE segment.epoch >= $open_epoch
WITH segment LIMIT $batch_rows
DETACH DELETE segment
RETURN count(*) AS removed;
