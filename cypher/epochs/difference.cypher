// purpose: Why an epoch took longer or shorter than another one: where their critical paths differ.
// param run: id of the run
// param epoch: number of the epoch
// param against integer = null: number of the other epoch; default: the one before
// over: epoch and against
// returns: one row per activity and operator on either path, largest difference first: type, operator, name, before_ns,
//   after_ns, difference_ns, before_steps, after_steps; the differences add up to that of the windows' lengths.
// example: skewed --epoch 4
//   type       | operator | name     | before_ns | after_ns | difference_ns | before_steps | after_steps
//   processing | 7        | FlatMap  | 3277815   | 3528446  | 250631        | 2            | 2
//   processing | 3        | Filter   | 128881    | 82755    | -46126        | 2            | 2
//   busy       | 1        | Dataflow | 140710    | 165745   | 25035         | 21           | 21
//   wake_up    |          |          | 33674     | 38131    | 4457          | 1            | 1
//   10 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
MATCH (:Run {id: $run})-[:HAS_EPOCH]->(other:Epoch {published: true})
WHERE CASE WHEN $against IS NULL THEN other.end_ns = window.start_ns AND other <> window ELSE other.epoch = $against END
UNWIND [other, window] AS round
MATCH (round)-[:HAS_SNAPSHOT]->(snapshot:Snapshot {current: true})
UNWIND range(0, coalesce(size(snapshot.path_times_ns), 0) - 1) AS i
WITH snapshot.path_types[i] AS type, snapshot.path_operators[i] AS operator, round = window AS is_after,
     snapshot.path_counts[i] AS part_steps, snapshot.path_times_ns[i] AS part_ns
WITH type, operator,
     sum(CASE WHEN is_after THEN 0 ELSE part_ns END) AS before_ns,
     sum(CASE WHEN is_after THEN part_ns ELSE 0 END) AS after_ns,
     sum(CASE WHEN is_after THEN 0 ELSE part_steps END) AS before_steps,
     sum(CASE WHEN is_after THEN part_steps ELSE 0 END) AS after_steps
OPTIONAL MATCH (named:Operator {run: $run, operator: operator})
RETURN type,
       CASE WHEN operator >= 0 THEN operator END AS operator,
       named.name AS name,
       before_ns,
       after_ns,
       after_ns - before_ns AS difference_ns,
       before_steps,
       after_steps
ORDER BY abs(difference_ns) DESC, type, operator;
