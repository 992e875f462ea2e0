// purpose: What is known of a run: how far it was built when it was last loaded, and which epochs are complete.
// param run: id of the run
// returns: one row where the run is known: last_closed_epoch, events (rows of the trace), published (numbers of epochs)

MATCH (run:Run {id: $run})
RETURN run.last_closed_epoch AS last_closed_epoch,
       run.events AS events,
       COLLECT { MATCH (epoch:Epoch {run: $run, published: true}) RETURN epoch.epoch ORDER BY epoch.epoch } AS published;
