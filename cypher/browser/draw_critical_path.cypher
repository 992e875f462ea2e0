// purpose: An epoch's critical path, drawn as stretches between waits and the messages that lead from one to the next;
//   draw_path_events shows the events of one.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 60: how many messages at most, the last ones
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
