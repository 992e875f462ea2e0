// purpose: How much of the waiting the critical path explains: the waits that were ended by a message on the path.
// param run: id of the run
// over: rounds
// returns: one row per type of message that ended waits, most waiting first: message, waits, waited_ns (whole waits that ended in
//   a round), critical_waits (that a message on a critical path ended), critical_ns, share (of waited_ns)
// example: skewed
//   message          | waits | waited_ns | critical_waits | critical_ns | share
//   progress_message | 51    | 55516470  | 8              | 15736437    | 0.2835
//   1 row

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
WITH collect(round.epoch) AS rounds
UNWIND rounds AS number
MATCH (awake:Segment {run: $run, round: number})
MATCH (:Segment)-[wait:THEN]->(awake)
MATCH (awake)<-[message:RELEASED]-(:Segment)
WITH message.type AS message, wait.waited_ns AS waited_ns, coalesce(message.critical, false) AS is_critical
WITH message, count(*) AS waits, sum(waited_ns) AS waited_ns, sum(CASE WHEN is_critical THEN 1 ELSE 0 END) AS critical_waits,
     sum(CASE WHEN is_critical THEN waited_ns ELSE 0 END) AS critical_ns
RETURN message,
       waits,
       waited_ns,
       critical_waits,
       critical_ns,
       CASE WHEN waited_ns > 0 THEN round(toFloat(critical_ns) / waited_ns, 4) END AS share
ORDER BY waited_ns DESC, message;
