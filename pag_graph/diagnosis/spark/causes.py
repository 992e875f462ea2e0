"""Why a Spark application was slow: causes with what each cost, found in the log's tables.

Each detector looks at recorded numbers and asks the list schedule (`list_schedule.py`) how much earlier the application
would have ended without the trouble. Only what would save a stated share of the time since the first job is a cause;
the order is by what it would save.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.concurrency import concurrency
from pag_graph.diagnosis.spark.contention import comparable_tasks, contention
from pag_graph.diagnosis.spark.cores import recorded_cores, registered_cores
from pag_graph.diagnosis.spark.costs import costs
from pag_graph.diagnosis.spark.driver_time import driver_time
from pag_graph.diagnosis.spark.executors import executor_wait
from pag_graph.diagnosis.spark.failures import failed_jobs
from pag_graph.diagnosis.spark.full_memory import memory_under
from pag_graph.diagnosis.spark.joins import joins
from pag_graph.diagnosis.spark.locality import locality_wait
from pag_graph.diagnosis.spark.look import Cause, Estimate, Look, Thresholds
from pag_graph.diagnosis.spark.losses import losses, speculation
from pag_graph.diagnosis.spark.partitions import partitions
from pag_graph.diagnosis.spark.proposals import proposals
from pag_graph.diagnosis.spark.python_code import python_code
from pag_graph.diagnosis.spark.resources import delays, garbage, spills
from pag_graph.diagnosis.spark.reuse import reuse
from pag_graph.diagnosis.spark.serial_jobs import serial_jobs
from pag_graph.diagnosis.spark.slots import unused_slots
from pag_graph.diagnosis.spark.slow_tasks import slow_tasks
from pag_graph.diagnosis.spark.small_files import small_files
from pag_graph.diagnosis.spark.stage_table import stage_table
from pag_graph.diagnosis.spark.streams import stream_suspicions, streams
from pag_graph.diagnosis.spark.suspicions import evicted_blocks, not_recorded, suspicions
from pag_graph.diagnosis.spark.table_formats import table_formats
from pag_graph.diagnosis.spark.waits import cloud_wait, driver_gc
from pag_graph.diagnosis.spark.work_plan import plan_work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.diagnosis.spark.costs import Cost
    from pag_graph.diagnosis.spark.list_schedule import Cores, WorkPlan
    from pag_graph.diagnosis.spark.suspicions import NotRecorded, Suspicion
    from pag_graph.sources.spark.schedule import Schedule

__all__ = ["Diagnosis", "diagnose"]

_DETECTORS = (
    *(slow_tasks, garbage, spills, driver_time, failed_jobs, losses, speculation),
    *(partitions, concurrency, delays, executor_wait, memory_under, unused_slots, contention),
    *(python_code, joins, small_files, reuse),
    *(streams, locality_wait, driver_gc, cloud_wait, table_formats),
)
"""Each takes a `Look`, and returns its causes, none where nothing stands out; `docs/spark.md` ("The answers") defines
every cause, and `Thresholds` has its limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the tables of a log tell."""

    causes: list[Cause]
    """Greatest saving first."""
    minor: list[Cause] = field(default_factory=list)
    """Losses that happened, and cost too little to be causes."""
    suspicions: list[Suspicion] = field(default_factory=list)
    """Patterns of plans that often cost time; the log does not say how much."""
    costs: list[Cost] = field(default_factory=list)
    """Cores and memory that could be given back; no time is saved by that."""
    not_recorded: list[NotRecorded] = field(default_factory=list)
    """What the answer would need that the log does not have."""
    stages: pl.DataFrame
    """One row per stage attempt with tasks."""
    span_ns: int
    """The application's time."""
    active_ns: int
    """Its time since the first job."""
    simulated_ns: int
    """What the list schedule gives for the recorded cores: how far off predictions are."""
    reliable: bool = True
    """Whether that is near enough to give replayed times as one number."""
    replays: int = 0
    """How often the application was replayed to find the causes."""
    core_ns: dict[str, int]
    """Time of all cores since the first job: busy for tasks that counted, wasted, idle."""
    plan: WorkPlan
    cores: list[Cores]
    at_once: NDArray[np.float64] | None = None
    """Per task the mean number of tasks on its host while it ran."""
    comparable: pl.DataFrame | None = None
    """Tasks that can tell what it costs that tasks share processors (`comparable_tasks`)."""

    @property
    def replay_error(self) -> float:
        """How far off the replay of what was recorded is, as a share of the time since the first job."""
        return (self.simulated_ns - self.span_ns) / self.active_ns

    def estimate(self, ns: int, *, measured: bool = False, most_ns: int | None = None) -> Estimate:
        """Return a replayed time, or one that was measured, with its error and what it cannot be more than.

        Parameters
        ----------
        ns
            The time, in nanoseconds.
        measured
            Whether the log states it: then it has no error, and is reliable in every log.
        most_ns
            What it cannot be more than, whatever a replay says; None where nothing tells.

        Returns
        -------
        Estimate
            Off by as much as the replay of what was recorded.
        """
        if measured:
            return Estimate(ns, 0, reliable=True)
        return Estimate(ns, abs(self.simulated_ns - self.span_ns), self.reliable, most_ns)


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
    first_job_ns = min((job.start_ns for job in schedule.jobs), default=0)
    bare = Diagnosis(
        causes=[],
        stages=stage_table(schedule),
        span_ns=schedule.end_ns,
        active_ns=max(schedule.end_ns - first_job_ns, 1),
        simulated_ns=schedule.end_ns,
        core_ns={"busy": 0, "wasted": 0, "idle": 0},
        plan=plan,
        cores=cores,
    )
    if not schedule.tasks.height or not cores or not schedule.jobs:
        return bare
    look = Look(schedule, plan, cores, limits, bare.active_ns, bare.stages)
    error = abs(look.base - bare.span_ns) / bare.active_ns
    replayed = replace(
        bare,
        simulated_ns=look.base,
        reliable=error <= limits.replay_error,
        core_ns=_core_time(schedule, first_job_ns),
    )
    causes = sorted(
        chain.from_iterable(detect(look) for detect in _DETECTORS),
        key=lambda cause: (-cause.saved_ns, cause.cause, cause.stage or 0),
    )
    causes = [
        replace(
            cause,
            saving=replayed.estimate(cause.saved_ns, measured=cause.measured, most_ns=cause.most_ns),
            changes=cause.changes or proposals(look, cause),
        )
        for cause in _without_echoes(causes)
    ]
    return replace(
        replayed,
        causes=_one_after_the_other(look, replayed, [cause for cause in causes if look.matters(cause.saved_ns)]),
        minor=[cause for cause in causes if not look.matters(cause.saved_ns)],
        suspicions=_suspicions(look, causes),
        costs=costs(look, reliable=replayed.reliable),
        not_recorded=not_recorded(schedule.log, look.plans),
        replays=look.replays,
        at_once=look.at_once,
        comparable=comparable_tasks(look),
    )


