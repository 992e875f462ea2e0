"""The one definition of every table: columns, types, nullability, order of columns.

All other shapes (Delta, Spark, Neo4j, documentation) are derived from these Arrow schemas. The types are the subset
that survives in every engine: no unsigned integers, no string views, no timestamps; times are `int64` nanoseconds
with the suffix ``_ns``.
"""

from __future__ import annotations

import pyarrow as pa

from pag_graph.model.columns import column as _column

TRACE_FORMAT_VERSION = 1
"""Version of contract 1, the canonical trace."""

STORE_FORMAT_VERSION = 2
"""Version of contract 2, the store of a program activity graph; 1 lacks the table `traffic`."""


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
        _column("message_seq", _I64, "number of the message on its channel from sender to receiver", null=True),
        _column("records", _I64, "records in the message or activation; null when unknown", null=True),
        _column("bytes", _I64, "size of the message; null when unknown", null=True),
        _column("timeout_ns", _I64, "a park's time limit; null for none", null=True),
        _column(
            "inferred",
            pa.bool_(),
            "of a start with an activity: whether its place in time is a policy of the source, not an observation",
            optional=True,
        ),
        _column(
            "arrived_ns",
            _I64,
            "of a read: when the message was there, by the worker's clock, at most t_ns; null where nobody says it",
            optional=True,
        ),
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
        _column("name", _STR, "what people call the worker; null for its number", optional=True),
        _column("startup_ns", _I64, "how long it had run before its first event; null when not known", optional=True),
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

PAG_TRAFFIC = pa.schema(
    [
        _column("epoch", _I64, "epoch of the event that sent them"),
        _column("channel", _I64, "their channel; null where the log names none", null=True),
        _column("from_worker", _I32, "sender"),
        _column("to_worker", _I32, "worker that read them; the sender itself where they never left it"),
        _column("type", _STR, "ActivityType of the messages"),
        _column("messages", _I64, "how many were read"),
        _column("records", _I64, "records in them; null where one of them does not tell", null=True),
        _column("bytes", _I64, "their size; null where one of them does not tell", null=True),
    ]
)
"""One row per epoch, channel, sender, reader and type; files hold such sums slice by slice, which readers add up."""

STORE_TABLES: dict[str, pa.Schema] = {
    "vertices": PAG_VERTICES,
    "edges": PAG_EDGES,
    "traffic": PAG_TRAFFIC,
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
        _column("edge_src", _I64, "src of the store's edge, the same as src except at cuts"),
        _column("edge_dst", _I64, "dst of the store's edge, the same as dst except at cuts"),
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

K_HOP_PATHS = pa.schema(
    [
        _column("path", _I64, "number of the path, from 0"),
        _column("hop", _I64, "distance from the wait's end, in edges, from 1"),
        _column("type", _STR, "ActivityType"),
        _column("worker", _I32, "worker of the edge's src"),
        _column("to_worker", _I32, "worker of its dst"),
        _column("start_ns", _I64, "time of src"),
        _column("duration_ns", _I64, "time of dst minus time of src"),
        _column("operator", _I64, "operator that was active", null=True),
        _column("channel", _I64, "channel of a message", null=True),
        _column("records", _I64, "records in the message, or read in the activation", null=True),
        _column("src", _I64, "src of the store's edge"),
        _column("dst", _I64, "dst of the store's edge; the src of the hop before"),
    ]
)
"""One row per path and hop; paths in the order of the times at which they end."""

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
        _column("records", _I64, "records in them; null where one of them does not tell", null=True),
    ]
)
"""One row per sender, receiver and channel, most records first."""

SLACK = pa.schema(
    [
        _column(
            "slack_ns", _I64, "by how much it may last longer before the window does; null where undefined", null=True
        ),
        _column("type", _STR, "ActivityType"),
        _column("worker", _I32, "worker of the activity; the sender of a message"),
        _column("to_worker", _I32, "the receiver of a message; otherwise the worker itself"),
        _column("start_ns", _I64, "when it starts, inside the window"),
        _column("duration_ns", _I64, "how long it takes, inside the window; a message until it arrives"),
        _column("operator", _I64, "operator that was active", null=True),
        _column("activation", _I64, "id of the vertex that started the activation", null=True),
        _column("channel", _I64, "channel of a message", null=True),
        _column("src", _I64, "src of the store's edge"),
        _column("dst", _I64, "dst of the store's edge"),
    ]
)
"""One row per edge of a window, least slack and then longest first; an activation's slack is that of its first row."""

