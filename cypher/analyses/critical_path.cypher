// purpose: The critical path of an epoch: the chain of activities that makes its window as long as it is.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per step in time order: step, src, dst, type, worker, start_ns, duration_ns, operator; the durations
//   add up to the length of the window. No row where the epoch is not published or has no event that closes it.
// example: skewed --epoch 4
//   step | src | dst | type | worker | start_ns | duration_ns | operator
//   0    | 830 | 832 | busy | 0      | 14706340 | 127017      | 1
//   1    | 832 | 834 | busy | 0      | 14833357 | 6042        |
//   2    | 834 | 836 | busy | 0      | 14839399 | 641         | 1
//   47 rows
//
// From the event that closes the window back to the window's start. An event ends a wait, or is a birth, where it begins a
// segment (event.segment = event.id): there the path goes on with the message that ended the wait, or with the spawn,
// everywhere else with the worker's own activity (Sager 2016, 5.3.1). So there is one way back from each event, and the
// walk is linear: it names its steps by the lists `sources`, `activities` and `targets`, because a path of its own would
// be made anew at each step.

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
WHERE window.detail IN ['critical', 'full']
MATCH (last:Event {run: $run, id: window.end_vertex})
WITH last, window.start_ns AS opens_ns, window.end_ns AS closes_ns
MATCH (last)
      ((targets:Event)<-[activities:!WAITING]-(sources:Event)
        WHERE targets.t_ns > opens_ns
          AND (targets.segment = targets.id) = (sources.worker <> targets.worker)
          AND (sources.worker = targets.worker
               OR activities:SPAWN
               OR EXISTS { (targets)<-[wait:WAITING]-(:Event) WHERE wait.ended_by = sources.id }))+
      (first:Event)
WHERE first.t_ns <= opens_ns
UNWIND range(1, size(activities)) AS step
WITH step - 1 AS step, sources[-step] AS source, activities[-step] AS activity, targets[-step] AS target,
     opens_ns, closes_ns
WITH *,
     CASE WHEN source.t_ns < opens_ns THEN opens_ns ELSE source.t_ns END AS start_ns,
     CASE WHEN target.t_ns > closes_ns THEN closes_ns ELSE target.t_ns END AS end_ns
RETURN step,
       source.id AS src,
       target.id AS dst,
       toLower(type(activity)) AS type,
       source.worker AS worker,
       start_ns,
       end_ns - start_ns AS duration_ns,
       activity.operator AS operator
ORDER BY step;
