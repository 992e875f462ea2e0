// purpose: How much of the epochs of a run is there that may lose some of it, and of which something is still to be removed.
// param run: id of the run
// param more: details of which an epoch may lose some, whatever its place
// param latest: of how many of the latest epochs to tell in any case; all where it is more than there are
// returns: one row per epoch: epoch, detail (null before it was first published), published, trims (the detail that it had
//   when somebody began to remove some of it; null where nobody has)

CALL () {
  MATCH (epoch:Epoch {run: $run})
  WHERE epoch.epoch >= 0
  // By both columns of the index, or all of it would be read and sorted.
  RETURN epoch ORDER BY epoch.run DESC, epoch.epoch DESC LIMIT $latest
  UNION
  MATCH (epoch:Epoch {run: $run})
  WHERE epoch.detail IN $more
  RETURN epoch
  UNION
  MATCH (epoch:Epoch {run: $run})
  WHERE epoch.trims IS NOT NULL
  RETURN epoch
}
RETURN epoch.epoch AS epoch, epoch.detail AS detail, coalesce(epoch.published, false) AS published, epoch.trims AS trims
ORDER BY epoch;
