"""Row ranges of a trace: where each worker's events lie, and how to read a part of them without the rest."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pag_graph.errors import TraceFormatError
from pag_graph.model.columns import is_optional
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.store.chunks import Chunk, chunks_of, place_of
from pag_graph.store.event_files import open_events, read_events, read_groups
from pag_graph.store.order import ORDER_COLUMNS, ORDER_LIMITS, check_events
from pag_graph.store.row_groups import Decoded, RowGroups, keep_last, kept_of
from pag_graph.store.trace_columns import NULLABLE, check_nulls, check_ranges, check_vocabulary, encoded_schema
from pag_graph.store.trace_files import CONVERT_AGAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pag_graph.store.event_files import EventFile
    from pag_graph.store.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceLog:
    """Index of a trace's event files: for every worker its chunks, in the order of its log."""

    columns: ClassVar[tuple[str, ...]] = tuple(TRACE_EVENTS.names)
    """Names of all columns of events."""

    root: Path
    """Directory of the trace."""
    chunks: Mapping[int, tuple[Chunk, ...]]
    """Per worker, ascending: its chunks in the order of its log."""

    @classmethod
    def index(cls, trace: Trace) -> TraceLog:
        """Index a trace's event files by their footers alone, wherever a row group holds a single worker.

        Parameters
        ----------
        trace
            The opened trace.

        Returns
        -------
        TraceLog
            O(row groups) in time and memory.

        Raises
        ------
        TraceFormatError
            If a file cannot be read, or tells of a time that is out of range; names the event.
        """
        chunks: dict[int, list[Chunk]] = {}
        for file in trace.files:
            for worker, group, offset, rows, t_min, t_max in stretches(trace, file):
                worker_chunks = chunks.setdefault(worker, [])
                first_row = worker_chunks[-1].first_row + worker_chunks[-1].rows if worker_chunks else 0
                of_file = file.size_bytes, file.mtime_ns
                worker_chunks.append(Chunk(file.name, group, offset, rows, first_row, t_min, t_max, of_file))
        return cls(trace.path, {worker: tuple(worker_chunks) for worker, worker_chunks in sorted(chunks.items())})

    def rows_of(self, worker: int) -> int:
        """Return how many events `worker` has.

        Parameters
        ----------
        worker
            Any number.

        Returns
        -------
        int
            0 of a worker that has none.
        """
        worker_chunks = self.chunks.get(worker, ())
        return worker_chunks[-1].first_row + worker_chunks[-1].rows if worker_chunks else 0

    def files_of(self, worker: int | NDArray[np.int64], row: NDArray[np.int64]) -> pa.Array:
        """Return the files that hold rows.

        Parameters
        ----------
        worker
            Of all rows, or one of each.
        row
            Places of the rows in their worker's log, from 0.

        Returns
        -------
        Array
            Per row: path inside the trace; dictionary-encoded.
        """
        workers = np.broadcast_to(worker, len(row))
        order = np.argsort(workers, kind="stable")
        places = np.empty(len(row), np.int32)
        names: list[str] = []
        for rows_of_worker in np.split(order, np.flatnonzero(np.diff(workers[order])) + 1):
            if not len(rows_of_worker):
                continue
            chunks = self.chunks[int(workers[rows_of_worker[0]])]
            place = np.searchsorted([chunk.first_row for chunk in chunks], row[rows_of_worker], side="right") - 1
            places[rows_of_worker] = len(names) + place
            names += [chunk.file for chunk in chunks]
        return pa.DictionaryArray.from_arrays(places, pa.array(names, pa.string()))

    def tables(self, worker: int, low: int, high: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read rows `low` to `high` (exclusive) of `worker` as they are: `read` for those who check them.

        Parameters
        ----------
        worker, low, high, columns
            As for `read`.

        Yields
        ------
        pa.Table
            Rows of one chunk; types as the file has them, words dictionary-encoded. Columns that hold nothing but null
            may be absent.

        Raises
        ------
        TraceFormatError
            If a file is damaged.
        """
        touched = chunks_of(self.chunks.get(worker, ()), low, high)
        for file, group in groupby(touched, key=lambda chunk: chunk.file):
            chunks_of_file = list(group)
            groups = sorted({chunk.row_group for chunk in chunks_of_file})
            with self._file(worker, file) as parquet:
                sizes = [parquet.metadata.row_group(number).num_rows for number in groups]
                names = with_values(parquet.metadata, groups, columns)
                table = read_groups(parquet, groups, names, where=str(self.root / file), threads=False)
            starts = dict(zip(groups, accumulate(sizes, initial=0), strict=False))
            for chunk in chunks_of_file:
                begin = max(low, chunk.first_row)
                rows = min(high, chunk.first_row + chunk.rows) - begin
                yield table.slice(starts[chunk.row_group] + chunk.offset + begin - chunk.first_row, rows)

    @contextmanager
    def _file(self, worker: int, name: str) -> Iterator[pq.ParquetFile]:
        """Open a file for one who reads rows of `worker`."""
        del worker
        with open_events(self.root, name, encoded=ENCODED_WORDS) as parquet:
            yield parquet

    def forward(self) -> ForwardLog:
        """Return the same log, for a reader that asks for one stretch of each worker after the other.

        Returns
        -------
        ForwardLog
            It keeps the row group in which a stretch ends.
        """
        # Of several chunks of a row group, one alone begins with its first row.
        shared = frozenset(
            (chunk.file, chunk.row_group)
            for worker_chunks in self.chunks.values()
            for chunk in worker_chunks
            if chunk.offset
        )
        return ForwardLog(self.root, self.chunks, shared, kept=kept_of(self.root))

    def keep_last(self) -> None:
        """Keep nothing for the next append: this log keeps nothing of what it reads."""

    def read(self, worker: int, low: int, high: int, columns: Sequence[str]) -> pa.Table:
        """Read rows `low` to `high` (exclusive) of `worker`; only the row groups that hold them are opened.

        Parameters
        ----------
        worker, low, high
            Whose rows, and which of them, counted from 0 in the order of its log.
        columns
            Names of `TRACE_EVENTS`; ``kind`` comes dictionary-encoded.

        Returns
        -------
        pa.Table
            One row per event.

        Raises
        ------
        TraceFormatError
            If a file is damaged, a value is missing or out of range, or a kind is unknown.
        """
        parts = []
        for chunk in chunks_of(self.chunks.get(worker, ()), low, high):
            begin, end = max(low, chunk.first_row), min(high, chunk.first_row + chunk.rows)
            table = read_row_group(self.root, chunk.file, chunk.row_group, columns)
            parts.append(table.slice(chunk.offset + begin - chunk.first_row, end - begin))
        if not parts:
            return encoded_schema(columns).empty_table()
        return pa.concat_tables(parts).unify_dictionaries()


@dataclass(frozen=True, slots=True)
class ForwardLog(TraceLog):
    """A log that is read forward, by one process: the row group in which a stretch ends is kept for the next one.

    Where many workers share a slice, each has a small part of a row group in it: without this every group would be
    decoded again for each of its parts.
    """

    shared: frozenset[tuple[str, int]] = frozenset()
    """Row groups with rows of several workers, or several stretches of one."""
    groups: dict[tuple[str, int, tuple[str, ...]], pa.Table] = field(default_factory=dict, compare=False, repr=False)
    """Of those the ones that were read last, whole: each of its workers would decode it again."""
    kept: RowGroups = field(default_factory=RowGroups, compare=False, repr=False)
    """Row groups of one worker that were read last."""
    files: dict[int, tuple[str, pq.ParquetFile]] = field(default_factory=dict, compare=False, repr=False)
    """Per worker: the file that was read last; to understand its footer takes longer than to read some columns."""

    def __reduce__(self) -> tuple[type[TraceLog], tuple[Path, Mapping[int, tuple[Chunk, ...]]]]:
        """Travel as the index alone."""
        return TraceLog, (self.root, self.chunks)

    def forward(self) -> ForwardLog:
        """Return the log itself: what one reader has kept is there for the next one.

        Returns
        -------
        ForwardLog
            This one.
        """
        return self

    def keep_last(self) -> None:
        """Keep what the next append of this process will ask for again."""
        keep_last(self.root, self.kept)

    @contextmanager
    def _file(self, worker: int, name: str) -> Iterator[pq.ParquetFile]:
        """Open a file, or take the one that is open still, which is nobody else's meanwhile."""
        open_name, parquet = self.files.pop(worker, (None, None))
        if open_name != name:
            parquet = open_events(self.root, name, encoded=ENCODED_WORDS)
        yield parquet
        if len(self.files) < _KEPT_FILES:
            self.files[worker] = (name, parquet)

    def tables(self, worker: int, low: int, high: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read rows `low` to `high` (exclusive) of `worker` as `TraceLog.tables` does.

        Parameters
        ----------
        worker, low, high, columns
            As for `TraceLog.tables`; there must be that many rows.

        Yields
        ------
        Table
            As of `TraceLog.tables`; of a chunk that is asked for again, from memory.

        Raises
        ------
        TraceFormatError
            If a file is damaged.
        """
        chunks = self.chunks.get(worker, ())
        position = low
        while position < high:
            chunk = chunks[place_of(chunks, position)]
            end = chunk.first_row + chunk.rows
            if position == chunk.first_row and end < high:
                # Whole row groups up to the one in which the stretch ends.
                stop = chunks[place_of(chunks, high - 1)].first_row
                yield from TraceLog.tables(self, worker, position, stop, columns)
            else:
                stop = min(end, high)
                table = self._chunk_rows(worker, chunk, columns, asked_again=end >= high)
                yield table.slice(position - chunk.first_row, stop - position)
            position = stop

    def _chunk_rows(self, worker: int, chunk: Chunk, columns: Sequence[str], *, asked_again: bool) -> pa.Table:
        """Return all rows of a chunk, and keep them if the next stretch will ask for it again."""
        if (chunk.file, chunk.row_group) in self.shared:
            return self._group(chunk, columns).slice(chunk.offset, chunk.rows)
        decoded = self.kept.of(worker, chunk)
        lacks = list(columns) if decoded is None else decoded.lacks(columns)
        if lacks or decoded is None:
            (table,) = TraceLog.tables(self, worker, chunk.first_row, chunk.first_row + chunk.rows, lacks)
            decoded = Decoded(chunk, frozenset(lacks), table) if decoded is None else decoded.with_columns(lacks, table)
            # The row before a stretch is asked for as well, so a group that ends with one is needed once more.
            if asked_again:
                self.kept.keep(worker, decoded)
        return decoded.select(columns)

    def _group(self, chunk: Chunk, columns: Sequence[str]) -> pa.Table:
        """Return all rows of the row group that a chunk is in, of all its workers."""
        key = (chunk.file, chunk.row_group, tuple(columns))
        table = self.groups.get(key)
        if table is None:
            with open_events(self.root, chunk.file, encoded=ENCODED_WORDS) as parquet:
                names = with_values(parquet.metadata, [chunk.row_group], columns)
                path_text = str(self.root / chunk.file)
                table = read_groups(parquet, [chunk.row_group], names, where=path_text, threads=False)
            for oldest in list(self.groups)[: 1 - _KEPT_GROUPS]:
                self.groups.pop(oldest, None)
            self.groups[key] = table
        return table


_EARLIEST_NS, _LATEST_NS = ORDER_LIMITS["t_ns"]
_MAY_LACK = frozenset(field.name for field in TRACE_EVENTS if is_optional(field))
ENCODED_WORDS = ("kind", "activity")
"""Columns that come as words and their places."""
_KEPT_FILES = 64
"""How many files a log that is read forward keeps open, at most."""
_KEPT_GROUPS = 8
"""How many row groups with rows of several workers a log that is read forward keeps, at most."""


def stretches(trace: Trace, file: EventFile) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Find where a file holds rows of one worker after each other.

    Parameters
    ----------
    trace, file
        The file, and the trace that it is of.

    Yields
    ------
    tuple
        Worker, row group, first row inside it, rows, and their least and greatest time. Reads rows only of row groups
        of which the footer does not tell.

    Raises
    ------
    TraceFormatError
        If the file tells of a time that is out of range; names the event.
    """
    for group, statistics in enumerate(file.groups):
        runs = [(statistics.worker, 0, *statistics[1:])] if statistics else _runs(trace.path, file.name, group)
        for worker, offset, rows, t_min, t_max in runs:
            # Sums with such times overflow, and slices are planned with them.
            if t_min < _EARLIEST_NS or t_max > _LATEST_NS:
                _refuse_time(trace, file, worker, (t_min, t_max))
            yield worker, group, offset, rows, t_min, t_max


def _refuse_time(trace: Trace, file: EventFile, worker: int, bounds: tuple[int, int]) -> NoReturn:
    """Refuse a file whose times are out of range: name the event, or the footer if only that says so."""
    rows = read_events(trace.path, file, list(ORDER_COLUMNS), np.array([worker]))
    if rows is not None:
        check_events(trace, rows)
    path_text = str(trace.path / file.name)
    message = f"{path_text}: its footer tells of times from {bounds[0]} to {bounds[1]} ns, which no event of it has."
    raise TraceFormatError(message, CONVERT_AGAIN, {"file": path_text, "worker": worker})


def _runs(root: Path, file: str, group: int) -> list[tuple[int, int, int, int, int]]:
    """Return (worker, offset, rows, t_min, t_max) for each run of rows of one worker in a row group."""
    with open_events(root, file) as parquet:
        table = read_groups(parquet, [group], ["worker", "t_ns"], where=str(root / file))
    check_nulls(table, TRACE_EVENTS, where=str(root / file))
    if not table.num_rows:
        return []
    workers, times = column(table, "worker"), column(table, "t_ns")
    cuts = np.flatnonzero(np.diff(workers)) + 1
    starts, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(workers)]))
    return [
        (int(workers[a]), int(a), int(b - a), int(times[a:b].min()), int(times[a:b].max()))
        for a, b in zip(starts, ends, strict=True)
    ]


