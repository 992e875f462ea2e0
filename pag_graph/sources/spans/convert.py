"""Converts spans to a canonical trace for the rule set `stated`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.model.enums import RuleSet, Severity
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_EVENTS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.foreign_files import fingerprint
from pag_graph.sources.spans.event_rows import CALLS, LINKS, RETURNS, events, lay_end_to_end
from pag_graph.sources.spans.files import FORMS, form_of, read_spans, span_files
from pag_graph.sources.spans.requests import requests as make_requests
from pag_graph.store.findings import findings, no_findings
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.trace import write_trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pag_graph.sources.spans.event_rows import Layout
    from pag_graph.sources.spans.requests import Requests

    I64 = NDArray[np.int64]

FORMATS: Final = tuple(FORMS)
"""Names of the formats."""
REQUESTS: Final = "requests.parquet"
"""Of a trace: one row per request with its real times."""
_MOST_ROWS: Final = 2_000_000
_FILE_ROWS = 1_000_000


def mismatch(source: Path, form: str) -> str | None:
    """Say why `source` holds no spans of a format; None if it looks as if it did."""
    forms = {form_of(file) for file in span_files(source)}
    if forms == {form}:
        return None
    if forms - {None}:
        return "spans of " + ", ".join(sorted(name for name in forms if name))
    return "no file of spans" if source.is_dir() else "no spans"


def convert(source: Path, target: Path, *, form: str, replace: bool = False) -> TraceMeta:
    """Convert a file or folder of spans to a canonical trace, with all requests.

    Parameters
    ----------
    source
        File, or folder of files.
    target
        Directory of the trace to write.
    form
        Name of the format.
    replace
        Whether to replace a trace that is there.

    Returns
    -------
    TraceMeta
        Also in the trace.

    Raises
    ------
    TraceFormatError
        If a file is damaged, or holds no request.
    InvalidParameterError
        If there are too many requests for one trace.
    """
    made = make_requests(read_spans([source], form=form))
    return write_requests(made, convertible(made), target, replace=replace)


def convertible(requests: Requests) -> I64:
    """Return the requests that take time and whose root is one."""
    return np.flatnonzero((requests.latency > 0) & ~requests.orphan)


def write_requests(requests: Requests, chosen: I64, target: Path, *, replace: bool = False) -> TraceMeta:
    """Write chosen requests as a canonical trace, and their real times beside it.

    Parameters
    ----------
    requests
        All of them.
    chosen
        Indexes of those to write, ascending.
    target
        Directory of the trace to write.
    replace
        Whether to replace a trace that is there.

    Returns
    -------
    TraceMeta
        Also in the trace.

    Raises
    ------
    TraceFormatError
        If no request is chosen.
    InvalidParameterError
        If lanes times epochs are more than two million.
    """
    if not len(chosen):
        message = "No request takes any time, or every one lacks its root: there is no path to be found."
        raise TraceFormatError(message, "Give the files with the roots as well.", {"requests": requests.count})
    layout = lay_end_to_end(requests, chosen)
    rows = len(layout.lanes) * 2 * len(chosen)
    if rows > _MOST_ROWS:
        message = f"{len(chosen):,} requests on {len(layout.lanes):,} lanes are too many for one trace."
        hint = "Choose some: pag spans TRACES --out DIR with --slowest N or --request ID."
        raise InvalidParameterError(message, hint, {"requests": len(chosen), "lanes": len(layout.lanes)})
    table = requests.table
    meta = TraceMeta(
        trace_id=fingerprint([("spans", _identity(requests, layout))]),
        source=TraceSource(system="spans", version="", format=table.format),
        workers=len(layout.lanes),
        dropped={**table.dropped, **_left_out(requests, chosen)},
        rules=RuleSet.STATED,
    )
    write_trace(
        target,
        meta=meta,
        events=_parts(events(requests, layout)),
        operators=_operators(requests),
        channels=_channels(),
        workers=_workers(requests, layout),
        findings=_findings(requests),
        replace=replace,
    )
    request_rows(requests, chosen).write_parquet(target / REQUESTS)
    return meta


def request_rows(requests: Requests, chosen: I64) -> pl.DataFrame:
    """Return one row per chosen request: epoch, ids, operation, real start, latency."""
    roots = requests.first[chosen]
    spans = requests.table.spans[requests.row[roots]]
    return pl.DataFrame(
        {
            "epoch": 2 * (np.arange(len(chosen)) + 1),
            "trace": pl.Series(requests.table.traces, dtype=pl.String).gather(spans["trace"]),
            "span": spans["id"],
            "operation": [requests.table.operations[code].label for code in requests.operation[roots].tolist()],
            "start_unix_ns": requests.spans.start[roots],
            "latency_ns": requests.latency[chosen],
        }
    )


def _identity(requests: Requests, layout: Layout) -> bytes:
    spans = requests.table.spans[requests.row[layout.spans]].select("id", "start", "end")
    return spans.write_csv().encode()


def _left_out(requests: Requests, chosen: I64) -> dict[str, int]:
    sizes = np.diff(requests.first)
    wanted = np.zeros(requests.count, np.bool_)
    wanted[chosen] = True
    reasons = {
        "span_of_orphan": ~wanted & requests.orphan,
        "span_of_empty_request": ~wanted & ~requests.orphan & (requests.latency == 0),
        "span_of_other_request": ~wanted & ~requests.orphan & (requests.latency > 0),
    }
    counts = {reason: int(sizes[which].sum()) for reason, which in reasons.items()}
    return {reason: count for reason, count in counts.items() if count}


def _findings(requests: Requests) -> pa.Table:
    empty = int((requests.latency == 0).sum())
    found = [no_findings(), *requests.findings]
    if empty:
        action = "left out: a request without duration has no path"
        found.append(findings("path_empty", Severity.WARNING, action, observed=empty, unit="requests"))
    return pa.concat_tables(found)


def _parts(rows: pl.DataFrame) -> Iterator[tuple[str, pa.Table]]:
    for part, piece in enumerate(rows.select(TRACE_EVENTS.names).iter_slices(_FILE_ROWS)):
        yield f"events-{part:05}", piece.to_arrow().cast(TRACE_EVENTS)


def _operators(requests: Requests) -> pa.Table:
    rows: list[dict[str, Any]] = []
    services: dict[str, int] = {}
    for code, operation in enumerate(requests.table.operations):
        service = services.setdefault(operation.service, len(services) + 1)
        rows.append({"operator": code, "address": f"0.{service}.{code + 1}", "name": operation.label})
    return pa.Table.from_pylist(rows, TRACE_OPERATORS)


def _channels() -> pa.Table:
    names = {CALLS: "call", RETURNS: "return", LINKS: "link"}
    return pa.Table.from_pylist(
        [{"channel": number, "scope": "0", "type": name} for number, name in names.items()], TRACE_CHANNELS
    )


def _workers(requests: Requests, layout: Layout) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for worker, (code, lane) in enumerate(layout.lanes):
        process = requests.table.processes[code]
        rows.append(
            {
                "worker": worker,
                "process": code,
                "host": process.host or None,
                # All times are on one clock already.
                "clock_domain": "spans",
                "offset_ns": layout.origin,
                "name": f"{process.label} {lane + 1}",
            }
        )
    return pa.Table.from_pylist(rows, TRACE_WORKERS)
