"""Event logs that grow piece by piece, in every form that Spark writes, and traces that are made of them."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pyarrow as pa
import xxhash

from pag_graph.sources.spark.codecs import decode
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

FORMS = ("plain", "zstd", "gzip", "lz4", "snappy", "lzf", "rolled", "rolled-zstd")


def content_of(log: Path) -> list[bytes]:
    """Return the lines of a log."""
    (files,) = find_logs(log)
    content = b"".join(piece for file in files.files for piece in decode(file, stopped=print))
    return content.splitlines(keepends=True)


def packed(content: bytes, codec: str) -> bytes:
    """Return one frame or block of a codec."""
    if codec == "plain":
        return content
    if codec == "zstd":
        return bytes(pa.Codec("zstd").compress(content, asbytes=True))
    if codec == "gzip":
        return gzip.compress(content, mtime=0)
    if codec == "lz4":
        check = xxhash.xxh32_intdigest(content, 0x9747B28C) & 0xFFFFFFF
        block = bytes(pa.Codec("lz4_raw").compress(content, asbytes=True))
        numbers = b"".join(number.to_bytes(4, "little") for number in (len(block), len(content), check))
        return b"LZ4Block\x20" + numbers + block
    if codec == "snappy":
        block = bytes(pa.Codec("snappy").compress(content, asbytes=True))
        return len(block).to_bytes(4, "big") + block
    pieces = (content[begin : begin + 65_535] for begin in range(0, len(content), 65_535))
    return b"".join(b"ZV\x00" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


class Step(NamedTuple):
    """Something that happens to a log."""

    file: str
    """Name, below the log's folder."""
    content: bytes | None
    """Is appended; None: the file is given its new name."""
    name: str = ""


def steps(lines: list[bytes], form: str, draw: random.Random, *, name: str = "app") -> Iterator[Step]:
    """Yield how a log grows in a form: pieces that part frames and lines anywhere, and new names at the end.

    Parameters
    ----------
    lines
        What is written.
    form
        One of `FORMS`.
    draw
        Where it is cut.
    name
        Of the log.
    """
    rolled, codec = form.startswith("rolled"), form.rsplit("-", maxsplit=1)[-1]
    codec = "plain" if codec == "rolled" else codec
    part_count = draw.randint(1, 4) if rolled else 1
    cuts = sorted(draw.choices(range(len(lines) + 1), k=part_count - 1))
    for part_number, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(lines)], strict=True), 1):
        file = f"eventlog_v2_{name}/events_{part_number}_{name}" if rolled else f"{name}.inprogress"
        if rolled and part_number == 1:
            yield Step(f"eventlog_v2_{name}/appstatus_{name}.inprogress", b"")
        content = b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" if codec == "snappy" else b""
        line = low
        while line < high:
            upto = min(high, line + draw.randint(1, 40))
            content += packed(b"".join(lines[line:upto]), codec)
            line = upto
        if rolled and not content:
            # Spark makes a part before anything is in it.
            yield Step(file, b"")
        while content:
            size = draw.choice((1, 17, 300, 5_000, 100_000))
            yield Step(file, content[:size])
            content = content[size:]
    if rolled:
        yield Step(f"eventlog_v2_{name}/appstatus_{name}.inprogress", None, f"eventlog_v2_{name}/appstatus_{name}")
    else:
        yield Step(f"{name}.inprogress", None, name)


def grow(folder: Path, step: Step) -> None:
    """Let a step happen."""
    file = folder / step.file
    file.parent.mkdir(parents=True, exist_ok=True)
    if step.content is None:
        file.rename(folder / step.name)
        return
    with file.open("ab") as to:
        to.write(step.content)


def log_in(folder: Path, form: str, name: str = "app") -> Path:
    """Return where a log of a form is."""
    return folder / (f"eventlog_v2_{name}" if form.startswith("rolled") else f"{name}.inprogress")


def told(trace: Path) -> tuple[object, ...]:
    """Return all that a trace says, row by row."""
    opened = Trace.open(trace)
    tables = (opened.operators, opened.channels, opened.workers, opened.findings)
    events = pl.DataFrame(opened.events()).sort("worker", "seq")
    return opened.meta, *(sorted(map(str, table.to_pylist())) for table in tables), events.rows()
