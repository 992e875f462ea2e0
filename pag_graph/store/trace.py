"""Contract 1 on disk: the canonical trace, written whole or not at all, and read by worker and epoch.

A trace is a directory::

    meta.json             TraceMeta
    events/*.parquet      TRACE_EVENTS; rows of a worker in the order of its log, files in the order of their names
    operators.parquet     TRACE_OPERATORS
    channels.parquet      TRACE_CHANNELS
    workers.parquet       TRACE_WORKERS
    findings.parquet      PAG_FINDINGS; what the source's reader found odd. A trace may lack it
    checksums.json        size and CRC-32 of every other file, as it was written. A trace may lack it
"""

from __future__ import annotations

import json
import shutil
import uuid
import zlib
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pag_graph.errors import (
    FormatVersionError,
    MissingColumnError,
    PagGraphError,
    SchemaError,
    StoreError,
    StoreExistsError,
    TraceFormatError,
)
from pag_graph.model.enums import ActivityType, EventKind, RuleSet, Severity
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import (
    PAG_FINDINGS,
    TRACE_CHANNELS,
    TRACE_EVENTS,
    TRACE_FORMAT_VERSION,
    TRACE_OPERATORS,
    TRACE_WORKERS,
    is_optional,
)
from pag_graph.store.findings import findings as findings_of
from pag_graph.store.findings import no_findings

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

_T = TypeVar("_T")

__all__ = [
    "EventFile",
    "Trace",
    "TraceMeta",
    "TraceSource",
    "Violation",
    "check_events",
    "check_trace",
    "find_violation",
    "last_events",
    "seal_trace",
    "write_trace",
]

