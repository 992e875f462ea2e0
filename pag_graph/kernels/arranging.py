"""Edges of many windows side by side, each window's in the order that analyses walk them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.replay import group_arcs
from pag_graph.kernels.search import not_below, sort

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64

Bools = NDArray[np.bool_]
F64 = NDArray[np.float64]


class Edges(NamedTuple):
    """Edges of windows, sorted by `dst` within each."""

    first: I64
    """Shape (windows + 1,): where the edges of each window begin."""
    src: I64
    """Id of the vertex where an edge begins, and so on: one element per edge and window."""
    dst: I64
    start: I64
    """Nanoseconds since the run's origin, not cut at the window; so is `end`."""
    end: I64
    arrives: Bools
    """Whether a vertex happens when the edge ends: it is local, or a birth. There is one into every vertex, but into
    those at the window's start."""


class Vertices(NamedTuple):
    """Vertices of windows, and those of their edges; `project` says more."""

    first: I64
    """Shape (windows + 1,): where the vertices of each window begin."""
    ids: I64
    """Per vertex: its id; -1 and -2 for the cuts at a window's start and end."""
    t: I64
    """Per vertex: nanoseconds since the run's origin."""
    source: I64
    """Per edge: the place in `ids` where it begins, or -1."""
    target: I64
    """Per edge: the place where it ends, or -1."""


@kernel
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

    Examples
    --------
    >>> spread(np.array([0, 3]), np.array([1, 3]))
    (array([0, 0, 1]), array([0, 1, 3]))
    """
    count = 0
    for edge in range(first.shape[0]):
        count += max(last[edge] - first[edge] + 1, 0)
    edges, windows = np.empty(count, np.int64), np.empty(count, np.int64)
    entry = 0
    for edge in range(first.shape[0]):
        for window in range(first[edge], last[edge] + 1):
            edges[entry], windows[entry] = edge, window
            entry += 1
    return edges, windows


def arrange(window: I64, windows: int, keys: I64) -> tuple[I64, I64]:
    """Order edges by window, and in each as `sort_within` does.

    Parameters
    ----------
    window
        Per edge: its window; those with a negative one are left out.
    windows
        How many there are.
    keys
        Per edge.

    Returns
    -------
    first
        Shape (windows + 1,): where each window begins in the order.
    order
        The edges.

    Notes
    -----
    A counting sort by window. O(edges log runs) with it: the edges of a slice lie in a store as analyses walk them, by
    `dst`, local ones first, and `src`, so that a window has one or a few runs.

    Examples
    --------
    >>> arrange(np.array([1, 0, 0]), 2, np.array([[5], [7], [3]]))
    (array([0, 2, 3]), array([2, 1, 0]))
    """
    first, order = group_arcs(window, windows)
    sort_within(first, order, keys)
    return first, order


@kernel
def sort_within(first: I64, order: I64, keys: I64) -> None:
    """Sort the rows of each window, in place.

    Parameters
    ----------
    first
        Shape (windows + 1,): where each window begins in the order.
    order
        The rows.
    keys
        Per row, the most important one first; the smallest come first. Equal rows stay as they are.

    Notes
    -----
    Runs that are in order already are merged: O(rows log runs).

    Examples
    --------
    >>> order = np.array([0, 1, 2])
    >>> sort_within(np.array([0, 3]), order, np.array([[5, 1], [3, 2], [3, 1]]))
    >>> order
    array([2, 1, 0])
    """
    longest = 0
    for window in range(first.shape[0] - 1):
        longest = max(longest, first[window + 1] - first[window])
    spare, bounds = np.empty(longest, np.int64), np.empty(longest + 1, np.int64)
    for window in range(first.shape[0] - 1):
        part = order[first[window] : first[window + 1]]
        # An integer of any value: numba compiles what gets a 0 once more for the constant.
        runs: Any = np.int64(0)
        for place in range(part.shape[0]):
            if place == 0 or _precedes(part[place], part[place - 1], keys):
                bounds[runs] = place
                runs += 1
        bounds[runs] = part.shape[0]
        while runs > 1:
            runs = _merge_neighbours(part, spare, bounds, runs, keys)


@kernel
def _merge_neighbours(part: I64, spare: I64, bounds: I64, runs: int, keys: I64) -> int:
    """Merge every two runs of edges, the first with the second and so on, and return how many there are then."""
    for run in range(0, runs - 1, 2):
        begin, middle, end = bounds[run], bounds[run + 1], bounds[run + 2]
        for place in range(begin, middle):
            spare[place] = part[place]
        from_first, from_second = begin, middle
        for place in range(begin, end):
            # Of equal edges the one that came first stays first.
            if from_second < end and (from_first == middle or _precedes(part[from_second], spare[from_first], keys)):
                part[place] = part[from_second]
                from_second += 1
            else:
                part[place] = spare[from_first]
                from_first += 1
    for run in range(0, runs, 2):
        bounds[run // 2] = bounds[run]
    bounds[(runs + 1) // 2] = bounds[runs]
    return (runs + 1) // 2


@kernel
def _precedes(a: int, b: int, keys: I64) -> bool:
    for key in range(keys.shape[1]):
        if keys[a, key] != keys[b, key]:
            return bool(keys[a, key] < keys[b, key])
    return False


@kernel
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

    Examples
    --------
    >>> largest(np.array([0, 1, 0]), 2, np.array([4, 2, 4]), np.array([9, 1, 8]), np.array([1, 1, 1]))
    array([2, 1])
    """
    best = np.full(groups, -1, np.int64)
    for row in range(group.shape[0]):
        best_row = best[group[row]]
        if (
            best_row < 0
            or value[row] > value[best_row]
            or (
                value[row] == value[best_row]
                and (src[row] < src[best_row] or (src[row] == src[best_row] and dst[row] < dst[best_row]))
            )
        ):
            best[group[row]] = row
    return best


