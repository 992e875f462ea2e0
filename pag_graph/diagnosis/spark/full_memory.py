"""Executors whose heap was full when they collected garbage, or when their tasks spilled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.changes import of_setting, size_of
from pag_graph.diagnosis.spark.look import Shorter
from pag_graph.diagnosis.spark.resources import collected, spilled

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.look import Cause, Look

__all__ = ["memory_under"]

_EXECUTOR, _DRIVER = "spark.executor.memory", "spark.driver.memory"


def memory_under(look: Look) -> list[Cause]:
    """Find executors whose heap was full, and say what their garbage collection and spilling cost together.

    A heap is full where Spark saw `full_heap` of it in use at a heartbeat. Time is only taken from tasks on such
    executors, in stages that spent much on garbage collection or spilled much of what they moved.
    """
    heap, peaks = _heap_bytes(look), _full_heaps(look)
    if heap is None or not peaks:
        return []
    rows = look.schedule.executors
    codes = [code for name, code in rows.select("executor", "code").iter_rows() if name in peaks]
    full = look.tasks["executor"].is_in(codes).to_numpy()
    losses = [one_loss for one_loss in (collected(look), spilled(look)) if one_loss.keys]
    full_heap_parts = [(one_loss.tasks, np.where(full[one_loss.tasks], one_loss.time, 0)) for one_loss in losses]
    if not full_heap_parts:
        return []
    changed = Shorter(full_heap_parts)
    saved = look.saved(changed)
    if not look.matters(saved):
        return []
    full_heap_tasks = look.tasks.filter(pl.Series(full))
    gc, spilt = int(full_heap_tasks["gc"].sum()), int(full_heap_tasks["disk_spilled_bytes"].sum())
    name, peak = max(peaks.items(), key=lambda executor_peak: (executor_peak[1], executor_peak[0]))
    text = (
        f"{len(peaks)} of {rows.height} executor{'s' if rows.height > 1 else ''} had a full heap ({name}:"
        f" {peak / 2**20:,.0f} of {heap / 2**20:,.0f} MiB): tasks there spent"
        f" {gc / max(int(full_heap_tasks['run'].sum()), 1):.0%} of their run time collecting garbage, and spilled"
        f" {spilt / 2**20:,.0f} MiB."
    )
    signal = {"heap_bytes": heap, "peak_bytes": peak, "executors": sorted(peaks), "gc_ns": gc, "spilled_bytes": spilt}
    change = of_setting(look.schedule.log, _setting_of(look), f"{heap * 2 >> 20}m")
    traps = ("A heap holds garbage too: full is not too small, unless collecting or spilling takes time.",)
    facts = {"signal": signal, "changes": (change,), "traps": traps, "bound": True, "changed": changed}
    return [look.cause("memory_under", saved, text, **facts)]


def _full_heaps(look: Look) -> dict[str, int]:
    """Return the executors whose heap was full, with the most that was in use."""
    heap, memory = _heap_bytes(look), look.schedule.log.memory
    if heap is None or not memory.height:
        return {}
    registered = set(look.schedule.executors["executor"].to_list())
    rows = memory.filter(pl.col("heap_bytes") >= look.limits.full_heap * heap).select("executor", "heap_bytes")
    return {name: peak for name, peak in rows.iter_rows() if name in registered}


def _heap_bytes(look: Look) -> int | None:
    return size_of(look.schedule.log, _setting_of(look))


def _setting_of(look: Look) -> str:
    """Return which setting says how large the heap is in which tasks run."""
    return _DRIVER if "driver" in look.schedule.executors["executor"].to_list() else _EXECUTOR
