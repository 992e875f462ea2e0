// purpose: The rounds that took longer than the rounds just before them.
// param run: id of the run
// param factor number = 1.2: a round is listed if it takes more than this many times the mean of the rounds before
// param rounds integer = 3: number of rounds before each round to compare with
// param limit integer = 20: largest number of rows
// over: rounds
// returns: one row per such round, worst first: epoch, span_ns, before_ns (mean of the rounds before), ratio (null
//   where these took no time), waiting_ns, coverage
// example: bfs
//   epoch | span_ns | before_ns | ratio | waiting_ns | coverage
//   11    | 4990739 | 2743823   | 1.819 | 2992773    | 1
//   7     | 4073321 | 2621219   | 1.554 | 583378     | 1
//   14    | 4564101 | 2963074   | 1.54  | 1795139    | 1
//   5 rows

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
WITH round ORDER BY round.epoch
WITH collect(round) AS rounds
UNWIND range(1, size(rounds) - 1) AS n
WITH rounds[n] AS round, rounds[CASE WHEN n > $rounds THEN n - $rounds ELSE 0 END..n] AS before
WITH round, round.end_ns - round.start_ns AS span_ns,
     toFloat(reduce(ns = 0, each IN before | ns + each.end_ns - each.start_ns)) / size(before) AS before_ns
WHERE span_ns > $factor * before_ns
RETURN round.epoch AS epoch,
       span_ns,
       toInteger(round(before_ns)) AS before_ns,
       CASE WHEN before_ns > 0 THEN round(span_ns / before_ns, 3) END AS ratio,
       round.waiting_ns AS waiting_ns,
       round.coverage AS coverage
ORDER BY ratio DESC, epoch
LIMIT $limit;
