"""What spans say: the slowest and the typical request, sums by operation, and differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.diagnosis.spans.aggregates import (
    by_call_path,
    by_latency,
    by_operation,
    counted,
    difference,
    slowest,
)
from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.sources.spans.convert import convertible
from pag_graph.sources.spans.files import read_spans
from pag_graph.sources.spans.requests import requests as make_requests

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pag_graph.sources.spans.requests import Requests

    I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanAnswer:
    """Why requests took as long as they did."""

    requests: Requests
    chosen: I64
    """Requests that sums are about."""
    shown: list[dict[str, Any]]
    """Requests with their paths: `role` is slowest, typical or asked for."""
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
        table, latency = self.requests.table, self.requests.latency[self.chosen]
        return {
            "format": table.format,
            "policy": "pag",
            "spans": table.rows,
            "traces": len(table.spans["trace"].unique()),
            "requests": len(self.chosen),
            "left_out_requests": self.requests.count - len(self.chosen),
            "dropped": table.dropped,
            "latency_ns": int(latency.sum()),
            "certain_ns": sum(row["certain_ns"] for row in self.operations),
            "shown": self.shown,
            "operations": self.operations,
            "latency_classes": self.latencies,
            "call_paths": self.call_paths,
            "changes": self.changes,
            "findings": self.findings,
        }


def answer(
    sources: Sequence[Path],
    *,
    sync: Collection[str] = (),
    request: str | None = None,
    against: Sequence[Path] = (),
) -> SpanAnswer:
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

    Returns
    -------
    SpanAnswer
        Under the policy `pag`.

    Raises
    ------
    TraceFormatError
        If there are no spans, or no request with its root.
    InvalidParameterError
        If there is no such trace.
    """
    made = make_requests(read_spans(sources), sync=sync)
    chosen = counted(made)
    if not len(chosen):
        message = "No request has its root: all spans are below spans that are not there."
        raise TraceFormatError(message, "Give the files with the roots as well.", {"spans": made.table.rows})
    shown = []
    ordered = chosen[np.argsort(made.latency[chosen], kind="stable")]
    shown.append(request_facts(made, int(ordered[-1]), "slowest"))
    shown.append(request_facts(made, int(ordered[(len(ordered) - 1) // 2]), "typical"))
    if request is not None:
        shown += [request_facts(made, number, "asked for") for number in of_trace(made, request).tolist()]
    changes: dict[str, Any] = {}
    if against:
        before = make_requests(read_spans(against), sync=sync)
        own = counted(before)
        changes["all"] = difference(before, made, (own, chosen))
        changes["slowest"] = difference(before, made, (slowest(before, own), slowest(made, chosen)))
    return SpanAnswer(
        requests=made,
        chosen=chosen,
        shown=shown,
        operations=by_operation(made, chosen),
        latencies=by_latency(made, chosen),
        call_paths=by_call_path(made, chosen),
        findings=[row for found in made.findings for row in _told(found.to_pylist())],
        changes=changes,
    )


def _told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = ("finding", "severity", "file", "observed", "limit", "unit", "action")
    return [{name: row[name] for name in names if row[name] is not None} for row in rows]


def of_trace(requests: Requests, trace: str) -> I64:
    """Return the requests of a trace.

    Raises
    ------
    InvalidParameterError
        If there is no such trace.
    """
    traces = requests.table.traces
    code = traces.index(trace) if trace in traces else -1
    roots = requests.first[:-1]
    found = np.flatnonzero(requests.table.spans["trace"].to_numpy()[requests.row[roots]] == code)
    if not len(found):
        message = f"No trace has the id {trace!r}."
        raise InvalidParameterError(message, "Ids are compared letter by letter.", {"request": trace})
    return found


def slowest_of(requests: Requests, count: int) -> I64:
    """Return the slowest requests that can be converted, in order."""
    able = convertible(requests)
    return np.sort(able[np.argsort(-requests.latency[able], kind="stable")[:count]])


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
    parts: list[dict[str, Any]] = []
    for place in range(high - 1, low - 1, -1):
        span = int(path.span[place])
        owner = int(requests.spans.parent[span]) if under_way[place] else span
        parts.append(
            {
                "start_ns": int(path.begin[place]) - start,
                "duration_ns": int(path.end[place] - path.begin[place]),
                "operation": table.operations[int(requests.operation[owner])].label,
                "kind": "network" if under_way[place] else "own",
                "span": str(table.spans["id"][int(requests.row[owner])]),
                "certain": bool(requests.certain[span]),
            }
        )
    latency = int(requests.latency[number])
    certain = sum(part["duration_ns"] for part in parts if part["certain"])
    return {
        "role": role,
        "trace": table.traces[int(table.spans["trace"][int(requests.row[root])])],
        "operation": table.operations[int(requests.operation[root])].label,
        "start_unix_ns": start,
        "latency_ns": latency,
        "spans": int(requests.first[number + 1]) - root,
        "certain_share": certain / latency if latency else 1.0,
        "path": parts,
    }


def path_rows(shown: dict[str, Any], top: int) -> list[dict[str, Any]]:
    """Return a request's path by operation, longest first."""
    parts = pl.DataFrame(shown["path"], schema_overrides={"duration_ns": pl.Int64})
    if not parts.height:
        return []
    sums = parts.group_by("operation").agg(
        pl.col("duration_ns").sum().alias("path_ns"),
        (pl.col("duration_ns") * pl.col("certain")).sum().alias("certain_ns"),
    )
    return sums.sort("path_ns", "operation", descending=[True, False]).head(top).to_dicts()
