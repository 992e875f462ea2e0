// purpose: The worst rounds of all runs, each compared with the median of its own run.
// param tag string = null: only of runs with this tag
// param limit integer = 20: largest number of rows
// returns: one row per round, the one that took longest against its run's median first: run, name, epoch, span_ns, median_ns,
//   ratio, waiting_ns, coverage; of epochs that are loaded
// example: bfs --limit 3
//   run | name | epoch | span_ns | median_ns | ratio | waiting_ns | coverage
//   ... | bfs  | 11    | 4990739 | 2235748   | 2.232 | 2992773    | 1
//   ... | bfs  | 14    | 4564101 | 2235748   | 2.041 | 1795139    | 1
//   ... | bfs  | 9     | 4263306 | 2235748   | 1.907 | 2324810    | 0.9986
//   3 rows

MATCH (run:Run)
WHERE run.id IS NOT NULL AND ($tag IS NULL OR $tag IN run.tags)
MATCH (run)-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
WITH run, collect(round) AS rounds, percentileDisc(round.end_ns - round.start_ns, 0.5) AS median_ns
UNWIND rounds AS round
WITH run, round, median_ns, round.end_ns - round.start_ns AS span_ns
WHERE median_ns > 0
RETURN run.id AS run,
       run.name AS name,
       round.epoch AS epoch,
       span_ns,
       median_ns,
       round(toFloat(span_ns) / median_ns, 3) AS ratio,
       round.waiting_ns AS waiting_ns,
       round.coverage AS coverage
ORDER BY ratio DESC, span_ns DESC, run, epoch
LIMIT $limit;
