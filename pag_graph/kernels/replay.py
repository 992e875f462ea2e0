"""Replay of a constraint graph: earliest times, latest times, and the chain of arcs that binds.

A constraint graph has vertices in topological order, from 0, the origin; every other vertex has an arc that leads to it
at least. All numbers are integers, so that replays are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.kernels.activations import I64

NONE = np.iinfo(np.int64).max
"""Latest time of a vertex, and slack of an edge, from where no path leads to the end."""

NEVER = -(1 << 61)
"""Weight of an arc that binds nothing; added to any time it stays far below all times."""

_LANES = 10
"""So many replays that differ in some weights are computed together."""


class Arcs(NamedTuple):
    """Arcs grouped by the vertex that they lead to: those into v are `first[v]` to `first[v + 1]` (exclusive)."""

    first: I64
    """Shape (vertices + 1,)."""
    src: I64
    """Per arc: the vertex where it begins."""
    weight: I64
    """Per arc, in nanoseconds: its vertex happens that long after `src` at the earliest; may be negative, or `NEVER`.
    """


class Groups(NamedTuple):
    """Groups of arcs that are replayed with other durations."""

    origin: I64
    """Per group: the first vertex of the graph that it belongs to, of several side by side."""
    end: I64
    """Per group: the vertex whose time is wanted."""
    first: I64
    """Shape (groups + 1,): where the arcs of each group begin."""
    arc: I64
    """The arcs."""
    duration: I64
    """Per such arc: the part of its weight that is cut."""


class _Cuts(NamedTuple):
    """What replays computed together cut from the weights of a group's arcs."""

    place: I64
    """Per arc: its place in `duration`, or -1."""
    duration: I64
    factors: NDArray[np.float64]
    """Per lane: what durations are multiplied by."""


class _Span(NamedTuple):
    """Vertices from `low` to `high` (exclusive) of the graph that begins at `origin`."""

    origin: int
    low: int
    high: int


@kernel
def topological_order(by_time: I64, t: I64, src: I64, dst: I64) -> tuple[I64, int]:
    """Order vertices so that every arc leads forward.

    Parameters
    ----------
    by_time
        The vertices, sorted by time.
    t
        Time of every vertex; no arc leads to an earlier one.
    src, dst
        Ends of the arcs.

    Returns
    -------
    order
        The vertices, by time and, at one instant, after all that leads to them.
    stuck
        A vertex on a cycle, or -1. Without one the order is complete.

    Notes
    -----
    O(vertices + arcs): only arcs that take no time need Kahn's algorithm, and only among the vertices of their instant.

    Examples
    --------
    Vertices 0 and 1 happen in one instant, 1 first.

    >>> topological_order(np.array([0, 1, 2]), np.array([4, 4, 9]), np.array([1]), np.array([0]))
    (array([1, 0, 2]), -1)
    """
    vertices = t.shape[0]
    blockers = np.zeros(vertices, np.int64)
    first_out = np.zeros(vertices + 1, np.int64)
    for arc in range(src.shape[0]):
        if t[src[arc]] == t[dst[arc]]:
            blockers[dst[arc]] += 1
            first_out[src[arc] + 1] += 1
    for vertex in range(vertices):
        first_out[vertex + 1] += first_out[vertex]
    target = np.empty(first_out[vertices], np.int64)
    filled = first_out.copy()
    for arc in range(src.shape[0]):
        if t[src[arc]] == t[dst[arc]]:
            target[filled[src[arc]]] = dst[arc]
            filled[src[arc]] += 1
    order = np.empty(vertices, np.int64)
    begin = 0
    while begin < vertices:
        end = begin
        free = begin
        while end < vertices and t[by_time[end]] == t[by_time[begin]]:
            if blockers[by_time[end]] == 0:
                order[free] = by_time[end]
                free += 1
            end += 1
        handled = begin
        while handled < free:
            for arc_place in range(first_out[order[handled]], first_out[order[handled] + 1]):
                blockers[target[arc_place]] -= 1
                if blockers[target[arc_place]] == 0:
                    order[free] = target[arc_place]
                    free += 1
            handled += 1
        if free < end:
            return order, _on_cycle(by_time[begin:end], blockers, t, src, dst)
        begin = end
    return order, -1


@kernel
def _on_cycle(instant: I64, blockers: I64, t: I64, src: I64, dst: I64) -> int:
    """Return a vertex on a cycle of arcs between the vertices of one instant that something blocks.

    Others may be blocked only because they come after a cycle. Whoever goes back from one of them long enough is on it.
    """
    before = np.full(t.shape[0], -1, np.int64)
    for arc in range(src.shape[0]):
        if t[src[arc]] == t[dst[arc]] == t[instant[0]] and blockers[src[arc]] > 0:
            before[dst[arc]] = src[arc]
    vertex = instant[0]
    for stuck in instant:
        if blockers[stuck] > 0:
            vertex = stuck
            break
    for _ in range(instant.shape[0]):
        vertex = before[vertex]
    return vertex  # type: ignore[no-any-return]


