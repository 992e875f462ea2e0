"""Tasks that waited for executors to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.changes import of_setting
from pag_graph.diagnosis.spark.cores import cores_at, most_cores, with_cores
from pag_graph.diagnosis.spark.intervals import common, length, without
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.diagnosis.spark.losses import lost_executors
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.list_schedule import Cores

__all__ = ["executor_wait"]


def executor_wait(look: Look) -> list[Cause]:
    """Find out what it cost that executors came only when jobs were there, whether some were there before or none.

    The application is replayed with as many cores as there were at most at a time, there from the first job on. One
    that took the place of a lost executor is the loss's doing, not counted here.
    """
    jobs = look.schedule.jobs
    first, last = min(job.start_ns for job in jobs), max(job.end_ns for job in jobs)
    late = [group for group in look.cores if first < group.since < last]
    if len(late) <= len(lost_executors(look)):
        return []
    most = most_cores(look.cores)
    saved = look.base - look.ends(cores=with_cores(look.schedule, most, at=first))
    if not look.matters(saved):
        return []
    none = _without_any(look)
    text = (
        f"Jobs waited for executors: of {most} cores at most, {cores_at(look.cores, first)} were there when the first"
    )
    text += f" job began, and others came {seconds(_after(late, first))} after it"
    text += f"; for {seconds(none)} of jobs there was none." if none else "."
    signal = {
        "waited_ns": none,
        "most_cores": most,
        "cores_at_first_job": cores_at(look.cores, first),
        "executors_late": len(late),
    }
    executors = -(-most // max(group.cores for group in look.cores))
    log = look.schedule.log
    names = ("spark.dynamicAllocation.initialExecutors", "spark.dynamicAllocation.minExecutors")
    changes = tuple(of_setting(log, name, str(executors)) for name in names)
    return [look.cause("executor_wait", saved, text, signal=signal, changes=changes if _dynamic(look) else ())]


def _dynamic(look: Look) -> bool:
    return setting(look.schedule.log, "spark.dynamicAllocation.enabled").value == "true"


def _after(late: list[Cores], first: int) -> int:
    return max(group.since for group in late) - first


def _without_any(look: Look) -> int:
    """Return for how long jobs ran without any executor being there."""
    there = [(since, look.schedule.end_ns if until is None else until) for since, until, _ in look.cores]
    working = [(job.start_ns, job.end_ns) for job in look.schedule.jobs]
    return length(common(working, without([(0, look.schedule.end_ns)], there)))
