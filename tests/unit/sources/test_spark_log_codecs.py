"""Every encoding of event logs, written by encoders of the tests' own and cut or damaged anywhere."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from pag_graph.sources.spark.codecs import CODECS, Stopped, codec_of, decode
from pag_graph.sources.spark.lzf import expand_lzf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONTENT = b"".join(
    b'{"Event":"SparkListenerTaskEnd","Stage ID":%d,"x":"%s"}\n' % (k, b"ab" * (k % 40)) for k in range(3000)
)


def hash_by_hand(content: bytes, seed: int) -> int:
    """xxHash32 after its specification, in plain integers."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF

    def rotate(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & mask

    words = [int.from_bytes(content[k : k + 4], "little") for k in range(0, len(content) // 4 * 4, 4)]
    stripes = len(content) // 16
    if stripes:
        lanes = [(seed + p1 + p2) & mask, (seed + p2) & mask, seed, (seed - p1) & mask]
        for stripe in range(stripes):
            for lane in range(4):
                lanes[lane] = rotate((lanes[lane] + words[stripe * 4 + lane] * p2) & mask, 13) * p1 & mask
        value = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        value = (seed + p5) & mask
    value = (value + len(content)) & mask
    for word in words[stripes * 4 :]:
        value = rotate((value + word * p3) & mask, 17) * p4 & mask
    for byte in content[len(words) * 4 :]:
        value = rotate((value + byte * p5) & mask, 11) * p1 & mask
    value = (value ^ (value >> 15)) * p2 & mask
    value = (value ^ (value >> 13)) * p3 & mask
    return value ^ (value >> 16)


def lz4_stream(content: bytes, block: int = 32 * 1024) -> bytes:
    codec, out = pa.Codec("lz4_raw"), b""
    for start in range(0, len(content), block):
        piece = content[start : start + block]
        packed = codec.compress(piece, asbytes=True)
        method, body = (0x20, packed) if len(packed) < len(piece) else (0x10, piece)
        check = hash_by_hand(piece, 0x9747B28C) & 0x0FFFFFFF
        head = [len(body), len(piece), check]
        out += b"LZ4Block" + bytes([method | 5]) + b"".join(n.to_bytes(4, "little") for n in head) + body
    return out + b"LZ4Block" + bytes([0x10 | 5]) + bytes(12)


def snappy_stream(content: bytes, block: int = 32 * 1024) -> bytes:
    codec = pa.Codec("snappy")
    out = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    for start in range(0, len(content), block):
        packed = codec.compress(content[start : start + block], asbytes=True)
        out += len(packed).to_bytes(4, "big") + packed
    return out


def lzf_pack(piece: bytes) -> bytes:
    """Pack with a table of the last place of every three bytes: short and long copies, overlapping ones too."""
    out, literals, seen, at = bytearray(), bytearray(), {}, 0

    def flush() -> None:
        for start in range(0, len(literals), 32):
            run = literals[start : start + 32]
            out.append(len(run) - 1)
            out.extend(run)
        literals.clear()

    while at < len(piece):
        key = piece[at : at + 3]
        before = seen.get(key, -1)
        seen[key] = at
        if len(key) == 3 and before >= 0 and at - before <= 8192:
            length = 3
            while at + length < len(piece) and length < 264 and piece[before + length] == piece[at + length]:
                length += 1
            flush()
            offset, rest = at - before - 1, length - 2
            if rest < 7:
                out.append((rest << 5) | (offset >> 8))
            else:
                out.extend([(7 << 5) | (offset >> 8), rest - 7])
            out.append(offset & 0xFF)
            at += length
        else:
            literals.append(piece[at])
            at += 1
    flush()
    return bytes(out)


def lzf_stream(content: bytes, block: int = 32 * 1024) -> bytes:
    out = b""
    for number, start in enumerate(range(0, len(content), block)):
        piece = content[start : start + block]
        packed = lzf_pack(piece)
        if number % 3 == 2 or len(packed) > 65535:
            out += b"ZV\x00" + len(piece).to_bytes(2, "big") + piece
        else:
            out += b"ZV\x01" + len(packed).to_bytes(2, "big") + len(piece).to_bytes(2, "big") + packed
    return out


def zstd_frames(content: bytes, frame: int = 20_000) -> bytes:
    codec = pa.Codec("zstd")
    return b"".join(codec.compress(content[k : k + frame], asbytes=True) for k in range(0, len(content), frame))


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda content: content,
    "gzip": lambda content: gzip.compress(content[:70_000]) + gzip.compress(content[70_000:]),
    "zstd": zstd_frames,
    "lz4": lambda content: lz4_stream(content[:50_000]) + lz4_stream(content[50_000:]),
    "snappy": lambda content: snappy_stream(content[:50_000]) + snappy_stream(content[50_000:]),
    "lzf": lzf_stream,
}


def read(path: Path) -> tuple[bytes, list[Stopped]]:
    stops: list[Stopped] = []
    return b"".join(decode(path, stopped=stops.append)), stops


def test_there_is_an_encoder_for_every_codec() -> None:
    assert set(ENCODERS) == set(CODECS)


@pytest.mark.parametrize("codec", CODECS)
def test_content_comes_back(codec: str, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(ENCODERS[codec](CONTENT))
    assert codec_of(file) == codec
    assert read(file) == (CONTENT, [])


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "plain"])
def test_a_file_cut_anywhere_gives_what_is_before_and_says_so(codec: str, tmp_path: Path) -> None:
    whole, file, longest = ENCODERS[codec](CONTENT), tmp_path / "log", 0
    places = [*range(8, 60), *random.Random(codec).sample(range(60, len(whole) - 14), 40), len(whole) - 14]
    for cut in sorted(places):
        file.write_bytes(whole[:cut])
        content, stops = read(file)
        assert CONTENT.startswith(content)
        # Where a block or member ends the cut cannot be seen; no byte is lost then.
        assert stops == [Stopped(cut, "truncated")] or (not stops and len(content) >= longest)
        longest = max(longest, len(content))
    assert longest > 0.8 * len(CONTENT)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "lzf", "snappy", "zstd"])
