"""Time that tasks lost to garbage collection, spilling, scheduler delay and waiting for shuffle blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.look import Cause, Look, Shorter, seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

__all__ = ["collected", "delays", "garbage", "spilled", "spills"]


class Lost(NamedTuple):
    """What tasks of some stages lost to one thing."""

    stages: pl.DataFrame
    keys: list[tuple[int, int]]
    """Stages and attempts."""
    tasks: I64
    """Numbers of their tasks."""
    time: I64
    """Of each task, nanoseconds."""


def _tasks_of(look: Look, heavy: pl.DataFrame) -> tuple[pl.DataFrame, list[tuple[int, int]]]:
    """Return the tasks of some stages, and these."""
    keys = heavy.select("stage", "stage_attempt")
    stage_tasks = look.tasks.join(
        keys.cast({"stage": pl.Int32, "stage_attempt": pl.Int32}), on=keys.columns, how="semi"
    )
    return stage_tasks, [(int(stage), int(attempt)) for stage, attempt in keys.iter_rows()]


def collected(look: Look) -> Lost:
    """Return stages that collected garbage for much of their run time, and for how long each task did."""
    heavy = look.stages.filter(pl.col("gc_ns") >= look.limits.gc_share * pl.col("run_ns").clip(lower_bound=1))
    heavy_tasks, keys = _tasks_of(look, heavy)
    return Lost(heavy, keys, heavy_tasks["number"].to_numpy(), heavy_tasks["gc"].to_numpy())


def garbage(look: Look) -> list[Cause]:
    """Find stages whose executors collected garbage for much of their run time.

    Cause: ``gc``.
    """
    heavy, keys, tasks, time = collected(look)
    if not keys:
        return []
    cleared = Shorter([(tasks, time)])
    saved = look.saved_in(keys, cleared)
    if not look.matters(saved):
        return []
    heavy = heavy.sort("gc_ns", descending=True, maintain_order=True)
    worst = heavy.row(0, named=True)
    gc_ns = int(heavy["gc_ns"].sum())
    share = gc_ns / max(int(heavy["run_ns"].sum()), 1)
    further = f" and {heavy.height - 1} more" if heavy.height > 1 else ""
    text = (
        f"{look.stage_name(worst['stage'], worst['stage_attempt'])}{further}: executors spent {share:.0%} of their run"
        f" time ({seconds(gc_ns)}) collecting garbage."
    )
    signal = {"gc_ns": gc_ns, "gc_share": round(share, 4), "stages": heavy["stage"].to_list()}
    return [look.cause("gc", saved, text, stage=worst["stage"], signal=signal, changed=cleared)]


def spilled(look: Look) -> Lost:
    """Return stages that spilled much of what they moved, and what that took of each task.

    Spark does not log how long spilling took. Work is taken to go with the bytes that pass through a task.
    """
    moved_bytes = pl.col("read_bytes") + pl.col("written_bytes")
    heavy = look.stages.filter(
        (pl.col("spilled_bytes") > 0) & (pl.col("spilled_bytes") >= look.limits.spill_share * moved_bytes)
    )
    heavy_tasks, keys = _tasks_of(look, heavy)
    spilt = heavy_tasks["disk_spilled_bytes"].to_numpy().astype(float)
    columns = ("remote_bytes", "local_bytes", "input_bytes", "shuffle_write_bytes", "output_bytes")
    moved_once = heavy_tasks.select(pl.sum_horizontal(*columns)).to_series().to_numpy()
    spilled_share = spilt / np.maximum(spilt + moved_once, 1)
    return Lost(
        heavy, keys, heavy_tasks["number"].to_numpy(), (heavy_tasks["work"].to_numpy() * spilled_share).astype(np.int64)
    )


def spills(look: Look) -> list[Cause]:
    """Find stages that spilled much of what they moved.

    Cause: ``spill``.
    """
    heavy, keys, tasks, time = spilled(look)
    if not keys:
        return []
    unspilled = Shorter([(tasks, time)])
    saved = look.saved_in(keys, unspilled)
    if not look.matters(saved):
        return []
    worst = heavy.sort("spilled_bytes", descending=True, maintain_order=True).row(0, named=True)
    text = (
        f"{look.stage_name(worst['stage'], worst['stage_attempt'])}: its tasks spilled"
        f" {worst['spilled_bytes'] / 2**20:,.0f} MiB to disk ({worst['memory_spilled_bytes'] / 2**20:,.0f} MiB in"
        f" memory), having read {worst['read_bytes'] / 2**20:,.0f} MiB: too little memory for execution."
    )
    signal = {
        name: int(worst[name]) for name in ("spilled_bytes", "memory_spilled_bytes", "read_bytes", "written_bytes")
    }
    # More partitions help where each task reads more than fits, more memory where partitions are small already.
    huge = worst["read_bytes"] >= look.limits.huge_bytes * worst["tasks"]
    name = "huge_partitions" if huge else "spill"
    return [look.cause(name, saved, text, stage=worst["stage"], signal=signal, bound=True, changed=unspilled)]


def delays(look: Look) -> list[Cause]:
    """Find time that tasks spent with launches and shuffles: scheduler delay, waiting for blocks, and writing them.

    Causes: ``scheduling``, ``shuffle_fetch``, ``shuffle_write``.
    """
    causes = []
    numbers = look.tasks["number"].to_numpy()
    for column, name, doing in (
        ("delay", "scheduling", "between the driver's launch and its notice of the end"),
        ("fetch_wait", "shuffle_fetch", "waiting for shuffle blocks"),
        ("write", "shuffle_write", "writing blocks for shuffles"),
    ):
        delay_ns = look.tasks[column].to_numpy()
        share = float(delay_ns.sum()) / max(float(look.tasks["held"].sum()), 1.0)
        if share < look.limits.delay_share:
            continue

        def prompt(durations: I64, delay_ns: I64 = delay_ns) -> None:
            durations[numbers] = np.maximum(durations[numbers] - delay_ns, 0)

        saved = look.saved(prompt)
        if look.matters(saved):
            text = f"Tasks spent {share:.0%} of their time ({seconds(float(delay_ns.sum()))}) {doing}."
            signal = {"share": round(share, 4), "time_ns": int(delay_ns.sum())}
            facts = {"signal": signal, "changed": prompt, "bound": name == "shuffle_write"}
            causes.append(look.cause(name, saved, text, **facts))
    return causes
