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

_BACK_TO_BACK = 0.95
"""Part of the spacing of batches from which on one follows the other at once."""
_MOSTLY = 0.8
"""Part of the batches of which this must be so."""
_LEAST_PAUSE_MS = 100
"""Less between two batches is no pause: Spark looks for input every 10 ms, and the driver may be slow."""

__all__ = ["executions_of", "follow_at_once", "stream_pauses", "with_pauses"]


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


def follow_at_once(batches: pl.DataFrame) -> bool:
    """Say whether the batches of one stream, by their begin, mostly followed one another at once.

    Parameters
    ----------
    batches
        One row per batch: `started_ms` and `trigger_ms`.
    """
    spacing = batches["started_ms"].diff().shift(-1)
    directly = (batches["trigger_ms"] >= _BACK_TO_BACK * spacing).drop_nulls()
    return int(directly.sum()) >= _MOSTLY * directly.len()


def stream_pauses(schedule: Schedule) -> list[Interval]:
    """Return when no stream had anything to do: all had ended a batch, and the next one of each began later.

    A stream whose batches mostly follow one another at once does not pause: what is between them is the driver's doing.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    list of Interval
        In time order, without the time of jobs and SQL executions.
    """
    progress = schedule.log.progress.filter(pl.col("query").is_not_null()).sort(
        "query", "started_ms", maintain_order=True
    )
    pauses: list[Interval] = []
    batches: list[Interval] = []
    for stream in progress.partition_by("query", maintain_order=True):
        starts = [(started - schedule.origin_ms) * MS for started in stream["started_ms"].to_list()]
        spans = [(start, start + took * MS) for start, took in zip(starts, stream["trigger_ms"].to_list(), strict=True)]
        batches += spans
        if not follow_at_once(stream):
            between = zip((end for _, end in spans), starts[1:], strict=False)
            pauses += [(end, start) for end, start in between if start - end >= _LEAST_PAUSE_MS * MS]
    if not pauses:
        return []
    busy = [*batches, *executions_of(schedule).values()]
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
