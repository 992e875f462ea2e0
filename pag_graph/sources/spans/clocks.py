"""Clocks of hosts: what calls between them say of the difference.

Definitions stand in `docs/spans.md`, "Clocks".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.model.enums import Severity
from pag_graph.sources.spans.table import CLIENT, SERVER
from pag_graph.store.findings import findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.sources.spans.table import SpanTable

    I64 = NDArray[np.int64]

_BUCKET_NS = 600 * 1_000_000_000
"""Clocks are taken to run evenly for ten minutes."""


class Columns(NamedTuple):
    """Spans as recorded, one element each: times in nanoseconds since 1970, place of the parent or -1."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    kind: NDArray[np.int64]
    process: NDArray[np.int64]
    parent: NDArray[np.int64]


class Calls(NamedTuple):
    """What some spans say of clocks: one element per child whose clock is another one than its parent's."""

    pair: NDArray[np.int64]
    """The two clocks: lower number x count of clocks + higher number."""
    bucket: NDArray[np.int64]
    """Which ten minutes."""
    low: NDArray[np.int64]
    """Least difference of the clocks, the lower one's against the other; more than `high` where it says nothing."""
    high: NDArray[np.int64]


class Clocks(NamedTuple):
    """How clocks differ, by pair and ten minutes; offsets and what they may be wrong by are nanoseconds."""

    pairs: NDArray[np.int64]
    """Pairs x ten minutes, ascending, a row each."""
    offset: NDArray[np.int64]
    uncertainty: NDArray[np.int64]
    findings: list[pa.Table]
    """One per pair of clocks and ten minutes that is moved, and one for those that cannot be compared."""


class _Crossing(NamedTuple):
    """Children whose clock is another one than their parents'."""

    child: NDArray[np.int64]
    sign: NDArray[np.int64]
    pair: NDArray[np.int64]
    bucket: NDArray[np.int64]


def _labels(table: SpanTable) -> list[str]:
    return sorted({process.clock for process in table.processes})


