// purpose: The longest waits of an epoch with the messages that ended them, and what the senders did before.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 10: largest number of waits
// returns: nodes and relationships to draw: begin, wait, end, message, sender, before (what the sender did last), from (where
//   that began)

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
MATCH (begin)-[wait:WAITING]->(end:Event)
WITH begin, wait, end ORDER BY wait.duration_ns DESC, end.id LIMIT $limit
OPTIONAL MATCH (sender:Event {run: $run, id: wait.ended_by})-[message:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]->(end)
OPTIONAL MATCH (sender)<-[before:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN]-(from:Event)
RETURN begin, wait, end, message, sender, before, from
ORDER BY wait.duration_ns DESC, end.id;
