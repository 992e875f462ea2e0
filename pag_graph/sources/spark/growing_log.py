"""An event log that is being written: the lines that have come since the last look.

Of a plain file that is what was appended, up to the last whole line; of a compressed one, its whole frames or blocks.
Rolling logs go on with the next part; a compacted part stands for parts that were read, and is left out. Spark takes
``.inprogress`` off the name of a log, or of the file ``appstatus_*`` beside its parts, when the application has ended.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from pag_graph.errors import TraceFormatError
from pag_graph.sources.spark import codecs
from pag_graph.sources.spark.codecs import Stopped, zstd
from pag_graph.sources.spark.log_lines import LONGEST_LINE
from pag_graph.sources.spark.logfiles import PART

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["GrowingLog", "Position"]

_PROGRESS = ".inprogress"
_PIECE, _CONTENT = 1 << 18, 1 << 20
"""Bytes that are read and decoded at a time."""


class Position(NamedTuple):
    """A place between two lines of a log."""

    part: int = -1
    """Number of the part of a rolling log; 0 for a file."""
    offset: int = 0
    """Where in its file a frame begins, or a piece of a plain file."""
    skip: int = 0
    """Bytes of the frame's content that were read."""


class GrowingLog:
    """Follows the files of one log.

    Parameters
    ----------
    path
        File or directory, with or without ``.inprogress``; need not be there yet.
    position
        Where to go on.
    missing
        Called with the number of parts that went before they were read, before what follows is.
    stopped
        Called with a file's name and where it is damaged; the rest of it is left out.
    """

    def __init__(
        self,
        path: Path,
        position: Position | None = None,
        *,
        missing: Callable[[int], None],
        stopped: Callable[[str, Stopped], None],
    ) -> None:
        self._path = path
        self._missing, self._stopped = missing, stopped
        self.position = position or Position()
        """Behind the last line that was yielded."""
        self.too_long = 0
        """Lines that were left out."""
        self._next = self.position
        self._rest, self._dropping = b"", False
        self._codec: str | None = None
        self._damaged = False
        self._frame: _Frame | None = None
        self._open, self._ran = False, False
        self.in_progress = True
        """Whether its name says, or may say yet, that the application runs."""
        self.renamed = False
        """Whether it said so, and says so no more."""

    def lines(self) -> Iterator[bytes]:
        """Yield the whole lines that have come.

        Raises
        ------
        TraceFormatError
            If a file is shorter than what was read of it.
        """
        while True:
            # What there is of a part when the next one is there is all of it.
            file, later = self._file(), self._later()
            if file is not None:
                try:
                    yield from self._lines_of(file)
                except FileNotFoundError:
                    # It got its last name just now.
                    return
            if later is None:
                return
            if file is not None:
                yield from self._end_of(file)
            self._begin(later, missed=later - self._next.part - (file is not None))

    def ends(self) -> Iterator[bytes]:
        """Yield the last line, where it lacks its end; to be called when nothing follows."""
        if (file := self._file()) is not None:
            yield from self._end_of(file)

    # --- Files --------------------------------------------------------------------------------------------------------

    def _file(self) -> Path | None:
        """Return the file to read from now, if there is one."""
        name = self._path.name.removesuffix(_PROGRESS)
        for path in dict.fromkeys((self._path, self._path.with_name(name), self._path.with_name(name + _PROGRESS))):
            if path.is_dir():
                return self._part_of(path)
            if path.is_file():
                self._say(running=path.name.endswith(_PROGRESS))
                self._next = self._next._replace(part=0)
                return path
        return None

    def _say(self, *, running: bool) -> None:
        self.renamed = self.renamed or (self._ran and not running)
        self.in_progress, self._ran = running, running

    def _parts(self, folder: Path) -> tuple[dict[int, Path], int]:
        """Return the parts that are there but for compacted ones, and the number of the last compacted one."""
        parts, compact = {}, -1
        for entry in folder.iterdir():
            if (match := PART.match(entry.name)) is None:
                continue
            if entry.name.endswith(".compact"):
                compact = max(compact, int(match[1]))
            else:
                parts[int(match[1])] = entry
        return parts, compact

    def _part_of(self, folder: Path) -> Path | None:
        self._say(running=any(entry.name.endswith(_PROGRESS) for entry in folder.glob("appstatus_*")))
        parts, compact = self._parts(folder)
        if self._next.part < 0:
            if compact >= 0:
                # Nothing was read yet: it has all that is left of the first parts.
                self._next = Position(compact)
            elif parts:
                first_part = min(parts)
                if first_part > 1:
                    self._missing(first_part - 1)
                self._next = Position(first_part)
        number = self._next.part
        if number in parts:
            return parts[number]
        compacted = [entry for entry in folder.glob(f"events_{number}_*.compact") if number == compact]
        return compacted[0] if compacted else None

    def _later(self) -> int | None:
        """Return the number of the next part, if there is one."""
        if self._next.part < 0 or not self._path.is_dir():
            return None
        return min((number for number in self._parts(self._path)[0] if number > self._next.part), default=None)

    def _begin(self, part: int, *, missed: int) -> None:
        """Go on with a part; say how many before it went before they were read."""
        self._next, self._codec, self._frame, self._damaged = Position(part), None, None, False
        if missed:
            self._rest, self._dropping = b"", False
            self._missing(missed)

    def _end_of(self, file: Path) -> Iterator[bytes]:
        """Yield the last line of a file to which nothing is added any more, where it lacks its end."""
        in_frame = self._frame is not None and self._frame.taken > 0
        self._frame = None
        if in_frame or self._open:
            self._stopped(file.name, Stopped(file.stat().st_size, "truncated"))
        if self._dropping:
            self.too_long += 1
        elif self._rest:
            yield self._rest
        self._rest, self._dropping, self._open = b"", False, False

    # --- Lines --------------------------------------------------------------------------------------------------------

    def _lines_of(self, path: Path) -> Iterator[bytes]:
        if self._damaged:
            return
        with path.open("rb") as file:
            size, position = file.seek(0, 2), self._next
            if self._codec is None and size:
                self._codec = codecs.codec_so_far(path)
            read_bytes = position.offset + (position.skip if self._codec == "plain" else 0)
            if size < read_bytes:
                message = f"{path} is shorter than what was read of it: {size} bytes, not {read_bytes}."
                raise TraceFormatError(message, "Follow the new log into a store of its own.", {"file": str(path)})
            if self._codec is None:
                return
            for offset, base, content in self._contents(path.name, file, position.offset):
                skip = max(0, position.skip - base) if offset == position.offset else 0
                if skip < len(content):
                    yield from self._cut(content, Position(position.part, offset, base), skip)
                self._next = Position(position.part, offset, base + len(content))

    def _cut(self, content: bytes, place: Position, begin: int) -> Iterator[bytes]:
        """Yield the lines that end in a piece of content, which begins at a place."""
        while (end := content.find(b"\n", begin)) >= 0:
            line = self._rest + content[begin:end]
            too_long = self._dropping or len(line) > LONGEST_LINE
            begin, self._rest, self._dropping = end + 1, b"", False
            self.too_long += too_long
            self.position = place._replace(skip=place.skip + begin)
            if line and not too_long:
                yield line
        self._rest += content[begin:]
        if len(self._rest) > LONGEST_LINE:
            self._rest, self._dropping = b"", True

    def _contents(self, name: str, file: BinaryIO, offset: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield what has come, with where its frame or block begins, and how much of that came before."""
        reader = {"zstd": self._frames, "gzip": self._frames}.get(str(self._codec), self._blocks)
        try:
            yield from reader(file, offset)
        except (codecs.DamagedError, OSError, pa.ArrowException, zlib.error, zstd.ZstdError):
            self._damaged, self._frame = True, None
            self._stopped(name, Stopped(file.tell(), "damaged"))

    def _blocks(self, file: BinaryIO, offset: int) -> Iterator[tuple[int, int, bytes]]:
        # The block that was read last is decoded again, and what was read of it is left out.
        self._open = False
        file.seek(offset)
        try:
            for content in codecs.DECODERS[str(self._codec)](file):
                yield offset, 0, content
                offset = file.tell()
        except EOFError:
            self._open = True

    def _frames(self, file: BinaryIO, offset: int) -> Iterator[tuple[int, int, bytes]]:
        frame = self._frame or _Frame(str(self._codec), offset)
        file.seek(frame.offset + frame.taken)
        while piece := file.read(_PIECE):
            frame.taken += len(piece)
            while piece or frame.more:
                content, piece = frame.decode(piece)
                if content:
                    yield frame.offset, frame.base, content
                    frame.base += len(content)
                if frame.whole:
                    after = frame.offset + frame.taken - len(piece)
                    frame = _Frame(str(self._codec), after)
                    frame.taken = len(piece)
        self._frame = frame


class _Frame:
    """A frame of zstd or gzip that comes in pieces."""

    def __init__(self, codec: str, offset: int) -> None:
        self.offset = offset
        """Where it begins in the file."""
        self.taken = 0
        """Bytes of it that were read."""
        self.base = 0
        """Bytes of its content that were read."""
        self._gzip = codec == "gzip"
        self._decoder: Any = zlib.decompressobj(31) if self._gzip else zstd.ZstdDecompressor()

    @property
    def whole(self) -> bool:
        """Whether it has ended."""
        return bool(self._decoder.eof)

    @property
    def more(self) -> bool:
        """Whether there is content that needs no more bytes."""
        return not self._gzip and not self.whole and not self._decoder.needs_input

    def decode(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return some content, and the bytes that were not needed for it."""
        content = self._decoder.decompress(piece, _CONTENT)
        if self.whole:
            return content, bytes(self._decoder.unused_data)
        return content, bytes(self._decoder.unconsumed_tail) if self._gzip else b""
