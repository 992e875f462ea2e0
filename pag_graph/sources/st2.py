"""Logs of Timely 0.10 programs as SnailTrail 2 records and prepares them.

Two Parquet files. `st2-raw` is the log as recorded, one row per logged event: epoch, seq_no, length, ts (ns on the
worker's own clock), worker, kind (operates, start, stop, message, progress), id (operator), is_send, source, target,
channel, msg_seq, msg_length, addr, name. Epoch 0 is the dataflow's structure.
`st2-lrs` is what SnailTrail 2 makes of it before it builds a graph: seq_no, epoch, timestamp, local_worker,
activity_type (Scheduling, DataMessage, ControlMessage), event_type (Start, End, Sent, Received), remote_worker,
operator_id, channel_id, correlator_id, length, start, end. Such a trace is marked as prepared.

Neither says when a worker's clock began or which process it ran in: offsets are 0, and every worker is a process and a
clock domain of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from pag_graph.errors import TraceFormatError
from pag_graph.model.enums import EventKind
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.foreign_files import Schema, fingerprint, iter_frames, parquet_columns, parquet_rows, refuse_rows
from pag_graph.sources.st2_survey import Survey, worker_of
from pag_graph.store.capacity import lacking
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.trace import write_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

RAW_FORMAT = "st2-raw"
"""Name of the format of logs as recorded."""
RECORDS_FORMAT = "st2-lrs"
"""Name of the format of logs after SnailTrail 2's preparation."""

_RAW: Schema = {
    **dict.fromkeys(("epoch", "seq_no", "length", "ts", "worker"), pl.Int64),
    "kind": pl.String,
    **dict.fromkeys(("id", "is_send", "source", "target", "channel", "msg_seq", "msg_length"), pl.Int64),
    **dict.fromkeys(("addr", "name"), pl.String),
}
_RECORDS: Schema = {
    **dict.fromkeys(("seq_no", "epoch", "timestamp", "local_worker"), pl.Int64),
    **dict.fromkeys(("activity_type", "event_type"), pl.String),
    **dict.fromkeys(("remote_worker", "operator_id", "channel_id", "correlator_id", "length"), pl.Int64),
}
_RAW_KINDS = ("operates", "start", "stop", "message", "progress")
_RECORD_KINDS = {
    "Scheduling Start": EventKind.START,
    "Scheduling End": EventKind.STOP,
    "DataMessage Sent": EventKind.SEND,
    "DataMessage Received": EventKind.RECEIVE,
    "ControlMessage Sent": EventKind.PROGRESS_SEND,
    "ControlMessage Received": EventKind.PROGRESS_RECEIVE,
}
_PART_ROWS = 1024 * 1024
"""Rows that are read at a time; of each worker's among them a file of the trace is made."""
_KEPT_ROWS = 4 * _PART_ROWS
_ROW_BYTES = 1_000
"""Memory of a row that is kept, as it was read and as an event."""
_MOST_FILES = 1_000
# Columns that a row must have to become an event of its kind.
_NEEDED = {
    EventKind.START: ("operator",),
    EventKind.STOP: ("operator",),
    EventKind.SEND: ("channel", "peer", "message_seq"),
    EventKind.RECEIVE: ("channel", "peer", "message_seq"),
    EventKind.PROGRESS_SEND: ("channel", "message_seq"),
    EventKind.PROGRESS_RECEIVE: ("channel", "peer", "message_seq"),
}


def raw_mismatch(source: Path) -> str | None:
    """Say why `source` is no log as recorded; None if it looks as if it were."""
    return _mismatch(source, _RAW)


def records_mismatch(source: Path) -> str | None:
    """Say why `source` is no log after SnailTrail 2's preparation; None if it looks as if it were."""
    return _mismatch(source, _RECORDS)


