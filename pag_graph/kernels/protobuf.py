"""Protocol buffers: the fields of many messages at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]
    U8 = NDArray[np.uint8]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
_LONGEST_VARINT = 10
_SHIFT = 7


class Fields(NamedTuple):
    """One element per field, in the order of the bytes."""

    message: NDArray[np.int64]
    """Index of the message that holds it."""
    number: NDArray[np.int64]
    """The field's number."""
    wire: NDArray[np.int64]
    """`VARINT`, `FIXED64`, `BYTES` or `FIXED32`."""
    value: NDArray[np.int64]
    """The number of a varint or a fixed field; of bytes, where they begin."""
    end: NDArray[np.int64]
    """Of bytes, where they end; else 0."""


@kernel
def varint(data: U8, begin: int, end: int) -> tuple[Any, int]:
    """Read a number.

    Parameters
    ----------
    data
        Bytes.
    begin, end
        Where the number begins, and where its message ends.

    Returns
    -------
    value
        Its lowest 64 bits, as a signed number.
    next
        The place after it; -1 if the number is cut off, or longer than ten bytes.

    Examples
    --------
    >>> varint(np.array([172, 2], np.uint8), 0, 2)
    (300, 2)
    """
    value = np.int64(0)
    for index in range(_LONGEST_VARINT):
        if begin + index >= end:
            return value, -1
        byte = np.int64(data[begin + index])
        value |= (byte & 127) << np.int64(_SHIFT * index)
        if byte < 128:  # noqa: PLR2004
            return value, begin + index + 1
    return np.int64(0), -1


@kernel
def fields(data: U8, begins: I64, ends: I64) -> tuple[Fields, NDArray[np.bool_]]:
    """List the fields of messages, none of what lies inside a field.

    Parameters
    ----------
    data
        Bytes.
    begins, ends
        Where each message begins and ends.

    Returns
    -------
    fields : Fields
        Of messages in order.
    damaged : array of bool
        Per message: whether a field in it is cut off or of no known kind; those before it are there.

    Notes
    -----
    O(bytes): they are gone through twice.

    Examples
    --------
    Field 1 is the number 5; field 2 is two bytes.

    >>> listed, damaged = fields(np.array([8, 5, 18, 2, 65, 66], np.uint8), np.array([0]), np.array([6]))
    >>> listed.number, listed.value, listed.end, damaged
    (array([1, 2]), array([5, 4]), array([0, 6]), array([False]))
    """
    damaged = np.zeros(len(begins), np.bool_)
    count = 0
    columns = np.empty((5, 0), np.int64)
    for turn in range(2):
        # The first turn counts, the second one fills.
        if turn:
            columns = np.empty((5, count), np.int64)
        count = 0
        for message in range(len(begins)):
            end: int = ends[message]
            place: int = begins[message]
            while place < end:
                key, place = varint(data, place, end)
                wire = key & 7
                value: Any = np.int64(0)
                value_end: Any = np.int64(0)
                if place < 0 or key <= 0:
                    damaged[message] = True
                    break
                if wire == VARINT:
                    value, place = varint(data, place, end)
                elif wire == BYTES:
                    size, value = varint(data, place, end)
                    place = -1 if value < 0 or size < 0 or size > end - value else value + size
                    value_end = place
                elif wire in (FIXED64, FIXED32):
                    width = 8 if wire == FIXED64 else 4
                    if place + width <= end:
                        for index in range(width):
                            value |= np.int64(data[place + index]) << np.int64(8 * index)
                        place += width
                    else:
                        place = -1
                else:
                    place = -1
                if place < 0:
                    damaged[message] = True
                    break
                if turn:
                    columns[0, count], columns[1, count], columns[2, count] = message, key >> 3, wire
                    columns[3, count], columns[4, count] = value, value_end
                count += 1
    return Fields(columns[0], columns[1], columns[2], columns[3], columns[4]), damaged
