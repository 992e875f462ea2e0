"""Jobs that overlapped others and took longer than they would have alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pag_graph.diagnosis.spark.list_schedule import Cores, WorkPlan, list_schedule
from pag_graph.diagnosis.spark.look import Cause, Look, seconds

__all__ = ["concurrency"]

_MOST_ALONE = 8
"""Jobs that are replayed alone at most: the longest ones, for none can lose more than its own time."""

_SHOWN = 6


def concurrency(look: Look) -> list[Cause]:
    """Find the job that lost most by sharing the cores: one cause at most.

    The jobs that overlap one of another query are replayed alone with all cores, the eight longest at most: a job
    cannot lose more than its own time.

    Cause: ``concurrent_jobs``.
    """
    jobs = look.schedule.jobs
    together = _overlapping(look)
    slowed_ns: dict[int, int] = {}
    longest = sorted(together, key=lambda index: (jobs[index].start_ns - jobs[index].end_ns, index))
    for index in longest[:_MOST_ALONE]:
        span = jobs[index].end_ns - jobs[index].start_ns
        if not look.matters(span) or (slowed_ns and span <= max(slowed_ns.values())):
            break
        slowed_ns[index] = max(0, span - _alone(look, index))
    if not slowed_ns:
        return []
    worst = max(slowed_ns, key=lambda index: (slowed_ns[index], -index))
    if not look.matters(slowed_ns[worst]):
        return []
    span = jobs[worst].end_ns - jobs[worst].start_ns
    numbers = [jobs[index].number for index in sorted(together)]
    labels = ", ".join(jobs[index].label for index in sorted(together)[:_SHOWN])
    ellipsis = ", ..." if len(together) > _SHOWN else ""
    text = (
        f"{len(together)} jobs ({labels}{ellipsis}) overlapped and shared the cores: {jobs[worst].label} took"
        f" {seconds(span)}, and would have taken {seconds(span - slowed_ns[worst])} alone."
    )
    signal = {"jobs": numbers, "slowed_ns": {str(jobs[index].number): ns for index, ns in slowed_ns.items()}}
    return [look.cause("concurrent_jobs", slowed_ns[worst], text, signal=signal, bound=True)]


def _overlapping(look: Look) -> set[int]:
    """Return the jobs that overlap one of another query: those of one query overlap because it wants them to."""
    jobs = look.schedule.jobs
    together: set[int] = set()
    reach, holder = -1, -1
    for index in sorted(range(len(jobs)), key=lambda i: jobs[i].start_ns):
        same_query = jobs[index].execution is not None and jobs[index].execution == jobs[holder].execution
        if jobs[index].start_ns < reach and not same_query:
            together |= {index, holder}
        if jobs[index].end_ns > reach:
            reach, holder = jobs[index].end_ns, index
    return together


def _alone(look: Look, index: int) -> int:
    """Return how long a job would have taken with all cores for itself."""
    start = look.schedule.jobs[index].start_ns
    cores = [
        Cores(max(0, group.since - start), None, group.cores)
        for group in look.cores
        if group.until is None or group.until > start
    ]
    return list_schedule(_plan_of_job(look.plan, index), cores or [Cores(0, None)])


def _plan_of_job(plan: WorkPlan, index: int) -> WorkPlan:
    """Return the plan of one job, its tasks numbered anew."""
    job_stages = {number: stage for number, stage in enumerate(plan.stages) if stage.job == index}
    place = {number: k for k, number in enumerate(job_stages)}
    tasks = [task for stage in job_stages.values() for task in stage.tasks]
    numbers = {task: k for k, task in enumerate(tasks)}
    return WorkPlan(
        jobs=(replace(plan.jobs[index], after=(), begun=-1, gap_ns=0),),
        stages=tuple(
            replace(
                stage,
                job=0,
                after=tuple(place[parent] for parent in stage.after if parent in place),
                tasks=tuple(numbers[task] for task in stage.tasks),
            )
            for stage in job_stages.values()
        ),
        durations=plan.durations[np.array(tasks, np.int64)],
        follows={
            numbers[task]: numbers[before]
            for task in tasks
            if (before := plan.follows.get(task)) is not None and before in numbers
        },
        offsets={numbers[task]: plan.offsets[task] for task in tasks if task in plan.offsets},
        last=(0,),
    )
