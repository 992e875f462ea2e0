"""Why a Spark application was slow: causes with what each cost, found in the log's tables.

Each detector looks at recorded numbers and asks the list schedule (`list_schedule.py`) how much earlier the application
would have ended without the trouble. Only what would save a stated share of the time since the first job is a cause;
the order is by what it would save.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.cores import plan_work, recorded_cores
from pag_graph.diagnosis.spark.list_schedule import Cores, WorkPlan, list_schedule
from pag_graph.diagnosis.spark.look import Cause, Look, Thresholds, driver_gaps, seconds, stage_table
from pag_graph.diagnosis.spark.losses import losses, speculation
from pag_graph.diagnosis.spark.slow_tasks import slow_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the tables of a log tell."""

    causes: list[Cause]
    """Greatest saving first."""
    stages: pl.DataFrame
    """One row per stage attempt with tasks."""
    span_ns: int
    """The application's time."""
    active_ns: int
    """Its time since the first job."""
    simulated_ns: int
    """What the list schedule gives for the recorded cores: how far off predictions are."""
    core_ns: dict[str, int]
    """Time of all cores since the first job: busy for tasks that counted, wasted, idle."""
    plan: WorkPlan
    cores: list[Cores]


def diagnose(schedule: Schedule, thresholds: Thresholds | None = None) -> Diagnosis:
    """Find the causes of lost time in a log.

    Parameters
    ----------
    schedule
        Of one log.
    thresholds
        From where on something is a cause.

    Returns
    -------
    Diagnosis
        With no cause where nothing stands out.
    """
    limits = thresholds or Thresholds()
    plan, cores = plan_work(schedule), recorded_cores(schedule)
    first = min((job.start_ns for job in schedule.jobs), default=0)
    active = max(schedule.end_ns - first, 1)
    stages = stage_table(schedule)
    if not schedule.tasks.height or not cores:
        return Diagnosis(
            causes=[],
            stages=stages,
            span_ns=schedule.end_ns,
            active_ns=active,
            simulated_ns=schedule.end_ns,
            core_ns={"busy": 0, "wasted": 0, "idle": 0},
            plan=plan,
            cores=cores,
        )
    look = Look(schedule, plan, cores, limits, active, stages)
    found = [
        *slow_tasks(look),
        *_gc(look),
        *_spill(look),
        *_driver(look),
        *losses(look),
        *speculation(look),
        *_partitions(look),
        *_concurrency(look),
        *_delays(look),
    ]
    causes = sorted(found, key=lambda cause: (-cause.saved_ns, cause.cause, cause.stage or 0))
    return Diagnosis(
        causes=_without_echoes(causes),
        stages=stages,
        span_ns=schedule.end_ns,
        active_ns=active,
        simulated_ns=look.base,
        core_ns=_core_time(schedule, first),
        plan=plan,
        cores=cores,
    )


def _gc(look: Look) -> list[Cause]:
    heavy = look.stages.filter(pl.col("gc_ns") >= look.limits.gc_share * pl.col("run_ns").clip(lower_bound=1))
    if not heavy.height:
        return []
    keys = heavy.select("stage", "stage_attempt")
    own = look.tasks.join(keys, on=["stage", "stage_attempt"], how="semi")
    numbers, gc = own["number"].to_numpy(), own["gc"].to_numpy()

    def without(durations: I64) -> None:
        durations[numbers] -= gc

    saved = look.saved(without)
    if not look.matters(saved):
        return []
    worst = heavy.sort("gc_ns", descending=True).row(0, named=True)
    stages = ", ".join(str(s) for s in heavy.sort("gc_ns", descending=True)["stage"].to_list()[:5])
    share = int(heavy["gc_ns"].sum()) / max(int(heavy["run_ns"].sum()), 1)
    text = (
        f"Stage{'s' if heavy.height > 1 else ''} {stages}: executors spent {share:.0%} of their run time"
        f" ({seconds(float(heavy['gc_ns'].sum()))}) collecting garbage."
    )
    signal = {"gc_ns": int(heavy["gc_ns"].sum()), "gc_share": round(share, 4), "stages": heavy["stage"].to_list()}
    return [look.cause("gc", saved, text, stage=worst["stage"], signal=signal)]


