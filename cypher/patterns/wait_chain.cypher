// purpose: Workers that waited for a worker which had itself waited for a third one: the cause is further back. The
//   motif of the same name finds the same matches.
// param run: id of the run
// param first_epoch integer = null: first epoch of the matches; default: the first loaded one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// param min_ns integer = 0: least length of both waits
// param gap_ns integer = 1000000: the second wait may begin this much later than the first one ends; 0 if they must
//   overlap
// param limit integer = 1000: largest number of rows
// over: epochs
// returns: one row per pair of waits, the longest second wait first: first_worker (that the others waited for), second_worker,
//   third_worker, second_waited_ns, third_waited_ns, sent_first, second_wait_end, sent_second and third_wait_end (events)
// example: skewed --limit 3
//   first_worker | second_worker | third_worker | second_waited_ns | third_waited_ns | sent_first | second_wait_end | sent_second   | third_wait_end
//   0            | 1             | 3            | 1602442          | 129837          | 830        | 1099511628201   | 1099511628260 | 3298534883877
//   0            | 2             | 1            | 1612962          | 117820          | 830        | 2199023256013   | 2199023256074 | 1099511628287
//   0            | 1             | 2            | 2641954          | 110787          | 1028       | 1099511628317   | 1099511628378 | 2199023256195
//   3 rows

MATCH (round:Epoch {run: $run, published: true})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
WITH collect(round.epoch) AS epochs
UNWIND epochs AS own
MATCH (z2:Segment {run: $run, epoch: own})
MATCH (z2)<-[wait2:THEN]-()
WHERE wait2.waited_ns >= $min_ns
// What the second worker did before it sent began with the end of a wait of its own. THEN and RELEASED join segments only;
// without their label there is one place where a plan can begin, whatever the server's statistics say.
MATCH (z2)<-[m2:RELEASED]-(z1)
WHERE z1.epoch IN epochs AND z1.worker <> z2.worker AND wait2.start_ns < z1.start_ns + $gap_ns
MATCH (z1)<-[wait1:THEN]-()
WHERE wait1.waited_ns >= $min_ns
MATCH (z1)<-[m1:RELEASED]-(s1)
WHERE s1.worker <> z1.worker AND s1.worker <> z2.worker
RETURN s1.worker AS first_worker,
       z1.worker AS second_worker,
       z2.worker AS third_worker,
       wait1.waited_ns AS second_waited_ns,
       wait2.waited_ns AS third_waited_ns,
       m1.src AS sent_first,
       z1.id AS second_wait_end,
       m2.src AS sent_second,
       z2.id AS third_wait_end
ORDER BY third_waited_ns DESC, third_wait_end, second_wait_end, sent_first, sent_second
LIMIT $limit;
