// purpose: Add epochs, hidden until they are published, between their neighbours. Parameters but for `run` are columns:
//   lists of one value per epoch.
// param run: id of the run
// param epoch: number of the epoch
// param role: startup, round or shutdown
// param start_ns: where the window opens
// param end_ns: the last instant of the window
// param after_ns: all its instants are later than this one
// param end_vertex: event that the critical path ends with, or null
// param end_segment: segment that it ends in, or null
// param entry_ns: first event of the epoch on any worker, or null
// param exit_ns: last event of the epoch on any worker, or null
// param events: rows of the trace that carry this epoch
// param vertices: events of the graph that carry this epoch
// param edges: relationships that end at an event of this epoch
// param waiting_ns: time that workers waited in the window, summed
// param unknown_ns: time that could not be typed in the window, summed
// param coverage: share of the workers' time that could be typed
// param highest_epoch: highest epoch of an event that the window shows

MATCH (run:Run {id: $run})
UNWIND range(0, size($epoch) - 1) AS i
MERGE (epoch:Epoch {run: $run, epoch: $epoch[i]})
SET epoch.published = false,
    epoch.role = $role[i],
    epoch.start_ns = $start_ns[i],
    epoch.end_ns = $end_ns[i],
    epoch.after_ns = $after_ns[i],
    epoch.end_vertex = $end_vertex[i],
    epoch.end_segment = $end_segment[i],
    epoch.entry_ns = $entry_ns[i],
    epoch.exit_ns = $exit_ns[i],
    epoch.events = $events[i],
    epoch.vertices = $vertices[i],
    epoch.edges = $edges[i],
    epoch.waiting_ns = $waiting_ns[i],
    epoch.unknown_ns = $unknown_ns[i],
    epoch.coverage = $coverage[i],
    epoch.highest_epoch = $highest_epoch[i]
MERGE (run)-[:HAS_EPOCH]->(epoch)
WITH epoch
CALL (epoch) {
  MATCH (before:Epoch {run: $run, epoch: epoch.epoch - 1})
  MERGE (before)-[:NEXT]->(epoch)
}
CALL (epoch) {
  MATCH (after:Epoch {run: $run, epoch: epoch.epoch + 1})
  MERGE (epoch)-[:NEXT]->(after)
};
