// purpose: Lead from a run to its rescalings, and from these to the commit of the store that they were read from.
// param run: id of the run
// param operation: their numbers
// param commit: id of the commit

MATCH (run:Run {id: $run})
MATCH (job:Job {id: $commit})
UNWIND $operation AS operation
MATCH (rescaling:Rescaling {run: $run, operation: operation})
MERGE (run)-[:HAS_RESCALING]->(rescaling)
MERGE (rescaling)-[:WAS_GENERATED_BY]->(job);
