// purpose: Which workers waited in the window of an epoch, and whose messages ended their waits.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per waiting worker, worker waited for, type and channel of the message, longest first: worker,
//   from_worker, type, channel, waits, waiting_ns; only the part of a wait inside the window counts. The other worker,
//   type and channel are null where no message is known.
// example: skewed --epoch 4
//   worker | from_worker | type             | channel | waits | waiting_ns
//   3      | 0           | progress_message | 13      | 1     | 2665553
//   1      | 0           | progress_message | 13      | 1     | 2641954
//   2      | 0           | progress_message | 13      | 1     | 2632376
//   6 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns
// With a bound on the second property the index on both finds the workers of a run.
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at, opens_ns, closes_ns) {
  // A wait that began before the window leaves the worker's last event up to then; all four properties in the order
  // of the index, so that it is found without sorting.
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
WHERE end.t_ns > opens_ns
OPTIONAL MATCH (end)<-[message:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE|SPAWN]-(sender:Event)
WITH at.worker AS worker, sender.worker AS from_worker, toLower(type(message)) AS type, message.channel AS channel,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS waited_ns
RETURN worker, from_worker, type, channel, count(*) AS waits, sum(waited_ns) AS waiting_ns
ORDER BY waiting_ns DESC, worker, from_worker, type, channel;
