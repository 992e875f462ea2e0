"""Tasks that waited for executors to come."""

from __future__ import annotations

from statistics import median_low

from pag_graph.diagnosis.spark.changes import of_setting
from pag_graph.diagnosis.spark.cores import cores_at, most_cores, registered_slots
from pag_graph.diagnosis.spark.intervals import common, length, without
from pag_graph.diagnosis.spark.list_schedule import Cores
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.diagnosis.spark.losses import lost_executors
from pag_graph.sources.spark.settings import setting

__all__ = ["executor_wait"]


def executor_wait(look: Look) -> list[Cause]:
    """Find out what it cost that executors came only when jobs were there, whether some were there before or none.

    The application is replayed with as many cores as there were at most at a time, there from the first job on: from
    when they would have had their first tasks, which on a new executor come as much later as they did here. One that
    took the place of a lost executor is the loss's doing, not counted here.
    """
    jobs = look.schedule.jobs
    first, last = min(job.start_ns for job in jobs), max(job.end_ns for job in jobs)
    slots = registered_slots(look.schedule)
    late = [(there, works) for there, works in zip(slots, look.cores, strict=True) if first < there.since < last]
    if len(late) <= len(lost_executors(look)):
        return []
    most, at_first = most_cores(slots), cores_at(slots, first)
    cold = median_low(max(0, works.since - there.since) for there, works in late)
    cores = [Cores(first, None, at_first), Cores(first + cold, None, max(0, most - at_first))]
    saved = look.base - look.ends(cores=cores)
    if not look.matters(saved):
        return []
    none, came = _without_any(look, slots), max(there.since for there, _ in late) - first
    text = f"Jobs waited for executors: of {most} cores at most, {at_first} were there when the first job began, and"
    text += f" others came {seconds(came)} after it"
    text += f"; for {seconds(none)} of jobs there was none." if none else "."
    signal = {"waited_ns": none, "most_cores": most, "cores_at_first_job": at_first, "executors_late": len(late)}
    executors = -(-most // max(group.cores for group in look.cores))
    log = look.schedule.log
    names = ("spark.dynamicAllocation.initialExecutors", "spark.dynamicAllocation.minExecutors")
    changes = tuple(of_setting(log, name, str(executors)) for name in names)
    return [look.cause("executor_wait", saved, text, signal=signal, changes=changes if _dynamic(look) else ())]


def _dynamic(look: Look) -> bool:
    return setting(look.schedule.log, "spark.dynamicAllocation.enabled").value == "true"


def _without_any(look: Look, slots: list[Cores]) -> int:
    """Return for how long jobs ran without any executor being there."""
    there = [(since, look.schedule.end_ns if until is None else until) for since, until, _ in slots]
    working = [(job.start_ns, job.end_ns) for job in look.schedule.jobs]
    return length(common(working, without([(0, look.schedule.end_ns)], there)))
