"""Sends that nobody has read for long: they wait in files, so that memory holds those that are under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from pag_graph.builder.match import SENDS, first_sends

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import polars as pl
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

FILE_ROWS = 16_384
"""Sends of a file, at least."""


class SendFiles(Protocol):
    """Where such files are, as of `pag_graph.builder.sink.Sink`."""

    def write_sends(self, sends: pa.Table) -> str:
        """Take sends that wait.

        Parameters
        ----------
        sends
            Columns `SENDS`, and the list of workers that have read each.

        Returns
        -------
        str
            A name for `read_sends`.
        """
        ...

    def read_sends(self, name: str) -> pa.Table:
        """Return sends that were taken.

        Parameters
        ----------
        name
            As from `write_sends`.

        Returns
        -------
        Table
            The same rows.
        """
        ...


class SpilledFile(NamedTuple):
    """A file of sends, and what is known of those of them that still wait."""

    name: str
    """As from `SendFiles.write_sends`."""
    rows: int
    """How many of them still wait."""
    first: tuple[tuple[int, int, int], ...]
    """Per receiver: its number, or -1 for all; when the first send was made that it has not read; and the vertex."""


class Loaded(NamedTuple):
    """Sends that came back from files."""

    columns: Mapping[str, I64]
    """Columns `SENDS`."""
    readers: Mapping[int, frozenset[int]]
    """Per send that some workers have read: which."""


class Spilled:
    """Sends in files.

    Parameters
    ----------
    files
        The files.
    back
        Sends in them, by their vertices, that wait there no more: somebody read them.
    """

    def __init__(self, files: Iterable[SpilledFile] = (), back: Iterable[int] = ()) -> None:
        self.files = tuple(files)
        self.back = frozenset(back)

    @property
    def rows(self) -> int:
        """How many sends wait."""
        return sum(file.rows for file in self.files)

    def with_sends(
        self, columns: Mapping[str, I64], readers: Mapping[int, frozenset[int]], place: SendFiles
    ) -> Spilled:
        """Write more sends to a file.

        Parameters
        ----------
        columns
            Columns `SENDS`, as arrays.
        readers
            Per send, by its vertex: the workers that have read it.
        place
            Where files are.

        Returns
        -------
        Spilled
            With the new file.
        """
        reader_lists = pa.array(
            [sorted(readers.get(vertex, ())) for vertex in columns["id"].tolist()], pa.list_(pa.int64())
        )
        name = place.write_sends(pa.table({**{name: columns[name] for name in SENDS}, _READERS: reader_lists}))
        return Spilled([*self.files, SpilledFile(name, len(columns["id"]), _first(columns))], self.back)

    def take_back(self, receives: pl.DataFrame, send_files: SendFiles) -> tuple[Spilled, list[Loaded]]:
        """Look up the sends of receives, and take them back.

        Parameters
        ----------
        receives
            Columns `RECEIVES`.
        send_files
            Where files are. All of them are read.

        Returns
        -------
        spilled
            Without these sends.
        loaded
            The sends, a part per file that has some.
        """
        files, back, loaded_sends = [], self.back, []
        for file in self.files:
            table = send_files.read_sends(file.name)
            columns = _columns(table)
            waiting = ~np.isin(columns["id"], list(back))
            matched, _ = first_sends({name: values[waiting] for name, values in columns.items()}, receives)
            rows = np.unique(np.flatnonzero(waiting)[matched])
            if not len(rows):
                files.append(file)
                continue
            loaded_sends.append(_loaded(table, columns, rows))
            waiting[rows] = False
            ids = columns["id"].tolist()
            back = back | frozenset(columns["id"][rows].tolist()) if waiting.any() else back.difference(ids)
            if waiting.any():
                waiting_sends = {name: values[waiting] for name, values in columns.items()}
                files.append(SpilledFile(file.name, int(np.count_nonzero(waiting)), _first(waiting_sends)))
        return Spilled(files, back), loaded_sends

    def load(self, send_files: SendFiles) -> list[Loaded]:
        """Return all sends that wait.

        Parameters
        ----------
        send_files
            Where files are.

        Returns
        -------
        list of Loaded
            One part per file, in the order in which they were written.
        """
        loaded_sends = []
        for file in self.files:
            table = send_files.read_sends(file.name)
            columns = _columns(table)
            loaded_sends.append(_loaded(table, columns, np.flatnonzero(~np.isin(columns["id"], list(self.back)))))
        return loaded_sends


_READERS = "readers"


def _columns(table: pa.Table) -> dict[str, I64]:
    return {name: table[name].to_numpy() for name in SENDS}


def _loaded(table: pa.Table, columns: Mapping[str, I64], rows: I64) -> Loaded:
    readers = table[_READERS].take(rows).to_pylist()
    readers_of_send = {
        vertex: frozenset(workers) for vertex, workers in zip(columns["id"][rows].tolist(), readers, strict=True)
    }
    return Loaded(
        {name: values[rows] for name, values in columns.items()},
        {vertex: workers for vertex, workers in readers_of_send.items() if workers},
    )


def _first(columns: Mapping[str, I64]) -> tuple[tuple[int, int, int], ...]:
    order = np.lexsort((columns["t"], columns["receiver"]))
    _, begin = np.unique(columns["receiver"][order], return_index=True)
    first = order[begin]
    return tuple(zip(*(columns[name][first].tolist() for name in ("receiver", "t", "id")), strict=True))
