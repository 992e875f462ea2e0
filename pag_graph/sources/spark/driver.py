"""What happens on the driver's lanes: jobs, its own work between them, launches, results, executors that come and go.

Each instant is a *point*: one row with the lane, the instant and what happens. Points of jobs, executors and lanes are
few and made at once. Those of tasks are many, and are made stretch of time by stretch of time, so that only a bounded
number of them is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.sources.spark.executor_points import add_executors
from pag_graph.sources.spark.operators import APPLICATION
from pag_graph.sources.spark.points import (
    BUSY,
    EXIT,
    GOT,
    IDLE,
    IN_JOB,
    JOB_END,
    JOB_START,
    LANES,
    LAUNCH,
    NOTE,
    OFFERS,
    RECEIVE,
    RESULT,
    SAME,
    SEND,
    SPAWN,
    WAIT,
    Places,
    PointRows,
)
from pag_graph.sources.spark.schedule import MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pag_graph.sources.spark.operators import Operators
    from pag_graph.sources.spark.schedule import Lane, Schedule

    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]

__all__ = ["DriverPoints", "driver_points"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPoints:
    """The points of all lanes."""

    schedule: Schedule = field(repr=False)
    operators: I64 = field(repr=False)
    """Operator of each task."""
    lanes: int
    """How many lanes there are."""
    few: pl.DataFrame
    """The points of jobs, executors, lanes and offers of cores, by lane, stretch, instant and rank."""

    def stretches(self, lane: int, marks: pl.DataFrame, size: int) -> Iterator[pl.DataFrame]:
        """Yield the points of one lane in order, about `size` at a time, never parting those of one instant.

        Parameters
        ----------
        lane
            Which one.
        marks
            Which jobs (`unit`) end which epochs (`epoch_end`).
        size
            Points at a time.

        Yields
        ------
        pl.DataFrame
            Columns of points, `fetches` (1 where a result begins to be fetched, -1 where it has been) and `epoch_end`.
        """
        sparse_points = self.few.filter(pl.col("lane") == lane)
        marks = marks.with_columns(kind=pl.lit(JOB_END, pl.Int64))
        sparse_points = sparse_points.join(marks, on=["unit", "kind"], how="left", maintain_order="left")
        instants = sparse_points["t"].to_numpy()
        task_instants = _TaskInstants(self.schedule, lane, instants, size)
        for place, low in enumerate(task_instants.bounds):
            high = task_instants.bounds[place + 1] if place + 1 < task_instants.bounds.size else None
            frames = [
                sparse_points.filter((instants >= low) & (instants < high if high is not None else True)).with_columns(
                    fetches=_I0
                )
            ]
            frames += [self._of_tasks(task_instants, rows, kind) for kind, rows in task_instants.part(place)]
            yield pl.concat(frames, how="diagonal").sort("stretch", "t", "rank", maintain_order=True)

    def _of_tasks(self, task_instants: _TaskInstants, rows: I32, kind: int) -> pl.DataFrame:
        """Return the points of one kind for tasks."""
        tasks = self.schedule.tasks.select(_INSTANTS)[rows]
        job = tasks["job"].to_numpy()
        fetched = pl.col("done") > pl.col("delivered")
        # A task of no duration answers after it was launched; all others before anything is launched at that instant.
        t, rank, channel, fetches = {
            SEND: (pl.col("launch"), pl.lit(20), LAUNCH, pl.lit(0)),
            RECEIVE: (
                pl.col("delivered"),
                pl.when(pl.col("delivered") > pl.col("launch")).then(10).otherwise(30),
                RESULT,
                fetched.cast(pl.Int64),
            ),
            GOT: (pl.min_horizontal("done", pl.Series(task_instants.ends[job])), pl.lit(40), -1, pl.lit(-1)),
        }[kind]
        columns: dict[str, Any] = {
            "lane": pl.lit(task_instants.lane),
            "stretch": pl.Series(task_instants.stretch[job]),
            "t": t,
            "rank": rank,
            "kind": pl.lit(kind),
            "peer": pl.col("core") + self.lanes,
            "channel": pl.lit(channel),
            "number": pl.Series(rows),
            "operator": pl.Series(self.operators[rows]),
            "mode": pl.lit(SAME),
            "unit": pl.lit(-1),
            "fetches": fetches,
        }
        return tasks.select(**columns).cast(pl.Int64)


_I0 = pl.lit(0, pl.Int64)
_INSTANTS = ("launch", "delivered", "done", "core", "job")


class _TaskInstants:
    """When the tasks of one lane are launched, answer, and have their result fetched, cut in parts of time.

    Only which tasks those are is kept, in order of time: the times stand in the table.
    """

    def __init__(self, schedule: Schedule, lane: int, other_instants: I64, size: int) -> None:
        """Cut the lane's time so that about `size` instants are in a part, those of `other_instants` among them."""
        tasks = schedule.tasks
        lanes = np.array([job.lane for job in schedule.jobs] or [0], np.int32)
        self.lane = lane
        self.ends = np.array([job.end_ns for job in schedule.jobs] or [0], np.int64)
        self.stretch = np.zeros(self.ends.size, np.int64)
        self.stretch[schedule.lanes[lane].jobs] = 2 * np.arange(len(schedule.lanes[lane].jobs)) + 1
        job = tasks["job"].fill_null(-1).to_numpy()
        lane_tasks = np.flatnonzero((job >= 0) & (lanes[job] == lane)).astype(np.int32)
        launch, delivered, done = (tasks[name].to_numpy() for name in ("launch", "delivered", "done"))
        answered = lane_tasks[delivered[lane_tasks] <= self.ends[job[lane_tasks]]]
        fetched = answered[done[answered] > delivered[answered]]
        # Tasks of one instant come by their numbers; all of them by their launches.
        self._rows: dict[int, I32] = {SEND: lane_tasks}
        times = {SEND: launch if lane_tasks.size == launch.size else launch[lane_tasks]}
        # Sorted by Polars: what it needs for that it gives back to the system.
        for kind, rows, times_ns in (
            (RECEIVE, answered, delivered[answered]),
            (GOT, fetched, np.minimum(done[fetched], self.ends[job[fetched]])),
        ):
            sorted_rows = pl.DataFrame({"row": rows, "t": times_ns}).sort("t", maintain_order=True)
            self._rows[kind], times[kind] = sorted_rows["row"].to_numpy(), sorted_rows["t"].to_numpy()
        instants = pl.concat([pl.Series(column) for column in (other_instants, *times.values())]).sort()
        self.bounds = np.unique(instants.gather_every(size).to_numpy())
        """Where parts begin."""
        self._cuts = {
            kind: [*np.searchsorted(times_ns, self.bounds, side="left").tolist(), times_ns.size]
            for kind, times_ns in times.items()
        }

    def part(self, place: int) -> Iterator[tuple[int, I32]]:
        """Yield each kind of point with the tasks that have one in a part."""
        for kind, rows in self._rows.items():
            low, high = self._cuts[kind][place : place + 2]
            if high > low:
                yield kind, rows[low:high]


