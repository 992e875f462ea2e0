// purpose: The epochs of a run that are loaded, with the length of their windows.
// param run: id of the run
// returns: one row per published epoch in time order: epoch, role, start_ns, end_ns, span_ns, waiting_ns, coverage

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(epoch:Epoch {published: true})
RETURN epoch.epoch AS epoch,
       epoch.role AS role,
       epoch.start_ns AS start_ns,
       epoch.end_ns AS end_ns,
       epoch.end_ns - epoch.start_ns AS span_ns,
       epoch.waiting_ns AS waiting_ns,
       epoch.coverage AS coverage
ORDER BY epoch;
