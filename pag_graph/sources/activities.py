"""Activities and messages that somebody wrote down: by hand, or with a few lines in any system (`docs/generic.md`).

Tables of CSV, JSON lines or Parquet. One says what the workers did (worker, start, end, activity, operator), one which
messages passed between them (from, to, sent, received); two more are optional: workers, and ends of epochs. They become
a trace for the rule set `stated`.
"""

from __future__ import annotations

import csv
import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.errors import MissingColumnError, TraceFormatError
from pag_graph.model.enums import LOCAL_TYPES, ActivityType, EventKind, RuleSet, Severity
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_EVENTS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.files import fingerprint, parquet_columns
from pag_graph.store.findings import findings, no_findings
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.trace import write_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT = "activities"
"""Name of the format."""

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000, "h": 3_600_000_000_000}
"""Units of times, in nanoseconds."""

MESSAGE_WORDS = {
    "data_message": ActivityType.DATA_MESSAGE,
    "control_message": ActivityType.CONTROL_MESSAGE,
    "progress_message": ActivityType.PROGRESS_MESSAGE,
    "spawn": ActivityType.SPAWN,
}
"""What a message's `type` can be; the first where it states none."""

_TEXT, _TIME, _COUNT, _FLAG = "text", "time", "count", "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What one of the tables may hold."""

    columns: dict[str, str]
    """Columns, and what their values are."""
    needed: tuple[str, ...]
    """Columns that it must have."""
    filled: tuple[str, ...]
    """Columns that need a value in every row."""


_TABLES = {
    "activities": _Table(
        columns={
            "worker": _TEXT,
            "start": _TIME,
            "end": _TIME,
            "duration": _TIME,
            "activity": _TEXT,
            "operator": _TEXT,
            "epoch": _COUNT,
            "records": _COUNT,
            "inferred": _FLAG,
        },
        needed=("worker", "start", "activity"),
        filled=("worker", "start", "end", "activity"),
    ),
    "messages": _Table(
        columns={
            "from": _TEXT,
            "to": _TEXT,
            "sent": _TIME,
            "received": _TIME,
            "channel": _TEXT,
            "type": _TEXT,
            "records": _COUNT,
            "bytes": _COUNT,
        },
        needed=("from", "to", "sent"),
        filled=("from", "to", "sent"),
    ),
    "workers": _Table(
        columns={"worker": _TEXT, "process": _TEXT, "host": _TEXT, "end": _TIME},
        needed=("worker",),
        filled=("worker",),
    ),
    "epochs": _Table(columns={"epoch": _COUNT, "end": _TIME}, needed=("epoch", "end"), filled=("epoch", "end")),
}
_SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet")
_FILE_ROWS = 1_000_000
_NUMBER = r"^([+-]?)(\d{1,19})(?:\.(\d+))?\s*(ns|us|µs|μs|ms|s|min|h)?$"
# In one instant: what runs in a wait ends, messages are read, waits end, messages are sent, everything else ends,
# then the epoch, and then something new begins.
_IN_WAIT, _READ, _WAIT_ENDS, _SENT, _ENDS, _EPOCH, _BEGINS, _EXIT = range(8)


@dataclass(frozen=True, kw_only=True)
class _Source:
    """One of the tables as read: clean columns, and where each row came from."""

    frame: pl.DataFrame
    """Columns of the table, times in nanoseconds, plus `_file` and `_row`: number of the file, and row in it."""
    files: tuple[Path, ...]

    def where(self, index: int) -> str:
        """Name the place of a row, for a message to the user."""
        file, row = self.files[self.frame["_file"][index]], int(self.frame["_row"][index])
        if file.suffix == ".parquet":
            return f"{file.name}, row {row}"
        return f"{file.name}, line {_line(file, row)}"

    def refuse(self, found: pl.Series, problem: str, hint: str | None = None) -> None:
        """Refuse the first row that is marked; column names in braces become the row's values."""
        rows = found.fill_null(value=False).arg_true()
        if rows.len():
            index = int(rows[0])
            values = {k: "nothing" if v is None else v for k, v in self.frame.row(index, named=True).items()}
            self.fail(index, problem.format(**values), hint)

    def fail(self, index: int, problem: str, hint: str | None = None) -> NoReturn:
        """Refuse a row.

        Raises
        ------
        TraceFormatError
            Always; names file and line.
        """
        message = f"{self.where(index)}: {problem}."
        file = self.files[self.frame["_file"][index]]
        raise TraceFormatError(message, hint, {"file": str(file), "row": int(self.frame["_row"][index])})


