// purpose: How much of each epoch of a run is there, and of which of them something is still to be removed.
// param run: id of the run
// returns: one row per epoch: epoch, detail (null before it was first published), published, trims (the detail that it had
//   when somebody began to remove some of it; null where nobody has)

MATCH (epoch:Epoch {run: $run})
WHERE epoch.epoch IS NOT NULL
RETURN epoch.epoch AS epoch, epoch.detail AS detail, coalesce(epoch.published, false) AS published, epoch.trims AS trims
ORDER BY epoch;