@kernel
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
        Per value; NaN where there are too few before it. O(values x over).

    Examples
    --------
    >>> medians(np.array([0, 4]), np.array([1, 5, 2, 0]), 2, 3)
    (array([nan, nan,  3.,  2.]), array([nan, nan,  2.,  1.]))
    """
    median, mad = np.full(value.shape[0], np.nan), np.full(value.shape[0], np.nan)
    ordered = np.empty(over, np.float64)
    for group in range(first.shape[0] - 1):
        count = 0
        for index in range(first[group], first[group + 1]):
            if index - first[group] >= max(at_least, 1):
                median[index] = _median(ordered[:count])
                mad[index] = _median_distance(ordered[:count], median[index])
            # The value joins those that the next one is compared with; if there are `over` of them, the earliest goes.
            place = count
            if count == over:
                place = not_below(ordered, value[index - over])
                while place + 1 < count and ordered[place + 1] < value[index]:
                    ordered[place] = ordered[place + 1]
                    place += 1
            else:
                count += 1
            while place > 0 and ordered[place - 1] > value[index]:
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = value[index]
    return median, mad


@kernel
def _median(ordered: F64) -> float:
    """Return the value in the middle, or the mean of the two there."""
    half = ordered.shape[0] // 2
    if ordered.shape[0] % 2:
        return float(ordered[half])
    return float((ordered[half - 1] + ordered[half]) / 2)


@kernel
def _median_distance(ordered: F64, centre: float) -> float:
    """Return the median of the distances of values from their own median, the smallest first from both sides of it."""
    count = ordered.shape[0]
    upper = count // 2
    lower = upper - 1
    before = distance = 0.0
    for _ in range(count // 2 + 1):
        before = distance
        if upper == count or (lower >= 0 and centre - ordered[lower] < ordered[upper] - centre):
            distance = centre - ordered[lower]
            lower -= 1
        else:
            distance = ordered[upper] - centre
            upper += 1
    return distance if count % 2 else (before + distance) / 2


def project(edges: Edges, begins: I64, finishes: I64) -> tuple[I64, I64, I64, I64, I64]:
    """Give numbers to the vertices of many windows, one window's after the other's.

    Parameters
    ----------
    edges
        Edges of windows.
    begins, finishes
        Start and end per window, nanoseconds since the run's origin.

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
    windows, rows = len(begins), len(edges.src)
    # Of this much only what is written to is taken.
    ids, t = np.empty((2, 3 * rows + 2 * windows), np.int64)
    known = Vertices(np.empty(windows + 1, np.int64), ids, t, np.empty(rows, np.int64), np.empty(rows, np.int64))
    count = number_vertices(
        edges, begins, finishes, np.empty(2 * int(np.diff(edges.first).max(initial=0)), np.int64), known
    )
    return known.first, known.ids[:count], known.t[:count], known.source, known.target