def driver_points(schedule: Schedule, operators: Operators, of_tasks: I64) -> DriverPoints:
    """Return what happens on the driver's lanes: one row per instant, in order.

    A lane's time is cut in stretches: 2k is what precedes its job k, 2k + 1 is job k.

    Parameters
    ----------
    schedule, operators
        Of one log.
    of_tasks
        Operator of each task.

    Returns
    -------
    DriverPoints
        Few of them at hand, those of tasks to be had stretch by stretch.
    """
    lanes = len(schedule.lanes)
    rows = PointRows()
    place = Places(schedule)
    _skeleton(schedule, operators, rows, place)
    add_executors(schedule, lanes, rows, place)
    sparse_points = pl.concat([rows.frame(), _offers(schedule, of_tasks, lanes)]) if lanes > 1 else rows.frame()
    sparse_points = sparse_points.sort("lane", "stretch", "t", "rank", maintain_order=True)
    return DriverPoints(schedule=schedule, operators=of_tasks, lanes=lanes, few=sparse_points)


def _skeleton(schedule: Schedule, operators: Operators, rows: PointRows, place: Places) -> None:
    """Add jobs, the driver's work between them, and what lanes tell each other."""
    jobs = schedule.jobs
    busy = _Busy(schedule, operators)
    messages = 0
    main = schedule.lanes[0]
    rows.add(0, 0, 0, 0, NOTE, operator=APPLICATION, mode=BUSY)
    joins: dict[int, list[tuple[int, int]]] = {}
    for lane in schedule.lanes[1:]:
        for (_, _, _), join in zip(lane.forks, lane.joins, strict=True):
            if join >= 0:
                # The stretch of lane 0 that the end of this group falls in.
                joins.setdefault(place.stretch(0, join), []).append((join, lane.lane))
    before = 0
    for k, index in enumerate(main.jobs):
        before = _between(rows, busy, 0, 2 * k, before, jobs[index].start_ns, joins.get(2 * k, []), main, k)
        _job(rows, operators, 0, 2 * k + 1, index, schedule)
        before = jobs[index].end_ns
    last_stretch = 2 * len(main.jobs)
    _between(rows, busy, 0, last_stretch, before, schedule.end_ns, joins.get(last_stretch, []), main, len(main.jobs))
    rows.add(0, last_stretch, schedule.end_ns, 100, NOTE, operator=APPLICATION)
    for lane in schedule.lanes[1:]:
        was_there = _stays(rows, lane, schedule)
        fork_of_job = {
            first_job: (t, parent, join) for (t, parent, first_job), join in zip(lane.forks, lane.joins, strict=True)
        }
        open_join = -1
        for k, index in enumerate(lane.jobs):
            if index in fork_of_job:
                t, parent, open_join_next = fork_of_job[index]
                # The parent tells it just before it begins the job that it was itself about to begin.
                stretch = _stretch_before_job(schedule, parent, t)
                if k == 0 and not was_there:
                    rows.add(parent, stretch, t, 60, SPAWN, peer=lane.lane)
                else:
                    messages += 1
                    rows.add(parent, stretch, t, 60, SEND, peer=lane.lane, channel=LANES, number=messages)
                    rows.add(lane.lane, 2 * k, t, 5, RECEIVE, peer=parent, channel=LANES, number=messages)
                before, open_join = t, open_join_next
            _between(rows, busy, lane.lane, 2 * k, before, jobs[index].start_ns, [], lane, k)
            _job(rows, operators, lane.lane, 2 * k + 1, index, schedule)
            before = jobs[index].end_ns
            following = lane.jobs[k + 1] if k + 1 < len(lane.jobs) else None
            if following is None or following in fork_of_job:
                if open_join >= 0:
                    messages += 1
                    rows.add(lane.lane, 2 * k + 1, before, 110, SEND, peer=0, channel=LANES, number=messages)
                    rows.add(
                        0,
                        place.stretch(0, open_join),
                        open_join,
                        20,
                        RECEIVE,
                        peer=lane.lane,
                        channel=LANES,
                        number=messages,
                    )
                if following is None and not schedule.log.portion:
                    rows.add(lane.lane, 2 * k + 1, before, 130, EXIT)
                else:
                    mode = IDLE if following is None else WAIT
                    rows.add(lane.lane, 2 * k + 1, before, 120, NOTE, operator=APPLICATION, mode=mode)


