"""List scheduling: tasks given out to cores in the order of their readiness, under what each of them waits for.

Definitions stand in `docs/spark-cores.md`, "How it works".
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

__all__ = ["Cores", "JobPlan", "StagePlan", "WorkPlan", "list_schedule"]


class Cores(NamedTuple):
    """Cores that came and went together."""

    since: int
    """From when on tasks may begin there, in nanoseconds."""
    until: int | None
    """Until when; None for no end."""
    cores: int = 1
    """How many there are; what is done with them takes no longer for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """When a job begins, and how long after its last stage it ends."""

    after: tuple[int, ...] = ()
    """Jobs that must have ended."""
    begun: int = -1
    """Job that must have begun; -1 for none."""
    gap_ns: int = 0
    """The driver's own time after these, or from the origin if there are none."""
    not_before_ns: int = 0
    """The earliest that it begins, whatever ended sooner: its input, or the stream's trigger, comes by the clock."""
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
    cores: Sequence[Cores | tuple[int, int | None]],
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
        From when and until when tasks may begin on them, and how many there are (one, where it is not said).
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
    O(tasks log tasks), however many cores there are: those that no task needs are never looked at. Deterministic: ties
    by job, stage and order of launch; of the free cores the first one is taken.
    """
    groups = [cores_group for group in cores if (cores_group := Cores(*group)).cores > 0]
    if not any(group.until is None for group in groups):
        message = "There is no core on which all tasks could run."
        raise InvalidParameterError(message, "Give at least one core.")
    run = _Run(plan, groups, (plan.durations if durations is None else durations).tolist(), skip)
    run.first = [(first or {}).get(stage.key, 0) for stage in plan.stages]
    return run.end()


# Kinds of events, in the order in which they count at one instant.
_DONE, _CORE, _JOB, _STAGE, _READY = range(5)


class _Run:
    def __init__(self, plan: WorkPlan, groups: Sequence[Cores], durations: list[int], skip: frozenset[int]) -> None:
        self.plan, self.groups, self.durations, self.skip = plan, groups, durations, skip
        # Cores are numbered group by group. Of each group those stand in the heap that have had a task, and the first
        # of the others.
        self.bounds = list(accumulate((group.cores for group in groups), initial=0))
        self.fresh = self.bounds[:-1]
        self.events: list[tuple[int, int, int, int]] = []
        self.ready: list[tuple[int, int, int, int]] = []
        self.free: list[int] = []
        self.last_stage: dict[int, int] = {}
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
            for parent in job.after:
                self.job_next.setdefault(parent, []).append(index)
            if job.begun >= 0:
                self.job_forks.setdefault(job.begun, []).append(index)
        for index, stage in enumerate(plan.stages):
            self.open_stages[stage.job] += 1
            for parent in stage.after:
                self.stage_next.setdefault(parent, []).append(index)
            if not stage.after:
                self.first_stages.setdefault(stage.job, []).append(index)
            for place, task in enumerate(stage.tasks):
                self.stage_of[task], self.position[task] = index, place
        for task, before in plan.follows.items():
            if task not in skip and before not in skip:
                self.after_task.setdefault(before, []).append(task)

    def end(self) -> int:
        plan = self.plan
        for group_number, group in enumerate(self.groups):
            heapq.heappush(self.events, (group.since, _CORE, self.bounds[group_number], 0))
        for index, job in enumerate(plan.jobs):
            if not job.after and job.begun < 0:
                self._job_comes(0, index)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, kind, number, core = heapq.heappop(self.events)
                self._happen(now, kind, number, core)
            self._assign(now)
        return max((self.job_end.get(job, 0) for job in plan.last), default=0) + plan.tail_ns

    def _happen(self, now: int, kind: int, number: int, core: int) -> None:
        if kind == _DONE:
            heapq.heappush(self.free, core)
            self._task_done(now, number)
        elif kind == _CORE:
            heapq.heappush(self.free, number)
        elif kind == _JOB:
            self._job_begins(now, number)
        elif kind == _STAGE:
            self._stage_begins(now, number)
        else:
            self._enqueue(number)

    def _job_begins(self, now: int, job: int) -> None:
        self.job_begin[job] = now
        for fork in self.job_forks.get(job, ()):
            self._job_waits_less(now, fork)
        stages = self.first_stages.get(job, ())
        for stage in stages:
            heapq.heappush(self.events, (now + self.plan.stages[stage].gap_ns, _STAGE, stage, 0))
        if not self.open_stages[job]:
            self._job_done(now + self.plan.jobs[job].tail_ns, job)

    def _job_waits_less(self, now: int, job: int) -> None:
        self.job_left[job] -= 1
        if not self.job_left[job]:
            self._job_comes(now, job)

    def _job_comes(self, ready_ns: int, job: int) -> None:
        """Let a job begin for which nothing but the driver, and the clock, is waited from an instant on."""
        job_plan = self.plan.jobs[job]
        heapq.heappush(self.events, (max(ready_ns + job_plan.gap_ns, job_plan.not_before_ns), _JOB, job, 0))

    def _job_done(self, end_ns: int, job: int) -> None:
        self.job_end[job] = end_ns
        for next_job in self.job_next.get(job, ()):
            # Its begin lies at or after `end_ns`: the latest of its predecessors counts it down last.
            self.job_left[next_job] -= 1
            if not self.job_left[next_job]:
                latest = max(self.job_end[before] for before in self.plan.jobs[next_job].after)
                self._job_comes(latest, next_job)

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
        for follower in self.after_task.get(task, ()):
            self._enqueue(follower)
        stage = self.stage_of[task]
        self.open_tasks[stage] -= 1
        if not self.open_tasks[stage]:
            self._stage_done(now, stage)

    def _stage_done(self, now: int, stage: int) -> None:
        self.stage_end[stage] = now
        for next_stage in self.stage_next.get(stage, ()):
            self.stage_left[next_stage] -= 1
            if not self.stage_left[next_stage]:
                heapq.heappush(self.events, (now + self.plan.stages[next_stage].gap_ns, _STAGE, next_stage, 0))
        job = self.plan.stages[stage].job
        self.open_stages[job] -= 1
        if not self.open_stages[job]:
            self._job_done(now + self.plan.jobs[job].tail_ns, job)

    def _assign(self, now: int) -> None:
        while self.ready and self.free:
            core = heapq.heappop(self.free)
            number = bisect_right(self.bounds, core) - 1
            until = self.groups[number].until
            if until is not None and until <= now:
                continue
            if core == self.fresh[number]:
                self.fresh[number] = core + 1
                if core + 1 < self.bounds[number + 1]:
                    heapq.heappush(self.free, core + 1)
            *_, stage, _, task = heapq.heappop(self.ready)
            between = self.plan.stages[stage].between_ns if self.last_stage.get(core) == stage else 0
            self.last_stage[core] = stage
            if (core, stage) not in self.begun:
                self.begun.add((core, stage))
                between += self.first[stage]
            heapq.heappush(self.events, (now + between + max(self.durations[task], 0), _DONE, task, core))
