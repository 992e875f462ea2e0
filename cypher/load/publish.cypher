// purpose: Show a completely loaded epoch, with the first and the last event of each worker in its window.
// param run: id of the run
// param epoch: number of the epoch
// param worker: column: number of the worker
// param first: column: its first event in the window
// param last: column: its last event in the window

MATCH (epoch:Epoch {run: $run, epoch: $epoch})
// Written before anything is read: of two loads at once the second waits here, and then sees what the first made.
SET epoch.published = true
WITH epoch
OPTIONAL MATCH (epoch)-[old:FIRST|LAST]->()
DELETE old
WITH DISTINCT epoch
UNWIND range(0, size($worker) - 1) AS i
MATCH (first:Event {run: $run, id: $first[i]})
MATCH (last:Event {run: $run, id: $last[i]})
CREATE (epoch)-[:FIRST {worker: $worker[i]}]->(first)
CREATE (epoch)-[:LAST {worker: $worker[i]}]->(last);