def mismatch(source: Path) -> str | None:
    """Say why `source` holds no activities that somebody wrote down; None if it looks as if it did."""
    if source.is_dir():
        files = [file for file in source.iterdir() if _kind_of(file) == "activities"]
        return None if files else f"a folder without a file activities.csv (or {', '.join(_SUFFIXES[1:])})"
    if source.suffix not in _SUFFIXES:
        return f"neither a folder nor a file with one of the suffixes {', '.join(_SUFFIXES)}"
    try:
        header = set(_header(source))
    except TraceFormatError as error:
        return error.message.rstrip(".")
    missing = [name for name in ("worker", "activity") if name not in header]
    return f"no column {missing[0]}" if missing else None


def convert(source: Path, target: Path, *, replace: bool = False) -> TraceMeta:
    """Convert activities and messages that somebody wrote down to a canonical trace.

    Parameters
    ----------
    source
        A file of activities; or a folder with files ``activities*``, and optionally ``messages*``, ``workers*`` and
        ``epochs*``, as CSV, JSON lines or Parquet. A file of JSON lines may hold rows of several tables.
    target
        Directory of the trace to write.
    replace
        Whether to replace a trace that is there.

    Returns
    -------
    TraceMeta
        Also in the trace. `trace_id` depends on the names and contents of the files.

    Raises
    ------
    TraceFormatError
        If a file is damaged or a value does not fit; names file and line, and says what to write instead.

    Notes
    -----
    O(n log n) in time, all tables in memory.
    """
    tables, files = _read(source)
    found: list[pa.Table] = [no_findings()]
    trace = _Converter(tables, found)
    events = trace.events()
    meta = TraceMeta(
        trace_id=fingerprint((file.name, file.read_bytes()) for file in files),
        source=TraceSource(system="stated", version="", format=FORMAT),
        workers=len(trace.workers),
        dropped={reason: count for reason, count in trace.dropped.items() if count},
        rules=RuleSet.STATED,
    )
    write_trace(
        target,
        meta=meta,
        events=_parts(events),
        operators=trace.operator_table(),
        channels=trace.channel_table(),
        workers=trace.worker_table(),
        findings=pa.concat_tables(found),
        replace=replace,
    )
    return meta


def _parts(events: pl.DataFrame) -> Iterator[tuple[str, pa.Table]]:
    for part, rows in enumerate(events.iter_slices(_FILE_ROWS)):
        yield f"events-{part:05}", rows.to_arrow().cast(TRACE_EVENTS)


