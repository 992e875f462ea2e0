// purpose: What was gained when workers joined, left or got work, and which step took longest (written by `pag neo4j
//   rescale`).
// param run: id of the run
// over: run
// returns: one row per operation, in time order: operation, kind, workers (before), new_workers, request_ns, verdict, saturated
//   (before), before_ns and after_ns (median latencies), worst_ns (between), first_epoch and last_epoch (that it held up),
//   payback_epoch, step (the longest), step_worker and step_ns
// example: elastic
//   operation | kind     | workers | new_workers | request_ns | verdict  | saturated | before_ns | after_ns | worst_ns | first_epoch | last_epoch | payback_epoch | step              | step_worker | step_ns
//   0         | activate | 2       | 0           | 301667366  | relieved | yes       | 27987966  | 3191861  | 52530739 | 53          | 60         | 68            | server:send_state | 0           | 2484
//   1 row

MATCH (:Run {id: $run})-[:HAS_RESCALING]->(rescaling:Rescaling)
OPTIONAL MATCH (rescaling)-[:HAS_PHASE]->(bootstrap:Phase {phase: 'bootstrap'})
OPTIONAL MATCH (bootstrap)-[:FIRST_EPOCH]->(first:Epoch {published: true})
OPTIONAL MATCH (bootstrap)-[:LAST_EPOCH]->(last:Epoch {published: true})
CALL (rescaling) {
  OPTIONAL MATCH (rescaling)-[:HAS_STEP]->(step:BootstrapStep)
  RETURN step
  ORDER BY step.duration_ns DESC, step.number
  LIMIT 1
}
RETURN rescaling.operation AS operation,
       rescaling.kind AS kind,
       rescaling.workers AS workers,
       rescaling.new_workers AS new_workers,
       rescaling.request_ns AS request_ns,
       rescaling.verdict AS verdict,
       rescaling.saturated AS saturated,
       rescaling.before_ns AS before_ns,
       rescaling.after_ns AS after_ns,
       rescaling.worst_ns AS worst_ns,
       first.epoch AS first_epoch,
       last.epoch AS last_epoch,
       rescaling.payback_epoch AS payback_epoch,
       step.side + ':' + step.step AS step,
       step.worker AS step_worker,
       step.duration_ns AS step_ns
ORDER BY operation;