def _stays(rows: PointRows, lane: Lane, schedule: Schedule) -> bool:
    """Let a lane of a portion begin and end with it; say whether an earlier one had it."""
    was_there = lane.lane < schedule.log.lanes
    if was_there:
        # It waits for its first job, and has nothing to do if there is none.
        rows.add(lane.lane, 0, 0, 0, NOTE, operator=APPLICATION, mode=WAIT if lane.jobs else IDLE)
    if schedule.log.portion:
        rows.add(lane.lane, 2 * len(lane.jobs), schedule.end_ns, 140, NOTE, operator=APPLICATION)
    return was_there


def _stretch_before_job(schedule: Schedule, lane: int, t: int) -> int:
    """Return the stretch that ends where the lane's job that began at `t` begins."""
    lane_jobs = schedule.lanes[lane].jobs
    return 2 * next(k for k, index in enumerate(lane_jobs) if schedule.jobs[index].start_ns == t)


def _between(
    rows: PointRows,
    busy: _Busy,
    lane: int,
    stretch: int,
    start: int,
    end: int,
    joins: list[tuple[int, int]],
    own_lane: Any,
    k: int,
) -> int:
    """Add the driver's own work from `start` to `end`, after it has waited for other lanes."""
    if joins:
        rows.add(lane, stretch, start, 0, NOTE, operator=APPLICATION, mode=WAIT)
        start = max(t for t, _ in joins)
    for t, operator, unit in busy.cuts(
        start, end, own_lane.jobs[k - 1] if k else None, own_lane.jobs[k] if k < len(own_lane.jobs) else None
    ):
        rows.add(lane, stretch, t, 40, NOTE, operator=operator, mode=BUSY, unit=unit)
    return end


