// purpose: How the rounds of a run develop: their length, their waiting, and how they compare with the median.
// param run: id of the run
// over: rounds
// returns: one row per round in time order: epoch, span_ns, ratio (of the median round; null where
//   that takes no time), waiting_share (waiting of all workers' time), coverage, events
// example: skewed
//   epoch | span_ns | ratio | waiting_share | coverage | events
//   1     | 3715162 | 1.085 | 0.592         | 1        | 314
//   2     | 3749797 | 1.095 | 0.3424        | 0.6402   | 274
//   3     | 3657534 | 1.068 | 0.3455        | 0.6391   | 266
//   9 rows

MATCH (run:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
WITH run.workers AS workers, round ORDER BY round.epoch
WITH workers, collect(round) AS rounds, percentileDisc(round.end_ns - round.start_ns, 0.5) AS median_ns
UNWIND rounds AS round
WITH workers, median_ns, round, round.end_ns - round.start_ns AS span_ns
RETURN round.epoch AS epoch,
       span_ns,
       CASE WHEN median_ns > 0 THEN round(toFloat(span_ns) / median_ns, 3) END AS ratio,
       CASE WHEN span_ns > 0 THEN round(toFloat(round.waiting_ns) / (span_ns * workers), 4) ELSE 0.0 END AS waiting_share,
       round.coverage AS coverage,
       round.events AS events
ORDER BY epoch;
