"""Activities of a worker as a tree: which one runs inside which, and which do not fit into each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]


@kernel
def nest(worker: I64, start: I64, end: I64) -> tuple[I64, I64, I64]:
    """Nest intervals into each other; one that another cuts across ends where the other one starts.

    Parameters
    ----------
    worker, start, end
        One element per interval, sorted by worker, then start ascending, then end descending; ``start < end``.

    Returns
    -------
    parent : array of int64
        Index of the innermost interval that contains this one, or -1.
    ended : array of int64
        Its end: `end`, or earlier where another interval cuts across it.
    cut_by : array of int64
        Index of the interval that cuts it short, or -1.

    Notes
    -----
    Linear. What is cut away of an interval is covered by the one that cuts it, so the time that all intervals of a
    worker cover together stays the same, and the start of none is moved.

    Examples
    --------
    The second runs inside the first, and the third cuts across the first.

    >>> nest(np.array([0, 0, 0]), np.array([0, 2, 5]), np.array([8, 4, 9]))
    (array([-1,  0, -1]), array([5, 4, 9]), array([ 2, -1, -1]))
    """
    rows = len(worker)
    parent = np.full(rows, -1, np.int64)
    cut_by = np.full(rows, -1, np.int64)
    ended = end.copy()
    stack = np.empty(rows, np.int64)
    depth = 0
    for row in range(rows):
        if row and worker[row] != worker[row - 1]:
            depth = 0
        while depth and ended[stack[depth - 1]] <= start[row]:
            depth -= 1
        while depth and ended[stack[depth - 1]] < end[row]:
            depth -= 1
            ended[stack[depth]] = start[row]
            cut_by[stack[depth]] = row
        if depth:
            parent[row] = stack[depth - 1]
        stack[depth] = row
        depth += 1
    return parent, ended, cut_by


@kernel
def depths(parent: I64, chosen: NDArray[np.bool_]) -> tuple[I64, NDArray[np.bool_]]:
    """Follow the parents of intervals.

    Parameters
    ----------
    parent
        As from `nest`: parents come before their children.
    chosen
        A mark per interval.

    Returns
    -------
    depth : array of int64
        How many intervals contain this one.
    inside : array of bool
        Whether any of them is marked.

    Notes
    -----
    Linear.

    Examples
    --------
    >>> depths(np.array([-1, 0, 1]), np.array([True, False, False]))
    (array([0, 1, 2]), array([False,  True,  True]))
    """
    depth = np.zeros(len(parent), np.int64)
    is_inside = np.zeros(len(parent), np.bool_)
    for row in range(len(parent)):
        outer = parent[row]
        if outer >= 0:
            depth[row] = depth[outer] + 1
            is_inside[row] = is_inside[outer] or chosen[outer]
    return depth, is_inside


@kernel
def fit(worker: I64, start: I64, end: I64, tolerance: int) -> I64:
    """Shorten intervals that outlast the one that they begin in by no more than a tolerance.

    Parameters
    ----------
    worker, start, end
        As for `nest`.
    tolerance
        Rounding of the clock.

    Returns
    -------
    array of int64
        The end of each: that of the interval in which it begins, where it is shortened; else `end`.

    Notes
    -----
    Linear. Nested intervals are shortened from the outside in.

    Examples
    --------
    >>> fit(np.array([0, 0, 0]), np.array([0, 2, 6]), np.array([8, 9, 20]), 1)
    array([ 8,  8, 20])
    """
    rows = len(worker)
    fitted = end.copy()
    stack = np.empty(rows, np.int64)
    depth = 0
    for row in range(rows):
        if row and worker[row] != worker[row - 1]:
            depth = 0
        while depth and fitted[stack[depth - 1]] <= start[row]:
            depth -= 1
        if depth:
            outer = fitted[stack[depth - 1]]
            if outer < fitted[row] <= outer + tolerance:
                fitted[row] = outer
        stack[depth] = row
        depth += 1
    return fitted
