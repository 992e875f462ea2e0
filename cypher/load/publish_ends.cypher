// purpose: Lead from epochs to the first and the last event of each worker in their windows. Parameters but for `run` are
//   columns: lists of one value per epoch and worker.
// param run: id of the run
// param epoch: number of the epoch
// param worker: number of the worker
// param first: its first event in the window
// param last: its last event in the window

UNWIND range(0, size($epoch) - 1) AS i
MATCH (epoch:Epoch {run: $run, epoch: $epoch[i]})
MATCH (first:Event {run: $run, id: $first[i]})
MATCH (last:Event {run: $run, id: $last[i]})
MERGE (epoch)-[:FIRST {worker: $worker[i]}]->(first)
MERGE (epoch)-[:LAST {worker: $worker[i]}]->(last);
