// purpose: Take the mark `critical` from what was critical only in epochs that are hidden now. Done before anything of them
//   is removed, and as often as one likes.
// param run: id of the run
// param open_epoch: the first epoch that was open

MATCH (hidden:Epoch {run: $run})
WHERE hidden.highest_epoch >= $open_epoch AND NOT hidden.published
CALL (hidden) {
  MATCH (step:CriticalStep {run: $run, epoch: hidden.epoch})
  MATCH (source:Event {run: $run, id: step.edge_src})-[activity {critical: true}]->
        (target:Event {run: $run, id: step.edge_dst})
  // Only what a border cuts can be critical in another window as well.
  WHERE (step.src >= 0 AND step.dst >= 0) OR NOT EXISTS {
    MATCH (other:Epoch {run: $run, published: true})
    WHERE other.start_ns <= target.t_ns AND other.end_ns >= source.t_ns
    MATCH (same:CriticalStep {run: $run, epoch: other.epoch})
    WHERE same.edge_src = step.edge_src AND same.edge_dst = step.edge_dst
  }
  REMOVE activity.critical
}
CALL (hidden) {
  MATCH (hidden)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
  UNWIND snapshot.path_segments AS id
  MATCH (sender:Segment)-[message:RELEASED {critical: true}]->(segment:Segment {run: $run, id: id})
  WHERE NOT EXISTS {
    MATCH (other:Epoch {run: $run, published: true})-[:HAS_SNAPSHOT]->(shown:Snapshot {current: true})
    WHERE other.start_ns <= message.arrived_ns AND other.end_ns >= message.sent_ns AND id IN shown.path_segments
  }
  REMOVE message.critical
  WITH sender, segment
  MATCH (sender)-[drawn:CRITICAL]->(segment)
  DELETE drawn
};
