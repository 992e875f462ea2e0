"""The mapping of SnailTrail 1 for Spark, kept exact for comparison (strymon-system/snailtrail, `spark-parser`, 2017).

Worker 0 is the driver, each core of an executor a worker. The driver schedules or waits, whatever its next event says.
A third (0.33) of a task's scheduler delay lies before its work on the core. Fetch wait comes before the computation,
shuffle write after it. Launch and result are control messages. A data message goes from every core of a parent stage,
at its completion, to every core of the child stage, at its submission. No retries, no losses, no GC, one job.

Definitions stand in `docs/spark.md`, "SnailTrail 1".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.sources.spark.schedule import MS, infer_schedule
from pag_graph.sources.spark.shuffles import stage_parents

if TYPE_CHECKING:
    from pag_graph.sources.spark.log_tables import SparkLog
    from pag_graph.sources.spark.schedule import Schedule

__all__ = ["SnailTrail", "snailtrail_events", "snailtrail_mapping"]

DELAY_SPLIT = 0.33
"""Part of the scheduler delay that lies before the task's work."""

_SCHEDULING, _WAITING, _BUFFER = ActivityType.SCHEDULING, ActivityType.WAITING, ActivityType.BUFFER


@dataclass(frozen=True, slots=True, kw_only=True)
class SnailTrail:
    """Activities and messages as SnailTrail 1 makes them; times in nanoseconds since 1970."""

    activities: pl.DataFrame
    """One row per activity: worker, start, stop, activity, operator (the stage)."""
    messages: pl.DataFrame
    """One row per message: sender, sent, receiver, received, activity."""


def snailtrail_mapping(log: SparkLog, *, shuffle: bool = True) -> SnailTrail:
    """Return what SnailTrail 1 makes of a log.

    Parameters
    ----------
    log
        With one job that nothing failed in.
    shuffle
        Whether to draw data messages between stages.

    Returns
    -------
    SnailTrail
        Driver first, then the cores.
    """
    schedule = infer_schedule(log)
    tasks = _tasks(log, schedule)
    workers = _place(tasks, schedule)
    activities: list[tuple[int, int, int, str, int]] = []
    messages: list[tuple[int, int, int, int, str]] = []
    control_message, data_message = str(ActivityType.CONTROL_MESSAGE), str(ActivityType.DATA_MESSAGE)
    for batch, done_before in _batches(tasks):
        marks = []
        for task in batch:
            marks.append((task["launch"], _SCHEDULING, task["stage"]))
            marks.append((task["got"], _WAITING, task["stage"]))
            if task["done"] > task["got"]:
                marks.append((task["done"], _BUFFER, task["stage"]))
        marks.sort(key=lambda mark: mark[0])
        if done_before is not None:
            activities.append((0, done_before, marks[0][0], str(_SCHEDULING), 0))
        for before, (instant, state, stage) in pairwise(marks):
            activities.append((0, before[0], instant, str(state), stage))
    for task in tasks:
        worker, instant = workers[task["task"]], task["begin"]
        messages.append((0, task["launch"], worker, instant, control_message))
        computing = task["run"] - task["fetch"] - task["write"]
        for kind, length, always in (
            (ActivityType.DESERIALIZATION, task["deserialize"], True),
            (_BUFFER, task["fetch"], False),
            (ActivityType.PROCESSING, computing, True),
            (_BUFFER, task["write"], False),
            (ActivityType.SERIALIZATION, task["serialize"], True),
        ):
            if always or length > 0:
                activities.append((worker, instant, instant + length, str(kind), task["stage"]))
            instant += length
        messages.append((worker, instant, 0, task["got"], control_message))
    if shuffle:
        messages += [(*pair, data_message) for pair in _shuffles(schedule, tasks, workers)]
    return SnailTrail(
        activities=pl.DataFrame(activities, schema=["worker", "start", "stop", "activity", "operator"], orient="row"),
        messages=pl.DataFrame(messages, schema=["sender", "sent", "receiver", "received", "activity"], orient="row"),
    )


def _tasks(log: SparkLog, schedule: Schedule) -> list[dict[str, Any]]:
    origin = schedule.origin_ms * MS
    frame = schedule.tasks.select(
        "task",
        "stage",
        "executor",
        launch=pl.col("launch") + origin,
        got=pl.col("delivered") + origin,
        done=pl.col("done") + origin,
    )
    # The parts of a task as the log has them, whether they fit or not.
    measured = log.tasks.select(
        deserialize=pl.col("deserialize_ms").cast(pl.Int64) * MS,
        run=pl.col("run_ms").cast(pl.Int64) * MS,
        serialize=pl.col("serialize_ms").cast(pl.Int64) * MS,
        fetch=pl.col("fetch_wait_ms").cast(pl.Int64) * MS,
        write=pl.col("write_ns"),
    )
    frame = frame.hstack(measured).sort("launch", "done", maintain_order=True)
    tasks = frame.to_dicts()
    for task in tasks:
        held_ns = task["deserialize"] + task["run"] + task["serialize"]
        delay = task["got"] - task["launch"] - held_ns
        task["begin"] = task["launch"] + int(DELAY_SPLIT * delay)
        task["end"] = task["begin"] + held_ns
    return tasks