def _job(rows: PointRows, operators: Operators, lane: int, stretch: int, index: int, schedule: Schedule) -> None:
    job, operator = schedule.jobs[index], operators.jobs[index]
    rows.add(lane, stretch, job.start_ns, 0, JOB_START, operator=operator, mode=IN_JOB)
    rows.add(lane, stretch, job.end_ns, 100, JOB_END, operator=operator, mode=BUSY, unit=index)


class _Busy:
    """Says what the driver works for outside of jobs: a SQL execution, or the program itself."""

    def __init__(self, schedule: Schedule, operators: Operators) -> None:
        self._jobs = schedule.jobs
        self._operators = operators.executions
        self._spans: dict[int, tuple[int, int]] = {}
        for execution_row in schedule.log.executions.iter_rows(named=True):
            start, end = execution_row["started_ms"], execution_row["ended_ms"]
            if start is None or execution_row["execution"] not in self._operators:
                continue
            start_ns = (start - schedule.origin_ms) * MS
            end_ns = schedule.end_ns if end is None else (end - schedule.origin_ms) * MS
            if 0 <= start_ns <= end_ns:
                self._spans[execution_row["execution"]] = (start_ns, min(end_ns, schedule.end_ns))
        order = sorted(self._spans.items(), key=lambda execution_span: execution_span[1])
        self._starts = np.array([span[0] for _, span in order], np.int64)
        self._ends = np.array([span[1] for _, span in order], np.int64)
        self._order = [execution for execution, _ in order]
        # The latest end of all that started up to here: where it lies before an instant, none of them is active.
        self._reach = np.maximum.accumulate(self._ends) if order else self._ends

    def cuts(self, start: int, end: int, before: int | None, after: int | None) -> list[tuple[int, int, int]]:
        """Return from when on the driver works for which operator between two instants."""
        executions_of_jobs = [
            execution
            for j in (after, before)
            if j is not None and (execution := self._jobs[j].execution) in self._spans
        ]
        high = int(np.searchsorted(self._starts, end, side="right"))
        low = int(np.searchsorted(self._reach[:high], start, side="left"))
        active = [self._order[i] for i in range(low, high) if self._ends[i] >= start]
        times = sorted(
            {t for execution in [*executions_of_jobs, *active] for t in self._spans[execution] if start < t < end}
            | {start}
        )
        stretches: list[tuple[int, int, int]] = []
        for t in times:
            operator = APPLICATION
            chosen = next(
                (
                    execution
                    for execution in executions_of_jobs
                    if self._spans[execution][0] <= t < self._spans[execution][1]
                ),
                None,
            )
            if chosen is None:
                chosen = max(
                    (execution for execution in active if self._spans[execution][0] <= t < self._spans[execution][1]),
                    key=lambda execution: (self._spans[execution][0], execution),
                    default=None,
                )
            if chosen is not None:
                operator = self._operators[chosen]
            if not stretches or stretches[-1][1] != operator:
                stretches.append((t, operator, -1))
        return stretches


