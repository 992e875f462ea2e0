"""Maps an event log to the canonical trace: driver lanes and executor cores as workers (`docs/spark.md`).

Worker numbers: driver lanes first, then the cores executor by executor. All rows are made of columns; the events are
yielded in parts, so that memory does not grow with the length of the log beyond its tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pag_graph.model.enums import RuleSet, Severity
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.spark.core_events import core_events
from pag_graph.sources.spark.driver import DriverPoints, driver_points
from pag_graph.sources.spark.lane_events import lane_events
from pag_graph.sources.spark.operators import Operators, name_operators
from pag_graph.sources.spark.points import EXECUTORS, LANES, LAUNCH, OFFERS, RESULT
from pag_graph.sources.spark.schedule import MS, Schedule
from pag_graph.sources.spark.shuffles import FIRST_SHUFFLE, Shuffles, shuffle_messages
from pag_graph.sources.spark.trace_rows import Epochs, Lives, close_epochs, lives_of
from pag_graph.store.findings import findings as make_findings
from pag_graph.store.findings import no_findings
from pag_graph.store.meta import TraceMeta, TraceSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.sources.spark.log_tables import LogFinding

__all__ = ["FORMAT", "Mapped", "finding_table", "map_schedule"]

FORMAT = "spark"
"""Name of the format of Spark's event logs."""

_PART = 8_000
"""Instants of a driver's lane that are made into events at a time, and twice the number of tasks: they have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """A trace that is ready to be written: its small tables, and what its events are made of."""

    schedule: Schedule
    meta: TraceMeta
    operators: Operators
    epochs: Epochs
    lanes: int
    """Workers that are driver lanes: the first ones."""
    workers: pa.Table
    operator_table: pa.Table
    channels: pa.Table
    findings: pa.Table
    shuffles: Shuffles
    driver: DriverPoints = field(repr=False)
    lives: Lives = field(repr=False)

    def events(self, *, size: int = _PART) -> Iterator[tuple[str, pa.Table]]:
        """Yield the events, part by part, with a name for each part's file.

        Parameters
        ----------
        size
            Instants of a driver's lane that are made into events at a time, and twice the number of tasks; the events
            are the same.
        """
        yield from lane_events(self.driver, self.epochs, size=size)
        tasks = max(1, size // 2)
        messages, lost_operator = self.shuffles.messages, self.operators.lost
        yield from core_events(
            self.schedule, self.driver, self.epochs, self.lives, messages, lost=lost_operator, size=tasks
        )


def map_schedule(schedule: Schedule, trace_id: str) -> Mapped:
    """Map a log whose open questions are decided.

    Parameters
    ----------
    schedule
        Of one log.
    trace_id
        Identity of the run.

    Returns
    -------
    Mapped
        Small tables, and the events to be had part by part.
    """
    log = schedule.log
    operators = name_operators(schedule)
    shuffles = shuffle_messages(schedule)
    lanes, lives = len(schedule.lanes), lives_of(schedule)
    log_findings = [*log.findings, *schedule.findings, *shuffles.findings]
    return Mapped(
        schedule=schedule,
        meta=TraceMeta(
            trace_id=trace_id,
            source=TraceSource(system="spark", version=log.version, format=FORMAT),
            workers=lanes + len(schedule.cores),
            complete=log.complete,
            dropped=dict(sorted(log.unknown.items())),
            rules=RuleSet.STATED,
        ),
        operators=operators,
        epochs=close_epochs(schedule, lives),
        lanes=lanes,
        workers=_workers(schedule, lanes),
        operator_table=pa.Table.from_pylist(operators.rows(), TRACE_OPERATORS),
        channels=_channels(shuffles, operators),
        findings=finding_table(log_findings, log.name),
        shuffles=shuffles,
        driver=driver_points(schedule, operators, operators.of_tasks(schedule.tasks)),
        lives=lives,
    )


def finding_table(found: list[LogFinding], file: str) -> pa.Table:
    """Return findings about a log as a table.

    Parameters
    ----------
    found
        The findings.
    file
        Name of the log, the same for all.

    Returns
    -------
    Table
        Rows of `PAG_FINDINGS`, one per finding, in order.
    """
    tables = [
        make_findings(
            finding.finding,
            Severity(finding.severity),
            finding.detail,
            file=file,
            observed=finding.observed,
            unit=finding.unit,
        )
        for finding in found
    ]
    return pa.concat_tables(tables) if tables else no_findings()


def _workers(schedule: Schedule, lanes: int) -> pa.Table:
    log = schedule.log
    host = log.properties.get("spark.driver.host")
    offset = schedule.origin_ms * MS
    rows: list[dict[str, Any]] = [
        {
            "worker": lane,
            "process": 0,
            "host": host,
            "name": "driver" if lane == 0 else f"driver lane {lane + 1}",
        }
        for lane in range(lanes)
    ]
    executors = schedule.executors.to_dicts()
    for index, core in enumerate(schedule.cores):
        executor = executors[core.executor]
        name = executor["executor"]
        label = "local" if name == "driver" else f"executor {name}"
        rows.append(
            {
                "worker": lanes + index,
                # In local mode the executor is the driver's process.
                "process": 0 if name == "driver" else core.executor + 1,
                "host": executor["host"] or None,
                "name": f"{label} core {core.number + 1}",
            }
        )
    for worker_row in rows:
        # All times in a log are the driver's.
        worker_row.update(clock_domain="driver", offset_ns=offset, uncertainty_ns=0)
    return pa.Table.from_pylist(rows, TRACE_WORKERS)


def _channels(shuffles: Shuffles, operators: Operators) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {"channel": channel, "scope": "0", "type": text}
        for channel, text in (
            (LAUNCH, "task launch"),
            (RESULT, "task result"),
            (LANES, "driver lanes"),
            (EXECUTORS, "executor state"),
            (OFFERS, "free core"),
        )
    ]
    rows += [
        {
            "channel": FIRST_SHUFFLE + index,
            "scope": "0",
            "source_operator": operators.stages.get(source),
            "target_operator": operators.stages.get(target),
            "type": "shuffle",
        }
        for index, (source, target) in enumerate(shuffles.channels)
    ]
    return pa.Table.from_pylist(rows, TRACE_CHANNELS)
