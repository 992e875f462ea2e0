// purpose: Messages that a worker sent to another one in quick succession.
// param run: id of the run
// param epoch: number of the epoch
// param gap_ns integer = 100000: messages further apart than this do not belong to one burst
// param least integer = 3: smallest number of messages in a burst
// param limit integer = 20: largest number of rows
// returns: one row per burst, most messages first: from_worker, to_worker, type, start_ns, end_ns (first and last were
//   sent), messages, records
// example: bfs --epoch 11
//   from_worker | to_worker | type             | start_ns | end_ns   | messages | records
//   0           | 1         | progress_message | 35367202 | 36143132 | 19       | 47
//   1           | 0         | progress_message | 35492673 | 35978531 | 12       | 36
//   0           | 1         | progress_message | 32204512 | 32400528 | 10       | 24
//   9 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.after_ns AS after_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
MATCH (sent:Event {run: $run, worker: at.worker})
WHERE sent.t_ns > after_ns AND sent.t_ns <= closes_ns
MATCH (sent)-[message:DATA_MESSAGE|PROGRESS_MESSAGE|CONTROL_MESSAGE]->(end:Event)
WITH sent.worker AS from_worker, end.worker AS to_worker, type(message) AS type, sent.t_ns AS t_ns,
     coalesce(message.records, 0) AS records
ORDER BY t_ns
WITH from_worker, to_worker, type, collect({t_ns: t_ns, records: records}) AS sent
// A burst begins with a message that no other one precedes closely.
WITH *, [n IN range(0, size(sent) - 1) WHERE n = 0 OR sent[n].t_ns - sent[n - 1].t_ns > $gap_ns] + [size(sent)] AS begins
UNWIND range(0, size(begins) - 2) AS nth
WITH from_worker, to_worker, type, sent[begins[nth]..begins[nth + 1]] AS burst
WHERE size(burst) >= $least
RETURN from_worker,
       to_worker,
       toLower(type) AS type,
       head(burst).t_ns AS start_ns,
       last(burst).t_ns AS end_ns,
       size(burst) AS messages,
       reduce(n = 0, each IN burst | n + each.records) AS records
ORDER BY messages DESC, start_ns, from_worker, to_worker, type
LIMIT $limit;