def _spill(look: Look) -> list[Cause]:
    moved = pl.col("read_bytes") + pl.col("written_bytes")
    heavy = look.stages.filter(
        (pl.col("spilled_bytes") > 0) & (pl.col("spilled_bytes") >= look.limits.spill_share * moved)
    )
    if not heavy.height:
        return []
    keys = heavy.select("stage", "stage_attempt")
    own = look.tasks.join(keys, on=["stage", "stage_attempt"], how="semi")
    numbers = own["number"].to_numpy()
    spilled = own["disk_spilled_bytes"].to_numpy().astype(float)
    once = (
        own.select(
            pl.sum_horizontal("remote_bytes", "local_bytes", "input_bytes", "shuffle_write_bytes", "output_bytes")
        )
        .to_series()
        .to_numpy()
    )
    # Spark does not log how long spilling took. Work is taken to go with the bytes that pass through a task.
    part = spilled / np.maximum(spilled + once, 1)
    less = (own["work"].to_numpy() * part).astype(np.int64)

    def without(durations: I64) -> None:
        durations[numbers] -= less

    saved = look.saved(without)
    if not look.matters(saved):
        return []
    worst = heavy.sort("spilled_bytes", descending=True).row(0, named=True)
    text = (
        f"Stage {worst['stage']}: its tasks spilled {worst['spilled_bytes'] / 2**20:,.0f} MiB to disk"
        f" ({worst['memory_spilled_bytes'] / 2**20:,.0f} MiB in memory), having read"
        f" {worst['read_bytes'] / 2**20:,.0f} MiB: too little memory for execution."
    )
    signal = {
        name: int(worst[name]) for name in ("spilled_bytes", "memory_spilled_bytes", "read_bytes", "written_bytes")
    }
    return [look.cause("spill", saved, text, stage=worst["stage"], signal=signal, bound=True)]


def _driver(look: Look) -> list[Cause]:
    gaps = driver_gaps(look.schedule)
    own = sum(end - start for start, end in gaps)
    fetch = int((look.tasks["done"] - look.tasks["delivered"]).sum())
    share = own / look.active
    if share < look.limits.driver_share or not look.matters(own):
        return []
    result = int(look.tasks["result_bytes"].sum())
    text = (
        f"The driver worked alone for {seconds(own)} of {seconds(look.active)} since the first job"
        f" ({len(gaps)} stretches, the longest {seconds(max(end - start for start, end in gaps))})"
    )
    if result >= 1 << 20:
        text += f"; tasks sent it {result / 2**20:,.0f} MiB of results"
    signal = {"driver_ns": own, "stretches": len(gaps), "result_bytes": result, "getting_result_ns": fetch}
    return [look.cause("driver_bound", own, f"{text}.", signal=signal)]


def _partitions(look: Look) -> list[Cause]:
    """Stages with fewer tasks than cores, or with so many that launching them is most of the work."""
    found = []
    limits = look.limits
    for row in look.stages.iter_rows(named=True):
        own = look.by_stage[row["stage"], row["stage_attempt"]]
        numbers = own["number"].to_numpy()
        available = _cores_at(look, row["start_ns"], row["end_ns"])
        if row["tasks"] < available and row["stage_attempt"] == 0 and not row["failed"]:
            whole = int(look.warm[numbers].sum() // available)

            def split(durations: I64, numbers: I64 = numbers, whole: int = whole) -> None:
                durations[numbers] = np.minimum(durations[numbers], whole)

            saved = look.saved(split)
            if look.matters(saved):
                span = row["end_ns"] - row["start_ns"]
                text = (
                    f"Stage {row['stage']} had {row['tasks']} task{'s' if row['tasks'] > 1 else ''} for {available}"
                    f" cores: {available - row['tasks']} of them had nothing to do for {seconds(span)}."
                )
                signal = {"tasks": row["tasks"], "cores": available, "span_ns": span}
                found.append(look.cause("too_few_partitions", saved, text, stage=row["stage"], signal=signal))
        run = own["work"].to_numpy()
        overhead = own["held"].to_numpy() - run
        between = look.between_ns.get((row["stage"], row["stage_attempt"]), 0)
        spent = float(own["held"].sum()) + between * own.height
        if (
            row["tasks"] >= limits.tiny_waves * available
            and np.median(run) <= limits.tiny_ns
            and (float(overhead.sum()) + between * own.height) >= limits.overhead_share * max(spent, 1.0)
        ):
            bare = run

            def merged(durations: I64, numbers: I64 = numbers, bare: I64 = bare) -> None:
                durations[numbers] = bare

            saved = look.saved(merged) + int(between * own.height // max(available, 1))
            if look.matters(saved):
                share = (float(overhead.sum()) + between * own.height) / max(spent, 1.0)
                text = (
                    f"Stage {row['stage']} had {row['tasks']:,} tasks, of which the usual one worked"
                    f" {seconds(float(np.median(run)))}: {share:.0%} of the cores' time went into launching and"
                    " finishing them."
                )
                signal = {
                    "tasks": row["tasks"],
                    "median_work_ns": int(np.median(run)),
                    "overhead_share": round(share, 4),
                }
                found.append(look.cause("tiny_tasks", saved, text, stage=row["stage"], signal=signal))
    return found


def _cores_at(look: Look, start: int, end: int) -> int:
    middle = (start + end) // 2
    there = (group for group in look.cores if group.since <= middle and (group.until is None or group.until > middle))
    return max(1, sum(group.cores for group in there))


def _concurrency(look: Look) -> list[Cause]:
    """Jobs that overlapped others and took longer than they would have alone."""
    jobs = look.schedule.jobs
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].start_ns)
    together: set[int] = set()
    reach, holder = -1, -1
    for index in order:
        # Jobs of one query overlap because it wants them to.
        own = jobs[index].execution is not None and jobs[index].execution == jobs[holder].execution
        if jobs[index].start_ns < reach and not own:
            together |= {index, holder}
        if jobs[index].end_ns > reach:
            reach, holder = jobs[index].end_ns, index
    if not together:
        return []
    lost: dict[int, int] = {}
    for index in sorted(together):
        alone = _alone(look, index)
        lost[index] = max(0, jobs[index].end_ns - jobs[index].start_ns - alone)
    worst = max(lost, key=lambda index: lost[index])
    total = lost[worst]
    if not look.matters(total):
        return []
    numbers = [jobs[index].job for index in sorted(together)]
    text = (
        f"{len(together)} jobs ({', '.join(str(n) for n in numbers[:6])}) overlapped and shared the cores: job"
        f" {jobs[worst].job} took {seconds(jobs[worst].end_ns - jobs[worst].start_ns)}, and would have taken"
        f" {seconds(jobs[worst].end_ns - jobs[worst].start_ns - total)} alone."
    )
    signal = {"jobs": numbers, "slowed_ns": {str(jobs[index].job): ns for index, ns in lost.items()}}
    return [look.cause("concurrent_jobs", total, text, signal=signal, bound=True)]


