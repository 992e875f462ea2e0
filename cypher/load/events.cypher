// purpose: Add events. Parameters but for `run` are columns: lists of one value per event.
// param run: id of the run
// param id: id of the event
// param worker: worker that it happened on
// param pos: its position on the worker
// param seq: its number in the worker's log, or null
// param epoch: its own round of input
// param t_ns: when it happened
// param kind: what happened
// param operator: operator of the event, or null
// param segment: id of the event that starts the stretch between two waits

UNWIND range(0, size($id) - 1) AS i
MERGE (event:Event {run: $run, id: $id[i]})
SET event.worker = $worker[i],
    event.pos = $pos[i],
    event.seq = $seq[i],
    event.epoch = $epoch[i],
    event.t_ns = $t_ns[i],
    event.kind = $kind[i],
    event.operator = $operator[i],
    event.segment = $segment[i];
