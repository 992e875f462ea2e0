"""What one worker's rows say of each epoch, and which numbers occur in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels import NEVER
from pag_graph.kernels.activations import EPOCH_END, I8, I64
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.layout import runs

Flags = NDArray[np.bool_]


class Rows(NamedTuple):
    """Rows of one worker in log order, one element each; neither epochs nor times decrease."""

    epoch: I64
    """The row's own label."""
    t: I64
    """Nanoseconds since the run's origin."""
    kind: I8
    """Codes of `pag_graph.kernels.activations`."""
    dropped: I8
    """0 for rows that become vertices."""
    rests: Flags
    """Whether a row only ends a rest."""


def epochs_of_rows(rows: Rows, first_order: int) -> I64:
    """Summarise rows by epoch.

    Parameters
    ----------
    rows
        Those of one worker.
    first_order
        Order of the first row on its worker, from 1.

    Returns
    -------
    array of int64
        Shape (9, epochs): a column per epoch, ascending. Its rows: the epoch; how many rows it has; first and last time
        (ns); time of the last end of the epoch; position of the last such row that is a vertex; position and time of
        the last vertex; time of the last row that is no end of an epoch, nor of a rest. What is not there is `NEVER`.
        O(rows).
    """
    epochs, counts = runs(rows.epoch)
    summary = np.empty((9, len(epochs)), np.int64)
    summary[0], summary[1], summary[4:] = epochs, counts, NEVER
    fill_epochs(rows, first_order, summary)
    return summary


@kernel
def fill_epochs(rows: Rows, first_order: int, summary: I64) -> None:
    """Do as `epochs_of_rows`, into an array whose first two rows are already filled.

    Parameters
    ----------
    rows, first_order
        As for `epochs_of_rows`.
    summary
        Shape (9, epochs). Rows 2 and 3 are written here; of the others only what is there, so they are `NEVER` before.

    Examples
    --------
    >>> kind, no = np.array([0, EPOCH_END, 0], np.int8), np.zeros(3, np.int8)
    >>> rows = Rows(np.array([4, 4, 5]), np.array([10, 20, 30]), kind, no, no.astype(np.bool_))
    >>> epochs_of_rows(rows, 1)[:5, 0]
    array([ 4,  2, 10, 20, 20])
    """
    t, kind, dropped, rests = rows.t, rows.kind, rows.dropped, rows.rests
    # Integers of any value: numba compiles what gets a constant once more for it.
    begin: Any = np.int64(0)
    closing: Any = np.int64(EPOCH_END)
    not_dropped: Any = np.int64(0)
    for number in range(summary.shape[1]):
        last = begin + summary[1, number] - 1
        summary[2, number], summary[3, number] = t[begin], t[last]
        # The last row of each sort mostly stands near the end.
        ended = _last_with_value(kind, closing, begin, last)
        if ended >= begin:
            summary[4, number] = t[ended]
        while ended >= begin and dropped[ended] != 0:
            ended = _last_with_value(kind, closing, begin, ended - 1)
        if ended >= begin:
            summary[5, number] = 2 * (first_order + ended)
        vertex = _last_with_value(dropped, not_dropped, begin, last)
        if vertex >= begin:
            summary[6, number], summary[7, number] = 2 * (first_order + vertex), t[vertex]
        worked = last
        while worked >= begin and (kind[worked] == EPOCH_END or rests[worked]):
            worked -= 1
        if worked >= begin:
            summary[8, number] = t[worked]
        begin = last + 1


@kernel
def _last_with_value(values: I8, value: int, low: int, high: int) -> int:
    """Return the last place from `low` to `high` (inclusive) that has the wanted value, or what is before them."""
    place = high
    while place >= low and values[place] != value:
        place -= 1
    return place


@kernel
def mark_numbers(kind: I8, values: I64, is_asked: Flags, marked: Flags) -> bool:
    """Mark the numbers that occur in rows of some kinds.

    Parameters
    ----------
    kind, values
        Rows of one worker; absent numbers are negative.
    is_asked
        Per kind: whether to look at its rows.
    marked
        Per number, from 0: set here where it occurs.

    Returns
    -------
    bool
        Whether there are numbers that `marked` has no place for.

    Examples
    --------
    >>> marked = np.zeros(3, np.bool_)
    >>> mark_numbers(np.array([0, 1], np.int8), np.array([2, 7]), np.array([True, False]), marked), marked
    (False, array([False, False,  True]))
    """
    too_large = False
    for row in range(kind.shape[0]):
        if is_asked[kind[row]] and values[row] >= 0:
            if values[row] < marked.shape[0]:
                marked[values[row]] = True
            else:
                too_large = True
    return too_large
