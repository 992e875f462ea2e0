// purpose: The commits that made a run, and which epochs each of them added.
// param run: id of the run
// over: epochs
// returns: one row per commit, oldest first: job, version (of the store), committed, informed_by (the commit before it),
//   epochs (published ones whose current snapshot it made), first_epoch, last_epoch, events, trace, rules, command
//   (that made it), user, host, engine (local, spark or follow), began (since when that process ran), seconds (that a
//   build took; none for a follower's)
// example: skewed
//   job | version | committed | informed_by | epochs | first_epoch | last_epoch | events | trace | rules  | command | user | host | engine | began | seconds
//   ... | ...     | ...       |             | 11     | 0           | 10         | 2922   | ...   | timely | ...     | ...  | ...  | local  | ...   | ...
//   1 row

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(window:Epoch {published: true})
MATCH (window)-[:HAS_SNAPSHOT]->(:Snapshot {current: true})-[:WAS_GENERATED_BY]->(job:Job)
WITH job, count(*) AS epochs, min(window.epoch) AS first_epoch, max(window.epoch) AS last_epoch
OPTIONAL MATCH (job)-[:WAS_INFORMED_BY]->(before:Job)
OPTIONAL MATCH (job)-[:USED]->(trace:Trace)
OPTIONAL MATCH (job)-[:USED]->(rules:RuleSet)
RETURN job.id AS job,
       job.version AS version,
       job.committed AS committed,
       before.id AS informed_by,
       epochs,
       first_epoch,
       last_epoch,
       job.events AS events,
       trace.id AS trace,
       rules.name AS rules,
       job.command AS command,
       job.user AS user,
       job.host AS host,
       job.engine AS engine,
       job.began AS began,
       job.seconds AS seconds
ORDER BY version, job;
