"""How many messages one worker reads, per epoch, channel, sender and type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels import ABSENT
from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64
    from pag_graph.kernels.reads import Reads, Rows

I32 = NDArray[np.int32]

EPOCH, CHANNEL, SENDER, READER, TYPE, MESSAGES, RECORDS, BYTES, COLUMNS = range(9)
"""Columns of a sum, and how many there are; the key comes first."""


class _Sums(NamedTuple):
    """Sums that one worker's reads begin, with room for more."""

    numbers: I64
    """A row each: columns `EPOCH` to `BYTES`."""
    latest: I32
    """Per slot of a channel, sender and type: the sum that one of those was added to last, or -1; a power of two."""


_SLOTS = 4096
"""For so many channels, senders and types there is a slot: few enough for the processor's caches."""


def sum_reads(rows: Rows, reads: Reads, worker: int) -> I64:
    """Count what one worker reads, messages to itself included.

    Parameters
    ----------
    rows, reads
        Of the worker; what nobody is known to have sent is not counted.
    worker
        Its number.

    Returns
    -------
    array
        Rows per epoch of the send, channel, sender and type, columns `EPOCH` to `BYTES`; mostly one, and several where
        epochs take turns (`added_up`). Records and bytes are `ABSENT` where one message does not tell. O(reads).

    Examples
    --------
    Worker 1 reads 7 records of worker 0, and 2 of its own.

    >>> from pag_graph.kernels.reads import Reads, Rows
    >>> columns = np.array([[0, 0], [60, 61], [0, 1], [3, 3], [7, 2], [8, ABSENT]])
    >>> rows, read = (
    ...     Rows(*columns, np.empty(0, np.int64)),
    ...     Reads(np.array([0, 1], np.int32), np.array([0, 1]), *np.zeros((3, 2), np.int64), np.array([8, 8], np.int8)),
    ... )
    >>> sum_reads(rows, read, 1).tolist()
    [[0, 3, 0, 1, 8, 1, 7, 8], [0, 3, 1, 1, 8, 1, 2, -1]]
    """
    room = 1 + len(reads.row) // _PER_SUM
    while True:
        sums = _Sums(np.empty((room, COLUMNS), np.int64), np.full(_SLOTS, -1, np.int32))
        count = _fill_sums(rows, reads, worker, sums)
        if count >= 0:
            return sums.numbers[:count]
        room *= 8


_PER_SUM = 4
"""How many reads share a sum, if they are few; where there is no room left, all is counted again."""


@kernel
def _fill_sums(rows: Rows, reads: Reads, worker: int, sums: _Sums) -> int:
    """Do as `sum_reads`, and return how many sums there are; -1 if there is not room for them."""
    _, _, _, channel, records, size, _ = rows
    read_rows, sender, send_id, _, send_epoch, kind = reads
    numbers, latest = sums
    mask = latest.shape[0] - 1
    count = 0
    entry: Any = -1
    for place in range(read_rows.shape[0]):
        if send_id[place] < 0:
            continue
        row = read_rows[place]
        key: Any = (send_epoch[place], channel[row], sender[place], np.int64(kind[place]))
        # Most reads are like the one before, and most others like the last one of their channel and sender. What is
        # neither begins a new sum, though there may be one: so nothing is searched.
        if entry < 0 or not _has_key(numbers, entry, key):
            mixed: Any = (
                np.uint64(key[1]) * np.uint64(0xC2B2AE3D27D4EB4F)
                + np.uint64(key[2]) * np.uint64(0xBF58476D1CE4E5B9)
                + np.uint64(key[3]) * np.uint64(0x9E3779B97F4A7C15)
            )
            slot: Any = np.int64(mixed >> np.uint64(32)) & mask
            entry = np.int64(latest[slot])
            if entry < 0 or not _has_key(numbers, entry, key):
                if count == numbers.shape[0]:
                    return -1
                entry = count
                latest[slot] = count
                count += 1
                numbers[entry, EPOCH], numbers[entry, CHANNEL], numbers[entry, SENDER], numbers[entry, TYPE] = key
                numbers[entry, READER] = worker
                numbers[entry, MESSAGES], numbers[entry, RECORDS], numbers[entry, BYTES] = 0, 0, 0
        numbers[entry, MESSAGES] += 1
        numbers[entry, RECORDS] = _plus(numbers[entry, RECORDS], records[row])
        numbers[entry, BYTES] = _plus(numbers[entry, BYTES], size[row])
    return count


