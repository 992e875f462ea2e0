"""Replay of a constraint graph: earliest times, latest times, and the chain of arcs that binds.

A constraint graph has vertices in topological order, from 0, the origin; arcs are grouped by the vertex that they lead
to, and `first[v]` to `first[v + 1]` (exclusive) are those into v. Every vertex but the origin has at least one. All
numbers are integers, so that replays are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """
    vertices = t.shape[0]
    blockers = np.zeros(vertices, np.int64)
    out = np.zeros(vertices + 1, np.int64)
    for arc in range(src.shape[0]):
        if t[src[arc]] == t[dst[arc]]:
            blockers[dst[arc]] += 1
            out[src[arc] + 1] += 1
    for vertex in range(vertices):
        out[vertex + 1] += out[vertex]
    target = np.empty(out[vertices], np.int64)
    filled = out[:-1].copy()
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
        taken = begin
        while taken < free:
            for at in range(out[order[taken]], out[order[taken] + 1]):
                blockers[target[at]] -= 1
                if blockers[target[at]] == 0:
                    order[free] = target[at]
                    free += 1
            taken += 1
        if free < end:
            for at in range(begin, end):
                if blockers[by_time[at]] > 0:
                    return order, by_time[at]
        begin = end
    return order, -1


@kernel
def group_arcs(dst: I64, vertices: int) -> tuple[I64, I64]:
    """Group arcs by the vertex that they lead to.

    Parameters
    ----------
    dst
        Per arc: where it leads to.
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
    """
    first = np.zeros(vertices + 1, np.int64)
    for arc in range(dst.shape[0]):
        first[dst[arc] + 1] += 1
    for vertex in range(vertices):
        first[vertex + 1] += first[vertex]
    filled = first[:-1].copy()
    position = np.empty(dst.shape[0], np.int64)
    for arc in range(dst.shape[0]):
        position[filled[dst[arc]]] = arc
        filled[dst[arc]] += 1
    return first, position


@kernel
def earliest(first: I64, src: I64, weight: I64, start: int) -> I64:
    """Replay: every vertex happens as soon as all arcs into it allow.

    Parameters
    ----------
    first, src, weight
        The graph; see the module.
    start
        Time of the origin.

    Returns
    -------
    time
        Per vertex. O(vertices + arcs).
    """
    time = np.empty(first.shape[0] - 1, np.int64)
    time[0] = start
    _replay(first, src, weight, time, 1, time.shape[0])
    return time


@kernel
def _replay(first: I64, src: I64, weight: I64, time: I64, low: int, high: int) -> None:
    for vertex in range(low, high):
        at = first[vertex]
        best = time[src[at]] + weight[at]
        for arc in range(at + 1, first[vertex + 1]):
            best = max(best, time[src[arc]] + weight[arc])
        time[vertex] = best


@kernel
def latest(first: I64, src: I64, weight: I64, ends: I64, end_times: I64) -> I64:
    """Say how late every vertex may be without making the end later.

    Parameters
    ----------
    first, src, weight
        The graph; see the module.
    ends
        The vertices that must not be late, one for each of several graphs side by side.
    end_times
        When they happen.

    Returns
    -------
    time
        Per vertex; `NONE` where no path leads to an end. O(vertices + arcs).
    """
    time = np.full(first.shape[0] - 1, NONE, np.int64)
    for window in range(ends.shape[0]):
        time[ends[window]] = end_times[window]
    for vertex in range(time.shape[0] - 1, 0, -1):
        if time[vertex] != NONE:
            for arc in range(first[vertex], first[vertex + 1]):
                time[src[arc]] = min(time[src[arc]], time[vertex] - weight[arc])
    return time


@kernel
def slacks(first: I64, src: I64, weight: I64, row: I64, rows: int, early: I64, late: I64) -> I64:
    """Say by how much every activity may last longer without making the end later.

    Parameters
    ----------
    first, src, weight
        The graph; see the module.
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
    """
    slack = np.full(rows, NONE, np.int64)
    for vertex in range(1, first.shape[0] - 1):
        if late[vertex] != NONE:
            for arc in range(first[vertex], first[vertex + 1]):
                if row[arc] >= 0:
                    slack[row[arc]] = late[vertex] - early[src[arc]] - weight[arc]
    return slack


@kernel
def binding_arcs(first: I64, src: I64, weight: I64, time: I64, end: int) -> I64:
    """Walk back from the end along arcs that bind, to the origin.

    Parameters
    ----------
    first, src, weight
        The graph; see the module.
    time
        Per vertex, from `earliest`.
    end
        Where to begin.

    Returns
    -------
    arcs
        In the order of the walk; their weights add up to the end's time since the origin. Of several arcs that bind,
        the first into a vertex is taken. O(arcs into the vertices of the walk).
    """
    arcs = np.empty(end, np.int64)
    count = 0
    vertex = end
    while vertex > 0:
        for arc in range(first[vertex], first[vertex + 1]):
            if time[src[arc]] + weight[arc] == time[vertex]:
                arcs[count] = arc
                count += 1
                vertex = src[arc]
                break
    return arcs[:count]


