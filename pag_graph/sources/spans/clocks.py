"""Clocks of hosts: what calls between them say of the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.model.enums import Severity
from pag_graph.sources.spans.table import CLIENT, SERVER
from pag_graph.store.findings import findings

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.sources.spans.table import SpanTable

    I64 = NDArray[np.int64]

_BUCKET_NS = 600 * 1_000_000_000
"""Clocks are taken to run evenly for ten minutes."""


class Shifts(NamedTuple):
    """What is done about clocks; one element per span."""

    shift: NDArray[np.int64]
    """Added to a span's times beyond what is added to its parent's."""
    uncertainty: NDArray[np.int64]
    """How far that may be off."""
    findings: list[pa.Table]
    """One per pair of clocks and ten minutes that is moved, and one for those that cannot be compared."""


class Columns(NamedTuple):
    """Spans as recorded."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    kind: NDArray[np.int64]
    process: NDArray[np.int64]
    parent: NDArray[np.int64]


def shifts(table: SpanTable, spans: Columns) -> Shifts:
    """Estimate how the clocks of hosts differ, from calls between them.

    Parameters
    ----------
    table
        The spans' processes.
    spans
        One element per span.

    Returns
    -------
    Shifts
        Zeros where clocks may well agree.

    Notes
    -----
    A server's span lies within its client's: each such pair bounds the difference of two clocks. Taken is what most
    of these intervals contain: 0 if it is among it, else its middle; half its width is the uncertainty. Between clocks
    that never called each other (one left messages for the other, say) it is what calls over others give.
    """
    labels = sorted({process.clock for process in table.processes})
    number = {label: code for code, label in enumerate(labels)}
    clock_of = np.array([number[process.clock] for process in table.processes], np.int64)
    rows = len(spans.start)
    shift, uncertainty = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    child = np.flatnonzero(spans.parent >= 0)
    above = spans.parent[child]
    mine, theirs = clock_of[spans.process[child]], clock_of[spans.process[above]]
    child, above = child[mine != theirs], above[mine != theirs]
    if not len(child):
        return Shifts(shift, uncertainty, [])
    mine, theirs = clock_of[spans.process[child]], clock_of[spans.process[above]]
    pair = np.minimum(mine, theirs) * len(labels) + np.maximum(mine, theirs)
    group = np.stack([pair, spans.start[above] // _BUCKET_NS])
    keys, which = np.unique(group, axis=1, return_inverse=True)
    which = which.reshape(-1)
    sign = np.where(mine > theirs, 1, -1)
    low, high = spans.end[child] - spans.end[above], spans.start[child] - spans.start[above]
    call = (spans.kind[child] == SERVER) & (spans.kind[above] == CLIENT) & (low <= high)
    bounds = np.where(sign > 0, low, -high), np.where(sign > 0, high, -low)
    order = np.flatnonzero(call)[np.argsort(which[call], kind="stable")]
    groups = which[order]
    known: dict[tuple[int, int], tuple[int, int]] = {}
    for begin, end in zip(*_runs(groups), strict=True):
        calls, number_of = order[begin:end], int(groups[begin])
        known[int(keys[0, number_of]), int(keys[1, number_of])] = most_common(bounds[0][calls], bounds[1][calls])
    found = []
    unbounded = 0
    offsets, widths = np.zeros(keys.shape[1], np.int64), np.zeros(keys.shape[1], np.int64)
    for number_of, (code, bucket) in enumerate(keys.T.tolist()):
        one, other = divmod(code, len(labels))
        bound = known.get((code, bucket)) or _over_others(known, (one, other), bucket, len(labels))
        if bound is None:
            unbounded += 1
            continue
        offset, half = bound
        if offset:
            offsets[number_of], widths[number_of] = offset, half
            action = f"{labels[other]} was moved against {labels[one]} by minus `observed`, off by at most `limit`"
            found.append(findings("clock_estimated", Severity.INFO, action, observed=offset, limit=half, unit="ns"))
    if unbounded:
        action = "not moved: no call says how far these clocks are apart"
        found.append(findings("clock_not_bounded", Severity.INFO, action, observed=unbounded, unit="pairs of clocks"))
    shift[child] = -sign * offsets[which]
    uncertainty[child] = widths[which]
    return Shifts(shift, uncertainty, found)


def _over_others(
    known: dict[tuple[int, int], tuple[int, int]], pair: tuple[int, int], bucket: int, clocks: int
) -> tuple[int, int] | None:
    """Return difference and uncertainty of clocks between which nobody called, over as few others as possible."""
    begin, goal = pair
    reached = {begin: (0, 0)}
    queue = [begin]
    for clock in queue:
        if clock == goal:
            break
        for other in range(clocks):
            bound = known.get((min(clock, other) * clocks + max(clock, other), bucket))
            if bound is not None and other not in reached:
                offset, half = reached[clock]
                reached[other] = offset + bound[0] * (1 if clock < other else -1), half + bound[1]
                queue.append(other)
    return reached.get(goal)


def _runs(values: I64) -> tuple[list[int], list[int]]:
    begins = np.flatnonzero(np.diff(values, prepend=-1))
    return begins.tolist(), np.append(begins[1:], len(values))[: len(begins)].tolist()


def most_common(low: I64, high: I64) -> tuple[int, int]:
    """Return the middle of what most intervals contain, and half its width; 0 if that is among it.

    Parameters
    ----------
    low, high
        Bounds of the intervals, both inside.

    Examples
    --------
    >>> most_common(np.array([3, 5]), np.array([9, 20])), most_common(np.array([-1, 5]), np.array([9, 20]))
    ((7, 2), (7, 2))
    >>> most_common(np.array([-1, -2]), np.array([9, 20]))
    (0, 0)
    """
    times = np.concatenate([low, high])
    steps = np.concatenate([np.ones(len(low), np.int64), np.full(len(high), -1)])
    order = np.lexsort((-steps, times))
    inside = np.cumsum(steps[order])
    most = inside.max()
    if int(((low <= 0) & (high >= 0)).sum()) == most:
        return 0, 0
    first = int(np.argmax(inside))
    begin, end = int(times[order[first]]), int(times[order[first + 1]])
    return (begin + end) // 2, (end - begin + 1) // 2
