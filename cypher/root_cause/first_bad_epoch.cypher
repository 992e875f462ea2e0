// purpose: The first bad round: the first one that took longer than usual up to then.
// param run: id of the run
// param factor number = 1.5: a round is bad if it takes more than this many times the median of the rounds before
// param after integer = 3: number of rounds that must come before a round can be judged
// over: rounds
// returns: one row, or none where every round was fine: epoch, span_ns, median_ns (of the rounds before it), ratio
//   (null where these took no time), waiting_ns, rounds_before, later (rounds after it that took as long or longer)
// example: bfs
//   epoch | span_ns | median_ns | ratio | waiting_ns | rounds_before | later
//   7     | 4073321 | 2235748   | 1.822 | 583378     | 6             | 3
//   1 row

MATCH (:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
WITH round ORDER BY round.epoch
WITH collect({epoch: round.epoch, span_ns: round.end_ns - round.start_ns, waiting_ns: round.waiting_ns}) AS rounds
UNWIND range($after, size(rounds) - 1) AS n
CALL (rounds, n) {
  UNWIND rounds[..n] AS before
  RETURN percentileDisc(before.span_ns, 0.5) AS median_ns
}
WITH rounds, n, rounds[n] AS bad, median_ns
WHERE bad.span_ns > $factor * median_ns
RETURN bad.epoch AS epoch,
       bad.span_ns AS span_ns,
       median_ns,
       CASE WHEN median_ns > 0 THEN round(toFloat(bad.span_ns) / median_ns, 3) END AS ratio,
       bad.waiting_ns AS waiting_ns,
       n AS rounds_before,
       size([each IN rounds[n + 1..] WHERE each.span_ns >= bad.span_ns]) AS later
ORDER BY epoch
LIMIT 1;
