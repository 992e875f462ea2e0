// purpose: Three workers that sent data to one worker, which read it without waiting in between: a place where work
//   piles up. The motif of the same name finds the same matches.
// param run: id of the run
// param first_epoch integer = null: first epoch of the matches; default: the first loaded one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// param within_ns integer = 1000000: longest time between any two of the reads
// param limit integer = 1000: largest number of rows
// over: epochs
// returns: one row per three messages, in order of the first read: worker, first_sender, second_sender, third_sender (ascending),
//   first_read_ns, second_read_ns, third_read_ns, first_read, second_read and third_read (events)
// example: skewed --limit 3
//   worker | first_sender | second_sender | third_sender | first_read_ns | second_read_ns | third_read_ns | first_read | second_read | third_read
//   0      | 1            | 2             | 3            | 19624272      | 19624021       | 18666512      | 1132       | 1128        | 1048
//   0      | 1            | 2             | 3            | 19624272      | 19624021       | 18666633      | 1132       | 1128        | 1050
//   0      | 1            | 2             | 3            | 19624272      | 19624162       | 18666512      | 1132       | 1130        | 1048
//   3 rows

MATCH (round:Epoch {run: $run, published: true, detail: 'full'})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
MATCH (s:Event)-[message:DATA_MESSAGE {run: $run, epoch: round.epoch}]->(r:Event)
WITH r.segment AS segment, r.worker AS worker,
     collect({sender: s.worker, read: r.id, t_ns: r.t_ns}) AS messages
UNWIND messages AS m1
UNWIND messages AS m2
WITH worker, messages, m1, m2
WHERE m1.sender < m2.sender AND abs(m1.t_ns - m2.t_ns) <= $within_ns
UNWIND messages AS m3
WITH worker, m1, m2, m3
WHERE m2.sender < m3.sender AND abs(m2.t_ns - m3.t_ns) <= $within_ns AND abs(m1.t_ns - m3.t_ns) <= $within_ns
RETURN worker,
       m1.sender AS first_sender,
       m2.sender AS second_sender,
       m3.sender AS third_sender,
       m1.t_ns AS first_read_ns,
       m2.t_ns AS second_read_ns,
       m3.t_ns AS third_read_ns,
       m1.read AS first_read,
       m2.read AS second_read,
       m3.read AS third_read
ORDER BY first_read_ns, worker, first_read, second_read, third_read
LIMIT $limit;
