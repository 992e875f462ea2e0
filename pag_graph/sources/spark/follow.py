"""Follows an event log in progress: what comes is mapped up to the last quiet instant, and added to a trace.

The trace is a directory like any other, with a folder more, which the one who adds holds a lock of::

    eventlog/state.json   the log's position behind the last portion, and where numbers go on

A portion is added in this order: small tables, events, state. Whoever is killed in between adds the same files again,
for a portion depends on the log alone.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.errors import InvalidParameterError, StoreConflictError, StoreError
from pag_graph.model.enums import RuleSet
from pag_graph.model.tables import PAG_FINDINGS, TRACE_EVENTS
from pag_graph.sources.foreign_files import fingerprint
from pag_graph.sources.spark.carried import Carried
from pag_graph.sources.spark.growing_log import GrowingLog, Position
from pag_graph.sources.spark.mapping import FORMAT, finding_table
from pag_graph.sources.spark.open_units import UNITS
from pag_graph.sources.spark.portion_reader import PortionReader
from pag_graph.sources.spark.portions import Portions
from pag_graph.store.description import SCHEMAS
from pag_graph.store.held import Use, claimed
from pag_graph.store.in_place import refusals
from pag_graph.store.meta import TraceMeta, TraceSource, read_meta, write_meta
from pag_graph.store.trace import write_table
from pag_graph.store.trace_columns import conform
from pag_graph.store.trace_files import EVENTS, FINDINGS, META

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.sources.spark.codecs import Stopped
    from pag_graph.sources.spark.portion_reader import Portion

__all__ = ["EventLogFeed", "check_unit", "trace_meta"]

_FOLDER, _STATE = "eventlog", "state.json"
_MOST_ROWS = 1 << 20
"""Rows of one file of events."""
_SAME_CLOCK_MS = 10_000
"""The clock of this machine and the log's are one if events are at most so old when they are read."""
_STILL = 20
"""Looks without anything new after which a log that names its end, and never bore ``.inprogress``, has ended."""


def check_unit(unit: str) -> str:
    """Return a unit that an epoch can be.

    Raises
    ------
    InvalidParameterError
        If it is none.
    """
    if unit not in UNITS:
        message = f"An epoch cannot be a {unit!r}."
        raise InvalidParameterError(message, f"Give one of {', '.join(UNITS)}.")
    return unit


def trace_meta(reader: PortionReader, portions: Portions, *, complete: bool) -> TraceMeta:
    """Return what holds for the trace of a log that is mapped portion by portion.

    Parameters
    ----------
    reader, portions
        The log so far.
    complete
        Whether nothing follows; only then is what was left out counted.
    """
    facts = [("app", reader.app_id), ("start", str(portions.origin_ms)), ("epochs", reader.units.unit)]
    return TraceMeta(
        trace_id=fingerprint([(name, fact.encode()) for name, fact in facts]),
        source=TraceSource(system="spark", version=reader.version, format=FORMAT),
        workers=portions.workers.num_rows,
        complete=complete,
        dropped=reader.dropped if complete else {},
        rules=RuleSet.STATED,
    )


