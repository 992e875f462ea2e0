"""Numbers of paths through a graph, however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.kernels.activations import I64

    F64 = NDArray[np.float64]

LIMB_BITS = 256
"""A number is ``mantissa * 2**(256 * limbs)``; the mantissa stays below 2^256, so that products do not overflow."""

_LIMB = 2.0**LIMB_BITS


@kernel
def _add(mantissa: float, limbs: int, more: float, more_limbs: int) -> tuple[float, int]:
    """Add two numbers; what the larger one cannot hold is rounded off, as with all floating-point numbers."""
    if more == 0.0:
        return mantissa, limbs
    if mantissa == 0.0 or more_limbs > limbs:
        mantissa, limbs, more, more_limbs = more, more_limbs, mantissa, limbs
    if more_limbs < limbs - 1:
        # The smaller number is below the last bit of the larger one: 2^256 against 2^53.
        return mantissa, limbs
    if more_limbs < limbs:
        more /= _LIMB
    mantissa += more
    if mantissa >= _LIMB:
        return mantissa / _LIMB, limbs + 1
    return mantissa, limbs


@kernel
def count_paths(
    first: I64, src: I64, dst: I64, starts: NDArray[np.bool_], ends: NDArray[np.bool_]
) -> tuple[F64, I64, F64, I64, float, int]:
    """Count the paths from any start to every vertex, and from every vertex to any end.

    Parameters
    ----------
    first, src, dst
        Arcs grouped by `dst`, as in `pag_graph.kernels.replay`; vertices are in topological order.
    starts, ends
        Per vertex: whether paths begin there, and whether they end there.

    Returns
    -------
    before, before_limbs
        Per vertex: the paths from any start to it.
    after, after_limbs
        Per vertex: the paths from it to any end.
    paths, paths_limbs
        All paths from a start to an end.

    Notes
    -----
    O(vertices + arcs). Exact up to 2^53 paths; beyond it the relative error is at most 2^-53 per addition.
    """
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
    vertex_first: I64, first: I64, src: I64, dst: I64, starts: NDArray[np.bool_], ends: NDArray[np.bool_]
) -> tuple[F64, I64, F64, I64, F64, I64]:
    """Count the paths of several graphs side by side.

    Parameters
    ----------
    vertex_first
        Shape (windows + 1,): where the vertices of each graph begin.
    first, src, dst, starts, ends
        As for `count_paths`.

    Returns
    -------
    before, before_limbs, after, after_limbs
        As of `count_paths`.
    paths, paths_limbs
        Per window.
    """
    windows, vertices = vertex_first.shape[0] - 1, first.shape[0] - 1
    before, before_limbs = np.zeros(vertices), np.zeros(vertices, np.int64)
    after, after_limbs = np.zeros(vertices), np.zeros(vertices, np.int64)
    paths, paths_limbs = np.zeros(windows), np.zeros(windows, np.int64)
    for window in range(windows):
        low, high = vertex_first[window], vertex_first[window + 1]
        begin, end = first[low], first[high]
        counted = count_paths(
            first[low : high + 1] - begin, src[begin:end] - low, dst[begin:end] - low, starts[low:high], ends[low:high]
        )
        before[low:high], before_limbs[low:high], after[low:high], after_limbs[low:high] = counted[:4]
        paths[window], paths_limbs[window] = counted[4], counted[5]
    return before, before_limbs, after, after_limbs, paths, paths_limbs
