// purpose: What a wrong clock has affected: the epochs, snapshots and exports whose numbers depend on how a worker's
//   clock is aligned with the others.
// param run: id of the run
// param worker integer: worker whose times are off
// param domain boolean = false: also all workers that read the same physical clock
// over: rounds
// returns: one row per round, the most waiting first: epoch, waits, waited_ns (whole waits that ended in the round, by a message between
//   these workers and others), path_ns (of the critical path: steps that begin or end on these workers), crossings
//   (messages on the path between these workers and others), snapshot, snapshots (older ones included), job (that made
//   the current one), exports (exports and loads that have brought the epoch)
// example: skewed --worker 0
//   epoch | waits | waited_ns | path_ns | crossings | snapshot | snapshots | job | exports
//   4     | 3     | 7939883   | 3828386 | 1         | ...      | 1         | ... | 0
//   1     | 5     | 7480280   | 3650471 | 1         | ...      | 1         | ... | 0
//   5     | 3     | 6992938   | 3379635 | 1         | ...      | 1         | ... | 0
//   9 rows

MATCH (run:Run {id: $run})
MATCH (off:Worker {run: $run, worker: $worker})
MATCH (same:Worker {run: $run})
WHERE same.worker >= 0 AND (same.worker = off.worker OR $domain AND same.clock_domain = off.clock_domain)
WITH run, collect(same.worker) AS own, COLLECT { MATCH (export:Export)-[:EXPORTED]->(run) RETURN export } AS exports
MATCH (run)-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
MATCH (snapshot)-[:WAS_GENERATED_BY]->(job:Job)
CALL (round, own) {
  MATCH (awake:Segment {run: $run, round: round.epoch})
  MATCH (:Segment)-[wait:THEN]->(awake)
  WHERE EXISTS {
    MATCH (awake)<-[:RELEASED]-(sender:Segment)
    WHERE (sender.worker IN own) <> (awake.worker IN own)
  }
  RETURN count(wait) AS waits, sum(wait.waited_ns) AS waited_ns
}
WITH *, range(0, size(coalesce(snapshot.path_workers, [])) - 1) AS places
RETURN round.epoch AS epoch,
       waits,
       waited_ns,
       reduce(ns = 0, i IN [i IN places WHERE snapshot.path_workers[i] IN own OR snapshot.path_to_workers[i] IN own] |
         ns + snapshot.path_times_ns[i]) AS path_ns,
       reduce(steps = 0, i IN [i IN places
         WHERE (snapshot.path_workers[i] IN own) <> (snapshot.path_to_workers[i] IN own)] |
         steps + snapshot.path_counts[i]) AS crossings,
       snapshot.id AS snapshot,
       COUNT { (round)-[:HAS_SNAPSHOT]->(:Snapshot) } AS snapshots,
       job.id AS job,
       size([export IN exports WHERE round.epoch IN export.epochs OR export.last_epoch >= round.epoch]) AS exports
ORDER BY waited_ns DESC, path_ns DESC, epoch;
