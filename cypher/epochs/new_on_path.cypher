// purpose: What is on the critical path of an epoch, and on none of the paths of the rounds before it.
// param run: id of the run
// param epoch: number of the epoch
// param rounds integer = 3: number of rounds before the epoch to compare with
// over: epoch and rounds before
// returns: one row per activity, operator and worker that is new, longest first: type, operator, name, worker,
//   to_worker, steps, path_ns, share (of the window), rounds (that were found loaded)
// example: bfs --epoch 11
//   type       | operator | name         | worker | to_worker | steps | path_ns | share  | rounds
//   processing | 56       | Exchange     | 0      | 0         | 3     | 1294    | 0.0003 | 3
//   spinning   | 34       | Reduce       | 0      | 0         | 2     | 1192    | 0.0002 | 3
//   processing | 58       | InspectBatch | 0      | 0         | 2     | 952     | 0.0002 | 3
//   9 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
CALL (window) {
  MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
  WHERE round.end_ns <= window.start_ns
  WITH round ORDER BY round.end_ns DESC LIMIT $rounds
  RETURN collect(round) AS before
}
UNWIND [window] + before AS round
MATCH (round)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
UNWIND range(0, coalesce(size(snapshot.path_times_ns), 0) - 1) AS i
WITH window, size(before) AS rounds, snapshot.path_types[i] AS type, snapshot.path_operators[i] AS operator,
     snapshot.path_workers[i] AS worker, snapshot.path_to_workers[i] AS to_worker, round = window AS is_now,
     snapshot.path_counts[i] AS part_steps, snapshot.path_times_ns[i] AS part_ns
WITH window, rounds, type, operator, worker, to_worker, sum(part_steps) AS steps, sum(part_ns) AS path_ns,
     all(now IN collect(is_now) WHERE now) AS is_new
WHERE is_new
OPTIONAL MATCH (named:Operator {run: $run, operator: operator})
RETURN type,
       CASE WHEN operator >= 0 THEN operator END AS operator,
       named.name AS name,
       worker,
       to_worker,
       steps,
       path_ns,
       round(toFloat(path_ns) / (window.end_ns - window.start_ns), 4) AS share,
       rounds
ORDER BY path_ns DESC, type, operator, worker, to_worker;
