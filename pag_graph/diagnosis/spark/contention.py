"""Tasks that share processors: what a task lost for want of one grows with the tasks beside it on its host.

Stolen time is run time without processor time and the measured waits. Waiting is not contention, so only warm tasks
count, of stages that had a processor for half of their run time, without Python, object stores and spilling. Of these
``stolen / processor time = a + b * max(0, k - P) / P`` is fitted: `k` tasks at once on the host, `P` processors. That
two tasks take twice as long on one processor is no loss (`b` is 1); what is beyond that is, and so is processor time
that grows with the tasks at once.

Definitions stand in `docs/spark.md`, "Shared processors".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.changes import of_setting
from pag_graph.diagnosis.spark.list_schedule import Cores
from pag_graph.diagnosis.spark.python_code import PYTHON

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.diagnosis.spark.look import Cause, Look

    I64 = NDArray[np.int64]
    F64 = NDArray[np.float64]

__all__ = ["EXPLAINED", "Sharing", "comparable_tasks", "contention", "fit_sharing"]

_EXECUTOR_CORES = "spark.executor.cores"
EXPLAINED = 0.5
"""Least part of the stolen time's variance that the fit explains."""
_CLOUD = ("gcs api time", "cloud storage request duration")


class Sharing(NamedTuple):
    """What it costs that tasks share processors."""

    processors: int
    """Of a host."""
    share: float
    """Stolen time for each second with a processor, for each task beyond the processors over these (`b`)."""
    inflation: float
    """How much more processor time tasks take beside others; 1 for none."""
    alone: int
    """Tasks with a processor each, from which it is known."""
    crowded: int
    """Tasks without."""


def contention(look: Look) -> list[Cause]:
    """Find hosts with more tasks at once than processors, where that costs more than it gives: one cause at most.

    The saving is that of a replay with as many tasks at once as there are processors, none of which loses time.
    """
    comparable = comparable_tasks(look)
    if comparable.height < 2 * look.limits.contended_tasks:
        return []
    at_once = look.at_once
    sharing = fit_sharing(
        comparable["stolen"].to_numpy(),
        comparable["cpu_ns"].to_numpy(),
        comparable["at_once"].to_numpy(),
        look.limits.contended_tasks,
    )
    if sharing is None:
        return []
    timed_tasks = look.tasks.filter(pl.col("cpu_ns") > 0)["number"].to_numpy()
    lost_ns = _lost_ns(sharing, look.tasks["cpu_ns"].to_numpy(), at_once)

    def alone(durations: I64) -> None:
        durations[timed_tasks] = np.maximum(durations[timed_tasks] - lost_ns[timed_tasks], 0)

    durations = look.plan.durations.copy()
    alone(durations)
    fewer = _fewer_cores(look, sharing.processors)
    saved = look.base - look.ends(durations=durations, cores=fewer)
    if not look.matters(saved):
        return []
    most_at_once, plural = float(at_once.max()), "s" if sharing.processors > 1 else ""
    text = (
        f"Hosts ran up to {most_at_once:.0f} tasks at once on {sharing.processors} processor{plural}:"
        f" for each second with a processor a task lost {sharing.share:.1f} s for each {sharing.processors} tasks too"
        " many"
    )
    text += f", and took {sharing.inflation:.0%} of the processor time." if sharing.inflation > 1 else "."
    signal = {**sharing._asdict(), "tasks_at_once": round(most_at_once, 2)}
    change = of_setting(look.schedule.log, _EXECUTOR_CORES, f"{sharing.processors} on a host in all")
    traps = (
        "That tasks on one processor take turns is no loss, and is not counted.",
        "Programs outside of Spark on the same host take processors too.",
    )
    return [look.cause("contention", saved, text, signal=signal, changes=(change,), traps=traps, bound=True)]


