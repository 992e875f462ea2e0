r"""Event log files as Spark writes them: plain, gzip, zstd, and the framings of lz4, snappy and lzf from Java.

Every decoder gives what it can decode: a file that ends in the middle of a block, or is damaged in the middle, gives
all bytes before and one note that says where it stopped.

Framings, all without an index:

``lz4`` (``LZ4BlockOutputStream`` of lz4-java)
    Blocks of ``LZ4Block``, one byte of method (``0x10`` stored, ``0x20`` LZ4) and level, then three little-endian
    32-bit numbers: compressed length, length, and xxHash32 of the content (28 bits). A block of length 0 ends a stream;
    another stream may follow.
``snappy`` (``SnappyOutputStream`` of snappy-java)
    ``\x82SNAPPY\0``, two big-endian versions, then blocks: big-endian length, raw Snappy. Another header may follow.
``lzf`` (``LZFOutputStream`` of compress-lzf)
    Blocks of ``ZV``, one byte of method (0 stored, 1 LZF), big-endian 16-bit length of the block, and for LZF the
    16-bit length of its content.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["CODECS", "DECODERS", "DamagedError", "Stopped", "codec_of", "decode", "zstd"]

CODECS = ("plain", "gzip", "zstd", "lz4", "snappy", "lzf")
"""Names of the encodings that can be read."""

_CHUNK = 1 << 20
# What is decoded before a damaged place is lost with the piece that it is in: pieces of zstd are small.
_ZSTD_INPUT, _ZSTD_OUTPUT = 1 << 18, 1 << 16
_LZ4 = b"LZ4Block"
_LZ4_STORED, _LZ4_COMPRESSED = 0x10, 0x20
_LZ4_SEED = 0x9747B28C
_SNAPPY = b"\x82SNAPPY\x00"
_MAGIC = {
    "gzip": b"\x1f\x8b",
    "zstd": b"\x28\xb5\x2f\xfd",
    "lz4": _LZ4,
    "snappy": _SNAPPY,
    "lzf": b"ZV",
}
# No writer makes larger blocks (lz4 and snappy up to 32 MiB by their settings); a damaged length must not take the
# machine's memory.
_LARGEST = 64 << 20


class Stopped(NamedTuple):
    """Where and why decoding stopped before the end of a file."""

    offset: int
    """Bytes of the file that were used."""
    reason: str
    """``truncated`` or ``damaged``."""


class DamagedError(Exception):
    """A block contradicts its framing."""


def codec_of(path: Path) -> str:
    """Return the encoding of a file by its first bytes, one of `CODECS`; an empty file is plain."""
    return codec_so_far(path) or "plain"


def codec_so_far(path: Path) -> str | None:
    """Return the encoding of a file that grows; None as long as its first bytes do not tell."""
    with path.open("rb") as file:
        head = file.read(max(len(magic) for magic in _MAGIC.values()))
    for name, magic in _MAGIC.items():
        if head.startswith(magic):
            return name
    is_too_short = any(magic.startswith(head) for magic in _MAGIC.values())
    return None if is_too_short else "plain"


def decode(
    path: Path, *, stopped: Callable[[Stopped], None], progress: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """Yield the content of a log file piece by piece.

    Parameters
    ----------
    path
        File in any of `CODECS`, told apart by its first bytes.
    stopped
        Called once if the file is truncated or damaged; everything before was yielded.
    progress
        Called with the bytes of the file that were read so far.

    Yields
    ------
    bytes
        Pieces of at most some MiB, which may end within a line.
    """
    decoder = DECODERS[codec_of(path)]
    with path.open("rb") as file:
        try:
            for piece in decoder(file):
                yield piece
                if progress is not None:
                    progress(file.tell())
        except EOFError:
            stopped(Stopped(file.tell(), "truncated"))
        except (DamagedError, OSError, pa.ArrowException, zlib.error, zstd.ZstdError):
            stopped(Stopped(file.tell(), "damaged"))


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_CHUNK):
        yield piece


def _gzip(file: BinaryIO) -> Iterator[bytes]:
    inflate, in_member = zlib.decompressobj(31), False
    while piece := file.read(_CHUNK):
        while piece:
            in_member = True
            # A mebibyte of zeros in gzip is a gibibyte of content: take it in pieces.
            content = inflate.decompress(piece, _CHUNK * 4)
            if content:
                yield content
            if inflate.eof:
                piece, inflate, in_member = inflate.unused_data, zlib.decompressobj(31), False
            else:
                piece = inflate.unconsumed_tail
    if in_member and not inflate.eof:
        raise EOFError


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    # Spark closes a frame at every flush; another one follows.
    frame, in_frame = zstd.ZstdDecompressor(), False
    while piece := file.read(_ZSTD_INPUT):
        while piece or not frame.needs_input:
            content = frame.decompress(piece, _ZSTD_OUTPUT)
            if content:
                yield content
            in_frame = not frame.eof
            piece, frame = (b"", frame) if in_frame else (frame.unused_data, zstd.ZstdDecompressor())
    if in_frame:
        raise EOFError


def _exactly(file: BinaryIO, size: int) -> bytes:
    if size > _LARGEST:
        raise DamagedError
    piece = file.read(size)
    if len(piece) < size:
        raise EOFError
    return piece


def _lz4(file: BinaryIO) -> Iterator[bytes]:
    codec = pa.Codec("lz4_raw")
    while head := file.read(len(_LZ4)):
        if len(head) < len(_LZ4):
            raise EOFError
        if head != _LZ4:
            raise DamagedError
        method = _exactly(file, 1)[0] & 0xF0
        packed, size, check = (int.from_bytes(_exactly(file, 4), "little") for _ in range(3))
        if method not in {_LZ4_STORED, _LZ4_COMPRESSED} or size > _LARGEST:
            raise DamagedError
        if not size:
            if packed:
                raise DamagedError
            continue
        block = _exactly(file, packed)
        content = block if method == _LZ4_STORED else codec.decompress(block, size, asbytes=True)
        if len(content) != size or xxhash.xxh32_intdigest(content, _LZ4_SEED) & 0xFFFFFFF != check:
            raise DamagedError
        yield content


def _snappy(file: BinaryIO) -> Iterator[bytes]:
    codec = pa.Codec("snappy")
    while head := file.read(4):
        if len(head) < 4:  # noqa: PLR2004 the length's own width
            raise EOFError
        if head == _SNAPPY[:4]:
            if _exactly(file, len(_SNAPPY) - 4) != _SNAPPY[4:]:
                raise DamagedError
            _exactly(file, 8)
            continue
        block = _exactly(file, int.from_bytes(head, "big"))
        size = _varint(block)
        if size > _LARGEST:
            raise DamagedError
        content = codec.decompress(block, size, asbytes=True)
        yield content


def _varint(block: bytes) -> int:
    """Return the length that raw Snappy begins with."""
    length = 0
    for place, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 the bit that says that more follows
            return length
    raise DamagedError


def _lzf(file: BinaryIO) -> Iterator[bytes]:
    while head := file.read(3):
        if len(head) < 3:  # noqa: PLR2004 the head's own width
            raise EOFError
        if head[:2] != _MAGIC["lzf"] or head[2] > 1:
            raise DamagedError
        packed = int.from_bytes(_exactly(file, 2), "big")
        if head[2] == 0:
            yield _exactly(file, packed)
            continue
        size = int.from_bytes(_exactly(file, 2), "big")
        yield _lzf_block(_exactly(file, packed), size)


def _lzf_block(block: bytes, size: int) -> bytes:
    # The compiler behind it takes a while to load: only those pay who have such a log.
    from pag_graph.sources.spark.lzf import expand_lzf

    content = np.empty(size, np.uint8)
    if not expand_lzf(np.frombuffer(block, np.uint8), content):
        raise DamagedError
    return content.tobytes()


DECODERS: dict[str, Callable[[BinaryIO], Iterator[bytes]]] = {
    "plain": _plain,
    "gzip": _gzip,
    "zstd": _zstd,
    "lz4": _lz4,
    "snappy": _snappy,
    "lzf": _lzf,
}
"""Per encoding: yields the content of an open file from where it stands; a block that is cut short ends it."""