_META = "meta.json"
_EVENTS = "events"
_FINDINGS = "findings.parquet"
_CHECKSUMS = "checksums.json"
_LARGEST = 2**53
"""Limit of epochs and of counts: up to there every reader of JSON knows integers exactly."""
_FAREST_NS = 2**62
"""Limit of clocks and offsets, in the year 2116: the sum of two is still an int64."""
LIMITS = {
    "operator": 2**62,
    "channel": 2**62,
    "scope": 2**62,
    "peer": MAX_WORKER,
    "message_seq": 2**62,
    "records": _LARGEST,
    "bytes": _LARGEST,
    "timeout_ns": 2**63 - 1,
}
"""Largest value of columns of events that go from 0."""
_WITHOUT_GAPS = frozenset({"pag-timely"})
"""Formats whose writers number a worker's events 1, 2, 3 and so on, without gaps."""
_ROW_GROUP = 128 * 1024
_CONVERT_AGAIN = "Convert the source again with `pag convert`."
VOCABULARIES: dict[str, frozenset[str]] = {"kind": frozenset(EventKind), "activity": frozenset(ActivityType)}
"""Words of columns of events."""
_ENCODED = tuple(VOCABULARIES)
ORDER_COLUMNS = ("worker", "seq", "epoch", "t_ns")
"""Columns of events that say where an event stands in its log."""
ORDER_LIMITS = {
    "worker": (0, MAX_WORKER),
    "seq": (0, _FAREST_NS),
    "epoch": (0, _LARGEST),
    "t_ns": (1 - _FAREST_NS, _FAREST_NS - 1),
}
"""The least and the greatest value of each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """Where a trace comes from."""

    system: str
    """The system that ran, such as ``timely``."""
    version: str
    """Its version as the log states it; empty when the log does not."""
    format: str
    """Name of the log format that was converted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceMeta:
    """What holds for a whole trace; the content of ``meta.json``."""

    trace_id: str
    """Identity of the recorded run: the same log gives the same id."""
    source: TraceSource
    """System and log format."""
    workers: int
    """Number of workers: rows of the workers table."""
    format_version: int = TRACE_FORMAT_VERSION
    """Version of contract 1."""
    prepared: bool = False
    """Whether the source already reordered and filtered the log, so that `seq` need not increase."""
    aligned: bool = True
    """Whether the workers' offsets lead to one common clock."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows of the source that are no events of contract 1, counted by reason."""
    complete: bool = True
    """Whether the run had ended when the log was read."""
    missing_progress: Sequence[str] = ()
    """Scopes in which data moved but whose progress messages nobody logged; empty when the source cannot tell."""
    rules: RuleSet = RuleSet.TIMELY
    """Rule set that the source asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFile:
    """One file of events, as far as Parquet's statistics tell."""

    name: str
    """Path inside the trace, such as ``events/worker-00000.parquet``."""
    rows: int
    """Number of events."""
    workers: tuple[int, ...]
    """Workers that have events in the file, ascending."""
    first_epoch: int
    """Lowest epoch in the file."""
    last_epoch: int
    """Highest epoch in the file."""


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

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Trace:
        """Open a trace and check everything that can be checked without reading the events.

        Parameters
        ----------
        path
            Directory that `write_trace` or an adapter wrote.

        Returns
        -------
        Trace
            Picklable, so that a driver can open it once for many tasks.

        Raises
        ------
        TraceFormatError
            If the directory or a file is missing, empty, truncated or contradicts another one.
        FormatVersionError
            If the trace was written in another version of contract 1.
        MissingColumnError
            If a table lacks a column.
        SchemaError
            If a column has another type than declared.

        Notes
        -----
        Reads one footer per file of events. Only a file whose row groups mix workers, or that has no
        statistics, costs a pass over its columns `worker` and `epoch`.
        """
        root = Path(path)
        if not root.is_dir():
            message = f"There is no trace at {root}: it is not a directory."
            raise TraceFormatError(message, "Convert a log first: `pag convert SOURCE TARGET`.", {"file": str(root)})
        meta = _read_meta(root / _META)
        tables = {
            name: _read_table(root, f"{name}.parquet", schema)
            for name, schema in (("operators", TRACE_OPERATORS), ("channels", TRACE_CHANNELS))
        }
        workers = _read_table(root, "workers.parquet", TRACE_WORKERS)
        _check_tables(meta=meta, workers=workers, **tables)
        if not (root / _EVENTS).is_dir():
            message = f"The trace at {root} has no folder {_EVENTS}."
            raise TraceFormatError(message, _CONVERT_AGAIN, {"file": str(root / _EVENTS)})
        gaps = _Gaps() if meta.source.format in _WITHOUT_GAPS and not meta.prepared else None
        found = (_inspect(root, file, gaps) for file in sorted((root / _EVENTS).glob("*.parquet")))
        files = tuple(file for file in found if file.rows)
        if not files:
            _refuse_empty(root)
        known = set(workers["worker"].to_pylist())
        for file in files:
            _check_known(file.workers, known, where=str(root / file.name))
        found = no_findings()
        if (root / _FINDINGS).is_file():
            found = _read_table(root, _FINDINGS, PAG_FINDINGS)
            check_nulls(found, PAG_FINDINGS, where=str(root / _FINDINGS))
        found = pa.concat_tables([found, *_changed_files(root), *(gaps.findings() if gaps else [])])
        return cls(path=root, meta=meta, workers=workers, files=files, findings=found, **tables)

    @property
    def rows(self) -> int:
        """Number of events in the trace."""
        return sum(file.rows for file in self.files)

    def events(
        self,
        columns: Sequence[str] | None = None,
        workers: Collection[int] | None = None,
        epochs: range | None = None,
    ) -> pa.Table:
        """Read events, one row per event, a worker's rows together in the order of its log.

        Parameters
        ----------
        columns
            Names out of `TRACE_EVENTS`; all of them when absent.
        workers
            Workers to read; all when absent.
        epochs
            Epochs to read, such as ``range(3, 6)`` for 3, 4 and 5; all when absent.

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
        Row groups without a wanted worker or epoch are not read.
        """
        names = list(TRACE_EVENTS.names if columns is None else columns)
        _check_names(names)
        wanted = None if workers is None else np.unique(np.fromiter(workers, np.int64))
        parts = [
            part
            for file in self.files
            if (part := _read_events(self.path, file, names, wanted, epochs)) is not None and part.num_rows
        ]
        if not parts:
            return encoded_schema(names).empty_table()
        table = pa.concat_tables(parts).unify_dictionaries()
        worker = table["worker"].to_numpy()
        if (worker[1:] < worker[:-1]).any():
            # A worker's log is spread over several files, or a file mixes workers.
            table = table.take(pa.array(np.argsort(worker, kind="stable")))
        return table.select(names)

    def counts(self) -> pa.Table:
        """Count events, one row per worker and epoch, sorted by both.

        Returns
        -------
        pa.Table
            Columns `worker`, `epoch` and `events`; slices are planned with them.
        """
        counted = self.events(["worker", "epoch"]).group_by(["worker", "epoch"]).aggregate([([], "count_all")])
        return counted.rename_columns(["worker", "epoch", "events"]).sort_by(
            [("worker", "ascending"), ("epoch", "ascending")]
        )

    def file_of(self, *, worker: int, seq: int) -> str:
        """Return the path of the file that holds an event; several are joined with " and ".

        Searches the files of the worker: meant for messages about one event, not for all.
        """
        files = [file for file in self.files if worker in file.workers]
        if len(files) > 1:
            hits = []
            for file in files:
                part = _read_events(self.path, file, ["seq"], np.array([worker]), None)
                if part is not None and pc.any(pc.equal(part["seq"], seq)).as_py():
                    hits.append(file)
            files = hits or files
        return " and ".join(str(self.path / file.name) for file in files) or str(self.path / _EVENTS)


