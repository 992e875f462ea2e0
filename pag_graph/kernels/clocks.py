"""Messages between two clocks: which they are, and their geometry."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.activations import I8, PROGRESS_RECEIVE, PROGRESS_SEND, RECEIVE, SEND
from pag_graph.kernels.compiling import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@kernel
def ends_between_clocks(kind: I8, peer: I64, clock_of: I64, clock: int) -> I64:
    """Return the rows of one worker that send something to another clock or read something from one.

    Parameters
    ----------
    kind, peer
        Rows of the worker; absent peers are negative.
    clock_of
        Per worker: number of its clock.
    clock
        That of the worker.

    Returns
    -------
    array
        Ascending. Progress goes to everyone, and so to all clocks.

    Examples
    --------
    >>> ends_between_clocks(np.array([SEND, SEND], np.int8), np.array([1, 2]), np.array([0, 0, 1]), 0)
    array([1])
    """
    end_rows = np.empty(kind.shape[0] + 1, np.int64)
    count = 0
    for row in range(kind.shape[0]):
        code, peer_worker = kind[row], peer[row]
        has_clock = (peer_worker >= 0) & (peer_worker < clock_of.shape[0])
        away = has_clock & (clock_of[peer_worker if has_clock else 0] != clock)
        ends = (code == SEND) | (code == RECEIVE) | (code == PROGRESS_RECEIVE)
        # Written for every row, counted for some, without a branch.
        end_rows[count] = row
        count += (code == PROGRESS_SEND) | (ends & away)
    return end_rows[:count].copy()


@kernel
def lower_hull(x: F64, y: F64) -> I64:
    """Return the indices of the lower convex hull of points.

    Parameters
    ----------
    x, y
        Points, sorted by x, then y.

    Returns
    -------
    array
        Indices of the hull's corners, by ascending x. A linear function that grows with y has its minimum over the
        points at one of them.

    Notes
    -----
    Andrew's monotone chain, O(points).

    Examples
    --------
    >>> lower_hull(np.array([0.0, 1.0, 2.0]), np.array([0.0, 5.0, 1.0]))
    array([0, 2])
    """
    hull = np.empty(len(x), np.int64)
    size = 0
    for point in range(len(x)):
        if size and x[point] == x[hull[size - 1]]:
            continue
        while size > 1:
            first, second = hull[size - 2], hull[size - 1]
            turn = (x[second] - x[first]) * (y[point] - y[first]) - (y[second] - y[first]) * (x[point] - x[first])
            if turn > 0:
                break
            size -= 1
        hull[size] = point
        size += 1
    return hull[:size].copy()
