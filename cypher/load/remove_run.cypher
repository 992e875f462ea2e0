// purpose: Remove a run of which nothing else is left, and what it was made of if no other run needs it.
// param run: id of the run

OPTIONAL MATCH (export:Export {run: $run})
DETACH DELETE export
WITH count(*) AS exports
OPTIONAL MATCH (run:Run {id: $run})
DETACH DELETE run
WITH count(*) AS runs
MATCH (unused:Trace|RuleSet|Parameters|Version)
WHERE NOT (unused)--()
DELETE unused;
