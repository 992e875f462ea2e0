"""What a log leaves open and a policy decides: which job a stage ran for, on which core a task, on which lane a job.

Policies, in short (`docs/spark.md` has them with a picture):

* A stage attempt belongs to the job that was active when it was submitted, the earliest of those that list it.
* A task takes the core of its executor that became free last. On the core it takes the time from a third of its
  scheduler delay after the launch for as long as Spark measured; the rest of the delay follows.
* A job takes the driver lane that became free last; only jobs that overlap need more than one lane.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from pag_graph.sources.spark.extent import find_extent, within
from pag_graph.sources.spark.log_tables import LogFinding, SparkLog, note
from pag_graph.sources.spark.placing import IDLE_CORES, MS, STRETCH, Core, place_tasks, stated_cores
from pag_graph.sources.spark.task_rows import ENDED, FAILED, KILLED, LOCALITY, MEASURED

__all__ = [
    "IDLE_CORES",
    "MS",
    "Core",
    "Job",
    "Lane",
    "Schedule",
    "attempt_key",
    "executor_ends",
    "infer_schedule",
    "stage_attempt",
    "stage_values",
    "was_lost",
]

_MEASURED = (
    *("launch_ms", "finish_ms", "getting_result_ms", "deserialize_ms", "run_ms", "gc_ms", "serialize_ms"),
    *("fetch_wait_ms", "write_ns", "flags", "measured"),
)
"""What the log measured: columns in nanoseconds, in order and with room for each other, take their place."""

_MUCH_GC = 1_000_000_000
"""More garbage collection than this, cut from tasks of a log because it does not fit, changes what the log says."""

_ORDERLY = ("killed by driver", "idle", "decommission", "finished", "shutdown")
"""Words in the reasons of executors that went because they were to."""
_ATTEMPTS = 1 << 32
"""More attempts than a stage has."""


@dataclass(slots=True, kw_only=True)
class Job:
    """A job as it ran, in nanoseconds from the origin."""

    job: int
    """Spark's number; negative for stages that no job in the log lists."""
    name: str
    start_ns: int
    end_ns: int
    execution: int | None
    """SQL execution, if any."""
    unit: str
    """What its epoch is called after."""
    succeeded: bool | None
    """None where the log does not say."""
    failure: str = ""
    """Why it failed, in the log's words; empty if it did not, or nothing is known or kept."""
    lane: int = 0

    @property
    def number(self) -> int | None:
        """Spark's number; None for stages that no job in the log lists."""
        return self.job if self.job >= 0 else None

    @property
    def label(self) -> str:
        """What people call it: ``job 3``, or ``stage 62 without a job``."""
        return f"job {self.job}" if self.job >= 0 else f"stage {-1 - self.job} without a job"


@dataclass(slots=True, kw_only=True)
class Lane:
    """A line of the driver's work; jobs on one lane never overlap."""

    lane: int
    jobs: list[int] = field(default_factory=list)
    """Indices of its jobs, in order."""
    forks: list[tuple[int, int, int]] = field(default_factory=list)
    """(instant, lane that started it, index of the first job after it), in order; the first one is its birth."""
    joins: list[int] = field(default_factory=list)
    """Instants at which lane 0 waited for it."""


@dataclass(slots=True, kw_only=True)
class Schedule:
    """A log with everything decided; times in nanoseconds from the origin."""

    log: SparkLog
    """Without its tasks: whoever has no use for them as they were read can let them go."""
    origin_ms: int
    end_ns: int
    tasks: pl.DataFrame
    """One row per task attempt by launch time: the log's columns but for the times that it measured, and in their place
    `job` and `core` (indices); `locality` (a number of `LOCALITIES`);
    `running` (at work where the log stops); `launch`, `receipt`, `begin`, `free`,
    `delivered` and `done` (sent by the driver, taken up and begun on the core, core free, seen by the driver, its
    result there); and the parts of the task
    (`deserialize`, `run`, of which `fetch_wait`, `work`, `gc` and `write`, then `serialize`; `delay` is the rest).
    What the log has narrow is so here too."""
    jobs: list[Job]
    stage_jobs: dict[tuple[int, int], int]
    """Index of the job that a stage attempt ran for."""
    lanes: list[Lane]
    executors: pl.DataFrame
    """One row per executor: `executor`, `host`, `cores`, `added`, `removed` (null if it stayed), `reason`."""
    cores: list[Core]
    """Those that ran a task, and of the others as many as `IDLE_CORES` allows."""
    more_cores: list[int]
    """Per executor: cores that it has on top of these, without a task; less than 0 where tasks overlapped for moments
    and have more places than it has cores."""
    findings: list[LogFinding]