def write_trace(
    path: str | os.PathLike[str],
    *,
    meta: TraceMeta,
    events: Iterable[tuple[str, pa.Table]],
    operators: pa.Table,
    channels: pa.Table,
    workers: pa.Table,
    findings: pa.Table | None = None,
    replace: bool = False,
) -> None:
    """Write a trace into a hidden sibling directory and rename it when it is whole.

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
    replace
        Whether to take the place of a trace that is at `path`. A reader sees the old trace or the new
        one, or for an instant none, never a mixture.

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
    target = Path(path).resolve()
    _refuse_existing(target, replace=replace)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with _as_store_errors(target):
            (temporary / _EVENTS).mkdir(parents=True)
            tables = {"operators": operators, "channels": channels, "workers": workers}
            _write_content(temporary, meta=meta, events=events, tables=tables, target=target)
            if findings is not None and findings.num_rows:
                _write_parquet(temporary / _FINDINGS, _conform(findings, PAG_FINDINGS, where=f"findings for {target}"))
            seal_trace(temporary)
            # Writing takes a while: somebody else may have come first.
            _refuse_existing(target, replace=replace)
            _move_in_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """The first event of a log that contradicts the events before it."""

    rule: str
    """``value``, ``duplicate_seq``, ``seq_order``, ``clock`` or ``epoch``."""
    worker: int
    """Worker whose log it is."""
    seq: int
    """The event."""
    previous_seq: int | None
    """The event that it contradicts; null for a value that is out of range by itself."""
    observed: int
    """The value found in the event."""
    limit: int
    """The bound that it breaks."""

    @property
    def message(self) -> str:
        """What is wrong, without the file."""
        who = f"worker {self.worker}: event seq {self.seq}"
        match self.rule:
            case "duplicate_seq":
                return f"{who} occurs more than once"
            case "seq_order":
                return f"{who} follows event seq {self.previous_seq}, though numbers must increase"
            case "clock":
                back = self.limit - self.observed
                return f"{who} happened {back} ns before event seq {self.previous_seq}, which precedes it in the log"
            case "epoch":
                return (
                    f"{who} is of epoch {self.observed}, but event seq {self.previous_seq} before it is of"
                    f" epoch {self.limit}"
                )
            case _:
                return f"{who} has a worker, seq, epoch or time out of range: {self.observed} (limit {self.limit})"


def find_violation(events: pa.Table, *, prepared: bool = False, previous: pa.Table | None = None) -> Violation | None:
    """Find the first event, in order of worker and position, that contradicts its predecessors.

    Parameters
    ----------
    events
        Rows as `Trace.events` returns them, at least `worker`, `seq`, `epoch` and `t_ns`: all of a
        log, or any contiguous slice of it.
    prepared
        Whether `seq` need only be unique (in the slice), not increasing.
    previous
        For a slice: the last event of each worker before it, see `last_events`.

    Returns
    -------
    Violation or None
        At equal position a repeated number comes before a falling one, then clock, then epoch.

    Notes
    -----
    Linear; a prepared log is sorted by number once, which is nearly linear where few rows moved.
    """
    if previous is not None and previous.num_rows:
        # The last events before the slice take part as its first rows; they are in order by themselves.
        heads = previous.select(ORDER_COLUMNS).cast(_order_schema())
        events = pa.concat_tables([heads, events.select(ORDER_COLUMNS).cast(_order_schema())])
        events = events.take(pa.array(np.argsort(events["worker"].to_numpy(), kind="stable")))
    if not events.num_rows:
        return None
    worker, seq, epoch, t_ns = (events[name].to_numpy() for name in ORDER_COLUMNS)
    same = worker[1:] == worker[:-1]
    suspects: list[tuple[int, int, Violation]] = []

    def suspect(rank: int, row: int, rule: str, before: int | None, observed: int, limit: int) -> None:
        found = Violation(
            rule=rule,
            worker=int(worker[row]),
            seq=int(seq[row]),
            previous_seq=None if before is None else int(seq[before]),
            observed=observed,
            limit=limit,
        )
        suspects.append((row, rank, found))

    for values, (least, limit) in zip((worker, seq, epoch, t_ns), ORDER_LIMITS.values(), strict=True):
        if (row := _first((values < least) | (values > limit))) is not None:
            suspect(0, row, "value", None, int(values[row]), least if values[row] < least else limit)
    if prepared:
        if (row := _first_repeat(worker, seq)) is not None:
            suspect(1, row, "duplicate_seq", row, int(seq[row]), int(seq[row]))
    elif (row := _first(same & (seq[1:] <= seq[:-1]), 1)) is not None:
        again = bool((seq[:row][worker[:row] == worker[row]] == seq[row]).any())
        suspect(1, row, "duplicate_seq" if again else "seq_order", row - 1, int(seq[row]), int(seq[row - 1]))
    for rank, (rule, values) in enumerate((("clock", t_ns), ("epoch", epoch)), start=2):
        if (row := _first(same & (values[1:] < values[:-1]), 1)) is not None:
            suspect(rank, row, rule, row - 1, int(values[row]), int(values[row - 1]))
    return min(suspects, key=lambda found: found[:2])[2] if suspects else None


def check_events(trace: Trace, events: pa.Table, *, previous: pa.Table | None = None) -> None:
    """Refuse events whose numbers, clocks or epochs contradict the order of the log.

    Parameters
    ----------
    trace
        Trace that the events were read from: says whether it is prepared, and names files.
    events
        Rows as `Trace.events` returns them, at least `worker`, `seq`, `epoch` and `t_ns`: all of a
        log, or any contiguous slice of it.
    previous
        For a slice: the last event of each worker before it, see `last_events`. Without it, what
        happens between two slices goes unchecked.

    Raises
    ------
    TraceFormatError
        Names file, worker and both events of the first violation in order of worker and position.
    """
    found = find_violation(events, prepared=trace.meta.prepared, previous=previous)
    if found is None:
        return
    where = trace.file_of(worker=found.worker, seq=found.seq)
    message = f"{where}: {found.message}."
    raise TraceFormatError(
        message,
        "The log contradicts itself, and a graph of it would be wrong: record the run again, or repair the log.",
        {"file": where, **asdict(found)},
    )


def check_trace(trace: Trace) -> None:
    """Check all events of a trace with `check_events`, one worker after the other.

    Raises
    ------
    TraceFormatError
        Names file, worker and both events of the first violation in order of worker and position.
    """
    for worker in sorted(trace.workers["worker"].to_pylist()):
        check_events(trace, trace.events(ORDER_COLUMNS, workers=[worker]))


def last_events(events: pa.Table) -> pa.Table:
    """Return the last row of every worker, one row per worker, with the columns that checks need.

    Parameters
    ----------
    events
        Rows as `Trace.events` returns them.

    Returns
    -------
    pa.Table
        Columns `worker`, `seq`, `epoch` and `t_ns`; the `previous` of the slice that follows.
    """
    worker = events["worker"].to_numpy()
    last = np.flatnonzero(np.append(worker[1:] != worker[:-1], np.ones(min(len(worker), 1), np.bool_)))
    return events.select(ORDER_COLUMNS).take(pa.array(last))


def _order_schema() -> pa.Schema:
    return pa.schema([TRACE_EVENTS.field(name) for name in ORDER_COLUMNS])


def _first(found: NDArray[np.bool_], shift: int = 0) -> int | None:
    """Return the index of the first true element plus `shift`."""
    if not found.size:
        return None
    index = int(found.argmax())
    return index + shift if found[index] else None


def _first_repeat(worker: NDArray[Any], seq: NDArray[Any]) -> int | None:
    """Return the first row whose worker and number occurred before; rows of a worker stand together."""
    order = np.lexsort((seq, worker))
    repeated = (worker[order][1:] == worker[order][:-1]) & (seq[order][1:] == seq[order][:-1])
    return int(order[1:][repeated].min()) if repeated.any() else None


def _refuse_existing(target: Path, *, replace: bool) -> None:
    if not target.exists():
        return
    if not replace:
        message = f"{target} exists already."
        raise StoreExistsError(message, "Choose another place, or replace it with `--replace`.", {"file": str(target)})
    # A slip of the pen must not cost somebody a folder that is no trace at all.
    if not (target / _META).is_file() and not (target.is_dir() and not any(target.iterdir())):
        message = f"{target} exists and is not a trace, so it is not replaced."
        raise StoreExistsError(message, "Choose another place, or remove it yourself.", {"file": str(target)})


@contextmanager
def _as_store_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except PagGraphError:
        raise
    except OSError as error:
        message = f"The trace {target} cannot be written: {error}."
        raise StoreError(message, "Choose a place that can be written.", {"file": str(target)}) from error


def _refuse_empty(root: Path) -> NoReturn:
    message = f"The trace at {root} has no events."
    raise TraceFormatError(
        message,
        "Was logging switched on before the dataflow was built, and was the log flushed at the end?",
        {"file": str(root)},
    )


def encoded_schema(names: Sequence[str]) -> pa.Schema:
    """Return the schema of columns of events as they are read: words come dictionary-encoded."""
    encoded = pa.dictionary(pa.int32(), pa.string())
    declared = [TRACE_EVENTS.field(name) for name in names]
    return pa.schema([column.with_type(encoded) if column.name in _ENCODED else column for column in declared])


def _read_meta(file: Path) -> TraceMeta:
    where = {"file": str(file)}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        message = f"The trace at {file.parent} has no {_META}."
        raise TraceFormatError(message, _CONVERT_AGAIN, where) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        message = f"{file} cannot be read as JSON: {error}."
        raise TraceFormatError(message, _CONVERT_AGAIN, where) from error
    if not isinstance(found, dict):
        message = f"{file} holds {type(found).__name__}, not an object."
        raise TraceFormatError(message, _CONVERT_AGAIN, where)
    version = found.get("format_version")
    if version != TRACE_FORMAT_VERSION or isinstance(version, bool):
        raise FormatVersionError.from_found_and_known(where=str(file), found=version, known=TRACE_FORMAT_VERSION)
    source = _entry(found, "source", dict, file)
    dropped = _entry(found, "dropped", dict, file)
    return TraceMeta(
        format_version=version,
        trace_id=_entry(found, "trace_id", str, file),
        source=TraceSource(
            system=_entry(source, "system", str, file),
            version=_entry(source, "version", str, file),
            format=_entry(source, "format", str, file),
        ),
        workers=_entry(found, "workers", int, file),
        prepared=_entry(found, "prepared", bool, file),
        aligned=_entry(found, "aligned", bool, file),
        dropped={reason: _entry(dropped, reason, int, file) for reason in dropped},
        complete=_entry(found, "complete", bool, file),
        missing_progress=tuple(
            _scope_name(scope) for scope in _entry({"missing_progress": [], **found}, "missing_progress", list, file)
        ),
        rules=_rules(found, file),
    )


def _rules(found: dict[str, object], file: Path) -> RuleSet:
    word = found.get("rules", str(RuleSet.TIMELY))
    if not isinstance(word, str) or word not in set(RuleSet):
        message = f"{file}: the entry 'rules' is {word!r}, and must be one of {', '.join(RuleSet)}."
        raise TraceFormatError(message, _CONVERT_AGAIN, {"file": str(file), "entry": "rules"})
    return RuleSet(str(word))


def _scope_name(scope: object) -> str:
    """Name a scope as an adapter wrote it down: its own words, or an object with the address of the `scope`."""
    return str(scope.get("scope", scope)) if isinstance(scope, dict) else str(scope)


def _entry(content: dict[str, object], key: str, kind: type[_T], file: Path) -> _T:
    value = content.get(key)
    # bool is an int to Python, but not to a reader of JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        shown = "missing" if key not in content else repr(value)
        message = f"{file}: the entry {key!r} must be of type {kind.__name__}, but is {shown}."
        raise TraceFormatError(message, _CONVERT_AGAIN, {"file": str(file), "entry": key})
    return value


def _read_table(root: Path, name: str, schema: pa.Schema) -> pa.Table:
    file = root / name
    if not file.is_file():
        message = f"The trace at {root} has no {name}."
        raise TraceFormatError(message, _CONVERT_AGAIN, {"file": str(file)})
    try:
        table = pq.read_table(file, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(file, error) from error
    _check_columns(table.schema, schema, where=str(file))
    return _cast(_completed(table, schema.names, schema).select(schema.names), schema, where=str(file))


def _unreadable(file: Path, error: Exception) -> TraceFormatError:
    return TraceFormatError(
        f"{file} cannot be read as Parquet: {error}.",
        "The file is truncated or damaged. " + _CONVERT_AGAIN,
        {"file": str(file)},
    )


def _check_columns(found: pa.Schema, declared: pa.Schema, *, where: str) -> None:
    if missing := [c.name for c in declared if c.name not in found.names and not is_optional(c)]:
        raise MissingColumnError.from_missing_and_available(where=where, missing=missing, available=list(found.names))
    for column in (c for c in declared if c.name in found.names):
        kind = found.field(column.name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        text = pa.types.is_string(column.type) and (pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
        if kind != column.type and not text:
            message = f"{where}: the column {column.name} is of type {kind}, not {column.type}."
            raise SchemaError(message, _CONVERT_AGAIN, {"file": where, "column": column.name})


def _cast(table: pa.Table, schema: pa.Schema, *, where: str) -> pa.Table:
    check_nulls(table, schema, where=where)
    try:
        return table.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        message = f"{where} does not fit the declared columns: {error}."
        raise SchemaError(message, _CONVERT_AGAIN, {"file": where}) from error


def check_nulls(table: pa.Table, schema: pa.Schema, *, where: str) -> None:
    """Refuse a table that lacks a value in a column that must have one; `where` names its file.

    Raises
    ------
    TraceFormatError
        Names file, column, worker and event.
    """
    for column in schema:
        if not column.nullable and column.name in table.column_names and table[column.name].null_count:
            row = pc.index(pc.is_null(table[column.name]), value=True).as_py()
            message = f"{where}: {_event_at(table, row)} has no value in the column {column.name}, which must have one."
            raise TraceFormatError(
                message,
                _CONVERT_AGAIN,
                {"file": where, "column": column.name, "row": row},
            )


def _event_at(table: pa.Table, row: int) -> str:
    """Name an event by worker and number as far as they were read, else by its row."""
    known = [f"{name} {table[name][row]}" for name in ("worker", "seq") if name in table.column_names]
    return " ".join([*known, f"(row {row})"])


def _check_names(names: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in TRACE_EVENTS.names]:
        raise MissingColumnError.from_missing_and_available(
            where="contract 1's table of events", missing=unknown, available=TRACE_EVENTS.names
        )


def check_vocabulary(table: pa.Table, *, where: str) -> None:
    """Refuse events of a kind or activity that contract 1 does not know; `where` names their file.

    Raises
    ------
    TraceFormatError
        Names file, word, worker and event.
    """
    for name, words in VOCABULARIES.items():
        if name not in table.column_names:
            continue
        column = table[name]
        # The dictionaries are small; rows are searched only to name the event.
        encoded = pa.types.is_dictionary(column.type)
        found = {
            word for chunk in column.chunks for word in (chunk.dictionary if encoded else chunk.unique()).to_pylist()
        }
        for word in sorted(found - words - {None}):
            row = pc.index(column.cast(pa.string()), value=word).as_py()
            if row >= 0:
                message = f"{where}: {_event_at(table, row)} has the unknown {name} {word!r}."
                raise TraceFormatError(
                    message,
                    f"Known are {', '.join(sorted(words))}.",
                    {"file": where, "row": row, name: word},
                )


def check_ranges(table: pa.Table, *, where: str) -> None:
    """Refuse events with a number that none of their columns can have; `where` names their file.

    Raises
    ------
    TraceFormatError
        Names file, column, worker and event.
    """
    for name, limit in LIMITS.items():
        if name not in table.column_names:
            continue
        found = pc.min_max(table[name]).as_py()
        if found["min"] is None or (found["min"] >= 0 and found["max"] <= limit):
            continue
        value = found["min"] if found["min"] < 0 else found["max"]
        row = pc.index(table[name], value=pa.scalar(value, table[name].type)).as_py()
        message = f"{where}: {_event_at(table, row)} has {value} in the column {name}; it goes from 0 to {limit}."
        raise TraceFormatError(message, _CONVERT_AGAIN, {"file": where, "column": name, "row": row})


def seal_trace(root: Path) -> None:
    """Write down size and CRC-32 of every file of a trace that is whole, so that later damage shows."""
    sums = {name: _checksum(root / name) for name in _file_names(root)}
    (root / _CHECKSUMS).write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")


def _file_names(root: Path) -> list[str]:
    """Return the files of a trace that readers look at, but for the checksums."""
    events = (f"{_EVENTS}/{file.name}" for file in (root / _EVENTS).glob("*.parquet"))
    small = (_META, "operators.parquet", "channels.parquet", "workers.parquet", _FINDINGS)
    return sorted([*events, *(name for name in small if (root / name).is_file())])


def _checksum(file: Path) -> dict[str, int]:
    size = value = 0
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            size, value = size + len(block), zlib.crc32(block, value)
    return {"bytes": size, "crc32": value}


def _changed_files(root: Path) -> list[pa.Table]:
    """Find the files that are not as they were written; a trace without checksums has none."""
    file = root / _CHECKSUMS
    if not file.is_file():
        return []
    try:
        sums = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{file} cannot be read as JSON: {error}."
        raise TraceFormatError(message, _CONVERT_AGAIN, {"file": str(file)}) from error
    if not isinstance(sums, dict):
        message = f"{file} holds {type(sums).__name__}, not an object."
        raise TraceFormatError(message, _CONVERT_AGAIN, {"file": str(file)})
    names = sorted({*sums, *_file_names(root)})
    present = {name: _checksum(root / name) for name in _file_names(root)}
    changed = [name for name in names if sums.get(name) != present.get(name)]
    action = "read as it is; it was damaged or edited after it was written, and answers may be wrong"
    return [findings_of("file_changed", Severity.ERROR, action, rows=len(changed), file=changed)] if changed else []


class _Gaps:
    """Gaps in the numbers of events, as far as footers tell; only some sources promise to leave none."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._missing: dict[int, tuple[int, str]] = {}

    def look(self, metadata: pq.FileMetaData, file: EventFile) -> None:
        """Take the next file; those of a worker come in the order of its log."""
        if len(file.workers) != 1:
            return
        worker = file.workers[0]
        for group in range(metadata.num_row_groups):
            bounds = _bounds(metadata, group, "seq")
            if bounds is None:
                continue
            gap = bounds[1] - self._last.get(worker, 0) - metadata.row_group(group).num_rows
            if gap > 0:
                count, first = self._missing.get(worker, (0, file.name))
                self._missing[worker] = (count + gap, first)
            self._last[worker] = max(bounds[1], self._last.get(worker, 0))

    def findings(self) -> list[pa.Table]:
        """Return what was found; a row per worker that lacks events."""
        if not self._missing:
            return []
        found = findings_of(
            "events_missing",
            Severity.ERROR,
            "built from what is there; what the missing events would have told is not known",
            rows=len(self._missing),
            worker=list(self._missing),
            file=[first for _, first in self._missing.values()],
            observed=[count for count, _ in self._missing.values()],
            limit=0,
            unit="events",
        )
        return [found]


