"""What if there were more or fewer cores, or tasks took another time: list scheduling of the recorded tasks.

The recorded dependencies hold: the driver's own time before each job, a job's stages after those that they read,
retries after what failed. A free core takes the first task that is ready, jobs in the order of their numbers, as the
FIFO scheduler of Spark does. Not modelled: contention for memory, disk and network, locality, fair pools, and sizes of
partitions that would follow from another number of cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.list_schedule import Cores, JobPlan, StagePlan, WorkPlan, list_schedule
from pag_graph.errors import InvalidParameterError
from pag_graph.sources.spark.shuffles import stage_parents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

COLD_START = 6
"""How many times the excess of its deserialisation a core's first task takes longer, at most, for being the first.

It loads the code of the work as well, and starts Python where the work is in Python. In logs of a standalone cluster
all of it was 2 to 5 times what deserialisation took more."""

__all__ = [
    "COLD_START",
    "first_cores",
    "plan_work",
    "predict_cores",
    "recorded_cores",
    "settled",
    "warm_up",
    "with_cores",
]


def recorded_cores(schedule: Schedule) -> list[Cores]:
    """Return the cores that the application had, executor by executor, with their times."""
    counts = list(schedule.more_cores)
    for core in schedule.cores:
        counts[core.executor] += 1
    spans = zip(schedule.executors["added"].to_list(), schedule.executors["removed"].to_list(), counts, strict=True)
    cores = [Cores(*span) for span in spans if span[2]]
    if all(group.until is not None for group in cores):
        # All went before the end: the last ones had done all tasks.
        latest = max((group.until or 0 for group in cores), default=0)
        cores = [group._replace(until=None) if group.until == latest else group for group in cores]
    return cores


def first_cores(cores: Sequence[Cores], count: int) -> list[Cores]:
    """Return the `count` cores that came first, as many of them as there are, as if they had stayed."""
    out: list[Cores] = []
    for group in sorted(cores, key=lambda group: group.since):
        taken = min(group.cores, count)
        if taken > 0:
            out.append(Cores(group.since, None, taken))
            count -= taken
    return out


def with_cores(schedule: Schedule, count: int) -> list[Cores]:
    """Return `count` cores: the first ones to come, or more that came at the median of their times.

    Raises
    ------
    InvalidParameterError
        If the count is not positive.
    """
    if count < 1:
        message = f"{count} cores can run nothing."
        raise InvalidParameterError(message, "Give a positive number of cores.")
    stayed = [group for group in recorded_cores(schedule) if group.until is None] or [Cores(0, None)]
    there = sum(group.cores for group in stayed)
    typical = first_cores(stayed, there // 2 + 1)[-1].since
    more = [Cores(typical, None, count - there)] if count > there else []
    return [*first_cores(stayed, count), *more]


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
    jobs = schedule.jobs
    stage_plans, keys = _stage_plans(schedule, tasks)
    last_end: dict[int, int] = {}
    first: dict[int, int] = {}
    for plan in stage_plans:
        last_end[plan.job] = max(last_end.get(plan.job, 0), keys[plan.tasks[0]][1] if plan.tasks else 0)
        first.setdefault(plan.job, 0)
    preds = _job_preds(schedule)
    job_plans = []
    for index, job in enumerate(jobs):
        after, begun, gap = preds[index]
        tail = job.end_ns - min(max(last_end.get(index, job.start_ns), job.start_ns), job.end_ns)
        job_plans.append(JobPlan(after=after, begun=begun, gap_ns=gap, tail_ns=tail))
    last, tail = _ending(schedule)
    follows, offsets = _retries(tasks, stage_plans, keys)
    durations = (tasks["free"] - tasks["receipt"]).to_numpy()
    return WorkPlan(
        jobs=tuple(job_plans),
        stages=tuple(stage_plans),
        durations=durations,
        follows=follows,
        offsets=offsets,
        last=last,
        tail_ns=tail,
    )


def _stage_plans(schedule: Schedule, tasks: pl.DataFrame) -> tuple[list[StagePlan], dict[int, tuple[int, int]]]:
    """Return the stages, and for each task when its stage began and ended."""
    origin = schedule.origin_ms
    submitted = {
        (row["stage"], row["stage_attempt"]): row["submitted_ms"] for row in schedule.log.stages.iter_rows(named=True)
    }
    grouped = {
        (int(stage), int(attempt)): (numbers, first, last)
        for stage, attempt, numbers, first, last in tasks.filter(pl.col("job").is_not_null())
        .sort("launch", "number")
        .group_by("stage", "stage_attempt", maintain_order=True)
        .agg("number", pl.col("launch").min().alias("first"), pl.col("done").max())
        .iter_rows()
    }
    order = sorted(grouped, key=lambda key: (schedule.stage_jobs[key], grouped[key][1], key))
    index = {key: place for place, key in enumerate(order)}
    parents = stage_parents(schedule)
    between = _between(tasks)
    starts = np.sort(tasks["launch"].to_numpy())
    ends = np.sort(tasks["free"].to_numpy())
    since = np.sort(schedule.executors["added"].to_numpy())
    cores_by = _cores_over_time(schedule)
    plans: list[StagePlan] = []
    times: dict[int, tuple[int, int]] = {}
    for key in order:
        numbers, first, last = grouped[key]
        job = schedule.stage_jobs[key]
        mine = jobs_start = schedule.jobs[job].start_ns
        own = [other for other in order if schedule.stage_jobs[other] == job and grouped[other][2] <= first]
        if key[1] == 0:
            wanted = set(parents.get((schedule.jobs[job].job, key[0]), []))
            after = [other for other in own if other[0] in wanted]
        else:
            # A stage that runs again waited for whatever ended last before it.
            after = [max(own, key=lambda other: grouped[other][2])] if own else []
        ready = max((grouped[other][2] for other in after), default=jobs_start)
        at = submitted.get(key)
        at = first if at is None else min(max((at - origin) * 1_000_000, mine), first)
        # From the submission to the first launch the driver was busy, unless there was no free core.
        running = int(np.searchsorted(starts, at, side="right") - np.searchsorted(ends, at, side="right"))
        free = running < cores_by(at)
        begin = first if free else at
        if len(since) and at < since[0] <= first:
            begin = at
        plans.append(
            StagePlan(
                job=job,
                after=tuple(index[other] for other in after),
                gap_ns=max(0, begin - max(ready, jobs_start)),
                tasks=tuple(numbers),
                between_ns=between.get(key, 0),
                key=key,
            )
        )
        for number in numbers:
            times[number] = (begin, last)
    return plans, times


def _cores_over_time(schedule: Schedule):  # type: ignore[no-untyped-def]  # noqa: ANN202 a function of time
    cores = recorded_cores(schedule)
    changes = sorted(
        [(group.since, group.cores) for group in cores]
        + [(group.until, -group.cores) for group in cores if group.until is not None]
    )
    at = np.array([t for t, _ in changes], np.int64)
    there = np.cumsum([0, *(change for _, change in changes)])
    return lambda t: int(there[np.searchsorted(at, t, side="right")])


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
    return {(int(s), int(a)): int(gap) for s, a, gap in following.iter_rows()}


def _job_preds(schedule: Schedule) -> dict[int, tuple[tuple[int, ...], int, int]]:
    """Return for every job: those that must have ended, the one that must have begun, and the driver's time after."""
    jobs, lanes = schedule.jobs, schedule.lanes
    out: dict[int, tuple[tuple[int, ...], int, int]] = {}
    waited = _joined(schedule)
    for k, index in enumerate(lanes[0].jobs):
        after = tuple(([lanes[0].jobs[k - 1]] if k else []) + waited.get(k, []))
        ready = max((jobs[j].end_ns for j in after), default=0)
        out[index] = (after, -1, max(0, jobs[index].start_ns - ready))
    for lane in lanes[1:]:
        forks = {first: (t, parent) for t, parent, first in lane.forks}
        for k, index in enumerate(lane.jobs):
            if index in forks:
                t, parent = forks[index]
                begun = next(j for j in lanes[parent].jobs if jobs[j].start_ns == t)
                out[index] = ((), begun, jobs[index].start_ns - t)
            else:
                before = lane.jobs[k - 1]
                out[index] = ((before,), -1, max(0, jobs[index].start_ns - jobs[before].end_ns))
    return out


