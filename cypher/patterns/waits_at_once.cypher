// purpose: How many workers waited at the same time, in the window of an epoch or of each round.
// param run: id of the run
// param first_epoch integer = null: first round to look at; default: the first one
// param last_epoch integer = null: last such epoch; default: the last loaded one
// over: rounds
// returns: one row per number of workers, ascending: waiting (how many waited at once), time_ns (for how long, in all windows), share (of
//   all windows), rounds (in which so many did), longest_ns (without a break), longest_epoch (in which that was), longest_start_ns
// example: skewed
//   waiting | time_ns  | share  | rounds | longest_ns | longest_epoch | longest_start_ns
//   0       | 12144969 | 0.3809 | 9      | 1801644    | 2             | 7539711
//   1       | 941327   | 0.0295 | 9      | 129837     | 4             | 14829060
//   2       | 1817036  | 0.057  | 9      | 675130     | 1             | 3805052
//   4 rows

MATCH (run:Run {id: $run})-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
WHERE round.epoch >= coalesce($first_epoch, 0) AND round.epoch <= coalesce($last_epoch, 9223372036854775807)
WITH collect(round) AS rounds, sum(round.end_ns - round.start_ns) AS all_ns
UNWIND rounds AS round
CALL (round) {
  WITH round.start_ns AS opens_ns, round.end_ns AS closes_ns, round.after_ns AS after_ns
  MATCH (at:Worker {run: $run})
  WHERE at.worker >= 0
  CALL (at, after_ns, closes_ns) {
    MATCH (awake:Segment {run: $run, worker: at.worker})
    WHERE awake.start_ns > after_ns AND awake.start_ns <= closes_ns
    RETURN awake
    UNION ALL
    // The wait that lasts beyond the window's end is the one before the first segment after it.
    MATCH (awake:Segment {run: $run, worker: at.worker})
    WHERE awake.start_ns > closes_ns
    RETURN awake
    ORDER BY awake.run, awake.worker, awake.start_ns, awake.id
    LIMIT 1
  }
  MATCH (:Segment)-[wait:THEN]->(awake)
  WHERE wait.start_ns < closes_ns OR awake.start_ns <= closes_ns
  WITH opens_ns, closes_ns, CASE WHEN wait.start_ns < opens_ns THEN opens_ns ELSE wait.start_ns END AS from_ns,
       CASE WHEN awake.start_ns > closes_ns THEN closes_ns ELSE awake.start_ns END AS to_ns
  UNWIND [[from_ns, 1], [to_ns, -1]] AS change
  WITH opens_ns, closes_ns, change[0] AS t_ns, sum(change[1]) AS step
  ORDER BY t_ns
  WITH opens_ns, closes_ns, collect([t_ns, step]) AS changes
  // Between two changes as many wait as have begun to and have not ended.
  RETURN reduce(so_far = [[opens_ns, 0]], change IN changes + [[closes_ns, 0]] |
           so_far + [[change[0], last(so_far)[1] + change[1]]]) AS changes
}
UNWIND range(0, size(changes) - 2) AS n
WITH all_ns, round.epoch AS epoch, changes[n][0] AS start_ns, changes[n + 1][0] - changes[n][0] AS time_ns,
     changes[n][1] AS waiting
WHERE time_ns > 0
ORDER BY waiting, time_ns DESC, start_ns
WITH waiting, all_ns, sum(time_ns) AS time_ns, count(DISTINCT epoch) AS rounds, max(time_ns) AS longest_ns,
     head(collect({epoch: epoch, start_ns: start_ns})) AS longest
RETURN waiting,
       time_ns,
       round(toFloat(time_ns) / all_ns, 4) AS share,
       rounds,
       longest_ns,
       longest.epoch AS longest_epoch,
       longest.start_ns AS longest_start_ns
ORDER BY waiting;
