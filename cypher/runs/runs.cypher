// purpose: The loaded runs: their names, what ran where and when, and how long their rounds took.
// param tag string = null: only runs with this tag
// returns: one row per run, the one that started last first: run, name, tags, program, hosts, started (when), system, rules,
//   workers, epochs (published), median_ns and slowest_ns (of its rounds), slowest_epoch
// example: bfs
//   run | name         | tags | program | hosts | started                               | system | rules  | workers | epochs | median_ns | slowest_ns | slowest_epoch
//   ... | ground_truth | []   |         | ...   | "2026-11-21T17:40:18.494562445+00:00" | timely | timely | 2       | 21     | 1738632   | 1829258    | 10
//   ... | triangles    | []   |         | ...   | "2026-11-21T17:40:16.069476850+00:00" | timely | timely | 2       | 12     | 1590643   | 2827642    | 10
//   ... | bfs          | []   |         | ...   | "2026-11-21T17:40:13.572726592+00:00" | timely | timely | 2       | 22     | 2235748   | 4990739    | 11
//   4 rows

MATCH (run:Run)
WHERE run.id IS NOT NULL AND ($tag IS NULL OR $tag IN run.tags)
OPTIONAL MATCH (run)-[:HAS_EPOCH]->(window:Epoch {published: true})
WITH run, window, CASE WHEN window.role = 'round' THEN window.end_ns - window.start_ns END AS span_ns
ORDER BY span_ns DESC, window.epoch
WITH run, count(window) AS epochs, percentileDisc(span_ns, 0.5) AS median_ns, max(span_ns) AS slowest_ns,
     head(collect(CASE WHEN span_ns IS NOT NULL THEN window.epoch END)) AS slowest_epoch
RETURN run.id AS run,
       run.name AS name,
       run.tags AS tags,
       run.program AS program,
       run.hosts AS hosts,
       run.started AS started,
       run.source_system AS system,
       run.rules AS rules,
       run.workers AS workers,
       epochs,
       median_ns,
       slowest_ns,
       slowest_epoch
ORDER BY started DESC, run;
