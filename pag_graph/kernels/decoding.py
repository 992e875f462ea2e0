"""From Arrow's buffers to columns that kernels read, and what must hold of each log."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels import ABSENT
from pag_graph.kernels.compiling import kernel

I8 = NDArray[np.int8]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


@kernel
def widen(values: Any, target: I64) -> tuple[int, int]:
    """Copy integers that are all there, and return the least and the greatest of them.

    Parameters
    ----------
    values
        Integers of any width.
    target
        As many, as int64.

    Returns
    -------
    low, high
        The largest and the smallest int64 where there are no values.

    Examples
    --------
    >>> into = np.empty(2, np.int64)
    >>> widen(np.array([7, 3], np.int32), into), into
    ((3, 7), array([7, 3]))
    """
    low: Any = np.iinfo(np.int64).max
    high: Any = np.iinfo(np.int64).min
    for i in range(values.shape[0]):
        value = np.int64(values[i])
        target[i] = value
        low, high = min(low, value), max(high, value)
    return low, high


@kernel
def fill_absent(values: Any, valid: U8, first: int, target: I64) -> tuple[int, int]:
    """Copy integers, with `ABSENT` in place of null, and return the least and the greatest that are not null.

    Parameters
    ----------
    values
        Integers of any width; those that are null may be anything.
    valid, first
        A bit per value, the lowest of a byte first, and the place of the first value's bit.
    target
        As many, as int64.

    Returns
    -------
    low, high
        The largest and the smallest int64 where all are null.

    Examples
    --------
    >>> into = np.empty(2, np.int64)
    >>> fill_absent(np.array([7, 3], np.int32), np.array([0b10], np.uint8), 0, into), into
    ((3, 3), array([-1,  3]))
    """
    least: Any = np.iinfo(np.int64).min
    greatest: Any = np.iinfo(np.int64).max
    low, high = greatest, least
    start: Any = np.uint64(first)
    for i in range(values.shape[0]):
        # Selects instead of branches, and places without a sign: so the loop runs in vector registers.
        bit: Any = start + np.uint64(i)
        is_valid = (valid[bit >> np.uint64(3)] >> np.uint8(bit & np.uint64(7))) & np.uint8(1) != 0
        value = np.int64(values[i])
        target[i] = value if is_valid else ABSENT
        low, high = min(low, value if is_valid else greatest), max(high, value if is_valid else least)
    return low, high


@kernel
def decode(places: Any, valid: U8, first: int, codes: I8, target: I8) -> None:
    """Replace places in a dictionary by codes.

    Parameters
    ----------
    places
        Integers of any width; those that are null may be anything.
    valid, first
        As for `fill_absent`; no bits where none is null.
    codes
        Per word of the dictionary; the last one is that of null.
    target
        As many as there are places.

    Examples
    --------
    >>> into = np.empty(3, np.int8)
    >>> decode(np.array([1, 0, 1]), np.array([0b011], np.uint8), 0, np.array([5, 6, -1], np.int8), into)
    >>> into
    array([ 6,  5, -1], dtype=int8)
    """
    all_valid = valid.shape[0] == 0
    for i in range(places.shape[0]):
        bit = first + i
        if all_valid or (valid[bit >> 3] >> (bit & 7)) & 1:
            target[i] = codes[places[i]]
        else:
            target[i] = codes[codes.shape[0] - 1]


@kernel
def in_order(seq: I64, epoch: I64, t: I64) -> bool:
    """Say whether numbers increase, and neither epochs nor times decrease.

    Parameters
    ----------
    seq, epoch, t
        Rows of one worker in log order.

    Returns
    -------
    bool
        True also of no rows or one. O(rows).

    Examples
    --------
    >>> in_order(np.array([1, 2]), np.array([0, 0]), np.array([9, 9]))
    True
    """
    wrong = 0
    for row in range(1, seq.shape[0]):
        wrong |= (seq[row] <= seq[row - 1]) | (epoch[row] < epoch[row - 1]) | (t[row] < t[row - 1])
    return wrong == 0
