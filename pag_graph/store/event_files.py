"""One file of events: what its footer tells, and reading rows of some workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.errors import TraceFormatError
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.store.capacity import lacking
from pag_graph.store.trace_columns import (
    VOCABULARIES,
    check_columns,
    check_nulls,
    check_ranges,
    check_vocabulary,
    completed,
    encoded_schema,
)
from pag_graph.store.trace_files import DAMAGE, unreadable

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


_MANY_ROWS = 1 << 24
"""Rows that are read at once without asking how much memory there is."""
_VALUE_BYTES = 9


class RowGroup(NamedTuple):
    """Rows of one worker that a file keeps together."""

    worker: int
    """Whose they are."""
    rows: int
    """How many."""
    t_min: int
    """Their least time (ns of the worker's own clock)."""
    t_max: int
    """Their greatest time."""


class Numbers(NamedTuple):
    """Numbers that a source gave to the events of a row group."""

    low: int
    """The least `seq`."""
    high: int
    """The greatest `seq`."""
    rows: int
    """How many events the row group has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFile:
    """One file of events, as far as Parquet's statistics tell."""

    name: str
    """Path inside the trace, such as ``events/worker-00000.parquet``."""
    rows: int
    """Number of events."""
    workers: tuple[int, ...]
    """Workers that have events in the file, ascending."""
    groups: tuple[RowGroup | None, ...] = ()
    """Its row groups; none where the footer does not tell that all rows are of one worker, and their times."""
    numbers: tuple[Numbers | None, ...] = ()
    """Per row group, numbers of its events; none where the footer does not tell."""
    size_bytes: int = field(default=-1, compare=False)
    """Size of the file; -1 where nobody asked the system."""
    mtime_ns: int = field(default=-1, compare=False)
    """When it was last changed (ns of Unix time); -1 likewise. A file of this name, size and time is this one."""


def open_events(root: Path, name: str, *, encoded: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a file of events.

    Parameters
    ----------
    root
        Directory of the trace.
    name
        Path of the file inside the trace.
    encoded
        Columns that come dictionary-encoded.

    Returns
    -------
    ParquetFile
        To be closed by the caller. Reads the footer.

    Raises
    ------
    TraceFormatError
        If the file is missing or damaged.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    try:
        # A file and no name: which file system it is on need not be found out.
        file = pa.OSFile(str(root / name))
        return pq.ParquetFile(file, read_dictionary=list(encoded), pre_buffer=False)
    except DAMAGE as error:
        raise unreadable(root / name, error) from error


def inspect(root: Path, name: str, status: os.stat_result | None) -> EventFile:
    """Check the columns of a file of events, and say what it holds.

    Parameters
    ----------
    root
        Directory of the trace.
    name
        Path of the file inside the trace.
    status
        What the system told of the file before; None where nobody asked it.

    Returns
    -------
    EventFile
        Reads the footer; rows only of files whose footer does not tell the workers.

    Raises
    ------
    TraceFormatError
        If the file is missing or damaged, or a row has no worker.
    MissingColumnError
        If it lacks a column.
    SchemaError
        If a column has another type than declared.
    """
    file, size, mtime = root / name, -1, -1
    if status is not None:
        size, mtime = status.st_size, status.st_mtime_ns
    with open_events(root, name) as parquet:
        check_columns(parquet.schema_arrow, TRACE_EVENTS, where=str(file))
        metadata = parquet.metadata
        if not metadata.num_rows:
            return EventFile(name=name, rows=0, workers=(), size_bytes=size, mtime_ns=mtime)
        places = {column: place for place, column in enumerate(metadata.schema.names)}
        # The column of workers is not read again, so a row without a worker must be found here.
        required = parquet.schema.column(places["worker"]).max_definition_level == 0
        rows = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        groups = tuple(_row_group(row_group, places, required=required) for row_group in rows)
        workers = {group.worker for group in groups if group}
        if not all(groups):
            for group in range(len(rows)):
                table = read_groups(parquet, [group], ["worker"], where=str(file))
                check_nulls(table, TRACE_EVENTS, where=str(file))
                workers |= set(table["worker"].unique().to_pylist())
        seq = [bounds_of(row_group, places["seq"]) for row_group in rows]
        return EventFile(
            name=name,
            rows=metadata.num_rows,
            workers=tuple(sorted(workers)),
            groups=groups,
            numbers=tuple(
                Numbers(*bounds, row_group.num_rows) if bounds else None
                for bounds, row_group in zip(seq, rows, strict=True)
            ),
            size_bytes=size,
            mtime_ns=mtime,
        )


def read_numbers(root: Path, file: EventFile, group: int) -> Numbers:
    """Return the numbers of a row group's events, where the file's footer does not tell them; reads their column `seq`.

    Parameters
    ----------
    root
        Directory of the trace.
    file
        The file.
    group
        Number of the row group, from 0.

    Returns
    -------
    Numbers
        All 0 for a row group without rows.

    Raises
    ------
    TraceFormatError
        If the file is missing or damaged, its rows do not fit in memory, or an event has no number.
    """
    where = str(root / file.name)
    with open_events(root, file.name) as parquet:
        table = read_groups(parquet, [group], ["seq"], where=where)
    check_nulls(table, TRACE_EVENTS, where=where)
    seq = table["seq"].to_numpy()
    return Numbers(int(seq.min()), int(seq.max()), len(seq)) if len(seq) else Numbers(0, 0, 0)


def _row_group(row_group: pq.RowGroupMetaData, places: Mapping[str, int], *, required: bool) -> RowGroup | None:
    worker, t = bounds_of(row_group, places["worker"]), bounds_of(row_group, places["t_ns"])
    if worker is None or t is None or worker[0] != worker[1] or not row_group.num_rows:
        return None
    if not required:
        statistics = row_group.column(places["worker"]).statistics
        if not statistics.has_null_count or statistics.null_count:
            return None
    return RowGroup(worker[0], row_group.num_rows, *t)


def bounds_of(row_group: pq.RowGroupMetaData, place: int) -> tuple[int, int] | None:
    """Return a row group's least and greatest value of a column.

    Parameters
    ----------
    row_group
        From the footer.
    place
        Number of the column.

    Returns
    -------
    tuple or None
        None without statistics.
    """
    statistics = row_group.column(place).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min, statistics.max


def read_groups(
    parquet: pq.ParquetFile, groups: list[int], names: list[str], *, where: str, threads: bool = True
) -> pa.Table:
    """Read columns of some row groups of an open file.

    Parameters
    ----------
    parquet
        The file.
    groups
        Numbers of the row groups.
    names
        Columns; those that the file may lack, and does, come as nulls.
    where
        The file, for messages.
    threads
        Whether several threads read.

    Returns
    -------
    Table
        Rows in the order of `groups`; types as the file has them.

    Raises
    ------
    TraceFormatError
        If the file is damaged, or its rows do not fit in memory.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    _check_size(parquet, groups, names, where=where)
    try:
        table = parquet.read_row_groups(groups, columns=names, use_threads=threads)
        present = table.schema.names
        for name in VOCABULARIES:
            if name in present:
                _check_text(table[name])
    except DAMAGE as error:
        raise unreadable(Path(where), error) from error
    return completed(table, names, TRACE_EVENTS)


def _check_size(parquet: pq.ParquetFile, groups: Sequence[int], names: Sequence[str], *, where: str) -> None:
    """Refuse row groups that do not fit in memory: a few bytes of a file can say that a value comes a billion times."""
    rows = sum(parquet.metadata.row_group(group).num_rows for group in groups)
    if rows < _MANY_ROWS or (lack := lacking(rows * len(names) * _VALUE_BYTES)) is None:
        return
    message = f"{where} has {rows} rows in {len(groups)} row group(s) that must be read at once, which takes {lack}."
    hint = f"Write the file with row groups of at most {_MANY_ROWS} rows, or give the process more memory."
    raise TraceFormatError(message, hint, {"file": where, "rows": rows})


def _check_text(column: pa.ChunkedArray) -> None:
    """Check that words are text, which nobody has done so far; a damaged file may hold any bytes."""
    for chunk in column.chunks:
        (chunk.dictionary if isinstance(chunk, pa.DictionaryArray) else chunk).validate(full=True)


def read_events(root: Path, file: EventFile, names: list[str], workers: NDArray[np.int64] | None) -> pa.Table | None:
    """Read a file's rows of some workers, and check what must hold for each row by itself.

    Parameters
    ----------
    root
        Directory of the trace.
    file
        Which file.
    names
        Columns of `TRACE_EVENTS`; `worker` always comes along.
    workers
        Whose rows; None for all.

    Returns
    -------
    Table or None
        Rows in the order of the file, words dictionary-encoded; None where the file has none of the workers.

    Raises
    ------
    TraceFormatError
        If the file is damaged, a value is missing or out of range, or a word is unknown.
    """
    if workers is not None and not np.isin(file.workers, workers).any():
        return None
    path_text = str(root / file.name)
    read = list(dict.fromkeys([*names, "worker"]))
    with open_events(root, file.name, encoded=tuple(VOCABULARIES)) as parquet:
        metadata = parquet.metadata
        worker = metadata.schema.names.index("worker")
        groups = [
            group
            for group in range(metadata.num_row_groups)
            if _may_hold(bounds_of(metadata.row_group(group), worker), workers)
        ]
        table = read_groups(parquet, groups, read, where=path_text)
    check_nulls(table, TRACE_EVENTS, where=path_text)
    check_vocabulary(table, where=path_text)
    check_ranges(table, where=path_text)
    table = table.cast(encoded_schema(table.column_names))
    if workers is None:
        return table
    keep = np.isin(table["worker"].to_numpy(), workers)
    return table if keep.all() else table.filter(pa.array(keep))


def _may_hold(bounds: tuple[int, int] | None, workers: NDArray[np.int64] | None) -> bool:
    if bounds is None or workers is None:
        return True
    return bool(((workers >= bounds[0]) & (workers <= bounds[1])).any())
