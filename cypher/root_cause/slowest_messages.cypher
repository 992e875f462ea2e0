// purpose: Which messages delayed their receivers most.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 20: how many rows at most
// returns: one row per message that ended a wait, longest wait first: from_worker, to_worker, type, channel,
//   from_operator, to_operator (names, null where not known), sent_ns, arrived_ns, transfer_ns, waited_ns (inside the
//   window), critical (whether the critical path leads over it), alternatives (other messages that may have ended the
//   wait as well).
// example: skewed --epoch 4 --limit 3
//   from_worker | to_worker | type             | channel | from_operator | to_operator | sent_ns  | arrived_ns | transfer_ns | waited_ns | critical | alternatives
//   0           | 3         | progress_message | 13      |               |             | 18534726 | 18534726   | 0           | 2665553   | true     | 0
//   0           | 1         | progress_message | 13      |               |             | 18534726 | 18534726   | 0           | 2641954   | false    | 0
//   0           | 2         | progress_message | 13      |               |             | 18534726 | 18534726   | 0           | 2632376   | false    | 0
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
MATCH (begin)-[:WAITING]->(end:Event)
MATCH (end)<-[message:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]-(sent:Event)
WITH message, sent, end,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS waited_ns
ORDER BY waited_ns DESC, sent.t_ns, end.id
LIMIT $limit
OPTIONAL MATCH (source:Operator {run: $run})-[:FEEDS {channel: message.channel}]->(target:Operator)
WHERE source.operator >= 0
RETURN sent.worker AS from_worker,
       end.worker AS to_worker,
       toLower(type(message)) AS type,
       message.channel AS channel,
       source.name AS from_operator,
       target.name AS to_operator,
       sent.t_ns AS sent_ns,
       end.t_ns AS arrived_ns,
       message.duration_ns AS transfer_ns,
       waited_ns,
       coalesce(message.critical, false) AS critical,
       message.alternatives AS alternatives
ORDER BY waited_ns DESC, sent_ns, to_worker;
