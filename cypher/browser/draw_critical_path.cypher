// purpose: The critical path of an epoch, drawn as stretches between waits and the messages that lead from one stretch
//   to the next. draw_path_events shows the events of one stretch.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 60: largest number of messages; the last ones are drawn
// returns: nodes and relationships to draw: segment, sender, message (between them), wait (that it ended), before (the stretch
//   before the wait)

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
UNWIND CASE WHEN size(coalesce(snapshot.path_segments, [])) > 0 THEN snapshot.path_segments ELSE [window.end_segment] END AS id
MATCH (segment:Segment {run: $run, id: id})
OPTIONAL MATCH (sender:Segment)-[message:CRITICAL]->(segment)
OPTIONAL MATCH (before:Segment)-[wait:THEN]->(segment)
RETURN segment, sender, message, wait, before
ORDER BY segment.start_ns DESC, segment.id DESC
LIMIT $limit;
