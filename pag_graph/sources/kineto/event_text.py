"""Events of a Chrome trace, as they stand in its text: plain or gzip, an object or a bare array, whole or cut short."""

from __future__ import annotations

import codecs
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from pag_graph.errors import TraceFormatError
from pag_graph.kernels.json_arrays import begin_of_array
from pag_graph.kernels.json_events import (
    BAD_NUMBER,
    BEGIN,
    COLUMNS,
    DURATION,
    END,
    FLAGS,
    NO_OBJECT,
    PHASE,
    TIME,
    find_events,
)
from pag_graph.store.capacity import lacking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["TextEvents", "looks_like_events"]

_CHUNK = 8 << 20
_LONGEST = 64 << 20
"""Characters of an event, or of what stands around the events, at most."""
_PIECE = 1 << 16
_GZIP_MEMBER = 31
"""What zlib calls a gzip header and the largest window."""
_CHECKED_EACH = 1 << 26
"""Characters that are read without asking how much memory is left."""
_NEEDED = 1 << 28
"""Bytes that these take, and what is made of their events."""
_TABLE_ROWS = 1 << 16
_BATCH = 2_000
"""Events that are parsed at a time: objects of Python take ten times the memory of their text."""
_FLOWS: Final = frozenset(b"stf")
_EVENTS: Final = np.frombuffer(b"traceEvents", np.uint8)
_GZIP = b"\x1f\x8b"


