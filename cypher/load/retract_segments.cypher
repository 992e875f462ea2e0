// purpose: Remove some segments that begin in epochs that were still open, and say how many; to be repeated until none is
//   left.
// param run: id of the run
// param open_epoch: the first epoch that was open
// param kept_segments: ids of those that stay, as `load/kept` says
// param batch_rows: how many segments to remove in this transaction
// returns: one row: removed (how many)

MATCH (segment:Segment {run: $run})
WHERE segment.epoch >= $open_epoch AND NOT segment.id IN $kept_segments
WITH segment LIMIT $batch_rows
DETACH DELETE segment
RETURN count(*) AS removed;
