"""An event log under examination: what all detectors of causes share, and what they answer with."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.diagnosis.spark.cores import settled
from pag_graph.diagnosis.spark.list_schedule import Cores, WorkPlan, list_schedule
from pag_graph.sources.spark.task_rows import widened

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = ["CAUSES", "Cause", "Look", "Thresholds", "driver_gaps", "seconds", "stage_table"]

CAUSES: dict[str, str] = {
    "key_skew": "Spread the key: salt it, aggregate before the shuffle, or turn on adaptive skew joins.",
    "partition_skew": "Make input partitions of equal size: repartition, or split large files.",
    "slow_node": "Look at the machine; exclude it, or turn on speculation.",
    "straggler": "Look at what this task computes: the same amount of data costs more there.",
    "gc": "Give executors more memory or fewer cores each, and keep fewer objects alive.",
    "spill": "Use more partitions, or give executors more memory for execution.",
    "driver_bound": "Bring less to the driver and do less there: aggregate on executors, write instead of collect.",
    "lost_executor": "Find out why the executor went (memory limits first); replicate or checkpoint what is dear.",
    "stage_retry": "Shuffle files were lost: use an external shuffle service, and look at the disks and nodes.",
    "task_retry": "Look at why the tasks failed; each attempt starts anew.",
    "failed_job": "Look at the error of the job; its time was for nothing.",
    "speculation": "The first attempts hung: find out why. Lower spark.speculation.multiplier to react sooner.",
    "too_few_partitions": "Use more partitions: at least as many as there are cores.",
    "tiny_tasks": "Use fewer, larger partitions: coalesce, or raise the split size.",
    "concurrent_jobs": "The jobs share the cores: add cores, or run them one after the other if one matters more.",
    "scheduling": "Tasks wait for their launch or result: look at the driver's load, locality waits, and task size.",
    "shuffle_fetch": "Reduce what is shuffled, or look at the network and the shuffle servers.",
    "executor_wait": "Jobs waited for executors to start: keep some, or ask for them earlier.",
}
"""Causes and what usually helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on something is a cause; all of them parameters."""

    saved_share: float = 0.06
    """Least saving, as a share of the time since the first job."""
    slow_ratio: float = 2.5
    """A task is slow if it took so many times the median of its stage."""
    data_ratio: float = 0.4
    """Skewed data explains a slow task if it is so much of the ratio of times."""
    gc_share: float = 0.15
    """Least share of garbage collection in a stage's run time."""
    driver_share: float = 0.3
    """Least share of the driver's own time in the time since the first job."""
    overhead_share: float = 0.3
    """Least share of launching and finishing tasks in the cores' time of a stage with tiny tasks."""
    tiny_ns: int = 300_000_000
    """Tasks whose median run time is below this are tiny."""
    tiny_waves: int = 10
    """Only a stage with so many tasks per core has too many of them."""
    spill_share: float = 0.2
    """Least ratio of the bytes spilled to disk to those read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for lost time."""

    cause: str
    """One of `CAUSES`."""
    saved_ns: int
    """How much earlier the application would have ended without it, by the list schedule."""
    share: float
    """The same as a share of the time since the first job."""
    stage: int | None = None
    """Stage concerned."""
    signal: dict[str, Any] = field(default_factory=dict)
    """The numbers that show it, for programs."""
    text: str = ""
    """The same in plain words."""
    bound: bool = False
    """Whether `saved_ns` is an upper bound, not an estimate."""

    @property
    def advice(self) -> str:
        """What usually helps."""
        return CAUSES[self.cause]

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "cause": self.cause,
            "saved_ns": self.saved_ns,
            "share": self.share,
            "upper_bound": self.bound,
            "stage": self.stage,
            "signal": self.signal,
            "text": self.text,
            "advice": self.advice,
        }


