"""What could be had for less: cores and memory that an application hardly used; no time is saved by that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from pag_graph.diagnosis.spark.changes import Change, of_program, of_setting, share_of_memory, size_of
from pag_graph.diagnosis.spark.cores import most_cores, registered_cores, steady, with_cores
from pag_graph.diagnosis.spark.suspicions import is_native
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.look import Look

__all__ = ["Cost", "costs"]

_GIB = 1 << 30
_HOUR_NS = 3_600_000_000_000
_MEMORY, _MAX = "spark.executor.memory", "spark.dynamicAllocation.maxExecutors"
_RESERVED = 300 << 20
"""What Spark keeps for itself of every heap."""
_STEP = 256 << 20
"""Proposed memory is a whole number of these."""


class Cost(NamedTuple):
    """Something that costs money and no time."""

    cost: str
    """Stable name of what costs."""
    text: str
    """What was seen, with its numbers."""
    change: Change
    """What to change."""
    saved: float
    """How much less would be used, in the unit."""
    unit: str
    """``core-hours`` or ``GiB-hours``."""
    slower: float
    """How much longer the application would take by the replay, as a share of the time since the first job."""
    traps: tuple[str, ...]
    """What the log cannot tell."""

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**self._asdict(), "change": self.change.facts(), "traps": list(self.traps)}


def costs(look: Look, *, reliable: bool) -> list[Cost]:
    """Find cores and memory that could be given back.

    Parameters
    ----------
    look
        A log.
    reliable
        Whether its replays are near enough to what was recorded.

    Returns
    -------
    list of Cost
        Cores only where replays can be relied on.
    """
    candidates = [_cores(look) if reliable else None, _memory(look)]
    return [cost for cost in candidates if cost is not None]


def _cores(look: Look) -> Cost | None:
    """Find the fewest cores with which the application takes hardly longer."""
    limits, most_at_once = look.limits, most_cores(look.cores)
    first_job_ns = look.schedule.end_ns - look.active
    groups = registered_cores(look.schedule)
    end = look.schedule.end_ns
    core_ns = sum(
        max(0, (end if group.until is None else group.until) - max(group.since, first_job_ns)) * group.cores
        for group in groups
    )
    busy = int(look.tasks["held"].sum())
    local = "driver" in look.schedule.executors["executor"].to_list()
    if local or most_at_once < limits.many_cores or not steady(look.schedule) or busy > limits.busy_share * core_ns:
        return None
    allowed = look.base + int(limits.slower_share * look.active)
    fewest, enough, ends = max(1, -(-busy // max(look.active, 1))), most_at_once, look.base
    while fewest < enough:
        count = (fewest + enough) // 2
        reached = look.ends(cores=with_cores(look.schedule, count))
        if reached <= allowed:
            enough, ends = count, reached
        else:
            fewest = count + 1
    if enough > limits.fewer_share * most_at_once:
        return None
    slower = max(0.0, (ends - look.base) / look.active)
    saved = (core_ns / _HOUR_NS) * (1 - enough / most_at_once * (1 + slower))
    text = (
        f"{1 - busy / max(core_ns, 1):.0%} of the cores' time since the first job was idle: with {enough} of"
        f" {most_at_once} cores the application would take {slower:.1%} longer."
    )
    changes = of_setting(look.schedule.log, _MAX, f"{enough} cores in all") if _dynamic(look) else None
    change = changes or of_program("cores", f"{most_at_once}", f"{enough}", "the application")
    traps = ("Fewer cores have less memory for shuffles and caches; this is not replayed.",)
    return Cost("idle_cores", text, change, round(saved, 6), "core-hours", round(slower, 6), traps)


def _dynamic(look: Look) -> bool:
    return setting(look.schedule.log, "spark.dynamicAllocation.enabled").value == "true"


def _memory(look: Look) -> Cost | None:
    """Find executors that used little of their memory for execution and storage, and had no trouble with it."""
    log, limits = look.schedule.log, look.limits
    heap, share = size_of(log, _MEMORY), share_of_memory(log)
    sampled = log.memory.filter(pl.col("heap_bytes") > 0, pl.col("task_bytes").is_not_null())
    executors = set(look.schedule.executors["executor"].to_list())
    # Native engines keep their data outside of the heap, and so does Spark if it is asked to.
    outside = int(sampled["off_heap_bytes"].sum()) or any(is_native(node.name) for node in look.plans)
    if heap is None or outside or "driver" in executors or not executors <= set(sampled["executor"].to_list()):
        return None
    stages, cores = look.stages, max((int(count or 1) for count in look.schedule.executors["cores"]), default=1)
    run = max(int(stages["run_ns"].sum()), 1)
    if int(stages["spilled_bytes"].sum()) or int(stages["gc_ns"].sum()) > limits.little_gc * run:
        return None
    # Samples are far apart: what one task held is measured, and as many as there are cores can hold it at once.
    execution, storage, of_task = (
        max(sampled[name].to_list()) for name in ("execution_bytes", "storage_bytes", "task_bytes")
    )
    execution = max(execution, cores * of_task)
    usable = max(share * (heap - _RESERVED), 1)
    if execution + storage > limits.little_memory * usable:
        return None
    needed = (execution + storage) / share + _RESERVED
    proposed = -(-int(max(heap / 2, 2 * needed)) // _STEP) * _STEP
    if proposed >= heap:
        return None
    hours = sum(
        (look.schedule.end_ns if removed is None else removed) - added
        for added, removed in look.schedule.executors.select("added", "removed").iter_rows()
    )
    text = (
        f"Execution and storage used {(execution + storage) / 2**20:,.0f} MiB of {usable / 2**20:,.0f} MiB at most that"
        f" executors have for it; no task spilled, and garbage collection took"
        f" {int(stages['gc_ns'].sum()) / run:.1%} of run time."
    )
    change = of_setting(log, _MEMORY, f"{proposed >> 20}m")
    saved = (heap - proposed) / _GIB * hours / _HOUR_NS
    traps = ("What the program itself holds beside that is not in the log.", "Samples are taken with heartbeats.")
    return Cost("memory_over", text, change, round(saved, 6), "GiB-hours", 0.0, traps)
