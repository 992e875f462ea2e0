// purpose: Three data messages that a worker sent in a row with nothing in between: larger batches would cost less. The
//   motif of the same name finds the same matches.
// param run: id of the run
// param first_epoch integer = null: first epoch of the matches; default: the first loaded one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// param within_ns integer = 100000: longest time from the first to the third send
// param limit integer = 1000: largest number of rows
// over: epochs
// returns: one row per three messages, in order of the first send: worker, first_sent_ns, first_gap_ns, second_gap_ns,
//   first_receiver, second_receiver, third_receiver, first_records, second_records, third_records, first_sent and
//   third_sent (events)
// example: triangles --limit 3
//   worker | first_sent_ns | first_gap_ns | second_gap_ns | first_receiver | second_receiver | third_receiver | first_records | second_records | third_records | first_sent    | third_sent
//   1      | 274332        | 13265        | 10410         | 0              | 0               | 0              | 256           | 256            | 256           | 1099511627848 | 1099511627856
//   1      | 287597        | 10410        | 11491         | 0              | 0               | 0              | 256           | 256            | 243           | 1099511627852 | 1099511627860
//   0      | 916412        | 11401        | 10961         | 1              | 1               | 1              | 256           | 256            | 256           | 74            | 82
//   3 rows

MATCH (round:Epoch {run: $run, published: true, detail: 'full'})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
WITH collect(round.epoch) AS epochs
UNWIND epochs AS own
MATCH (s1:Event)-[m1:DATA_MESSAGE {run: $run, epoch: own}]->(r1:Event)
// Nearly all of it carries the same epoch: looked at first, it saves a search in a long list.
MATCH (s1)-[gap1]->(s2:Event)
WHERE s2.worker = s1.worker AND (gap1.epoch = own OR gap1.epoch IN epochs)
MATCH (s2)-[m2:DATA_MESSAGE]->(r2:Event)
WHERE m2.epoch = own OR m2.epoch IN epochs
MATCH (s2)-[gap2]->(s3:Event)
WHERE s3.worker = s2.worker AND gap1.duration_ns + gap2.duration_ns <= $within_ns
  AND (gap2.epoch = own OR gap2.epoch IN epochs)
MATCH (s3)-[m3:DATA_MESSAGE]->(r3:Event)
WHERE m3.epoch = own OR m3.epoch IN epochs
RETURN s1.worker AS worker,
       s1.t_ns AS first_sent_ns,
       gap1.duration_ns AS first_gap_ns,
       gap2.duration_ns AS second_gap_ns,
       r1.worker AS first_receiver,
       r2.worker AS second_receiver,
       r3.worker AS third_receiver,
       m1.records AS first_records,
       m2.records AS second_records,
       m3.records AS third_records,
       s1.id AS first_sent,
       s3.id AS third_sent
ORDER BY first_sent_ns, first_sent, third_sent, first_receiver, second_receiver, third_receiver
LIMIT $limit;