def fit_sharing(
    stolen: I64,
    cpu: I64,
    at_once: F64,
    least: int,
    *,
    processors: int | None = None,
    explained: float = EXPLAINED,
) -> Sharing | None:
    """Say what it costs that tasks share processors.

    Parameters
    ----------
    stolen, cpu
        Per task, nanoseconds without and with a processor.
    at_once
        Per task, the mean number of tasks on its host while it ran, itself included.
    least
        Tasks that must stand on each side of the knee.
    processors
        Of a host, where they are known; else those whose knee explains most.
    explained
        Least part of the variance that the knee must explain.

    Returns
    -------
    Sharing or None
        None where too few tasks ran with fewer neighbours, or no knee explains enough.
    """
    if not len(cpu):
        return None
    ratio = stolen / np.maximum(cpu, 1)
    spread = float(((ratio - ratio.mean()) ** 2).sum())
    best: tuple[float, Sharing] | None = None
    for count in range(1, int(at_once.max(initial=1.0))) if processors is None else (processors,):
        crowded = at_once > count + 0.5
        if min(int(crowded.sum()), int((~crowded).sum())) < least:
            continue
        beyond = np.maximum(at_once - count, 0) / count
        slope, level = np.polyfit(beyond, ratio, 1)
        residual = float(((ratio - level - slope * beyond) ** 2).sum())
        if slope <= 0 or residual > (1 - explained) * spread or (best is not None and residual >= best[0]):
            continue
        inflation = max(1.0, float(np.median(cpu[crowded]) / max(np.median(cpu[~crowded]), 1)))
        counts = (int((~crowded).sum()), int(crowded.sum()))
        best = (residual, Sharing(count, round(float(slope), 4), round(inflation, 4), *counts))
    return None if best is None else best[1]


def comparable_tasks(look: Look) -> pl.DataFrame:
    """Return the warm tasks of stages that work and do not wait, with the time that was stolen from each.

    Parameters
    ----------
    look
        The log.

    Returns
    -------
    pl.DataFrame
        One row per task: `stage`, `stage_attempt`, `cpu_ns`, `stolen` (nanoseconds) and `at_once` (`tasks_at_once`).
    """
    waits = {node.execution for node in look.plans if any(node.has(timer) for timer in _CLOUD)}
    python = {stage for stage, nodes in look.nodes.items() if any(PYTHON.fullmatch(name) for name in nodes)}
    cloud = {key[0] for key, nodes in look.plans.of_stage.items() if any(node.execution in waits for node in nodes)}
    enough = pl.col("cpu_ns") >= look.limits.contended_share * pl.col("run_ns")
    stages = look.stages.filter((pl.col("spilled_bytes") == 0) & (pl.col("run_ns") > 0) & enough)
    keys = [
        (number, attempt)
        for number, attempt in stages.select("stage", "stage_attempt").iter_rows()
        if number not in python | cloud
    ]
    cold = pl.struct("stage", "stage_attempt", "core").is_first_distinct()
    tasks = look.tasks.sort("receipt", "number").with_columns(cold=cold)
    stage_keys = pl.DataFrame(keys, schema={"stage": pl.Int64, "stage_attempt": pl.Int64}, orient="row")
    tasks = tasks.cast({"stage": pl.Int64, "stage_attempt": pl.Int64}).join(
        stage_keys, on=stage_keys.columns, how="semi", maintain_order="left"
    )
    tasks = tasks.filter(~pl.col("cold") & pl.col("succeeded") & (pl.col("cpu_ns") > 0))
    stolen = (pl.col("work") - pl.col("cpu_ns")).clip(lower_bound=0)
    at_once = pl.Series("at_once", look.at_once[tasks["number"].to_numpy()])
    return tasks.select("stage", "stage_attempt", "cpu_ns", stolen.alias("stolen"), at_once)


def _lost_ns(sharing: Sharing, cpu: I64, at_once: F64) -> I64:
    """Return what each task loses beside others, nanoseconds."""
    beyond = np.maximum(at_once - sharing.processors, 0) / sharing.processors
    inflated = np.where(beyond > 0, 1 - 1 / sharing.inflation, 0.0)
    return np.asarray(cpu * (sharing.share * beyond + inflated), np.int64)


def _fewer_cores(look: Look, processors: int) -> list[Cores]:
    """Return the cores with as many on each host at most as it has processors: those of its first executors."""
    free_processors: dict[str, int] = {}
    hosts = look.schedule.executors["host"].to_list()
    groups = []
    for host, group in zip(hosts, look.cores, strict=True):
        cores = min(group.cores, free_processors.setdefault(host, processors))
        free_processors[host] -= cores
        groups.append(group._replace(cores=cores))
    if any(group.until is None and group.cores for group in groups):
        return groups
    return [*groups, Cores(0, None)]
