// purpose: The data messages between workers in an epoch.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 100: largest number of messages; those with the most records are drawn
// returns: nodes and relationships to draw: sender, message, reader

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.after_ns AS after_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
MATCH (sender:Event {run: $run, worker: at.worker})
WHERE sender.t_ns > after_ns AND sender.t_ns <= closes_ns
MATCH (sender)-[message:DATA_MESSAGE]->(reader:Event)
RETURN sender, message, reader
ORDER BY message.records DESC, sender.id, reader.id
LIMIT $limit;
