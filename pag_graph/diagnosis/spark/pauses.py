"""When streams had nothing to do, which is no work of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.intervals import Interval, without
from pag_graph.model.enums import ActivityType
from pag_graph.sources.spark.operators import APPLICATION
from pag_graph.sources.spark.schedule import MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pag_graph.sources.spark.mapping import Mapped
    from pag_graph.sources.spark.schedule import Schedule

__all__ = ["executions_of", "stream_pauses", "with_pauses"]


def executions_of(schedule: Schedule) -> dict[int, Interval]:
    """Return when each SQL execution began and ended."""
    return {
        row["execution"]: (
            (row["started_ms"] - schedule.origin_ms) * MS,
            schedule.end_ns if row["ended_ms"] is None else (row["ended_ms"] - schedule.origin_ms) * MS,
        )
        for row in schedule.log.executions.iter_rows(named=True)
        if row["started_ms"] is not None
    }


def stream_pauses(schedule: Schedule) -> list[Interval]:
    """Return when no stream had anything to do: all had ended a batch, and the next one of each had not begun.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    list of Interval
        In time order, without the time of jobs and SQL executions.
    """
    progress, origin = schedule.log.progress, schedule.origin_ms
    if not progress.height:
        return []
    batches = (
        progress.filter(pl.col("query").is_not_null())
        .select(
            "query",
            start=(pl.col("started_ms") - origin) * MS,
            end=(pl.col("started_ms") + pl.col("trigger_ms") - origin) * MS,
        )
        .sort("query", "start")
        .with_columns(next_start=pl.col("start").shift(-1).over("query"))
    )
    pauses = batches.filter(pl.col("next_start") > pl.col("end")).select("end", "next_start").iter_rows()
    busy = [*batches.select("start", "end").iter_rows(), *executions_of(schedule).values()]
    return without(pauses, [*busy, *((job.start_ns, job.end_ns) for job in schedule.jobs)])


def with_pauses(steps: pl.DataFrame, mapped: Mapped) -> pl.DataFrame:
    """Tell the driver's own work on a path from pauses of streams, which a trace does not know.

    Parameters
    ----------
    steps
        One row per step of a path: `step`, `type`, `worker`, `start_ns`, `duration_ns` and `operator`, among others.
    mapped
        Of the same log.

    Returns
    -------
    pl.DataFrame
        The same steps; one that a pause begins or ends in has several rows. Pauses are of the type `input_wait`.
    """
    pauses = stream_pauses(mapped.schedule)
    if not pauses:
        return steps
    is_program = (
        (pl.col("worker") < mapped.lanes)
        & (pl.col("type") == str(ActivityType.BUSY))
        & (pl.col("operator") == APPLICATION)
    )
    program_steps = steps.filter(is_program)
    starts, ends = np.array(pauses, np.int64).T
    first = np.searchsorted(ends, program_steps["start_ns"].to_numpy(), side="right").tolist()
    last = np.searchsorted(
        starts, (program_steps["start_ns"] + program_steps["duration_ns"]).to_numpy(), side="left"
    ).tolist()
    rows = [
        row
        for step, low, high in zip(program_steps.iter_rows(named=True), first, last, strict=True)
        for row in _cut(step, pauses[low:high])
    ]
    others = steps.filter(~is_program)
    return pl.concat([others, pl.DataFrame(rows, schema=steps.schema)]).sort("step", "start_ns", maintain_order=True)


def _cut(step: dict[str, Any], pauses: Iterable[Interval]) -> list[dict[str, Any]]:
    """Return the parts of a step outside and inside of pauses that overlap it, in time order."""
    at, end = step["start_ns"], step["start_ns"] + step["duration_ns"]
    parts: list[dict[str, Any]] = []
    for pause_start, pause_end in pauses:
        low, high = max(pause_start, at), min(pause_end, end)
        if low > at:
            parts.append(step | {"start_ns": at, "duration_ns": low - at})
        parts.append(step | {"start_ns": low, "duration_ns": high - low, "type": str(ActivityType.INPUT_WAIT)})
        at = high
    if at < end or not parts:
        parts.append(step | {"start_ns": at, "duration_ns": end - at})
    return parts
