"""What if there were more or fewer cores, or tasks took another time: list scheduling of the recorded tasks.

The recorded dependencies hold: the driver's own time before each job, a job's stages after those that they read,
retries after what failed. A free core takes the first task that is ready, jobs in the order of their numbers, as the
FIFO scheduler of Spark does. Not modelled: contention for memory, disk and network, locality, fair pools, and sizes of
partitions that would follow from another number of cores.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.errors import InvalidParameterError
from pag_graph.sources.spark.shuffles import stage_parents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = [
    "JobPlan",
    "StagePlan",
    "WorkPlan",
    "list_schedule",
    "plan_work",
    "predict_cores",
    "recorded_cores",
    "warm_up",
    "with_cores",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """When a job begins, and how long after its last stage it ends."""

    after: tuple[int, ...] = ()
    """Jobs that must have ended."""
    begun: int = -1
    """Job that must have begun; -1 for none."""
    gap_ns: int = 0
    """The driver's own time after these, or from the origin if there are none."""
    tail_ns: int = 0
    """Time from the end of the last stage to the job's; all of its time if it has no stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """When a stage's tasks may begin."""

    job: int
    after: tuple[int, ...] = ()
    """Stages of the same job that must have ended."""
    gap_ns: int = 0
    """The driver's time after these, or after the job's begin."""
    tasks: tuple[int, ...] = ()
    """Its tasks, in the order of their launch."""
    between_ns: int = 0
    """Time that a core is empty between two of its tasks, at least."""
    key: tuple[int, int] = (-1, 0)
    """Spark's numbers of stage and attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """All that is needed to run the recorded tasks again."""

    jobs: tuple[JobPlan, ...]
    stages: tuple[StagePlan, ...]
    durations: I64
    """Nanoseconds that each task holds its core."""
    follows: dict[int, int] = field(default_factory=dict)
    """Task to the task whose end it waits for: a retry."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Task to the time after its stage's begin at which it becomes ready: a speculative copy."""
    last: tuple[int, ...] = ()
    """Jobs that the end waits for."""
    tail_ns: int = 0
    """The driver's time after them."""


def list_schedule(
    plan: WorkPlan,
    cores: Sequence[tuple[int, int | None]],
    *,
    durations: I64 | None = None,
    first: dict[tuple[int, int], int] | None = None,
    skip: frozenset[int] = frozenset(),
) -> int:
    """Run tasks on cores in the order of their readiness, and return when the application ends.

    Parameters
    ----------
    plan
        Tasks and what they wait for.
    cores
        For each core from when and until when tasks may begin on it, in nanoseconds; None for no end.
    durations
        Instead of the plan's.
    first
        Stage (and attempt) to what its first task on each core takes more.
    skip
        Tasks that are left out.

    Returns
    -------
    int
        Nanoseconds from the origin to the end.

    Raises
    ------
    InvalidParameterError
        If there is no core that stays.

    Notes
    -----
    O(tasks log tasks). Deterministic: ties by job, stage and order of launch.
    """
    if not any(until is None for _, until in cores):
        message = "There is no core on which all tasks could run."
        raise InvalidParameterError(message, "Give at least one core.")
    run = _Run(plan, cores, (plan.durations if durations is None else durations).tolist(), skip)
    run.first = [(first or {}).get(stage.key, 0) for stage in plan.stages]
    return run.end()


# Kinds of events, in the order in which they count at one instant.
_DONE, _CORE, _JOB, _STAGE, _READY = range(5)


