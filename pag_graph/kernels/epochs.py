"""What one worker's rows say of each epoch, and which numbers occur in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.activations import EPOCH_END, I8, I64
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.layout import runs

Flags = NDArray[np.bool_]


@kernel
def epochs_of_rows(epoch: I64, t: I64, kind: I8, dropped: I8, rests: Flags, first_order: int) -> I64:
    """Summarise rows by epoch.

    Parameters
    ----------
    epoch, t, kind
        Rows of one worker in log order; neither epochs nor times decrease.
    dropped
        0 for rows that become vertices.
    rests
        Whether a row only ends a rest.
    first_order
        Order of the first row.

    Returns
    -------
    array
        A column per epoch and nine rows: epoch; rows; first and last time; time of the last end of the epoch; position
        of the last such row that is a vertex; position and time of the last vertex; time of the last row that is no
        end of an epoch, nor of a rest. What is not there is the smallest integer.
    """
    epochs, rows = runs(epoch)
    never = np.iinfo(np.int64).min
    found = np.empty((9, epochs.shape[0]), np.int64)
    # Integers of any value: numba compiles what gets a constant once more for it.
    begin: Any = np.int64(0)
    closing: Any = np.int64(EPOCH_END)
    kept: Any = np.int64(0)
    for at in range(epochs.shape[0]):
        for row in range(4, 9):
            found[row, at] = never
        last = begin + rows[at] - 1
        found[0, at], found[1, at], found[2, at], found[3, at] = epochs[at], rows[at], t[begin], t[last]
        # What comes last of each sort mostly stands near the end.
        ended = _last(kind, closing, begin, last)
        if ended >= begin:
            found[4, at] = t[ended]
        while ended >= begin and dropped[ended] != 0:
            ended = _last(kind, closing, begin, ended - 1)
        if ended >= begin:
            found[5, at] = 2 * (first_order + ended)
        vertex = _last(dropped, kept, begin, last)
        if vertex >= begin:
            found[6, at], found[7, at] = 2 * (first_order + vertex), t[vertex]
        other = last
        while other >= begin and (kind[other] == EPOCH_END or rests[other]):
            other -= 1
        if other >= begin:
            found[8, at] = t[other]
        begin = last + 1
    return found


@kernel
def _last(values: I8, wanted: int, low: int, high: int) -> int:
    """Return the last place from `low` to `high` (inclusive) that has the wanted value, or what is before them."""
    place = high
    while place >= low and values[place] != wanted:
        place -= 1
    return place


@kernel
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
