// purpose: Connect operators by the channels between them. Parameters but for `run` are columns: lists of one value per
//   channel.
// param run: id of the run
// param channel: number of the channel
// param scope: address of the scope that contains it
// param source_operator: operator whose output feeds it
// param source_port: output port of that operator, or null
// param target_operator: operator that reads it
// param target_port: input port of that operator, or null
// param type: type of the data in the program's language, or null

UNWIND range(0, size($channel) - 1) AS i
MATCH (source:Operator {run: $run, operator: $source_operator[i]})
MATCH (target:Operator {run: $run, operator: $target_operator[i]})
MERGE (source)-[channel:FEEDS {channel: $channel[i]}]->(target)
SET channel.scope = $scope[i],
    channel.source_port = $source_port[i],
    channel.target_port = $target_port[i],
    channel.type = $type[i];