class _Run:
    def __init__(
        self, plan: WorkPlan, cores: Sequence[tuple[int, int | None]], durations: list[int], skip: frozenset[int]
    ) -> None:
        self.plan, self.cores, self.durations, self.skip = plan, cores, durations, skip
        self.events: list[tuple[int, int, int, int]] = []
        self.ready: list[tuple[int, int, int, int]] = []
        self.free: list[int] = []
        self.last_stage = [-1] * len(cores)
        self.first = [0] * len(plan.stages)
        self.begun: set[tuple[int, int]] = set()
        self.stage_of: dict[int, int] = {}
        self.position: dict[int, int] = {}
        self.job_end: dict[int, int] = {}
        self.job_begin: dict[int, int] = {}
        self.stage_end: dict[int, int] = {}
        self.job_left = [len(job.after) + (job.begun >= 0) for job in plan.jobs]
        self.stage_left = [len(stage.after) for stage in plan.stages]
        self.open_tasks = [sum(task not in skip for task in stage.tasks) for stage in plan.stages]
        self.open_stages = [0] * len(plan.jobs)
        self.job_next: dict[int, list[int]] = {}
        self.job_forks: dict[int, list[int]] = {}
        self.stage_next: dict[int, list[int]] = {}
        self.first_stages: dict[int, list[int]] = {}
        self.after_task: dict[int, list[int]] = {}
        for index, job in enumerate(plan.jobs):
            for other in job.after:
                self.job_next.setdefault(other, []).append(index)
            if job.begun >= 0:
                self.job_forks.setdefault(job.begun, []).append(index)
        for index, stage in enumerate(plan.stages):
            self.open_stages[stage.job] += 1
            for other in stage.after:
                self.stage_next.setdefault(other, []).append(index)
            if not stage.after:
                self.first_stages.setdefault(stage.job, []).append(index)
            for place, task in enumerate(stage.tasks):
                self.stage_of[task], self.position[task] = index, place
        for task, before in plan.follows.items():
            if task not in skip and before not in skip:
                self.after_task.setdefault(before, []).append(task)

    def end(self) -> int:
        plan = self.plan
        for core, (since, _) in enumerate(self.cores):
            heapq.heappush(self.events, (since, _CORE, core, 0))
        for index, job in enumerate(plan.jobs):
            if not job.after and job.begun < 0:
                heapq.heappush(self.events, (job.gap_ns, _JOB, index, 0))
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, kind, first, second = heapq.heappop(self.events)
                self._happen(now, kind, first, second)
            self._assign(now)
        return max((self.job_end.get(job, 0) for job in plan.last), default=0) + plan.tail_ns

    def _happen(self, now: int, kind: int, first: int, second: int) -> None:
        if kind == _DONE:
            heapq.heappush(self.free, second)
            self._task_done(now, first)
        elif kind == _CORE:
            heapq.heappush(self.free, first)
        elif kind == _JOB:
            self._job_begins(now, first)
        elif kind == _STAGE:
            self._stage_begins(now, first)
        else:
            self._enqueue(first)

    def _job_begins(self, now: int, job: int) -> None:
        self.job_begin[job] = now
        for other in self.job_forks.get(job, ()):
            self._job_waits_less(now, other)
        stages = self.first_stages.get(job, ())
        for stage in stages:
            heapq.heappush(self.events, (now + self.plan.stages[stage].gap_ns, _STAGE, stage, 0))
        if not self.open_stages[job]:
            self._job_done(now + self.plan.jobs[job].tail_ns, job)

    def _job_waits_less(self, now: int, job: int) -> None:
        self.job_left[job] -= 1
        if not self.job_left[job]:
            heapq.heappush(self.events, (now + self.plan.jobs[job].gap_ns, _JOB, job, 0))

    def _job_done(self, at: int, job: int) -> None:
        self.job_end[job] = at
        for other in self.job_next.get(job, ()):
            # Its begin lies at or after `at`: the latest of its predecessors counts it down last.
            self.job_left[other] -= 1
            if not self.job_left[other]:
                latest = max(self.job_end[before] for before in self.plan.jobs[other].after)
                heapq.heappush(self.events, (latest + self.plan.jobs[other].gap_ns, _JOB, other, 0))

    def _stage_begins(self, now: int, stage: int) -> None:
        if not self.open_tasks[stage]:
            self._stage_done(now, stage)
            return
        for task in self.plan.stages[stage].tasks:
            if task in self.skip:
                continue
            before = self.plan.follows.get(task)
            if before is not None and before not in self.skip:
                continue
            offset = self.plan.offsets.get(task, 0)
            if offset:
                heapq.heappush(self.events, (now + offset, _READY, task, 0))
            else:
                self._enqueue(task)

    def _enqueue(self, task: int) -> None:
        stage = self.stage_of[task]
        heapq.heappush(self.ready, (self.plan.stages[stage].job, stage, self.position[task], task))

    def _task_done(self, now: int, task: int) -> None:
        for other in self.after_task.get(task, ()):
            self._enqueue(other)
        stage = self.stage_of[task]
        self.open_tasks[stage] -= 1
        if not self.open_tasks[stage]:
            self._stage_done(now, stage)

    def _stage_done(self, now: int, stage: int) -> None:
        self.stage_end[stage] = now
        for other in self.stage_next.get(stage, ()):
            self.stage_left[other] -= 1
            if not self.stage_left[other]:
                heapq.heappush(self.events, (now + self.plan.stages[other].gap_ns, _STAGE, other, 0))
        job = self.plan.stages[stage].job
        self.open_stages[job] -= 1
        if not self.open_stages[job]:
            self._job_done(now + self.plan.jobs[job].tail_ns, job)

    def _assign(self, now: int) -> None:
        while self.ready and self.free:
            core = heapq.heappop(self.free)
            until = self.cores[core][1]
            if until is not None and until <= now:
                continue
            *_, stage, _, task = heapq.heappop(self.ready)
            between = self.plan.stages[stage].between_ns if self.last_stage[core] == stage else 0
            self.last_stage[core] = stage
            if (core, stage) not in self.begun:
                self.begun.add((core, stage))
                between += self.first[stage]
            heapq.heappush(self.events, (now + between + max(self.durations[task], 0), _DONE, task, core))


