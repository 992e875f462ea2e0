"""Columns of what `pag rescale` answers (`docs/rescaling.md`)."""

from __future__ import annotations

import pyarrow as pa

from pag_graph.model.columns import column as _column

_I32, _I64, _F64, _STR = pa.int32(), pa.int64(), pa.float64(), pa.string()

RESCALE_OPERATIONS = pa.schema(
    [
        _column("operation", _I64, "number of the operation, from 0, in time order"),
        _column("kind", _STR, "join, leave, loss, activate or several"),
        _column("workers", _I64, "workers that were alive before the request"),
        _column("new_workers", _I64, "how many more there are after it; negative where workers left"),
        _column("request_ns", _I64, "when it was asked for"),
        _column("birth_ns", _I64, "first spawn, exit or activation"),
        _column("ready_ns", _I64, "end of the last client step; else the first work; of a leave the last exit"),
        _column("work_ns", _I64, "first work of a new worker; null where none ever worked", null=True),
        _column("settled_ns", _I64, "end of the first settled epoch; null where none is", null=True),
        _column("settled", _STR, "settled, not_settled or too_few"),
        _column("saturated", _STR, "before the request: yes, no or unknown"),
        _column("verdict", _STR, "what it did to the latency"),
        _column("before_ns", _I64, "median latency before, nearest rank; null where no epoch lies there", null=True),
        _column("after_ns", _I64, "median latency once settled, nearest rank", null=True),
        _column("worst_ns", _I64, "longest latency from the request until it settled", null=True),
        _column("payback_epoch", _I64, "epoch by which it has paid for itself, extrapolated for not_yet", null=True),
        _column("payback_status", _STR, "paid, not_yet, never or unknown"),
        _column("added_worker_ns", _I64, "lives of the new workers, summed"),
    ]
)
"""One row per operation, in time order."""

RESCALE_PHASES = pa.schema(
    [
        _column("operation", _I64, "number of the operation"),
        _column("phase", _STR, "before, bootstrap, settling or after"),
        _column("start_ns", _I64, "the phase begins after this instant"),
        _column("end_ns", _I64, "and ends with this one"),
        _column("epochs", _I64, "epochs that belong to it"),
        _column("p50_ns", _I64, "median latency, nearest rank", null=True),
        _column("p90_ns", _I64, "nine of ten epochs were no slower", null=True),
        _column("p99_ns", _I64, "99 of 100 epochs were no slower", null=True),
        _column("max_ns", _I64, "longest latency", null=True),
        _column("latency_kind", _STR, "response: from when the input was due; service: from the epoch's first event"),
        _column("busy_max", _F64, "largest share of the phase that a worker worked", null=True),
        _column("waiting_share", _F64, "share of the old workers' lives that they waited or were idle", null=True),
        _column("messages_per_record", _F64, "messages read per record in them", null=True),
        _column("progress_per_epoch", _F64, "progress messages read per epoch", null=True),
        _column("coverage", _F64, "share of the workers' lives that is known", null=True),
    ]
)
"""One row per operation and phase."""

RESCALE_LATENCY = pa.schema(
    [
        _column("epoch", _I64, "the epoch"),
        _column("due_ns", _I64, "when its input was due; null for service times", null=True),
        _column("end_ns", _I64, "when the last worker had completed it"),
        _column("latency_ns", _I64, "from when it was due, or from its first event, to its end"),
        _column("records", _I64, "records in its data messages, local ones included", null=True),
        _column("operation", _I64, "number of the operation that it belongs to", null=True),
        _column("phase", _STR, "phase of the operation; start for the first three rounds"),
    ]
)
"""One row per round, in time order."""

RESCALE_STEPS = pa.schema(
    [
        _column("operation", _I64, "number of the operation"),
        _column("worker", _I32, "worker that took the step"),
        _column("side", _STR, "server, client or peer; unknown where nobody logged steps"),
        _column(
            "step", _STR, "name of the step; gap for a client's time between steps; startup before its first event"
        ),
        _column("start_ns", _I64, "when it began"),
        _column("duration_ns", _I64, "how long it took"),
        _column("path_ns", _I64, "how much of it lies on the critical path from the request until it settled"),
        _column("records", _I64, "updates in the bootstrap messages that the worker sent or read meanwhile", null=True),
        _column("bytes", _I64, "their size", null=True),
    ]
)
"""One row per step, in time order; what is sent or read where one ends and the next begins is of the next. Steps and
gaps tile a client's time from its spawn until it was ready."""

RESCALE_HELD_UP = pa.schema(
    [
        _column("operation", _I64, "number of the operation"),
        _column("worker", _I32, "worker that waited, from the request until it settled"),
        _column("by_worker", _I32, "worker that is to blame"),
        _column("cause", _STR, "step, other_work (of server or client), transfer or rest"),
        _column("step", _STR, "the step, as side:step", null=True),
        _column("blamed_ns", _I64, "waiting that is charged to it"),
    ]
)
"""One row per operation, waiting worker, worker to blame, cause and step; they add up to the waiting."""

RESCALE_ROUTING = pa.schema(
    [
        _column("operation", _I64, "number of the operation"),
        _column("channel", _I64, "channel on which records change the worker", null=True),
        _column("worker", _I32, "worker that reads them"),
        _column("before_records", _I64, "records that it read before, its own included"),
        _column("after_records", _I64, "the same once settled"),
        _column("before_share", _F64, "its share of the channel's records before"),
        _column("after_share", _F64, "the same once settled"),
        _column("moved_low", _F64, "share of the channel's records that went to another worker, at least"),
        _column("moved", _F64, "share of the bins that changed their owner, if a file tells", null=True),
    ]
)
"""One row per operation, channel and reader."""

RESCALE_STATE = pa.schema(
    [
        _column("epoch", _I64, "epoch in which it was measured"),
        _column("worker", _I32, "worker that measured it"),
        _column("updates", _I64, "updates in its progress state", null=True),
        _column("bytes", _I64, "their size", null=True),
    ]
)
"""One row per epoch and worker that measured its progress state."""

RESCALE_OVERHEAD = pa.schema(
    [
        _column("what", _STR, "round, or time per record by type of activity"),
        _column("base", _F64, "median over the base runs, nanoseconds"),
        _column("fork", _F64, "median over the others"),
        _column("ratio_low", _F64, "least of the others over the largest of the base runs"),
        _column("ratio_high", _F64, "largest of the others over the least of the base runs"),
        _column("decision", _STR, "slower, faster or undecided: the interval holds 1, or there are too few runs"),
    ]
)
"""One row per measure."""

RESCALE_TABLES: dict[str, pa.Schema] = {
    "operations": RESCALE_OPERATIONS,
    "phases": RESCALE_PHASES,
    "latency": RESCALE_LATENCY,
    "steps": RESCALE_STEPS,
    "held_up": RESCALE_HELD_UP,
    "routing": RESCALE_ROUTING,
    "state": RESCALE_STATE,
}
"""Tables of an answer, by the names that ``--table`` takes."""
