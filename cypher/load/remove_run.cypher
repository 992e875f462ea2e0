// purpose: Remove a run of which nothing else is left, with its commits, and what it was made of if no other run needs it.
// param run: id of the run

OPTIONAL MATCH (job:Job {run: $run})
DETACH DELETE job
WITH count(*) AS jobs
OPTIONAL MATCH (export:Export {run: $run})
DETACH DELETE export
WITH count(*) AS exports
OPTIONAL MATCH (run:Run {id: $run})
DETACH DELETE run
WITH count(*) AS runs
MATCH (unused:Trace|RuleSet|Parameters|Version)
WHERE NOT (unused)--()
DELETE unused;