def recorded_cores(schedule: Schedule) -> list[tuple[int, int | None]]:
    """Return the cores that the application had, with their times."""
    added = schedule.executors["added"].to_list()
    removed = schedule.executors["removed"].to_list()
    cores: list[tuple[int, int | None]] = [(added[core.executor], removed[core.executor]) for core in schedule.cores]
    if all(until is not None for _, until in cores):
        # All went before the end: the last ones had done all tasks.
        latest = max((until or 0 for _, until in cores), default=0)
        cores = [(since, None if until == latest else until) for since, until in cores]
    return cores


def with_cores(schedule: Schedule, count: int) -> list[tuple[int, int | None]]:
    """Return `count` cores: the first ones to come, or more that came at the median of their times.

    Raises
    ------
    InvalidParameterError
        If the count is not positive.
    """
    if count < 1:
        message = f"{count} cores can run nothing."
        raise InvalidParameterError(message, "Give a positive number of cores.")
    since = sorted(start for start, until in recorded_cores(schedule) if until is None) or [0]
    typical = since[len(since) // 2]
    return [(since[k] if k < len(since) else typical, None) for k in range(count)]


def plan_work(schedule: Schedule) -> WorkPlan:
    """Return the recorded tasks with what each waited for.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    WorkPlan
        Tasks are rows of the schedule's tasks; jobs its jobs.
    """
    tasks = schedule.tasks.with_row_index("number")
    jobs = schedule.jobs
    stage_plans, keys = _stage_plans(schedule, tasks)
    last_end: dict[int, int] = {}
    first: dict[int, int] = {}
    for plan in stage_plans:
        last_end[plan.job] = max(last_end.get(plan.job, 0), keys[plan.tasks[0]][1] if plan.tasks else 0)
        first.setdefault(plan.job, 0)
    preds = _job_preds(schedule)
    job_plans = []
    for index, job in enumerate(jobs):
        after, begun, gap = preds[index]
        tail = job.end_ns - min(max(last_end.get(index, job.start_ns), job.start_ns), job.end_ns)
        job_plans.append(JobPlan(after=after, begun=begun, gap_ns=gap, tail_ns=tail))
    last, tail = _ending(schedule)
    follows, offsets = _retries(tasks, stage_plans, keys)
    durations = (tasks["free"] - tasks["receipt"]).to_numpy()
    return WorkPlan(
        jobs=tuple(job_plans),
        stages=tuple(stage_plans),
        durations=durations,
        follows=follows,
        offsets=offsets,
        last=last,
        tail_ns=tail,
    )


def _stage_plans(schedule: Schedule, tasks: pl.DataFrame) -> tuple[list[StagePlan], dict[int, tuple[int, int]]]:
    """Return the stages, and for each task when its stage began and ended."""
    origin = schedule.origin_ms
    submitted = {
        (row["stage"], row["stage_attempt"]): row["submitted_ms"] for row in schedule.log.stages.iter_rows(named=True)
    }
    grouped = {
        (int(stage), int(attempt)): (numbers, first, last)
        for stage, attempt, numbers, first, last in tasks.filter(pl.col("job").is_not_null())
        .sort("launch", "number")
        .group_by("stage", "stage_attempt", maintain_order=True)
        .agg("number", pl.col("launch").min().alias("first"), pl.col("done").max())
        .iter_rows()
    }
    order = sorted(grouped, key=lambda key: (schedule.stage_jobs[key], grouped[key][1], key))
    index = {key: place for place, key in enumerate(order)}
    parents = stage_parents(schedule)
    between = _between(tasks)
    starts = np.sort(tasks["launch"].to_numpy())
    ends = np.sort(tasks["free"].to_numpy())
    since = np.sort(schedule.executors["added"].to_numpy())
    cores_by = _cores_over_time(schedule)
    plans: list[StagePlan] = []
    times: dict[int, tuple[int, int]] = {}
    for key in order:
        numbers, first, last = grouped[key]
        job = schedule.stage_jobs[key]
        mine = jobs_start = schedule.jobs[job].start_ns
        own = [other for other in order if schedule.stage_jobs[other] == job and grouped[other][2] <= first]
        if key[1] == 0:
            wanted = set(parents.get((schedule.jobs[job].job, key[0]), []))
            after = [other for other in own if other[0] in wanted]
        else:
            # A stage that runs again waited for whatever ended last before it.
            after = [max(own, key=lambda other: grouped[other][2])] if own else []
        ready = max((grouped[other][2] for other in after), default=jobs_start)
        at = submitted.get(key)
        at = first if at is None else min(max((at - origin) * 1_000_000, mine), first)
        # From the submission to the first launch the driver was busy, unless there was no free core.
        running = int(np.searchsorted(starts, at, side="right") - np.searchsorted(ends, at, side="right"))
        free = running < cores_by(at)
        begin = first if free else at
        if len(since) and at < since[0] <= first:
            begin = at
        plans.append(
            StagePlan(
                job=job,
                after=tuple(index[other] for other in after),
                gap_ns=max(0, begin - max(ready, jobs_start)),
                tasks=tuple(numbers),
                between_ns=between.get(key, 0),
                key=key,
            )
        )
        for number in numbers:
            times[number] = (begin, last)
    return plans, times


def _cores_over_time(schedule: Schedule):  # type: ignore[no-untyped-def]  # noqa: ANN202 a function of time
    cores = recorded_cores(schedule)
    since = np.sort(np.array([start for start, _ in cores], np.int64))
    until = np.sort(np.array([end for _, end in cores if end is not None], np.int64))
    return lambda t: int(np.searchsorted(since, t, side="right") - np.searchsorted(until, t, side="right"))


def _between(tasks: pl.DataFrame) -> dict[tuple[int, int], int]:
    """Return how long a core is usually empty between two tasks of a stage."""
    following = (
        tasks.sort("core", "receipt", "number")
        .with_columns(
            gap=pl.col("receipt") - pl.col("free").shift(1).over("core"),
            same=(pl.col("stage") == pl.col("stage").shift(1).over("core")),
        )
        .filter("same")
        .group_by("stage", "stage_attempt")
        .agg(pl.col("gap").median())
    )
    return {(int(s), int(a)): int(gap) for s, a, gap in following.iter_rows()}


def _job_preds(schedule: Schedule) -> dict[int, tuple[tuple[int, ...], int, int]]:
    """Return for every job: those that must have ended, the one that must have begun, and the driver's time after."""
    jobs, lanes = schedule.jobs, schedule.lanes
    out: dict[int, tuple[tuple[int, ...], int, int]] = {}
    waited = _joined(schedule)
    for k, index in enumerate(lanes[0].jobs):
        after = tuple(([lanes[0].jobs[k - 1]] if k else []) + waited.get(k, []))
        ready = max((jobs[j].end_ns for j in after), default=0)
        out[index] = (after, -1, max(0, jobs[index].start_ns - ready))
    for lane in lanes[1:]:
        forks = {first: (t, parent) for t, parent, first in lane.forks}
        for k, index in enumerate(lane.jobs):
            if index in forks:
                t, parent = forks[index]
                begun = next(j for j in lanes[parent].jobs if jobs[j].start_ns == t)
                out[index] = ((), begun, jobs[index].start_ns - t)
            else:
                before = lane.jobs[k - 1]
                out[index] = ((before,), -1, max(0, jobs[index].start_ns - jobs[before].end_ns))
    return out


def _joined(schedule: Schedule) -> dict[int, list[int]]:
    """Return the jobs of other lanes that lane 0 waited for before each of its jobs (and after the last one)."""
    jobs, lanes = schedule.jobs, schedule.lanes
    ends = np.array([jobs[j].end_ns for j in lanes[0].jobs], np.int64)
    out: dict[int, list[int]] = {}
    for lane in lanes[1:]:
        firsts = [lane.jobs.index(first) for _, _, first in lane.forks]
        for place, join in enumerate(lane.joins):
            if join >= 0:
                stop = firsts[place + 1] if place + 1 < len(firsts) else len(lane.jobs)
                k = int(np.searchsorted(ends, join, side="left"))
                out.setdefault(k, []).append(lane.jobs[stop - 1])
    return out


def _ending(schedule: Schedule) -> tuple[tuple[int, ...], int]:
    main = schedule.lanes[0]
    last = tuple(main.jobs[-1:]) + tuple(_joined(schedule).get(len(main.jobs), []))
    ready = max((schedule.jobs[j].end_ns for j in last), default=0)
    return last, max(0, schedule.end_ns - ready)


def _retries(
    tasks: pl.DataFrame, stages: list[StagePlan], times: dict[int, tuple[int, int]]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the tasks that waited for the end of another attempt, and the speculative copies with their delays."""
    del stages
    follows: dict[int, int] = {}
    offsets: dict[int, int] = {}
    again = tasks.filter((pl.col("attempt") > 0) | pl.col("speculative"))
    if not again.height:
        return follows, offsets
    wanted = again.select("stage", "stage_attempt", "index").unique()
    rows = tasks.join(wanted, on=["stage", "stage_attempt", "index"], how="semi").sort("launch", "number")
    seen: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for number, stage, attempt, index, launch, done, speculative in rows.select(
        "number", "stage", "stage_attempt", "index", "launch", "done", "speculative"
    ).iter_rows():
        before = seen.setdefault((stage, attempt, index), [])
        ended = [other for other, end in before if end <= launch]
        if speculative or (before and not ended):
            if number in times:
                offsets[number] = max(0, launch - times[number][0])
        elif ended:
            follows[number] = ended[-1]
        before.append((number, done))
    return follows, offsets


def predict_cores(schedule: Schedule, plan: WorkPlan, counts: Sequence[int] = ()) -> list[dict[str, int]]:
    """Predict when the application ends with other numbers of cores.

    Parameters
    ----------
    schedule, plan
        Of one log.
    counts
        Numbers of cores; half and twice as many as there were come on top.

    Returns
    -------
    list of dict
        Rows of `cores`, `predicted_ns` and `recorded` (1 for the number that there was), by cores.

    Notes
    -----
    What a core's first task of a stage takes longer than the others goes with the core, not with the task: with twice
    as many cores twice as many tasks are the first ones.
    """
    if not schedule.tasks.height or not schedule.cores:
        return []
    had = sum(until is None for _, until in recorded_cores(schedule))
    wanted = sorted({*counts, max(1, had // 2), had, 2 * had})
    warm, first = warm_up(schedule)
    return [
        {
            "cores": count,
            "predicted_ns": list_schedule(plan, with_cores(schedule, count), durations=warm, first=first),
            "recorded": int(count == had),
        }
        for count in wanted
    ]


def warm_up(schedule: Schedule) -> tuple[I64, dict[tuple[int, int], int]]:
    """Return how long tasks take on a core that has had one of their stage, and what the first one there takes more.

    The first task of a stage on a core loads classes and code, and reads what all tasks of the stage share. What that
    adds is taken to be the lower median, over the cores, of how much their first task exceeds the median of the stage's
    other tasks: where one core's first task has a trouble of its own, the others tell. One core alone tells nothing.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    durations
        Per task, nanoseconds.
    first
        Stage and attempt to nanoseconds.
    """
    tasks = schedule.tasks.with_row_index("number").with_columns(held=pl.col("free") - pl.col("receipt"))
    held = tasks["held"].to_numpy().copy()
    key = ["stage", "stage_attempt"]
    first = tasks.sort("receipt", "number").unique([*key, "core"], keep="first", maintain_order=True)
    others = (
        tasks.filter(~pl.col("number").is_in(first["number"].implode()) & pl.col("succeeded"))
        .group_by(key)
        .agg(pl.col("held").median().alias("typical"))
    )
    extra = first.join(others, on=key, how="inner").with_columns(
        extra=(pl.col("held") - pl.col("typical")).clip(lower_bound=0).cast(pl.Int64)
    )
    usual = (
        extra.group_by(key)
        .agg(usual=pl.col("extra").sort().get((pl.len() - 1) // 2), cores=pl.len())
        .filter(pl.col("cores") > 1)
    )
    taken = extra.join(usual, on=key, how="inner")
    held[taken["number"].to_numpy()] -= taken.select(pl.min_horizontal("usual", "extra")).to_series().to_numpy()
    return held, {(int(s), int(a)): int(ns) for s, a, ns in usual.select(*key, "usual").iter_rows()}