def infer_schedule(log: SparkLog) -> Schedule:
    """Decide what the log leaves open.

    Parameters
    ----------
    log
        As read.

    Returns
    -------
    Schedule
        Every task has a job and a core, every job a lane.
    """
    findings: list[LogFinding] = []
    origin, end_ms = find_extent(log, findings)
    tasks = _normal_tasks(log, origin, end_ms, findings)
    jobs, stage_jobs = _jobs(log, tasks, origin, end_ms)
    unstarted = sum(job.number is None for job in jobs)
    detail = "tasks ran for a job whose start is not in the log"
    note(findings, "job_start_missing", "warning", unstarted, "stages", detail)
    executors = _executors(log, tasks, origin, end_ms)
    tasks = tasks.with_columns(locality=(pl.col("flags") // LOCALITY).cast(pl.Int8))
    tasks = tasks.drop(_MEASURED).with_columns(job=stage_values(tasks, stage_jobs).cast(pl.Int32))
    tasks, cores, more_cores = place_tasks(log, tasks, executors, findings)
    lanes = _lanes(jobs, log.lanes)
    return Schedule(
        log=replace(log, tasks=log.tasks.clear()),
        origin_ms=origin,
        end_ns=(end_ms - origin) * MS,
        tasks=tasks,
        jobs=jobs,
        stage_jobs=stage_jobs,
        lanes=lanes,
        executors=executors,
        cores=cores,
        more_cores=more_cores,
        findings=findings,
    )


def attempt_key(stage: Any, attempt: Any) -> Any:
    """Return one number for a stage attempt; `stage_attempt` goes back.

    Parameters
    ----------
    stage, attempt
        Numbers, arrays or expressions of 64 bits.
    """
    return stage * _ATTEMPTS + attempt


def stage_attempt(key: int) -> tuple[int, int]:
    """Return stage and attempt of an `attempt_key`."""
    return divmod(key, _ATTEMPTS)


def stage_values(tasks: pl.DataFrame, values: dict[tuple[int, int], int]) -> pl.Series:
    """Return for each task the value of its stage attempt.

    Parameters
    ----------
    tasks
        One row per task attempt.
    values
        By stage and attempt.

    Returns
    -------
    pl.Series
        64-bit numbers in the order of the tasks, null where there is no value. Some tasks are looked at at a time: a
        log can have millions of them.
    """
    if not values:
        return pl.repeat(None, tasks.height, dtype=pl.Int64, eager=True)
    stages = sorted(values)
    keys = np.array([attempt_key(stage, attempt) for stage, attempt in stages], np.int64)
    stated = np.array([values[key] for key in stages], np.int64)
    stage, attempt = (tasks[name].to_numpy() for name in ("stage", "stage_attempt"))
    of_task, has_value = np.zeros(tasks.height, np.int64), np.zeros(tasks.height, bool)
    # Some tasks at a time: what is in between would be several such columns.
    for begin in range(0, tasks.height, STRETCH):
        rows = slice(begin, begin + STRETCH)
        task_keys = attempt_key(stage[rows].astype(np.int64), attempt[rows])
        place = np.minimum(np.searchsorted(keys, task_keys), len(keys) - 1)
        of_task[rows], has_value[rows] = stated[place], keys[place] == task_keys
    return (
        pl.Series(of_task)
        if has_value.all()
        else pl.select(pl.when(pl.Series(has_value)).then(pl.Series(of_task))).to_series()
    )


def _count(tasks: pl.DataFrame, condition: pl.Expr) -> int:
    return int(tasks.select(condition.sum()).item())


def _normal_tasks(log: SparkLog, origin: int, end_ms: int, findings: list[LogFinding]) -> pl.DataFrame:
    """Give every task times that are in order and parts that fit into them."""
    has_ended = (pl.col("flags") & ENDED) != 0
    # A task that the log does not see end was there until its executor went, or the log ends.
    removed = dict(log.executors.select("executor", "removed_ms").iter_rows())
    gone_ms = np.array([end_ms if (t := removed.get(name)) is None else t for name in log.texts["executor"]], np.int64)
    # Columns are added and never copied: a log can have millions of tasks.
    tasks = log.tasks.with_columns(gone_ms=pl.Series(gone_ms[log.tasks["executor"].to_numpy()]))
    backwards = _count(tasks, has_ended & (pl.col("finish_ms") < pl.col("launch_ms")))
    note(findings, "task_ends_before_launch", "warning", backwards, "tasks", "taken as tasks without duration")
    open_tasks = _count(tasks, ~has_ended)
    note(
        findings, "task_without_end", "warning", open_tasks, "tasks", "taken to run until the executor or the log ends"
    )
    finish = pl.when(has_ended).then("finish_ms").otherwise(pl.min_horizontal("gone_ms", pl.lit(end_ms)))
    tasks = tasks.with_columns(
        finish_ms=pl.max_horizontal(finish, "launch_ms"),
        ended=has_ended,
        measured=(pl.col("flags") & MEASURED) != 0,
        speculative=(pl.col("flags") & 1) != 0,
        succeeded=(pl.col("flags") & (ENDED | FAILED | KILLED)) == ENDED,
        # Where the log stops, a task whose executor is there is still at work: neither failed nor wasted.
        running=~has_ended & pl.lit(not log.complete) & (pl.col("gone_ms") >= end_ms),
    ).drop("gone_ms")
    getting_result = pl.col("getting_result_ms")
    tasks = tasks.with_columns(
        getting_result_ms=pl.when((getting_result >= pl.col("launch_ms")) & (getting_result <= pl.col("finish_ms")))
        .then(getting_result)
        .otherwise(pl.col("finish_ms")),
        launch=(pl.col("launch_ms") - origin) * MS,
    )
    room = (pl.col("getting_result_ms") - pl.col("launch_ms")) * MS
    tasks = tasks.with_columns(
        delivered=(pl.col("getting_result_ms") - origin) * MS, done=(pl.col("finish_ms") - origin) * MS, room=room
    )
    # Parts in the order of the run; what does not fit is cut from the last ones, and counted.
    deserialize = pl.min_horizontal(pl.col("deserialize_ms").cast(pl.Int64) * MS, "room")
    tasks = tasks.with_columns(deserialize=deserialize)
    run = pl.min_horizontal(pl.col("run_ms").cast(pl.Int64) * MS, pl.col("room") - pl.col("deserialize"))
    tasks = tasks.with_columns(run=run)
    room_left = pl.col("room") - pl.col("deserialize") - pl.col("run")
    tasks = tasks.with_columns(serialize=pl.min_horizontal(pl.col("serialize_ms").cast(pl.Int64) * MS, room_left))
    # Without metrics (a lost executor, a killed task) all its time on the core was work, as far as anybody knows.
    unmeasured = ~pl.col("measured") | ((pl.col("run_ms") == 0) & ~pl.col("succeeded"))
    tasks = tasks.with_columns(
        unmeasured=unmeasured,
        run=pl.when(unmeasured).then(pl.col("room") - pl.col("deserialize") - pl.col("serialize")).otherwise("run"),
    )
    stated = (pl.col("deserialize_ms").cast(pl.Int64) + pl.col("run_ms") + pl.col("serialize_ms")) * MS
    over = _count(tasks, pl.col("measured") & (stated > pl.col("room")))
    note(
        findings, "task_parts_exceed_task", "info", over, "tasks", "measured parts are longer than the task; cut to fit"
    )
    tasks = tasks.with_columns(write=pl.min_horizontal("write_ns", "run"))
    tasks = tasks.with_columns(
        fetch_wait=pl.min_horizontal(pl.col("fetch_wait_ms").cast(pl.Int64) * MS, pl.col("run") - pl.col("write"))
    )
    stated_gc = pl.col("gc_ms").cast(pl.Int64) * MS
    tasks = tasks.with_columns(gc=pl.min_horizontal(stated_gc, pl.col("run") - pl.col("write") - pl.col("fetch_wait")))
    cut_gc = int(tasks.select((stated_gc - pl.col("gc")).sum()).item())
    detail = "garbage collection that tasks state beyond their run time; cut to fit"
    note(findings, "gc_exceeds_task", "warning" if cut_gc > _MUCH_GC else "info", cut_gc // MS, "ms", detail)
    return tasks.with_columns(
        work=pl.col("run") - pl.col("write") - pl.col("fetch_wait") - pl.col("gc"),
        delay=pl.col("room") - pl.col("deserialize") - pl.col("run") - pl.col("serialize"),
    ).drop("room")


def _jobs(log: SparkLog, tasks: pl.DataFrame, origin: int, end_ms: int) -> tuple[list[Job], dict[tuple[int, int], int]]:
    spans = {
        (stage, attempt): (first_ms, last_ms, latest)
        for stage, attempt, first_ms, last_ms, latest in tasks.group_by("stage", "stage_attempt")
        .agg(pl.col("launch_ms").min(), pl.col("finish_ms").max(), pl.col("launch_ms").max().alias("latest"))
        .iter_rows()
    }
    rows = {log_row["job"]: log_row for log_row in log.jobs.iter_rows(named=True)}
    listing: dict[int, list[int]] = {}
    for job, stage in log.job_stages.select("job", "stage").iter_rows():
        listing.setdefault(stage, []).append(job)
    submitted = {
        (log_row["stage"], log_row["stage_attempt"]): (log_row["submitted_ms"], log_row["completed_ms"])
        for log_row in log.stages.iter_rows(named=True)
    }
    chosen: dict[tuple[int, int], int] = {}
    extent: dict[int, list[int]] = {}
    for key in sorted(spans | submitted):
        submitted_ms, completed = submitted.get(key, (None, None))
        first_ms, last_ms, latest = spans.get(key, (submitted_ms, completed or submitted_ms, submitted_ms))
        submitted_ms = submitted_ms or first_ms
        if submitted_ms is None:
            continue
        job = _job_of(submitted_ms, listing.get(key[0], []), rows)
        if job is None:
            if key not in spans:
                continue
            job = -1 - key[0]
        chosen[key] = job
        if key in spans:
            begin, finished, launched = extent.setdefault(job, [first_ms, last_ms, latest])
            extent[job] = [min(begin, first_ms), max(finished, last_ms), max(launched, latest)]
    jobs: list[Job] = []
    index: dict[int, int] = {}
    for number in sorted(rows.keys() | extent.keys(), key=lambda job_number: (job_number < 0, abs(job_number))):
        job = _job(number, rows.get(number, {}), extent.get(number), log, (origin, end_ms))
        if job is not None:
            index[number] = len(jobs)
            jobs.append(job)
    return jobs, {key: index[job] for key, job in chosen.items() if job in index}


def _job(
    number: int, job_row: dict[str, Any], task_span: list[int] | None, log: SparkLog, extent: tuple[int, int]
) -> Job | None:
    """Return a job from its row and from first launch, last result and last launch of its tasks; None without a begin.

    `extent` is when the application began and ended, in milliseconds.
    """
    origin, end_ms = extent
    start = within(job_row.get("submitted_ms") or (task_span[0] if task_span else None), origin, end_ms)
    if start is None:
        return None
    start = min(start, task_span[0]) if task_span else start
    end = within(job_row.get("completed_ms"), origin, end_ms)
    if end is None:
        # Without its end a job lasts as long as its tasks, or was running when the log stopped.
        end = task_span[1] if log.complete and task_span else end_ms
    # What the job is seen to launch belongs to it, whatever the log says of its end.
    end = max(end, start, task_span[2] if task_span else start)
    batch, query, execution, root = (job_row.get(name) for name in ("batch", "query", "execution", "root"))
    unit = f"job {number}"
    if batch is not None and log.unit == "batch":
        unit = f"batch {batch}" + (f" of query {query[:8]}" if query else "")
    elif execution is not None and log.unit != "job":
        unit = f"query {root if root is not None else execution}"
    return Job(
        job=number,
        name=job_row.get("name") or "",
        start_ns=(start - origin) * MS,
        end_ns=(end - origin) * MS,
        execution=execution,
        unit=unit,
        succeeded=None if job_row.get("result") is None else job_row.get("result") == "JobSucceeded",
        failure=job_row.get("failure") or "",
    )


def _job_of(instant_ms: int, candidates: list[int], rows: dict[int, dict[str, Any]]) -> int | None:
    stated_jobs = [job for job in candidates if job in rows]
    for job in stated_jobs:
        start, end = rows[job].get("submitted_ms"), rows[job].get("completed_ms")
        if (start is None or start <= instant_ms) and (end is None or instant_ms <= end):
            return job
    return stated_jobs[0] if stated_jobs else None


def _executors(log: SparkLog, tasks: pl.DataFrame, origin: int, end_ms: int) -> pl.DataFrame:
    names = log.texts["executor"]
    stated_executors = {stated_row["executor"]: stated_row for stated_row in log.executors.iter_rows(named=True)}
    used = {
        names[code]: (first_launch, host)
        # In the order of the tasks: executors that the log does not add are numbered by it.
        for code, first_launch, host in tasks.group_by("executor", maintain_order=True)
        .agg(pl.col("launch_ms").min(), pl.col("host").first())
        .iter_rows()
    }
    rows = []
    for name in [
        *stated_executors,
        *(executor_name for executor_name in used if executor_name not in stated_executors),
    ]:
        stated_row, (first_launch, host) = stated_executors.get(name, {}), used.get(name, (None, None))
        stated = stated_row.get("added_ms")
        times = [t for t in (stated, first_launch) if t is not None]
        if not times or (first_launch is None and stated is not None and stated > end_ms):
            # One that came after the application's end had no part in it.
            continue
        # The driver's own executor is there from the start, even where the log does not say that it came.
        added = origin if stated is None and name == "driver" else max(min(times), origin)
        removed = stated_row.get("removed_ms")
        rows.append(
            {
                "executor": name,
                "host": stated_row.get("host") or (log.texts["host"][host] if host is not None else ""),
                "cores": stated_cores(log, name, stated_row.get("cores")),
                "added": (added - origin) * MS,
                "removed": None if removed is None or removed > end_ms else (max(removed, added) - origin) * MS,
                "reason": stated_row.get("reason"),
                "code": names.index(name) if name in names else -1,
            }
        )
    schema = {
        "executor": pl.String,
        "host": pl.String,
        "cores": pl.Int64,
        "added": pl.Int64,
        "removed": pl.Int64,
        "reason": pl.String,
        "code": pl.Int64,
    }
    return pl.DataFrame({column: [row[column] for row in rows] for column in schema}, schema=schema)


def _lanes(jobs: list[Job], lane_count: int) -> list[Lane]:
    """Give every job a lane; some are there already."""
    lanes = [Lane(lane=lane) for lane in range(max(1, lane_count))]
    free_at = [0] * len(lanes)
    group: set[int] = set()
    group_end = -1
    for index in sorted(range(len(jobs)), key=lambda i: (jobs[i].start_ns, jobs[i].job)):
        job = jobs[index]
        if job.start_ns >= group_end:
            _join(lanes, group, jobs)
            group = {0}
            chosen = 0
        else:
            idle = [lane for lane in group if free_at[lane] <= job.start_ns]
            if idle:
                chosen = max(idle, key=lambda lane: (free_at[lane], -lane))
            else:
                chosen = next((lane.lane for lane in lanes if lane.lane not in group), len(lanes))
                if chosen == len(lanes):
                    lanes.append(Lane(lane=chosen))
                    free_at.append(0)
                # The driver's program was last seen at work where the latest of the running jobs began.
                parent = max(group, key=lambda lane: (jobs[lanes[lane].jobs[-1]].start_ns, -lane))
                lanes[chosen].forks.append((jobs[lanes[parent].jobs[-1]].start_ns, parent, index))
                group.add(chosen)
        job.lane = chosen
        lanes[chosen].jobs.append(index)
        free_at[chosen] = job.end_ns
        group_end = max(group_end, job.end_ns)
    _join(lanes, group, jobs)
    return lanes


def _join(lanes: list[Lane], group: set[int], jobs: list[Job]) -> None:
    """Let lane 0 wait for the lanes of a group that work longer than itself."""
    if not group:
        return
    main_end = jobs[lanes[0].jobs[-1]].end_ns
    for lane in sorted(group - {0}):
        end = jobs[lanes[lane].jobs[-1]].end_ns
        lanes[lane].joins.append(end if end > main_end else -1)


def was_lost(reason: str | None) -> bool:
    """Say by the reason that Spark gives whether an executor went though nobody wanted it to; True without a reason."""
    return not any(word in (reason or "").lower() for word in _ORDERLY)


def executor_ends(schedule: Schedule) -> list[int]:
    """Return when each executor ended, in nanoseconds from the origin: the run's end for those that never went.

    The last of its tasks may have ended after it was seen to be gone; then it ended with that.
    """
    last_task_end = dict(schedule.tasks.group_by("executor").agg(pl.col("free").max()).iter_rows())
    return [
        schedule.end_ns
        if executor_row["removed"] is None
        else min(max(executor_row["removed"], last_task_end.get(executor_row["code"], 0)), schedule.end_ns)
        for executor_row in schedule.executors.iter_rows(named=True)
    ]