class Look:
    """A log with what the detectors share."""

    def __init__(
        self,
        schedule: Schedule,
        plan: WorkPlan,
        cores: list[Cores],
        limits: Thresholds,
        active: int,
        stages: pl.DataFrame,
    ) -> None:
        self.schedule, self.plan, self.cores, self.limits, self.active = schedule, plan, cores, limits, active
        self.stages = stages
        self.tasks = (
            widened(schedule.tasks)
            .with_row_index("number")
            .with_columns(held=pl.col("free") - pl.col("receipt"), number=pl.col("number").cast(pl.Int64))
        )
        self.base = list_schedule(plan, cores)
        self.warm = settled(schedule)

    @cached_property
    def by_stage(self) -> dict[tuple[int, int], pl.DataFrame]:
        """The tasks of each stage attempt."""
        return self.tasks.partition_by("stage", "stage_attempt", as_dict=True)

    @cached_property
    def between_ns(self) -> dict[tuple[int, int], int]:
        """Per stage attempt, how long a core is empty between two of its tasks."""
        return {stage.key: stage.between_ns for stage in self.plan.stages}

    def saved(self, change: Callable[[I64], None] | None = None, **more: Any) -> int:
        """Return how much earlier the application ends with changed durations."""
        durations = self.plan.durations.copy()
        if change is not None:
            change(durations)
        return self.base - list_schedule(self.plan, more.pop("cores", self.cores), durations=durations, **more)

    def matters(self, saved: int) -> bool:
        """Return whether so much time is worth a word."""
        return saved >= self.limits.saved_share * self.active

    def cause(self, name: str, saved: int, text: str, **more: Any) -> Cause:
        """Return a cause that cost so much time."""
        return Cause(cause=name, saved_ns=int(saved), share=saved / self.active, text=text, **more)


def stage_table(schedule: Schedule) -> pl.DataFrame:
    """Return one row per stage attempt with tasks, in the order of their begin.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    pl.DataFrame
        Times in nanoseconds; `busy_ns` is what its tasks held cores, `skew_ratio` the longest task over the median.
    """
    held = pl.col("free") - pl.col("receipt")
    read = pl.col("remote_bytes") + pl.col("local_bytes")
    table = (
        widened(schedule.tasks)
        .group_by("stage", "stage_attempt", maintain_order=True)
        .agg(
            pl.col("job").first(),
            pl.len().cast(pl.Int64).alias("tasks"),
            (~pl.col("succeeded") & ~pl.col("running")).sum().cast(pl.Int64).alias("failed"),
            pl.col("running").sum().cast(pl.Int64).alias("running"),
            pl.col("speculative").sum().cast(pl.Int64).alias("speculative"),
            pl.col("launch").min().alias("start_ns"),
            pl.col("done").max().alias("end_ns"),
            held.sum().alias("busy_ns"),
            held.median().cast(pl.Int64).alias("median_ns"),
            held.max().alias("max_ns"),
            pl.col("run").sum().alias("run_ns"),
            pl.col("cpu_ns").sum(),
            pl.col("gc").sum().alias("gc_ns"),
            pl.col("deserialize").sum().alias("deserialize_ns"),
            pl.col("delay").sum().alias("delay_ns"),
            pl.col("fetch_wait").sum().alias("fetch_wait_ns"),
            pl.col("write").sum().alias("write_ns"),
            pl.col("disk_spilled_bytes").sum().alias("spilled_bytes"),
            pl.col("memory_spilled_bytes").sum(),
            (read + pl.col("input_bytes")).sum().alias("read_bytes"),
            (pl.col("shuffle_write_bytes") + pl.col("output_bytes")).sum().alias("written_bytes"),
            pl.col("result_bytes").sum(),
        )
        .sort("start_ns", "stage", "stage_attempt")
    )
    # Where no task of a log took any, processor time was not measured.
    measured = bool((schedule.tasks["cpu_ns"] > 0).any())
    return table.with_columns(
        cpu_ns=pl.col("cpu_ns") if measured else pl.lit(None, pl.Int64),
        skew_ratio=pl.when(pl.col("median_ns") > 0).then(pl.col("max_ns") / pl.col("median_ns")).otherwise(1.0),
        job=pl.Series([None if j is None else schedule.jobs[j].number for j in table["job"].to_list()], dtype=pl.Int64),
    )


def driver_gaps(schedule: Schedule) -> list[tuple[int, int]]:
    """Return the stretches since the first job in which no job ran: the driver's own time."""
    out: list[tuple[int, int]] = []
    reached = min((job.start_ns for job in schedule.jobs), default=schedule.end_ns)
    for job in sorted(schedule.jobs, key=lambda job: job.start_ns):
        if job.start_ns > reached:
            out.append((reached, job.start_ns))
        reached = max(reached, job.end_ns)
    if schedule.end_ns > reached:
        out.append((reached, schedule.end_ns))
    return out


def seconds(ns: float) -> str:
    """Spell a time for people."""
    return f"{ns / 1e9:.1f} s" if ns >= 1e9 else f"{ns / 1e6:.0f} ms"  # noqa: PLR2004 a second
