"""Blocks of bytes that the interpreter would take too long for: LZF, and xxHash32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

_MASK = np.uint64(0xFFFFFFFF)
# Bytes that xxHash32 takes at a time; what LZF writes as a run of literals, and the length that says more follows.
_STRIPE, _LITERALS, _LONG = 16, 32, 7
_P1, _P2, _P3, _P4, _P5 = (np.uint64(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393))


@numba.njit(cache=True)
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    value &= _MASK
    return ((value << np.uint64(bits)) | (value >> np.uint64(32 - bits))) & _MASK


@numba.njit(cache=True)
def _word(content: Bytes, at: int) -> np.uint64:
    value = np.uint64(0)
    for place in range(4):
        value |= np.uint64(content[at + place]) << np.uint64(8 * place)
    return value


@numba.njit(cache=True)
def xxhash32(content: Bytes, seed: int) -> int:
    """Return the xxHash32 of `content`.

    Parameters
    ----------
    content
        Any number of bytes.
    seed
        Start value of 32 bits.

    Returns
    -------
    int
        32 bits.
    """
    size, at, start = content.size, 0, np.uint64(seed)
    if size >= _STRIPE:
        a, b, c, d = start + _P1 + _P2, start + _P2, start, start - _P1
        while at <= size - _STRIPE:
            a = _rotate((a + _word(content, at) * _P2) & _MASK, 13) * _P1 & _MASK
            b = _rotate((b + _word(content, at + 4) * _P2) & _MASK, 13) * _P1 & _MASK
            c = _rotate((c + _word(content, at + 8) * _P2) & _MASK, 13) * _P1 & _MASK
            d = _rotate((d + _word(content, at + 12) * _P2) & _MASK, 13) * _P1 & _MASK
            at += _STRIPE
        value = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
    else:
        value = start + _P5
    value = (value + np.uint64(size)) & _MASK
    while at <= size - 4:
        value = _rotate((value + _word(content, at) * _P3) & _MASK, 17) * _P4 & _MASK
        at += 4
    while at < size:
        value = _rotate((value + np.uint64(content[at]) * _P5) & _MASK, 11) * _P1 & _MASK
        at += 1
    value = ((value ^ (value >> np.uint64(15))) * _P2) & _MASK
    value = ((value ^ (value >> np.uint64(13))) * _P3) & _MASK
    return int(value ^ (value >> np.uint64(16)))


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
    at, done, end, size = 0, 0, block.size, out.size
    while at < end:
        control = int(block[at])
        at += 1
        if control < _LITERALS:
            length = control + 1
            if at + length > end or done + length > size:
                return False
            for place in range(length):
                out[done + place] = block[at + place]
            at += length
        else:
            length = control >> 5
            if length == _LONG:
                if at >= end:
                    return False
                length += int(block[at])
                at += 1
            if at >= end:
                return False
            start = done - ((control & 31) << 8) - int(block[at]) - 1
            at += 1
            length += 2
            if start < 0 or done + length > size:
                return False
            # Byte by byte, for a copy may read what it writes.
            for place in range(length):
                out[done + place] = out[start + place]
        done += length
    return done == size
