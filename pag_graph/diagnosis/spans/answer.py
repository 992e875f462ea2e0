"""What spans say: the slowest and the typical request, sums by operation, and differences."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.diagnosis.spans.aggregates import (
    by_call_path,
    by_latency,
    by_operation,
    difference,
    slowest,
)
from pag_graph.diagnosis.spans.sums import summed
from pag_graph.errors import InvalidParameterError
from pag_graph.sources.collector import without_collector
from pag_graph.sources.spans.convert import convertible, write_requests
from pag_graph.sources.spans.files import HELD, read_parts
from pag_graph.sources.spans.otlp_json import FORMAT as OTLP
from pag_graph.sources.spans.request_parts import RequestParts, numbers_of
from pag_graph.sources.spans.table import labels_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pag_graph.diagnosis.spans.sums import Sums
    from pag_graph.sources.spans.requests import Requests
    from pag_graph.store.meta import TraceMeta

    I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanAnswer:
    """Why requests took as long as they did."""

    requests: RequestParts
    sums: Sums
    """Of all requests."""
    shown: list[dict[str, Any]]
    """Requests with their paths: `role` is slowest, typical or asked for; rootless, the slowest one, if no request has
    its root."""
    operations: list[dict[str, Any]]
    """As `by_operation` has them."""
    latencies: list[dict[str, Any]]
    """As `by_latency` has them."""
    call_paths: list[dict[str, Any]]
    """As `by_call_path` has them."""
    findings: list[dict[str, Any]]
    """What is odd about the spans: finding, severity, observed, limit, unit, action."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Against another set, all requests and their slowest 1 %; empty where none was given."""

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, for programs."""
        table, chosen = self.requests.table, self.sums.counted
        return {
            "format": table.format,
            "policy": "pag",
            "spans": self.requests.spans,
            "traces": self.sums.traces,
            "requests": len(chosen),
            "left_out_requests": self.sums.requests.height - len(chosen),
            "dropped": table.dropped,
            "latency_ns": int(self.sums.latency[chosen].sum()),
            "certain_ns": sum(operation["certain_ns"] for operation in self.operations),
            "shown": self.shown,
            "operations": self.operations,
            "latency_classes": self.latencies,
            "call_paths": self.call_paths,
            "changes": self.changes,
            "findings": self.findings,
        }

    def write(
        self, target: Path, *, slowest: int | None = None, request: str | None = None, replace: bool = False
    ) -> TraceMeta:
        """Write requests as a canonical trace: the slowest ones, else those of a trace, else all.

        Parameters
        ----------
        target
            Directory of the trace to write.
        slowest
            How many.
        request
            Id of a trace.
        replace
            Whether to replace a trace that is there.

        Raises
        ------
        TraceFormatError
            If no request takes time.
        InvalidParameterError
            If they are too many for one trace, or there is no such trace.
        """
        rows = self.sums.requests
        able = convertible(rows)
        if slowest is not None:
            chosen = able[np.argsort(-self.sums.latency[able], kind="stable")[:slowest]]
        elif request is not None:
            # One whose root is missing, too; but what takes no time is no epoch.
            of_trace = rows["trace"].to_numpy() == _trace_code(self.requests, request)
            chosen = np.flatnonzero(of_trace & (rows["latency"].to_numpy() > 0))
        else:
            chosen = able
        return write_requests(self.requests, rows, np.sort(chosen), target, replace=replace)


@contextmanager
def answer(
    sources: Sequence[Path],
    *,
    sync: Collection[str] = (),
    request: str | None = None,
    against: Sequence[Path] = (),
    held: int = HELD,
) -> Iterator[SpanAnswer]:
    """Read spans and say what takes their time.

    Parameters
    ----------
    sources
        Files and folders.
    sync
        Services, or ``service/operation``, that are known to wait for all that they call.
    request
        Id of a trace to be shown as well.
    against
        Files and folders of another set, to compare with.
    held
        How many spans memory is to hold at a time.

    Yields
    ------
    SpanAnswer
        Under the policy `pag`. Inside requests can be written; temporary files go at the end.

    Raises
    ------
    TraceFormatError
        If there are no spans.
    InvalidParameterError
        If there is no such trace.
    """
    with read_parts(sources, held=held) as parts:
        with without_collector():
            requests = RequestParts(parts, sync=sync)
            answered = _answered(requests, request)
            if against:
                answered.changes.update(_changes(answered.sums, against, sync, held))
        yield answered


def _answered(requests: RequestParts, request: str | None) -> SpanAnswer:
    sums = summed(requests)
    chosen = _slowest_and_typical(sums)
    if request is not None:
        code = _trace_code(requests, request)
        numbers = np.flatnonzero(sums.requests["trace"].to_numpy() == code).tolist()
        chosen += [("asked for", number) for number in numbers]
    return SpanAnswer(
        requests=requests,
        sums=sums,
        shown=_requests_shown(requests, sums, chosen),
        operations=by_operation(sums),
        latencies=by_latency(sums),
        call_paths=by_call_path(sums),
        findings=[finding for table in requests.findings() for finding in _finding_rows(table.to_pylist())],
    )


def _slowest_and_typical(sums: Sums) -> list[tuple[str, int]]:
    """Return roles and numbers of the requests that are shown unasked."""
    chosen = sums.counted
    ordered = chosen[np.argsort(sums.latency[chosen], kind="stable")]
    if not len(ordered):
        return [("rootless", int(np.argmax(sums.latency)))]
    # Of equally slow ones the first, as where the slowest ones are kept.
    slowest_one = int(chosen[np.argmax(sums.latency[chosen])])
    return [("slowest", slowest_one), ("typical", int(ordered[(len(ordered) - 1) // 2]))]


def _changes(after: Sums, against: Sequence[Path], sync: Collection[str], held: int) -> dict[str, Any]:
    with read_parts(against, held=held) as parts:
        before = summed(RequestParts(parts, sync=sync))
    return {
        "all": difference(before, after, (before.counted, after.counted)),
        "slowest": difference(before, after, (slowest(before), slowest(after))),
    }


def _requests_shown(requests: RequestParts, sums: Sums, chosen: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return requests, by number in the sums, with their paths."""
    rows = sums.requests[[number for _, number in chosen]]
    part_requests = requests.of_traces(rows["trace"].to_list())
    numbers = numbers_of(part_requests, rows).tolist()
    return [request_facts(part_requests, number, role) for (role, _), number in zip(chosen, numbers, strict=True)]