class _Converter:
    """Numbers for names, and rows of events for rows of the tables."""

    def __init__(self, tables: dict[str, _Source], found: list[pa.Table]) -> None:
        self._tables = tables
        self._found = found
        self.dropped = {"waits that take no time": 0}
        activities, messages, workers = (tables[name].frame for name in ("activities", "messages", "workers"))
        if not activities.height:
            message = f"{tables['activities'].files[0]} holds no activity."
            raise TraceFormatError(message, "Write one row per activity; docs/generic.md has examples.")
        self.workers = _numbered(pl.concat([workers["worker"], activities["worker"], messages["from"], messages["to"]]))
        self._operators = _numbered(activities["operator"])
        self._channels = _numbered(messages["channel"].fill_null(""))
        listed = tables["workers"]
        listed.refuse(workers["worker"].is_duplicated(), "the worker {worker} is in this table twice")

    def events(self) -> pl.DataFrame:
        """Return the rows of `TRACE_EVENTS`, sorted by worker and position."""
        nested, instants = self._nested()
        rows = [self._starts_and_stops(nested), instants, *self._message_rows(), self._exits()]
        lengths = pl.concat(
            [
                nested.select("worker", "epoch", "start", "end"),
                instants.select("worker", epoch="stated", start="t_ns", end="t_ns"),
            ]
        ).filter(pl.col("epoch").is_not_null())
        rows.append(self._epoch_ends(lengths, pl.concat(rows, how="diagonal")))
        events = (
            pl.concat(rows, how="diagonal")
            .sort("worker", "t_ns", "phase", "rank", maintain_order=True)
            .with_columns(seq=pl.int_range(pl.len(), dtype=pl.Int64).over("worker"))
        )
        events = self._label(events)
        self._check_exits(events)
        unused = [pl.lit(None, pl.Int64).alias(name) for name in ("scope", "timeout_ns")]
        return events.with_columns(unused).select(TRACE_EVENTS.names)

    def _nested(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return activities that take time, each inside another or beside it, and rows of those that take none."""
        # Numba takes seconds and memory to load: only who reads activities pays for it.
        from pag_graph.kernels.nesting import depths, nest

        source = self._tables["activities"]
        frame = source.frame
        source.refuse(frame["end"] < frame["start"], "the activity ends ({end} ns) before it starts ({start} ns)")
        word = frame["activity"].str.to_lowercase().str.replace_all(r"[- ]", "_")
        known = [str(kind) for kind in LOCAL_TYPES]
        if (unknown := (~word.is_in(known)).arg_true()).len():
            _refuse_word(source, int(unknown[0]), str(frame["activity"][int(unknown[0])]), known, "activity")
        frame = frame.with_row_index("_index").with_columns(
            worker=self._worker(frame["worker"]),
            operator=frame["operator"].replace_strict(self._operators, default=None, return_dtype=pl.Int64),
            activity=word,
        )
        if frame["epoch"].null_count() == frame.height:
            # A run without epochs is one.
            frame = frame.with_columns(epoch=pl.lit(0, pl.Int64))
        empty = frame.filter(pl.col("start") == pl.col("end"))
        waits = pl.col("activity") == str(ActivityType.WAITING)
        self.dropped["waits that take no time"] = empty.filter(waits).height
        frame = frame.filter(pl.col("start") < pl.col("end")).sort(
            "worker", "start", "end", descending=[False, False, True], maintain_order=True
        )
        columns = (frame[name].cast(pl.Int64).to_numpy() for name in ("worker", "start", "end"))
        parent, end, cut_by = nest(*columns)
        self._report_cuts(frame, end, cut_by)
        depth, inside = depths(parent, (frame["activity"] == str(ActivityType.WAITING)).to_numpy())
        frame = frame.with_columns(end=pl.Series(end), depth=pl.Series(depth), in_wait=pl.Series(inside))
        return frame, self._instants(empty.filter(~waits))

    def _report_cuts(self, frame: pl.DataFrame, end: NDArray[np.int64], cut_by: NDArray[np.int64]) -> None:
        cut = np.flatnonzero(cut_by >= 0)
        if not len(cut):
            return
        source, index = self._tables["activities"], frame["_index"].to_list()
        place = _places(source, [index[row] for row in (*cut, *cut_by[cut])])
        for row in cut.tolist():
            mine, other = place[index[row]], place[index[cut_by[row]]]
            action = f"ended where the activity of {other} starts: activities of one worker must nest or follow"
            self._found.append(
                findings(
                    "activities_overlap",
                    Severity.WARNING,
                    action,
                    worker=int(frame["worker"][row]),
                    file=mine,
                    observed=int(frame["end"][row]) - int(end[row]),
                    limit=0,
                    unit="ns",
                )
            )

    def _starts_and_stops(self, nested: pl.DataFrame) -> pl.DataFrame:
        stated = (pl.col("worker"), pl.col("operator"), pl.col("epoch").alias("stated"), pl.col("_index"))
        starts = nested.select(
            *stated,
            t_ns="start",
            kind=pl.lit(str(EventKind.START)),
            phase=pl.lit(_BEGINS),
            rank="depth",
            activity="activity",
            records="records",
            inferred=pl.col("inferred").fill_null(value=False),
        )
        phase = (
            pl.when("in_wait")
            .then(_IN_WAIT)
            .when(pl.col("activity") == str(ActivityType.WAITING))
            .then(_WAIT_ENDS)
            .otherwise(_ENDS)
        )
        stops = nested.select(
            *stated, t_ns="end", kind=pl.lit(str(EventKind.STOP)), phase=phase.cast(pl.Int32), rank=-pl.col("depth")
        )
        return pl.concat([starts, stops], how="diagonal")

    def _instants(self, empty: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of activities that take no time: each start right before its stop, in its epoch."""
        base = empty.select(
            "worker",
            "operator",
            "_index",
            t_ns="start",
            phase=pl.lit(_EPOCH),
            rank=2 * pl.col("epoch").fill_null(0),
            stated="epoch",
            activity="activity",
            records="records",
            inferred=pl.col("inferred").fill_null(value=False),
        )
        twice = pl.concat([base.with_columns(kind=pl.lit(str(kind))) for kind in (EventKind.START, EventKind.STOP)])
        stop = pl.col("kind") == str(EventKind.STOP)
        return twice.sort("_index", maintain_order=True).with_columns(
            pl.when(~stop).then(pl.col(name)) for name in ("activity", "records", "inferred")
        )

    def _message_rows(self) -> Iterator[pl.DataFrame]:
        source = self._tables["messages"]
        frame = source.frame
        word = frame["type"].fill_null(str(ActivityType.DATA_MESSAGE)).str.to_lowercase().str.replace_all(r"[- ]", "_")
        if (unknown := (~word.is_in(list(MESSAGE_WORDS))).arg_true()).len():
            _refuse_word(source, int(unknown[0]), str(frame["type"][int(unknown[0])]), list(MESSAGE_WORDS), "message")
        spawn = word == str(ActivityType.SPAWN)
        hint = "A worker that is started begins with its first activity: leave `received` empty."
        source.refuse(spawn & frame["received"].is_not_null(), "a spawn is received at {received} ns", hint)
        source.refuse(spawn & (frame["from"] == frame["to"]), "the worker {from} starts itself")
        twice = spawn & frame.select(spawn.alias("spawn"), "to").is_duplicated()
        source.refuse(twice, "the worker {to} is started more than once")
        frame = frame.with_columns(
            sender=self._worker(frame["from"]),
            receiver=self._worker(frame["to"]),
            channel=frame["channel"].fill_null("").replace_strict(self._channels, return_dtype=pl.Int64),
            word=word,
        ).sort("sent", maintain_order=True)
        yield frame.filter(pl.col("word") == str(ActivityType.SPAWN)).select(
            worker="sender",
            t_ns="sent",
            kind=pl.lit(str(EventKind.SPAWN)),
            peer="receiver",
            phase=pl.lit(_SENT),
            rank=pl.lit(0, pl.Int64),
        )
        data = frame.filter(pl.col("word") != str(ActivityType.SPAWN)).with_columns(
            message_seq=pl.int_range(pl.len(), dtype=pl.Int64).over("channel", "sender", "receiver"),
            activity=pl.when(pl.col("word") != str(ActivityType.DATA_MESSAGE)).then("word"),
            rank=pl.lit(0, pl.Int64),
        )
        both = ("channel", "message_seq", "activity", "records", "bytes", "rank")
        yield data.select(
            *both,
            worker="sender",
            peer="receiver",
            t_ns="sent",
            kind=pl.lit(str(EventKind.SEND)),
            phase=pl.lit(_SENT),
        )
        yield (
            data.filter(pl.col("received").is_not_null())
            .sort("received", maintain_order=True)
            .select(
                *both,
                worker="receiver",
                peer="sender",
                t_ns="received",
                kind=pl.lit(str(EventKind.RECEIVE)),
                phase=pl.lit(_READ),
            )
        )

    def _exits(self) -> pl.DataFrame:
        frame = self._tables["workers"].frame
        return frame.filter(pl.col("end").is_not_null()).select(
            worker=self._worker(frame.filter(pl.col("end").is_not_null())["worker"]),
            t_ns="end",
            kind=pl.lit(str(EventKind.EXIT)),
            phase=pl.lit(_EXIT),
            rank=pl.lit(0, pl.Int64),
        )

    def _check_exits(self, events: pl.DataFrame) -> None:
        last = events.group_by("worker").agg(pl.col("t_ns").max(), gone=pl.col("kind") == str(EventKind.EXIT))
        wrong = (
            events.filter(pl.col("kind") == str(EventKind.EXIT))
            .join(last, on="worker", suffix="_last")
            .filter(pl.col("t_ns") < pl.col("t_ns_last"))
        )
        if wrong.height:
            row = wrong.row(0, named=True)
            source = self._tables["workers"]
            name = next(name for name, number in self.workers.items() if number == row["worker"])
            problem = (
                f"the worker {name} ends at {row['t_ns']} ns, but something happens on it at {row['t_ns_last']} ns"
            )
            source.fail(source.frame["worker"].to_list().index(name), problem)

    def _epoch_ends(self, activities: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
        """Return when each worker sees each epoch end: with its last activity anywhere, or when it goes on itself."""
        ends = self._completions(activities)
        begun = activities.group_by("worker", "epoch").agg(t=pl.col("start").min()).sort("worker", "epoch")
        lives = events.group_by("worker").agg(
            first=pl.col("t_ns").min(),
            gone=pl.col("t_ns").filter(pl.col("kind") == str(EventKind.EXIT)).min(),
        )
        spawned = events.filter(pl.col("kind") == str(EventKind.SPAWN))["peer"]
        # Going backward, the earliest start of any later epoch comes along.
        later = begun.with_columns(
            t=pl.col("t").reverse().cum_min().reverse().over("worker"), epoch=pl.col("epoch") - 1
        ).sort("epoch")
        everywhere = lives.join(ends, how="cross").sort("epoch")
        return (
            everywhere.join_asof(later, on="epoch", by="worker", strategy="forward", check_sortedness=False)
            .with_columns(t_ns=pl.min_horizontal("end", "t"))
            .filter(
                pl.col("gone").is_null() | (pl.col("t_ns") <= pl.col("gone")),
                ~pl.col("worker").is_in(spawned.implode()) | (pl.col("t_ns") >= pl.col("first")),
            )
            .select(
                "worker",
                "t_ns",
                kind=pl.lit(str(EventKind.EPOCH_END)),
                phase=pl.lit(_EPOCH),
                rank=2 * pl.col("epoch") + 1,
                stated="epoch",
            )
        )

    def _completions(self, activities: pl.DataFrame) -> pl.DataFrame:
        """Return one row per epoch, `epoch` and `end`: as stated, or when its last activity ends."""
        source = self._tables["epochs"]
        if source.frame.height:
            stated = source.frame.sort("epoch")
            source.refuse(source.frame["epoch"].is_duplicated(), "epoch {epoch} is in this table twice")
            hint = "An epoch cannot be complete before the one before it."
            back = stated.filter(pl.col("end") < pl.col("end").shift(1))["epoch"]
            source.refuse(source.frame["epoch"].is_in(back.implode()), "epoch {epoch} ends too early ({end} ns)", hint)
            return stated.select("epoch", "end")
        return activities.group_by("epoch").agg(pl.col("end").max()).sort("epoch").with_columns(pl.col("end").cum_max())

    def _label(self, events: pl.DataFrame) -> pl.DataFrame:
        """Give every row its worker's round: as stated, else the one that the worker is in; it never goes back."""
        lowest = events["stated"].min()
        ended = pl.col("kind") == str(EventKind.EPOCH_END)
        before = (pl.col("stated") + ended.cast(pl.Int64)).cum_max().forward_fill().over("worker")
        reached = before.shift(1).over("worker").fill_null(lowest)
        events = events.with_columns(epoch=pl.max_horizontal("stated", reached))
        late = events.filter(
            (pl.col("stated") < pl.col("epoch")) & (pl.col("kind") == str(EventKind.START)) & ~ended
        ).unique("_index", maintain_order=True)
        if late.height:
            place = _places(self._tables["activities"], late["_index"].to_list())
            action = "counted in epoch `limit`, which its worker had reached before"
            self._found.append(
                findings(
                    "epoch_goes_back",
                    Severity.WARNING,
                    action,
                    rows=late.height,
                    worker=late["worker"].to_list(),
                    seq=late["seq"].to_list(),
                    file=[place[index] for index in late["_index"].to_list()],
                    observed=late["stated"].to_list(),
                    limit=late["epoch"].to_list(),
                    unit="epoch",
                )
            )
        return events

    def _worker(self, names: pl.Series) -> pl.Series:
        return names.replace_strict(self.workers, return_dtype=pl.Int32)

    def operator_table(self) -> pa.Table:
        """Return the rows of `TRACE_OPERATORS`."""
        rows = [{"operator": number, "address": str(number), "name": name} for name, number in self._operators.items()]
        return pa.Table.from_pylist(rows, TRACE_OPERATORS)

    def channel_table(self) -> pa.Table:
        """Return the rows of `TRACE_CHANNELS`; a channel's name stands where others have the type of the data."""
        rows = [{"channel": number, "scope": "", "type": name or None} for name, number in self._channels.items()]
        return pa.Table.from_pylist(rows, TRACE_CHANNELS)

    def worker_table(self) -> pa.Table:
        """Return the rows of `TRACE_WORKERS`: one clock, and a process for each unless stated."""
        frame = self._tables["workers"].frame
        stated = {row["worker"]: row for row in frame.iter_rows(named=True)}
        process = {
            name: f"process {(stated.get(name) or {}).get('process') or f'of worker {name}'}" for name in self.workers
        }
        numbers = {name: number for number, name in enumerate(dict.fromkeys(process.values()))}
        rows = [
            {
                "worker": number,
                "process": numbers[process[name]],
                "host": (stated.get(name) or {}).get("host"),
                "clock_domain": "stated",
                "offset_ns": 0,
                "uncertainty_ns": None,
                "name": None if name == str(number) else name,
            }
            for name, number in self.workers.items()
        ]
        return pa.Table.from_pylist(rows, TRACE_WORKERS)


def _numbered(names: pl.Series) -> dict[str, int]:
    """Give every name a number: itself where all are numbers, else its place in the order in which they appear."""
    known = names.drop_nulls().unique(maintain_order=True).to_list()
    if all(re.fullmatch(r"0|[1-9]\d{0,6}", name) and int(name) <= MAX_WORKER for name in known):
        return {name: int(name) for name in sorted(known, key=int)}
    return {name: number for number, name in enumerate(known)}


def _refuse_word(source: _Source, index: int, word: str, known: Sequence[str], what: str) -> NoReturn:
    near = difflib.get_close_matches(word.lower(), known, n=1)
    problem = f"{word!r} is no type of {'an activity' if what == 'activity' else 'a message'}"
    hint = f"Did you mean {near[0]}? " if near else ""
    source.fail(index, problem, f"{hint}Known are {', '.join(known)}.")


# ---- reading


def _kind_of(file: Path) -> str | None:
    """Return which table a file of a folder holds, by its name."""
    if file.suffix not in _SUFFIXES or not file.is_file():
        return None
    return next((name for name in _TABLES if re.match(rf"{name}([^a-z]|$)", file.stem)), None)


def _read(source: Path) -> tuple[dict[str, _Source], list[Path]]:
    """Read all tables; those that are absent are empty."""
    if source.is_dir():
        files = sorted(file for file in source.iterdir() if file.suffix in _SUFFIXES)
        for file in files:
            if _kind_of(file) is None:
                message = f"{file} is none of the tables {', '.join(_TABLES)}, which a file's name begins with."
                near = difflib.get_close_matches(file.stem, list(_TABLES), n=1)
                hint = f"Call it {near[0]}{file.suffix}." if near else "Move it out of the folder."
                raise TraceFormatError(message, hint, {"file": str(file)})
        named = [(file, _kind_of(file)) for file in files]
    else:
        files = [source]
        named = [(source, "activities")]
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in _TABLES}
    for number, (file, name) in enumerate(named):
        for table, frame in _tables_of(file, str(name)):
            parts[table].append(
                _clean(_TABLES[table], frame.with_columns(_file=pl.lit(number, pl.Int64)), tuple(files))
            )
    empty = {name: pl.DataFrame(schema=_schema(table)) for name, table in _TABLES.items()}
    return {
        name: _Source(frame=pl.concat([empty[name], *frames]), files=tuple(files)) for name, frames in parts.items()
    }, files


def _schema(table: _Table) -> dict[str, type[pl.DataType]]:
    kinds = {_TEXT: pl.String, _TIME: pl.Int64, _COUNT: pl.Int64, _FLAG: pl.Boolean}
    columns = {name: kinds[kind] for name, kind in table.columns.items() if name != "duration"}
    return {**columns, "_file": pl.Int64, "_row": pl.Int64}


def _tables_of(file: Path, name: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """Read a file's rows as they are written, with the column `_row`; JSON lines can hold rows of several tables."""
    if file.suffix == ".csv":
        yield name, _read_csv(file)
    elif file.suffix == ".parquet":
        yield name, _read_parquet(file)
    else:
        yield from _read_lines(file, name)


def _read_csv(file: Path) -> pl.DataFrame:
    try:
        frame = pl.read_csv(file, infer_schema=False, comment_prefix="#")
    except (pl.exceptions.PolarsError, OSError) as error:
        # Polars names no line; the slower reader of the standard library finds it.
        if (line := _ragged_line(file)) is not None:
            message = f"{file.name}, line {line[0]}: {line[1]} values, but the header has {line[2]} columns."
            raise TraceFormatError(message, "Put values with commas in quotes.", {"file": str(file)}) from error
        message = f"{file} cannot be read as CSV: {error}."
        raise TraceFormatError(message, None, {"file": str(file)}) from error
    frame = frame.rename({name: name.strip() for name in frame.columns})
    frame = frame.with_row_index("_row").with_columns(pl.col("_row").cast(pl.Int64))
    # Lines without any value are nothing.
    return frame.filter(pl.any_horizontal(pl.exclude("_row").is_not_null())) if frame.width > 1 else frame


def _read_parquet(file: Path) -> pl.DataFrame:
    parquet_columns(file)
    try:
        return pl.read_parquet(file, glob=False).with_row_index("_row").with_columns(pl.col("_row").cast(pl.Int64))
    except (pl.exceptions.PolarsError, OSError) as error:
        message = f"{file} cannot be read as Parquet: {error}."
        raise TraceFormatError(message, "The file is truncated or damaged.", {"file": str(file)}) from error


def _read_lines(file: Path, name: str) -> Iterator[tuple[str, pl.DataFrame]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, line in _lines(file):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            message = f"{file.name}, line {number}: {error.msg}, at column {error.colno}."
            raise TraceFormatError(message, "Write one JSON object per line.", {"file": str(file)}) from error
        if not isinstance(row, dict) or any(isinstance(value, list | dict) for value in row.values()):
            message = f"{file.name}, line {number}: expected an object with plain values."
            raise TraceFormatError(message, 'Such as {"worker": "a", "start": "1ms", ...}.', {"file": str(file)})
        table = name if "worker" in row and ("activity" in row or name != "activities") else _table_of(row, name)
        rows.setdefault(table, []).append({**row, "_row": number})
    for table, found in rows.items():
        names = dict.fromkeys(key for row in found for key in row)
        # Values of one column may be of several types, as people write them: "1ms" here and 5 there.
        columns = {
            key: pl.Series(key, [_written(row.get(key)) for row in found], pl.String) for key in names if key != "_row"
        }
        yield table, pl.DataFrame([*columns.values(), pl.Series("_row", [row["_row"] for row in found], pl.Int64)])


def _table_of(row: dict[str, Any], name: str) -> str:
    """Return the table that a JSON row belongs to, by its keys."""
    if name != "activities":
        return name
    if "from" in row or "to" in row:
        return "messages"
    if "worker" in row and not {"start", "activity"} & set(row):
        return "workers"
    return "epochs" if set(row) == {"epoch", "end"} else name


def _written(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and not line.startswith("#"):
                    yield number, line
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be read as text: {error}."
        raise TraceFormatError(message, None, {"file": str(file)}) from error


def _header(file: Path) -> list[str]:
    """Return the names of a file's columns."""
    if file.suffix == ".parquet":
        return parquet_columns(file)
    for _, line in _lines(file):
        if file.suffix == ".csv":
            return [name.strip() for name in next(csv.reader([line]))]
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            return []
        # The first row may be a message or a worker.
        return ["worker", "activity"] if isinstance(row, dict) and {"worker", "from"} & set(row) else []
    return []


def _line(file: Path, row: int) -> int:
    """Return the line of a text file that holds a row, as an editor counts."""
    return row if file.suffix != ".csv" else _csv_lines(file, [row])[row]


def _csv_lines(file: Path, rows: Sequence[int]) -> dict[int, int]:
    """Return the lines on which rows of a CSV file begin; quoted values may span several."""
    wanted = set(rows)
    found: dict[int, int] = {}
    comments = 0

    def kept(lines: Iterable[str]) -> Iterator[str]:
        nonlocal comments
        for line in lines:
            if line.startswith("#"):
                comments += 1
            else:
                yield line

    with file.open(encoding="utf-8", newline="", errors="replace") as lines:
        reader, before = csv.reader(kept(lines)), 0
        # Row -1 is the header; an empty line is a row without values.
        for row, _ in enumerate(reader, start=-1):
            if row in wanted:
                found[row] = before + comments + 1
            before = reader.line_num
            if len(found) == len(wanted):
                break
    return {row: found.get(row, row + 2) for row in rows}


def _ragged_line(file: Path) -> tuple[int, int, int] | None:
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            reader = csv.reader(line if not line.startswith("#") else "\n" for line in lines)
            header = next((row for row in reader if row), [])
            for row in reader:
                if len(row) > len(header):
                    return reader.line_num, len(row), len(header)
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    return None


def _places(source: _Source, indices: Sequence[int]) -> dict[int, str]:
    """Name the places of many rows; each file is gone through once."""
    by_file: dict[int, list[int]] = {}
    for index in dict.fromkeys(indices):
        by_file.setdefault(int(source.frame["_file"][index]), []).append(index)
    named: dict[int, str] = {}
    for number, mine in by_file.items():
        file = source.files[number]
        rows = {index: int(source.frame["_row"][index]) for index in mine}
        lines = _csv_lines(file, list(rows.values())) if file.suffix == ".csv" else {}
        word = "row" if file.suffix == ".parquet" else "line"
        named |= {index: f"{file.name}, {word} {lines.get(row, row)}" for index, row in rows.items()}
    return named


# ---- cleaning


def _clean(table: _Table, frame: pl.DataFrame, files: tuple[Path, ...]) -> pl.DataFrame:
    """Give a table as written its declared columns and types."""
    source = _Source(frame=frame, files=files)
    file = files[int(frame["_file"][0])] if frame.height else files[0]
    columns: dict[str, pl.Series] = {}
    for written in frame.columns:
        if written in {"_file", "_row"}:
            continue
        name, unit = _column_name(table, written, file)
        if name in columns:
            message = f"{file.name} has the column {name} twice: {written} is the second one."
            raise TraceFormatError(message, None, {"file": str(file)})
        columns[name] = _convert(source, written, table.columns[name], unit)
    if missing := [name for name in table.needed if name not in columns]:
        raise MissingColumnError.from_missing_and_available(where=str(file), missing=missing, available=list(columns))
    if "duration" in table.columns:
        if ("end" in columns) == ("duration" in columns):
            found = "both" if "end" in columns else "neither of"
            message = f"{file.name} has {found} the columns end and duration."
            raise TraceFormatError(message, "Give one of them.", {"file": str(file)})
        if "duration" in columns:
            columns["end"] = columns["start"] + columns.pop("duration")
    clean = pl.DataFrame(
        [
            columns[name].alias(name) if name in columns else pl.Series(name, [None] * frame.height, kind)
            for name, kind in _schema(table).items()
            if not name.startswith("_")
        ]
    ).with_columns(frame["_file"], frame["_row"])
    checked = _Source(frame=clean, files=files)
    for name in table.filled:
        checked.refuse(clean[name].is_null(), f"no value for {name}")
    return clean


def _column_name(table: _Table, written: str, file: Path) -> tuple[str, str | None]:
    """Return which column is meant, and the unit that its name states."""
    name, _, unit = written.lower().rpartition("_")
    if table.columns.get(name) == _TIME and unit in UNITS:
        return name, unit
    if written.lower() in table.columns:
        return written.lower(), None
    near = difflib.get_close_matches(written.lower(), list(table.columns), n=1)
    message = f"{file.name} has the unknown column {written!r}."
    hint = f"Did you mean {near[0]}? " if near else ""
    raise TraceFormatError(message, f"{hint}Known are {', '.join(table.columns)}.", {"file": str(file)})


def _convert(source: _Source, name: str, kind: str, unit: str | None) -> pl.Series:
    values = source.frame[name]
    if values.dtype == pl.Categorical or isinstance(values.dtype, pl.Enum):
        values = values.cast(pl.String)
    if values.dtype == pl.String:
        values = values.str.strip_chars()
        values = values.set(values == "", None)
    if kind == _TEXT:
        return values if values.dtype == pl.String else values.cast(pl.String)
    if kind == _TIME:
        return _times(source, name, values, unit)
    if kind == _COUNT:
        return _counts(source, name, values)
    flags = values if values.dtype == pl.Boolean else values.cast(pl.String).str.to_lowercase()
    if flags.dtype == pl.String:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        flags = values.cast(pl.String).str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)
        _refuse_values(source, name, values, flags, "must be true or false")
    return flags


def _counts(source: _Source, name: str, values: pl.Series) -> pl.Series:
    numbers = values.cast(pl.Int64, strict=False)
    if values.dtype.is_float():
        numbers = numbers.set(values != values.round(0), None)
    numbers = numbers.set(numbers < 0, None)
    _refuse_values(source, name, values, numbers, "must be a whole number, and not negative")
    return numbers


def _times(source: _Source, name: str, values: pl.Series, unit: str | None) -> pl.Series:
    """Convert times to nanoseconds, exactly: 1.5ms, 0.25 s, 120; or points in time such as 2024-05-01T12:00:00.5Z."""
    scale = UNITS[unit or "ns"]
    if isinstance(values.dtype, pl.Datetime):
        return values.dt.cast_time_unit("ns").dt.timestamp("ns")
    if isinstance(values.dtype, pl.Duration):
        return values.dt.cast_time_unit("ns").cast(pl.Int64)
    if values.dtype.is_integer():
        numbers = values.cast(pl.Int64, strict=False)
        return numbers * scale if scale > 1 else numbers
    if values.dtype.is_float():
        if unit is None:
            message = f"{source.where(0)}: {name} holds numbers with a point and without a unit."
            raise TraceFormatError(message, f"Call the column {name}_ms, or {name}_s, or whatever its unit is.")
        return (values * scale).round(0).cast(pl.Int64)
    if values.dtype != pl.String:
        values = values.cast(pl.String)
    numbers = _spelled(values, unit)
    rest = values.set(numbers.is_not_null(), None)
    if rest.null_count() < rest.len():
        moments = rest.str.to_datetime(time_unit="ns", time_zone="UTC", strict=False, format="%+")
        numbers = pl.select(pl.coalesce(numbers, moments.dt.timestamp("ns"))).to_series()
    expected = "must be a time such as 1.5ms, 20us, 3s, or whole nanoseconds"
    _refuse_values(source, name, values, numbers, expected)
    return numbers


def _spelled(values: pl.Series, unit: str | None) -> pl.Series:
    """Read numbers with units; null where a value is none, or is finer than whole nanoseconds without a unit."""
    parts = values.to_frame("value").select(
        sign=pl.col("value").str.extract(_NUMBER, 1),
        whole=pl.col("value").str.extract(_NUMBER, 2).cast(pl.Int64, strict=False),
        digits=pl.col("value").str.extract(_NUMBER, 3),
        unit=pl.col("value").str.extract(_NUMBER, 4).replace({"µs": "us", "μs": "us"}),
    )
    scale = pl.col("unit").fill_null(unit or "ns").replace_strict(UNITS, return_dtype=pl.Int64)
    # Nine digits after the point are exact for seconds; what is below a nanosecond is cut off.
    fraction = pl.col("digits").fill_null("").str.head(9).str.pad_end(9, "0").cast(pl.Int64)
    small = pl.when(scale < UNITS["s"]).then(fraction * scale // UNITS["s"]).otherwise(fraction * (scale // UNITS["s"]))
    fits = (pl.col("whole") <= (2**62) // scale) & ~(pl.col("digits").is_not_null() & (scale == 1))
    sign = pl.when(pl.col("sign") == "-").then(-1).otherwise(1)
    return parts.select(pl.when(fits).then(sign * (pl.col("whole") * scale + small)).alias("t")).to_series()


def _refuse_values(source: _Source, name: str, values: pl.Series, converted: pl.Series, expected: str) -> None:
    bad = (values.is_not_null() & converted.is_null()).arg_true()
    if bad.len():
        index = int(bad[0])
        source.fail(index, f"{name} is {values[index]!r}, and {expected}")
