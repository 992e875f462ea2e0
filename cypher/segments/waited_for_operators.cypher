// purpose: Which operators others waited for, over several rounds: waits by the worker and operator that sent the
//   message which ended them.
// param run: id of the run
// param first_epoch integer = null: first round to look at; default: the first one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// param limit integer = 20: largest number of rows
// over: rounds
// returns: one row per sender and operator, most waiting first: from_worker, operator, name, address (what the sender ran last before it
//   sent), waits (that ended in these rounds), waited_ns (whole waits), share (of all waits that a message ended), critical_ns (of
//   waits whose message is on a critical path), rounds (in which such waits ended). The whole wait is charged to the
//   sender; `pag blame` charges each instant of it to what went on then.
// example: skewed
//   from_worker | operator | name     | address | waits | waited_ns | share  | critical_ns | rounds
//   0           | 1        | Dataflow | 0       | 29    | 52668611  | 0.9487 | 15736437    | 9
//   3           | 1        | Dataflow | 0       | 2     | 1224846   | 0.0221 | 0           | 1
//   1           | 1        | Dataflow | 0       | 13    | 1033376   | 0.0186 | 0           | 9
//   4 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
MATCH (awake:Segment {run: $run, round: round.epoch})
MATCH (:Segment)-[wait:THEN]->(awake)
MATCH (awake)<-[message:RELEASED]-(sender:Segment)
WITH sender.worker AS from_worker, message.sender_operator AS operator, count(*) AS waits, sum(wait.waited_ns) AS waited_ns,
     sum(CASE WHEN message.critical THEN wait.waited_ns ELSE 0 END) AS critical_ns, count(DISTINCT round.epoch) AS rounds
WITH collect({from_worker: from_worker, operator: operator, waits: waits, waited_ns: waited_ns, critical_ns: critical_ns,
              rounds: rounds}) AS parts, sum(waited_ns) AS all_ns
UNWIND parts AS part
OPTIONAL MATCH (named:Operator {run: $run, operator: part.operator})
RETURN part.from_worker AS from_worker,
       part.operator AS operator,
       named.name AS name,
       named.address AS address,
       part.waits AS waits,
       part.waited_ns AS waited_ns,
       CASE WHEN all_ns > 0 THEN round(toFloat(part.waited_ns) / all_ns, 4) END AS share,
       part.critical_ns AS critical_ns,
       part.rounds AS rounds
ORDER BY waited_ns DESC, from_worker, operator
LIMIT $limit;
