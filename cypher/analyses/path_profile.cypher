// purpose: What the critical path of an epoch consists of: its time divided by activity and operator, or by worker.
// param run: id of the run
// param epoch: number of the epoch
// param by type|operator|worker|pair = operator: what to divide by; a pair is the two workers of a message
// returns: one row per key, longest first: key, steps, path_ns, share; the times add up to the length of the window.
// example: skewed --epoch 4
//   key                         | steps | path_ns | share
//   processing in FlatMap (0.4) | 2     | 3528446 | 0.9068
//   busy in Dataflow (0)        | 21    | 165745  | 0.0426
//   processing in Filter (0.2)  | 2     | 82755   | 0.0213
//   busy                        | 5     | 45617   | 0.0117
//   10 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
UNWIND range(0, coalesce(size(snapshot.path_times_ns), 0) - 1) AS i
WITH snapshot.span_ns AS span_ns, snapshot.path_types[i] AS type, snapshot.path_operators[i] AS operator,
     snapshot.path_workers[i] AS worker, snapshot.path_to_workers[i] AS to_worker, snapshot.path_counts[i] AS part_steps,
     snapshot.path_times_ns[i] AS part_ns
OPTIONAL MATCH (named:Operator {run: $run, operator: operator})
WITH span_ns, part_steps, part_ns,
     CASE $by
       WHEN 'type' THEN type
       WHEN 'operator' THEN type + coalesce(' in ' + named.name + ' (' + named.address + ')', '')
       WHEN 'worker' THEN 'worker ' + worker
       ELSE CASE WHEN worker = to_worker THEN 'worker ' + worker ELSE worker + ' -> ' + to_worker END
     END AS key
RETURN key, sum(part_steps) AS steps, sum(part_ns) AS path_ns, round(toFloat(sum(part_ns)) / max(span_ns), 4) AS share
ORDER BY path_ns DESC, key;
