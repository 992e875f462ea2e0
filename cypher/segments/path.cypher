// purpose: The critical path of an epoch as a chain of stretches between waits; the detail `waits` is enough.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row per stretch in time order: step, worker, start_ns, end_ns, duration_ns (on the path, inside the window),
//   released_by (worker whose message led to it; null for the first), message, channel, transfer_ns (of the message, inside
//   the window), segment. Stretches and transfers add up to the length of the window.
// example: skewed --epoch 4
//   step | worker | start_ns | end_ns   | duration_ns | released_by | message          | channel | transfer_ns | segment
//   0    | 0      | 14706340 | 18534726 | 3828386     |             |                  |         | 0           | 5
//   1    | 3      | 18534726 | 18597233 | 62507       | 0           | progress_message | 13      | 0           | 3298534883925
//   2 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
MATCH (last:Segment {run: $run, id: window.end_segment})
WITH last, window.start_ns AS opens_ns, window.end_ns AS closes_ns
CALL (last, opens_ns) {
  // The path stays on one worker where its last stretch began before the window.
  WITH last, opens_ns WHERE last.start_ns <= opens_ns
  RETURN [last] AS segments, [] AS messages
  UNION
  MATCH (last)
        ((later:Segment)<-[message:RELEASED]-(earlier:Segment) WHERE later.start_ns > opens_ns)+
        (first:Segment)
  WHERE first.start_ns <= opens_ns OR last(message).sent_ns <= opens_ns
  RETURN [last] + earlier AS segments, message AS messages
  ORDER BY size(message)
  LIMIT 1
}
WITH opens_ns, closes_ns, reverse(segments) AS segments, reverse(messages) AS messages
UNWIND range(0, size(segments) - 1) AS step
WITH opens_ns, closes_ns, step, segments[step] AS segment,
     CASE WHEN step > 0 THEN messages[step - 1] END AS came,
     CASE WHEN step < size(messages) THEN messages[step] END AS went,
     CASE WHEN step > 0 THEN segments[step - 1] END AS sender
WITH *,
     CASE WHEN segment.start_ns < opens_ns THEN opens_ns ELSE segment.start_ns END AS from_ns,
     CASE WHEN went IS NULL THEN closes_ns ELSE went.sent_ns END AS until_ns,
     CASE WHEN came.sent_ns < opens_ns THEN opens_ns ELSE came.sent_ns END AS sent_ns
RETURN step,
       segment.worker AS worker,
       from_ns AS start_ns,
       CASE WHEN until_ns < from_ns THEN from_ns ELSE until_ns END AS end_ns,
       CASE WHEN until_ns < from_ns THEN 0 ELSE until_ns - from_ns END AS duration_ns,
       sender.worker AS released_by,
       came.type AS message,
       came.channel AS channel,
       CASE WHEN came IS NULL THEN 0 ELSE came.arrived_ns - sent_ns END AS transfer_ns,
       segment.id AS segment
ORDER BY step;
