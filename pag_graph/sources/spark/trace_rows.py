"""Rows of the canonical trace in the making, and the ends of epochs among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.sources.spark.schedule import executor_ends, was_lost

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = [
    "ACTIVITIES",
    "KINDS",
    "ROW",
    "Epochs",
    "Lives",
    "close_epochs",
    "finished",
    "in_order",
    "lives_of",
    "of_activity",
    "of_kind",
]

KINDS = pl.Enum([str(kind) for kind in EventKind])
ACTIVITIES = pl.Enum([str(activity) for activity in ActivityType])
"""Words of rows as codes: as text they would be a third of a part."""

ROW: dict[str, Any] = {
    "worker": pl.Int32,
    "key": pl.Int64,
    "t_ns": pl.Int64,
    "kind": KINDS,
    "activity": ACTIVITIES,
    "operator": pl.Int64,
    "channel": pl.Int64,
    "peer": pl.Int32,
    "message_seq": pl.Int64,
    "records": pl.Int64,
    "bytes": pl.Int64,
    "inferred": pl.Boolean,
}
"""Columns of rows before they are numbered; `key` orders those of one instant."""

_MOST_EPOCH_ROWS = 2_000_000


def of_kind(kind: EventKind) -> pl.Expr:
    """Return the kind of all rows, as the column has it."""
    return pl.lit(str(kind), KINDS)


def of_activity(activity: ActivityType) -> pl.Expr:
    """Return the activity of all rows, as the column has it."""
    return pl.lit(str(activity), ACTIVITIES)


@dataclass(frozen=True, slots=True)
class Lives:
    """When each worker begins and ends, in nanoseconds; the run's end for those that never end."""

    birth: I64
    end: I64
    exits: NDArray[np.bool_]
    lost: NDArray[np.bool_]
    """Those that end though nobody wanted them to."""


def lives_of(schedule: Schedule) -> Lives:
    """Return when each worker begins and ends: lanes of the driver first, then cores; one element each."""
    lanes = len(schedule.lanes)
    count = lanes + len(schedule.cores)
    birth, end = np.zeros(count, np.int64), np.full(count, schedule.end_ns)
    exits, lost = np.zeros(count, bool), np.zeros(count, bool)
    for lane in schedule.lanes[1:]:
        birth[lane.lane] = 0 if lane.lane < schedule.log.lanes else lane.forks[0][0]
        if not schedule.log.portion:
            end[lane.lane] = schedule.jobs[lane.jobs[-1]].end_ns
            exits[lane.lane] = True
    ends_of_executors = executor_ends(schedule)
    added = schedule.executors["added"].to_list()
    removed = schedule.executors["removed"].to_list()
    reasons = schedule.executors["reason"].to_list()
    for index, core in enumerate(schedule.cores):
        birth[lanes + index] = added[core.executor]
        end[lanes + index] = ends_of_executors[core.executor]
        exits[lanes + index] = removed[core.executor] is not None
        lost[lanes + index] = exits[lanes + index] and was_lost(reasons[core.executor])
    return Lives(birth, end, exits, lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """When epochs end, and who says so."""

    ends: list[tuple[int, str]]
    """Per epoch: when it ends, in nanoseconds from the origin, and what it is called."""
    told_at: I64
    """Per epoch: when others than the lane that ends it are told."""
    marks: pl.DataFrame
    """Which job ends which epoch: `unit` (index of the job), `epoch_end`."""
    told: dict[int, I64]
    """Per worker the epochs whose end it is told, an instant after the lane that ended them."""

    def label(self, t: I64) -> I64:
        """Return the epoch of each instant; `t` is in nanoseconds from the origin."""
        return np.searchsorted(self.told_at, t, side="left").astype(np.int64)

    def told_between(self, worker: int, low: int, high: int | None) -> pl.DataFrame:
        """Return the epoch ends that a worker is told from one instant until before another one.

        Parameters
        ----------
        worker
            The worker.
        low, high
            In nanoseconds from the origin; no end if `high` is None.

        Returns
        -------
        pl.DataFrame
            One row per epoch end.
        """
        numbers = self.told[worker]
        ends = self.told_at[numbers]
        keep = (ends >= low) & ((ends < high) if high is not None else True)
        return pl.DataFrame(
            {"worker": np.full(int(keep.sum()), worker, np.int32), "t_ns": ends[keep], "ends": numbers[keep]}
        ).with_columns(kind=of_kind(EventKind.EPOCH_END), key=pl.lit(1 << 60, pl.Int64))


def close_epochs(schedule: Schedule, lives: Lives) -> Epochs:
    """Decide when epochs end: with the last job of each unit (a query, a batch, a job).

    Parameters
    ----------
    schedule, lives
        Jobs, and the workers that are told: those that live then, a nanosecond after the last job's end.

    Returns
    -------
    Epochs
        Where units and workers are very many, every so many units make an epoch.
    """
    jobs = schedule.jobs
    last_job: dict[str, int] = {}
    for index in sorted(range(len(jobs)), key=lambda i: (jobs[i].end_ns, jobs[i].job)):
        last_job[jobs[index].unit] = index
    closing: dict[int, tuple[int, str]] = {}
    for unit, index in last_job.items():
        closing.setdefault(jobs[index].end_ns, (index, unit))
    times = sorted(t for t in closing if t < schedule.end_ns)
    workers = lives.birth.size
    if len(times) * workers > _MOST_EPOCH_ROWS:
        # So many rows would say little: every so many units make an epoch.
        step = len(times) * workers // _MOST_EPOCH_ROWS + 1
        times = [*times[step - 1 : -1 : step], times[-1]]
    closing_jobs = [closing[t][0] for t in times]
    marks = pl.DataFrame(
        {"unit": closing_jobs, "epoch_end": range(len(closing_jobs))}, schema={"unit": pl.Int64, "epoch_end": pl.Int64}
    )
    told_at, owner = np.array(times, np.int64) + 1, np.array([jobs[index].lane for index in closing_jobs], np.int64)
    told_epochs = {}
    for worker in range(workers):
        alive = (lives.birth[worker] <= told_at) & (told_at <= lives.end[worker])
        told_epochs[worker] = np.flatnonzero(alive & (owner != worker))
    return Epochs(ends=[(t, closing[t][1]) for t in times], told_at=told_at, marks=marks, told=told_epochs)


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows by worker and time; of one instant by their `key`."""
    return rows.sort("worker", "t_ns", "key", maintain_order=True)


def finished(epochs: Epochs, rows: pl.DataFrame, first_seq: dict[int, int]) -> pa.Table:
    """Return the columns of a trace's events.

    Parameters
    ----------
    epochs
        Say which epoch each instant is of.
    rows
        In order (`in_order`).
    first_seq
        From where on a worker's rows are numbered; 0 for those that are not named.
    """
    epoch = pl.Series(epochs.label(rows["t_ns"].to_numpy()))
    if "ends" in rows.columns:
        epoch = rows.select(pl.coalesce("ends", epoch)).to_series()
    worker = rows["worker"].to_numpy()
    begins = np.flatnonzero(np.diff(worker, prepend=-1))
    counts = np.diff(begins, append=worker.size)
    offsets = np.array([first_seq.get(number, 0) for number in worker[begins].tolist()], np.int64)
    seq = np.arange(worker.size) - np.repeat(begins - offsets, counts)
    return rows.with_columns(seq=pl.Series(seq), epoch=epoch).drop("key", "ends", strict=False).to_arrow()
