// purpose: The epochs of a run, one after the other.
// param run: id of the run
// over: run
// returns: nodes and relationships to draw: run, epoch, next (relationship to the epoch after it)

MATCH (run:Run {id: $run})-[:HAS_EPOCH]->(epoch:Epoch {published: true})
OPTIONAL MATCH (epoch)-[next:NEXT]->(:Epoch {published: true})
RETURN run, epoch, next
ORDER BY epoch.epoch
LIMIT 100;