WHAT_IF = pa.schema(
    [
        _column("type", _STR, "ActivityType"),
        _column("worker", _I32, "worker of the activity; the sender of a message"),
        _column("operator", _I64, "operator that was active", null=True),
        _column("recorded_ns", _I64, "time on the critical path as it was"),
        _column("new_ns", _I64, "time on the critical path as it would be"),
        _column("change_ns", _I64, "new_ns - recorded_ns"),
    ]
)
"""One row per type, worker and operator on either path, most new time first; times add up to the windows' lengths."""

WHAT_IF_TIMES = pa.schema(
    [
        _column("id", _I64, "vertex"),
        _column("recorded_ns", _I64, "when it happened"),
        _column("new_ns", _I64, "when it would happen"),
    ]
)
"""One row per vertex of a window, sorted by `id`."""

CAUSAL_PROFILE = pa.schema(
    [
        _column("kind", _STR, "what gets faster: operator, worker or message"),
        _column("operator", _I64, "the operator", null=True),
        _column("worker", _I32, "the worker", null=True),
        _column("from_worker", _I32, "sender of the messages", null=True),
        _column("to_worker", _I32, "receiver of the messages", null=True),
        _column("virtual_speedup_percent", _F64, "share of its time that is taken away"),
        _column("span_ns", _I64, "how long the window would be"),
        _column("saved_ns", _I64, "by how much it would be shorter"),
        _column("saved_percent", _F64, "the same as a share of the window"),
        _column("time_ns", _I64, "time that it takes in the window, all workers summed"),
        _column("path_ns", _I64, "time that it takes on the critical path"),
    ]
)
"""One row per operator, worker or pair of workers, and virtual speed-up; what saves most, were it for free, first."""

PARTICIPATION = pa.schema(
    [
        _column("participation", _F64, "path_share x duration_ns / span of the window; adds up to 1"),
        _column("path_share", _F64, "share of all paths through the window that lead over the edge"),
        _column("paths_mantissa", _F64, "paths over the edge = paths_mantissa x 2^paths_exponent"),
        _column("paths_exponent", _I64, "0 for fewer than 2^1000 paths"),
        _column("type", _STR, "ActivityType"),
        _column("worker", _I32, "worker of the activity; the sender of a message"),
        _column("to_worker", _I32, "the receiver of a message; otherwise the worker itself"),
        _column("start_ns", _I64, "when it starts, inside the window"),
        _column("duration_ns", _I64, "how long it takes, inside the window; a message until its edge ends"),
        _column("operator", _I64, "operator that was active", null=True),
        _column("channel", _I64, "channel of a message", null=True),
        _column("src", _I64, "src of the store's edge"),
        _column("dst", _I64, "dst of the store's edge"),
    ]
)
"""One row per edge of a window but waits, highest participation first."""

PROFILE = pa.schema(
    [
        _column("by", _STR, "what the path is divided by: type, operator, worker or pair"),
        _column("rank", _I64, "1 for the longest; what is summed up in `(other)` comes last"),
        _column("key", _STR, "type, operator name and address, worker, or `sender -> receiver`"),
        _column("operator", _I64, "operator, when divided by operators", null=True),
        _column("worker", _I32, "worker, when divided by workers; sender, when divided by pairs", null=True),
        _column("to_worker", _I32, "receiver, when divided by pairs", null=True),
        _column("keys", _I64, "keys in the row: more than 1 in `(other)` only"),
        _column("steps", _I64, "steps of the path"),
        _column("path_ns", _I64, "their time"),
        _column("share", _F64, "the same as a share of the window's span"),
    ]
)
"""One row per division and key; the rows of a division add up to the window's span."""

PROFILE_ROUNDS = pa.schema(
    [
        _column("by", _STR, "what the paths are divided by: type, operator, worker or pair"),
        _column("rank", _I64, "1 for the longest in sum; what is summed up in `(other)` comes last"),
        _column("key", _STR, "type, operator name and address, worker, or `sender -> receiver`"),
        _column("rounds", _I64, "rounds on whose path it is"),
        _column("steps", _I64, "steps on the paths of all rounds"),
        _column("path_ns", _I64, "their time"),
        _column("share", _F64, "the same as a share of all rounds' spans"),
        _column("mean_ns", _F64, "path_ns over all rounds, also those without it"),
        _column("p50_ns", _I64, "time that half of all rounds do not exceed"),
        _column("p90_ns", _I64, "time that 90 % of all rounds do not exceed"),
        _column("p99_ns", _I64, "time that 99 % of all rounds do not exceed"),
        _column("max_ns", _I64, "most in one round"),
        _column("max_epoch", _I64, "the first round with so much"),
    ]
)
"""One row per division and key, over all rounds of a run."""

