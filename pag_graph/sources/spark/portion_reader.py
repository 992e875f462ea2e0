"""Reads a log portion by portion: each ends at a quiet instant, and is a log of its own for the mapping.

Where a portion ends depends on the events and their order alone, so a log has the same portions however it comes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from pag_graph.sources.spark.batch_times import BatchTimes
from pag_graph.sources.spark.begins import another_may_begin
from pag_graph.sources.spark.extent import find_extent
from pag_graph.sources.spark.log_tables import SparkLog, note
from pag_graph.sources.spark.logfiles import LogFiles
from pag_graph.sources.spark.open_units import OpenUnits
from pag_graph.sources.spark.reader import Reading
from pag_graph.sources.spark.texts import Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pag_graph.sources.spark.codecs import Stopped

__all__ = ["Portion", "PortionReader"]

_FACTS = ("app_id", "app_name", "version", "start_ms", "properties")
_OF_READING = frozenset(
    {
        "line_unreadable",
        "line_too_long",
        "event_damaged",
        "value_out_of_range",
        "event_unknown",
        "application_start_missing",
        "log_incomplete",
    }
)
"""Findings about all lines so far: they are told with the last portion."""
_TIMES = {
    "tasks": ("launch_ms", "finish_ms", "getting_result_ms"),
    "jobs": ("submitted_ms", "completed_ms"),
    "stages": ("submitted_ms", "completed_ms"),
    "executions": ("started_ms", "ended_ms"),
    "executors": ("added_ms", "removed_ms"),
}
_MOVED = ("tasks", "jobs", "stages")
"""Tables none of whose rows is from before the portion."""


class Portion(NamedTuple):
    """A log from one quiet instant to the next one."""

    log: SparkLog
    """Begins and ends at these instants."""
    begin_ms: int
    end_ms: int
    last: bool
    """Whether nothing follows."""


class _OwnReading(Reading):
    """A reading of one portion, which tells of units that begin and end."""

    def __init__(self, texts: Texts, units: OpenUnits, begin_ms: int | None) -> None:
        super().__init__(texts)
        self._begin_ms = begin_ms
        self.late = 0
        self._own_start, self._own_end = self._task_start, self._task_end
        self.handlers["SparkListenerTaskEnd"] = self._end_of_own
        for name, unit_handler in units.handlers().items():
            self.handlers[name] = _handled_by_both(self.handlers.get(name, self._unknown), unit_handler)

    def _end_of_own(self, event: dict[str, Any]) -> None:
        """Leave out the end of a task that an earlier portion has given up."""
        info = event["Task Info"]
        launch = info["Launch Time"]
        if info["Task ID"] not in self.running and self._begin_ms is not None and launch < self._begin_ms:
            self.late += 1
            return
        self._own_end(event)

    def _unknown(self, event: dict[str, Any]) -> None:
        name = str(event["Event"]).strip()
        self.unknown[name] = self.unknown.get(name, 0) + 1


def _handled_by_both(handler: Callable[[dict[str, Any]], None], unit_handler: Callable[[dict[str, Any]], None]) -> Any:
    def call(event: dict[str, Any]) -> None:
        handler(event)
        unit_handler(event)

    return call


class PortionReader:
    """Reads lines of one log.

    Parameters
    ----------
    name
        Of the log.
    unit
        What an epoch is: one of `open_units.UNITS`.
    keep_texts
        As for `read_log`.
    state
        What `saved` was, to go on behind a portion.
    """

    def __init__(
        self, name: str, unit: str, *, keep_texts: bool = False, state: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.units = OpenUnits(unit)
        self._texts = Texts(keep_texts)
        self._begin_ms: int | None = None
        self.saved: Mapping[str, Any] = {}
        """What must be known to go on behind the portion that ended last; as JSON can hold it."""
        self._reading = _OwnReading(self._texts, self.units, None)
        if state is not None:
            self._load(state)

    @property
    def lines(self) -> Any:
        """What cuts the content into lines, and counts."""
        return self._reading.lines

    @property
    def ended(self) -> bool:
        """Whether nothing follows of the application: its end was read, or the begin of another one."""
        return self._reading.log.complete or self._reading.of_others > 0

    @property
    def app_id(self) -> str:
        """Spark's name of the application."""
        return self._reading.log.app_id

    @property
    def version(self) -> str:
        """Spark's version."""
        return self._reading.log.version

    @property
    def dropped(self) -> dict[str, int]:
        """Events that say nothing about time, counted by name."""
        return dict(sorted(self._reading.unknown.items()))

    @property
    def events(self) -> int:
        """Events that were read so far."""
        return sum(self._reading.counts.values())

    @property
    def last_ms(self) -> int:
        """Latest time so far."""
        return self._reading.last_ms

    def stop(self, name: str, stop: Stopped) -> None:
        """Note where a file of the log cannot be read on.

        Parameters
        ----------
        name
            The file's name.
        stop
            Where and why. It becomes a finding, ``file_truncated`` or ``file_damaged``, with the bytes before that.
        """
        detail = f"{name}: {stop.reason} at byte {stop.offset}; read what is before"
        self._reading.find(f"file_{stop.reason}", "warning", stop.offset, "bytes", detail)

    def lack(self, parts: int) -> None:
        """Note that some parts of a rolling log are missing."""
        detail = "parts of a rolling log that are not there"
        self._reading.find("log_part_missing", "error", parts, "files", detail)

    def line(self, line: bytes) -> Portion | None:
        """Take in a line; return the portion that ends with it, if one does."""
        reading = self._reading
        reading.line(line)
        # What may turn out to be another application's stays in one portion, which can leave it out.
        if self.ended or not self.units.quiet(reading.running) or another_may_begin(reading):
            return None
        return self._cut()

    def give_up(self) -> Portion | None:
        """End a portion where the log has a gap, whatever is under way; none where nothing follows any more."""
        self.units.give_up()
        if self.ended or not self.units.ended or another_may_begin(self._reading):
            return None
        return self._cut()

    def last(self, *, in_progress: bool) -> Portion | None:
        """Return what is left when nothing follows; None if no event was read at all."""
        reading = self._reading
        if not reading.counts:
            return None
        log = self._result(in_progress=in_progress)
        begin, end = find_extent(log, [])
        return Portion(self._within_portion(log, begin, log.end_ms), begin, end, last=True)

    def _cut(self) -> Portion:
        reading = self._reading
        begin_ms = self._begin_ms
        reading.log.complete = True
        state, executors = self._carried(), reading.executors
        log = self._result(in_progress=False)
        log.findings = [finding for finding in log.findings if finding.finding not in _OF_READING]
        log.end_ms = None
        origin, end = find_extent(log, [])
        # The end of the last unit is told to others before the portion ends.
        last_completed = log.jobs["completed_ms"].max()
        end = max(end, last_completed + 1 if isinstance(last_completed, int) else end)
        begin = origin if begin_ms is None else begin_ms
        portion = Portion(self._within_portion(log, begin, end), begin, end, last=False)
        self._begin_ms = end
        self.units.cut()
        stay = (
            named_executor
            for named_executor in executors.items()
            if named_executor[1]["removed_ms"] is None or named_executor[1]["removed_ms"] > end
        )
        self.saved = state | {"begin_ms": end, "executors": dict(stay)}
        self._load(self.saved)
        return portion

    def _result(self, *, in_progress: bool) -> SparkLog:
        reading, begin = self._reading, self._begin_ms
        late = reading.late
        log = reading.result(LogFiles(name=self.name, files=(), in_progress=in_progress))
        detail = "ends of tasks of earlier units, which were given up; left out"
        note(log.findings, "task_end_late", "warning", late, "tasks", detail)
        if begin is not None:
            log.start_ms = begin
            _move(log, begin)
        return log

    def _within_portion(self, log: SparkLog, begin: int, end: int | None) -> SparkLog:
        return replace(log, start_ms=begin, end_ms=end, unit=self.units.unit, portion=True)

    def _carried(self) -> dict[str, Any]:
        """Return what a next portion needs of this reading."""
        reading = self._reading
        open_executions = {
            number: execution_row
            for number, execution_row in reading.executions.items()
            if execution_row["ended_ms"] is None
        }
        odd = reading.tasks.odd_values + reading.accumulators.odd_values + reading.memory.odd_values
        return {
            "facts": {name: getattr(reading.log, name) for name in _FACTS},
            "executions": [[number, execution_row] for number, execution_row in open_executions.items()],
            "counts": dict(reading.counts),
            "unknown": dict(reading.unknown),
            "damaged": dict(reading.damaged),
            "unparsed": reading.unparsed,
            "too_long": reading.lines.too_long,
            "odd": odd,
            "first_started": reading.first_started,
            "opened": self.units.opened,
            "silent": self.units.silent,
            "batches": self.units.times.state(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._begin_ms = state["begin_ms"]
        lines = self._reading.lines
        self._reading = reading = _OwnReading(self._texts, self.units, self._begin_ms)
        for name in _FACTS:
            setattr(reading.log, name, state["facts"][name])
        reading.executors = {name: dict(saved_row) for name, saved_row in state["executors"].items()}
        reading.executions = {number: dict(saved_row) for number, saved_row in state["executions"]}
        reading.counts, reading.unknown = dict(state["counts"]), dict(state["unknown"])
        reading.damaged, reading.unparsed = dict(state["damaged"]), state["unparsed"]
        reading.lines, reading.lines.too_long = lines, state["too_long"]
        reading.tasks.odd_values, reading.first_started = state["odd"], state["first_started"]
        reading.first_ms = reading.last_ms = self._begin_ms or 0
        self.units.opened, self.units.silent = state["opened"], state["silent"]
        self.units.times = BatchTimes(state["batches"])


def _move(log: SparkLog, begin: int) -> None:
    """Move times that lie before the portion to its begin."""
    moved_rows = 0
    for table, columns in _TIMES.items():
        rows: pl.DataFrame = getattr(log, table)
        early = {name: (pl.col(name) > 0) & (pl.col(name) < begin) for name in columns if name in rows.columns}
        if table in _MOVED:
            moved_rows += int(rows.select(pl.any_horizontal(early.values()).sum()).item())
        begin_ms = pl.lit(begin, pl.Int64)
        setattr(
            log,
            table,
            rows.with_columns(
                pl.when(is_early).then(begin_ms).otherwise(name).alias(name) for name, is_early in early.items()
            ),
        )
    detail = "times before the quiet instant at which the log is cut; moved there"
    note(log.findings, "time_before_cut", "info", moved_rows, "rows", detail)
