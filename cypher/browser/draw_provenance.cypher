// purpose: Where the data about an epoch comes from: snapshots, jobs, trace, rules, parameters and release.
// param run: id of the run
// param epoch: number of the epoch
// returns: nodes and relationships to draw: window, snapshot, job, links (what each of them used or revised), origins

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})-[has:HAS_SNAPSHOT]->(snapshot:Snapshot)
OPTIONAL MATCH (snapshot)-[made:WAS_GENERATED_BY]->(job:Job)
OPTIONAL MATCH (job)-[used:USED|WAS_ASSOCIATED_WITH|WAS_INFORMED_BY]->(origin)
OPTIONAL MATCH (snapshot)-[revised:WAS_REVISION_OF]->(:Snapshot)
RETURN window, has, snapshot, made, job, collect(DISTINCT used) + collect(DISTINCT revised) AS links,
       collect(DISTINCT origin) AS origins
ORDER BY snapshot.id;
