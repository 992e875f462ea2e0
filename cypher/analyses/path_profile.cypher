// purpose: What the critical path of an epoch consists of: its time divided by activity and operator, or by worker.
// param run: id of the run
// param epoch: number of the epoch
// param by type|operator|worker|pair = operator: what to divide by; a pair are the workers of a message
// returns: one row per key, longest first: key, steps, path_ns, share; the times add up to the length of the window.
// example: skewed --epoch 4
//   key                         | steps | path_ns | share
//   processing in FlatMap (0.4) | 2     | 3528446 | 0.9068
//   busy in Dataflow (0)        | 21    | 165745  | 0.0426
//   processing in Filter (0.2)  | 2     | 82755   | 0.0213
//   busy                        | 5     | 45617   | 0.0117
//   10 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
MATCH (end:Event {run: $run, worker: at.worker})
WHERE end.t_ns > opens_ns AND end.t_ns <= closes_ns
MATCH (begin:Event)-[step {critical: true}]->(end)
WITH begin, end, step, closes_ns - opens_ns AS span_ns, end.t_ns
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS inside_ns
OPTIONAL MATCH (operator:Operator {run: $run, operator: step.operator})
WITH inside_ns, span_ns,
     CASE $by
       WHEN 'type' THEN toLower(type(step))
       WHEN 'operator' THEN toLower(type(step)) + coalesce(' in ' + operator.name + ' (' + operator.address + ')', '')
       WHEN 'worker' THEN 'worker ' + begin.worker
       ELSE CASE WHEN begin.worker = end.worker THEN 'worker ' + begin.worker
                 ELSE begin.worker + ' -> ' + end.worker END
     END AS key
RETURN key, count(*) AS steps, sum(inside_ns) AS path_ns, round(toFloat(sum(inside_ns)) / max(span_ns), 4) AS share
ORDER BY path_ns DESC, key;
