"""Geometry of messages between two clocks."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@numba.njit(cache=True)
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
    """
    hull = np.empty(len(x), np.int64)
    size = 0
    for point in range(len(x)):
        if size and x[point] == x[hull[size - 1]]:
            continue
        while size > 1:
            one, two = hull[size - 2], hull[size - 1]
            turn = (x[two] - x[one]) * (y[point] - y[one]) - (y[two] - y[one]) * (x[point] - x[one])
            if turn > 0:
                break
            size -= 1
        hull[size] = point
        size += 1
    return hull[:size].copy()
