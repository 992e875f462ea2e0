// purpose: Who waited for whom in an epoch: the stretches between waits, and the messages that ended the waits.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 100: largest number of messages; those that ended the longest waits are drawn
// returns: nodes and relationships to draw: sender, message, waiter, wait (from the waiter's stretch before), before

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
MATCH (waiter:Segment {run: $run, worker: at.worker})
WHERE waiter.start_ns > window.after_ns AND waiter.start_ns <= window.end_ns
MATCH (sender:Segment)-[message:RELEASED]->(waiter)
WITH sender, message, waiter ORDER BY message.waited_ns DESC, waiter.id LIMIT $limit
OPTIONAL MATCH (before:Segment)-[wait:THEN]->(waiter)
RETURN sender, message, waiter, wait, before
ORDER BY message.waited_ns DESC, waiter.id;