def _check_known(workers: Iterable[int], known: Collection[int], *, where: str) -> None:
    if unknown := sorted(set(workers) - set(known)):
        message = f"{where} has events of worker {unknown[0]}, which is not in the table of workers."
        raise TraceFormatError(
            message,
            _CONVERT_AGAIN,
            {"file": where, "worker": unknown[0]},
        )


def _check_tables(*, meta: TraceMeta, operators: pa.Table, channels: pa.Table, workers: pa.Table) -> None:
    for name, table, key in (
        ("operators", operators, "operator"),
        ("channels", channels, "channel"),
        ("workers", workers, "worker"),
    ):
        values = table[key].to_numpy()
        keys, counts = np.unique(values, return_counts=True)
        if repeated := keys[counts > 1].tolist():
            message = f"The table of {name} has {key} {repeated[0]} more than once."
            raise TraceFormatError(message, _CONVERT_AGAIN, {"table": name, key: repeated[0]})
        if name == "workers" and (bad := keys[(keys < 0) | (keys > MAX_WORKER)].tolist()):
            message = f"The table of workers has worker {bad[0]}; numbers go from 0 to {MAX_WORKER}."
            raise TraceFormatError(message, _CONVERT_AGAIN, {"table": name, key: bad[0]})
    for name, least in (("offset_ns", 1 - _FAREST_NS), ("uncertainty_ns", 0)):
        for worker, value in zip(workers["worker"].to_pylist(), workers[name].to_pylist(), strict=True):
            if value is not None and not least <= value < _FAREST_NS:
                message = f"The table of workers has the {name} {value} for worker {worker}, which is out of range."
                raise TraceFormatError(message, _CONVERT_AGAIN, {"table": "workers", "worker": worker})
    if meta.workers != workers.num_rows:
        message = f"{_META} states {meta.workers} workers, but the table of workers has {workers.num_rows}."
        raise TraceFormatError(message, _CONVERT_AGAIN, {"table": "workers"})


