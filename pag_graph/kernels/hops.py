"""Walks back from seeds, counted without listing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.search import grown, not_below, sort
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64

Bools = NDArray[np.bool_]

# Tables of `count_walks`, and columns of `count_walks_by_window`.
WALKS, EDGES, WALK_WEIGHT, EDGE_WEIGHT = range(4)
COLUMNS = ("window", "hop", "group", "walks", "edges", "walk_weight", "edge_weight")
_COLUMNS = len(COLUMNS)

_LIMIT = 2.0**62
"""Numbers of 64 bits are certainly below it, as far as floating-point numbers tell."""


class Steps(NamedTuple):
    """Edges between vertices that are numbered from 0; one element per edge."""

    src: I64
    """-1 for an edge that is the first of every walk that it is on."""
    dst: I64
    """Number of the vertex where it ends."""
    weight: I64
    """What is summed, mostly nanoseconds."""
    group: I64
    """Number of the group that it is counted in, from 0."""


class Edges(NamedTuple):
    """Edges of windows, sorted by `dst` within each; where the `src` is no `dst` in the window, a walk ends."""

    first: I64
    """Shape (windows + 1,): where the edges of each window begin."""
    src: I64
    """Id of the vertex where an edge begins, and so on: one element per edge and window."""
    dst: I64
    weight: I64
    """What is summed, mostly nanoseconds."""
    group: I64
    """Number of the group that it is counted in, from 0."""
    waiting: Bools
    """Per edge: whether it is a wait."""
    data: Bools
    """Per edge: whether it is a data message."""


class Scratch(NamedTuple):
    """Room for what is known of one window after the other."""

    ids: I64
    """Per vertex: its id, ascending."""
    src: I64
    """Per edge of the window, as of `Steps`."""
    dst: I64
    """The same."""
    group: I64
    """Per edge of the window: its group, numbered among those that the window has."""
    seeds: I64
    """Edges of the first hop."""
    present: I64
    """Groups that the window has, ascending."""
    number: I64
    """Per group: -1, but while a window's groups are numbered."""


@kernel
def count_walks(steps: Steps, seeds: I64, vertices: int, groups: int, k: int) -> tuple[I64, bool]:
    """Count the walks of 1 to `k` edges that end with a seed edge, by hop and group.

    Parameters
    ----------
    steps
        The edges.
    seeds
        Those of the first hop.
    vertices, groups
        How many of them there are.
    k
        Number of hops.

    Returns
    -------
    counts
        Shape (4, k, groups): per hop and group the `WALKS` whose earliest edge is of this group, the distinct such
        `EDGES`, and the weights of both.
    exact
        False where a number left the range of 64 bits.

    Notes
    -----
    Multiplicity propagation: only the number of walks per vertex is kept, so k hops cost O(k x edges), whatever the
    number of walks.

    Examples
    --------
    Two edges of group 0 lead to the vertex where the seed, of group 1, begins.

    >>> steps = Steps(np.array([1, -1, -1]), np.array([0, 1, 1]), np.array([5, 7, 9]), np.array([1, 0, 0]))
    >>> counts, exact = count_walks(steps, np.array([0]), 2, 2, 2)
    >>> counts[WALKS]
    array([[0, 1],
           [2, 0]])
    """
    src, dst, weight, group = steps
    counts = np.zeros((4, k, groups), np.int64)
    reached, following = np.zeros(vertices, np.int64), np.zeros(vertices, np.int64)
    for seed in seeds:
        if src[seed] >= 0:
            reached[src[seed]] += 1
        counts[WALKS, 0, group[seed]] += 1
        counts[EDGES, 0, group[seed]] += 1
        counts[WALK_WEIGHT, 0, group[seed]] += weight[seed]
        counts[EDGE_WEIGHT, 0, group[seed]] += weight[seed]
    for hop in range(1, k):
        for vertex in range(vertices):
            following[vertex] = 0
        any_left = False
        for edge in range(src.shape[0]):
            count = reached[dst[edge]]
            if count == 0:
                continue
            any_left = True
            group_of_edge, source = group[edge], src[edge]
            if (
                (source >= 0 and float(following[source]) + float(count) > _LIMIT)
                or float(counts[WALKS, hop, group_of_edge]) + float(count) > _LIMIT
                or abs(float(counts[WALK_WEIGHT, hop, group_of_edge])) + float(count) * abs(float(weight[edge]))
                > _LIMIT
            ):
                return counts, False
            if source >= 0:
                following[source] += count
            counts[WALKS, hop, group_of_edge] += count
            counts[EDGES, hop, group_of_edge] += 1
            counts[WALK_WEIGHT, hop, group_of_edge] += count * weight[edge]
            counts[EDGE_WEIGHT, hop, group_of_edge] += weight[edge]
        if not any_left:
            break
        reached, following = following, reached
    return counts, True


def count_walks_by_window(edges: Edges, groups: int, k: int, waits: bool) -> tuple[I64, int]:
    """Count the walks that end where waits end, window by window.

    Parameters
    ----------
    edges
        Edges of windows.
    groups
        How many groups there are.
    k
        Number of hops.
    waits
        Whether walks lead through waits.

    Returns
    -------
    rows
        The numbers of `COLUMNS` of one row per window, hop and group with any walk, in this order; one row after the
        other. The sums are as of `count_walks`.
    inexact
        A window where a number left the range of 64 bits, or -1. The rows are worthless then.

    Notes
    -----
    The first hop takes the edges, except waits, that end where a wait does, and the data messages that are read on the
    same worker before its next wait ends (`docs/model.md`, "Choices"; ST2 3.6.1). O(k x edges).
    """
    longest = int(np.diff(edges.first).max(initial=0))
    ids, src, dst, group, seeds, present = np.empty((6, longest), np.int64)
    scratch = Scratch(ids, src, dst, group, seeds, present, np.full(groups, -1))
    return count_in_windows(edges, scratch, k, waits)