def _alone(look: Look, index: int) -> int:
    """Return how long a job would have taken with all cores for itself."""
    stages = [stage for stage in look.plan.stages if stage.job == index]
    place = {id(stage): k for k, stage in enumerate(stages)}
    numbers = {k: place[id(stage)] for k, stage in enumerate(look.plan.stages) if id(stage) in place}
    plan = replace(
        look.plan,
        jobs=(replace(look.plan.jobs[index], after=(), begun=-1, gap_ns=0),),
        stages=tuple(
            replace(stage, job=0, after=tuple(numbers[k] for k in stage.after if k in numbers)) for stage in stages
        ),
        last=(0,),
        tail_ns=0,
    )
    start = look.schedule.jobs[index].start_ns
    cores = [
        Cores(max(0, group.since - start), None, group.cores)
        for group in look.cores
        if group.until is None or group.until > start
    ]
    return list_schedule(plan, cores or [Cores(0, None)])


def _delays(look: Look) -> list[Cause]:
    """Time that tasks spent neither working nor deserialising: scheduler delay and waiting for shuffle blocks."""
    found = []
    numbers = look.tasks["number"].to_numpy()
    for column, name, what in (
        ("delay", "scheduling", "between the driver's launch and its notice of the end"),
        ("fetch_wait", "shuffle_fetch", "waiting for shuffle blocks"),
    ):
        spent = look.tasks[column].to_numpy()
        share = float(spent.sum()) / max(float(look.tasks["held"].sum()), 1.0)
        if share < 0.25:  # noqa: PLR2004 a quarter of all time
            continue

        def without(durations: I64, spent: I64 = spent) -> None:
            durations[numbers] = np.maximum(durations[numbers] - spent, 0)

        saved = look.saved(without)
        if look.matters(saved):
            text = f"Tasks spent {share:.0%} of their time ({seconds(float(spent.sum()))}) {what}."
            found.append(look.cause(name, saved, text, signal={"share": round(share, 4), "time_ns": int(spent.sum())}))
    found += _executor_wait(look)
    return found


def _executor_wait(look: Look) -> list[Cause]:
    """Stretches of jobs in which there was no executor at all."""
    spans = sorted((since, until if until is not None else look.schedule.end_ns) for since, until, _ in look.cores)
    waited = 0
    for job in look.schedule.jobs:
        reached = job.start_ns
        for since, until in spans:
            if since > reached:
                break
            reached = max(reached, until)
        following = min((since for since, _ in spans if since > reached), default=job.end_ns)
        if reached < job.end_ns:
            waited += min(following, job.end_ns) - reached
    if not look.matters(waited):
        return []
    text = f"Jobs waited {seconds(waited)} for executors: there was none."
    return [look.cause("executor_wait", waited, text, signal={"waited_ns": waited})]


def _without_echoes(causes: list[Cause]) -> list[Cause]:
    """Leave out what only repeats a cause of the same stage that says more."""
    stages = {cause.stage for cause in causes if cause.cause == "tiny_tasks"}
    speculated = {cause.stage for cause in causes if cause.cause == "speculation"}
    kept = []
    for cause in causes:
        if cause.cause == "scheduling" and stages:
            # Launching tiny tasks is scheduler delay by another name.
            continue
        if cause.cause == "straggler" and cause.stage in speculated:
            continue
        kept.append(cause)
    return kept


def _core_time(schedule: Schedule, first: int) -> dict[str, int]:
    """Return the time of all cores since the first job: used, wasted on attempts that did not count, and idle."""
    tasks = schedule.tasks.with_columns(held=pl.col("free") - pl.col("receipt"))
    counts = pl.col("succeeded") | pl.col("running")
    busy, wasted = (int(tasks.filter(kept)["held"].sum()) for kept in (counts, ~counts))
    there = sum(
        max(0, (schedule.end_ns if until is None else until) - max(since, first)) * count
        for since, until, count in recorded_cores(schedule)
    )
    return {"busy": busy, "wasted": wasted, "idle": max(0, there - busy - wasted)}
