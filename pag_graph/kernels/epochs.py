"""What one worker's rows say of each epoch, and which numbers occur in them."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.activations import EPOCH_END, I8, I64

Flags = NDArray[np.bool_]


@numba.njit(cache=True, nogil=True)
def epochs_of_rows(epoch: I64, t: I64, kind: I8, dropped: I8, first_order: int) -> I64:
    """Summarise rows by epoch.

    Parameters
    ----------
    epoch, t, kind
        Rows of one worker in log order; epochs do not decrease.
    dropped
        0 for rows that become vertices.
    first_order
        Order of the first row.

    Returns
    -------
    array
        A column per epoch and nine rows: epoch; rows; first and last time; time of the last end of the epoch; position
        of the last such row that is a vertex; position and time of the last vertex; time of the last row that is no
        end of an epoch. What is not there is the smallest integer.
    """
    rows = epoch.shape[0]
    count = 0
    for row in range(rows):
        count += row == 0 or epoch[row] != epoch[row - 1]
    found = np.empty((9, count), np.int64)
    never = np.iinfo(np.int64).min
    at, begin = 0, 0
    while begin < rows:
        first, last = t[begin], t[begin]
        ended, end_pos, last_pos, last_t, unended = never, never, never, never, never
        row = begin
        while row < rows and epoch[row] == epoch[begin]:
            first, last = min(first, t[row]), max(last, t[row])
            pos = 2 * (first_order + row)
            if kind[row] == EPOCH_END:
                ended = t[row]
                if dropped[row] == 0:
                    end_pos = pos
            else:
                unended = max(unended, t[row])
            if dropped[row] == 0:
                last_pos, last_t = pos, t[row]
            row += 1
        found[0, at], found[1, at], found[2, at], found[3, at] = epoch[begin], row - begin, first, last
        found[4, at], found[5, at], found[6, at], found[7, at], found[8, at] = ended, end_pos, last_pos, last_t, unended
        at += 1
        begin = row
    return found


@numba.njit(cache=True, nogil=True)
def mark_numbers(kind: I8, values: I64, wanted: Flags, marked: Flags) -> bool:
    """Mark the numbers that occur in rows of some kinds.

    Parameters
    ----------
    kind, values
        Rows of one worker; absent numbers are negative.
    wanted
        Per kind: whether to look at its rows.
    marked
        Per number, from 0: set here where it occurs.

    Returns
    -------
    bool
        Whether there are numbers that `marked` has no place for.
    """
    more = False
    for row in range(kind.shape[0]):
        if wanted[kind[row]] and values[row] >= 0:
            if values[row] < marked.shape[0]:
                marked[values[row]] = True
            else:
                more = True
    return more
