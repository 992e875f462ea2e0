// purpose: Whether an epoch waited for input from outside rather than for the dataflow itself.
// param run: id of the run
// param epoch: number of the epoch
// param above number = 0.5: the epoch is bound by input if more than this share of the critical path is input
// returns: one row: span_ns, path_input_ns (input_wait and idle on the critical path), path_share, input_wait_ns and
//   idle_ns and waiting_ns and work_ns (of all workers in the window), input_bound.
// example: skewed --epoch 4
//   span_ns | path_input_ns | path_share | input_wait_ns | idle_ns | waiting_ns | work_ns | input_bound
//   3890893 | 0             | 0          | 0             | 0       | 8291449    | 4935818 | false
//   1 row

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at, opens_ns, closes_ns) {
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns <= opens_ns
  RETURN begin
  ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
  LIMIT 1
  UNION ALL
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns > opens_ns AND begin.t_ns < closes_ns
  RETURN begin
}
MATCH (begin)-[activity:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN]->(end:Event)
WITH opens_ns, closes_ns, type(activity) AS type, activity.critical AND end.t_ns <= closes_ns AS is_critical,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS inside_ns
WITH closes_ns - opens_ns AS span_ns,
     sum(CASE WHEN is_critical AND type IN ['INPUT_WAIT', 'IDLE'] THEN inside_ns ELSE 0 END) AS path_input_ns,
     sum(CASE WHEN type = 'INPUT_WAIT' THEN inside_ns ELSE 0 END) AS input_wait_ns,
     sum(CASE WHEN type = 'IDLE' THEN inside_ns ELSE 0 END) AS idle_ns,
     sum(CASE WHEN type = 'WAITING' THEN inside_ns ELSE 0 END) AS waiting_ns,
     sum(CASE WHEN type IN ['WAITING', 'IDLE', 'SPINNING', 'INPUT_WAIT', 'UNKNOWN'] THEN 0 ELSE inside_ns END) AS work_ns
RETURN span_ns,
       path_input_ns,
       CASE WHEN span_ns > 0 THEN round(toFloat(path_input_ns) / span_ns, 4) ELSE 0.0 END AS path_share,
       input_wait_ns,
       idle_ns,
       waiting_ns,
       work_ns,
       path_input_ns > $above * span_ns AS input_bound;
