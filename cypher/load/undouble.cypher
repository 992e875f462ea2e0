// purpose: Remove relationships of an epoch that are there twice, which no load makes, and say how many.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row: removed (how many)

MATCH (window:Epoch {run: $run, epoch: $epoch})
CALL (window) {
  MATCH (at:Worker {run: $run})
  WHERE at.worker >= 0
  MATCH (target:Event {run: $run, worker: at.worker})
  WHERE target.t_ns >= window.start_ns AND target.t_ns <= window.end_ns
  MATCH (source:Event)-[activity]->(target)
  RETURN source, target, type(activity) AS type, null AS number, activity AS relationship
  UNION ALL
  MATCH (target:Segment {run: $run, round: window.epoch})
  MATCH (source:Segment)-[between:THEN|RELEASED|CRITICAL]->(target)
  // Several messages of one segment may have released another: they differ in what was sent.
  RETURN source, target, type(between) AS type, between.src AS number, between AS relationship
  UNION ALL
  MATCH (window)-[:HAS_SNAPSHOT]->(source:Snapshot)
  MATCH (source)-[contains:CONTAINS]->(target)
  RETURN DISTINCT source, target, type(contains) AS type, null AS number, contains AS relationship
  UNION ALL
  MATCH (window)-[link:HAS_SNAPSHOT|NEXT|FIRST|LAST]->(target)
  RETURN window AS source, target, type(link) AS type, link.worker AS number, link AS relationship
}
WITH source, target, type, number, collect(relationship) AS same
WHERE size(same) > 1
UNWIND tail(same) AS extra
DELETE extra
RETURN count(*) AS removed;
