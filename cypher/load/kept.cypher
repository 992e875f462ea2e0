// purpose: What epochs that the store no longer has show of epochs that were still open: it stays when
//   these are loaded again.
// param run: id of the run
// param open_epoch: the first epoch that was open
// param first_epoch: epochs before this one were removed from the store
// returns: one row: events and segments (their ids)

OPTIONAL MATCH (kept:Epoch {run: $run, published: true})
WHERE kept.highest_epoch >= $open_epoch AND kept.epoch < $first_epoch
WITH max(kept.end_ns) AS end_ns
CALL (end_ns) {
  UNWIND CASE WHEN end_ns IS NULL THEN [] ELSE [end_ns] END AS until_ns
  MATCH (event:Event)
  WHERE event.epoch >= $open_epoch AND event.run = $run
    AND (event.t_ns <= until_ns
      // What leads over the border of the window, in either direction.
      OR EXISTS { (event)--(other:Event) WHERE other.t_ns <= until_ns }
      // The message that ended a wait.
      OR EXISTS { (event)-->(:Event)<-[:WAITING]-(before:Event) WHERE before.t_ns <= until_ns })
  RETURN collect(event.id) AS events
}
CALL (end_ns) {
  UNWIND CASE WHEN end_ns IS NULL THEN [] ELSE [end_ns] END AS until_ns
  MATCH (segment:Segment {run: $run})
  WHERE segment.epoch >= $open_epoch
    AND (segment.start_ns <= until_ns
      OR EXISTS { (segment)<-[message:RELEASED]-() WHERE message.sent_ns <= until_ns }
      OR EXISTS { (segment)<-[:THEN]-(before:Segment) WHERE before.end_ns <= until_ns }
      OR EXISTS { (segment)-[:RELEASED]->(:Segment)<-[:THEN]-(before:Segment) WHERE before.end_ns <= until_ns })
  RETURN collect(segment.id) AS segments
}
RETURN events,
       segments;
