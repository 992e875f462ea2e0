"""Converts spans to a canonical trace for the rule set `stated`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.errors import TraceFormatError
from pag_graph.model.enums import RuleSet, Severity
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_EVENTS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.foreign_files import fingerprint
from pag_graph.sources.spans.event_rows import CALLS, LINKS, RETURNS, Written, events
from pag_graph.sources.spans.files import FORMS, form_of, read_parts, span_files
from pag_graph.sources.spans.layout import check_size, lay_end_to_end, measure, stretch
from pag_graph.sources.spans.request_parts import REQUEST_ORDER, RequestParts, numbers_of, request_rows
from pag_graph.sources.spans.spilled import in_portions
from pag_graph.sources.spans.table import labels_of
from pag_graph.store.findings import findings, no_findings
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.trace import write_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pag_graph.sources.spans.layout import Layout
    from pag_graph.sources.spans.requests import Requests
    from pag_graph.sources.spans.table import SpanTable

    I64 = NDArray[np.int64]

FORMATS: Final = tuple(FORMS)
"""Names of the formats."""
REQUESTS: Final = "requests.parquet"
"""Of a trace: one row per request with its real times."""
_FILE_ROWS = 1 << 18
"""About how many rows a file of events has: what memory holds of them."""
_ROWS_PER_SPAN: Final = 8
"""About how many rows a span makes."""


def mismatch(source: Path, form: str) -> str | None:
    """Say why `source` holds no spans of a format.

    Parameters
    ----------
    source
        A file, or a folder of files.
    form
        One of `FORMATS`.

    Returns
    -------
    str or None
        None if all its files look as if they were in this format; their beginnings are looked at.

    Raises
    ------
    TraceFormatError
        If a pipe, socket or device is there, or a folder cannot be listed.
    """
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
    with read_parts([source], form=form) as parts:
        requests = RequestParts(parts)
        rows = pl.concat([request_rows(requests_of_part) for requests_of_part in requests]).sort(*REQUEST_ORDER)
        return write_requests(requests, rows, convertible(rows), target, replace=replace)


def convertible(rows: pl.DataFrame) -> I64:
    """Return which requests take time and have their root: places among `rows`, which `request_rows` made."""
    return np.flatnonzero((rows["latency"].to_numpy() > 0) & ~rows["orphan"].to_numpy())


def write_requests(
    requests: RequestParts, rows: pl.DataFrame, chosen: I64, target: Path, *, replace: bool = False
) -> TraceMeta:
    """Write chosen requests as a canonical trace, and their real times beside it.

    Parameters
    ----------
    requests
        All of them, gone through once.
    rows
        One row per request, as `request_rows` has them, in `REQUEST_ORDER`.
    chosen
        Which rows to write, ascending.
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
    StoreError
        If the folder for temporary files has no room.

    Notes
    -----
    Memory holds a part of the spans, and of their events those of some requests that follow each other.
    """
    if not len(chosen):
        message = "No request takes any time, or the root of every request is missing, so there is no path."
        raise TraceFormatError(message, "Give the files with the roots as well.", {"requests": rows.height})
    check_size(len(chosen), 1)
    chosen_rows = rows[chosen]
    groups = [chosen_rows[low:high] for low, high in in_portions(chosen_rows["size"].to_numpy(), requests.held)]
    makers = requests.grouped([group["trace"].unique().to_list() for group in groups])
    measures = []
    for make, group in zip(makers, groups, strict=True):
        requests_of_group = make()
        measures.append(measure(requests_of_group, numbers_of(requests_of_group, group)))
    layout = lay_end_to_end(measures)
    counts = _not_written(rows[np.setdiff1d(np.arange(rows.height), chosen)])
    table = requests.table
    digests = b"".join(digest for group_measures in measures for digest in group_measures.requests["digest"].to_list())
    meta = TraceMeta(
        trace_id=fingerprint([("spans", digests)]),
        source=TraceSource(system="spans", version="", format=table.format),
        workers=len(layout.lanes),
        dropped={**table.dropped, **counts},
        rules=RuleSet.STATED,
    )
    del measures
    times: list[pl.DataFrame] = []
    write_trace(
        target,
        meta=meta,
        events=_events(zip(makers, groups, strict=True), layout, times),
        operators=_operators(table),
        channels=_channels(),
        workers=_workers(table, layout),
        findings=_findings(requests.findings(), int((rows["latency"] == 0).sum())),
        replace=replace,
    )
    pl.concat(times).write_parquet(target / REQUESTS)
    return meta


def _not_written(rows: pl.DataFrame) -> dict[str, int]:
    """Return how many spans are left out with requests, by reason."""
    takes_time = pl.col("latency") > 0
    reasons = {
        "span_of_orphan": pl.col("orphan"),
        "span_of_empty_request": ~pl.col("orphan") & ~takes_time,
        "span_of_other_request": ~pl.col("orphan") & takes_time,
    }
    counts = rows.select(pl.col("size").filter(left_out).sum().alias(reason) for reason, left_out in reasons.items())
    return {reason: count for reason, count in counts.row(0, named=True).items() if count}


def _findings(tables_of_spans: Sequence[pa.Table], empty: int) -> pa.Table:
    tables = [no_findings(), *tables_of_spans]
    if empty:
        action = "left out: a request without duration has no path"
        tables.append(findings("path_empty", Severity.WARNING, action, observed=empty, unit="requests"))
    return pa.concat_tables(tables)


def _events(
    groups: Iterable[tuple[Callable[[], Requests], pl.DataFrame]], layout: Layout, times: list[pl.DataFrame]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the files of events; `times` gets the real times of what has been written."""
    written = Written(np.zeros(len(layout.lanes), np.int64))
    first_number = files = 0
    for make, group in groups:
        requests = make()
        numbers = numbers_of(requests, group)
        weights = _ROWS_PER_SPAN * np.diff(layout.spans[first_number : first_number + len(numbers) + 1]) + 2 * len(
            layout.lanes
        )
        for low, high in in_portions(weights, _FILE_ROWS):
            piece = stretch(requests, layout, numbers[low:high], first_number + low)
            yield f"events-{files:05}", events(piece, written).select(TRACE_EVENTS.names).to_arrow().cast(TRACE_EVENTS)
            files += 1
        times.append(_real_times(requests, numbers, first_number))
        first_number += len(numbers)


