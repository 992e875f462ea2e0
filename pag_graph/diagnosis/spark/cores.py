"""The cores that an application had over time, and what if there were more or fewer of them.

Recorded tasks are scheduled again (`list_schedule.py`) under the recorded dependencies: the driver's own time before
each job, a job's stages after those that they read, retries after what failed. A free core takes the first task that
is ready, jobs in the order of their numbers, as the FIFO scheduler of Spark does. Not modelled: contention for memory,
disk and network, locality, fair pools, and sizes of partitions that would follow from another number of cores.

Definitions stand in `docs/spark.md`, "Other numbers of cores".
"""

from __future__ import annotations

from itertools import accumulate
from statistics import median_low
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.first_tasks import warm_up
from pag_graph.diagnosis.spark.list_schedule import Cores, WorkPlan, list_schedule
from pag_graph.errors import InvalidParameterError
from pag_graph.sources.spark.schedule import MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = [
    "CorePrediction",
    "cores_at",
    "most_cores",
    "predict_cores",
    "recorded_cores",
    "registered_cores",
    "registered_slots",
    "steady",
    "task_slots",
    "with_cores",
]


class CorePrediction(NamedTuple):
    """When the application ends with a number of cores, in nanoseconds from its start."""

    cores: int
    predicted_ns: int
    recorded: bool
    """Whether these are the cores as they were, coming and going; otherwise all are there from the start to the end."""


def registered_cores(schedule: Schedule) -> list[Cores]:
    """Return the cores that the application had: one group per executor, from when it registered until it went."""
    return _cores_since(schedule, schedule.executors["added"].to_list(), _core_counts(schedule))


def registered_slots(schedule: Schedule) -> list[Cores]:
    """Return the same with as many cores as tasks can use at once (`task_slots`)."""
    return _cores_since(schedule, schedule.executors["added"].to_list(), task_slots(schedule))


def recorded_cores(schedule: Schedule, *, every: bool = False) -> list[Cores]:
    """Return the cores that tasks could use over time for replays: one group per executor.

    Parameters
    ----------
    schedule
        Of one log.
    every
        Whether all cores count, also those that no task may use (`task_slots`).

    Returns
    -------
    list of Cores
        From when executors were at work until they went, in nanoseconds from the origin. An executor that came while
        tasks were waiting took some time to get its first one, with cold code on a busy driver: it counts from that
        launch on.
    """
    counts = task_slots(schedule)
    if every:
        counts = [
            max(core_counts)
            for core_counts in zip(counts, _core_counts(schedule), schedule.executors["cores"], strict=True)
        ]
    return _cores_since(schedule, _first_launches(schedule), counts)