def convert_raw(source: Path, target: Path, *, replace: bool = False) -> TraceMeta:
    """Convert a log as recorded to a canonical trace.

    Parameters
    ----------
    source
        Parquet file of the format `st2-raw`.
    target
        Directory of the trace to write, with a file per worker, or several of a long log.
    replace
        Whether to replace a trace that is there.

    Returns
    -------
    TraceMeta
        Also in the trace. `trace_id` depends on the dataflow's structure and each worker's first event.

    Raises
    ------
    TraceFormatError
        If the file is damaged or contradicts itself; names the row.

    Notes
    -----
    `seq` is the log's `seq_no`. A data message's `records` is its own length, a stop's is what the
    log counted for the activation. Only data channels are in the table of channels, without ends.
    """
    pieces = _Pieces(source, _RAW)
    structures: list[pl.DataFrame] = []
    survey = Survey(source, numbered=True)
    for first_row, frame in pieces:
        _check_raw(frame, source, first_row)
        structures.append(frame.filter(pl.col("kind") == "operates"))
        survey.add_numbers(frame)
    structure = pl.concat(structures) if structures else pl.DataFrame(schema=_RAW)
    operators = _operators(structure, source)
    scopes = dict(zip(operators["address"], operators["operator"], strict=True))

    parts = _Parts(pieces, lambda frame, first_row: _raw_events(frame, first_row, scopes))
    for part in parts:
        survey.add(part)
    return _write(
        parts,
        survey=survey,
        target=target,
        replace=replace,
        format_name=RAW_FORMAT,
        operators=operators,
        dropped={"operates": structure.height} if structure.height else {},
    )


def _check_raw(frame: pl.DataFrame, source: Path, first_row: int) -> None:
    refuse_rows(
        frame,
        ~pl.col("kind").is_in(_RAW_KINDS).fill_null(value=False),
        file=source,
        problem="unknown kind {kind}",
        first_row=first_row,
    )
    kind, sent = pl.col("kind"), pl.col("is_send") == 1
    is_data, is_progress = kind == "message", kind == "progress"
    refuse_rows(
        frame,
        (is_data | is_progress) & ~pl.col("is_send").is_in([0, 1]).fill_null(value=False),
        file=source,
        problem="a message of which is_send is {is_send}, which says neither that it was sent nor read",
        first_row=first_row,
    )
    refuse_rows(
        frame,
        (is_data | is_progress)
        & (
            pl.when(sent).then(pl.col("source")).when(is_data).then(pl.col("target")).otherwise(pl.col("worker"))
            != pl.col("worker")
        ).fill_null(value=True),
        file=source,
        problem="a message from {source} to {target} in the log of worker {worker}",
        first_row=first_row,
    )
    refuse_rows(
        frame,
        ~pl.col("worker").is_between(0, MAX_WORKER).fill_null(value=True),
        file=source,
        problem="a worker that is none: {worker}",
        first_row=first_row,
    )
    for name in ("worker", "seq_no", "id"):
        refuse_rows(
            frame,
            (kind == "operates") & pl.col(name).is_null(),
            file=source,
            problem=f"an operator without {name}",
            first_row=first_row,
        )


def _raw_events(frame: pl.DataFrame, first_row: int, scopes: Mapping[str, int]) -> pl.DataFrame:
    """Return the rows of events of rows of the log, and `row`, their numbers in it."""
    kind, sent = pl.col("kind"), pl.col("is_send") == 1
    is_data, is_progress = kind == "message", kind == "progress"
    message = is_data | is_progress
    return (
        frame.with_row_index("row", first_row)
        .filter(kind != "operates")
        .select(
            "row",
            worker=pl.col("worker"),
            seq=pl.col("seq_no"),
            epoch=pl.col("epoch"),
            t_ns=pl.col("ts"),
            kind=pl.when(is_data & sent)
            .then(pl.lit(EventKind.SEND.value))
            .when(is_data)
            .then(pl.lit(EventKind.RECEIVE.value))
            .when(is_progress & sent)
            .then(pl.lit(EventKind.PROGRESS_SEND.value))
            .when(is_progress)
            .then(pl.lit(EventKind.PROGRESS_RECEIVE.value))
            .otherwise(kind),
            operator=pl.when(~message).then(pl.col("id")),
            channel=pl.when(message).then(pl.col("channel")),
            scope=pl.when(is_progress).then(pl.col("addr").replace_strict(scopes, default=None, return_dtype=pl.Int64)),
            peer=pl.when(is_data & sent).then(pl.col("target")).when(message & ~sent).then(pl.col("source")),
            message_seq=pl.when(message).then(pl.col("msg_seq")),
            records=pl.when(is_data).then(pl.col("msg_length")).when(kind == "stop").then(pl.col("length")),
        )
    )