SCALING = pa.schema(
    [
        _column("by", _STR, "what the paths are divided by: total (the whole path), type or operator"),
        _column("rank", _I64, "1 for the longest in all runs; what is summed up in `(other)` comes last"),
        _column("key", _STR, "type, operator name and address, or `(whole path)`"),
        _column("workers", _I64, "number of workers that were there at once in these rounds, at most"),
        _column(
            "mean_workers",
            _F64,
            "workers there on average: the sum of their times in these rounds over the rounds' length",
        ),
        _column("runs", _I64, "runs with so many"),
        _column("mean_ns", _F64, "time on the paths of the rounds that all runs have, mean over these runs"),
        _column("deviation_ns", _F64, "its standard deviation over these runs", null=True),
        _column("share", _F64, "mean_ns as a share of the whole path's"),
        _column("ideal_ns", _F64, "what it would be if workers shared it: the mean of the fewest workers, divided"),
        _column("speed_up", _F64, "the mean of the fewest workers over mean_ns", null=True),
        _column("over_cores", pa.bool_(), "whether there were more workers than cores, if that was said", null=True),
    ]
)
"""One row per division, key and number of workers; the rows of a division and number add up to its whole path."""

METRICS = pa.schema(
    [
        _column("epoch", _I64, "the edges' own epoch"),
        _column("from_worker", _I32, "worker of the activity; sender of a message"),
        _column("to_worker", _I32, "the worker itself; receiver of a message"),
        _column("type", _STR, "ActivityType"),
        _column("activities", _I64, "number of edges"),
        _column("duration_ns", _I64, "their time; negative times count as they are, but as 0 under the rule set st2"),
        _column("delivered_ns", _I64, "the same, with messages from send to read instead of from send to arrival"),
        _column(
            "records",
            _I64,
            "records in messages, null where one does not tell; or read in activations, null where none tells",
            null=True,
        ),
    ]
)
"""One row per epoch, worker or pair of workers, and type."""

MATRIX = pa.schema(
    [
        _column("from_worker", _I32, "sender"),
        _column("to_worker", _I32, "receiver"),
        _column("messages", _I64, "messages of any type"),
        _column("data_messages", _I64, "data messages among them"),
        _column("records", _I64, "records in the data messages; null where one of them does not tell", null=True),
        _column("records_share", _F64, "the same as a share of all records; null where these are not known", null=True),
        _column("delivered_ns", _I64, "time of the data messages from send to read, summed"),
    ]
)
"""One row per pair of two workers, also of those that sent nothing."""

K_HOPS_ST2 = pa.schema(
    [
        _column("epoch", _I64, "epoch; SnailTrail 2 prints the number after it"),
        _column("hop", _I64, "distance from the wait's end, in edges, from 1"),
        _column("type", _STR, "ActivityType"),
        _column("worker", _I32, "worker of the edge's src"),
        _column("count", _I64, "walks, joined on times"),
        _column("duration_ns", _I64, "durations of their edges, summed over the walks; negative ones count nothing"),
    ]
)
"""One row per epoch, hop, type and worker, sorted by these."""

INVARIANTS = pa.schema(
    [
        _column("invariant", _STR, "epoch_max, message_max, operator_max, progress_max or some_progress"),
        _column("learned", pa.bool_(), "whether the limit comes from earlier epochs"),
        _column("epoch", _I64, "epoch in which it is violated"),
        _column("worker", _I32, "worker concerned; sender of a message; null for an epoch", null=True),
        _column("to_worker", _I32, "receiver of a message", null=True),
        _column("type", _STR, "type of the offending edge", null=True),
        _column("operator", _I64, "operator that was active", null=True),
        _column("channel", _I64, "channel of a message", null=True),
        _column("src", _I64, "vertex where the offending edge starts; null where a worker did nothing", null=True),
        _column("dst", _I64, "vertex where it ends; null for a gap that is still open", null=True),
        _column("start_ns", _I64, "when it starts"),
        _column("observed", _I64, "what was seen"),
        _column("limit", _I64, "what is allowed: a violation is more than it, for some_progress less"),
        _column("unit", _STR, "unit of both: ns, or receivers"),
    ]
)
"""One row per violation, sorted by epoch."""