def _place(tasks: list[dict[str, Any]], schedule: Schedule) -> dict[int, int]:
    """Give each task the core of its executor that became free last."""
    threads: dict[int, list[list[int]]] = {}
    number = 0
    for executor_row in schedule.executors.iter_rows(named=True):
        for _ in range(executor_row["cores"]):
            number += 1
            threads.setdefault(executor_row["code"], []).append([0, number])
    placed = {}
    for task in tasks:
        # The last one of several that became free at the same time.
        free = [thread for thread in threads[task["executor"]] if thread[0] < task["begin"]]
        chosen = max(reversed(free), key=lambda thread: thread[0])
        chosen[0] = task["end"]
        placed[task["task"]] = chosen[1]
    return placed


def _batches(tasks: list[dict[str, Any]]) -> list[tuple[list[dict[str, Any]], int | None]]:
    """Return the tasks of stages that ran at the same time, and when the last one before them was done."""
    by_stage: dict[int, list[dict[str, Any]]] = {}
    for task in tasks:
        by_stage.setdefault(task["stage"], []).append(task)
    groups: list[list[dict[str, Any]]] = []
    reached = -1
    for stage_tasks in sorted(by_stage.values(), key=lambda stage_tasks: stage_tasks[0]["launch"]):
        if groups and stage_tasks[0]["launch"] < reached:
            groups[-1] += stage_tasks
        else:
            groups.append(list(stage_tasks))
        reached = max(reached, *(task["done"] for task in stage_tasks))
    batches: list[tuple[list[dict[str, Any]], int | None]] = []
    for group in groups:
        group.sort(key=lambda task: (task["launch"], task["done"]))
        batches.append((group, max(task["done"] for task in batches[-1][0]) if batches else None))
    return batches


def _shuffles(
    schedule: Schedule, tasks: list[dict[str, Any]], workers: dict[int, int]
) -> list[tuple[int, int, int, int]]:
    times = {
        stage_row["stage"]: (stage_row["submitted_ms"] * MS, stage_row["completed_ms"] * MS)
        for stage_row in schedule.log.stages.iter_rows(named=True)
    }
    used: dict[int, set[int]] = {}
    for task in tasks:
        used.setdefault(task["stage"], set()).add(workers[task["task"]])
    return [
        (sender, times[parent][1], receiver, times[stage][0])
        for (_, stage), parents in sorted(stage_parents(schedule).items())
        if stage in used
        for parent in parents
        for receiver in sorted(used[stage])
        for sender in sorted(used[parent])
    ]


def snailtrail_events(mapping: SnailTrail) -> pl.DataFrame:
    """Return the mapping as rows of the canonical trace.

    A core's time between its activities is a wait; what no message ends stays one, and is found to have no ender.

    Parameters
    ----------
    mapping
        Of one log.

    Returns
    -------
    pl.DataFrame
        Columns of `TRACE_EVENTS` that say something, sorted by worker and position; times as the mapping has them.
    """
    rows: list[tuple[int, int, int, str, str | None, int | None, int | None, int | None, int | None]] = []
    start, stop, send, receive = (
        str(kind) for kind in (EventKind.START, EventKind.STOP, EventKind.SEND, EventKind.RECEIVE)
    )
    waiting = str(_WAITING)
    for number, (sender, sent, receiver, received, activity) in enumerate(mapping.messages.iter_rows()):
        stated = None if activity == str(ActivityType.DATA_MESSAGE) else activity
        channel = 1 if stated is None else 0
        # At one instant: what arrives, then the end of what was, then what leaves, then the beginning of what follows.
        rows.append((sender, sent, 2, send, stated, None, channel, receiver, number))
        rows.append((receiver, received, 0, receive, stated, None, channel, sender, number))
    spawn, ends = str(EventKind.SPAWN), str(EventKind.EXIT)
    # Cores are there from their first message to their last activity: SnailTrail knows nothing of them outside. They
    # are born of the launch that they begin with, or of the driver's begin.
    begin_ns = int(mapping.activities["start"].min() or 0)  # type: ignore[arg-type]
    earliest = mapping.messages.sort("received", "sent").unique("receiver", keep="first", maintain_order=True)
    first_received: dict[int, int] = {}
    for worker, sender, sent, received in earliest.select("receiver", "sender", "sent", "received").iter_rows():
        first_received[worker] = received
        if worker:
            rows.append((0, begin_ns if sender else sent, 2, spawn, None, None, None, worker, None))
    for worker, stop_ns in (
        mapping.activities.filter(pl.col("worker") > 0).group_by("worker").agg(pl.col("stop").max()).iter_rows()
    ):
        rows.append((worker, stop_ns, 5, ends, None, None, None, None, None))
    frame = mapping.activities.filter(pl.col("stop") > pl.col("start")).sort("worker", "start", "stop")
    for key, worker_activities in frame.group_by("worker", maintain_order=True):
        (number,) = key
        reached = first_received.get(number) if number else None
        for worker, begin, end, activity, operator in worker_activities.iter_rows():
            if reached is not None and begin > reached:
                rows.append((worker, reached, 3, start, waiting, 0, None, None, None))
                rows.append((worker, begin, 1, stop, None, 0, None, None, None))
            rows.append((worker, begin, 4, start, activity, operator, None, None, None))
            rows.append((worker, end, 1, stop, None, operator, None, None, None))
            reached = end
    names = ("worker", "t_ns", "rank", "kind", "activity", "operator", "channel", "peer", "message_seq")
    schema = {name: pl.String if name in {"kind", "activity"} else pl.Int64 for name in names}
    events = pl.DataFrame(rows, schema=schema, orient="row").sort("worker", "t_ns", "rank", maintain_order=True)
    return events.with_columns(
        pl.col("worker", "peer").cast(pl.Int32),
        seq=pl.int_range(pl.len(), dtype=pl.Int64).over("worker"),
        epoch=pl.lit(0, pl.Int64),
    ).drop("rank")
