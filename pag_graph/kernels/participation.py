"""Numbers of paths through a graph, however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64

F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

LIMB_BITS = 256
"""A number is ``mantissa * 2**(256 * limbs)``; the mantissa stays below 2^256, so that products do not overflow."""

_LIMB = 2.0**LIMB_BITS


class Arcs(NamedTuple):
    """Arcs of a graph, grouped by `dst`: those into v are `first[v]` to `first[v + 1]` (exclusive).

    Vertices are numbered in a topological order.
    """

    first: I64
    """Shape (vertices + 1,)."""
    src: I64
    """Per arc: the vertex where it begins, and so on."""
    dst: I64


@kernel
def _add(mantissa: float, limbs: int, addend: float, addend_limbs: int) -> tuple[float, int]:
    """Add two numbers; what the larger one cannot hold is rounded off, as with all floating-point numbers."""
    if addend == 0.0:
        return mantissa, limbs
    if mantissa == 0.0 or addend_limbs > limbs:
        mantissa, limbs, addend, addend_limbs = addend, addend_limbs, mantissa, limbs
    if addend_limbs < limbs - 1:
        # The smaller number is below the last bit of the larger one: 2^256 against 2^53.
        return mantissa, limbs
    if addend_limbs < limbs:
        addend /= _LIMB
    mantissa += addend
    if mantissa >= _LIMB:
        return mantissa / _LIMB, limbs + 1
    return mantissa, limbs


@kernel
def count_paths(arcs: Arcs, starts: Bools, ends: Bools) -> tuple[F64, I64, F64, I64, float, int]:
    """Count the paths from any start to every vertex, and from every vertex to any end.

    Parameters
    ----------
    arcs
        The graph.
    starts, ends
        Per vertex: whether paths begin there, and whether they end there.

    Returns
    -------
    before, before_limbs
        Per vertex: the paths from any start to it, as ``mantissa * 2**(256 * limbs)``; so are the following.

    Notes
    -----
    O(vertices + arcs). Exact up to 2^53 paths; beyond it the relative error is at most 2^-53 per addition.

    Examples
    --------
    Two arcs lead from 0 to 1.

    >>> arcs = Arcs(np.array([0, 0, 2]), np.array([0, 0]), np.array([1, 1]))
    >>> *_, paths, limbs = count_paths(arcs, np.array([True, False]), np.array([False, True]))
    >>> paths, limbs
    (2.0, 0)
    """
    first, src, dst = arcs
    vertices = first.shape[0] - 1
    before, before_limbs = np.zeros(vertices), np.zeros(vertices, np.int64)
    after, after_limbs = np.zeros(vertices), np.zeros(vertices, np.int64)
    paths, paths_limbs = 0.0, 0
    for vertex in range(vertices):
        count, limbs = 1.0 if starts[vertex] else 0.0, 0
        for arc in range(first[vertex], first[vertex + 1]):
            count, limbs = _add(count, limbs, before[src[arc]], before_limbs[src[arc]])
        before[vertex], before_limbs[vertex] = count, limbs
    for vertex in range(vertices - 1, -1, -1):
        if ends[vertex]:
            after[vertex], after_limbs[vertex] = _add(after[vertex], after_limbs[vertex], 1.0, 0)
            paths, paths_limbs = _add(paths, paths_limbs, before[vertex], before_limbs[vertex])
        for arc in range(first[vertex], first[vertex + 1]):
            source = src[arc]
            after[source], after_limbs[source] = _add(
                after[source], after_limbs[source], after[dst[arc]], after_limbs[dst[arc]]
            )
    return before, before_limbs, after, after_limbs, paths, paths_limbs


@kernel
def count_paths_of_windows(
    vertex_first: I64, arcs: Arcs, starts: Bools, ends: Bools
) -> tuple[F64, I64, F64, I64, F64, I64]:
    """Count the paths of several graphs side by side.

    Parameters
    ----------
    vertex_first
        Shape (windows + 1,): where the vertices of each graph begin.
    arcs, starts, ends
        As for `count_paths`.

    Returns
    -------
    before, before_limbs, after, after_limbs
        As of `count_paths`.
    paths, paths_limbs
        Per window.

    Examples
    --------
    >>> arcs = Arcs(np.array([0, 0, 2, 2, 3]), np.array([0, 0, 2]), np.array([1, 1, 3]))
    >>> starts, ends = np.array([[True, False] * 2, [False, True] * 2])
    >>> count_paths_of_windows(np.array([0, 2, 4]), arcs, starts, ends)[4]
    array([2., 1.])
    """
    first, src, dst = arcs
    windows, vertices = vertex_first.shape[0] - 1, first.shape[0] - 1
    before, before_limbs = np.zeros(vertices), np.zeros(vertices, np.int64)
    after, after_limbs = np.zeros(vertices), np.zeros(vertices, np.int64)
    paths, paths_limbs = np.zeros(windows), np.zeros(windows, np.int64)
    for window in range(windows):
        low, high = vertex_first[window], vertex_first[window + 1]
        begin, end = first[low], first[high]
        window_arcs = Arcs(first[low : high + 1] - begin, src[begin:end] - low, dst[begin:end] - low)
        counted = count_paths(window_arcs, starts[low:high], ends[low:high])
        before[low:high], before_limbs[low:high], after[low:high], after_limbs[low:high] = counted[:4]
        paths[window], paths_limbs[window] = counted[4], counted[5]
    return before, before_limbs, after, after_limbs, paths, paths_limbs
