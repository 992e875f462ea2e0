"""When an application would have ended if jobs that its user declares independent had begun at once.

A log tells what ran after what, and not whether it had to. Whoever knows says so; the rest is the list schedule without
these waits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pag_graph.diagnosis.spark.list_schedule import list_schedule
from pag_graph.diagnosis.spark.look import Estimate
from pag_graph.diagnosis.spark.what_if import WhatIf
from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pag_graph.diagnosis.spark.causes import Diagnosis
    from pag_graph.diagnosis.spark.list_schedule import WorkPlan
    from pag_graph.sources.spark.schedule import Schedule

__all__ = ["independent_jobs", "what_if_independent", "without_waits"]

_EXAMPLE = "pag spark LOG --independent 3,4,5, or --independent 'query 0,query 1'"
_SHOWN = 6
_ONE_NUMBER = 0.02
"""Both ends of an interval are given as one number where they lie no further apart than so much of the active time."""


def independent_jobs(schedule: Schedule, text: str) -> list[list[int]]:
    """Read which jobs and queries need not wait for each other.

    Parameters
    ----------
    schedule
        Of one log.
    text
        Spark's numbers of jobs, or words such as ``query 3``, with commas between.

    Returns
    -------
    list
        Per job or query: indices of its jobs.

    Raises
    ------
    InvalidParameterError
        If there is no such job or query, one is named twice, or there is only one.
    """
    members_by_name: dict[str, list[int]] = {}
    for index, job in enumerate(schedule.jobs):
        if job.number is not None:
            members_by_name.setdefault(str(job.number), []).append(index)
            members_by_name.setdefault(f"job {job.number}", []).append(index)
            if job.unit != f"job {job.number}":
                members_by_name.setdefault(job.unit, []).append(index)
    names = [name.strip() for name in text.split(",")]
    strange = [name for name in names if name not in members_by_name]
    if strange:
        examples = ", ".join(dict.fromkeys(job.unit for job in schedule.jobs[:_SHOWN]))
        message = f"There is no job or query {strange[0]!r} in the log, which begins with {examples or 'none'}."
        raise InvalidParameterError(message, _EXAMPLE)
    members = [members_by_name[name] for name in names]
    if len(members) < 2 or len({index for jobs in members for index in jobs}) < sum(map(len, members)):  # noqa: PLR2004
        message = f"{text!r} does not name at least two jobs or queries that have no job in common."
        raise InvalidParameterError(message, _EXAMPLE)
    return members


class _Way(NamedTuple):
    """What a job waits for once it passes over independent ones."""

    after: frozenset[int]
    begun: int
    whole_ns: int
    """The driver's time on the way, all of it."""
    root_ns: int
    """That before the first job on it."""


