"""Maps portions of a log one by one, so that their traces make one trace.

A portion begins and ends at a quiet instant: no job runs, and no task. Every worker that is there has events up to
its end: a core that has no more tasks is idle until then, and from then on waits for its next one. So the mapping of a
portion needs of those before only which workers are there, and where numbers go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.spark.carried import Carried
from pag_graph.sources.spark.log_tables import LogFinding
from pag_graph.sources.spark.mapping import Mapped, map_schedule
from pag_graph.sources.spark.operators import APPLICATION
from pag_graph.sources.spark.points import EXECUTORS, LANES
from pag_graph.sources.spark.schedule import MS, infer_schedule
from pag_graph.sources.spark.shuffles import FIRST_SHUFFLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from pag_graph.sources.spark.portion_reader import Portion

    I64 = NDArray[np.int64]

__all__ = ["Portions"]


class Portions:
    """A trace in the making.

    Parameters
    ----------
    carried
        Where an earlier process stopped.
    tables
        Its tables ``operators``, ``channels`` and ``workers``; rows that came after that are dropped.
    """

    def __init__(self, carried: Carried | None = None, tables: Mapping[str, pa.Table] | None = None) -> None:
        self.carried = carried or Carried()
        self.origin_ms = self.carried.origin_ms
        """When the application began, in milliseconds since 1970; None before the first portion."""
        counts = (self.carried.operators, self.carried.channels, self.carried.workers)
        saved = tables or {}
        self.operators, self.channels, self.workers = (
            saved.get(name, schema.empty_table()).slice(0, count)
            for (name, schema), count in zip(_TABLES.items(), counts, strict=True)
        )

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The small tables of the trace so far."""
        return {"operators": self.operators, "channels": self.channels, "workers": self.workers}

    def add(self, portion: Portion) -> Iterator[pa.Table]:
        """Map the next portion.

        Parameters
        ----------
        portion
            Begins where the one before ended.

        Yields
        ------
        pa.Table
            Its events, as `TRACE_EVENTS` without columns that are null. The small tables know all that is in them
            before the first one is yielded; `carried` goes on when the last one was asked for.
        """
        carried = self.carried
        origin = self.origin_ms = portion.begin_ms if carried.origin_ms is None else carried.origin_ms
        log = replace(portion.log, lanes=carried.lanes, cores=dict(carried.cores))
        mapped = map_schedule(infer_schedule(log), "")
        numbers = self._numbers(mapped, origin)
        begin_ns = (portion.begin_ms - origin) * MS
        seq = {worker: carried.seq.get(int(worker), 0) for worker in numbers.workers.tolist()}
        born = {worker for worker in seq if worker not in carried.seq}
        events = 0
        for _, table in mapped.events():
            rows = numbers.told(pl.DataFrame(table), begin_ns, born)
            if rows.height:
                rows = _with_seq(rows, seq)
                events += rows.height
                yield rows.to_arrow()
        self.carried = self._after(mapped, numbers, origin, seq, events)
        if not portion.last:
            yield self._ends((portion.end_ms - origin) * MS)

    def _ends(self, t_ns: int) -> pa.Table:
        """Return an activity of no length on every worker that stays: what comes before it is certain at once."""
        workers = sorted(self.carried.alive.values())
        seq = [self.carried.seq[worker] for worker in workers]
        for worker in workers:
            self.carried.seq[worker] += 2
        self.carried.events += 2 * len(workers)
        kinds = [str(EventKind.START), str(EventKind.STOP)]
        rows = pl.DataFrame({"worker": workers, "seq": seq, "kind": [kinds] * len(workers)}).explode("kind")
        number = pl.int_range(pl.len(), dtype=pl.Int64).over("worker")
        return rows.select(
            worker=pl.col("worker").cast(pl.Int32),
            seq=pl.col("seq") + number,
            epoch=pl.lit(self.carried.epochs, pl.Int64),
            t_ns=pl.lit(t_ns, pl.Int64),
            kind="kind",
            activity=pl.when(number == 0).then(pl.lit(str(ActivityType.IDLE))),
            operator=pl.lit(APPLICATION, pl.Int64),
        ).to_arrow()

    def findings(self) -> list[LogFinding]:
        """Return what was odd in all portions, summed."""
        return [
            LogFinding(
                finding=name,
                severity=sums["severity"],
                observed=sums["observed"],
                unit=sums["unit"],
                detail=sums["detail"],
            )
            for name, sums in sorted(self.carried.findings.items())
        ]

    def _numbers(self, mapped: Mapped, origin_ms: int) -> _Numbers:
        """Give what is new its numbers, and return those of all that the portion names."""
        carried = self.carried
        workers = mapped.workers
        names = workers["name"].to_pylist()
        is_new = np.array([name not in carried.alive for name in names])
        numbers = np.array([carried.alive.get(name, -1) for name in names], np.int64)
        numbers[is_new] = np.arange(is_new.sum()) + carried.workers
        offset = pa.array(np.full(len(names), origin_ms * MS), pa.int64())
        workers = workers.set_column(workers.column_names.index("offset_ns"), "offset_ns", offset)
        # An executor's process is called after its first core: its place among the executors of a portion changes.
        first_core: dict[int, int] = {}
        local = workers["process"].to_pylist()
        for process, number in zip(local, numbers.tolist(), strict=True):
            first_core.setdefault(process, number)
        processes = pa.array([first_core[process] if process else 0 for process in local], workers["process"].type)
        workers = workers.set_column(workers.column_names.index("process"), "process", processes)
        self.workers = _appended(self.workers, workers, "worker", numbers, is_new)
        operators = mapped.operator_table
        open_operators = carried.open_operators
        addresses = operators["address"].to_pylist()
        is_new_operator = np.array([address not in open_operators for address in addresses])
        of_operators = np.array([open_operators.get(address, -1) for address in addresses], np.int64)
        of_operators[is_new_operator] = np.arange(is_new_operator.sum()) + carried.operators
        self.operators = _appended(self.operators, operators, "operator", of_operators, is_new_operator)
        channels = mapped.channels
        channel_numbers = channels["channel"].to_numpy()
        shuffles = max(0, carried.channels - _FIXED)
        of_channels = np.where(channel_numbers >= FIRST_SHUFFLE, channel_numbers + shuffles, channel_numbers)
        is_new_channel = channel_numbers >= (FIRST_SHUFFLE if carried.channels else 0)
        for end in ("source_operator", "target_operator"):
            place = channels.column_names.index(end)
            column = channels[end].to_pylist()
            channel_ends = pa.array(
                [None if operator is None else int(of_operators[operator]) for operator in column], pa.int64()
            )
            channels = channels.set_column(place, end, channel_ends)
        self.channels = _appended(self.channels, channels, "channel", of_channels, is_new_channel)
        return _Numbers(numbers, of_operators, carried, shuffles)

    def _after(self, mapped: Mapped, numbers: _Numbers, origin: int, seq: dict[int, int], events: int) -> Carried:
        carried, schedule = self.carried, mapped.schedule
        names = mapped.workers["name"].to_pylist()
        stays = [not exits for exits in mapped.lives.exits.tolist()]
        cores: dict[str, int] = {}
        executors = schedule.executors["executor"].to_list()
        for core, stays_on in zip(schedule.cores, stays[mapped.lanes :], strict=True):
            if stays_on:
                cores[executors[core.executor]] = core.number + 1
        alive = {
            name: int(number) for name, number, stays_on in zip(names, numbers.workers, stays, strict=True) if stays_on
        }
        sparse_points = mapped.driver.few
        open_executions = schedule.log.executions.filter(pl.col("ended_ms").is_null())["execution"].to_list()
        open_numbers = {0, *(mapped.operators.executions[number] for number in open_executions)}
        addresses = mapped.operators.addresses
        return Carried(
            origin_ms=origin,
            portions=carried.portions + 1,
            epochs=carried.epochs + len(mapped.epochs.ends),
            events=carried.events + events,
            tasks=carried.tasks + schedule.tasks.height,
            lane_messages=carried.lane_messages + _numbers_used(sparse_points, LANES),
            executor_messages=carried.executor_messages + _numbers_used(sparse_points, EXECUTORS),
            shuffle_messages=carried.shuffle_messages + mapped.shuffles.messages.height,
            lanes=len(schedule.lanes),
            workers=self.workers.num_rows,
            operators=self.operators.num_rows,
            channels=self.channels.num_rows,
            alive=alive,
            seq={worker: seq[worker] for worker in alive.values()},
            cores=cores,
            open_operators={addresses[number]: int(numbers.operators[number]) for number in sorted(open_numbers)},
            findings=_summed(carried.findings, [*schedule.log.findings, *schedule.findings, *mapped.shuffles.findings]),
        )


