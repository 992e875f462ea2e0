"""The one definition of every table: columns, types, nullability, order of columns.

All other shapes (Delta, Spark, Neo4j, documentation) are derived from these Arrow schemas. The types are the subset
that survives in every engine: no unsigned integers, no string views, no timestamps; times are `int64` nanoseconds
with the suffix ``_ns``.
"""

from __future__ import annotations

import pyarrow as pa

TRACE_FORMAT_VERSION = 1
"""Version of contract 1, the canonical trace."""

STORE_FORMAT_VERSION = 1
"""Version of contract 2, the store of a program activity graph."""


def _column(name: str, kind: pa.DataType, meaning: str, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"doc": meaning})


_I32, _I64, _F64, _STR = pa.int32(), pa.int64(), pa.float64(), pa.string()

TRACE_EVENTS = pa.schema(
    [
        _column("worker", _I32, "the worker that logged the event"),
        _column("seq", _I64, "position in the worker's own log; strictly increasing unless the trace is `prepared`"),
        _column("epoch", _I64, "the worker's own round of input"),
        _column("t_ns", _I64, "the worker's own clock, as recorded; the reader adds the worker's offset"),
        _column("kind", _STR, "what happened, one of EventKind"),
        _column("activity", _STR, "edge type, where the source states it itself", null=True),
        _column("operator", _I64, "operator that starts, stops or gets progress", null=True),
        _column("channel", _I64, "channel of a message", null=True),
        _column("scope", _I64, "operator id of the scope that a progress message belongs to", null=True),
        _column("peer", _I32, "the other worker of a message; null for a broadcast", null=True),
        _column("message_seq", _I64, "number of the message on its channel and sender", null=True),
        _column("records", _I64, "records in the message or activation; null when unknown", null=True),
        _column("bytes", _I64, "size of the message; null when unknown", null=True),
        _column("timeout_ns", _I64, "a park's time limit; null for none", null=True),
    ]
)
"""One row per event; rows of a worker stand together, in the order of its log."""

TRACE_OPERATORS = pa.schema(
    [
        _column("operator", _I64, "id that events refer to"),
        _column("address", _STR, "path of the operator in the dataflow, such as 0.4.2"),
        _column("name", _STR, "name given by the program"),
    ]
)
"""One row per operator; the same on every worker."""

TRACE_CHANNELS = pa.schema(
    [
        _column("channel", _I64, "id that events refer to"),
        _column("scope", _STR, "address of the scope that contains the channel"),
        _column("source_operator", _I64, "operator whose output feeds the channel; null when not known", null=True),
        _column("source_port", _I64, "its output port", null=True),
        _column("target_operator", _I64, "operator that reads the channel; null when not known", null=True),
        _column("target_port", _I64, "its input port", null=True),
        _column("type", _STR, "type of the data in the program's language; null when not known", null=True),
    ]
)
"""One row per channel between two operators."""

TRACE_WORKERS = pa.schema(
    [
        _column("worker", _I32, "number of the worker, from 0"),
        _column("process", _I64, "process that the worker is a thread of"),
        _column("host", _STR, "machine that the process runs on; null when not known", null=True),
        _column("clock_domain", _STR, "workers with the same value read the same physical clock"),
        _column("offset_ns", _I64, "added to t_ns gives Unix time on the common clock"),
        _column("uncertainty_ns", _I64, "how far off the offset may be; null when not known", null=True),
    ]
)
"""One row per worker."""

PAG_VERTICES = pa.schema(
    [
        _column("id", _I64, "worker << 40 | pos; unique in the run"),
        _column("worker", _I32, "worker that the event happened on"),
        _column("pos", _I64, "2 x the order of the event on its worker, from 2; odd for inserted vertices"),
        _column("seq", _I64, "the log's own number; null for inserted vertices", null=True),
        _column("epoch", _I64, "the event's own round of input"),
        _column("t_ns", _I64, "common clock minus the run's origin"),
        _column("kind", _STR, "EventKind or VertexKind"),
        _column("operator", _I64, "operator of the event", null=True),
        _column("segment", _I64, "id of the vertex that starts the stretch between two waits"),
    ]
)
"""One row per event of the graph."""

PAG_EDGES = pa.schema(
    [
        _column("src", _I64, "vertex where the activity starts"),
        _column("dst", _I64, "vertex where it ends"),
        _column("type", _STR, "ActivityType"),
        _column("epoch", _I64, "epoch of dst"),
        _column("src_epoch", _I64, "epoch of src"),
        _column("start_ns", _I64, "time of src"),
        _column("duration_ns", _I64, "time of dst minus time of src"),
        _column("operator", _I64, "operator that was active", null=True),
        _column("activation", _I64, "id of the vertex that started the activation", null=True),
        _column("channel", _I64, "channel of a message", null=True),
        _column("records", _I64, "records in the message, or read in the activation", null=True),
        _column("bytes", _I64, "size of the message", null=True),
        _column("send_buffer_ns", _I64, "time in the sender's buffer", null=True),
        _column("receive_buffer_ns", _I64, "time between arrival and read", null=True),
        _column("read", _I64, "vertex that read the message", null=True),
        _column("flags", _I32, "EdgeFlags"),
        _column("alternatives", _I32, "other messages that may have ended the wait instead"),
    ]
)
"""One row per activity of a worker and per message between two workers."""

