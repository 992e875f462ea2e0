"""Storage that answered slowly, and a driver that collected garbage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.changes import of_program, of_setting, size_of
from pag_graph.diagnosis.spark.driver_time import driver_gaps
from pag_graph.diagnosis.spark.intervals import common, length, united
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.sources.spark.placing import MS

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.plan_view import PlanNode

__all__ = ["cloud_wait", "driver_gc"]

_MEMORY = "spark.driver.memory"
_CLOUD = ("gcs api time", "gcs backoff time", "cloud storage request duration", "cloud storage retry duration")
"""Timers of scans that ask object stores (Dataproc, Databricks)."""


def driver_gc(look: Look) -> list[Cause]:
    """Find a driver that collected garbage: Spark tells of it at the ends of stages, if it is asked to."""
    log = look.schedule.log
    rows = dict(log.memory.select("executor", "gc_ms").iter_rows()) if log.memory.height else {}
    gc_ns = (rows.get("driver") or 0) * MS
    if log.executors.height and "driver" in log.executors["executor"].to_list():
        # On one process it is the tasks' garbage too.
        return []
    # A pause stops nobody but the driver's program, and tasks that wait for it.
    gc_ns = min(gc_ns, length(driver_gaps(look.schedule)) + _launching(look))
    if not look.matters(gc_ns):
        return []
    memory_bytes = size_of(log, _MEMORY)
    changes = () if memory_bytes is None else (of_setting(log, _MEMORY, f"{memory_bytes * 2 >> 20}m"),)
    text = f"The driver collected garbage for {seconds(gc_ns)}, of {seconds(look.active)} since the first job."
    signal = {"gc_ns": gc_ns, "driver_memory_bytes": memory_bytes}
    traps = ("It is not in the log when it did so: where tasks were at work meanwhile, nobody waited.",)
    facts = {"signal": signal, "changes": changes, "traps": traps}
    return [look.cause("driver_gc", gc_ns, text, bound=True, measured=True, **facts)]


def _launching(look: Look) -> int:
    """Return for how long jobs ran in which no task was at work."""
    working = united((job.start_ns, job.end_ns) for job in look.schedule.jobs)
    at_work = united(look.tasks.select("receipt", "free").iter_rows())
    return length(working) - length(common(working, at_work))


def cloud_wait(look: Look) -> list[Cause]:
    """Find scans whose tasks spent much of their time on requests to an object store."""
    causes = [_slow_requests(look, node) for node in look.plans if any(node.has(timer) for timer in _CLOUD)]
    return [cause for cause in causes if cause is not None]


def _slow_requests(look: Look, scan: PlanNode) -> Cause | None:
    requests_ns: dict[tuple[int, int], int] = {}
    for timer in _CLOUD:
        for key, request_ns in scan.counted.get(timer, {}).items():
            if key in look.plans.run_ns:
                requests_ns[key] = requests_ns.get(key, 0) + request_ns
    if not requests_ns:
        return None
    # Requests of one task overlap: they take no longer than its scan, where that is timed.
    scanned = scan.counted.get("scan time", {})
    shares = {
        key: min(request_ns, scanned.get(key) or request_ns, look.plans.run_ns[key]) / look.plans.run_ns[key]
        for key, request_ns in requests_ns.items()
    }
    changed = look.cut(shares, lambda key: shares[key])
    saved = look.saved_in(sorted(shares), changed)
    if not look.matters(saved):
        return None
    stage = max(requests_ns, key=lambda key: requests_ns[key])
    text = (
        f"{look.stage_name(*stage)}: requests to the object store took {seconds(sum(requests_ns.values()))}, summed"
        " over requests that can overlap."
    )
    signal = {timer.replace(" ", "_") + "_ns": scan.total(timer) for timer in _CLOUD if scan.has(timer)}
    signal["query"] = scan.execution
    place = f"stage {stage[0]}, {scan.label}"
    changes = (of_program("requests", "as they are", "fewer and larger, or a cache of the files", place),)
    traps = ("Requests overlap each other and the tasks' own work.",)
    facts = {"signal": signal, "changes": changes, "traps": traps, "changed": changed}
    return look.cause("cloud_wait", saved, text, stage=stage[0], bound=True, **facts)
