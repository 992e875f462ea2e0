"""Tables about input that a program was given by the clock or one after the other, and how long it took."""

from __future__ import annotations

import pyarrow as pa

from pag_graph.model.columns import column as _column

_I64, _F64, _STR, _BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()

TRACE_INPUTS = pa.schema(
    [
        _column("worker", pa.int32(), "worker whose input it is; times are on its own clock"),
        _column("number", _I64, "number of an input, from 0; null in other rows", null=True),
        _column("due_ns", _I64, "when the input was due; in a schedule, the first one", null=True),
        _column("given_ns", _I64, "when the program gave it", null=True),
        _column("epoch", _I64, "the worker's epoch then", null=True),
        _column("records", _I64, "records in it; null when not told", null=True),
        _column("frontier", _I64, "so many inputs are done; null in other rows", null=True),
        _column("noticed_ns", _I64, "when the worker saw that they are", null=True),
        _column(
            "interval_ns",
            _I64,
            "of a schedule: from one input to the next; null where only its row says when one is due",
            null=True,
        ),
        _column("count", _I64, "of a schedule: number of inputs; null in other rows", null=True),
    ]
)
"""One row per schedule, per input that was given, and per look at how many are done."""

INPUT_LATENCIES = pa.schema(
    [
        _column("worker", pa.int32(), "worker whose input it is"),
        _column("number", _I64, "number of the input on its worker, from 0"),
        _column("due_ns", _I64, "when it was due, on the common clock (Unix time)"),
        _column("given_ns", _I64, "when it was given; null if it never was", null=True),
        _column("noticed_ns", _I64, "when the worker said that it and those before are done; null if never", null=True),
        _column("epoch", _I64, "the worker's epoch when it was given", null=True),
        _column("records", _I64, "records in it; null when not told", null=True),
        _column("latency_ns", _I64, "from due to noticed; of an input that was not done, to the end of the log"),
        _column("censored", _BOOL, "whether it was not done, or never given: its latency is at least that"),
    ]
)
"""One row per input that was due before the end of its worker's log."""

LOAD_CURVE = pa.schema(
    [
        _column("run", _STR, "the trace"),
        _column("worker", pa.int32(), "null for all workers together", null=True),
        _column("loop", _STR, "open: input comes by the clock; closed: when the one before is done"),
        _column("inputs", _I64, "inputs that were due"),
        _column("censored", _I64, "of these, how many were not done"),
        _column(
            "offered_per_s", _F64, "inputs due per second; null in a closed loop, which offers what is taken", null=True
        ),
        _column("achieved_per_s", _F64, "inputs done per second"),
        _column("records_per_s", _F64, "records done per second; null when not told", null=True),
        _column("mean_ns", _F64, "mean latency; a lower bound where some are censored"),
        _column("p50_ns", _I64, "latency that half of the inputs do not exceed (nearest rank)"),
        _column("p99_ns", _I64, "latency that 99 % do not exceed"),
        _column("max_ns", _I64, "the longest"),
        _column("at_least", pa.list_(_STR), "which of these are lower bounds, because of what is censored"),
        _column("stable", _BOOL, "whether 99 % of the offered inputs were achieved; null in a closed loop", null=True),
    ]
)
"""One row per run and worker, and one per run for all its workers."""
