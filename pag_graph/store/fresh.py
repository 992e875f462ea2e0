"""Rows of files that this process has just written: who asks for them next need not read them again."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.model.live_tables import ALL_TABLES
from pag_graph.store.parts import check_parts, write_part

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from pag_graph.store.parts import PartFile

_MOST_BYTES = 256 << 20
"""What stays in memory until it is committed: a million edges have 140 MB."""
_POLARS = {name: dict(pl.DataFrame(pl.from_arrow(schema.empty_table())).schema) for name, schema in ALL_TABLES.items()}
_AFTERWARDS = 64 << 20
"""What stays after that: windows that are answered next seldom reach further back."""
_COLUMN_BYTES = 1_800
"""What a column takes beside its values: of a file with ten rows, 30 times as much as these."""


class Fresh:
    """Rows of the last commits' files, for as long as standing queries look at them.

    Attributes
    ----------
    wanted
        Whether anybody will ask; else nothing is kept.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._rows: dict[str, pl.DataFrame] = {}
        self._bytes: dict[str, int] = {}

    def add(self, table: str, part: PartFile | None, content: pa.Table | pl.DataFrame) -> None:
        """Keep the rows of a file, unless there are many already.

        Parameters
        ----------
        table
            Name out of `ALL_TABLES`.
        part
            The file that was written of them, if one was.
        content
            Its rows; words may be dictionary-encoded.
        """
        if not self.wanted or part is None:
            return
        new_bytes = int(content.estimated_size()) if isinstance(content, pl.DataFrame) else int(content.nbytes)
        # Of a copy, which is made at once: files are written by several threads.
        if sum(list(self._bytes.values())) + new_bytes <= _MOST_BYTES:
            rows = (
                content
                if isinstance(content, pl.DataFrame)
                else pl.DataFrame(pl.from_arrow(content.cast(ALL_TABLES[table])))
            )
            self._rows[part.path] = rows
            self._bytes[part.path] = int(rows.estimated_size()) + _COLUMN_BYTES * rows.width

    def rows(self, part: PartFile) -> pl.DataFrame | None:
        """Return the rows of a file.

        Parameters
        ----------
        part
            The file.

        Returns
        -------
        DataFrame or None
            None where they have to be read.
        """
        return self._rows.get(part.path)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files whose rows it keeps, the oldest first."""
        return tuple(self._rows)

    def let_go(self, files: Sequence[str]) -> None:
        """Let go of the oldest of some files, as far as they are many.

        Parameters
        ----------
        files
            Paths of those that are committed, the oldest first.
        """
        kept_bytes = sum(self._bytes[path] for path in files)
        for path in files:
            if kept_bytes <= _AFTERWARDS:
                return
            del self._rows[path]
            kept_bytes -= self._bytes.pop(path)


def write_and_keep(
    store: Path, table: str, content: pa.Table, fresh: Fresh | None, *, provisional: bool = False
) -> PartFile | None:
    """Write rows of a table as a new file, and keep them for who asks for them next.

    Parameters
    ----------
    store, table, content, provisional
        As for `pag_graph.store.parts.write_part`.
    fresh
        Keeps them; None where nobody will ask.

    Returns
    -------
    PartFile or None
        None where there are no rows.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    part = write_part(store, table, content, provisional=provisional)
    if fresh is not None:
        fresh.add(table, part, content)
    return part


def rows_of_files(folder: Path, parts: Sequence[PartFile], fresh: Fresh | None) -> pl.LazyFrame:
    """Return a lazy frame over files of a table, each found to be as it was committed unless it was just written.

    Parameters
    ----------
    folder
        Directory of the table, out of `ALL_TABLES`.
    parts
        The files.
    fresh
        What this process has just written, if anything.

    Returns
    -------
    LazyFrame
        Their rows as they stand there, file after file.

    Raises
    ------
    StoreError
        If a file is missing or damaged.
    """
    frames, schema = [], _POLARS[folder.name]
    known = {} if fresh is None else {part.path: rows for part in parts if (rows := fresh.rows(part)) is not None}
    for in_memory, group in groupby(parts, lambda part: part.path in known):
        files = list(group)
        if in_memory:
            frames += [known[part.path].lazy() for part in files]
            continue
        check_parts(folder, files)
        paths = [str(folder / part.path) for part in files]
        # Files of earlier releases may lack a column that is optional.
        frames.append(
            pl.scan_parquet(paths, schema=schema, glob=False, hive_partitioning=False, missing_columns="insert")
        )
    return pl.concat(frames) if frames else pl.LazyFrame(schema=schema)