def convert_records(source: Path, target: Path, *, replace: bool = False) -> TraceMeta:
    """Convert a log after SnailTrail 2's preparation to a canonical trace, marked as prepared.

    Parameters
    ----------
    source
        Parquet file of the format `st2-lrs`.
    target
        Directory of the trace to write, with a file per worker, or several of a long log.
    replace
        Whether to replace a trace that is there.

    Returns
    -------
    TraceMeta
        Also in the trace. `trace_id` depends on each worker's first event.

    Raises
    ------
    TraceFormatError
        If the file is damaged or contradicts itself; names the row.

    Notes
    -----
    `seq` is the log's `seq_no`; rows keep the file's order, in which numbers are not increasing
    where a receive was moved. The log does not say what operators are called or where they are: the
    table has the ids that occur, with empty names and addresses.
    """
    pieces = _Pieces(source, _RECORDS)
    survey = Survey(source, numbered=False)
    label = pl.concat_str("activity_type", "event_type", separator=" ")
    names = {text: str(kind) for text, kind in _RECORD_KINDS.items()}
    for first_row, frame in pieces:
        refuse_rows(
            frame,
            ~label.is_in(list(names)).fill_null(value=False),
            file=source,
            problem="unknown record {activity_type} {event_type}",
            first_row=first_row,
        )

    def events(frame: pl.DataFrame, first_row: int) -> pl.DataFrame:
        return frame.with_row_index("row", first_row).select(
            "row",
            worker=pl.col("local_worker"),
            seq=pl.col("seq_no"),
            epoch=pl.col("epoch"),
            t_ns=pl.col("timestamp"),
            kind=label.replace_strict(names, return_dtype=pl.String),
            operator=pl.col("operator_id"),
            channel=pl.col("channel_id"),
            scope=pl.lit(None, pl.Int64),
            peer=pl.col("remote_worker"),
            message_seq=pl.col("correlator_id"),
            records=pl.col("length"),
        )

    parts = _Parts(pieces, events)
    for part in parts:
        survey.add(part)
    operators = pl.DataFrame({"operator": pl.Series(sorted(survey.operators), dtype=pl.Int64)}).with_columns(
        address=pl.lit(""), name=pl.lit("")
    )
    return _write(
        parts,
        survey=survey,
        target=target,
        replace=replace,
        format_name=RECORDS_FORMAT,
        operators=operators,
        dropped={},
    )


class _Pieces:
    """Rows of a log, some millions at a time, with the number of their first row; may be gone through again."""

    def __init__(self, source: Path, columns: Schema) -> None:
        self._source, self._columns = source, columns
        # The rows of a small file are kept: decoding them again takes longer than all other steps.
        rows = parquet_rows(source)
        self.whole = rows <= _KEPT_ROWS and lacking(rows * _ROW_BYTES) is None
        self._kept = list(self._read()) if self.whole else None

    def __iter__(self) -> Iterator[tuple[int, pl.DataFrame]]:
        return iter(self._kept) if self._kept is not None else self._read()

    def check(self, events: pl.DataFrame) -> None:
        """Refuse rows that lack what makes them events."""
        _check_rows(events, self._source)

    def _read(self) -> Iterator[tuple[int, pl.DataFrame]]:
        first_row = 0
        for frame in iter_frames(self._source, self._columns, _PART_ROWS):
            yield first_row, frame
            first_row += frame.height


class _Parts:
    """Events of the pieces of a log, apart by worker; may be gone through again."""

    def __init__(self, pieces: _Pieces, events: Callable[[pl.DataFrame, int], pl.DataFrame]) -> None:
        self._pieces, self._events = pieces, events
        self._kept = list(self._make()) if pieces.whole else None

    def __iter__(self) -> Iterator[list[pl.DataFrame]]:
        return iter(self._kept) if self._kept is not None else self._make()

    def _make(self) -> Iterator[list[pl.DataFrame]]:
        for first_row, frame in self._pieces:
            events = self._events(frame, first_row)
            self._pieces.check(events)
            yield events.partition_by("worker", maintain_order=True)


