"""Walks back from seeds, counted without listing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64


@numba.njit(cache=True)
def count_walks(
    src: I64, dst: I64, weight: I64, group: I64, seeds: I64, vertices: int, groups: int, k: int
) -> tuple[I64, I64, I64, I64, bool]:
    """Count the walks of 1 to `k` edges that end with a seed edge, by hop and group.

    Parameters
    ----------
    src, dst
        Ends of the edges, as indices of vertices.
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
            if (
                float(following[src[edge]]) + float(count) > limit
                or float(walks[hop, g]) + float(count) > limit
                or abs(float(walk_weight[hop, g])) + float(count) * abs(float(weight[edge])) > limit
            ):
                exact = False
                return walks, edges, walk_weight, edge_weight, exact
            following[src[edge]] += count
            walks[hop, g] += count
            edges[hop, g] += 1
            walk_weight[hop, g] += count * weight[edge]
            edge_weight[hop, g] += weight[edge]
        if not any_left:
            break
        reached = following
    return walks, edges, walk_weight, edge_weight, exact