@kernel
def bound(
    first: I64, src: I64, weight: I64, time: I64, origins: I64, ends: I64, row: I64, rows: int
) -> NDArray[np.bool_]:
    """Walk back from the ends of several graphs side by side, and say what lies on the way.

    Parameters
    ----------
    first, src, weight
        The graphs; see the module.
    time
        Per vertex, from `earliest`.
    origins, ends
        Per graph: its first vertex, and where to begin.
    row, rows
        Per arc the activity that it stands for, or -1; and how many activities there are.

    Returns
    -------
    on_path
        Per activity; of several arcs that bind, the first into a vertex is taken, as by `binding_arcs`.
    """
    on_path = np.zeros(rows, np.bool_)
    for window in range(ends.shape[0]):
        vertex = ends[window]
        while vertex > origins[window]:
            for arc in range(first[vertex], first[vertex + 1]):
                if time[src[arc]] + weight[arc] == time[vertex]:
                    if row[arc] >= 0:
                        on_path[row[arc]] = True
                    vertex = src[arc]
                    break
    return on_path


@kernel
def scaled_ends(
    first: I64,
    src: I64,
    dst: I64,
    weight: I64,
    early: I64,
    group_origin: I64,
    group_end: I64,
    group_first: I64,
    group_arc: I64,
    group_duration: I64,
    steps: int,
) -> I64:
    """Replay once per group of arcs and step, each time with the group's durations cut in proportion.

    Parameters
    ----------
    first, src, dst, weight
        The graph; see the module.
    early
        Per vertex: when it happens with the weights as they are.
    group_origin, group_end
        Per group: the first vertex of the graph that it belongs to, of several side by side, and the vertex whose time
        is wanted.
    group_first, group_arc, group_duration
        The arcs of group g, and the part of their weights that is cut, are those from `group_first[g]` to
        `group_first[g + 1]` (exclusive).
    steps
        Durations are multiplied by (steps - 1)/steps, (steps - 2)/steps, ... and 0, and rounded.

    Returns
    -------
    ends
        Shape (groups, steps): when the end happens. O(groups x steps x (vertices + arcs)), some steps in one pass over
        the vertices between the first one that a group moves and the end. Memory: 80 bytes per vertex, used again.
    """
    groups = group_first.shape[0] - 1
    ends = np.empty((groups, steps), np.int64)
    longest = 0
    for group in range(groups):
        longest = max(longest, group_end[group] + 1 - group_origin[group])
    time = np.empty((longest, _LANES), np.int64)
    factors = np.empty(_LANES)
    # Per arc: its place among those of the group.
    place = np.full(src.shape[0], -1, np.int64)
    for group in range(groups):
        origin, end = group_origin[group], group_end[group]
        moved = end
        for at in range(group_first[group], group_first[group + 1]):
            place[group_arc[at]] = at
            moved = min(moved, dst[group_arc[at]])
        moved = max(moved, origin + 1)
        for vertex in range(origin, moved):
            for lane in range(_LANES):
                time[vertex - origin, lane] = early[vertex]
        for done in range(0, steps, _LANES):
            for lane in range(_LANES):
                # The last pass may have room for more steps than are asked for.
                factors[lane] = max(steps - done - 1 - lane, 0) / steps
            # Nothing after the end can move it.
            _replay_lanes(first, src, weight, time, origin, moved, end + 1, place, group_duration, factors)
            for step in range(done, min(done + _LANES, steps)):
                ends[group, step] = time[end - origin, step - done]
        for at in range(group_first[group], group_first[group + 1]):
            place[group_arc[at]] = -1
    return ends


@kernel
def _replay_lanes(
    first: I64,
    src: I64,
    weight: I64,
    time: I64,
    origin: int,
    low: int,
    high: int,
    place: I64,
    duration: I64,
    factors: NDArray[np.float64],
) -> None:
    # A constant number of lanes, and a first arc that is not compared with anything: less than half the time.
    for own in range(low - origin, high - origin):
        begin = first[own + origin]
        for arc in range(begin, first[own + origin + 1]):
            before, took = src[arc] - origin, weight[arc]
            if place[arc] >= 0:
                whole = duration[place[arc]]
                for lane in range(_LANES):
                    best = NEVER if arc == begin else time[own, lane]
                    shorter = np.int64(np.rint(whole * factors[lane]))
                    time[own, lane] = max(best, time[before, lane] + (took - whole + shorter))
            elif arc == begin:
                for lane in range(_LANES):
                    time[own, lane] = time[before, lane] + took
            else:
                for lane in range(_LANES):
                    time[own, lane] = max(time[own, lane], time[before, lane] + took)
