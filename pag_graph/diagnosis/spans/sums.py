"""What stays of requests when their spans go: latencies, paths by operation, own times and call paths.

Definitions stand in `docs/spans.md`, "Sums".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.sources.spans.request_parts import REQUEST_ORDER, request_rows
from pag_graph.sources.spans.table import labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from pag_graph.sources.spans.requests import Requests
    from pag_graph.sources.spans.table import Operation

    I64 = NDArray[np.int64]


_FEW = 16
"""Fewer spans of one depth than this are numbered one by one: a column takes longer to be begun."""


class CallPath(NamedTuple):
    """An operation below others, from a root down."""

    depth: int
    above: int
    """Number of the call path of the caller, or -1."""
    operation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Requests without their spans: about 40 bytes per span."""

    requests: pl.DataFrame
    """One row per request, by start, trace and order in the trace: `trace`, `in_trace` (its number there), `orphan`,
    `latency` in ns, `size` in spans."""
    paths: pl.DataFrame
    """One row per (row of `requests`, operation) of requests that have their root: `request`, `operation`, `path_ns`,
    of it `network_ns` (calls and returns under way, which count for the caller) and `certain_ns`."""
    own: pl.DataFrame
    """One row per span of these requests: `operation`, `own_ns`."""
    call_paths: list[CallPath]
    """Each behind that of its caller."""
    calls: I64
    """Per call path; as are `own_ns` and `path_ns`."""
    own_ns: I64
    path_ns: I64
    operations: list[Operation]
    """By their codes."""
    labels: list[str]
    """Per operation."""
    traces: int
    """How many there are."""

    @property
    def counted(self) -> I64:
        """The requests that sums are about: those whose root is one."""
        return np.flatnonzero(~self.requests["orphan"].to_numpy())

    @property
    def latency(self) -> I64:
        """Per request the root's duration."""
        return self.requests["latency"].to_numpy()


class _Tree:
    """Call paths of several parts."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], int] = {}
        self.made: list[CallPath] = []
        self.sums = np.zeros((3, 0), np.int64)

    def add(self, requests: Requests, spans: I64) -> None:
        """Take in spans of requests that have their roots."""
        parent, depth, operation = requests.spans.parent, requests.depth, requests.operation
        on_path = np.zeros(len(parent), np.int64)
        np.add.at(on_path, requests.path_owner, requests.path.end - requests.path.begin)
        place = np.full(len(parent), -1, np.int64)
        by_depth = spans[np.argsort(depth[spans], kind="stable")]
        for level in np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1):
            if len(level) < _FEW:
                for span in level.tolist():
                    outer = int(place[parent[span]]) if parent[span] >= 0 else -1
                    place[span] = self._number(int(depth[span]), outer, int(operation[span]))
                continue
            above = np.where(parent[level] >= 0, place[parent[level]], -1)
            # One number per pair is several times as fast to tell apart as two.
            codes = (above + 1) * len(requests.table.operations) + operation[level]
            keys, inverse = np.unique(codes, return_inverse=True)
            pairs = np.stack(np.divmod(keys, len(requests.table.operations)), axis=1) - [1, 0]
            numbers = [self._number(int(depth[level[0]]), *pair) for pair in pairs.tolist()]
            place[level] = np.array(numbers, np.int64)[inverse]
        sums = np.zeros((3, len(self.made)), np.int64)
        sums[:, : self.sums.shape[1]] = self.sums
        for place_of_sum, amounts in enumerate((np.ones(len(parent), np.int64), requests.own, on_path)):
            np.add.at(sums[place_of_sum], place[spans], amounts[spans])
        self.sums = sums

    def _number(self, depth: int, above: int, operation: int) -> int:
        number = self.known.setdefault((above, operation), len(self.made))
        if number == len(self.made):
            self.made.append(CallPath(depth, above, operation))
        return number


def summed(parts: Iterable[Requests]) -> Sums:
    """Return what stays of requests.

    Parameters
    ----------
    parts
        Requests of whole traces, each trace in one part; one part at least.

    Notes
    -----
    What it says does not depend on which traces are in which part. Linear, except for sorting.
    """
    requests, paths, owns, tree = [], [], [], _Tree()
    before = 0
    operations: list[Operation] = []
    for part_requests in parts:
        operations = operations or list(part_requests.table.operations)
        requests.append(request_rows(part_requests))
        paths.append(_path_rows(part_requests, before))
        spans = np.flatnonzero(~part_requests.orphan[part_requests.request])
        own_rows = {"operation": part_requests.operation[spans], "own_ns": part_requests.own[spans]}
        owns.append(pl.DataFrame(own_rows, schema={"operation": pl.Int32, "own_ns": pl.Int64}))
        tree.add(part_requests, spans)
        before += part_requests.count
    rows = pl.concat(requests).with_row_index("number").sort(*REQUEST_ORDER)
    place = np.empty(rows.height, np.int64)
    place[rows["number"].to_numpy()] = np.arange(rows.height)
    by_request = pl.concat(paths)
    places = pl.Series(place[by_request["request"].to_numpy()], dtype=pl.UInt32)
    return Sums(
        requests=rows.drop("start", "number"),
        paths=by_request.with_columns(request=places).sort("request", "operation"),
        own=pl.concat(owns),
        call_paths=tree.made,
        calls=tree.sums[0],
        own_ns=tree.sums[1],
        path_ns=tree.sums[2],
        operations=operations,
        labels=labels_of(operations),
        traces=rows["trace"].n_unique(),
    )


def _path_rows(part_requests: Requests, before: int) -> pl.DataFrame:
    """Return the parts of paths, summed by request and operation; requests are numbered from `before` on."""
    path = part_requests.path
    number = np.repeat(np.arange(part_requests.count), np.diff(part_requests.begins))
    message, owner = part_requests.under_way, part_requests.path_owner
    length = path.end - path.begin
    keep = ~part_requests.orphan[number]
    rows = pl.DataFrame(
        {
            "request": pl.Series((before + number)[keep], dtype=pl.UInt32),
            "operation": pl.Series(part_requests.operation[owner][keep], dtype=pl.Int32),
            "path_ns": length[keep],
            "network_ns": np.where(message, length, 0)[keep],
            "certain_ns": np.where(part_requests.certain[path.span], length, 0)[keep],
        }
    )
    return rows.group_by("request", "operation").sum()
