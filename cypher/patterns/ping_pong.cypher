// purpose: Data that went to a worker, and data that soon came back from it: each turn of such a conversation costs
//   time. The motif of the same name finds the same matches.
// param run: id of the run
// param first_epoch integer = null: first epoch of the matches; default: the first loaded one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// param within_ns integer = 1000000: longest time from the first send to the end of the way back
// param limit integer = 1000: largest number of rows
// over: epochs
// returns: one row per pair of messages, in order of the first send: worker, other_worker, sent_ns, read_ns, answered_ns, back_ns,
//   sent, read, answer and back (events)
// example: bfs --limit 3
//   worker | other_worker | sent_ns | read_ns | answered_ns | back_ns | sent          | read | answer | back
//   1      | 0            | 67363   | 127498  | 283910      | 287715  | 1099511627842 | 122  | 148    | 1099511628008
//   1      | 0            | 67363   | 127498  | 392934      | 470086  | 1099511627842 | 122  | 288    | 1099511628150
//   1      | 0            | 82181   | 139260  | 283910      | 287715  | 1099511627846 | 124  | 148    | 1099511628008
//   3 rows

MATCH (round:Epoch {run: $run, published: true, detail: 'full'})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
MATCH (begin:Event)-[:DATA_MESSAGE {run: $run, epoch: round.epoch}]->(end:Event)
// An answer is sent in the segment that the question is read in.
UNWIND [true, false] AS question
WITH CASE WHEN question THEN end.segment ELSE begin.segment END AS segment,
     [each IN collect({begin: begin, end: end, question: question}) WHERE each.question] AS questions,
     [each IN collect({begin: begin, end: end, question: question}) WHERE NOT each.question] AS answers
UNWIND questions AS there
UNWIND answers AS back
WITH there.begin AS a, there.end AS b, back.begin AS c, back.end AS d
WHERE c.id > b.id AND d.worker = a.worker AND d.t_ns - a.t_ns <= $within_ns
RETURN a.worker AS worker,
       b.worker AS other_worker,
       a.t_ns AS sent_ns,
       b.t_ns AS read_ns,
       c.t_ns AS answered_ns,
       d.t_ns AS back_ns,
       a.id AS sent,
       b.id AS read,
       c.id AS answer,
       d.id AS back
ORDER BY sent_ns, sent, read, answer, back
LIMIT $limit;
