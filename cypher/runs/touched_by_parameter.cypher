// purpose: What the parameters of the rules have affected: for each value, the runs that were made with it, with their
//   epochs, snapshots and exports. A changed value makes a run of its own.
// param name string = null: name of the parameter, such as busy_below_ns; default: all
// param value string = null: its value, as JSON; default: all
// returns: one row per parameter, value and run that is loaded: parameter, value, run, name (of the run), rules, jobs (commits that
//   used it), epochs (published), snapshots (of all epochs, older ones included), exports (exports and loads)
// example: skewed --name busy_below_ns
//   parameter     | value | run | name         | rules  | jobs | epochs | snapshots | exports
//   busy_below_ns | 5000  | ... | bfs          | timely | 1    | 22     | 22        | 0
//   busy_below_ns | 5000  | ... | ground_truth | ...    | 1    | ...    | ...       | 0
//   busy_below_ns | 5000  | ... | skewed       | timely | 1    | 11     | 11        | 0
//   4 rows

MATCH (given:Parameters)
WHERE given.id IS NOT NULL
UNWIND range(0, size(coalesce(given.names, [])) - 1) AS i
WITH given, given.names[i] AS parameter, given.values[i] AS value
WHERE ($name IS NULL OR parameter = $name) AND ($value IS NULL OR value = $value)
MATCH (job:Job)-[:USED]->(given)
MATCH (run:Run {id: job.run})
WITH parameter, value, run, count(job) AS jobs, sum(COUNT { (job)<-[:WAS_GENERATED_BY]-(:Snapshot) }) AS snapshots
RETURN parameter,
       value,
       run.id AS run,
       run.name AS name,
       run.rules AS rules,
       jobs,
       COUNT { (run)-[:HAS_EPOCH]->(:Epoch {published: true}) } AS epochs,
       snapshots,
       COUNT { (:Export)-[:EXPORTED]->(run) } AS exports
ORDER BY parameter, value, name, run;