@kernel
def group_arcs(dst: I64, vertices: int) -> tuple[I64, I64]:
    """Group arcs by the vertex that they lead to.

    Parameters
    ----------
    dst
        Per arc: where it leads to; those with a negative one are left out.
    vertices
        Number of vertices.

    Returns
    -------
    first
        Shape (vertices + 1,): where the arcs into each vertex begin.
    position
        The arcs in their new order; those into one vertex keep theirs.

    Notes
    -----
    A counting sort, O(vertices + arcs).

    Examples
    --------
    >>> group_arcs(np.array([2, 1, 2]), 3)
    (array([0, 0, 1, 3]), array([1, 0, 2]))
    """
    first = np.zeros(vertices + 1, np.int64)
    for arc in range(dst.shape[0]):
        if dst[arc] >= 0:
            first[dst[arc] + 1] += 1
    for vertex in range(vertices):
        first[vertex + 1] += first[vertex]
    filled = first.copy()
    position = np.empty(first[vertices], np.int64)
    for arc in range(dst.shape[0]):
        if dst[arc] >= 0:
            position[filled[dst[arc]]] = arc
            filled[dst[arc]] += 1
    return first, position


@kernel
def earliest(arcs: Arcs, start: int) -> I64:
    """Replay: every vertex happens as soon as all arcs into it allow.

    Parameters
    ----------
    arcs
        The graph.
    start
        Time of the origin.

    Returns
    -------
    time
        Per vertex. O(vertices + arcs).

    Examples
    --------
    Vertex 2 waits for both, 0 and 1.

    >>> earliest(Arcs(np.array([0, 0, 1, 3]), np.array([0, 0, 1]), np.array([4, 1, 2])), 100)
    array([100, 104, 106])
    """
    first, src, weight = arcs
    time = np.empty(first.shape[0] - 1, np.int64)
    time[0] = start
    for vertex in range(1, time.shape[0]):
        begin = first[vertex]
        best = time[src[begin]] + weight[begin]
        for arc in range(begin + 1, first[vertex + 1]):
            best = max(best, time[src[arc]] + weight[arc])
        time[vertex] = best
    return time


@kernel
def latest(arcs: Arcs, ends: I64, end_times: I64) -> I64:
    """Say how late every vertex may be without making the end later.

    Parameters
    ----------
    arcs
        The graph.
    ends
        The vertices that must not be late, one for each of several graphs side by side.
    end_times
        When they happen.

    Returns
    -------
    time
        Per vertex; `NONE` where no path leads to an end. O(vertices + arcs).

    Examples
    --------
    >>> latest(Arcs(np.array([0, 0, 1, 3]), np.array([0, 0, 1]), np.array([4, 1, 2])), np.array([2]), np.array([106]))
    array([100, 104, 106])
    """
    first, src, weight = arcs
    time = np.full(first.shape[0] - 1, NONE, np.int64)
    for window in range(ends.shape[0]):
        time[ends[window]] = end_times[window]
    for vertex in range(time.shape[0] - 1, 0, -1):
        if time[vertex] != NONE:
            for arc in range(first[vertex], first[vertex + 1]):
                time[src[arc]] = min(time[src[arc]], time[vertex] - weight[arc])
    return time


@kernel
def slacks(arcs: Arcs, row: I64, rows: int, early: I64, late: I64) -> I64:
    """Say by how much every activity may last longer without making the end later.

    Parameters
    ----------
    arcs
        The graph.
    row
        Per arc: the activity that it stands for, or -1; every activity has at most one arc.
    rows
        Number of activities.
    early, late
        Per vertex, from `earliest` and `latest`.

    Returns
    -------
    slack
        Per activity; `NONE` where it has no arc, or none that leads to the end. O(vertices + arcs).

    Examples
    --------
    The activity of the arc from 0 to 2 may last longer by 5.

    >>> arcs = Arcs(np.array([0, 0, 1, 3]), np.array([0, 0, 1]), np.array([4, 1, 2]))
    >>> slacks(arcs, np.array([0, 1, -1]), 2, *np.array([[100, 104, 106]] * 2))
    array([0, 5])
    """
    first, src, weight = arcs
    slack = np.full(rows, NONE, np.int64)
    for vertex in range(1, first.shape[0] - 1):
        if late[vertex] != NONE:
            for arc in range(first[vertex], first[vertex + 1]):
                if row[arc] >= 0:
                    slack[row[arc]] = late[vertex] - early[src[arc]] - weight[arc]
    return slack


