// purpose: Add the commits of the store that made a run, oldest first. Parameters but for the first four are columns: lists
//   of one value per commit.
// param run: id of the run
// param trace_id: id of the trace that it was built from
// param rules: rule set that it was built with
// param parameters_id: hash of its parameters
// param id: id of the commit
// param version: version of the table `epochs`
// param committed: when, as ISO 8601
// param closed_epochs: epochs that were final then
// param last_closed_epoch: the last of them
// param events: rows of the trace then
// param product_version: release that made it
// param command: command that made it; this and the next five may be null
// param user: who ran it
// param host: on which machine
// param engine: what ran its tasks
// param began: since when that process ran, as ISO 8601
// param seconds: how long the build took, up to the commit
// param previous: id of the commit before it of the same run, or null

MATCH (trace:Trace {id: $trace_id})
MATCH (rules:RuleSet {name: $rules})
MATCH (parameters:Parameters {id: $parameters_id})
UNWIND range(0, size($id) - 1) AS i
MERGE (job:Job {id: $id[i]})
SET job.run = $run,
    job.version = $version[i],
    job.committed = datetime($committed[i]),
    job.closed_epochs = $closed_epochs[i],
    job.last_closed_epoch = $last_closed_epoch[i],
    job.events = $events[i],
    job.command = $command[i],
    job.user = $user[i],
    job.host = $host[i],
    job.engine = $engine[i],
    job.began = datetime($began[i]),
    job.seconds = $seconds[i]
MERGE (product:Version {product: 'pag-graph', version: $product_version[i]})
MERGE (job)-[:USED]->(trace)
MERGE (job)-[:USED]->(rules)
MERGE (job)-[:USED]->(parameters)
MERGE (job)-[:WAS_ASSOCIATED_WITH]->(product)
WITH i, job
MATCH (previous:Job {id: $previous[i]})
MERGE (job)-[:WAS_INFORMED_BY]->(previous);