def _crossing(table: SpanTable, spans: Columns) -> _Crossing:
    labels = _labels(table)
    number = {label: code for code, label in enumerate(labels)}
    clock_of = np.array([number[process.clock] for process in table.processes], np.int64)
    child = np.flatnonzero(spans.parent >= 0)
    above = spans.parent[child]
    child_clock, parent_clock = clock_of[spans.process[child]], clock_of[spans.process[above]]
    differs = child_clock != parent_clock
    child, above, child_clock, parent_clock = (
        child[differs],
        above[differs],
        child_clock[differs],
        parent_clock[differs],
    )
    pair = np.minimum(child_clock, parent_clock) * len(labels) + np.maximum(child_clock, parent_clock)
    return _Crossing(child, np.where(child_clock > parent_clock, 1, -1), pair, spans.start[above] // _BUCKET_NS)


def calls_between(table: SpanTable, spans: Columns) -> Calls:
    """Return what spans say of clocks.

    Parameters
    ----------
    table
        The spans' processes.
    spans
        One element per span.
    """
    child, sign, pair, bucket = _crossing(table, spans)
    above = spans.parent[child]
    low, high = spans.end[child] - spans.end[above], spans.start[child] - spans.start[above]
    bounds = np.where(sign > 0, low, -high), np.where(sign > 0, high, -low)
    call = (spans.kind[child] == SERVER) & (spans.kind[above] == CLIENT)
    return Calls(pair, bucket, np.where(call, bounds[0], 1), np.where(call, bounds[1], 0))


def compare_clocks(table: SpanTable, parts: Sequence[Calls]) -> Clocks:
    """Estimate how the clocks of hosts differ, from calls between them.

    Parameters
    ----------
    table
        The spans' processes.
    parts
        What all spans say.

    Returns
    -------
    Clocks
        Offsets of 0 where clocks may well agree.

    Notes
    -----
    A server's span lies within its client's: each such pair bounds the difference of two clocks. Taken is what most
    of these intervals contain: 0 if it is among it, else its middle; half its width is the uncertainty. Between clocks
    that never called each other (one left messages for the other, say) it is what calls over others give.
    """
    labels = _labels(table)
    calls = Calls(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    keys, group_of = np.unique(np.stack([calls.pair, calls.bucket]), axis=1, return_inverse=True)
    group_of = group_of.reshape(-1)
    bounding = np.flatnonzero(calls.low <= calls.high)
    order = bounding[np.argsort(group_of[bounding], kind="stable")]
    groups = group_of[order]
    bounds: dict[tuple[int, int], tuple[int, int]] = {}
    for begin, end in zip(*_runs(groups), strict=True):
        rows, number_of = order[begin:end], int(groups[begin])
        bounds[int(keys[0, number_of]), int(keys[1, number_of])] = most_common(calls.low[rows], calls.high[rows])
    tables = []
    unbounded = 0
    offsets, widths = np.zeros(keys.shape[1], np.int64), np.zeros(keys.shape[1], np.int64)
    for number_of, (code, bucket) in enumerate(keys.T.tolist()):
        low_clock, high_clock = divmod(code, len(labels))
        bound = bounds.get((code, bucket)) or _over_others(bounds, (low_clock, high_clock), bucket, len(labels))
        if bound is None:
            unbounded += 1
            continue
        offset, half = bound
        if offset:
            offsets[number_of], widths[number_of] = offset, half
            moved_clock, still_clock = labels[high_clock], labels[low_clock]
            action = f"{moved_clock} was moved against {still_clock} by minus `observed`, off by at most `limit`"
            tables.append(findings("clock_estimated", Severity.INFO, action, observed=offset, limit=half, unit="ns"))
    if unbounded:
        action = "not moved: no call says how far these clocks are apart"
        tables.append(findings("clock_not_bounded", Severity.INFO, action, observed=unbounded, unit="pairs of clocks"))
    return Clocks(keys.T, offsets, widths, tables)


def shifts(table: SpanTable, spans: Columns, clocks: Clocks) -> tuple[I64, I64]:
    """Return what is to be done about clocks.

    Parameters
    ----------
    table
        The spans' processes.
    spans
        One element per span.
    clocks
        What is known of the clocks of all spans, these among them.

    Returns
    -------
    shift : array of int64
        Per span what is added to its times beyond what is added to its parent's.
    uncertainty : array of int64
        How far that may be off.
    """
    shift, uncertainty = np.zeros(len(spans.start), np.int64), np.zeros(len(spans.start), np.int64)
    child, sign, pair, bucket = _crossing(table, spans)
    if len(child):
        place = {(code, bucket_of_pair): number for number, (code, bucket_of_pair) in enumerate(clocks.pairs.tolist())}
        keys, key_of = np.unique(np.stack([pair, bucket]), axis=1, return_inverse=True)
        pair_of_child = np.array([place[code, bucket_of_pair] for code, bucket_of_pair in keys.T.tolist()], np.int64)[
            key_of.reshape(-1)
        ]
        shift[child], uncertainty[child] = -sign * clocks.offset[pair_of_child], clocks.uncertainty[pair_of_child]
    return shift, uncertainty


def _over_others(
    bounds: dict[tuple[int, int], tuple[int, int]], pair: tuple[int, int], bucket: int, clocks: int
) -> tuple[int, int] | None:
    """Return difference and uncertainty of clocks between which nobody called, over as few others as possible."""
    begin, goal = pair
    reached = {begin: (0, 0)}
    queue = [begin]
    for clock in queue:
        if clock == goal:
            break
        for neighbour in range(clocks):
            bound = bounds.get((min(clock, neighbour) * clocks + max(clock, neighbour), bucket))
            if bound is not None and neighbour not in reached:
                offset, half = reached[clock]
                reached[neighbour] = offset + bound[0] * (1 if clock < neighbour else -1), half + bound[1]
                queue.append(neighbour)
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
    deepest = inside.max()
    if int(((low <= 0) & (high >= 0)).sum()) == deepest:
        return 0, 0
    deepest_place = int(np.argmax(inside))
    begin, end = int(times[order[deepest_place]]), int(times[order[deepest_place + 1]])
    return (begin + end) // 2, (end - begin + 1) // 2
