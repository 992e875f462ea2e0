"""Where the rows of slices go: files of a store, which nobody sees before they are committed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from pag_graph.model.enums import ActivityType, EventKind, VertexKind
from pag_graph.runtime.threads import each
from pag_graph.store.contents import SLICED
from pag_graph.store.parts import PartFile, as_provisional, discard, write_part
from pag_graph.store.state_files import read_sends, write_sends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.rules.graph_columns import Edges, GraphColumns, Traffic, Vertices
    from pag_graph.store.fresh import Fresh

    U64 = NDArray[np.uint64]

_FILE_ROWS = 1_000_000
"""Rows of a file, about; those of a slice are written at the same time."""
_WORDS = {str(word): code for code, word in enumerate((*ActivityType, *EventKind, *VertexKind))}


class Written(NamedTuple):
    """What a sink made of a slice."""

    parts: dict[str, list[PartFile]]
    """Files per table."""
    prints: U64
    """A number per epoch of the vertices, and then of the edges, that depends on all their rows; empty where nobody
    asks later what was written."""


class Sink(Protocol):
    """Where the rows of slices go."""

    def write(self, graph: GraphColumns, *, provisional: bool, prints: bool = True) -> Written:
        """Take the rows of a slice.

        Parameters
        ----------
        graph
            The rows, laid out in the order of epochs.
        provisional
            Whether an append replaces them.
        prints
            Whether to make the numbers by which an append finds out whether closed epochs changed.

        Returns
        -------
        Written
            Files and numbers.
        """
        ...

    def discard(self, parts: Mapping[str, Sequence[PartFile]]) -> None:
        """Take back what was written.

        Parameters
        ----------
        parts
            Per table: files of `write`.
        """
        ...

    def reopen(self, parts: Mapping[str, Sequence[PartFile]]) -> dict[str, list[PartFile]]:
        """Make what was written provisional after all; return its files.

        Parameters
        ----------
        parts
            Per table: files of `write`.

        Returns
        -------
        dict
            Per table: the files that take their place.
        """
        ...

    def write_sends(self, sends: pa.Table) -> str:
        """Take sends that nobody has read for long; return what to ask for them by.

        Parameters
        ----------
        sends
            Columns `SENDS`, and who has read each.

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


class StoreSink:
    """Writes rows to the tables of a store; nobody sees them before they are committed.

    Parameters
    ----------
    store
        Directory.
    fresh
        Keeps the edges for who looks at them before they are committed, if anybody does.
    """

    def __init__(self, store: Path, fresh: Fresh | None = None) -> None:
        self.store, self._fresh = store, fresh

    def write_sends(self, sends: pa.Table) -> str:
        """Write sends into a file of their own (`Sink.write_sends`).

        Parameters
        ----------
        sends
            As for `Sink.write_sends`.

        Returns
        -------
        str
            Name of the file.

        Raises
        ------
        StoreError
            If the file system refuses.
        """
        return write_sends(self.store, sends)

    def read_sends(self, name: str) -> pa.Table:
        """Read such a file (`Sink.read_sends`).

        Parameters
        ----------
        name
            Name of the file.

        Returns
        -------
        Table
            The same rows.

        Raises
        ------
        StoreError
            If it is missing or damaged.
        """
        return read_sends(self.store, name)

    def write(self, graph: GraphColumns, *, provisional: bool, prints: bool = True) -> Written:
        """Write the rows of a slice, sorted by epoch and id, in files of about the same size.

        Parameters
        ----------
        graph, provisional, prints
            As for `Sink.write`.

        Returns
        -------
        Written
            Files of about a million rows each.

        Raises
        ------
        StoreError
            If the file system refuses.
        """
        files: list[tuple[str, Vertices | Edges | Traffic, int, int]] = []
        tables: tuple[Vertices | Edges | Traffic, ...] = (graph.vertices, graph.edges, graph.traffic)
        for name, table in zip(SLICED, tables, strict=True):
            bounds = [0, *range(_FILE_ROWS, table.rows - _FILE_ROWS // 2, _FILE_ROWS), table.rows]
            files += [(name, table, low, high) for low, high in pairwise(bounds) if low < high]

        def write(file: tuple[str, Vertices | Edges | Traffic, int, int]) -> PartFile | None:
            name, table, low, high = file
            rows = table.table(low, high)
            part = write_part(self.store, name, rows, provisional=provisional)
            if self._fresh is not None and name == "edges":
                self._fresh.add(name, part, rows)
            return part

        parts: dict[str, list[PartFile]] = {name: [] for name in SLICED}
        # The largest first, so that all cores are done at about the same time.
        files.sort(key=lambda file: file[2] - file[3])
        for (name, *_), part in zip(files, each(write, files), strict=True):
            if part is not None:
                parts[name].append(part)
        if not prints:
            return Written(parts, np.empty(0, np.uint64))
        return Written(parts, np.concatenate([table.fingerprints(_WORDS) for table in (graph.vertices, graph.edges)]))

    def discard(self, parts: Mapping[str, Sequence[PartFile]]) -> None:
        """Delete files.

        Parameters
        ----------
        parts
            As for `Sink.discard`.
        """
        for name, files in parts.items():
            discard(self.store, name, files)

    def reopen(self, parts: Mapping[str, Sequence[PartFile]]) -> dict[str, list[PartFile]]:
        """Rename files (`Sink.reopen`).

        Parameters
        ----------
        parts
            As for `Sink.reopen`.

        Returns
        -------
        dict
            Per table: the same files by their new names.
        """
        return {name: [as_provisional(self.store, name, part) for part in files] for name, files in parts.items()}
