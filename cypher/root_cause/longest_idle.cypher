// purpose: The longest stretches in which workers did no work, and the reason for each.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 20: largest number of rows
// returns: one row per stretch, longest first: worker, type (waiting, input_wait, idle or unknown), start_ns, end_ns,
//   duration_ns (all inside the window), because (in words), from_worker, message (type of the message that ended it),
//   channel, sent_ns, sender_operator (name of the operator that the sender ran last before it sent).
// example: skewed --epoch 4 --limit 3
//   worker | type    | start_ns | end_ns   | duration_ns | because             | from_worker | message          | channel | sent_ns  | sender_operator
//   3      | waiting | 15869173 | 18534726 | 2665553     | waited for worker 0 | 0           | progress_message | 13      | 18534726 | Dataflow
//   1      | waiting | 15892772 | 18534726 | 2641954     | waited for worker 0 | 0           | progress_message | 13      | 18534726 | Dataflow
//   2      | waiting | 15902350 | 18534726 | 2632376     | waited for worker 0 | 0           | progress_message | 13      | 18534726 | Dataflow
//   3 rows

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
MATCH (begin)-[stretch:WAITING|INPUT_WAIT|IDLE|UNKNOWN]->(end:Event)
WITH at, stretch, end,
     CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS start_ns,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END AS end_ns
ORDER BY end_ns - start_ns DESC, at.worker, start_ns
LIMIT $limit
OPTIONAL MATCH (sent:Event {run: $run, id: stretch.ended_by})-[message:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]->(end)
OPTIONAL MATCH (sent)<-[busy:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN]-(:Event)
OPTIONAL MATCH (operator:Operator {run: $run, operator: busy.operator})
RETURN at.worker AS worker,
       toLower(type(stretch)) AS type,
       start_ns,
       end_ns,
       end_ns - start_ns AS duration_ns,
       CASE type(stretch)
         WHEN 'WAITING' THEN CASE WHEN sent IS NULL THEN 'waited for a message that is not known'
           ELSE 'waited for worker ' + sent.worker END
         WHEN 'INPUT_WAIT' THEN 'no input from outside'
         WHEN 'IDLE' THEN 'slept as long as it wanted to'
         ELSE 'the log does not say'
       END AS because,
       sent.worker AS from_worker,
       toLower(type(message)) AS message,
       message.channel AS channel,
       sent.t_ns AS sent_ns,
       operator.name AS sender_operator
ORDER BY duration_ns DESC, worker, start_ns;