@kernel
def binding_arcs(arcs: Arcs, time: I64, origins: I64, ends: I64) -> I64:
    """Walk back from ends along arcs that bind, to the origins of several graphs side by side.

    Parameters
    ----------
    arcs
        The graphs.
    time
        Per vertex, from `earliest`.
    origins, ends
        Per graph: its first vertex, and where to begin.

    Returns
    -------
    arcs
        In the order of the walks; those of one walk add up to the end's time since the origin. Of several arcs that
        bind, the first into a vertex is taken. O(arcs into the vertices of the walks).

    Examples
    --------
    >>> arcs = Arcs(np.array([0, 0, 1, 3]), np.array([0, 0, 1]), np.array([4, 1, 2]))
    >>> binding_arcs(arcs, np.array([100, 104, 106]), np.array([0]), np.array([2]))
    array([2, 0])
    """
    first, src, weight = arcs
    room = 0
    for graph in range(ends.shape[0]):
        room += ends[graph] - origins[graph]
    binding = np.empty(room, np.int64)
    count = 0
    for graph in range(ends.shape[0]):
        vertex = ends[graph]
        while vertex > origins[graph]:
            for arc in range(first[vertex], first[vertex + 1]):
                if time[src[arc]] + weight[arc] == time[vertex]:
                    binding[count] = arc
                    count += 1
                    vertex = src[arc]
                    break
    return binding[:count]


@kernel
def scaled_ends(arcs: Arcs, dst: I64, early: I64, groups: Groups, steps: int) -> I64:
    """Replay once per group of arcs and step, each time with the group's durations cut in proportion.

    Parameters
    ----------
    arcs, dst
        The graph, and where its arcs lead to.
    early
        Per vertex: when it happens with the weights as they are.
    groups
        Which arcs to cut.
    steps
        Durations are multiplied by (steps - 1)/steps, (steps - 2)/steps, ... and 0, and rounded.

    Returns
    -------
    ends
        Shape (groups, steps): when the end happens. O(groups x steps x (vertices + arcs)), some steps in one pass over
        the vertices between the first one that a group moves and the end. Memory: 80 bytes per vertex, used again.

    Examples
    --------
    The arc from 0 to 1 lasts 4, then 2, then nothing; from then on that from 0 to 2 binds.

    >>> arcs = Arcs(np.array([0, 0, 1, 3]), np.array([0, 0, 1]), np.array([4, 3, 2]))
    >>> groups = Groups(np.array([0]), np.array([2]), np.array([0, 1]), np.array([0]), np.array([4]))
    >>> scaled_ends(arcs, np.array([1, 2, 2]), np.array([100, 104, 106]), groups, 2)
    array([[104, 103]])
    """
    ends = np.empty((groups.end.shape[0], steps), np.int64)
    longest = 0
    for group in range(groups.end.shape[0]):
        longest = max(longest, groups.end[group] + 1 - groups.origin[group])
    time = np.empty((longest, _LANES), np.int64)
    cuts = _Cuts(np.full(arcs.src.shape[0], -1, np.int64), groups.duration, np.empty(_LANES))
    for group in range(groups.end.shape[0]):
        origin, end = groups.origin[group], groups.end[group]
        moved = end
        for place in range(groups.first[group], groups.first[group + 1]):
            cuts.place[groups.arc[place]] = place
            moved = min(moved, dst[groups.arc[place]])
        moved = max(moved, origin + 1)
        for vertex in range(origin, moved):
            for lane in range(_LANES):
                time[vertex - origin, lane] = early[vertex]
        for steps_done in range(0, steps, _LANES):
            for lane in range(_LANES):
                # The last pass may have room for more steps than are asked for.
                cuts.factors[lane] = max(steps - steps_done - 1 - lane, 0) / steps
            # Nothing after the end can move it.
            _replay_lanes(arcs, time, _Span(origin, moved, end + 1), cuts)
            for step in range(steps_done, min(steps_done + _LANES, steps)):
                ends[group, step] = time[end - origin, step - steps_done]
        for place in range(groups.first[group], groups.first[group + 1]):
            cuts.place[groups.arc[place]] = -1
    return ends


@kernel
def _replay_lanes(arcs: Arcs, time: I64, span: _Span, cuts: _Cuts) -> None:
    first, src, weight = arcs
    place, duration, factors = cuts
    origin = span.origin
    # A constant number of lanes, and a first arc that is not compared with anything: less than half the time.
    for vertex in range(span.low - origin, span.high - origin):
        begin = first[vertex + origin]
        for arc in range(begin, first[vertex + origin + 1]):
            before, took = src[arc] - origin, weight[arc]
            if place[arc] >= 0:
                full = duration[place[arc]]
                for lane in range(_LANES):
                    best = NEVER if arc == begin else time[vertex, lane]
                    shorter = np.int64(np.rint(full * factors[lane]))
                    time[vertex, lane] = max(best, time[before, lane] + (took - full + shorter))
            elif arc == begin:
                for lane in range(_LANES):
                    time[vertex, lane] = time[before, lane] + took
            else:
                for lane in range(_LANES):
                    time[vertex, lane] = max(time[vertex, lane], time[before, lane] + took)
