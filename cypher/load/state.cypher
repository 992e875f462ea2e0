// purpose: What is known of a run: how far it was built when it was last loaded, and which epochs are complete.
// param run: id of the run
// param model: version of the model that epochs have to be in
// param since: the first epoch to tell of; -1 for all. Those that may have changed are told of in any case
// param last_closed_epoch: the last closed epoch of the store as it is now
// returns: one row where the run is known: last_closed_epoch, events (rows of the trace), epochs (numbers of those that
//   were ever loaded), details (of each of them: waits, critical or full; null before it was first published, and where
//   it is in another model), published (whether it is),
//   highest (highest epoch of an event that its window shows)

MATCH (run:Run {id: $run})
WITH run, 1 + CASE WHEN run.last_closed_epoch < $last_closed_epoch THEN run.last_closed_epoch
              ELSE $last_closed_epoch END AS first_open
CALL (run, first_open) {
  CALL (run, first_open) {
    MATCH (epoch:Epoch {run: run.id})
    WHERE epoch.epoch >= $since
    RETURN epoch
    UNION
    MATCH (epoch:Epoch {run: run.id})
    WHERE epoch.highest_epoch >= first_open
    RETURN epoch
  }
  WITH epoch ORDER BY epoch.epoch
  RETURN collect([epoch.epoch, CASE WHEN epoch.model = $model THEN epoch.detail END, epoch.published,
                  epoch.highest_epoch]) AS epochs
}
RETURN run.last_closed_epoch AS last_closed_epoch,
       run.events AS events,
       [epoch IN epochs | epoch[0]] AS epochs,
       [epoch IN epochs | epoch[1]] AS details,
       [epoch IN epochs | epoch[2]] AS published,
       [epoch IN epochs | epoch[3]] AS highest;
