// purpose: How many activities and messages an epoch has per worker or pair of workers and type, with their time and
//   records; the same as the analysis `metrics`.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per epoch, worker or pair of workers, and type, in this order: epoch, from_worker, to_worker, type,
//   activities, duration_ns, delivered_ns (messages from send to read), records (null where nobody counts them),
//   missing. An activity counts for the epoch that it carries, wherever it lies in time: `missing` is how many of the
//   epoch's are not there, because they end in windows that are not loaded; 0 where the numbers are complete.
// example: skewed --epoch 4
//   epoch | from_worker | to_worker | type       | activities | duration_ns | delivered_ns | records | missing
//   4     | 0           | 0         | busy       | 20         | 174253      | 174253       |         | 0
//   4     | 0           | 0         | processing | 16         | 3595884     | 3595884      | 33708   | 0
//   4     | 0           | 0         | spinning   | 1          | 321         | 321          |         | 0
//   34 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
MATCH (run:Run {id: $run})
CALL (run, window) {
  // An epoch stands for all numbers after the epoch before it; the shutdown also for all later ones.
  MATCH (run)-[:HAS_EPOCH]->(other:Epoch)
  RETURN coalesce(max(CASE WHEN other.epoch < window.epoch THEN other.epoch END), -1) AS before
}
MATCH (end:Event)
WHERE end.epoch > before
  AND end.epoch <= CASE WHEN window.role = 'shutdown' THEN 9223372036854775807 ELSE window.epoch END
  AND end.run = $run
MATCH (begin:Event)-[activity]->(end)
WITH window, activity.epoch AS epoch, begin.worker AS from_worker, end.worker AS to_worker, toLower(type(activity)) AS type,
     CASE WHEN run.rules = 'st2' AND activity.duration_ns < 0 THEN 0 ELSE activity.duration_ns END AS duration_ns,
     // A message that ended a wait has its end where it arrived; it was read later.
     CASE WHEN run.rules <> 'st2' AND activity.read <> end.id THEN coalesce(activity.receive_buffer_ns, 0) ELSE 0 END
       AS unread_ns,
     activity.records AS records
WITH window, epoch, from_worker, to_worker, type, count(*) AS activities, sum(duration_ns) AS duration_ns,
     sum(duration_ns + unread_ns) AS delivered_ns, sum(records) AS records, count(records) AS telling
ORDER BY epoch, from_worker, to_worker, type
WITH window, collect({epoch: epoch, from_worker: from_worker, to_worker: to_worker, type: type, activities: activities,
     duration_ns: duration_ns, delivered_ns: delivered_ns,
     // Of messages all have to tell, of a worker's own activities any.
     records: CASE WHEN telling = activities
                   OR telling > 0 AND NOT type IN ['data_message', 'progress_message', 'control_message', 'spawn']
              THEN records END}) AS rows, sum(activities) AS found
UNWIND rows AS row
RETURN row.epoch AS epoch, row.from_worker AS from_worker, row.to_worker AS to_worker, row.type AS type,
       row.activities AS activities, row.duration_ns AS duration_ns, row.delivered_ns AS delivered_ns,
       row.records AS records, window.edges - found AS missing
ORDER BY epoch, from_worker, to_worker, type;