def open_events(root: Path, name: str, *, encoded: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a file of events, `name` inside the trace; columns in `encoded` come dictionary-encoded."""
    try:
        return pq.ParquetFile(root / name, read_dictionary=list(encoded), pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(root / name, error) from error


def _inspect(root: Path, file: Path, gaps: _Gaps | None) -> EventFile:
    """Check a file's columns, and say what it holds; gaps are told of it as well."""
    name = f"{_EVENTS}/{file.name}"
    with open_events(root, name) as parquet:
        _check_columns(parquet.schema_arrow, TRACE_EVENTS, where=str(file))
        groups = range(parquet.metadata.num_row_groups)
        workers = [_bounds(parquet.metadata, group, "worker") for group in groups]
        epochs = [_bounds(parquet.metadata, group, "epoch") for group in groups]
        if not parquet.metadata.num_rows:
            return EventFile(name=name, rows=0, workers=(), first_epoch=0, last_epoch=0)
        if all(bound and bound[0] == bound[1] for bound in workers) and all(epochs):
            seen = {bound[0] for bound in workers if bound}
            span = [value for bound in epochs if bound for value in bound]
        else:
            table = read_groups(parquet, list(groups), ["worker", "epoch"], where=str(file))
            check_nulls(table, TRACE_EVENTS, where=str(file))
            seen = set(table["worker"].unique().to_pylist())
            span = list(pc.min_max(table["epoch"]).as_py().values())
        found = EventFile(
            name=name,
            rows=parquet.metadata.num_rows,
            workers=tuple(sorted(seen)),
            first_epoch=min(span),
            last_epoch=max(span),
        )
        if gaps is not None:
            gaps.look(parquet.metadata, found)
        return found


def _bounds(metadata: pq.FileMetaData, group: int, name: str) -> tuple[int, int] | None:
    """Return a row group's least and greatest value of a column; null without statistics."""
    index = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == name)
    statistics = metadata.row_group(group).column(index).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min, statistics.max