def without_waits(plan: WorkPlan, members: Sequence[Collection[int]], *, driver: str) -> WorkPlan:
    """Return the plan in which some jobs wait for what came before all of them, and not for each other.

    Parameters
    ----------
    plan
        What was recorded.
    members
        Jobs, by what stays in its order: those of one query.
    driver
        What the driver does before each: ``one by one`` as recorded, or ``at once``, each by a thread of its own.

    Returns
    -------
    WorkPlan
        Who waited for one of them waits for all that it came after. Nobody waits for more than before, by way of
        others. O(jobs + waits).
    """
    element = {job: place for place, jobs in enumerate(members) for job in jobs}
    ways: dict[int, _Way] = {}

    def pass_over(job: int) -> _Way:
        # Chains may be longer than calls nest: those below are looked at first.
        waiting = [job]
        while waiting:
            top = waiting[-1]
            below = [
                predecessor for predecessor in _waits(plan, top) if predecessor in element and predecessor not in ways
            ]
            if below and top not in ways:
                waiting += below
                continue
            waiting.pop()
            ways.setdefault(
                top,
                _way(
                    plan,
                    top,
                    {predecessor: ways[predecessor] for predecessor in _waits(plan, top) if predecessor in ways},
                ),
            )
        return ways[job]

    jobs = list(plan.jobs)
    for job, place in element.items():
        freed = [predecessor for predecessor in _waits(plan, job) if element.get(predecessor, place) != place]
        if not freed:
            continue
        planned, passed = plan.jobs[job], [pass_over(predecessor) for predecessor in freed]
        after_within = {predecessor for predecessor in planned.after if element.get(predecessor, place) == place}
        begins = [passed_way.begun for passed_way in passed if passed_way.begun >= 0] + (
            [planned.begun] if planned.begun not in {-1, *freed} else []
        )
        gap = (
            max(passed_way.whole_ns for passed_way in passed) + planned.gap_ns
            if driver == "one by one"
            else max(planned.gap_ns, *(passed_way.root_ns for passed_way in passed))
        )
        after = after_within.union(*(passed_way.after for passed_way in passed))
        jobs[job] = replace(planned, after=tuple(sorted(after)), begun=max(begins, default=-1), gap_ns=gap)
    for job, waiting_job in enumerate(plan.jobs):
        if job not in element and any(predecessor in element for predecessor in waiting_job.after):
            jobs[job] = replace(waiting_job, after=_with_members(plan, waiting_job.after, element))
    return replace(plan, jobs=tuple(jobs), last=_with_members(plan, plan.last, element))


def _waits(plan: WorkPlan, job: int) -> list[int]:
    planned = plan.jobs[job]
    return [*planned.after, *([planned.begun] if planned.begun >= 0 else [])]


def _way(plan: WorkPlan, job: int, over: Mapping[int, _Way]) -> _Way:
    planned = plan.jobs[job]
    after = frozenset(predecessor for predecessor in planned.after if predecessor not in over).union(
        *(passed_way.after for passed_way in over.values())
    )
    begins = max(
        [*(passed_way.begun for passed_way in over.values()), *([] if planned.begun in over else [planned.begun])]
    )
    whole_ns = planned.gap_ns + max((passed_way.whole_ns for passed_way in over.values()), default=0)
    root_ns = max((passed_way.root_ns for passed_way in over.values()), default=planned.gap_ns)
    return _Way(after, begins, whole_ns, root_ns)


def _with_members(plan: WorkPlan, after: Collection[int], element: Mapping[int, int]) -> tuple[int, ...]:
    """Return what is waited for, with all independent jobs that it came after."""
    predecessors = set(after)
    waiting = [job for job in after if job in element]
    independent = set(waiting)
    while waiting:
        for predecessor in _waits(plan, waiting.pop()):
            if predecessor not in independent and predecessor in element:
                independent.add(predecessor)
                waiting.append(predecessor)
    return tuple(sorted(predecessors | independent))


def what_if_independent(schedule: Schedule, diagnosis: Diagnosis, text: str) -> WhatIf:
    """Predict the end if jobs that are declared independent had begun at once.

    Parameters
    ----------
    schedule, diagnosis
        Of one log.
    text
        As `independent_jobs` reads it.

    Returns
    -------
    WhatIf
        Of an interval: the driver's time before the jobs at once, or one after the other. Which of them comes first on
        a core is decided by their numbers, as Spark's FIFO scheduler does.
    """
    members = independent_jobs(schedule, text)
    ends = [
        list_schedule(without_waits(diagnosis.plan, members, driver=driver), diagnosis.cores)
        for driver in ("at once", "one by one")
    ]
    shortest, longest = min(ends), max(ends)
    middle = diagnosis.estimate((shortest + longest) // 2)
    error = middle.error_ns + (longest - shortest + 1) // 2
    reliable = middle.reliable and longest - shortest <= _ONE_NUMBER * diagnosis.active_ns
    end = Estimate(middle.ns, error, reliable)
    return WhatIf(f"{text} at once", end, Estimate(diagnosis.simulated_ns - middle.ns, error, reliable))
