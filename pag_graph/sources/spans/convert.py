"""Converts spans to a canonical trace for the rule set `stated`."""

from __future__ import annotations

from collections import Counter
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
    from collections.abc import Iterator, Mapping, Sequence
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
_EMPTY: Final = "requests without duration"
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


def left_out(rows: pl.DataFrame) -> dict[str, int]:
    """Return how many spans are left out with requests, by reason, and how many requests have no path.

    Parameters
    ----------
    rows
        One row per request that is not written: `orphan`, `latency` and `size` (in spans).
    """
    takes_time = pl.col("latency") > 0
    reasons = {
        "span_of_orphan": pl.col("orphan"),
        "span_of_empty_request": ~pl.col("orphan") & ~takes_time,
        "span_of_other_request": ~pl.col("orphan") & takes_time,
    }
    counts = rows.select(pl.col("size").filter(which).sum().alias(reason) for reason, which in reasons.items())
    return {**counts.row(0, named=True), _EMPTY: int((rows["latency"] == 0).sum())}


def check_size(requests: int, lanes: int) -> None:
    """Refuse requests that are too many for one trace.

    Raises
    ------
    InvalidParameterError
        If lanes times epochs are more than two million.
    """
    if lanes * 2 * requests > _MOST_ROWS:
        message = f"{requests:,} requests on {lanes:,} lanes are too many for one trace."
        hint = "Choose some: pag spans TRACES --out DIR with --slowest N or --request ID."
        raise InvalidParameterError(message, hint, {"requests": requests, "lanes": lanes})


def write_requests(
    requests: Requests,
    chosen: I64,
    target: Path,
    *,
    replace: bool = False,
    others: Mapping[str, int] | None = None,
    known: Sequence[pa.Table] | None = None,
) -> TraceMeta:
    """Write chosen requests as a canonical trace, and their real times beside it.

    Parameters
    ----------
    requests
        All of them, or all of some traces.
    chosen
        Indexes of those to write, ascending.
    target
        Directory of the trace to write.
    replace
        Whether to replace a trace that is there.
    others
        What is left out with requests of other traces, as `left_out` has it.
    known
        Findings about all requests, if these are not all.

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
    check_size(len(chosen), len(layout.lanes))
    table = requests.table
    counts = Counter(_not_written(requests, chosen))
    counts.update(others or {})
    empty = counts.pop(_EMPTY, 0) + int((requests.latency[chosen] == 0).sum())
    meta = TraceMeta(
        trace_id=fingerprint([("spans", _identity(requests, layout))]),
        source=TraceSource(system="spans", version="", format=table.format),
        workers=len(layout.lanes),
        dropped={**table.dropped, **{reason: count for reason, count in counts.items() if count}},
        rules=RuleSet.STATED,
    )
    write_trace(
        target,
        meta=meta,
        events=_parts(events(requests, layout)),
        operators=_operators(requests),
        channels=_channels(),
        workers=_workers(requests, layout),
        findings=_findings(requests.findings if known is None else known, empty),
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


def _not_written(requests: Requests, chosen: I64) -> dict[str, int]:
    rows = pl.DataFrame({"orphan": requests.orphan, "latency": requests.latency, "size": np.diff(requests.first)})
    return left_out(rows[np.setdiff1d(np.arange(requests.count), chosen)])


def _findings(known: Sequence[pa.Table], empty: int) -> pa.Table:
    tables = [no_findings(), *known]
    if empty:
        action = "left out: a request without duration has no path"
        tables.append(findings("path_empty", Severity.WARNING, action, observed=empty, unit="requests"))
    return pa.concat_tables(tables)


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