def _suspicions(look: Look, causes: list[Cause]) -> list[Suspicion]:
    """Return the patterns without a time, except those that are causes: their time is known."""
    cause_names = {cause.cause for cause in causes if look.matters(cause.saved_ns)}
    patterns = [*suspicions(look.plans), *stream_suspicions(look.schedule.log), *serial_jobs(look)]
    patterns += evicted_blocks(look.schedule.log)
    return [suspicion for suspicion in patterns if suspicion.suspicion not in cause_names]


def _one_after_the_other(look: Look, diagnosis: Diagnosis, causes: list[Cause]) -> list[Cause]:
    """Say when the application ends with the change of each cause and of those before it: savings do not add up.

    A change whose effect is only known by itself (other cores, attempts left out) does not count.
    """
    durations, gaps = look.plan.durations.copy(), 0
    cumulated: list[Cause] = []
    for number, cause in enumerate(causes):
        alone = cause.changed is None
        if number >= _CUMULATED or (alone and not cause.measured):
            cumulated.append(cause)
            continue
        if cause.changed is None:
            gaps += cause.saved_ns
        else:
            cause_durations = look.plan.durations.copy()
            cause.changed(cause_durations)
            durations = np.minimum(durations, cause_durations)
        end = max(0, look.ends(durations=durations) - gaps)
        cumulated.append(replace(cause, cumulative=diagnosis.estimate(end)))
    return cumulated


_CUMULATED = 6
"""Changes that are applied one after the other; every one is a replay."""


def _without_echoes(causes: list[Cause]) -> list[Cause]:
    """Leave out what only repeats a cause of the same stage that says more."""
    stages = {cause.stage for cause in causes if cause.cause == "tiny_tasks"}
    speculated = {cause.stage for cause in causes if cause.cause == "speculation"}
    full_heap_ns = max((cause.saved_ns for cause in causes if cause.cause == "memory_under"), default=-1)
    causes_left = []
    for cause in causes:
        if cause.cause in {"gc", "spill"} and cause.saved_ns <= full_heap_ns:
            # What a full heap costs is that.
            continue
        if cause.cause == "scheduling" and stages:
            # Launching tiny tasks is scheduler delay by another name.
            continue
        if cause.cause == "straggler" and cause.stage in speculated:
            continue
        causes_left.append(cause)
    return causes_left


def _core_time(schedule: Schedule, first_job_ns: int) -> dict[str, int]:
    """Return the time of all cores since the first job: used, wasted on attempts that did not count, and idle."""
    tasks = schedule.tasks.with_columns(held=pl.col("free") - pl.col("receipt"))
    counts = pl.col("succeeded") | pl.col("running")
    busy, wasted = (int(tasks.filter(outcome)["held"].sum()) for outcome in (counts, ~counts))
    available_ns = sum(
        max(0, (schedule.end_ns if until is None else until) - max(since, first_job_ns)) * count
        for since, until, count in registered_cores(schedule)
    )
    return {"busy": busy, "wasted": wasted, "idle": max(0, available_ns - busy - wasted)}