def _mismatch(source: Path, columns: Schema) -> str | None:
    if not source.is_file():
        return "it is not a file"
    try:
        available = parquet_columns(source)
    except TraceFormatError:
        return "it cannot be read as Parquet"
    missing = [name for name in columns if name not in available]
    return f"it lacks the column(s) {', '.join(missing)}" if missing else None


def _operators(structure: pl.DataFrame, source: Path) -> pl.DataFrame:
    # Workers log the same structure; what differs makes events of one of them unreadable.
    rows = structure.select("worker", "id", "addr", "name").fill_null("").unique(maintain_order=True)
    stated = rows.unique(["id", "addr", "name"], keep="first", maintain_order=True)
    contradicting = stated.filter(pl.col("id").is_duplicated()).sort("id", maintain_order=True).head(2)
    if contradicting.height:
        (first, key, *first_statement), (second, _, *second_statement) = contradicting.iter_rows()
        message = (
            f"{source}: worker {second} states {second_statement} for operator {key},"
            f" but worker {first} states {first_statement}."
        )
        hint = "All workers must build the same dataflows in the same order."
        raise TraceFormatError(message, hint, {"file": str(source), "operator": key, "workers": [first, second]})
    return stated.sort("id").select(operator="id", address="addr", name="name")


def _write(
    parts: _Parts,
    *,
    survey: Survey,
    target: Path,
    replace: bool,
    format_name: str,
    operators: pl.DataFrame,
    dropped: dict[str, int],
) -> TraceMeta:
    firsts = survey.firsts
    numbers = firsts["worker"].to_list()
    meta = TraceMeta(
        trace_id=fingerprint([("operators", operators.write_csv().encode()), ("first", firsts.write_csv().encode())]),
        source=TraceSource(system="timely", version="", format=format_name),
        workers=len(numbers),
        prepared=format_name == RECORDS_FORMAT,
        aligned=False,
        idle_logged=False,
        dropped=dropped,
    )
    write_trace(
        target,
        meta=meta,
        events=_event_files(parts),
        operators=operators.to_arrow().select(TRACE_OPERATORS.names),
        channels=pa.Table.from_pylist(
            [{"channel": channel, "scope": ""} for channel in sorted(survey.channels)], TRACE_CHANNELS
        ),
        workers=pa.Table.from_pylist(
            [{"worker": number, "process": number, "clock_domain": str(number), "offset_ns": 0} for number in numbers],
            TRACE_WORKERS,
        ),
        findings=survey.findings(),
        replace=replace,
    )
    return meta


def _check_rows(events: pl.DataFrame, source: Path) -> None:
    for name in ("worker", "seq", "epoch", "t_ns"):
        _refuse(events, pl.col(name).is_null(), source, f"no {name}")
    for name in ("worker", "peer"):
        _refuse(events, ~pl.col(name).is_between(0, MAX_WORKER), source, f"a {name} that is none: {{{name}}}")
    for kind, needed in _NEEDED.items():
        for name in needed:
            _refuse(events, (pl.col("kind") == kind.value) & pl.col(name).is_null(), source, f"a {kind} without {name}")


def _refuse(events: pl.DataFrame, condition: pl.Expr, source: Path, problem: str) -> None:
    refused = events.filter(condition).head(1)
    if refused.height:
        row = int(refused["row"][0])
        message = f"{source}, row {row}: {problem.format(**refused.row(0, named=True))}."
        raise TraceFormatError(message, "The log contradicts itself.", {"file": str(source), "row": row})


def _event_files(parts: _Parts) -> Iterator[tuple[str, pa.Table]]:
    for number, part in enumerate(parts):
        if len(part) > _MOST_FILES:
            # As many files would take longer to open than to read.
            yield f"events-{number:05}", pl.concat(sorted(part, key=worker_of)).drop("row").to_arrow()
            continue
        for worker_events in part:
            yield f"worker-{worker_of(worker_events):07}-{number:05}", worker_events.drop("row").to_arrow()