def read_groups(
    parquet: pq.ParquetFile, groups: list[int], names: list[str], *, where: str, threads: bool = True
) -> pa.Table:
    """Read columns of some row groups of an open file; damage becomes an error that names the file."""
    try:
        table = parquet.read_row_groups(groups, columns=names, use_threads=threads)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(Path(where), error) from error
    return _completed(table, names, TRACE_EVENTS)


def _completed(table: pa.Table, names: Sequence[str], declared: pa.Schema) -> pa.Table:
    """Add the wanted columns that a file may lack, and does; all their values are null."""
    for name in names:
        if name not in table.column_names and is_optional(declared.field(name)):
            table = table.append_column(declared.field(name), pa.nulls(table.num_rows, declared.field(name).type))
    return table


def _read_events(
    root: Path, file: EventFile, names: list[str], workers: NDArray[np.int64] | None, epochs: range | None
) -> pa.Table | None:
    """Read a file's rows of the wanted workers and epochs; `worker` always comes along."""
    if workers is not None and not np.isin(file.workers, workers).any():
        return None
    if epochs is not None and not (file.first_epoch < epochs.stop and epochs.start <= file.last_epoch):
        return None
    where = str(root / file.name)
    filtered = ["epoch"] if epochs is not None else []
    read = list(dict.fromkeys([*names, "worker", *filtered]))
    with open_events(root, file.name, encoded=_ENCODED) as parquet:
        groups = [
            group
            for group in range(parquet.metadata.num_row_groups)
            if _may_hold(_bounds(parquet.metadata, group, "worker"), workers)
            and _overlaps(_bounds(parquet.metadata, group, "epoch"), epochs)
        ]
        table = read_groups(parquet, groups, read, where=where)
    check_nulls(table, TRACE_EVENTS, where=where)
    check_vocabulary(table, where=where)
    check_ranges(table, where=where)
    table = table.cast(encoded_schema(table.column_names))
    keep = np.ones(table.num_rows, np.bool_)
    if workers is not None:
        keep &= np.isin(table["worker"].to_numpy(), workers)
    if epochs is not None:
        epoch = table["epoch"].to_numpy()
        keep &= (epoch >= epochs.start) & (epoch < epochs.stop)
    return table if keep.all() else table.filter(pa.array(keep))