_TABLES = {"operators": TRACE_OPERATORS, "channels": TRACE_CHANNELS, "workers": TRACE_WORKERS}
_FIXED = 5
"""Channels that are not of shuffles."""


class _Numbers:
    """Numbers of a portion's workers, operators, channels and messages in the whole trace."""

    def __init__(self, workers: I64, operators: I64, carried: Carried, shuffles: int) -> None:
        self.workers, self.operators, self._carried, self._shuffles = workers, operators, carried, shuffles

    def told(self, rows: pl.DataFrame, begin_ns: int, born: set[int]) -> pl.DataFrame:
        """Return events as they stand in the trace; the births of those who are there already are left out."""
        carried = self._carried
        channel = pl.col("channel")
        number = (
            pl.when(channel == LANES)
            .then(carried.lane_messages)
            .when(channel == EXECUTORS)
            .then(carried.executor_messages)
            .when(channel >= FIRST_SHUFFLE)
            .then(carried.shuffle_messages)
            .otherwise(carried.tasks)
        )
        rows = rows.with_columns(
            worker=_renumbered(rows["worker"], self.workers).cast(pl.Int32),
            peer=_renumbered(rows["peer"], self.workers).cast(pl.Int32),
            operator=_renumbered(rows["operator"], self.operators),
            channel=pl.when(channel >= FIRST_SHUFFLE).then(channel + self._shuffles).otherwise(channel),
            message_seq=pl.col("message_seq") + number,
            epoch=pl.col("epoch") + carried.epochs,
            t_ns=pl.col("t_ns") + begin_ns,
        )
        born_before = (pl.col("kind") == str(EventKind.SPAWN)) & ~pl.col("peer").is_in(sorted(born))
        return rows.filter(~born_before.fill_null(value=False))


