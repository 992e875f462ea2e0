// purpose: Whether a worker took longer than those that run the same because it had more data, or because it was slow.
// param run: id of the run
// param epoch: number of the epoch
// param above number = 1.5: a worker stands out if it worked more than this many times the median of its group
// returns: one row per worker that is there and not unknown all the time, most work first: worker, work_ns, waiting_ns,
//   records (read; null where nobody counts them), ns_per_record (null where none was read), work_ratio (work_ns over
//   the median of its group: those of these workers that run the same, with the same `peers`), records_ratio (likewise),
//   others_waited_ns (waits of others that its messages ended), verdict: null where it did not work above the median, or
//   nobody waited for it; else `data` where it read so many more records, `speed` where it did not, or nobody counts
//   them. All inside the window.
// example: skewed --epoch 4
//   worker | work_ns | waiting_ns | records | ns_per_record | work_ratio | records_ratio | others_waited_ns | verdict
//   0      | 3890572 | 0          | 33696   | 115.5         | 9.432      | 16.848        | 7939883          | data
//   2      | 461708  | 2632376    | 2000    | 230.9         | 1.119      | 1             | 221729           |
//   1      | 363243  | 2759774    | 2000    | 181.6         | 0.881      | 1             | 129837           |
//   3      | 220295  | 2899299    | 2000    | 110.1         | 0.534      | 1             | 0                |
//   4 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns, window.after_ns AS after_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
CALL (at, after_ns, closes_ns) {
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns <= after_ns
  RETURN begin
  ORDER BY begin.run DESC, begin.worker DESC, begin.t_ns DESC, begin.pos DESC
  LIMIT 1
  UNION ALL
  MATCH (begin:Event {run: $run, worker: at.worker})
  WHERE begin.t_ns > after_ns AND begin.t_ns <= closes_ns
  RETURN begin
}
MATCH (begin)-[activity:!DATA_MESSAGE&!PROGRESS_MESSAGE&!CONTROL_MESSAGE&!SPAWN]->(end:Event)
// What only begins where the window ends is no part of it, unless it has no length.
WHERE begin.t_ns < closes_ns OR end.t_ns <= closes_ns OR opens_ns = closes_ns
OPTIONAL MATCH (sender:Event {run: $run, id: activity.ended_by})
WITH at.worker AS worker, at.peers AS peers, sender.worker AS by_worker, type(activity) AS type,
     CASE WHEN end.t_ns <= closes_ns AND end.t_ns > after_ns THEN activity.records END AS records,
     end.t_ns <= closes_ns AND end.t_ns > after_ns
       AND EXISTS { (end)<-[message:DATA_MESSAGE]-() WHERE message.records IS NULL } AS is_uncounted,
     CASE WHEN end.t_ns > closes_ns THEN closes_ns ELSE end.t_ns END
     - CASE WHEN begin.t_ns < opens_ns THEN opens_ns ELSE begin.t_ns END AS inside_ns
WITH worker, peers, by_worker,
     sum(CASE WHEN type IN ['WAITING', 'IDLE', 'SPINNING', 'INPUT_WAIT', 'UNKNOWN'] THEN 0 ELSE inside_ns END) AS work_ns,
     sum(CASE WHEN type = 'WAITING' THEN inside_ns ELSE 0 END) AS waiting_ns,
     sum(records) AS records,
     count(records) AS telling,
     sum(CASE WHEN is_uncounted THEN 1 ELSE 0 END) AS unknown_reads,
     sum(inside_ns) AS inside_ns,
     sum(CASE WHEN type = 'UNKNOWN' THEN inside_ns ELSE 0 END) AS unknown_ns
WITH collect({worker: worker, peers: peers, by_worker: by_worker, work_ns: work_ns, waiting_ns: waiting_ns,
     records: records, telling: telling, unknown_reads: unknown_reads, inside_ns: inside_ns,
     unknown_ns: unknown_ns}) AS parts
UNWIND parts AS part
WITH parts, part.worker AS worker, part.peers AS peers, sum(part.work_ns) AS work_ns, sum(part.waiting_ns) AS waiting_ns,
     sum(part.records) AS records, sum(part.telling) AS telling, sum(part.unknown_reads) AS unknown_reads,
     sum(part.inside_ns) AS inside_ns, sum(part.unknown_ns) AS unknown_ns
WHERE unknown_ns < inside_ns OR unknown_ns = 0
WITH parts, collect({worker: worker, peers: peers, work_ns: work_ns, waiting_ns: waiting_ns, records: records,
     telling: telling, unknown_reads: unknown_reads}) AS found
WITH parts, found, any(each IN found WHERE each.telling > 0) AS is_counted
// Who tells nothing has read nothing, if others tell, and no message says otherwise.
WITH parts, [each IN found | {worker: each.worker, peers: each.peers, work_ns: each.work_ns, waiting_ns: each.waiting_ns,
     records: CASE WHEN each.telling > 0 OR is_counted AND each.unknown_reads = 0 THEN each.records END}] AS workers
UNWIND workers AS each
WITH parts, each.peers AS peers, collect(each) AS alike, percentileCont(each.work_ns, 0.5) AS work_median,
     percentileCont(each.records, 0.5) AS records_median
UNWIND alike AS each
WITH each, work_median, records_median,
     reduce(ns = 0, part IN parts |
       ns + CASE WHEN part.by_worker = each.worker THEN part.waiting_ns ELSE 0 END) AS others_waited_ns
RETURN each.worker AS worker,
       each.work_ns AS work_ns,
       each.waiting_ns AS waiting_ns,
       each.records AS records,
       CASE WHEN each.records > 0 THEN round(toFloat(each.work_ns) / each.records, 1) END AS ns_per_record,
       CASE WHEN work_median > 0 THEN round(toFloat(each.work_ns) / work_median, 3) END AS work_ratio,
       CASE WHEN records_median > 0 THEN round(toFloat(each.records) / records_median, 3) END AS records_ratio,
       others_waited_ns,
       CASE WHEN each.work_ns > $above * work_median AND others_waited_ns > 0
            THEN CASE WHEN each.records > $above * records_median THEN 'data' ELSE 'speed' END END AS verdict
ORDER BY work_ns DESC, worker;