def _may_hold(bounds: tuple[int, int] | None, workers: NDArray[np.int64] | None) -> bool:
    if bounds is None or workers is None:
        return True
    return bool(((workers >= bounds[0]) & (workers <= bounds[1])).any())


def _overlaps(bounds: tuple[int, int] | None, epochs: range | None) -> bool:
    return bounds is None or epochs is None or (bounds[0] < epochs.stop and epochs.start <= bounds[1])


def _conform(table: pa.Table, schema: pa.Schema, *, where: str) -> pa.Table:
    # Columns that may be null may be absent: most sources know only some of them.
    if unknown := [name for name in table.column_names if name not in schema.names]:
        message = f"{where} has the unknown column(s) {', '.join(unknown)}."
        raise SchemaError(message, f"The columns are {', '.join(schema.names)}.", {"file": where, "unknown": unknown})
    required = [column.name for column in schema if not column.nullable]
    if missing := [name for name in required if name not in table.column_names]:
        raise MissingColumnError.from_missing_and_available(
            where=where, missing=missing, available=list(table.column_names)
        )
    columns = [
        table[column.name] if column.name in table.column_names else pa.nulls(table.num_rows, column.type)
        for column in schema
    ]
    return _cast(pa.table(columns, names=schema.names), schema, where=where)


