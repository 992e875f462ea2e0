"""Blocks of LZF, which the interpreter would take too long for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

# What is written as a run of literals, and the length that says more follows.
_LITERALS, _LONG = 32, 7


@numba.njit(cache=True)
def expand_lzf(block: Bytes, out: Bytes) -> bool:
    """Expand one block of LZF: runs of literals, and copies from what was written before.

    Parameters
    ----------
    block
        The compressed bytes.
    out
        Where to put the content; its length is that of the content.

    Returns
    -------
    bool
        Whether the block is in order and fills `out`.
    """
    position, written, end, size = 0, 0, block.size, out.size
    while position < end:
        control = int(block[position])
        position += 1
        if control < _LITERALS:
            length = control + 1
            if position + length > end or written + length > size:
                return False
            for byte in range(length):
                out[written + byte] = block[position + byte]
            position += length
        else:
            length = control >> 5
            if length == _LONG:
                if position >= end:
                    return False
                length += int(block[position])
                position += 1
            if position >= end:
                return False
            source = written - ((control & 31) << 8) - int(block[position]) - 1
            position += 1
            length += 2
            if source < 0 or written + length > size:
                return False
            # Byte by byte, for a copy may read what it writes.
            for byte in range(length):
                out[written + byte] = out[source + byte]
        written += length
    return written == size
