// purpose: The loaded epochs of a run, with the length of their windows.
// param run: id of the run
// over: run
// returns: one row per published epoch in time order: epoch, role, start_ns, end_ns, span_ns, waiting_ns, coverage,
//   detail (that it is loaded with: waits, critical or full)
// example: skewed
//   epoch | role    | start_ns | end_ns   | span_ns | waiting_ns | coverage | detail
//   0     | startup | 0        | 3583847  | 3583847 | 7100427    | 0.9317   | full
//   1     | round   | 3583847  | 7299009  | 3715162 | 8797388    | 1        | full
//   2     | round   | 7299009  | 11048806 | 3749797 | 5135969    | 0.6402   | full
//   11 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(epoch:Epoch {published: true})
RETURN epoch.epoch AS epoch,
       epoch.role AS role,
       epoch.start_ns AS start_ns,
       epoch.end_ns AS end_ns,
       epoch.end_ns - epoch.start_ns AS span_ns,
       epoch.waiting_ns AS waiting_ns,
       epoch.coverage AS coverage,
       coalesce(epoch.detail, 'full') AS detail
ORDER BY epoch;
