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
    known: dict[str, list[int]] = {}
    for index, job in enumerate(schedule.jobs):
        if job.number is not None:
            known.setdefault(str(job.number), []).append(index)
            known.setdefault(f"job {job.number}", []).append(index)
            if job.unit != f"job {job.number}":
                known.setdefault(job.unit, []).append(index)
    names = [name.strip() for name in text.split(",")]
    strange = [name for name in names if name not in known]
    if strange:
        there = ", ".join(dict.fromkeys(job.unit for job in schedule.jobs[:_SHOWN]))
        message = f"There is no job or query {strange[0]!r} in the log, which begins with {there or 'none'}."
        raise InvalidParameterError(message, _EXAMPLE)
    members = [known[name] for name in names]
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
            last = waiting[-1]
            lower = [other for other in _waits(plan, last) if other in element and other not in ways]
            if lower and last not in ways:
                waiting += lower
                continue
            waiting.pop()
            ways.setdefault(
                last, _way(plan, last, {other: ways[other] for other in _waits(plan, last) if other in ways})
            )
        return ways[job]

    jobs = list(plan.jobs)
    for job, place in element.items():
        freed = [other for other in _waits(plan, job) if element.get(other, place) != place]
        if not freed:
            continue
        own, over = plan.jobs[job], [pass_over(other) for other in freed]
        kept = {other for other in own.after if element.get(other, place) == place}
        begun = [way.begun for way in over if way.begun >= 0] + ([own.begun] if own.begun not in {-1, *freed} else [])
        gap = (
            max(way.whole_ns for way in over) + own.gap_ns
            if driver == "one by one"
            else max(own.gap_ns, *(way.root_ns for way in over))
        )
        after = kept.union(*(way.after for way in over))
        jobs[job] = replace(own, after=tuple(sorted(after)), begun=max(begun, default=-1), gap_ns=gap)
    for job, planned in enumerate(plan.jobs):
        if job not in element and any(other in element for other in planned.after):
            jobs[job] = replace(planned, after=_with_members(plan, planned.after, element))
    return replace(plan, jobs=tuple(jobs), last=_with_members(plan, plan.last, element))


def _waits(plan: WorkPlan, job: int) -> list[int]:
    planned = plan.jobs[job]
    return [*planned.after, *([planned.begun] if planned.begun >= 0 else [])]


def _way(plan: WorkPlan, job: int, over: Mapping[int, _Way]) -> _Way:
    planned = plan.jobs[job]
    after = frozenset(other for other in planned.after if other not in over).union(
        *(way.after for way in over.values())
    )
    begun = max([*(way.begun for way in over.values()), *([] if planned.begun in over else [planned.begun])])
    whole = planned.gap_ns + max((way.whole_ns for way in over.values()), default=0)
    root = max((way.root_ns for way in over.values()), default=planned.gap_ns)
    return _Way(after, begun, whole, root)


def _with_members(plan: WorkPlan, after: Collection[int], element: Mapping[int, int]) -> tuple[int, ...]:
    """Return what is waited for, with all independent jobs that it came after."""
    known = set(after)
    waiting = [job for job in after if job in element]
    seen = set(waiting)
    while waiting:
        for other in _waits(plan, waiting.pop()):
            if other not in seen and other in element:
                seen.add(other)
                waiting.append(other)
    return tuple(sorted(known | seen))


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
    least, most = min(ends), max(ends)
    told = diagnosis.estimate((least + most) // 2)
    error = told.error_ns + (most - least + 1) // 2
    reliable = told.reliable and most - least <= _ONE_NUMBER * diagnosis.active_ns
    end = Estimate(told.ns, error, reliable)
    return WhatIf(f"{text} at once", end, Estimate(diagnosis.simulated_ns - told.ns, error, reliable))