def _real_times(requests: Requests, chosen: I64, first_number: int) -> pl.DataFrame:
    """Return one row per chosen request: epoch, ids, operation, real start, latency."""
    roots = requests.first[chosen]
    spans = requests.table.spans[requests.row[roots]]
    labels = labels_of(requests.table.operations)
    return pl.DataFrame(
        {
            "epoch": 2 * (first_number + np.arange(len(chosen)) + 1),
            "trace": pl.Series(requests.table.traces, dtype=pl.String).gather(spans["trace"]),
            "span": spans["id"],
            "operation": [labels[code] for code in requests.operation[roots].tolist()],
            "start_unix_ns": requests.spans.start[roots],
            "latency_ns": requests.latency[chosen],
        }
    )


def _operators(table: SpanTable) -> pa.Table:
    rows: list[dict[str, Any]] = []
    services: dict[str, int] = {}
    for code, (operation, label) in enumerate(zip(table.operations, labels_of(table.operations), strict=True)):
        service = services.setdefault(operation.service, len(services) + 1)
        rows.append({"operator": code, "address": f"0.{service}.{code + 1}", "name": label})
    return pa.Table.from_pylist(rows, TRACE_OPERATORS)


def _channels() -> pa.Table:
    names = {CALLS: "call", RETURNS: "return", LINKS: "link"}
    return pa.Table.from_pylist(
        [{"channel": number, "scope": "0", "type": name} for number, name in names.items()], TRACE_CHANNELS
    )


def _workers(table: SpanTable, layout: Layout) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for worker, (code, lane) in enumerate(layout.lanes):
        process = table.processes[code]
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
