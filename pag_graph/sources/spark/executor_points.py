"""What the driver learns of executors: they come, they go, others take their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.sources.spark.points import EXECUTORS, RECEIVE, SPAWN, Places, PointRows
from pag_graph.sources.spark.schedule import executor_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = ["add_executors"]


def add_executors(schedule: Schedule, lanes: int, rows: PointRows, place: Places) -> None:
    """Add what the driver learns of executors: they come, they go, others take their place.

    Parameters
    ----------
    schedule
        Of one log.
    lanes
        Lanes of the driver; the workers after them are cores.
    rows
        Points, which are added to.
    place
        Says which stretch of a lane an instant lies in.
    """
    workers: dict[int, list[int]] = {}
    for index, core in enumerate(schedule.cores):
        workers.setdefault(core.executor, []).append(lanes + index)
    lost_at, replaced = _losses(schedule, lanes, workers, rows, place)
    # Without its settings a log does not say whether executors come on demand: those that came late are taken to.
    on_demand = schedule.log.properties.get("spark.dynamicAllocation.enabled") == "true" or not schedule.log.properties
    starts = np.array([schedule.jobs[j].start_ns for j in schedule.lanes[0].jobs], np.int64)
    launches = _lane_launches(schedule)
    replaced_count = 0
    for executor, executor_row in sorted(
        enumerate(schedule.executors.iter_rows(named=True)),
        key=lambda numbered_row: (numbered_row[1]["added"], numbered_row[0]),
    ):
        if executor not in workers:
            continue
        added = executor_row["added"]
        cause, stretch, rank = 0, 0, 45
        if replaced_count < len(lost_at) and lost_at[replaced_count][0] <= added:
            # It takes the place of one that was lost.
            cause, stretch = lost_at[replaced_count]
            rank = 16 if stretch % 2 else 45
            replaced_count += 1
        elif (on_demand or (replaced and replaced[0] <= added)) and len(starts) and starts[0] <= added:
            # Before it came: a launch of that very instant can be its own.
            last_launch = int(np.searchsorted(launches, added, side="left")) - 1
            cause = max(
                int(starts[np.searchsorted(starts, added, side="right") - 1]),
                int(launches[last_launch]) if last_launch >= 0 else 0,
            )
            stretch = place.stretch(0, cause)
            rank = 28 if stretch % 2 else 45
        for worker in workers[executor]:
            rows.add(0, stretch, cause, rank, SPAWN, peer=worker)
    _registrations(schedule, workers, rows, place, len(lost_at))


def _losses(
    schedule: Schedule, lanes: int, workers: dict[int, list[int]], rows: PointRows, place: Places
) -> tuple[list[tuple[int, int]], list[int]]:
    """Let the driver learn that executors went whose last task was lost with them.

    Nothing waited for one that had nothing to do: its going is no message, or a path could lead to an idle core.

    Returns
    -------
    lost_at
        Instants and stretches of lane 0 at which it learns of a loss, in order.
    silent
        When the others went, in order.
    """
    ends = executor_ends(schedule)
    last_task = {
        code: (core, succeeded)
        for code, core, succeeded in schedule.tasks.sort("free", maintain_order=True)
        .group_by("executor")
        .agg(pl.col("core").last(), pl.col("succeeded").last())
        .iter_rows()
    }
    lost_at: list[tuple[int, int]] = []
    silent: list[int] = []
    rows_of = list(schedule.executors.select("code", "removed").iter_rows())
    for t, executor in sorted((ends[i], i) for i, (_, t) in enumerate(rows_of) if t is not None and i in workers):
        if t >= schedule.end_ns:
            continue
        core, succeeded = last_task.get(rows_of[executor][0], (0, True))
        if succeeded:
            silent.append(t)
            continue
        stretch = place.stretch(0, t)
        lost_at.append((t, stretch))
        number = len(lost_at)
        rows.add(0, stretch, t, 15, RECEIVE, peer=lanes + core, channel=EXECUTORS, number=number, unit=executor)
    return lost_at, silent


def _lane_launches(schedule: Schedule) -> I64:
    """Return the launches on lane 0, sorted."""
    lane = np.array([job.lane for job in schedule.jobs] or [0], np.int64)
    tasks = schedule.tasks.select("job", "launch").filter(pl.col("job").is_not_null())
    return np.sort(tasks["launch"].to_numpy()[lane[tasks["job"].to_numpy()] == 0])


def _registrations(
    schedule: Schedule, workers: dict[int, list[int]], rows: PointRows, place: Places, messages: int
) -> None:
    """Let a job that nobody could run wait for the executor that came."""
    job_of = schedule.tasks["job"].fill_null(-1).to_numpy()
    codes, launches = (schedule.tasks[name].to_numpy() for name in ("executor", "launch"))
    # Tasks come by their launches: backwards, the first one of an executor or a job is the last to be written down.
    backwards = np.flatnonzero(job_of >= 0).astype(np.int32)[::-1]
    of_executor = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    of_executor[codes[backwards]] = backwards
    of_job = np.full(len(schedule.jobs), -1, np.int64)
    of_job[job_of[backwards]] = backwards
    for executor, executor_row in enumerate(schedule.executors.iter_rows(named=True)):
        first_task = int(of_executor[executor_row["code"]]) if 0 <= executor_row["code"] < of_executor.size else -1
        if first_task < 0 or executor not in workers:
            continue
        launch, job = int(launches[first_task]), int(job_of[first_task])
        started = schedule.jobs[job].start_ns
        if started < executor_row["added"] <= launch == launches[of_job[job]]:
            lane = schedule.jobs[job].lane
            messages += 1
            rows.add(
                lane,
                place.stretch(lane, executor_row["added"]),
                executor_row["added"],
                10,
                RECEIVE,
                peer=workers[executor][0],
                channel=EXECUTORS,
                number=messages,
                unit=executor,
            )
