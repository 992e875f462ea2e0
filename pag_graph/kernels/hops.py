"""Walks back from seeds, counted without listing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.search import not_below, sort
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.kernels.activations import I64

    Bools = NDArray[np.bool_]


@kernel
def count_walks(
    src: I64, dst: I64, weight: I64, group: I64, seeds: I64, vertices: int, groups: int, k: int
) -> tuple[I64, I64, I64, I64, bool]:
    """Count the walks of 1 to `k` edges that end with a seed edge, by hop and group.

    Parameters
    ----------
    src, dst
        Ends of the edges, as indices of vertices. An edge with the `src` -1 is the first of every walk that it is on.
    weight, group
        Weight and group of every edge.
    seeds
        Indices of the edges of the first hop.
    vertices, groups
        How many of them there are.
    k
        Number of hops.

    Returns
    -------
    walks, edges, walk_weight, edge_weight
        Shape (k, groups): per hop and group the walks whose earliest edge is of this group, the distinct such edges,
        and the weights of both.
    exact
        False where a number left the range of 64 bits.

    Notes
    -----
    Multiplicity propagation: only the number of walks per vertex is kept, so k hops cost O(k x edges), whatever the
    number of walks.
    """
    walks = np.zeros((k, groups), np.int64)
    edges = np.zeros((k, groups), np.int64)
    walk_weight = np.zeros((k, groups), np.int64)
    edge_weight = np.zeros((k, groups), np.int64)
    limit = 2.0**62
    exact = True
    reached = np.zeros(vertices, np.int64)
    for seed in seeds:
        if src[seed] >= 0:
            reached[src[seed]] += 1
        walks[0, group[seed]] += 1
        edges[0, group[seed]] += 1
        walk_weight[0, group[seed]] += weight[seed]
        edge_weight[0, group[seed]] += weight[seed]
    for hop in range(1, k):
        following = np.zeros(vertices, np.int64)
        any_left = False
        for edge in range(src.shape[0]):
            count = reached[dst[edge]]
            if count == 0:
                continue
            any_left = True
            g = group[edge]
            source = src[edge]
            if (
                (source >= 0 and float(following[source]) + float(count) > limit)
                or float(walks[hop, g]) + float(count) > limit
                or abs(float(walk_weight[hop, g])) + float(count) * abs(float(weight[edge])) > limit
            ):
                exact = False
                return walks, edges, walk_weight, edge_weight, exact
            if source >= 0:
                following[source] += count
            walks[hop, g] += count
            edges[hop, g] += 1
            walk_weight[hop, g] += count * weight[edge]
            edge_weight[hop, g] += weight[edge]
        if not any_left:
            break
        reached = following
    return walks, edges, walk_weight, edge_weight, exact


@kernel
def count_walks_by_window(
    first: I64,
    src: I64,
    dst: I64,
    weight: I64,
    group: I64,
    groups: int,
    waiting: Bools,
    data: Bools,
    k: int,
    waits: bool,
) -> tuple[I64, I64, I64, I64, I64, I64, I64, int]:
    """Count the walks that end where waits end, window by window.

    Parameters
    ----------
    first
        Shape (windows + 1,): where the edges of each window begin.
    src, dst, weight, group
        Per edge, sorted by `dst` within its window: its vertices, its weight, and its group. Where the `src` is no
        `dst` in the window, a walk ends.
    groups
        How many there are.
    waiting, data
        Per edge: whether it is a wait, or a data message.
    k
        Number of hops.
    waits
        Whether walks lead through waits.

    Returns
    -------
    window, hop, group, walks, edges, walk_weight, edge_weight
        One row per window, hop and group with any walk, in this order; the sums as of `count_walks`.
    inexact
        A window where a number left the range of 64 bits, or -1. The rows are worthless then.

    Notes
    -----
    The first hop takes the edges, but waits, that end where a wait does, and the data messages that are read on the
    same worker before its next wait ends. O(k x edges).
    """
    room = 1024
    rows = np.empty((room, 7), np.int64)
    count, inexact = 0, -1
    number = np.full(groups, -1, np.int64)
    for window in range(first.shape[0] - 1):
        begin, end = first[window], first[window + 1]
        size = end - begin
        ids = np.empty(size, np.int64)
        target = np.empty(size, np.int64)
        seeds = np.empty(size, np.int64)
        found, vertices = 0, 0
        ended = -1
        edge = begin
        while edge < end:
            until = edge
            ends_wait = False
            while until < end and dst[until] == dst[edge]:
                ends_wait |= waiting[until]
                target[until - begin] = vertices
                until += 1
            if ends_wait:
                ended = dst[edge] >> POSITION_BITS
            opened = ended == dst[edge] >> POSITION_BITS
            for at in range(edge, until):
                if (ends_wait and not waiting[at]) or (opened and data[at]):
                    seeds[found] = at - begin
                    found += 1
            ids[vertices] = dst[edge]
            vertices += 1
            edge = until
        if found == 0:
            continue
        source = np.empty(size, np.int64)
        local_group = np.empty(size, np.int64)
        present = np.empty(size, np.int64)
        # An integer of any value: numba compiles what gets a 0 once more for the constant.
        kinds: Any = np.int64(0)
        for at in range(size):
            edge = begin + at
            source[at] = -1
            place = target[at] - 1
            if place < 0 or ids[place] != src[edge]:
                place = not_below(ids[:vertices], src[edge])
            if place < vertices and ids[place] == src[edge]:
                source[at] = place
            if number[group[edge]] < 0:
                number[group[edge]] = 0
                present[kinds] = group[edge]
                kinds += 1
            if waiting[edge] and not waits:
                # Nothing arrives there, so nobody walks over it.
                target[at] = vertices
        sort(present, kinds)
        for at in range(kinds):
            number[present[at]] = at
        for at in range(size):
            local_group[at] = number[group[begin + at]]
        for at in range(kinds):
            number[present[at]] = -1
        walks, edges, walk_weight, edge_weight, exact = count_walks(
            source, target, weight[begin:end], local_group, seeds[:found], vertices + 1, kinds, k
        )
        if not exact:
            count, inexact = 0, window
            break
        for hop in range(k):
            for kind in range(kinds):
                if edges[hop, kind] > 0:
                    if count == room:
                        room *= 2
                        more = np.empty((room, 7), np.int64)
                        for row in range(count):
                            for column in range(7):
                                more[row, column] = rows[row, column]
                        rows = more
                    rows[count, 0], rows[count, 1], rows[count, 2] = window, hop + 1, present[kind]
                    rows[count, 3], rows[count, 4] = walks[hop, kind], edges[hop, kind]
                    rows[count, 5], rows[count, 6] = walk_weight[hop, kind], edge_weight[hop, kind]
                    count += 1
    columns = np.empty((7, count), np.int64)
    for row in range(count):
        for column in range(7):
            columns[column, row] = rows[row, column]
    return columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6], inexact
