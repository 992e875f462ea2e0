"""How many messages one worker reads, per epoch, channel, sender and type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels import ABSENT
from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I8, I64
    from pag_graph.kernels.reads import Reads, Rows

I32 = NDArray[np.int32]

EPOCH, CHANNEL, SENDER, READER, TYPE, MESSAGES, RECORDS, BYTES, COLUMNS = range(9)
"""Columns of a sum, and how many there are; the key comes first."""


class _Sums(NamedTuple):
    """Sums that one worker's reads begin, with room for more."""

    numbers: I64
    """A row each: columns `EPOCH` to `BYTES`."""
    table: I32
    """Per slot the number of a sum, or -1; a power of two."""


def sum_reads(rows: Rows, reads: Reads, kind: I8, worker: int) -> I64:
    """Count what one worker reads, messages to itself included.

    Parameters
    ----------
    rows, reads
        Of the worker; what nobody is known to have sent is not counted.
    kind
        Per read: a number for the type of its message.
    worker
        Its number.

    Returns
    -------
    array
        One row per epoch of the send, channel, sender and type, in the order in which they come; columns `EPOCH` to
        `BYTES`. Records and bytes are `ABSENT` where one message does not tell. O(reads).

    Examples
    --------
    Worker 1 reads 7 records of worker 0, and 2 of its own.

    >>> from pag_graph.kernels.reads import Reads, Rows
    >>> columns = np.array([[0, 0], [60, 61], [0, 1], [3, 3], [7, 2], [8, ABSENT]])
    >>> rows, read = (
    ...     Rows(*columns, np.empty(0, np.int64)),
    ...     Reads(np.array([0, 1], np.int32), *np.zeros((3, 2), np.int64)),
    ... )
    >>> sum_reads(rows, read, np.array([8, 8], np.int8), 1).tolist()
    [[0, 3, 0, 1, 8, 1, 7, 8], [0, 3, 1, 1, 8, 1, 2, -1]]
    """
    room = _FEW << (len(reads.row) // (_PER_SUM * _FEW)).bit_length()
    while True:
        sums = _Sums(np.empty((room, COLUMNS), np.int64), np.full(4 * room, -1, np.int32))
        count = _fill_sums(rows, reads, kind, sums)
        if count >= 0:
            numbers = sums.numbers[:count].copy()
            numbers[:, READER] = worker
            return numbers
        room *= 8


_FEW = 1024
"""For how many sums there is room at least, a power of two."""
_PER_SUM = 4
"""How many reads share a sum, if they are few; where there is no room left, all is counted again."""


@kernel
def _fill_sums(rows: Rows, reads: Reads, kind: I8, sums: _Sums) -> int:
    """Do as `sum_reads`, except for the reader; return how many sums there are, -1 if there is not room for them."""
    _, _, peer, channel, records, size, _ = rows
    read_rows, send_id, _, send_epoch = reads
    numbers, table = sums
    mask = table.shape[0] - 1
    count = 0
    for place in range(read_rows.shape[0]):
        if send_id[place] < 0:
            continue
        row = read_rows[place]
        mixed: Any = (
            np.uint64(send_epoch[place]) * np.uint64(0x9E3779B97F4A7C15)
            + np.uint64(channel[row]) * np.uint64(0xC2B2AE3D27D4EB4F)
            + np.uint64(peer[row]) * np.uint64(0xBF58476D1CE4E5B9)
            + np.uint64(kind[place])
        )
        slot: Any = np.int64(mixed >> np.uint64(32)) & mask
        entry = table[slot]
        while entry >= 0 and not (
            (numbers[entry, EPOCH] == send_epoch[place])
            & (numbers[entry, CHANNEL] == channel[row])
            & (numbers[entry, SENDER] == peer[row])
            & (numbers[entry, TYPE] == kind[place])
        ):
            slot = (slot + 1) & mask
            entry = table[slot]
        if entry < 0:
            if count == numbers.shape[0]:
                return -1
            entry = count
            table[slot] = count
            count += 1
            numbers[entry, EPOCH], numbers[entry, CHANNEL], numbers[entry, SENDER] = (
                send_epoch[place],
                channel[row],
                peer[row],
            )
            numbers[entry, TYPE] = kind[place]
            numbers[entry, MESSAGES], numbers[entry, RECORDS], numbers[entry, BYTES] = 0, 0, 0
        numbers[entry, MESSAGES] += 1
        # One message of unknown size makes the sum unknown for good.
        is_known = (records[row] >= 0) & (numbers[entry, RECORDS] >= 0)
        numbers[entry, RECORDS] = numbers[entry, RECORDS] + records[row] if is_known else ABSENT
        is_known = (size[row] >= 0) & (numbers[entry, BYTES] >= 0)
        numbers[entry, BYTES] = numbers[entry, BYTES] + size[row] if is_known else ABSENT
    return count
