"""Application activities of one worker: what the program itself says it was doing, innermost first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.activations import CLOSES_NOTHING, CLOSES_OUTER, I8, I64
from pag_graph.kernels.compiling import kernel

Flags = NDArray[np.bool_]

EVERYTHING = -2
"""Number of a stop that closes all that is open: rows are missing right before it."""


@kernel
def applications(starts: Flags, number: I64, open_number: I64, level: int = 0) -> tuple[I64, I64, I8, I64]:
    """Say, between every two marks, which application activity is innermost.

    Parameters
    ----------
    starts, number
        Per mark, in log order: whether an activity starts (or stops) there, and its number; `EVERYTHING` for a stop of
        all that is open, which never is in trouble.
    open_number
        Numbers of the activities that are open before the first mark, outermost first.
    level
        How many open activities to tell apart, from the outermost; 0 for all.

    Returns
    -------
    innermost
        Before each mark and after the last one, so one more than there are marks: index into the marks of the
        start of the innermost open activity (or of the one at `level`), or ``-2 - i`` for the i-th of those open
        before, or -1 for none.
    depth
        The same: how many are open.
    trouble
        Per mark: `CLOSES_NOTHING` for a stop of an activity that is not open, `CLOSES_OUTER` for one that closes
        others with it; else 0.
    still_open
        What is open after the last mark, outermost first, as in `innermost`.

    Notes
    -----
    One pass, O(marks + stops that close several).

    Examples
    --------
    >>> applications(np.array([True, True, False]), np.array([7, 8, 8]), np.empty(0, np.int64))[0]
    array([-1,  0,  1,  0])
    """
    marks = starts.shape[0]
    stack = np.empty(marks + open_number.shape[0], np.int64)
    numbers = np.empty(marks + open_number.shape[0], np.int64)
    size = 0
    for outer in range(open_number.shape[0]):
        stack[size], numbers[size] = -2 - outer, open_number[outer]
        size += 1
    innermost = np.full(marks + 1, -1, np.int64)
    depth = np.zeros(marks + 1, np.int64)
    trouble = np.zeros(marks, np.int8)
    for mark in range(marks):
        shown = min(size, level) if level else size
        innermost[mark] = stack[shown - 1] if shown else -1
        depth[mark] = size
        if starts[mark]:
            stack[size], numbers[size] = mark, number[mark]
            size += 1
            continue
        if number[mark] == EVERYTHING:
            size = 0
            continue
        closed = size - 1
        while closed >= 0 and numbers[closed] != number[mark]:
            closed -= 1
        if closed < 0:
            trouble[mark] = CLOSES_NOTHING
        else:
            if closed != size - 1:
                trouble[mark] = CLOSES_OUTER
            size = closed
    shown = min(size, level) if level else size
    innermost[marks] = stack[shown - 1] if shown else -1
    depth[marks] = size
    return innermost, depth, trouble, stack[:size].copy()


@kernel
def unbalanced(starts: Flags, number: I64) -> I64:
    """Leave out marks that cancel each other: a start and the stop of the same activity right after it.

    Parameters
    ----------
    starts, number
        As for `applications`.

    Returns
    -------
    array
        Indices of the marks that are left. Whatever is open before all marks, the same is open after these.

    Notes
    -----
    One pass, O(marks). This is what a slice has to tell those after it.

    Examples
    --------
    >>> unbalanced(np.array([True, True, False]), np.array([7, 8, 8]))
    array([0])
    """
    open_marks = np.empty(starts.shape[0], np.int64)
    size = 0
    for mark in range(starts.shape[0]):
        cancels = (
            size > 0
            and not starts[mark]
            and starts[open_marks[size - 1]]
            and number[open_marks[size - 1]] == number[mark]
        )
        if cancels:
            size -= 1
        else:
            if not starts[mark] and number[mark] == EVERYTHING:
                size = 0
            open_marks[size] = mark
            size += 1
    return open_marks[:size].copy()