@kernel
def count_in_windows(edges: Edges, scratch: Scratch, k: int, waits: bool) -> tuple[I64, int]:
    """Do as `count_walks_by_window`, in room that the caller provides.

    Parameters
    ----------
    edges, k, waits
        As for `count_walks_by_window`.
    scratch
        Room for the largest window; overwritten.

    Returns
    -------
    rows, inexact
        As of `count_walks_by_window`.

    Examples
    --------
    A message that worker 0 sends when it has worked ends a wait of worker 1.

    >>> here, no = 1 << POSITION_BITS, np.zeros(3, np.bool_)
    >>> ends = np.array([0, here, 2]), np.array([2, here | 2, here | 2])
    >>> edges = Edges(
    ...     np.array([0, 3]), *ends, np.array([5, 7, 1]), np.array([0, 1, 2]), np.array([False, True, False]), no
    ... )
    >>> rows, inexact = count_walks_by_window(edges, 3, 2, False)
    >>> rows.reshape(-1, len(COLUMNS))
    array([[0, 1, 2, 1, 1, 1, 1],
           [0, 2, 0, 1, 1, 5, 5]])
    """
    rows = np.empty(_COLUMNS * 1024, np.int64)
    count, inexact = 0, -1
    for window in range(edges.first.shape[0] - 1):
        begin, end = edges.first[window], edges.first[window + 1]
        seeds, vertices = _find_vertices(edges, begin, end, scratch)
        if seeds == 0:
            continue
        _find_sources(edges, _Window(begin, end, vertices), waits, scratch)
        kinds = _find_groups(edges.group, begin, end, scratch)
        size = end - begin
        steps = Steps(scratch.src[:size], scratch.dst[:size], edges.weight[begin:end], scratch.group[:size])
        counts, exact = count_walks(steps, scratch.seeds[:seeds], vertices + 1, kinds, k)
        if not exact:
            inexact = window
            break
        for hop in range(k):
            for kind in range(kinds):
                if counts[EDGES, hop, kind] > 0:
                    rows = grown(rows, count, count + _COLUMNS)
                    rows[count], rows[count + 1], rows[count + 2] = window, hop + 1, scratch.present[kind]
                    for table in range(4):
                        rows[count + 3 + table] = counts[table, hop, kind]
                    count += _COLUMNS
    return rows[:count], inexact


class _Window(NamedTuple):
    """Edges from `begin` to `end` (exclusive), and how many vertices they lead to."""

    begin: int
    end: int
    vertices: int


@kernel
def _find_vertices(edges: Edges, begin: int, end: int, scratch: Scratch) -> tuple[int, int]:
    """Find the vertices that a window's edges lead to, and the edges of the first hop; return how many there are."""
    dst, waiting, data = edges.dst, edges.waiting, edges.data
    ids, target, chosen = scratch.ids, scratch.dst, scratch.seeds
    seeds, vertices, ended = 0, 0, -1
    edge = begin
    while edge < end:
        after = edge
        ends_wait = False
        while after < end and dst[after] == dst[edge]:
            ends_wait |= waiting[after]
            target[after - begin] = vertices
            after += 1
        if ends_wait:
            ended = dst[edge] >> POSITION_BITS
        opened = ended == dst[edge] >> POSITION_BITS
        ids[vertices] = dst[edge]
        while edge < after:
            if (ends_wait and not waiting[edge]) or (opened and data[edge]):
                chosen[seeds] = edge - begin
                seeds += 1
            edge += 1
        vertices += 1
    return seeds, vertices


@kernel
def _find_sources(edges: Edges, window: _Window, waits: bool, scratch: Scratch) -> None:
    """Find the vertices where a window's edges begin."""
    source, target, begin, vertices = scratch.src, scratch.dst, window.begin, window.vertices
    ids, src, waiting = scratch.ids[:vertices], edges.src, edges.waiting
    for step in range(window.end - begin):
        vertex, place = src[begin + step], target[step] - 1
        if place < 0 or ids[place] != vertex:
            place = not_below(ids, vertex)
        source[step] = place if place < vertices and ids[place] == vertex else -1
        if waiting[begin + step] and not waits:
            # No edge leads to this target, so no walk takes the wait.
            target[step] = vertices


@kernel
def _find_groups(group: I64, begin: int, end: int, scratch: Scratch) -> int:
    """Find the groups that a window has, and return how many."""
    present, number, numbered = scratch.present, scratch.number, scratch.group
    # An integer of any value: numba compiles what gets a 0 once more for the constant.
    kinds: Any = np.int64(0)
    for edge in range(begin, end):
        if number[group[edge]] < 0:
            number[group[edge]] = 0
            present[kinds] = group[edge]
            kinds += 1
    sort(present, kinds)
    for kind in range(kinds):
        number[present[kind]] = kind
    for edge in range(begin, end):
        numbered[edge - begin] = number[group[edge]]
    for kind in range(kinds):
        number[present[kind]] = -1
    return kinds  # type: ignore[no-any-return]
