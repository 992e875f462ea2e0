"""The recorded tasks with what each waited for: the driver, other stages, attempts that failed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.cores import registered_slots
from pag_graph.diagnosis.spark.list_schedule import Cores, JobPlan, StagePlan, WorkPlan
from pag_graph.diagnosis.spark.pauses import stream_pauses
from pag_graph.sources.spark.schedule import MS
from pag_graph.sources.spark.shuffles import stage_parents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pag_graph.diagnosis.spark.intervals import Interval
    from pag_graph.sources.spark.schedule import Schedule

__all__ = ["plan_work"]


def plan_work(schedule: Schedule) -> WorkPlan:
    """Return the recorded tasks with what each waited for.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    WorkPlan
        Tasks are rows of the schedule's tasks; jobs its jobs.
    """
    tasks = schedule.tasks.with_row_index("number")
    spans = _stage_spans(schedule, tasks)
    stages = _stage_plans(schedule, tasks, spans)
    last_end: dict[int, int] = {}
    for stage in stages:
        last_end[stage.job] = max(last_end.get(stage.job, 0), spans[stage.key].end)
    preds = _job_preds(schedule)
    paused = _Pauses(stream_pauses(schedule))
    jobs = []
    for index, job in enumerate(schedule.jobs):
        after, begun_job, gap = preds[index]
        tail = job.end_ns - min(max(last_end.get(index, job.start_ns), job.start_ns), job.end_ns)
        pause = paused.within(job.start_ns - gap, job.start_ns)
        earliest = job.start_ns if pause else 0
        jobs.append(JobPlan(after=after, begun=begun_job, gap_ns=gap - pause, not_before_ns=earliest, tail_ns=tail))
    last_jobs, tail = _ending(schedule)
    follows, offsets = _retries(tasks, {number: spans[stage.key].begin for stage in stages for number in stage.tasks})
    return WorkPlan(
        jobs=tuple(jobs),
        stages=tuple(stages),
        durations=(tasks["free"] - tasks["receipt"]).to_numpy(),
        follows=follows,
        offsets=offsets,
        last=last_jobs,
        tail_ns=tail,
    )


class _Pauses:
    """When streams had nothing to do: what follows came by the clock, and not because something else had ended."""

    def __init__(self, pauses: Sequence[Interval]) -> None:
        self._starts, self._ends = [start for start, _ in pauses], [end for _, end in pauses]
        self._before = [0, *accumulate(end - start for start, end in pauses)]

    def within(self, start: int, end: int) -> int:
        """Return how much of an interval they are."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first >= last:
            return 0
        cut = max(0, start - self._starts[first]) + max(0, self._ends[last - 1] - end)
        return self._before[last] - self._before[first] - cut


@dataclass(slots=True)
class _StageSpan:
    """When a stage attempt ran, and its tasks by launch."""

    job: int
    tasks: tuple[int, ...]
    first: int
    """First launch."""
    end: int
    """Last result."""
    begin: int
    """From when on its tasks could run: its submission if it then waited for a core, else its first launch."""


def _stage_spans(schedule: Schedule, tasks: pl.DataFrame) -> dict[tuple[int, int], _StageSpan]:
    """Return the stage attempts of jobs, in the order of jobs and first launches."""
    rows = (
        tasks.filter(pl.col("job").is_not_null())
        .sort("launch", "number")
        .group_by("stage", "stage_attempt", maintain_order=True)
        .agg("number", pl.col("launch").min(), pl.col("done").max())
        .iter_rows()
    )
    spans = {
        (int(stage), int(attempt)): _StageSpan(
            schedule.stage_jobs[int(stage), int(attempt)], tuple(numbers), first_launch, end, first_launch
        )
        for stage, attempt, numbers, first_launch, end in rows
    }
    _find_begins(schedule, tasks, spans)
    return dict(sorted(spans.items(), key=lambda keyed_span: (keyed_span[1].job, keyed_span[1].first, keyed_span[0])))


def _find_begins(schedule: Schedule, tasks: pl.DataFrame, spans: dict[tuple[int, int], _StageSpan]) -> None:
    """From the submission to the first launch the driver was busy, unless there was no free core."""
    submitted = {
        (stage_row[0], stage_row[1]): stage_row[2] for stage_row in schedule.log.stages.select(_SUBMITTED).iter_rows()
    }
    launches, ends = np.sort(tasks["launch"].to_numpy()), np.sort(tasks["free"].to_numpy())
    added = schedule.executors["added"].min()
    first_executor = added if isinstance(added, int) else 0
    cores_by = _cores_over_time(registered_slots(schedule))
    for key, span in spans.items():
        stated = submitted.get(key)
        if stated is None:
            continue
        start = schedule.jobs[span.job].start_ns
        submitted_ns = min(max((stated - schedule.origin_ms) * MS, start), span.first)
        running = int(
            np.searchsorted(launches, submitted_ns, side="right") - np.searchsorted(ends, submitted_ns, side="right")
        )
        if running >= cores_by(submitted_ns) or submitted_ns < first_executor <= span.first:
            span.begin = submitted_ns


_SUBMITTED = ("stage", "stage_attempt", "submitted_ms")