@dataclass(slots=True)
class TextEvents:
    """The events of one file, and what is said around them.

    Parameters
    ----------
    file
        To be read, once.
    flows
        Whether to return flow events too: a third of a file, which few readers need.
    progress
        Called with the bytes read so far.
    """

    file: Path
    flows: bool = False
    progress: Callable[[int], None] | None = None
    around: dict[str, Any] = field(default_factory=dict)
    """Members of the object beside its events; known when all events are read."""
    damaged: int = 0
    """Events that are no JSON, or whose times are no numbers; left out."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Flow events that were left out, by their letter."""
    truncated: str = ""
    """Why the file was not read to its end; empty if it was."""
    _tail: bytearray = field(default_factory=bytearray)
    _unchecked: int = 0

    def batches(self) -> Iterator[tuple[list[dict[str, Any]], NDArray[np.int64]]]:
        """Yield events and, a row each, `TIME`, `DURATION` and `FLAGS` as `find_events` has them.

        Raises
        ------
        TraceFormatError
            If there is no array of events.
        """
        chunks = self._chunks()
        text, begin = self._head(chunks)
        table = np.empty((_TABLE_ROWS, COLUMNS), np.int64)
        is_ended = False
        while not is_ended:
            count, place, is_ended = find_events(np.frombuffer(text, np.uint8), begin, table)
            yield from self._parsed(text, table[:count])
            if count == _TABLE_ROWS:
                begin = place
                continue
            unread, begin = text[place:], 0
            if is_ended:
                self._tail += unread
                break
            chunk_text = next(chunks, b"")
            if not chunk_text or len(unread) > _LONGEST:
                self.truncated = self.truncated or "the file ends inside its events"
                # What is left may be an event that was cut, and is counted as such only if it has begun.
                self.damaged += bool(unread.strip(b" \r\n\t,"))
                return
            text = unread + chunk_text
        for chunk in chunks:
            if len(self._tail) < _LONGEST:
                self._tail += chunk
        self._read_around()

    def _head(self, chunks: Iterator[bytes]) -> tuple[bytes, int]:
        """Return text and the place in it where events begin; what is before is remembered.

        Raises
        ------
        TraceFormatError
            If no events begin.
        """
        text = b""
        for chunk in chunks:
            text = (text + chunk).removeprefix(codecs.BOM_UTF8)
            begin = begin_of_array(np.frombuffer(text, np.uint8), _EVENTS)
            if begin >= 0:
                self._tail += text[:begin] + b"]"
                return text, begin
            if len(text) > _LONGEST:
                break
        message = f"{self.file} holds no events: neither an array nor an object with `traceEvents`."
        hint = "Give traces that torch.profiler wrote (export_chrome_trace, tensorboard_trace_handler)."
        raise TraceFormatError(message, hint, {"file": str(self.file)})

    def _chunks(self) -> Iterator[bytes]:
        try:
            with self.file.open("rb") as raw:
                zipped = raw.read(2) == _GZIP
                raw.seek(0)
                pieces = iter(lambda: raw.read(_PIECE if zipped else _CHUNK), b"")
                for chunk in self._inflated(pieces) if zipped else pieces:
                    self._check_memory(len(chunk))
                    if self.progress is not None:
                        self.progress(raw.tell())
                    yield chunk
        except OSError as error:
            message = f"{self.file} cannot be read: {error.strerror or error}."
            raise TraceFormatError(message, None, {"file": str(self.file)}) from error

    def _check_memory(self, size: int) -> None:
        """Ask now and then whether memory is left: a few bytes can stand for terabytes of events.

        Raises
        ------
        TraceFormatError
            If there is not.
        """
        self._unchecked += size
        if self._unchecked >= _CHECKED_EACH:
            self._unchecked = 0
            if (lack := lacking(_NEEDED)) is not None:
                message = f"{self.file} takes {lack}."
                hint = "Give the process more memory, or a trace of fewer steps."
                raise TraceFormatError(message, hint, {"file": str(self.file)})

    def _inflated(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield what is compressed in pieces, up to where they end or are damaged."""
        member = zlib.decompressobj(_GZIP_MEMBER)
        try:
            for piece in pieces:
                unread = piece
                while unread:
                    if member.eof:
                        member = zlib.decompressobj(_GZIP_MEMBER)
                    if chunk := member.decompress(unread, _CHUNK):
                        yield chunk
                    unread = member.unused_data if member.eof else member.unconsumed_tail
        except zlib.error as error:
            self.truncated = f"the compressed file is damaged ({error})"
        else:
            if not member.eof:
                self.truncated = "the compressed file ends in the middle"

    def _parsed(
        self, text: bytes, table: NDArray[np.int64]
    ) -> Iterator[tuple[list[dict[str, Any]], NDArray[np.int64]]]:
        bad = (table[:, FLAGS] & (NO_OBJECT | BAD_NUMBER)) != 0
        self.damaged += int(bad.sum())
        sound_rows = ~bad
        if not self.flows:
            flow = sound_rows & np.isin(table[:, PHASE], list(_FLOWS))
            self.skipped["flow"] += int(flow.sum())
            sound_rows &= ~flow
        table_kept = table[sound_rows]
        for low in range(0, len(table_kept), _BATCH):
            rows = table_kept[low : low + _BATCH]
            slices = [text[begin:end] for begin, end in rows[:, [BEGIN, END]].tolist()]
            try:
                events = orjson.loads(b"[" + b",".join(slices) + b"]")
            except orjson.JSONDecodeError:
                events = [_loaded(event_slice) for event_slice in slices]
                sound = np.array([event is not None for event in events], np.bool_)
                self.damaged += int((~sound).sum())
                rows, events = rows[sound], [event for event in events if event is not None]
            yield events, rows[:, [TIME, DURATION, FLAGS]]

    def _read_around(self) -> None:
        """Read the members of the object around the events; a bare array has none, and nothing follows it."""
        text = bytes(self._tail).strip()
        if not text.startswith(b"{"):
            if text.partition(b"[]")[2]:
                self.truncated = self.truncated or "the array of events ends before the file does"
            return
        try:
            # Head and tail without the events between them.
            members = orjson.loads(text)
        except orjson.JSONDecodeError:
            members = None
        self.around = members if isinstance(members, dict) else {}
        if members is None:
            self.truncated = self.truncated or "what stands around the events is no JSON"


def _loaded(event_text: bytes) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = orjson.loads(event_text)
    except orjson.JSONDecodeError:
        return None
    return event


def looks_like_events(file: Path) -> str | None:
    """Say why a file holds no events of a Chrome trace; None if it looks as if it did."""
    try:
        with file.open("rb") as raw:
            head = raw.read(_PIECE)
        if head.startswith(_GZIP):
            # What is cut short is read as far as it goes.
            head = zlib.decompressobj(_GZIP_MEMBER).decompress(head, _PIECE)
    except (OSError, zlib.error):
        return "it cannot be read, or is damaged from its beginning on"
    text = np.frombuffer(head.removeprefix(codecs.BOM_UTF8).lstrip(), np.uint8)
    if not len(text) or text[0] not in b"{[":
        return "it is no JSON"
    if begin_of_array(text, _EVENTS) < 0 and b'"schemaVersion"' not in head and b'"traceName"' not in head:
        return "it is JSON without `traceEvents`"
    return None if b'"ph"' in head or begin_of_array(text, _EVENTS) < 0 else "it holds no events of a Chrome trace"
