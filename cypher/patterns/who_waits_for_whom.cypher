// purpose: Which workers waited in the window of an epoch, and whose messages ended their waits.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per waiting worker, worker waited for, type and channel of the message, longest first: worker,
//   from_worker, type, channel, waits, waiting_ns; only the part of a wait inside the window counts. The other worker,
//   type and channel are null where no message is known.

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
MATCH (waiter:Worker {run: $run})
CALL (window, waiter) {
  // A wait that began before the window leaves the worker's last event up to then.
  MATCH (before:Event {run: $run, worker: waiter.worker})
  WHERE before.t_ns <= window.start_ns
  RETURN before AS begin
  ORDER BY before.t_ns DESC, before.pos DESC
  LIMIT 1
  UNION ALL
  MATCH (inside:Event {run: $run, worker: waiter.worker})
  WHERE window.start_ns < inside.t_ns < window.end_ns
  RETURN inside AS begin
}
MATCH (begin)-[:WAITING]->(end:Event)
WHERE end.t_ns > window.start_ns
OPTIONAL MATCH (end)<-[message:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]-(sender:Event)
WITH waiter.worker AS worker, sender.worker AS from_worker, toLower(type(message)) AS type, message.channel AS channel,
     CASE WHEN begin.t_ns < window.start_ns THEN window.start_ns ELSE begin.t_ns END AS start_ns,
     CASE WHEN end.t_ns > window.end_ns THEN window.end_ns ELSE end.t_ns END AS end_ns
RETURN worker, from_worker, type, channel, count(*) AS waits, sum(end_ns - start_ns) AS waiting_ns
ORDER BY waiting_ns DESC, worker, from_worker, type, channel;
