// purpose: From an epoch's critical path back to the log: which rows of which file hold the events that each step was
//   made of.
// param run: id of the run
// param epoch: number of the epoch
// param step integer = null: number of the step; default: all
// returns: one row per step, log of a worker that it was read from, and row group of that log's files, in the path's order: step, type,
//   worker (whose log), from_seq, to_seq (numbers of the first and the last event in the log: the last one up to the
//   step's beginning, the first one from its end on; a message has one event in the sender's log and one in the
//   reader's), file (of the trace), from_row, to_row (rows of the file, from 0; of the whole row group where its numbers
//   have gaps), bytes, crc32 (of the file, as its trace was sealed); what nobody knows is null
// example: skewed --epoch 4 --step 4
//   step | type       | worker | from_seq | to_seq | file                                  | from_row | to_row | bytes | crc32
//   4    | processing | 0      | 421      | 422    | events/worker-0000000-0000000.parquet | 420      | 421    |       |
//   1 row

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
WHERE window.detail IN ['critical', 'full']
MATCH (:Run {id: $run})-[:WAS_DERIVED_FROM]->(trace:Trace)
MATCH (step:CriticalStep {run: $run, epoch: window.epoch})
WHERE step.step >= coalesce($step, 0) AND ($step IS NULL OR step.step <= $step)
UNWIND CASE WHEN step.worker = step.to_worker
         THEN [{worker: step.worker, place: 0, first: step.edge_src, last: step.edge_dst}]
         ELSE [{worker: step.worker, place: 0, first: step.edge_src, last: step.edge_src},
               {worker: step.to_worker, place: 1, first: step.edge_dst, last: step.edge_dst}]
       END AS log
MATCH (first:Event {run: $run, id: log.first})
MATCH (last:Event {run: $run, id: log.last})
// Inserted events have no number; a worker's own activities lead to those beside them.
WITH trace, step, log,
     COLLECT {
       MATCH (first) ((later:Event)<-[]-(earlier:Event) WHERE earlier.worker = later.worker){0,4} (logged:Event)
       WHERE logged.seq IS NOT NULL
       RETURN logged.seq ORDER BY logged.id DESC LIMIT 1
     }[0] AS before,
     COLLECT {
       MATCH (last) ((earlier:Event)-[]->(later:Event) WHERE earlier.worker = later.worker){0,4} (logged:Event)
       WHERE logged.seq IS NOT NULL
       RETURN logged.seq ORDER BY logged.id LIMIT 1
     }[0] AS after
WITH trace, step, log,
     CASE WHEN log.place = 1 THEN coalesce(after, before) ELSE coalesce(before, after) END AS from_seq,
     CASE WHEN log.place = 0 AND log.first = log.last THEN coalesce(before, after)
          ELSE coalesce(after, before) END AS to_seq
MATCH (worker:Worker {run: $run, worker: log.worker})
WITH trace, step, log, from_seq, to_seq, worker,
     [i IN range(0, size(coalesce(worker.log_file, [])) - 1)
      WHERE worker.log_from_seq[i] <= to_seq AND worker.log_to_seq[i] >= from_seq | i] AS places
UNWIND CASE WHEN places = [] THEN [null] ELSE places END AS i
WITH trace, step, log, from_seq, to_seq,
     worker.log_file[i] AS file,
     worker.log_from_row[i] AS row,
     worker.log_rows[i] AS rows,
     worker.log_from_seq[i] AS low,
     worker.log_to_seq[i] AS high
WITH *,
     high - low + 1 = rows AS is_dense,
     CASE WHEN from_seq > low THEN from_seq ELSE low END AS first_seq,
     CASE WHEN to_seq < high THEN to_seq ELSE high END AS last_seq,
     [n IN range(0, size(coalesce(trace.file_names, [])) - 1) WHERE trace.file_names[n] = file][0] AS known
RETURN step.step AS step,
       step.type AS type,
       log.worker AS worker,
       from_seq,
       to_seq,
       file,
       CASE WHEN is_dense THEN row + first_seq - low ELSE row END AS from_row,
       CASE WHEN is_dense THEN row + last_seq - low ELSE row + rows - 1 END AS to_row,
       trace.file_bytes[known] AS bytes,
       trace.file_crc32[known] AS crc32
ORDER BY step, log.place, file, from_row;
