// purpose: The runs that were made from the same trace, with other rules, parameters or releases.
// param run: id of the run
// over: run
// returns: one row per loaded run of the trace, the one asked for included: run, is_this, rules, parameters (JSON),
//   product_version, epochs (published), span_ns (of the slowest round)
// example: skewed
//   run | is_this | rules  | parameters                                            | product_version | epochs | span_ns
//   ... | true    | timely | {"busy_below_ns": 5000, "clocks": "auto", "horizon_ns": 5000000000, "level": 0} | ...             | 11     | 3890893
//   1 row

MATCH (this:Run {id: $run})-[:HAS_EPOCH]->(:Epoch {published: true})
WITH DISTINCT this
MATCH (this)-[:WAS_DERIVED_FROM]->(trace:Trace)
// In a clause of its own, so that it finds the way back to this run as well.
MATCH (trace)<-[:WAS_DERIVED_FROM]-(run:Run)
MATCH (run)-[:HAS_EPOCH]->(window:Epoch {published: true})
RETURN run.id AS run,
       run = this AS is_this,
       run.rules AS rules,
       run.parameters AS parameters,
       run.product_version AS product_version,
       count(window) AS epochs,
       max(CASE WHEN window.role = 'round' THEN window.end_ns - window.start_ns END) AS span_ns
ORDER BY is_this DESC, run;