def _stage_plans(schedule: Schedule, tasks: pl.DataFrame, spans: dict[tuple[int, int], _StageSpan]) -> list[StagePlan]:
    index = {key: place for place, key in enumerate(spans)}
    parents = stage_parents(schedule)
    between = _between(tasks)
    of_job: dict[int, list[tuple[int, int]]] = {}
    for key, span in spans.items():
        of_job.setdefault(span.job, []).append(key)
    plans: list[StagePlan] = []
    for key, span in spans.items():
        job = schedule.jobs[span.job]
        before = [earlier for earlier in of_job[span.job] if spans[earlier].end <= span.first]
        if key[1] == 0:
            parent_stages = set(parents.get((job.job, key[0]), []))
            after = [earlier for earlier in before if earlier[0] in parent_stages]
        else:
            # A stage that runs again waited for whatever ended last before it.
            after = [max(before, key=lambda earlier: spans[earlier].end)] if before else []
        ready = max([spans[earlier].end for earlier in after] + [job.start_ns])
        plans.append(
            StagePlan(
                job=span.job,
                after=tuple(index[earlier] for earlier in after),
                gap_ns=max(0, span.begin - ready),
                tasks=span.tasks,
                between_ns=between.get(key, 0),
                key=key,
            )
        )
    return plans


def _cores_over_time(cores: Sequence[Cores]) -> Callable[[int], int]:
    """Return a function from an instant to the number of cores at it."""
    changes = sorted(
        [(group.since, group.cores) for group in cores]
        + [(group.until, -group.cores) for group in cores if group.until is not None]
    )
    instants = np.array([t for t, _ in changes], np.int64)
    core_counts = np.cumsum([0, *(change for _, change in changes)])
    return lambda t: int(core_counts[np.searchsorted(instants, t, side="right")])


def _between(tasks: pl.DataFrame) -> dict[tuple[int, int], int]:
    """Return how long a core is usually empty between two tasks of a stage."""
    following = (
        tasks.sort("core", "receipt", "number")
        .with_columns(
            gap=pl.col("receipt") - pl.col("free").shift(1).over("core"),
            same=(pl.col("stage") == pl.col("stage").shift(1).over("core")),
        )
        .filter("same")
        .group_by("stage", "stage_attempt")
        .agg(pl.col("gap").median())
    )
    return {(int(stage), int(attempt)): int(gap) for stage, attempt, gap in following.iter_rows()}


def _job_preds(schedule: Schedule) -> dict[int, tuple[tuple[int, ...], int, int]]:
    """Return for every job: those that must have ended, the one that must have begun, and the driver's time after."""
    jobs, lanes = schedule.jobs, schedule.lanes
    preds: dict[int, tuple[tuple[int, ...], int, int]] = {}
    waited = _joined_jobs(schedule)
    for k, index in enumerate(lanes[0].jobs):
        after = tuple(([lanes[0].jobs[k - 1]] if k else []) + waited.get(k, []))
        ready = max((jobs[j].end_ns for j in after), default=0)
        preds[index] = (after, -1, max(0, jobs[index].start_ns - ready))
    for lane in lanes[1:]:
        forks = {first_job: (t, parent) for t, parent, first_job in lane.forks}
        for k, index in enumerate(lane.jobs):
            if index in forks:
                t, parent = forks[index]
                begun_job = next(j for j in lanes[parent].jobs if jobs[j].start_ns == t)
                preds[index] = ((), begun_job, jobs[index].start_ns - t)
            else:
                before = lane.jobs[k - 1]
                preds[index] = ((before,), -1, max(0, jobs[index].start_ns - jobs[before].end_ns))
    return preds


def _joined_jobs(schedule: Schedule) -> dict[int, list[int]]:
    """Return the jobs of other lanes that lane 0 waited for before each of its jobs (and after the last one)."""
    jobs, lanes = schedule.jobs, schedule.lanes
    ends = np.array([jobs[j].end_ns for j in lanes[0].jobs], np.int64)
    joined: dict[int, list[int]] = {}
    for lane in lanes[1:]:
        firsts = [lane.jobs.index(first_job) for _, _, first_job in lane.forks]
        for place, join in enumerate(lane.joins):
            if join >= 0:
                stop = firsts[place + 1] if place + 1 < len(firsts) else len(lane.jobs)
                k = int(np.searchsorted(ends, join, side="left"))
                joined.setdefault(k, []).append(lane.jobs[stop - 1])
    return joined


def _ending(schedule: Schedule) -> tuple[tuple[int, ...], int]:
    main = schedule.lanes[0]
    last_jobs = tuple(main.jobs[-1:]) + tuple(_joined_jobs(schedule).get(len(main.jobs), []))
    ready = max((schedule.jobs[j].end_ns for j in last_jobs), default=0)
    return last_jobs, max(0, schedule.end_ns - ready)


def _retries(tasks: pl.DataFrame, begins: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the tasks that waited for the end of another attempt, and the speculative copies with their delays.

    `begins` says for each task of a job from when on its stage's tasks could run.
    """
    follows: dict[int, int] = {}
    offsets: dict[int, int] = {}
    repeated_tasks = tasks.filter((pl.col("attempt") > 0) | pl.col("speculative"))
    if not repeated_tasks.height:
        return follows, offsets
    retried = repeated_tasks.select("stage", "stage_attempt", "index").unique()
    rows = tasks.join(retried, on=["stage", "stage_attempt", "index"], how="semi").sort("launch", "number")
    attempts: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for number, stage, attempt, index, launch, done, speculative in rows.select(
        "number", "stage", "stage_attempt", "index", "launch", "done", "speculative"
    ).iter_rows():
        before = attempts.setdefault((stage, attempt, index), [])
        ended_before = [earlier for earlier, end in before if end <= launch]
        if speculative or (before and not ended_before):
            if number in begins:
                offsets[number] = max(0, launch - begins[number])
        elif ended_before:
            follows[number] = ended_before[-1]
        before.append((number, done))
    return follows, offsets