def with_values(metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str]) -> list[str]:
    """Leave out columns that hold nothing but null in some row groups, and those that the file may lack, and does.

    Parameters
    ----------
    metadata
        Footer of the file.
    groups
        Numbers of the row groups.
    columns
        Names of `TRACE_EVENTS`.

    Returns
    -------
    list of str
        Those of which the statistics do not promise it.
    """
    file_columns = metadata.schema.names
    lacked = _MAY_LACK.difference(file_columns)
    places = {name: place for place, name in enumerate(file_columns) if name in NULLABLE}
    rows = [metadata.row_group(group) for group in groups]
    return [
        name
        for name in columns
        if name not in lacked
        and (name not in places or not all(_is_empty(row_group, places[name]) for row_group in rows))
    ]


def _is_empty(row_group: pq.RowGroupMetaData, place: int) -> bool:
    statistics = row_group.column(place).statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == row_group.num_rows


def column(table: pa.Table, name: str, absent: int = -1) -> NDArray[np.int64]:
    """Return a column of integers as int64.

    Parameters
    ----------
    table
        Has it.
    name
        Name of the column.
    absent
        What stands in place of null.

    Returns
    -------
    array of int64
        One element per row, contiguous.
    """
    values = table[name]
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(absent, values.type))
    return np.ascontiguousarray(values.to_numpy(), dtype=np.int64)


def read_row_group(root: Path, file: str, row_group: int, columns: Sequence[str]) -> pa.Table:
    """Read columns of one row group and check what must hold for each row by itself.

    Parameters
    ----------
    root, file
        Directory of the trace, and the file inside it.
    row_group, columns
        What to read.

    Returns
    -------
    pa.Table
        ``kind`` comes dictionary-encoded.

    Raises
    ------
    TraceFormatError
        If the file is damaged, a value is missing, or a kind is unknown.
    """
    path_text = str(root / file)
    with open_events(root, file, encoded=ENCODED_WORDS) as parquet:
        table = read_groups(parquet, [row_group], list(columns), where=path_text)
        try:
            _check_rows(table, path_text)
        except TraceFormatError:
            # The message names the event, so the columns that identify it are read as well.
            names = list(dict.fromkeys(["worker", "seq", *columns]))
            _check_rows(read_groups(parquet, [row_group], names, where=path_text), path_text)
            raise
    # Files may differ in what they declare as null, though none of them is.
    return table.cast(encoded_schema(table.column_names))


def _check_rows(table: pa.Table, where: str) -> None:
    check_nulls(table, TRACE_EVENTS, where=where)
    check_vocabulary(table, where=where)
    check_ranges(table, where=where)