def task_slots(schedule: Schedule) -> list[int]:
    """Return how many tasks each executor runs at once: its cores, by what one task asks for.

    That is `spark.task.cpus`, by which tasks were placed, or what a resource profile says, which settings do not tell:
    then it is seen in executors none of which ever used more than a part of its cores, though tasks waited that were no
    tiny ones.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    list of int
        Per executor.
    """
    counts, used = _core_counts(schedule), [0] * schedule.executors.height
    for core in schedule.tasks["core"].unique().to_list():
        used[schedule.cores[core].executor] += 1
    asked = min((count // in_use for count, in_use in zip(counts, used, strict=True) if in_use), default=1)
    if asked <= 1 or not _waited(schedule, sum(used)):
        return counts
    return [max(count // asked, in_use, min(count, 1)) for count, in_use in zip(counts, used, strict=True)]


_WAVES = 2
_TINY_NS = 300_000_000
"""The driver cannot launch shorter tasks fast enough to fill many cores."""


def _waited(schedule: Schedule, used: int) -> bool:
    """Return whether a stage without tiny tasks had so many that some of them waited for others to end."""
    held_ns = (pl.col("free") - pl.col("receipt")).median().alias("held")
    stages = schedule.tasks.group_by("stage", "stage_attempt").agg(pl.len().alias("tasks"), held_ns)
    return bool(((stages["tasks"] > _WAVES * used) & (stages["held"] >= _TINY_NS)).any())


def _core_counts(schedule: Schedule) -> list[int]:
    """Return how many cores each executor has."""
    counts = list(schedule.more_cores)
    for core in schedule.cores:
        counts[core.executor] += 1
    return counts


def _cores_since(schedule: Schedule, since: Sequence[int], counts: Sequence[int]) -> list[Cores]:
    removed = schedule.executors["removed"].to_list()
    cores = [
        Cores(start, until if until is None else max(until, start), count)
        for start, until, count in zip(since, removed, counts, strict=True)
        if count > 0
    ]
    if all(group.until is not None for group in cores):
        # All went before the end: the last ones had done all tasks.
        latest = max((group.until or 0 for group in cores), default=0)
        cores = [group._replace(until=None) if group.until == latest else group for group in cores]
    return cores


def _first_launches(schedule: Schedule) -> list[int]:
    """Return from when on each executor was at work: its first launch if tasks waited when it came, else its coming."""
    first_launch = dict(schedule.tasks.group_by("executor").agg(pl.col("launch").min()).iter_rows())
    submitted = schedule.log.stages.select(
        "stage", "stage_attempt", at=(pl.col("submitted_ms") - schedule.origin_ms) * MS
    ).drop_nulls()
    spans = (
        schedule.tasks.group_by("stage", "stage_attempt")
        .agg(pl.col("launch").min().alias("first"), pl.col("launch").max().alias("last"))
        .cast({"stage": pl.Int64, "stage_attempt": pl.Int64})
        .join(submitted, on=["stage", "stage_attempt"], how="left")
        .select(pl.min_horizontal("first", "at"), "last")
        .sort("first")
    )
    begins, reach = spans["first"].to_numpy(), np.maximum.accumulate(spans["last"].to_numpy())
    starts = []
    for code, added in schedule.executors.select("code", "added").iter_rows():
        launched = first_launch.get(code)
        # If a stage that had begun by then launches tasks later on, some were waiting.
        stages_begun = int(np.searchsorted(begins, added, side="right"))
        waiting = stages_begun > 0 and int(reach[stages_begun - 1]) > added
        starts.append(launched if waiting and launched is not None else added)
    return starts


def cores_at(cores: Sequence[Cores], t: int) -> int:
    """Return how many cores there are at an instant.

    Parameters
    ----------
    cores
        Groups of cores.
    t
        The instant, in nanoseconds from the origin. Those that come then count, and those that go then do not.
    """
    return sum(group.cores for group in cores if group.since <= t and (group.until is None or group.until > t))


def most_cores(cores: Sequence[Cores]) -> int:
    """Return how many cores there were at most at a time; 0 without any."""
    changes = [(group.since, group.cores) for group in cores]
    changes += [(group.until, -group.cores) for group in cores if group.until is not None]
    # Of one instant those that go come first, for their numbers are negative.
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def _first_launch(schedule: Schedule) -> int:
    return int(schedule.tasks["launch"][0]) if schedule.tasks.height else schedule.end_ns


def steady(schedule: Schedule) -> bool:
    """Return whether all cores were there from the first task's launch to the last job's end."""
    last_job_end = max((job.end_ns for job in schedule.jobs), default=0)
    first_launch = _first_launch(schedule)
    removed = schedule.executors["removed"].drop_nulls()
    return bool((schedule.executors["added"] <= first_launch).all()) and not (removed < last_job_end).any()


def with_cores(schedule: Schedule, count: int, *, at: int | None = None) -> list[Cores]:
    """Return `count` cores that are there from the start to the end.

    Parameters
    ----------
    schedule
        Of one log.
    count
        How many.
    at
        When they come. If absent, those that were there for the first task come when they came, and more of them at the
        median of these times.

    Raises
    ------
    InvalidParameterError
        If the count is not positive.
    """
    if count < 1:
        message = f"{count} cores can run nothing."
        raise InvalidParameterError(message, "Give a positive number of cores.")
    if at is not None:
        return [Cores(at, None, count)]
    cores = recorded_cores(schedule) or [Cores(0, None)]
    first_launch = _first_launch(schedule)
    initial = [group for group in cores if group.since <= first_launch] or [min(cores)]
    groups: list[Cores] = []
    missing = count
    for group in sorted(initial, key=lambda group: group.since):
        if core_count := min(group.cores, missing):
            groups.append(Cores(group.since, None, core_count))
            missing -= core_count
    typical = median_low(group.since for group in initial)
    return [*groups, Cores(typical, None, missing)] if missing else groups


def predict_cores(
    schedule: Schedule, plan: WorkPlan, counts: Sequence[int] = (), *, more: Callable[[int], I64] | None = None
) -> list[CorePrediction]:
    """Predict when the application ends with other numbers of cores.

    Parameters
    ----------
    schedule, plan
        Of one log.
    counts
        Numbers of cores; as many as there were at most at a time, half and twice as many come on top.
    more
        Number of cores to the nanoseconds that each task takes more with them; nothing if absent.

    Returns
    -------
    list of CorePrediction
        By cores. The recorded cores come and go as they did; all others are there from the start to the end. Where the
        recorded ones were so too, they are not given twice.

    Notes
    -----
    What a core's first task of a stage takes longer than the others goes with the core, not with the task: with twice
    as many cores twice as many tasks are the first ones.
    """
    if not schedule.tasks.height or not schedule.cores:
        return []
    recorded = recorded_cores(schedule)
    most_recorded = most_cores(recorded)
    warm, first_extra_ns = warm_up(schedule)

    def end(cores: Sequence[Cores], count: int | None = None) -> int:
        extra = 0 if count is None or more is None else more(count)
        return list_schedule(plan, cores, durations=np.maximum(warm + extra, 0), first=first_extra_ns)

    predictions = [CorePrediction(most_recorded, end(recorded), recorded=True)]
    numbers = {*counts, max(1, most_recorded // 2), most_recorded, 2 * most_recorded}
    if steady(schedule):
        numbers.discard(most_recorded)
    predictions += [CorePrediction(count, end(with_cores(schedule, count), count), recorded=False) for count in numbers]
    return sorted(predictions, key=lambda prediction: (prediction.cores, not prediction.recorded))
