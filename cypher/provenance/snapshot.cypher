// purpose: Where the data about an epoch comes from: which trace, job, rules and parameters, and which release made it.
// param run: id of the run
// param epoch: number of the epoch
// returns: one row: epoch, snapshot, job, committed (when), trace, source (system, version and format of the log), rules,
//   parameters (JSON), product, version, revisions (older snapshots of the epoch)
// example: skewed --epoch 4
//   epoch | snapshot | job | committed | trace | source                  | rules  | parameters                                            | product   | version | revisions
//   4     | ...      | ... | ...       | ...   | timely 0.31, pag-timely | timely | {"busy_below_ns": 5000, "clocks": "auto", "horizon_ns": 5000000000, "level": 0} | pag-graph | ...     | 0
//   1 row

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
MATCH (snapshot)-[:WAS_GENERATED_BY]->(job:Job)
OPTIONAL MATCH (job)-[:USED]->(trace:Trace)
OPTIONAL MATCH (job)-[:USED]->(rules:RuleSet)
OPTIONAL MATCH (job)-[:USED]->(parameters:Parameters)
OPTIONAL MATCH (job)-[:WAS_ASSOCIATED_WITH]->(version:Version)
RETURN window.epoch AS epoch,
       snapshot.id AS snapshot,
       job.id AS job,
       job.committed AS committed,
       trace.id AS trace,
       trace.system + ' ' + trace.version + ', ' + trace.format AS source,
       rules.name AS rules,
       parameters.json AS parameters,
       version.product AS product,
       version.version AS version,
       COUNT { (window)-[:HAS_SNAPSHOT]->(:Snapshot) } - 1 AS revisions;
