"""Edges of many windows side by side, each window's in the order that analyses walk them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.kernels.activations import I64

    Bools = NDArray[np.bool_]
    F64 = NDArray[np.float64]

_MANY = 64
"""Fewer numbers are sorted fastest by insertion."""


@numba.njit(cache=True)
def spread(first: I64, last: I64) -> tuple[I64, I64]:
    """List every edge once per window that it belongs to.

    Parameters
    ----------
    first, last
        Per edge: the first and the last of its windows; it has none where `last` is lower.

    Returns
    -------
    edge, window
        One entry per edge and window, in the order of the edges. O(entries).
    """
    count = 0
    for edge in range(first.shape[0]):
        count += max(last[edge] - first[edge] + 1, 0)
    edges, windows = np.empty(count, np.int64), np.empty(count, np.int64)
    at = 0
    for edge in range(first.shape[0]):
        for window in range(first[edge], last[edge] + 1):
            edges[at], windows[at] = edge, window
            at += 1
    return edges, windows


@numba.njit(cache=True)
def arrange(window: I64, windows: int, dst: I64, message: Bools, src: I64) -> tuple[I64, I64]:
    """Order edges by window, `dst`, local ones first, and `src`.

    Parameters
    ----------
    window
        Per edge: its window; those with a negative one are left out.
    windows
        How many there are.
    dst, message, src
        Per edge: where it ends, whether it is a message, and where it starts.

    Returns
    -------
    first
        Shape (windows + 1,): where each window begins in the order.
    order
        The edges.

    Notes
    -----
    A counting sort by window, then a look whether the order within it is right already, as it is in a store that was
    built from one slice; O(edges) then, O(edges log edges) at worst.
    """
    first = np.zeros(windows + 1, np.int64)
    for edge in range(window.shape[0]):
        if window[edge] >= 0:
            first[window[edge] + 1] += 1
    for at in range(windows):
        first[at + 1] += first[at]
    order = np.empty(first[windows], np.int64)
    filled = first[:-1].copy()
    for edge in range(window.shape[0]):
        if window[edge] >= 0:
            order[filled[window[edge]]] = edge
            filled[window[edge]] += 1
    for at in range(windows):
        begin, end = first[at], first[at + 1]
        ordered = True
        for place in range(begin + 1, end):
            if _before(order[place], order[place - 1], dst, message, src):
                ordered = False
                break
        if not ordered:
            # Three stable sorts, the least important key first.
            part = order[begin:end].copy()
            part = part[np.argsort(src[part], kind="mergesort")]
            part = part[np.argsort(message[part].astype(np.int8), kind="mergesort")]
            order[begin:end] = part[np.argsort(dst[part], kind="mergesort")]
    return first, order


@numba.njit(cache=True)
def _before(a: int, b: int, dst: I64, message: Bools, src: I64) -> bool:
    """Say whether edge a comes before edge b."""
    if dst[a] != dst[b]:
        return bool(dst[a] < dst[b])
    if message[a] != message[b]:
        return bool(message[b])
    return bool(src[a] < src[b])


@numba.njit(cache=True)
def largest(group: I64, groups: int, value: I64, src: I64, dst: I64) -> I64:
    """Return per group the row with the largest value; of equal ones that with the lowest `src`, then `dst`.

    Parameters
    ----------
    group
        Per row, from 0; every group has a row.
    groups
        How many there are.
    value, src, dst
        Per row.

    Returns
    -------
    rows
        Per group. O(rows).
    """
    best = np.full(groups, -1, np.int64)
    for row in range(group.shape[0]):
        other = best[group[row]]
        if (
            other < 0
            or value[row] > value[other]
            or (
                value[row] == value[other]
                and (src[row] < src[other] or (src[row] == src[other] and dst[row] < dst[other]))
            )
        ):
            best[group[row]] = row
    return best


@numba.njit(cache=True)
def medians(first: I64, value: I64, at_least: int, over: int) -> tuple[F64, F64]:
    """Return the median of the values before each one, and the median of their distances from it (MAD).

    Parameters
    ----------
    first
        Shape (groups + 1,): where the values of each group begin.
    value
        The values, in the order of time within their group.
    at_least
        How many earlier ones there must be.
    over
        How many of them are looked at, the latest ones.

    Returns
    -------
    median, mad
        Per value; NaN where there are too few before it. O(values x over log over).
    """
    median, mad = np.full(value.shape[0], np.nan), np.full(value.shape[0], np.nan)
    ordered = np.empty(over, np.float64)
    for group in range(first.shape[0] - 1):
        for at in range(first[group] + max(at_least, 1), first[group + 1]):
            begin = max(first[group], at - over)
            for place in range(begin, at):
                ordered[place - begin] = value[place]
            median[at] = _median(ordered[: at - begin])
            for place in range(at - begin):
                ordered[place] = abs(ordered[place] - median[at])
            mad[at] = _median(ordered[: at - begin])
    return median, mad


@numba.njit(cache=True)
def _median(values: F64) -> float:
    """Sort the values, and return the one in the middle, or the mean of the two there."""
    if values.shape[0] > _MANY:
        values.sort()
    else:
        for at in range(1, values.shape[0]):
            value, place = values[at], at
            while place > 0 and values[place - 1] > value:
                values[place] = values[place - 1]
                place -= 1
            values[place] = value
    half = values.shape[0] // 2
    if values.shape[0] % 2:
        return float(values[half])
    return float((values[half - 1] + values[half]) / 2)


@numba.njit(cache=True)
def project(
    first: I64, src: I64, dst: I64, start: I64, end: I64, arrives: Bools, begins: I64, finishes: I64
) -> tuple[I64, I64, I64, I64, I64]:
    """Give numbers to the vertices of many windows, one window's after the other's.

    Parameters
    ----------
    first
        Shape (windows + 1,): where the edges of each window begin.
    src, dst, start, end
        Per edge, sorted by `dst` within its window.
    arrives
        Per edge: whether a vertex happens when it ends: it is local, or a birth. There is one into every vertex, but
        into those at the window's start.
    begins, finishes
        Per window.

    Returns
    -------
    vertex_first
        Shape (windows + 1,): where the vertices of each window begin. The first two are cuts: where edges begin that
        the start cuts, and where those end that the end cuts; the others are sorted by id.
    ids, t
        Per vertex; the ids of cuts are -1 and -2.
    source, target
        Per edge: its vertices, -1 where there is none of that id.

    Notes
    -----
    O(edges log edges); mostly the vertex that is looked for is the one right before.
    """
    windows = first.shape[0] - 1
    room = first[windows] + 2 * windows + 16
    ids, t = np.empty(room, np.int64), np.empty(room, np.int64)
    vertex_first = np.zeros(windows + 1, np.int64)
    source, target = np.full(first[windows], -1, np.int64), np.full(first[windows], -1, np.int64)
    count = 0
    for window in range(windows):
        low, high = first[window], first[window + 1]
        begin, finish = begins[window], finishes[window]
        vertex_first[window] = count
        # Where nothing of the window leads to: vertices at its start.
        early = np.empty(2 * (high - low), np.int64)
        found = 0
        for edge in range(low, high):
            if start[edge] == begin:
                early[found] = src[edge]
                found += 1
            if end[edge] == begin:
                early[found] = dst[edge]
                found += 1
        early = np.sort(early[:found])
        if count + 2 + (high - low) + found > ids.shape[0]:
            more = 2 * ids.shape[0] + found
            grown_ids, grown_t = np.empty(more, np.int64), np.empty(more, np.int64)
            grown_ids[:count], grown_t[:count] = ids[:count], t[:count]
            ids, t = grown_ids, grown_t
        ids[count], t[count], ids[count + 1], t[count + 1] = -1, begin, -2, finish
        vertex = count + 2
        at = 0
        for edge in range(low, high + 1):
            last = edge == high
            if not last and not (arrives[edge] and begin <= end[edge] <= finish):
                continue
            while at < found and (last or early[at] < dst[edge]):
                if vertex == count + 2 or ids[vertex - 1] != early[at]:
                    ids[vertex], t[vertex] = early[at], begin
                    vertex += 1
                at += 1
            if not last:
                ids[vertex], t[vertex] = dst[edge], end[edge]
                vertex += 1
        known = ids[count + 2 : vertex]
        near = 0
        for edge in range(low, high):
            if not begin <= end[edge] <= finish:
                target[edge] = count + 1
            else:
                near = _place(known, dst[edge], near)
                if near < known.shape[0] and known[near] == dst[edge]:
                    target[edge] = count + 2 + near
            if not begin <= start[edge] <= finish:
                source[edge] = count
            else:
                place = _place(known, src[edge], near - 1)
                if place < known.shape[0] and known[place] == src[edge]:
                    source[edge] = count + 2 + place
        count = vertex
    vertex_first[windows] = count
    return vertex_first, ids[:count], t[:count], source, target


@numba.njit(cache=True)
def _place(known: I64, wanted: int, near: int) -> int:
    """Return where a number would be in a sorted list; it is looked for near a place first."""
    for place in range(max(near, 0), min(near + 2, known.shape[0])):
        if known[place] == wanted:
            return place
    return int(np.searchsorted(known, wanted))


@numba.njit(cache=True)
def with_any(window: I64, dst: I64, marked: Bools) -> Bools:
    """Say per edge whether any edge of its window into the same vertex is marked; edges are sorted by both."""
    result = np.zeros(dst.shape[0], np.bool_)
    edge = 0
    while edge < dst.shape[0]:
        until, found = edge, False
        while until < dst.shape[0] and dst[until] == dst[edge] and window[until] == window[edge]:
            found |= marked[until]
            until += 1
        result[edge:until] = found
        edge = until
    return result