def _finding_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = ("finding", "severity", "file", "observed", "limit", "unit", "action")
    return [{name: finding[name] for name in names if finding[name] is not None} for finding in rows]


def _trace_code(requests: RequestParts, trace: str) -> int:
    """Return the code of a trace.

    Raises
    ------
    InvalidParameterError
        If there is no such trace.
    """
    traces = requests.table.traces
    # OTLP's ids are digits of either case, kept as small ones.
    trace = trace.lower() if requests.table.format == OTLP else trace
    place = bisect_left(traces, trace)
    if place == len(traces) or traces[place] != trace or not len(requests.of_traces([place]).row):
        message = f"No trace has the id {trace!r}."
        raise InvalidParameterError(message, "Ids are compared letter by letter.", {"request": trace})
    return place


def request_facts(requests: Requests, number: int, role: str) -> dict[str, Any]:
    """Return one request with its path.

    Parameters
    ----------
    requests
        All of them.
    number
        Which one.
    role
        Why it is shown.

    Returns
    -------
    dict
        Ids, times, and `path`: parts from the root's start on, which follow each other without a gap.
    """
    root = int(requests.first[number])
    low, high = int(requests.begins[number]), int(requests.begins[number + 1])
    path, table, under_way = requests.path, requests.table, requests.under_way
    start = int(requests.spans.start[root])
    # The kernel lists a path from its end.
    section_rows = slice(low, high)
    span = path.span[section_rows][::-1]
    on_the_way = under_way[section_rows][::-1]
    owner = np.where(on_the_way, requests.spans.parent[span], span)
    begin, end = path.begin[section_rows][::-1], path.end[section_rows][::-1]
    labels = labels_of(table.operations)
    columns = zip(
        (begin - start).tolist(),
        (end - begin).tolist(),
        requests.operation[owner].tolist(),
        on_the_way.tolist(),
        table.spans["id"].gather(requests.row[owner]).to_list(),
        requests.certain[span].tolist(),
        strict=True,
    )
    sections = [
        {
            "start_ns": offset,
            "duration_ns": duration,
            "operation": labels[operation],
            "kind": "network" if moving else "own",
            "span": span_id,
            "certain": bool(certain),
        }
        for offset, duration, operation, moving, span_id, certain in columns
    ]
    latency = int(requests.latency[number])
    certain = sum(section["duration_ns"] for section in sections if section["certain"])
    return {
        "role": role,
        "trace": table.traces[int(table.spans["trace"][int(requests.row[root])])],
        "operation": labels[int(requests.operation[root])],
        "start_unix_ns": start,
        "latency_ns": latency,
        "spans": int(requests.first[number + 1]) - root,
        "certain_share": certain / latency if latency else 1.0,
        "path": sections,
    }


def path_rows(shown: dict[str, Any], top: int) -> list[dict[str, Any]]:
    """Return a request's path by operation, longest first: at most `top` rows.

    Parameters
    ----------
    shown
        A request, as `request_facts` returns it.
    top
        How many operations.

    Returns
    -------
    list of dict
        One row per operation: ``operation``, ``path_ns``, and ``certain_ns`` of it; none for a request without time.
    """
    sections = pl.DataFrame(shown["path"], schema_overrides={"duration_ns": pl.Int64})
    if not sections.height:
        return []
    sums = sections.group_by("operation").agg(
        pl.col("duration_ns").sum().alias("path_ns"),
        (pl.col("duration_ns") * pl.col("certain")).sum().alias("certain_ns"),
    )
    return sums.sort("path_ns", "operation", descending=[True, False]).head(top).to_dicts()