IMBALANCE = pa.schema(
    [
        _column("type", _STR, "ActivityType"),
        _column("operator", _I64, "operator, when divided by operators as well", null=True),
        _column("path_ns", _I64, "time on the critical path"),
        _column("mean_ns", _F64, "time per worker of the window, on the path or not"),
        _column("imbalance_ns", _F64, "path_ns - mean_ns; negative where others do more of it than the path"),
        _column("excess_ns", _F64, "the positive part of it: what perfect balance could take off the path"),
        _column("share", _F64, "excess_ns as a share of the window's span"),
    ]
)
"""One row per type (and operator); imbalances add up to the mean waiting per worker."""

BLAME = pa.schema(
    [
        _column("worker", _I32, "worker that waited"),
        _column("by_worker", _I32, "worker that was waited for; sender of a message"),
        _column("to_worker", _I32, "the same worker; receiver of a message"),
        _column("type", _STR, "what it did meanwhile, ActivityType"),
        _column("operator", _I64, "operator that was active", null=True),
        _column("channel", _I64, "channel of a message", null=True),
        _column("waits", _I64, "waits that are charged to it, in part at least"),
        _column("blamed_ns", _I64, "waiting time that is charged to it"),
    ]
)
"""One row per waiting worker and cause, most time first; times add up to the waiting in the window."""

ADVISE_PORTS = pa.schema(
    [
        _column("operator", _I64, "operator; null for the runtime's own time", null=True),
        _column("operator_name", _STR, "its name", null=True),
        _column("worker", _I32, "thread that runs it"),
        _column("mu", _F64, "share of the thread's life in which it works downstream of the operator"),
        _column("mu_low", _F64, "the least that it may be"),
        _column("mu_high", _F64, "the most that it may be"),
        _column("own_ns", _I64, "time in which the thread works in the operator itself"),
        _column("path_ns", _I64, "the part of that on the critical path"),
        _column("records", _I64, "records that the operator read on the thread; null where nobody counts", null=True),
        _column("flags", _STR, "what to know of the numbers: words with commas between"),
        _column("status", _STR, "candidate for a port, source, never_cut or blacklisted"),
    ]
)
"""One row per operator and thread, those with most downstream first; a thread's `own_ns` add up to its work."""

ADVICE = pa.schema(
    [
        _column("rank", _I64, "1 for what promises most; ports that belong together have the same"),
        _column("group", _I64, "busy threads that are helped together; null for a port by itself", null=True),
        _column("kind", _STR, "port, or widen for more workers that run everything"),
        _column("operator", _I64, "operator that gets the port", null=True),
        _column("operator_name", _STR, "its name", null=True),
        _column("threads", _I64, "threads from which work is taken"),
        _column("new_threads", _I64, "threads that take it, for all ports that belong together"),
        _column("utility", _F64, "share of its time in which the busiest thread concerned would work at today's pace"),
        _column("utility_before", _F64, "the same of the busiest thread today"),
        _column("moved_ns", _I64, "work that would change its thread"),
        _column("predicted_ns", _I64, "how long the window would be; null where it cannot be replayed", null=True),
        _column("low_ns", _I64, "the least that it may be", null=True),
        _column("high_ns", _I64, "the most that it may be", null=True),
        _column("gain_low", _F64, "share of the window that is saved at least; negative where it is longer", null=True),
        _column("gain_high", _F64, "share that is saved at most", null=True),
        _column("verdict", _STR, "insert, no_gain or cannot_tell"),
        _column("reason", _STR, "what speaks against it, or is not known", null=True),
    ]
)
"""One row per port, or number of workers; what promises most first."""

ADVICE_TRIALS = pa.schema(
    [
        _column("port", _STR, "operator that got a port: its name, and which of those with this name"),
        _column("before_per_s", _F64, "records that it read per second before, median of the runs"),
        _column("after_per_s", _F64, "the same after"),
        _column("ratio_low", _F64, "slowest run after over fastest before"),
        _column("ratio_high", _F64, "fastest run after over slowest before"),
        _column("decision", _STR, "keep, revert or undecided: the interval holds 1, or there are too few runs"),
        _column("blacklisted", pa.bool_(), "whether the port is not proposed again"),
    ]
)
"""One row per port that was tried, in the order of their names."""