PAG_EPOCHS = pa.schema(
    [
        _column("epoch", _I64, "round of input; the shutdown has the number after the last round's"),
        _column("role", _STR, "EpochRole"),
        _column("start_ns", _I64, "the window opens after this instant"),
        _column("end_ns", _I64, "and closes with this one"),
        _column("end_vertex", _I64, "vertex that closes the window", null=True),
        _column("entry_ns", _I64, "first event of the epoch on any worker (latency window)", null=True),
        _column("exit_ns", _I64, "last event of the epoch on any worker (latency window)", null=True),
        _column("events", _I64, "rows of the trace that carry this epoch"),
        _column("vertices", _I64, "vertices that carry this epoch"),
        _column("edges", _I64, "edges whose dst carries this epoch"),
        _column("waiting_ns", _I64, "time that workers waited in the window, summed"),
        _column("unknown_ns", _I64, "time that could not be typed in the window, summed"),
        _column("coverage", _F64, "1 - unknown_ns / all workers' time in the window"),
    ]
)
"""One row per epoch; the windows of rounds, startup and shutdown tile the run."""

PAG_FINDINGS = pa.schema(
    [
        _column("finding", _STR, "stable name of the kind of finding"),
        _column("severity", _STR, "Severity"),
        _column("worker", _I32, "worker concerned", null=True),
        _column("vertex", _I64, "vertex concerned", null=True),
        _column("seq", _I64, "event concerned, as numbered in the log", null=True),
        _column("file", _STR, "file that holds the event", null=True),
        _column("observed", _I64, "what was seen", null=True),
        _column("limit", _I64, "what was expected", null=True),
        _column("unit", _STR, "unit of both", null=True),
        _column("action", _STR, "what was done about it"),
    ]
)
"""One row per violated property or unmatched event."""

STORE_TABLES: dict[str, pa.Schema] = {
    "vertices": PAG_VERTICES,
    "edges": PAG_EDGES,
    "operators": TRACE_OPERATORS,
    "channels": TRACE_CHANNELS,
    "workers": TRACE_WORKERS,
    "findings": PAG_FINDINGS,
    "epochs": PAG_EPOCHS,
}
"""Tables of a store, in the order in which they are committed: `epochs` comes last and pins the others."""

CRITICAL_PATH = pa.schema(
    [
        _column("step", _I64, "position on the path, from 0, in time order"),
        _column("src", _I64, "vertex where the step starts; negative where the window cuts it"),
        _column("dst", _I64, "vertex where it ends; the src of the next step"),
        _column("type", _STR, "ActivityType"),
        _column("worker", _I32, "worker of the activity; the sender of a message"),
        _column("to_worker", _I32, "the receiver of a message; otherwise the worker itself"),
        _column("start_ns", _I64, "when the step starts"),
        _column("duration_ns", _I64, "how long it takes, inside the window"),
        _column("operator", _I64, "operator that was active", null=True),
        _column("channel", _I64, "channel of a message", null=True),
        _column("records", _I64, "records in the message, or read in the activation", null=True),
        _column("edge_src", _I64, "src of the store's edge, the same as src but for cuts"),
        _column("edge_dst", _I64, "dst of the store's edge, the same as dst but for cuts"),
        _column("alternatives", _I32, "other messages that may have ended the wait instead"),
    ]
)
"""One row per step of a critical path, in time order; durations add up to the window's span."""

K_HOPS = pa.schema(
    [
        _column("hop", _I64, "distance from the wait's end, in edges, from 1"),
        _column("type", _STR, "ActivityType"),
        _column("worker", _I32, "worker of the edge's src"),
        _column("operator", _I64, "operator that was active", null=True),
        _column("walks", _I64, "walks of `hop` edges that end in a seed and begin with such an edge"),
        _column("edges", _I64, "distinct edges among them"),
        _column("walk_ns", _I64, "weight of the edges, counted once per walk"),
        _column("edge_ns", _I64, "weight of the edges, each counted once"),
    ]
)
"""One row per hop, type, worker and operator, sorted by these."""

WAITS = pa.schema(
    [
        _column("worker", _I32, "worker that waited"),
        _column("from_worker", _I32, "worker whose message ended the waits; null where none is known", null=True),
        _column("type", _STR, "type of the message; null where none is known", null=True),
        _column("channel", _I64, "channel of the message", null=True),
        _column("waits", _I64, "number of waits"),
        _column("waiting_ns", _I64, "time waited, inside the window"),
    ]
)
"""One row per waiting worker, worker waited for, and channel, longest first."""

TRAFFIC = pa.schema(
    [
        _column("from_worker", _I32, "sender"),
        _column("to_worker", _I32, "receiver"),
        _column("type", _STR, "type of the messages"),
        _column("channel", _I64, "their channel", null=True),
        _column("messages", _I64, "messages sent in the window"),
        _column("records", _I64, "records in them; null when unknown", null=True),
    ]
)
"""One row per sender, receiver and channel, most records first."""
