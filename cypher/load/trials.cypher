// purpose: Lead from trials to the runs that they compared, and to the trial before. The last three are columns.
// param run: id of the run that got the advice
// param id: of each trial
// param before: ids of the runs before
// param after: ids of the runs after
// param previous: id of the trial before it, or null

UNWIND range(0, size($id) - 1) AS i
MATCH (trial:Trial {run: $run, id: $id[i]})
CALL (trial, i) {
  UNWIND $before[i] AS before
  MATCH (run:Run {id: before})
  MERGE (trial)-[:BEFORE]->(run)
}
CALL (trial, i) {
  UNWIND $after[i] AS after
  MATCH (run:Run {id: after})
  MERGE (trial)-[:AFTER]->(run)
}
WITH trial, i
MATCH (previous:Trial {run: $run, id: $previous[i]})
MERGE (trial)-[:WAS_INFORMED_BY]->(previous);