@kernel
def _has_key(numbers: I64, entry: int, key: tuple[int, int, int, int]) -> bool:
    """Say whether a sum is of an epoch, channel, sender and type."""
    # One branch that is mostly foreseen.
    return (  # type: ignore[no-any-return]
        (numbers[entry, EPOCH] == key[0])
        & (numbers[entry, CHANNEL] == key[1])
        & (numbers[entry, SENDER] == key[2])
        & (numbers[entry, TYPE] == key[3])
    )


@kernel
def _plus(total: int, value: int) -> int:
    """Add to a sum: one message of unknown size makes it unknown for good."""
    return total + value if (total >= 0) & (value >= 0) else ABSENT


def added_up(numbers: I64) -> I64:
    """Sort sums by their keys, and make one of those that have one key.

    Parameters
    ----------
    numbers
        A row each, columns `EPOCH` to `BYTES`.

    Returns
    -------
    array
        A row per key, ascending in the columns before `MESSAGES`. O(rows log rows), and less where they are in order
        already.

    Examples
    --------
    >>> added_up(np.array([[1, 3, 0, 1, 8, 1, 7, 8], [0, 3, 0, 1, 8, 2, 5, 8], [1, 3, 0, 1, 8, 1, 2, -1]])).tolist()
    [[0, 3, 0, 1, 8, 2, 5, 8], [1, 3, 0, 1, 8, 2, 9, -1]]
    """
    packed = _packed(numbers)
    if len(packed) == len(numbers):
        return _merged(numbers, np.argsort(packed, kind="stable"))
    return _merged(numbers, np.lexsort(np.ascontiguousarray(numbers[:, TYPE::-1].T)))


@kernel
def _packed(numbers: I64) -> I64:
    """Return a number per row that orders them as their keys do; none at all where the numbers would be too large."""
    least, most = numbers[:1, :MESSAGES].sum(axis=0), numbers[:1, :MESSAGES].sum(axis=0)
    for row in range(numbers.shape[0]):
        for column in range(MESSAGES):
            least[column] = min(least[column], numbers[row, column])
            most[column] = max(most[column], numbers[row, column])
    values = 1.0
    for column in range(MESSAGES):
        values *= np.float64(most[column]) - np.float64(least[column]) + 1
    if values >= _MANY:
        return np.empty(0, np.int64)
    factors = most - least + 1
    packed = np.empty(numbers.shape[0], np.int64)
    for row in range(numbers.shape[0]):
        value = 0
        for column in range(MESSAGES):
            value = value * factors[column] + numbers[row, column] - least[column]
        packed[row] = value
    return packed


_MANY = 2.0**52
"""Numbers up to here are counted exactly, also as floating-point numbers."""


@kernel
def _merged(numbers: I64, order: I64) -> I64:
    """Return sums in an order, those with one key as one."""
    merged = np.empty(numbers.shape, np.int64)
    count = 0
    for place in range(order.shape[0]):
        row = order[place]
        is_same = count > 0
        for column in range(MESSAGES):
            is_same &= numbers[row, column] == merged[count - 1, column]
        if is_same:
            merged[count - 1, MESSAGES] += numbers[row, MESSAGES]
            for column in (RECORDS, BYTES):
                merged[count - 1, column] = _plus(merged[count - 1, column], numbers[row, column])
        else:
            for column in range(COLUMNS):
                merged[count, column] = numbers[row, column]
            count += 1
    return merged[:count]