def _write_content(
    directory: Path,
    *,
    meta: TraceMeta,
    events: Iterable[tuple[str, pa.Table]],
    tables: dict[str, pa.Table],
    target: Path,
) -> None:
    schemas = {"operators": TRACE_OPERATORS, "channels": TRACE_CHANNELS, "workers": TRACE_WORKERS}
    tables = {
        name: _conform(table, schemas[name], where=f"the table of {name} for {target}")
        for name, table in tables.items()
    }
    _check_tables(meta=meta, **tables)
    for name, table in tables.items():
        _write_parquet(directory / f"{name}.parquet", table)
    known = set(tables["workers"]["worker"].to_pylist())
    rows = 0
    for stem, content in events:
        file = directory / _EVENTS / f"{stem}.parquet"
        where = f"{stem} for {target}"
        if file.exists():
            message = f"The file {where} was given twice."
            raise TraceFormatError(message, "Give every table of events a name of its own.", {"file": stem})
        table = _conform(content, TRACE_EVENTS, where=where)
        check_vocabulary(table, where=where)
        _check_known(table["worker"].unique().to_pylist(), known, where=where)
        _write_parquet(file, table)
        rows += table.num_rows
    if not rows:
        _refuse_empty(target)
    text = json.dumps({**asdict(meta), "dropped": dict(meta.dropped)}, indent=2, sort_keys=True)
    (directory / _META).write_text(text + "\n", encoding="utf-8")


def _write_parquet(file: Path, table: pa.Table) -> None:
    # Neighbouring numbers differ by little, so delta encoding beats a dictionary many times over.
    pq.write_table(
        table,
        file,
        compression="zstd",
        use_dictionary=[column.name for column in table.schema if pa.types.is_string(column.type)],
        column_encoding={
            column.name: "DELTA_BINARY_PACKED" for column in table.schema if pa.types.is_integer(column.type)
        },
        row_group_size=_ROW_GROUP,
        write_statistics=True,
    )


def _move_in_place(temporary: Path, target: Path) -> None:
    # A directory cannot be renamed over another one that has content: the old one steps aside first.
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.old")
    moved = target.exists()
    if moved:
        target.rename(aside)
    try:
        temporary.rename(target)
    except OSError:
        if moved:
            aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)
