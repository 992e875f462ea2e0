"""Tasks that waited for executors to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.diagnosis.spark.changes import of_setting
from pag_graph.diagnosis.spark.cores import cores_at, most_cores, registered_slots, with_cores
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
    that registered a moment after the first job and began late is no lack of executors, one that took the place of a
    lost executor is the loss's doing, and one of which the log does not say when it came tells nothing.
    """
    jobs = look.schedule.jobs
    first_job_ns, last_job_end = min(job.start_ns for job in jobs), max(job.end_ns for job in jobs)
    slots, stated = registered_slots(look.schedule), _stated(look)
    late = [added for added in stated if first_job_ns < added < last_job_end]
    if len(late) <= len(lost_executors(look)) or not look.matters(max(late) - first_job_ns):
        return []
    most_at_once, at_first = most_cores(slots), cores_at(slots, first_job_ns)
    last_came_ns = max(late) - first_job_ns
    # Once all are there, nothing is missing any more; where the replay says more, something else kept them idle.
    replayed = look.base - look.ends(cores=with_cores(look.schedule, most_at_once, at=first_job_ns))
    saved = min(last_came_ns, replayed)
    if not look.matters(saved):
        return []
    none = _without_any(look, slots)
    text = (
        f"Jobs waited for executors: of {most_at_once} cores at most, {at_first} were there when the first job began,"
    )
    text += f" and others came {seconds(last_came_ns)} after it"
    text += f"; for {seconds(none)} of jobs there was none." if none else "."
    signal = {
        "waited_ns": none,
        "most_cores": most_at_once,
        "cores_at_first_job": at_first,
        "executors_late": len(late),
    }
    executors = -(-most_at_once // max(group.cores for group in look.cores))
    log = look.schedule.log
    names = ("spark.dynamicAllocation.initialExecutors", "spark.dynamicAllocation.minExecutors")
    changes = tuple(of_setting(log, name, str(executors)) for name in names)
    facts = {"signal": signal, "changes": changes if _dynamic(look) else ()}
    return [look.cause("executor_wait", saved, text, most_ns=last_came_ns, **facts)]


def _stated(look: Look) -> list[int]:
    """Return when executors came, as far as the log says so."""
    stated_executors = set(look.schedule.log.executors.filter(pl.col("added_ms").is_not_null())["executor"].to_list())
    rows = look.schedule.executors.select("executor", "added").iter_rows()
    return [added for executor, added in rows if executor in stated_executors]


def _dynamic(look: Look) -> bool:
    return setting(look.schedule.log, "spark.dynamicAllocation.enabled").value == "true"


def _without_any(look: Look, slots: list[Cores]) -> int:
    """Return for how long jobs ran without any executor being there."""
    available = [(since, look.schedule.end_ns if until is None else until) for since, until, _ in slots]
    working = [(job.start_ns, job.end_ns) for job in look.schedule.jobs]
    return length(common(working, without([(0, look.schedule.end_ns)], available)))