def test_damage_ends_a_file_early_or_is_seen_in_its_content(codec: str, tmp_path: Path) -> None:
    whole, file, chance = ENCODERS[codec](CONTENT), tmp_path / "log", random.Random(codec)
    for _ in range(60):
        damaged = bytearray(whole)
        at = chance.randrange(8, len(whole))
        damaged[at] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        content, stops = read(file)
        assert len(stops) <= 1
        if codec in {"gzip", "lz4"} and not stops:
            # Their checksums leave nothing damaged unseen; what changed was no content (a flag, a time).
            assert content == CONTENT


def test_a_length_that_no_writer_makes_takes_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"LZ4Block" + bytes([0x25]) + (100).to_bytes(4, "little") + b"\xff\xff\xff\x7f" + bytes(104))
    assert read(file) == (b"", [Stopped(21, "damaged")])
    file.write_bytes(snappy_stream(b"")[:16] + b"\x7f\xff\xff\xff" + b"x" * 100)
    assert read(file)[1][0].reason == "damaged"


@pytest.mark.parametrize(
    ("content", "seed", "expected"),
    [
        (b"", 0, 0x02CC5D05),
        (b"abc", 0, 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0, 0xE2293B2F),
    ],
)
def test_the_hash_of_these_encoders_is_xxhash32(content: bytes, seed: int, expected: int) -> None:
    assert hash_by_hand(content, seed) == expected


def test_a_zstd_file_that_is_damaged_gives_all_frames_before(tmp_path: Path) -> None:
    file, whole = tmp_path / "log", zstd_frames(CONTENT[:60_000])
    file.write_bytes(whole + b"xx" + whole)
    content, (stop,) = read(file)
    assert content == CONTENT[:60_000]
    assert stop.reason == "damaged"


def test_a_small_zstd_file_of_much_content_is_taken_in_pieces(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(pa.Codec("zstd").compress(bytes(50 << 20), asbytes=True))
    pieces = [len(piece) for piece in decode(file, stopped=pytest.fail)]
    assert sum(pieces) == 50 << 20
    assert max(pieces) <= 1 << 16


def test_lzf_refuses_what_reaches_outside() -> None:
    for block, size in (
        (b"\x05ab", 6),  # more literals than bytes
        (b"\x20\x05", 3),  # a copy from before the beginning
        (b"\x00a\xe0", 20),  # a long copy without its length
        (b"\x00a\x20", 20),  # a copy without its offset
        (b"\x02abc", 2),  # more content than stated
        (b"\x02abc", 4),  # less content than stated
    ):
        assert not expand_lzf(np.frombuffer(block, np.uint8), np.empty(size, np.uint8))
