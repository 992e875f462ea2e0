// purpose: How many data messages and records each worker sent to each other worker in the window of an epoch.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per sender, receiver and channel, most records first: from_worker, to_worker, channel,
//   from_operator, to_operator, messages, records; a message counts where it was sent. Operators are names, null if
//   unknown, and records are null where one of the messages does not tell.
// example: skewed --epoch 4
//   from_worker | to_worker | channel | from_operator | to_operator | messages | records
//   3           | 0         | 6       | Filter        | Exchange    | 2        | 1986
//   1           | 0         | 6       | Filter        | Exchange    | 2        | 1980
//   2           | 0         | 6       | Filter        | Exchange    | 2        | 1978
//   3 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.after_ns AS after_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
MATCH (send:Event {run: $run, worker: at.worker})
WHERE send.t_ns > after_ns AND send.t_ns <= closes_ns
MATCH (send)-[message:DATA_MESSAGE]->(receive:Event)
WITH send.worker AS from_worker, receive.worker AS to_worker, message.channel AS channel, count(*) AS messages,
     CASE WHEN count(message.records) = count(*) THEN sum(message.records) END AS records
OPTIONAL MATCH (source:Operator)-[:FEEDS {run: $run, channel: channel}]->(target:Operator)
RETURN from_worker, to_worker, channel, source.name AS from_operator, target.name AS to_operator, messages, records
ORDER BY records IS NULL, records DESC, from_worker, to_worker, channel;
