// purpose: Pairs of workers that send each other progress in turn, one round trip after the other.
// param run: id of the run
// param epoch: number of the epoch
// param least integer = 2: least number of turns of a pair
// returns: one row per pair and channel, most turns first: worker, other, channel, turns (how often the direction of the
//   messages between the two changes, in the order in which they were sent), messages, waits (that they ended), waited_ns
// example: bfs --epoch 11
//   worker | other | channel | turns | messages | waits | waited_ns
//   0      | 1     | 47      | 38    | 60       | 16    | 2906927
//   0      | 1     | 62      | 16    | 20       | 0     | 0
//   2 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.after_ns AS after_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
MATCH (sent:Event {run: $run, worker: at.worker})
WHERE sent.t_ns > after_ns AND sent.t_ns <= closes_ns
MATCH (sent)-[message:PROGRESS_MESSAGE]->(end:Event)
OPTIONAL MATCH (end)<-[wait:WAITING]-(:Event)
WITH CASE WHEN sent.worker < end.worker THEN sent.worker ELSE end.worker END AS worker,
     CASE WHEN sent.worker < end.worker THEN end.worker ELSE sent.worker END AS other,
     message.channel AS channel, sent.worker AS sender, sent.t_ns AS sent_ns, wait.duration_ns AS waited_ns
ORDER BY sent_ns, sender
WITH worker, other, channel, collect(sender) AS senders, count(*) AS messages, count(waited_ns) AS waits,
     coalesce(sum(waited_ns), 0) AS waited_ns
WITH *, size([n IN range(1, size(senders) - 1) WHERE senders[n] <> senders[n - 1]]) AS turns
WHERE turns >= $least
RETURN worker, other, channel, turns, messages, waits, waited_ns
ORDER BY turns DESC, messages DESC, worker, other, channel;
