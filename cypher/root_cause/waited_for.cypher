// purpose: What a worker waited for at an instant, and what the worker that it waited for did in that time.
// param run: id of the run
// param worker integer: worker that waited
// param at_ns integer: the instant, in ns from the run's origin
// over: instant
// returns: no row if the worker did not wait then; else one row per activity of the sender between the wait's beginning
//   and the message, longest first: wait_start_ns, wait_end_ns, waited_ns, from_worker, message (its type), channel,
//   sent_ns, doing (type of the sender's activity), operator (its name), doing_ns. Where the message was under way when
//   the wait began, or none is known, there is one row without an activity.
// example: skewed --worker 2 --at_ns 16000000
//   wait_start_ns | wait_end_ns | waited_ns | from_worker | message          | channel | sent_ns  | doing      | operator     | doing_ns
//   15902350      | 18534726    | 2632376   | 0           | progress_message | 13      | 18534726 | processing | FlatMap      | 2614463
//   15902350      | 18534726    | 2632376   | 0           | progress_message | 13      | 18534726 | processing | InspectBatch | 11632
//   15902350      | 18534726    | 2632376   | 0           | progress_message | 13      | 18534726 | busy       | Dataflow     | 4237
//   4 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(window:Epoch {published: true, detail: 'full'})
WHERE window.after_ns < $at_ns AND window.end_ns >= $at_ns
WITH window ORDER BY window.start_ns LIMIT 1
CALL () {
  MATCH (begin:Event {run: $run, worker: $worker})
  WHERE begin.t_ns <= $at_ns
  RETURN begin
  ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
  LIMIT 1
}
MATCH (begin)-[wait:WAITING]->(end:Event)
OPTIONAL MATCH (sent:Event {run: $run, id: wait.ended_by})-[message:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]->(end)
WITH begin AS asleep, end AS awake, message, sent, begin.t_ns AS opens_ns, sent.t_ns AS closes_ns
OPTIONAL CALL (sent, opens_ns, closes_ns) {
  CALL (sent, opens_ns, closes_ns) {
    MATCH (begin:Event {run: $run, worker: sent.worker})
    WHERE begin.t_ns <= opens_ns
    RETURN begin
    ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
    LIMIT 1
    UNION ALL
    MATCH (begin:Event {run: $run, worker: sent.worker})
    WHERE begin.t_ns > opens_ns AND begin.t_ns < closes_ns
    RETURN begin
  }
  MATCH (begin)-[activity:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN]->(end:Event)
  WHERE begin.t_ns < closes_ns AND end.t_ns > opens_ns
  WITH toLower(type(activity)) AS doing, activity.operator AS operator,
       CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS inside_ns
  RETURN doing, operator, sum(inside_ns) AS doing_ns
}
OPTIONAL MATCH (named:Operator {run: $run, operator: operator})
RETURN asleep.t_ns AS wait_start_ns,
       awake.t_ns AS wait_end_ns,
       awake.t_ns - asleep.t_ns AS waited_ns,
       sent.worker AS from_worker,
       toLower(type(message)) AS message,
       message.channel AS channel,
       sent.t_ns AS sent_ns,
       doing,
       named.name AS operator,
       doing_ns
ORDER BY doing_ns DESC, doing, operator;