SKEW = pa.schema(
    [
        _column("operator", _I64, "operator that read records", null=True),
        _column("operator_name", _STR, "its name", null=True),
        _column("worker", _I32, "worker that is there; also one that read nothing"),
        _column("records", _I64, "records that it read"),
        _column("share", _F64, "the same as a share of the operator's records"),
        _column("mean_ratio", _F64, "the same over the mean of all workers there that run the same"),
        _column("skew_ratio", _F64, "the highest mean_ratio of the operator's workers; 1 is perfect balance"),
        _column("skewed", pa.bool_(), "whether that is above the parameter"),
        _column("activations", _I64, "activations that read records"),
        _column("processing_ns", _I64, "time that the worker processed in the operator"),
    ]
)
"""One row per operator that read records and worker there that is comparable with a reader, most skewed first."""

STRAGGLERS = pa.schema(
    [
        _column("worker", _I32, "worker"),
        _column("work_ns", _I64, "time that it worked: neither waiting, idle, spinning, waiting for input nor unknown"),
        _column("waiting_ns", _I64, "time that it waited"),
        _column("path_ns", _I64, "time on the critical path"),
        _column("blamed_ns", _I64, "waiting of others that is charged to it"),
        _column("records", _I64, "records that it read; null where nobody counts them", null=True),
        _column("ns_per_record", _F64, "work per record; null where none was read, or nobody counts them", null=True),
        _column(
            "work_ratio", _F64, "work_ns over the median of all workers there that run the same; null if 0", null=True
        ),
        _column("straggler", pa.bool_(), "whether work_ratio is above the parameter and others waited for it"),
        _column(
            "cause", _STR, "data where it also read that many more records, else speed; null for others", null=True
        ),
    ]
)
"""One row per worker that is there, most work first."""

SAMPLE = pa.schema(
    [
        _column("by", _STR, "length or waiting of rounds, wait of a worker for another, or as in `profile`"),
        _column("key", _STR, "mean or percentile, who waited for whom, or as in `profile`"),
        _column("unit", _STR, "of the numbers: ns per round, or share of all rounds' spans"),
        _column("estimate", _F64, "what all rounds have, estimated"),
        _column("low", _F64, "lower end of the interval; null where the sample cannot bound it", null=True),
        _column("high", _F64, "upper end", null=True),
        _column("exact", _F64, "what all rounds have, where the table of epochs says so", null=True),
        _column("rounds", _I64, "sampled rounds in which it occurs"),
    ]
)
"""One row per estimate."""

WHY = pa.schema(
    [
        _column("rank", _I64, "1 for what matters most; a report of few lines shows the first"),
        _column("topic", _STR, "summary, cause, path, waiting, records, limits, typical, help or doubt"),
        _column("statement", _STR, "one sentence"),
        _column("worker", _I32, "worker that it is about", null=True),
        _column("operator", _I64, "operator that it is about", null=True),
        _column("time_ns", _I64, "time that it is about; of a help, what would be saved", null=True),
        _column("share", _F64, "the same as a share of the window, or of what the statement says", null=True),
    ]
)
"""One row per statement about a window, in the order in which a report has them."""

DIFF = pa.schema(
    [
        _column("type", _STR, "ActivityType"),
        _column("address", _STR, "operator that was active; of a message the one that reads it", null=True),
        _column("operator_name", _STR, "its name", null=True),
        _column("worker", _I32, "worker; sender of a message; null where the runs' workers differ", null=True),
        _column("to_worker", _I32, "receiver of a message", null=True),
        _column("status", _STR, "both, appeared or gone: on which critical path it is"),
        _column("before_steps", _I64, "steps on the critical path before"),
        _column("after_steps", _I64, "steps after"),
        _column("before_ns", _I64, "time on the critical path before"),
        _column("after_ns", _I64, "time after"),
        _column("difference_ns", _I64, "after_ns - before_ns"),
        _column("count_ns", _I64, "part of it that comes from more or fewer steps"),
        _column("mean_ns", _I64, "part of it that comes from longer or shorter steps"),
    ]
)
"""One row per activity, largest difference first; differences add up to that of the windows' lengths."""