class EventLogFeed:
    """Adds what an event log has to a trace.

    Parameters
    ----------
    log
        File or directory, in progress or not; need not be there yet.
    trace
        Directory of the trace; made, or gone on with.
    unit
        What an epoch is: one of `open_units.UNITS`.
    replace
        Whether to begin anew, whatever was followed into the trace before.

    Raises
    ------
    InvalidParameterError
        If the unit is none.
    StoreConflictError
        If somebody else adds to the trace, or it is of another log or of other units.
    StoreError
        If the file system refuses, or something else is there.
    """

    def __init__(self, log: Path, trace: Path, *, unit: str = "batch", replace: bool = False) -> None:
        self.unit = check_unit(unit)
        self._trace, self._name = trace, log.name.removesuffix(".inprogress")
        self._still, self._heard_ms = 0, 0
        self._written: dict[str, int] = {}
        self._meta: TraceMeta | None = None
        with ExitStack() as claims, refusals(trace, "The trace", StoreError):
            self._open(claims)
            if replace:
                self._clear()
            state = self._state()
            self._files = state.get("files", 0)
            self._reader = PortionReader(self._name, unit, state=state.get("reader"))
            position = Position(*state["position"]) if state else None
            self._log = GrowingLog(log, position, missing=self._lack, stopped=self._stop_at)
            self._portions = Portions()
            if state:
                tables = {name: pq.read_table(trace / f"{name}.parquet") for name in SCHEMAS}
                self._portions = Portions(Carried.of(state["carried"]), tables)
                self._meta = read_meta(trace / META)
            self._held = claims.pop_all()

    def _open(self, claims: ExitStack) -> None:
        """Make the folders, and be the one who adds."""
        folder = self._trace / _FOLDER
        if self._trace.is_dir() and not folder.is_dir() and any(self._trace.iterdir()):
            message = f"{self._trace} is not empty, and holds no trace of an event log that is followed."
            raise StoreError(message, "Choose another place: --trace DIR.", {"path": str(self._trace)})
        folder.mkdir(parents=True, exist_ok=True)
        (self._trace / EVENTS).mkdir(exist_ok=True)
        if claims.enter_context(claimed(folder)) is Use.LIVING:
            message = f"Another process adds to the trace at {self._trace}."
            raise StoreConflictError(message, "Wait until it ends, or choose another place.", {"path": str(folder)})

    def _clear(self) -> None:
        """Remove what is there; the state first, so that whoever is killed in between leaves nothing to go on with."""
        (self._trace / _FOLDER / _STATE).unlink(missing_ok=True)
        for file in [*(self._trace / EVENTS).iterdir(), *self._trace.glob("*.parquet"), self._trace / META]:
            file.unlink(missing_ok=True)

    def _state(self) -> dict[str, Any]:
        """Return what an earlier process left; nothing where there was none."""
        file = self._trace / _FOLDER / _STATE
        if not file.exists():
            return {}
        state: dict[str, Any] = orjson.loads(file.read_bytes())
        for name, expected, noun in (("log", self._name, "log"), ("unit", self.unit, "unit")):
            if state[name] != expected:
                message = f"{self._trace} was made of the {noun} {state[name]}, not {expected}."
                raise StoreConflictError(message, "Follow it into a store of its own.", {"path": str(self._trace)})
        return state

    def _save(self) -> None:
        state = {
            "log": self._name,
            "unit": self.unit,
            "files": self._files,
            "position": list(self._log.position),
            "reader": self._reader.saved,
            "carried": self._portions.carried.state(),
        }
        self._replace(f"{_FOLDER}/{_STATE}", lambda file: file.write_bytes(orjson.dumps(state)))

    def close(self) -> None:
        """Let somebody else add to the trace."""
        self._held.close()

    @property
    def ended(self) -> bool:
        """Whether the log has ended, and the trace holds all of it."""
        return self._meta is not None and self._meta.complete

    @property
    def reader(self) -> PortionReader:
        """What was read of the log."""
        return self._reader

    def look(self) -> bool:
        """Add what has come.

        Returns
        -------
        bool
            Whether anything was read.

        Raises
        ------
        TraceFormatError
            If the log is shorter than it was, or its application another one.
        StoreError
            If the file system refuses.
        """
        if self.ended:
            return False
        with refusals(self._trace, "The trace", StoreError):
            events_before = self._reader.events
            for line in self._log.lines():
                if (portion := self._reader.line(line)) is not None:
                    self._add(portion)
            if self._reader.events != events_before:
                self._heard_ms = time.time_ns() // 1_000_000
            self._still = self._still + 1 if self._reader.events == events_before else 0
            if self._reader.ended and not self._log.in_progress and (self._log.renamed or self._still >= _STILL):
                self._end()
            return self._still == 0 or self.ended

    def ongoing(self, now_ms: int) -> list[dict[str, Any]]:
        """Say what is under way: bounds that only grow.

        Parameters
        ----------
        now_ms
            Milliseconds since 1970 by the clock of this machine, which counts where the log is written by it as well.

        Returns
        -------
        list of dict
            Per unit, the oldest first: `name`, `since_ms`, `so_far_ms`; for a batch what `BatchTimes.compared` says.
            Empty once the application is over: by its end, or where another one begins in the log.
        """
        if self._reader.ended:
            return []
        last_ms = self._reader.last_ms
        until = now_ms if abs(self._heard_ms - last_ms) < _SAME_CLOCK_MS else last_ms
        ongoing_units = []
        for unit in self._reader.units.under():
            so_far = max(0, until - unit.since_ms)
            unit_row: dict[str, Any] = {"name": unit.name, "since_ms": unit.since_ms, "so_far_ms": so_far}
            ongoing_units.append(
                unit_row | (self._reader.units.times.compared(unit.query, so_far) if unit.query else {})
            )
        return ongoing_units

    # --- What the log says of itself ----------------------------------------------------------------------------------

    def _lack(self, parts: int) -> None:
        """Parts went before they were read: what was under way ends there."""
        self._reader.lack(parts)
        if (portion := self._reader.give_up()) is not None:
            self._add(portion)

    def _stop_at(self, name: str, stop: Stopped) -> None:
        self._reader.stop(name, stop)

    # --- The trace ----------------------------------------------------------------------------------------------------

    def _add(self, portion: Portion, *, last: bool = False) -> None:
        tables: list[pa.Table] = []
        for table in self._portions.add(portion):
            if not tables:
                self._describe()
            elif sum(held_table.num_rows for held_table in tables) + table.num_rows > _MOST_ROWS:
                self._write(tables)
                tables = []
            tables.append(table)
        self._write(tables)
        if not last:
            self._save()

    def _describe(self, *, complete: bool = False) -> None:
        """Write the small tables and `meta.json` where they changed, before any event that needs them."""
        for name, table in self._portions.tables.items():
            if self._written.get(name) != table.num_rows:
                self._replace(f"{name}.parquet", partial(write_table, table=table))
                self._written[name] = table.num_rows
        meta = trace_meta(self._reader, self._portions, complete=complete)
        if meta != self._meta:
            self._replace(META, partial(write_meta, meta))
            self._meta = meta

    def _write(self, tables: list[pa.Table]) -> None:
        table = pa.concat_tables(conform(events, TRACE_EVENTS, where="an event log") for events in tables)
        table = table.sort_by([("worker", "ascending"), ("seq", "ascending")])
        self._replace(f"{EVENTS}/portion-{self._files:09}.parquet", partial(write_table, table=table))
        self._files += 1

    def _end(self) -> None:
        """Add the last portion, and say that the trace is complete; killed before that, the next one does it again."""
        for line in self._log.ends():
            self._reader.line(line)
        self._reader.lines.too_long += self._log.too_long
        if (portion := self._reader.last(in_progress=False)) is not None:
            self._add(portion, last=True)
        findings = conform(finding_table(self._portions.findings(), self._name), PAG_FINDINGS, where="findings")
        if findings.num_rows:
            self._replace(FINDINGS, partial(write_table, table=findings))
        self._describe(complete=True)

    def _replace(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file of the trace whole, or not at all."""
        hidden = self._trace / _FOLDER / f"{name.rsplit('/', 1)[-1]}.tmp"
        write(hidden)
        hidden.replace(self._trace / name)
