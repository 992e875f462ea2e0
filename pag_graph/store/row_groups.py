"""Row groups that were decoded: kept for whoever asks for them again, which is the next stretch or the next append."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from pag_graph.store.chunks import Chunk

_KEPT_BYTES = 256 << 20
"""How much a log that is read forward keeps, at most."""
_GROWING_BYTES = 64 << 20
"""How much is kept between two appends, at most."""
_OF_EACH = 2
"""Row groups of a worker: the one in which a stretch begins may be another one than that in which it ends."""


class Decoded(NamedTuple):
    """Rows of a chunk."""

    chunk: Chunk
    """Which rows."""
    columns: frozenset[str]
    """Those that were asked for. `table` may lack some of them, which hold nothing but null."""
    table: pa.Table
    """One row per event of the chunk."""

    def is_of(self, chunk: Chunk) -> bool:
        """Say whether these are the rows of a chunk, and its file is the same one.

        Parameters
        ----------
        chunk
            The chunk, with size and time of change of its file.

        Returns
        -------
        bool
            False of a file that took the other one's place.
        """
        return self.chunk == chunk and self.chunk.of_file == chunk.of_file

    def lacks(self, columns: Sequence[str]) -> list[str]:
        """Return those columns that nobody has asked for.

        Parameters
        ----------
        columns
            Names of `TRACE_EVENTS`.

        Returns
        -------
        list of str
            In their order.
        """
        return [name for name in columns if name not in self.columns]

    def with_columns(self, names: Sequence[str], added: pa.Table) -> Decoded:
        """Return the same rows with more columns.

        Parameters
        ----------
        names
            Columns that were asked for.
        added
            Those of them that hold anything; as many rows as the chunk has.

        Returns
        -------
        Decoded
            A new one.
        """
        table = self.table
        for field in added.schema:
            table = table.append_column(field, added[field.name])
        return Decoded(self.chunk, self.columns.union(names), table)

    def select(self, columns: Sequence[str]) -> pa.Table:
        """Return columns that were asked for before.

        Parameters
        ----------
        columns
            Their names.

        Returns
        -------
        Table
            Without those that hold nothing but null.
        """
        present = set(self.table.schema.names)
        return self.table.select([name for name in columns if name in present])


class RowGroups:
    """The row groups of each worker that were decoded last; threads may share it.

    Parameters
    ----------
    known
        Per worker, what to begin with.
    """

    def __init__(self, known: dict[int, tuple[Decoded, ...]] | None = None) -> None:
        self._of = dict(known or {})
        # To add it up each time would take the square of the number of workers.
        self._bytes = sum(decoded.table.nbytes for groups in self._of.values() for decoded in groups)
        self._lock = Lock()

    def __len__(self) -> int:
        """Return of how many workers there are some."""
        return len(self._of)

    def of(self, worker: int, chunk: Chunk) -> Decoded | None:
        """Return what is there of a chunk.

        Parameters
        ----------
        worker
            Whose chunk.
        chunk
            The chunk.

        Returns
        -------
        Decoded or None
            None where nothing is there of it.
        """
        return next((decoded for decoded in self._of.get(worker, ()) if decoded.is_of(chunk)), None)

    def keep(self, worker: int, decoded: Decoded) -> None:
        """Keep a chunk in the place of what there was of it, and of the worker's oldest one.

        Parameters
        ----------
        worker
            Whose chunk.
        decoded
            The chunk; if there is no room, nothing of the worker is kept.
        """
        with self._lock:
            before = self._of.pop(worker, ())
            groups_kept = [group for group in before if not group.is_of(decoded.chunk)][1 - _OF_EACH :]
            self._bytes -= sum(group.table.nbytes for group in before)
            groups = (*groups_kept, decoded) if self._bytes < _KEPT_BYTES else ()
            if groups:
                self._of[worker] = groups
                self._bytes += sum(group.table.nbytes for group in groups)

    def last(self) -> dict[int, tuple[Decoded, ...]]:
        """Return the last row group of each worker, as far as it may stay between two appends.

        Returns
        -------
        dict
            Per worker, its last row group alone; 64 MiB together at most.
        """
        size, last = 0, {}
        for worker, groups in self._of.items():
            size += groups[-1].table.nbytes
            # A file that cannot be told from another one is read again.
            if size <= _GROWING_BYTES and min(groups[-1].chunk.of_file) >= 0:
                last[worker] = groups[-1:]
        return last


_growing: dict[Path, RowGroups] = {}
"""Of the log that goes on of which this process has read last: the row groups in which it ended."""


def kept_of(root: Path) -> RowGroups:
    """Return the row groups with which a reader of a log may begin.

    Parameters
    ----------
    root
        Directory of the trace.

    Returns
    -------
    RowGroups
        Those that this process kept when it read the log last; empty where it did not.
    """
    decoded = _growing.get(root)
    return RowGroups(None if decoded is None else decoded.last())


def keep_last(root: Path, groups: RowGroups) -> None:
    """Keep the last row group of each worker for the next append of this process, in place of those of other logs.

    Parameters
    ----------
    root
        Directory of the trace.
    groups
        What was read of it.
    """
    _growing.clear()
    _growing[root] = RowGroups(groups.last())