def _joined(schedule: Schedule) -> dict[int, list[int]]:
    """Return the jobs of other lanes that lane 0 waited for before each of its jobs (and after the last one)."""
    jobs, lanes = schedule.jobs, schedule.lanes
    ends = np.array([jobs[j].end_ns for j in lanes[0].jobs], np.int64)
    out: dict[int, list[int]] = {}
    for lane in lanes[1:]:
        firsts = [lane.jobs.index(first) for _, _, first in lane.forks]
        for place, join in enumerate(lane.joins):
            if join >= 0:
                stop = firsts[place + 1] if place + 1 < len(firsts) else len(lane.jobs)
                k = int(np.searchsorted(ends, join, side="left"))
                out.setdefault(k, []).append(lane.jobs[stop - 1])
    return out


def _ending(schedule: Schedule) -> tuple[tuple[int, ...], int]:
    main = schedule.lanes[0]
    last = tuple(main.jobs[-1:]) + tuple(_joined(schedule).get(len(main.jobs), []))
    ready = max((schedule.jobs[j].end_ns for j in last), default=0)
    return last, max(0, schedule.end_ns - ready)


def _retries(
    tasks: pl.DataFrame, stages: list[StagePlan], times: dict[int, tuple[int, int]]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the tasks that waited for the end of another attempt, and the speculative copies with their delays."""
    del stages
    follows: dict[int, int] = {}
    offsets: dict[int, int] = {}
    again = tasks.filter((pl.col("attempt") > 0) | pl.col("speculative"))
    if not again.height:
        return follows, offsets
    wanted = again.select("stage", "stage_attempt", "index").unique()
    rows = tasks.join(wanted, on=["stage", "stage_attempt", "index"], how="semi").sort("launch", "number")
    seen: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for number, stage, attempt, index, launch, done, speculative in rows.select(
        "number", "stage", "stage_attempt", "index", "launch", "done", "speculative"
    ).iter_rows():
        before = seen.setdefault((stage, attempt, index), [])
        ended = [other for other, end in before if end <= launch]
        if speculative or (before and not ended):
            if number in times:
                offsets[number] = max(0, launch - times[number][0])
        elif ended:
            follows[number] = ended[-1]
        before.append((number, done))
    return follows, offsets


def predict_cores(schedule: Schedule, plan: WorkPlan, counts: Sequence[int] = ()) -> list[dict[str, int]]:
    """Predict when the application ends with other numbers of cores.

    Parameters
    ----------
    schedule, plan
        Of one log.
    counts
        Numbers of cores; half and twice as many as there were come on top.

    Returns
    -------
    list of dict
        Rows of `cores`, `predicted_ns` and `recorded` (1 for the number that there was), by cores.

    Notes
    -----
    What a core's first task of a stage takes longer than the others goes with the core, not with the task: with twice
    as many cores twice as many tasks are the first ones.
    """
    if not schedule.tasks.height or not schedule.cores:
        return []
    had = sum(group.cores for group in recorded_cores(schedule) if group.until is None)
    wanted = sorted({*counts, max(1, had // 2), had, 2 * had})
    warm, first = warm_up(schedule)
    return [
        {
            "cores": count,
            "predicted_ns": list_schedule(plan, with_cores(schedule, count), durations=warm, first=first),
            "recorded": int(count == had),
        }
        for count in wanted
    ]


def warm_up(schedule: Schedule) -> tuple[I64, dict[tuple[int, int], int]]:
    """Return how long tasks take on a core that has had one of their stage, and what the first one there takes more.

    The first task of a stage on a core loads classes and code, and reads what all tasks of the stage share. What that
    adds is taken to be the lower median, over the cores, of how much their first task exceeds the median of the stage's
    other tasks: where one core's first task has a trouble of its own, the others tell.

    Where a stage had one core, nothing tells but the deserialisation, which no trouble of the data makes longer: of the
    first task's excess as much as `COLD_START` times that of its deserialisation goes with the core.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    durations
        Per task, nanoseconds.
    first
        Stage and attempt to nanoseconds.
    """
    first = _first_tasks(schedule)
    rows = first.select(pl.min_horizontal("usual", "extra")).to_series().to_numpy()
    by_stage = first.unique(["stage", "stage_attempt"], maintain_order=True)
    return _held(schedule, first["number"].to_numpy(), rows), {
        (int(s), int(a)): int(ns) for s, a, ns in by_stage.select("stage", "stage_attempt", "usual").iter_rows()
    }


def settled(schedule: Schedule) -> I64:
    """Return how long tasks take without what their core or executor took for them only because they were the first.

    As `warm_up`, but by task: what its own deserialisation took more than usual counts as well, and of an executor's
    very first task `COLD_START` times that. An executor that starts when others are at work is no reason to call its
    first task slow.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    array
        Per task, nanoseconds.
    """
    first = _first_tasks(schedule)
    cold = pl.when("ever").then(COLD_START * pl.col("loading")).otherwise("loading")
    rows = first.select(pl.min_horizontal("extra", pl.max_horizontal("usual", cold))).to_series().to_numpy()
    return _held(schedule, first["number"].to_numpy(), rows)


def _held(schedule: Schedule, numbers: I64, less: I64) -> I64:
    held = (schedule.tasks["free"] - schedule.tasks["receipt"]).to_numpy().copy()
    held[numbers] -= less
    return held


def _first_tasks(schedule: Schedule) -> pl.DataFrame:
    """Return the first task of each stage on each core.

    How much longer than the median of the others it took (`extra`), how much of that its deserialisation (`loading`),
    what is `usual` in the stage, and whether it was the first that its executor `ever` had.
    """
    columns = ("stage", "stage_attempt", "core", "executor", "receipt", "deserialize", "succeeded")
    tasks = schedule.tasks.select(*columns, held=pl.col("free") - pl.col("receipt")).with_row_index("number")
    key = ["stage", "stage_attempt"]
    order = tasks.sort("receipt", "number")
    ever = order.unique("executor", keep="first", maintain_order=True)["number"]
    first = order.unique([*key, "core"], keep="first", maintain_order=True)
    others = (
        tasks.filter(~pl.col("number").is_in(first["number"].implode()) & pl.col("succeeded"))
        .group_by(key)
        .agg(pl.col("held").median().alias("typical"), pl.col("deserialize").median().alias("usual_deserialize"))
    )
    extra = (
        first.join(others, on=key, how="inner", maintain_order="left")
        .with_columns(
            extra=(pl.col("held") - pl.col("typical")).clip(lower_bound=0).cast(pl.Int64),
            loading=(pl.col("deserialize") - pl.col("usual_deserialize")).clip(lower_bound=0).cast(pl.Int64),
            ever=pl.col("number").is_in(ever.implode()),
        )
        .with_columns(
            told=pl.when(pl.len().over(key) > 1)
            .then("extra")
            .otherwise(pl.min_horizontal("extra", COLD_START * pl.col("loading")))
        )
    )
    usual = extra.group_by(key).agg(usual=pl.col("told").sort().get((pl.len() - 1) // 2))
    return extra.join(usual, on=key, how="inner", maintain_order="left")
