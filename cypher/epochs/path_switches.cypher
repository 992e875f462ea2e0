// purpose: Rounds whose critical path often changes from worker to worker: no single worker holds the others up.
// param run: id of the run
// param limit integer = 20: largest number of rows
// over: rounds
// returns: one row per round, most changes first: epoch, switches (messages on the critical path), steps (of it), span_ns, ns_per_switch
//   (null where there is none)
// example: bfs --limit 3
//   epoch | switches | steps | span_ns | ns_per_switch
//   7     | 19       | 1307  | 4073321 | 214385
//   11    | 17       | 777   | 4990739 | 293572
//   14    | 17       | 898   | 4564101 | 268476
//   3 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
MATCH (round)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
WHERE snapshot.path_messages IS NOT NULL
RETURN round.epoch AS epoch,
       snapshot.path_messages AS switches,
       snapshot.path_steps AS steps,
       snapshot.span_ns AS span_ns,
       CASE WHEN snapshot.path_messages > 0 THEN snapshot.span_ns / snapshot.path_messages END AS ns_per_switch
ORDER BY switches DESC, epoch
LIMIT $limit;
