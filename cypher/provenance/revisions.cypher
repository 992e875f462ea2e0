// purpose: How the data about an epoch was revised: all its snapshots, with what changed each time.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per snapshot of the epoch, newest first: snapshot, current, revised (the snapshot that it took the
//   place of), job, committed, span_ns, waiting_ns, coverage, path_steps, span_change_ns (against what it revised)
// example: skewed --epoch 4
//   snapshot | current | revised | job | committed | span_ns | waiting_ns | coverage | path_steps | span_change_ns
//   ...      | true    |         | ... | ...       | 3890893 | 8291449    | 0.8508   | 47         |
//   1 row

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})-[:HAS_SNAPSHOT]->(snapshot:Snapshot)
OPTIONAL MATCH (snapshot)-[:WAS_REVISION_OF]->(old:Snapshot)
OPTIONAL MATCH (snapshot)-[:WAS_GENERATED_BY]->(job:Job)
WITH snapshot, old, job
ORDER BY coalesce(snapshot.current, false) DESC, job.version DESC, snapshot.id
RETURN snapshot.id AS snapshot,
       coalesce(snapshot.current, false) AS current,
       old.id AS revised,
       job.id AS job,
       job.committed AS committed,
       snapshot.span_ns AS span_ns,
       snapshot.waiting_ns AS waiting_ns,
       snapshot.coverage AS coverage,
       snapshot.path_steps AS path_steps,
       snapshot.span_ns - old.span_ns AS span_change_ns;