def _renumbered(column: pl.Series, numbers: I64) -> pl.Series:
    """Return the numbers that stand for those of a column; null where there is none."""
    none = column.is_null()
    return pl.DataFrame({"n": numbers[column.fill_null(0).to_numpy()], "none": none}).select(
        pl.when(~pl.col("none")).then("n").alias(column.name)
    )[column.name]


def _with_seq(rows: pl.DataFrame, seq: dict[int, int]) -> pl.DataFrame:
    """Return rows with their numbers: each worker's from where its log is, which goes on."""
    rows = rows.with_columns(seq=pl.int_range(pl.len(), dtype=pl.Int64).over("worker"))
    workers, counts = np.unique(rows["worker"].to_numpy(), return_counts=True)
    base = np.zeros(int(workers.max()) + 1, np.int64)
    base[workers] = [seq[int(worker)] for worker in workers]
    for worker, count in zip(workers.tolist(), counts.tolist(), strict=True):
        seq[worker] += count
    return rows.with_columns(seq=pl.col("seq") + pl.Series(base[rows["worker"].to_numpy()]))


def _appended(table: pa.Table, rows: pa.Table, key: str, numbers: I64, is_new: NDArray[np.bool_]) -> pa.Table:
    """Add the rows that are new to a table, under their numbers."""
    column = rows.schema.field(key)
    numbered = rows.set_column(rows.column_names.index(key), column, pa.array(numbers, column.type))
    return pa.concat_tables([table, numbered.filter(pa.array(is_new)).cast(table.schema)])


def _numbers_used(sparse_points: pl.DataFrame, channel: int) -> int:
    """Return how many numbers the messages of a channel of the driver use."""
    largest = sparse_points.filter(pl.col("channel") == channel)["number"].max()
    return int(largest) + 1 if isinstance(largest, int) else 0


def _summed(sums: Mapping[str, Any], findings: list[LogFinding]) -> dict[str, Any]:
    """Add what was odd in a portion; of several details the one stays of which there was most."""
    summed = {name: dict(finding_sum) for name, finding_sum in sums.items()}
    for finding in findings:
        finding_sum = summed.setdefault(
            finding.finding,
            {"severity": finding.severity, "observed": 0, "unit": finding.unit, "detail": finding.detail, "most": 0},
        )
        finding_sum["observed"] += finding.observed
        if finding.observed > finding_sum["most"]:
            finding_sum |= {"most": finding.observed, "detail": finding.detail, "severity": finding.severity}
    return summed
