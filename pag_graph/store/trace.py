"""Contract 1 on disk: the canonical trace, written whole or not at all, and read by worker and epoch.

A trace is a directory::

    meta.json             TraceMeta
    events/*.parquet      TRACE_EVENTS; rows of a worker in the order of its log, files in the order of their names
    operators.parquet     TRACE_OPERATORS
    channels.parquet      TRACE_CHANNELS
    workers.parquet       TRACE_WORKERS
    inputs/*.parquet      TRACE_INPUTS; when input was due and done. A trace may lack it
    findings.parquet      PAG_FINDINGS; what the source's reader found odd. A trace may lack it
    checksums.json        size and CRC-32 of every other file, as it was written. A trace may lack it
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pag_graph.errors import (
    MissingColumnError,
    PagGraphError,
    StoreError,
    StoreExistsError,
    TraceFormatError,
)
from pag_graph.model.input_tables import TRACE_INPUTS
from pag_graph.model.tables import (
    PAG_FINDINGS,
    TRACE_EVENTS,
)
from pag_graph.store.description import SCHEMAS, check_known, check_tables, read_description, source_findings
from pag_graph.store.event_files import EventFile, inspect, read_events
from pag_graph.store.findings import no_findings
from pag_graph.store.gaps import Gaps
from pag_graph.store.in_place import put_back_beside, refusals, whole_folder
from pag_graph.store.meta import TraceMeta, read_meta, write_meta
from pag_graph.store.safe_files import check_folder, check_utf8
from pag_graph.store.trace_columns import (
    check_vocabulary,
    conform,
    encoded_schema,
)
from pag_graph.store.trace_files import (
    CONVERT_AGAIN,
    EVENTS,
    FINDINGS,
    INPUTS,
    META,
    seal_trace,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

# Beside the trace itself: what describes it, and what its events are checked against.
__all__ = ["Trace", "check_trace_place", "write_trace"]

_ROW_GROUP = 128 * 1024
_TRIES = 20
"""How often to begin reading a trace anew that is replaced all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace that was opened: small tables in memory, events on disk."""

    path: Path
    """Directory of the trace."""
    meta: TraceMeta
    """Content of ``meta.json``."""
    operators: pa.Table
    """Rows of `TRACE_OPERATORS`."""
    channels: pa.Table
    """Rows of `TRACE_CHANNELS`."""
    workers: pa.Table
    """Rows of `TRACE_WORKERS`."""
    files: tuple[EventFile, ...]
    """Files with at least one event, in the order of their names."""
    findings: pa.Table = field(default_factory=no_findings)
    """Rows of `PAG_FINDINGS`: what the source's reader found odd, and what it did about it."""
    stamp: tuple[str, int, int, int] | None = field(default=None, compare=False)
    """Tells the folder from one that takes its place, on the machine that opened it."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, known: Iterable[EventFile] = ()) -> Trace:
        """Open a trace and check everything that can be checked without reading the events.

        Parameters
        ----------
        path
            Directory that `write_trace` or an adapter wrote.
        known
            Files of it as they were at an earlier time, as of `Trace.files`: those that have neither another size nor
            another time of change are not opened again.

        Returns
        -------
        Trace
            Picklable, so that a driver can open it once for many tasks.

        Raises
        ------
        TraceFormatError
            If the directory or a file is missing, empty, truncated or contradicts another one; or the directory's name
            is not UTF-8.
        FormatVersionError
            If the trace was written in another version of contract 1.
        MissingColumnError
            If a table lacks a column.
        SchemaError
            If a column has another type than declared.

        Notes
        -----
        Reads one footer per file of events that is not known. Only a file whose row groups mix workers, or that has no
        statistics, costs a pass over its columns `worker` and `epoch`.
        """  # noqa: DOC501  (the constructor of an error is taken for one)
        root = Path(path)
        check_utf8(root, TraceFormatError)
        by_name = {file.name: file for file in known}
        for _ in range(_TRIES):
            stamp = _stamp(root)
            try:
                trace = cls._open(root, by_name)
            except (PagGraphError, OSError):
                if _stamp(root) == stamp:
                    raise
            else:
                if _stamp(root) == stamp:
                    return replace(trace, stamp=stamp)
            # Another one took its place meanwhile: begin anew with that.
        raise _replaced(root)

    @classmethod
    def _open(cls, root: Path, by_name: Mapping[str, EventFile]) -> Trace:
        if not root.is_dir():
            put_back_beside(_real(root))
        if not root.is_dir():
            message = f"There is no trace at {root}: it is not a directory."
            raise TraceFormatError(message, "Convert a log first: `pag convert SOURCE TARGET`.", {"file": str(root)})
        check_folder(root)
        meta, tables = read_description(root)
        if not (root / EVENTS).is_dir():
            message = f"The trace at {root} has no folder {EVENTS}."
            raise TraceFormatError(message, CONVERT_AGAIN, {"file": str(root / EVENTS)})
        files = _event_files(root, by_name)
        if not files:
            _refuse_empty(root)
        listed_workers = set(tables["workers"]["worker"].to_pylist())
        gaps = Gaps(root)
        for file in files:
            if not listed_workers.issuperset(file.workers):
                check_known(file.workers, listed_workers, where=str(root / file.name))
            if meta.gapless:
                gaps.look(file)
        return cls(path=root, meta=meta, files=files, findings=source_findings(root, gaps), **tables)

    def check_same(self) -> None:
        """Refuse what was read of the trace if another one has taken its place since it was opened.

        Raises
        ------
        TraceFormatError
            If so: what was read may be of both.
        """  # noqa: DOC501  (the constructor of an error is taken for one)
        if self.stamp is None or self.stamp[0] != os.uname().nodename:
            return
        now = _stamp(self.path)
        if now != self.stamp and not (now is not None and now[:-1] == self.stamp[:-1] and self._goes_on()):
            raise _replaced(self.path)

    def _goes_on(self) -> bool:
        """Say whether the folder holds the same trace, of which a recorder has said more since: that it has ended."""
        try:
            return read_meta(self.path / META).trace_id == self.meta.trace_id
        except (PagGraphError, OSError):
            return False

    @property
    def rows(self) -> int:
        """Number of events in the trace."""
        return sum(file.rows for file in self.files)

    def events(
        self,
        columns: Sequence[str] | None = None,
        workers: Collection[int] | None = None,
    ) -> pa.Table:
        """Read events, one row per event, a worker's rows together in the order of its log.

        Parameters
        ----------
        columns
            Names out of `TRACE_EVENTS`; all of them when absent.
        workers
            Workers to read; all when absent.

        Returns
        -------
        pa.Table
            Columns in the order asked for, workers ascending. `kind` and `activity` are
            dictionary-encoded, with one dictionary for all chunks: comparing codes is several times
            faster than comparing strings. Everything else has the declared type.

        Raises
        ------
        MissingColumnError
            If `columns` names something that is not in `TRACE_EVENTS`.
        TraceFormatError
            If a file is corrupt, a kind or activity is unknown, or a value is missing that must be there.

        Notes
        -----
        Row groups without a wanted worker are not read.
        """
        names = list(TRACE_EVENTS.names if columns is None else columns)
        _check_names(names)
        wanted_workers = None if workers is None else np.unique(np.fromiter(workers, np.int64))
        parts = [
            part
            for file in self.files
            if (part := read_events(self.path, file, names, wanted_workers)) is not None and part.num_rows
        ]
        self.check_same()
        if not parts:
            return encoded_schema(names).empty_table()
        table = pa.concat_tables(parts).unify_dictionaries()
        worker = table["worker"].to_numpy()
        if (worker[1:] < worker[:-1]).any():
            # A worker's log is spread over several files, or a file mixes workers.
            table = table.take(pa.array(np.argsort(worker, kind="stable")))
        return table.select(names)

    def file_of(self, *, worker: int, seq: int) -> str:
        """Return the path of the file that holds an event; several are joined with " and ".

        Parameters
        ----------
        worker, seq
            The event.

        Returns
        -------
        str
            The folder of events where no file has it.

        Raises
        ------
        TraceFormatError
            If a file is damaged.

        Notes
        -----
        Searches the files of the worker: meant for messages about one event, not for all.
        """
        files = [file for file in self.files if worker in file.workers]
        if len(files) > 1:
            hits = []
            for file in files:
                part = read_events(self.path, file, ["seq"], np.array([worker]))
                if part is not None and pc.any(pc.equal(part["seq"], seq)).as_py():
                    hits.append(file)
            files = hits or files
        return " and ".join(str(self.path / file.name) for file in files) or str(self.path / EVENTS)


def write_trace(
    path: str | os.PathLike[str],
    *,
    meta: TraceMeta,
    events: Iterable[tuple[str, pa.Table]],
    operators: pa.Table,
    channels: pa.Table,
    workers: pa.Table,
    findings: pa.Table | None = None,
    inputs: pa.Table | None = None,
    replace: bool = False,
) -> None:
    """Write a trace into a hidden sibling directory and move it to its place when it is whole.

    Parameters
    ----------
    path
        Directory to make; its parents are made too.
    meta
        Content of ``meta.json``.
    events
        Pairs of file stem and table, consumed one by one. Files are read in the order of their
        names, so pad numbers in stems; a worker's rows must be in the order of its log.
    operators, channels, workers
        The small tables. As in `events`, columns that may be null may be absent.
    findings
        What was odd about the source, rows of `PAG_FINDINGS`; they come before those of the build.
    inputs
        When input was due and done, rows of `TRACE_INPUTS`; absent where nobody says.
    replace
        Whether to take the place of a trace that is at `path`. A reader sees the old trace or the new one, never a
        mixture; where the system cannot exchange two names in one step, for an instant none.

    Raises
    ------
    StoreExistsError
        If there is something at `path`, and `replace` is false or it is no trace.
    StoreError
        If the file system refuses.
    TraceFormatError
        If there is no event, or the tables contradict each other.
    SchemaError
        If a table does not fit its declared columns.
    """
    target = _real(path)
    if target.is_symlink():
        message = f"{target} is a link that leads back to itself."
        raise StoreExistsError(message, "Choose another place, or remove it yourself.", {"file": str(target)})
    put_back_beside(target)
    check_trace_place(target, replace=replace)
    check = partial(check_trace_place, target, replace=replace)
    with refusals(target, "The trace", StoreError), whole_folder(target, check=check) as folder:
        (folder / EVENTS).mkdir()
        tables = {"operators": operators, "channels": channels, "workers": workers}
        _write_content(folder, meta=meta, events=events, tables=tables, target=target)
        if findings is not None and findings.num_rows:
            write_table(folder / FINDINGS, conform(findings, PAG_FINDINGS, where=f"findings for {target}"))
        if inputs is not None:
            (folder / INPUTS).mkdir()
            rows = conform(inputs, TRACE_INPUTS, where=f"inputs for {target}")
            write_table(folder / INPUTS / f"{INPUTS}-00000.parquet", rows)
        seal_trace(folder)


def check_trace_place(target: Path, *, replace: bool) -> None:
    """Refuse to write a trace where something is that it must not replace.

    Parameters
    ----------
    target
        Where it is to be.
    replace
        Whether it may replace a trace.

    Raises
    ------
    StoreExistsError
        If something is there, and `replace` is false or it is no trace.
    StoreError
        If the name is not UTF-8.
    """
    check_utf8(target, StoreError)
    if not target.exists():
        return
    if not replace:
        message = f"{target} exists already."
        raise StoreExistsError(message, "Choose another place, or replace it with `--replace`.", {"file": str(target)})
    # A mistyped name must not remove a folder that is no trace.
    if not (target / META).is_file() and not (target.is_dir() and not any(target.iterdir())):
        message = f"{target} exists and is not a trace, so it is not replaced."
        raise StoreExistsError(message, "Choose another place, or remove it yourself.", {"file": str(target)})


def _event_files(root: Path, by_name: Mapping[str, EventFile]) -> tuple[EventFile, ...]:
    """Return the files with events, in the order of their names; those are not opened that are known and unchanged."""
    files = []
    for name, status in check_folder(root / EVENTS).items():
        if not name.endswith(".parquet"):
            continue
        file = by_name.get(f"{EVENTS}/{name}")
        if file is None or status is None or (file.size_bytes, file.mtime_ns) != (status.st_size, status.st_mtime_ns):
            file = inspect(root, f"{EVENTS}/{name}", status)
        if file.rows:
            files.append(file)
    return tuple(files)


def _real(path: str | os.PathLike[str]) -> Path:
    """Return a path without links; where they lead in a circle, the path as it is, which `Path.resolve` raises over."""
    return Path(os.path.realpath(path))


def _refuse_empty(root: Path) -> NoReturn:
    message = f"The trace at {root} has no events."
    raise TraceFormatError(
        message,
        "Was logging switched on before the dataflow was built, and was the log flushed at the end?",
        {"file": str(root)},
    )


def _stamp(root: Path) -> tuple[str, int, int, int] | None:
    """Return what differs between the folder of a trace and one that takes its place."""
    try:
        status = root.stat()
    except OSError:
        return None
    return os.uname().nodename, status.st_dev, status.st_ino, status.st_ctime_ns


def _replaced(root: Path) -> TraceFormatError:
    message = f"The trace at {root} was replaced while it was read."
    return TraceFormatError(message, "Run it again.", {"file": str(root)})


def _check_names(names: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in TRACE_EVENTS.names]:
        raise MissingColumnError.from_missing_and_available(
            where="contract 1's table of events", missing=unknown, available=TRACE_EVENTS.names
        )


def _write_content(
    directory: Path,
    *,
    meta: TraceMeta,
    events: Iterable[tuple[str, pa.Table]],
    tables: dict[str, pa.Table],
    target: Path,
) -> None:
    tables = {
        name: conform(table, SCHEMAS[name], where=f"the table of {name} for {target}") for name, table in tables.items()
    }
    check_tables(meta=meta, **tables)
    for name, table in tables.items():
        write_table(directory / f"{name}.parquet", table)
    listed_workers = set(tables["workers"]["worker"].to_pylist())
    rows = 0
    for stem, content in events:
        file = directory / EVENTS / f"{stem}.parquet"
        place_text = f"{stem} for {target}"
        if file.exists():
            message = f"The file {place_text} was given twice."
            raise TraceFormatError(message, "Give every table of events a name of its own.", {"file": stem})
        table = conform(content, TRACE_EVENTS, where=place_text)
        check_vocabulary(table, where=place_text)
        check_known(table["worker"].unique().to_pylist(), listed_workers, where=place_text)
        write_table(file, table)
        rows += table.num_rows
        # The next one is made when it is asked for: until then this one need not be there, nor what writing it took.
        del content, table
        pa.default_memory_pool().release_unused()
    if not rows:
        _refuse_empty(target)
    write_meta(meta, directory / META)


def write_table(file: Path, table: pa.Table) -> None:
    """Write a table of a trace as Parquet.

    Parameters
    ----------
    file
        Written anew.
    table
        At least one column.
    """
    write_row_groups(file, [table])


def write_row_groups(file: Path, tables: Sequence[pa.Table]) -> None:
    """Write tables of a trace as one file of Parquet.

    Parameters
    ----------
    file
        Written anew.
    tables
        At least one, all of one schema; each begins a row group, and has several if it is large.
    """
    schema = tables[0].schema
    # Neighbouring numbers differ by little, so delta encoding beats a dictionary many times over. With zstd a trace
    # would be a sixth smaller, and would take a quarter longer to decode.
    with pq.ParquetWriter(
        file,
        schema,
        compression="lz4",
        use_dictionary=[column.name for column in schema if pa.types.is_string(column.type)],
        column_encoding={column.name: "DELTA_BINARY_PACKED" for column in schema if pa.types.is_integer(column.type)},
        write_statistics=True,
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=_ROW_GROUP)