def _offers(schedule: Schedule, of_tasks: I64, lanes: int) -> pl.DataFrame:
    """Return the messages by which a job learns that another lane's task left a core.

    Only where the job was launching nothing in between: it waited for the core.
    """
    job_lane = np.array([job.lane for job in schedule.jobs] or [0], np.int64)
    job_end = np.array([job.end_ns for job in schedule.jobs] or [0], np.int64)
    job_start = np.array([job.start_ns for job in schedule.jobs] or [0], np.int64)
    order = {index: k for lane in schedule.lanes for k, index in enumerate(lane.jobs)}
    stretch = np.array([2 * order.get(i, 0) + 1 for i in range(len(schedule.jobs))] or [0], np.int64)
    tasks = schedule.tasks.select(_INSTANTS).with_row_index("number").filter(pl.col("job").is_not_null())
    job = tasks["job"].to_numpy()
    base = tasks.with_columns(
        pl.col("number").cast(pl.Int64),
        lane=pl.Series(job_lane[job]),
        stretch=pl.Series(stretch[job]),
        job_start=pl.Series(job_start[job]),
        job_end=pl.Series(job_end[job]),
    )
    before = (
        base.sort("core", "launch", "number")
        .with_columns(
            previous=pl.col("number").shift(1).over("core"),
            freed=pl.col("delivered").shift(1).over("core"),
            began=pl.col("launch").shift(1).over("core"),
            other=pl.col("lane").shift(1).over("core"),
        )
        .filter(
            (pl.col("other") != pl.col("lane"))
            & (pl.col("freed") <= pl.col("launch"))
            & (pl.col("began") < pl.col("freed"))
            & (pl.col("freed") >= pl.col("job_start"))
        )
    )
    if not before.height:
        return PointRows().frame()
    blocked = before.join(
        _instants_before(base), left_on=["lane", "launch"], right_on=["lane", "t"], how="left"
    ).filter(
        pl.col("previous_t").is_null()
        | (pl.col("previous_stretch") != pl.col("stretch"))
        | (pl.col("previous_t") < pl.col("freed"))
    )
    return blocked.select(
        lane="lane",
        stretch="stretch",
        t="freed",
        rank=pl.lit(10),
        kind=pl.lit(RECEIVE),
        peer=pl.col("core") + lanes,
        channel=pl.lit(OFFERS),
        number="previous",
        operator=pl.Series(of_tasks[blocked["number"].to_numpy()]),
        mode=pl.lit(SAME),
        unit=pl.lit(-1),
    ).cast(pl.Int64)


def _instants_before(base: pl.DataFrame) -> pl.DataFrame:
    """Return for each instant of a lane at which something happens to its tasks the one before, with its stretch."""
    was_seen = pl.col("delivered") <= pl.col("job_end")
    points = pl.concat(
        base.filter(condition).select("lane", "stretch", t=t)
        for t, condition in (
            (pl.col("launch"), pl.lit(value=True)),
            (pl.col("delivered"), was_seen),
            (pl.min_horizontal("done", "job_end"), was_seen & (pl.col("done") > pl.col("delivered"))),
        )
    )
    return (
        points.sort("lane", "t", maintain_order=True)
        .unique(["lane", "t"], keep="last", maintain_order=True)
        .with_columns(
            previous_t=pl.col("t").shift(1).over("lane"), previous_stretch=pl.col("stretch").shift(1).over("lane")
        )
        .select("lane", "t", "previous_t", "previous_stretch")
    )
