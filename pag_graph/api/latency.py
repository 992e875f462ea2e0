"""How long input took, from when it was due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.errors import InvalidParameterError
from pag_graph.model.given import listed, path_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import pyarrow as pa

    from pag_graph.analyses.due_times import LatencyReport
    from pag_graph.graph.run import Run


def latency(trace: str | os.PathLike[str]) -> LatencyReport:
    """Measure how long the inputs of a run took, from when they were due.

    Parameters
    ----------
    trace
        Directory of a trace whose program said when input was due (`tracer.inputs` of the adapter).

    Returns
    -------
    LatencyReport
        Its `table` has a row per input, its `curve` the distribution per worker and of all together.

    Raises
    ------
    TraceFormatError
        If the trace does not say it, or cannot be read.

    Examples
    --------
    >>> pag_graph.api.latency("trace").curve()[-1]["p99_ns"]  # doctest: +SKIP
    """
    import pyarrow.compute as pc

    from pag_graph.analyses.due_times import latencies
    from pag_graph.store.inputs import read_inputs
    from pag_graph.store.log import TraceLog
    from pag_graph.store.trace import Trace

    # What is no trace says nothing about inputs either.
    opened = Trace.open(path_of(trace, "trace"))
    inputs = read_inputs(opened.path)
    workers = opened.workers.to_pylist()
    log = TraceLog.index(opened)
    ends: dict[int, int] = {}
    for row in workers:
        rows = log.rows_of(row["worker"])
        if rows:
            ends[row["worker"]] = pc.max(log.read(row["worker"], rows - 1, rows, ["t_ns"])["t_ns"]).as_py()
    offsets = {row["worker"]: row["offset_ns"] for row in workers}
    return latencies(str(trace), inputs, offsets, ends)


def check_trace_of(run: Run, trace: str | os.PathLike[str]) -> None:
    """Refuse a trace that a run was not built from: its times mean nothing there.

    Parameters
    ----------
    run
        A run.
    trace
        Directory of a trace.

    Raises
    ------
    InvalidParameterError
        If the run was built from another one.
    TraceFormatError
        If it is no trace.
    """
    from pag_graph.store.trace import Trace

    if Trace.open(trace).meta.trace_id != run.info.run["trace_id"]:
        message = f"{trace} is not a trace of the run in {run.info.path}."
        raise InvalidParameterError(message, "Give the trace that the store was built from.", {"trace": str(trace)})


def load_curve(traces: Iterable[str | os.PathLike[str]]) -> pa.Table:
    """Put runs of one program under different loads beside each other.

    Parameters
    ----------
    traces
        As for `latency`, of one run each, at least one.

    Returns
    -------
    pyarrow.Table
        Rows of `LOAD_CURVE`.

    Raises
    ------
    InvalidParameterError
        If there is no trace among them.
    TraceFormatError
        As for `latency`.
    """
    from pag_graph.analyses.due_times import load_curve as curve

    return curve([latency(trace) for trace in listed(traces, "traces", "traces")])
