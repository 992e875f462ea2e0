// purpose: The operators of a run and the channels between them.
// param run: id of the run
// over: run
// returns: nodes and relationships to draw: source, channel, target

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(:Epoch {published: true})
WITH DISTINCT 1 AS is_loaded
MATCH (source:Operator)-[channel:FEEDS {run: $run}]->(target:Operator)
WHERE channel.channel >= 0
RETURN source, channel, target
ORDER BY channel.channel, source.operator, target.operator
LIMIT 300;
