// purpose: Add the workers of a run. Parameters but for `run` are columns: lists of one value per worker.
// param run: id of the run
// param worker: number of the worker
// param process: process that it is a thread of
// param host: machine that the process runs on, or null
// param clock_domain: workers with the same value read the same clock
// param offset_ns: added to the worker's own times gives Unix time
// param uncertainty_ns: how far off the offset may be, or null

UNWIND range(0, size($worker) - 1) AS i
MERGE (worker:Worker {run: $run, worker: $worker[i]})
SET worker.process = $process[i],
    worker.host = $host[i],
    worker.clock_domain = $clock_domain[i],
    worker.offset_ns = $offset_ns[i],
    worker.uncertainty_ns = $uncertainty_ns[i];
