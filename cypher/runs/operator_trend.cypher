// purpose: How an operator developed from run to run: its time per round, and how much of it was on the critical path.
// param operator string = null: name or address of the operator; default: all
// param tag string = null: only runs with this tag
// returns: one row per run and operator of that name or address that did something, the run that started first first: run, name, started,
//   operator (name), address, rounds (that are loaded), round_ns (its time in a round on all workers, the mean), path_ns (of
//   it on the critical path), change_ns (of round_ns, against the run before); without waits, input and idle time
// example: bfs --operator Reduce
//   run | name | started                               | operator | address | rounds | round_ns | path_ns | change_ns
//   ... | bfs  | "2026-11-21T17:40:13.572726592+00:00" | Reduce   | 0.4.12  | 20     | 864587   | 482517  |
//   1 row

MATCH (run:Run)
WHERE run.id IS NOT NULL AND ($tag IS NULL OR $tag IN run.tags)
MATCH (run)-[:HAS_EPOCH]->(round:Epoch {published: true, role: 'round'})
WITH run, collect(round) AS rounds
UNWIND rounds AS round
MATCH (round)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
MATCH (snapshot)-[spent:SPENT]->(named:Operator)
WHERE ($operator IS NULL OR $operator IN [named.name, named.address])
  AND NOT spent.type IN ['waiting', 'input_wait', 'idle', 'unknown']
WITH run, size(rounds) AS rounds, named, sum(spent.ns) AS spent_ns, sum(spent.path_ns) AS path_ns
WITH run, rounds, named, spent_ns / rounds AS round_ns, path_ns / rounds AS path_ns
ORDER BY run.origin_unix_ns, run.id, named.address
WITH named.name AS operator, named.address AS address,
     collect({run: run, rounds: rounds, round_ns: round_ns, path_ns: path_ns}) AS runs
UNWIND range(0, size(runs) - 1) AS n
WITH operator, address, runs[n] AS this, CASE WHEN n > 0 THEN runs[n - 1] END AS before
RETURN this.run.id AS run,
       this.run.name AS name,
       this.run.started AS started,
       operator,
       address,
       this.rounds AS rounds,
       this.round_ns AS round_ns,
       this.path_ns AS path_ns,
       this.round_ns - before.round_ns AS change_ns
ORDER BY started, run, address;
