"""Changes and alerts as lines of JSON: to a file exactly once, to standard output and to functions at least once."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from pag_graph.errors import SinkError
from pag_graph.sinks.delivery.cursors import Cursor
from pag_graph.sinks.delivery.records import commits
from pag_graph.store.in_place import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pag_graph.sinks.delivery.records import Record
    from pag_graph.store.delta import StoreInfo


class Sink(Protocol):
    """A receiver of what was committed."""

    def deliver(self, info: StoreInfo) -> int:
        """Hand out what a state of a store has and the sink was not handed yet.

        Parameters
        ----------
        info
            The latest state.

        Returns
        -------
        int
            How many records went out.

        Raises
        ------
        SinkError
            If the sink refuses; what went out counts, and the next call goes on.
        """


class JsonLines:
    """A file with a line per change and alert, each exactly once, whenever the process is killed.

    What was written after the cursor is cut off before anything is added. So a reader may see lines twice that are
    written again, byte for byte the same; it sees none that is not committed.

    Parameters
    ----------
    store
        Directory of the store.
    file
        Made where it does not exist.
    """

    def __init__(self, store: Path, file: Path) -> None:
        self._file, self._cursor = file, Cursor(store, f"file {file.absolute()}")

    def deliver(self, info: StoreInfo) -> int:
        """Append what is new (`Sink.deliver`)."""
        cursor = self._cursor.read()
        count = 0
        with refusals(self._file, "", SinkError), self._open(int(cursor.get("bytes", 0)), new=not cursor) as file:
            for number, records in commits(info, int(cursor.get("commit", -1))):
                file.write(b"".join(record.line() for record in records))
                file.flush()
                os.fsync(file.fileno())
                self._cursor.write({"commit": number, "bytes": file.tell()})
                count += len(records)
        return count

    @contextmanager
    def _open(self, size: int, *, new: bool) -> Iterator[BinaryIO]:
        """Open the file to go on after its first bytes."""
        opened = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with os.fdopen(opened, "r+b") as file:
            size_now = os.fstat(opened).st_size
            if size_now < size or (new and size_now):
                message = f"{self._file} holds something else than was written to it: {size_now} bytes, not {size}."
                raise SinkError(message, "Choose another file.", {"file": str(self._file)})
            if new:
                # From here on the whole file is of this sink, also lines of a process killed before its first commit.
                self._cursor.write({"commit": -1, "bytes": 0})
            file.truncate(size)
            file.seek(size)
            yield file


class Callback:
    """A function that is called once per commit that has something new; again, if it had not returned.

    Parameters
    ----------
    store
        Directory of the store.
    name
        Tells this sink from others of the store, also in the next process.
    function
        Called with the records of a commit.
    """

    def __init__(self, store: Path, name: str, function: Callable[[Sequence[Record]], Any]) -> None:
        self._function, self._cursor = function, Cursor(store, f"callback {name}")

    def deliver(self, info: StoreInfo) -> int:
        """Call the function with what is new (`Sink.deliver`)."""
        count = 0
        for number, records in commits(info, int(self._cursor.read().get("commit", -1))):
            self._function(records)
            self._cursor.write({"commit": number})
            count += len(records)
        return count


def standard_output(store: Path) -> Callback:
    """Return the sink that prints lines: at least once, with keys by which a reader can tell those it has seen."""

    def write(records: Sequence[Record]) -> None:
        sys.stdout.buffer.write(b"".join(record.line() for record in records))
        sys.stdout.buffer.flush()

    return Callback(store, "-", write)
