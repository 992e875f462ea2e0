"""Rows of events for rows of people's tables, and numbers for their names."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.errors import TraceFormatError
from pag_graph.model.enums import LOCAL_TYPES, ActivityType, EventKind, Severity
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_EVENTS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.activities.table_columns import Source, places
from pag_graph.store.findings import findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

MESSAGE_WORDS = {
    "data_message": ActivityType.DATA_MESSAGE,
    "control_message": ActivityType.CONTROL_MESSAGE,
    "progress_message": ActivityType.PROGRESS_MESSAGE,
    "spawn": ActivityType.SPAWN,
}
"""What a message's `type` can be; the first where it states none."""

# In one instant: what runs in a wait ends, messages are read, waits end, messages are sent, everything else ends,
# then the epoch, and then something new begins.
_IN_WAIT, _READ, _WAIT_ENDS, _SENT, _ENDS, _EPOCH, _BEGINS, _EXIT = range(8)


class Converter:
    """Numbers for names, and rows of events for rows of the tables."""

    def __init__(self, tables: dict[str, Source], all_findings: list[pa.Table]) -> None:
        self._tables = tables
        self._findings = all_findings
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
        if not any(part.height for part in rows):
            message = f"{self._tables['activities'].files[0]} holds nothing but waits that take no time."
            raise TraceFormatError(message, "Write down when each activity ends, or how long it takes.")
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
        # Numba takes seconds and memory to load, so it is loaded only for tables of activities.
        from pag_graph.kernels.nesting import depths, nest

        source = self._tables["activities"]
        frame = source.frame
        source.refuse(frame["end"] < frame["start"], "the activity ends ({end} ns) before it starts ({start} ns)")
        word = frame["activity"].str.to_lowercase().str.replace_all(r"[- ]", "_")
        local_kinds = [str(kind) for kind in LOCAL_TYPES]
        if (unknown := (~word.is_in(local_kinds)).arg_true()).len():
            _refuse_word(source, int(unknown[0]), str(frame["activity"][int(unknown[0])]), local_kinds, "activity")
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
        depth, is_in_wait = depths(parent, (frame["activity"] == str(ActivityType.WAITING)).to_numpy())
        frame = frame.with_columns(end=pl.Series(end), depth=pl.Series(depth), in_wait=pl.Series(is_in_wait))
        return frame, self._instants(empty.filter(~waits))

    def _report_cuts(self, frame: pl.DataFrame, end: NDArray[np.int64], cut_by: NDArray[np.int64]) -> None:
        cut = np.flatnonzero(cut_by >= 0)
        if not len(cut):
            return
        source, index = self._tables["activities"], frame["_index"].to_list()
        place = places(source, [index[row] for row in (*cut, *cut_by[cut])])
        for row in cut.tolist():
            cut_place, cutting_place = place[index[row]], place[index[cut_by[row]]]
            action = f"ended where the activity of {cutting_place} starts: activities of one worker must nest or follow"
            self._findings.append(
                findings(
                    "activities_overlap",
                    Severity.WARNING,
                    action,
                    worker=int(frame["worker"][row]),
                    file=cut_place,
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
        source.refuse(
            frame["arrived"].is_not_null() & (frame["received"].is_null() | (frame["arrived"] > frame["received"])),
            "a message arrives at {arrived} ns and is received at {received} ns",
            "It is received when it is read: at its arrival, or later.",
        )
        is_started_twice = spawn & frame.select(spawn.alias("spawn"), "to").is_duplicated()
        source.refuse(is_started_twice, "the worker {to} is started more than once")
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
        message_columns = ("channel", "message_seq", "activity", "records", "bytes", "rank")
        yield data.select(
            *message_columns,
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
                *message_columns,
                worker="receiver",
                peer="sender",
                t_ns="received",
                arrived_ns="arrived",
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
            .join(last, on="worker", suffix="_last", maintain_order="left")
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
        first_starts = activities.group_by("worker", "epoch").agg(t=pl.col("start").min()).sort("worker", "epoch")
        lives = events.group_by("worker").agg(
            first=pl.col("t_ns").min(),
            gone=pl.col("t_ns").filter(pl.col("kind") == str(EventKind.EXIT)).min(),
        )
        spawned = events.filter(pl.col("kind") == str(EventKind.SPAWN))["peer"]
        # Going backward, the earliest start of any later epoch comes along.
        later = first_starts.with_columns(
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
        # Without any activity that takes time, nothing states an epoch.
        lowest = 0 if events["stated"].null_count() == events.height else events["stated"].min()
        ended = pl.col("kind") == str(EventKind.EPOCH_END)
        before = (pl.col("stated") + ended.cast(pl.Int64)).cum_max().forward_fill().over("worker")
        reached = before.shift(1).over("worker").fill_null(lowest)
        events = events.with_columns(epoch=pl.max_horizontal("stated", reached))
        late_events = events.filter(
            (pl.col("stated") < pl.col("epoch")) & (pl.col("kind") == str(EventKind.START)) & ~ended
        ).unique("_index", maintain_order=True)
        if late_events.height:
            place = places(self._tables["activities"], late_events["_index"].to_list())
            action = "counted in epoch `limit`, which its worker had reached before"
            self._findings.append(
                findings(
                    "epoch_goes_back",
                    Severity.WARNING,
                    action,
                    rows=late_events.height,
                    worker=late_events["worker"].to_list(),
                    seq=late_events["seq"].to_list(),
                    file=[place[index] for index in late_events["_index"].to_list()],
                    observed=late_events["stated"].to_list(),
                    limit=late_events["epoch"].to_list(),
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
    distinct_names = names.drop_nulls().unique(maintain_order=True).to_list()
    if all(re.fullmatch(r"0|[1-9]\d{0,6}", name) and int(name) <= MAX_WORKER for name in distinct_names):
        return {name: int(name) for name in sorted(distinct_names, key=int)}
    return {name: number for number, name in enumerate(distinct_names)}


def _refuse_word(source: Source, index: int, word: str, known: Sequence[str], kind_of_row: str) -> NoReturn:
    close_words = difflib.get_close_matches(word.lower(), known, n=1)
    problem = f"{word!r} is no type of {'an activity' if kind_of_row == 'activity' else 'a message'}"
    hint = f"Did you mean {close_words[0]}? " if close_words else ""
    source.fail(index, problem, f"{hint}Known are {', '.join(known)}.")