@kernel
def number_vertices(edges: Edges, begins: I64, finishes: I64, early: I64, known: Vertices) -> int:
    """Do as `project`, into arrays that the caller provides.

    Parameters
    ----------
    edges, begins, finishes
        As for `project`.
    early
        Room for two vertices per edge of the largest window; overwritten.
    known
        Written here: `ids` and `t` need room for three vertices per edge and two per window.

    Returns
    -------
    int
        How many vertices there are. O(edges log edges).

    Examples
    --------
    An edge lies in the window from 0 to 9, and its end cuts another one.

    >>> columns = np.array([[2, 4], [4, 6], [0, 5], [5, 12]])
    >>> edges = Edges(np.array([0, 2]), *columns, np.array([True, True]))
    >>> vertex_first, ids, t, source, target = project(edges, np.array([0]), np.array([9]))
    >>> ids, source, target
    (array([-1, -2,  2,  4]), array([2, 3]), array([3, 1]))
    """
    first, src, dst, start, end, arrives = edges
    vertex_first, ids, t, source, target = known
    count: Any = np.int64(0)
    for window in range(begins.shape[0]):
        low, high = first[window], first[window + 1]
        begin, finish = begins[window], finishes[window]
        vertex_first[window] = count
        # Where nothing of the window leads to: vertices at its start.
        early_count: Any = np.int64(0)
        for edge in range(low, high):
            if start[edge] == begin:
                early[early_count] = src[edge]
                early_count += 1
            if end[edge] == begin:
                early[early_count] = dst[edge]
                early_count += 1
        sort(early, early_count)
        ids[count], t[count], ids[count + 1], t[count + 1] = -1, begin, -2, finish
        vertex = count + 2
        next_early = 0
        for edge in range(low, high + 1):
            last = edge == high
            if not last and not (arrives[edge] and begin <= end[edge] <= finish):
                continue
            while next_early < early_count and (last or early[next_early] < dst[edge]):
                if vertex == count + 2 or ids[vertex - 1] != early[next_early]:
                    ids[vertex], t[vertex] = early[next_early], begin
                    vertex += 1
                next_early += 1
            if not last:
                ids[vertex], t[vertex] = dst[edge], end[edge]
                vertex += 1
        window_ids = ids[count + 2 : vertex]
        near_place: Any = np.int64(0)
        for edge in range(low, high):
            source[edge] = target[edge] = -1
            if not begin <= end[edge] <= finish:
                target[edge] = count + 1
            else:
                near_place = _place(window_ids, dst[edge], near_place)
                if near_place < window_ids.shape[0] and window_ids[near_place] == dst[edge]:
                    target[edge] = count + 2 + near_place
            if not begin <= start[edge] <= finish:
                source[edge] = count
            else:
                place = _place(window_ids, src[edge], near_place - 1)
                if place < window_ids.shape[0] and window_ids[place] == src[edge]:
                    source[edge] = count + 2 + place
        count = vertex
    vertex_first[begins.shape[0]] = count
    return count  # type: ignore[no-any-return]


@kernel
def _place(known: I64, number: int, near: int) -> int:
    """Return where a number would be in a sorted list; it is looked for near a place first."""
    for place in range(max(near, 0), min(near + 2, known.shape[0])):
        if known[place] == number:
            return place
    return not_below(known, number)


@kernel
def with_any(window: I64, dst: I64, marked: Bools) -> Bools:
    """Say per edge whether any edge of its window into the same vertex is marked.

    Parameters
    ----------
    window, dst
        Per edge, sorted by both.
    marked
        Per edge.

    Returns
    -------
    array of bool
        Per edge. O(edges).

    Examples
    --------
    >>> with_any(np.array([0, 0, 1]), np.array([4, 4, 4]), np.array([True, False, False]))
    array([ True,  True, False])
    """
    result = np.zeros(dst.shape[0], np.bool_)
    edge = 0
    while edge < dst.shape[0]:
        after, any_marked = edge, False
        while after < dst.shape[0] and dst[after] == dst[edge] and window[after] == window[edge]:
            any_marked |= marked[after]
            after += 1
        while edge < after:
            result[edge] = any_marked
            edge += 1
    return result
