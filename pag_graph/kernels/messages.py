"""Which sends each receive belongs to, by a hash table of the sends, where their order tells nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.layout import mixed_with

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64

I32 = NDArray[np.int32]

EVERYONE = -1
"""Receiver of a progress message, which goes to all workers."""
NOBODY = -2
"""Receiver of a data message of which the log does not say where it goes."""


_LINE_BITS = 4
"""Slots of a cache line, as a power of two: sixteen numbers of four bytes."""


@kernel
def _bits(slots: int) -> int:
    bits = 0
    while (1 << bits) < slots:
        bits += 1
    return bits


@kernel
def _slot(keys: I64, row: int, key: I64, table: I32, bits: int) -> int:
    """Return where in the table the key of a row is, or the free slot where it belongs.

    Messages of one channel carry numbers that follow each other, and are sent and read nearly in that order: sixteen
    such numbers share a cache line of the table, so that most of what is looked up was fetched by the one before.
    """
    last = keys.shape[1] - 1
    mixed: Any = np.uint64(0)
    for column in range(last):
        mixed = mixed_with(mixed, keys[row, column])
    mixed = mixed_with(mixed, keys[row, last] >> _LINE_BITS)
    line: Any = np.int64((np.uint64(mixed) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits + _LINE_BITS))
    slot: Any = (line << _LINE_BITS) | (keys[row, last] & ((1 << _LINE_BITS) - 1))
    while table[slot] >= 0:
        is_equal = True
        for column in range(keys.shape[1]):
            is_equal &= keys[row, column] == key[table[slot], column]
        if is_equal:
            break
        slot = (slot + 1) & (table.shape[0] - 1)
    return slot  # type: ignore[no-any-return]


@kernel
def index_sends(key: I64) -> tuple[I32, I32]:
    """Make the hash table of sends.

    Parameters
    ----------
    key
        Shape (sends, columns), in order; the last column is a number that counts messages.

    Returns
    -------
    table
        Per slot the first send with a key, or -1; its length is a power of two, at least twice the number of sends.
    following
        Per send: the next one with the same key, or -1.

    Notes
    -----
    O(sends).

    Examples
    --------
    Both sends have one key.

    >>> table, following = index_sends(np.array([[3, 7], [3, 7]]))
    >>> following
    array([ 1, -1], dtype=int32)
    """
    sends = key.shape[0]
    bits = max(_LINE_BITS + 1, _bits(2 * sends))
    table = np.full(1 << bits, -1, np.int32)
    following = np.full(sends, -1, np.int32)
    newest = np.empty(sends, np.int32)
    for send in range(sends):
        slot = _slot(key, send, key, table, bits)
        first = table[slot]
        if first < 0:
            table[slot] = send
            newest[send] = send
        else:
            following[newest[first]] = send
            newest[first] = send
    return table, following


@kernel
def pair(key: I64, sends: I64, table: I32, following: I32) -> tuple[I64, I64]:
    """Find all sends of receives.

    Parameters
    ----------
    key
        Shape (receives, columns): a row per receive.
    sends
        Shape (sends, columns): the key of each.
    table, following
        As from `index_sends` of the same keys.

    Returns
    -------
    receive, send
        Per pair, in the order of the receives, then of the sends.

    Notes
    -----
    O(receives + pairs).

    Examples
    --------
    >>> sends = np.array([[3, 7], [3, 8]])
    >>> pair(np.array([[3, 8]]), sends, *index_sends(sends))
    (array([0]), array([1]))
    """
    bits = _bits(table.shape[0])
    first = np.empty(key.shape[0], np.int64)
    count = 0
    for row in range(key.shape[0]):
        first[row] = table[_slot(key, row, sends, table, bits)]
        send = first[row]
        while send >= 0:
            count += 1
            send = following[send]
    receive, sends_found = np.empty(count, np.int64), np.empty(count, np.int64)
    count = 0
    for row in range(key.shape[0]):
        send = first[row]
        while send >= 0:
            receive[count], sends_found[count] = row, send
            count += 1
            send = following[send]
    return receive, sends_found
