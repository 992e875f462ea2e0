"""Event logs of Spark written by hand: a driver, executors, jobs, stages and tasks at stated milliseconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ORIGIN_MS", "EventLog", "check_rows"]

ORIGIN_MS = 1_700_000_000_000
"""When the applications of these logs begin."""


class EventLog:
    """Collects events in the order of the calls; times are milliseconds after the application's start.

    Parameters
    ----------
    cores
        Cores of each executor; they are there from 10 ms on.
    version
        Spark's version.

    Examples
    --------
    >>> log = EventLog(cores=[1])
    >>> _ = log.job(0, 100, [0]).stage(0, 110, tasks=1)
    >>> _ = log.task(0, 0, "0", 120, 170, run=40).stage_done(0, 171).job_done(0, 180)
    >>> _ = log.end(200)
    >>> len(log.lines)
    10
    """

    def __init__(self, cores: Sequence[int] = (1, 1), version: str = "4.1.0") -> None:
        self.events: list[dict[str, Any]] = [
            {"Event": "SparkListenerLogStart", "Spark Version": version},
            {
                "Event": "SparkListenerApplicationStart",
                "App Name": "by hand",
                "App ID": "app-1",
                "Timestamp": ORIGIN_MS,
                "User": "user",
            },
        ]
        self._next = 0
        self._stages: dict[int, dict[str, Any]] = {}
        for number, count in enumerate(cores):
            self.executor(str(number), 10, count)

    @property
    def lines(self) -> list[str]:
        """The log's lines."""
        return [json.dumps(event, separators=(",", ":")) for event in self.events]

    @property
    def content(self) -> bytes:
        """The log's bytes."""
        return ("\n".join(self.lines) + "\n").encode()

    def write(self, path: Path) -> Path:
        """Write the log to a file."""
        path.write_bytes(self.content)
        return path

    def add(self, event: str, **more: Any) -> EventLog:
        """Add any event."""
        self.events.append({"Event": event, **more})
        return self

    def executor(self, name: str, at: int, cores: int = 1) -> EventLog:
        """Add an executor."""
        return self.add(
            "SparkListenerExecutorAdded",
            **{
                "Timestamp": ORIGIN_MS + at,
                "Executor ID": name,
                "Executor Info": {"Host": f"host-{name}", "Total Cores": cores},
            },
        )

    def executor_gone(self, name: str, at: int, reason: str = "Command exited with code 137") -> EventLog:
        """Remove an executor."""
        return self.add(
            "SparkListenerExecutorRemoved",
            **{"Timestamp": ORIGIN_MS + at, "Executor ID": name, "Removed Reason": reason},
        )

    def job(
        self,
        job: int,
        at: int,
        stages: Sequence[int],
        *,
        parents: dict[int, list[int]] | None = None,
        **properties: str,
    ) -> EventLog:
        """Submit a job with stages, and say which stages they read."""
        infos = [_stage_info(stage, 0, 1, (parents or {}).get(stage, [])) for stage in stages]
        for info in infos:
            self._stages[info["Stage ID"]] = info
        return self.add(
            "SparkListenerJobStart",
            **{
                "Job ID": job,
                "Submission Time": ORIGIN_MS + at,
                "Stage Infos": infos,
                "Stage IDs": list(stages),
                "Properties": {key.replace("_", "."): value for key, value in properties.items()},
            },
        )

    def job_done(self, job: int, at: int, *, failed: bool = False) -> EventLog:
        """End a job."""
        result = (
            {"Result": "JobFailed", "Exception": {"Message": "it failed"}} if failed else {"Result": "JobSucceeded"}
        )
        return self.add(
            "SparkListenerJobEnd", **{"Job ID": job, "Completion Time": ORIGIN_MS + at, "Job Result": result}
        )

    def stage(self, stage: int, at: int, *, tasks: int, attempt: int = 0) -> EventLog:
        """Submit a stage."""
        parents = self._stages.get(stage, {}).get("Parent IDs", [])
        info = {**_stage_info(stage, attempt, tasks, parents), "Submission Time": ORIGIN_MS + at}
        self._stages[stage] = info
        return self.add("SparkListenerStageSubmitted", **{"Stage Info": info, "Properties": {}})

    def stage_done(self, stage: int, at: int, *, failure: str | None = None) -> EventLog:
        """End a stage."""
        info = {**self._stages[stage], "Completion Time": ORIGIN_MS + at}
        if failure:
            info["Failure Reason"] = failure
        return self.add("SparkListenerStageCompleted", **{"Stage Info": info})

    def task(
        self,
        stage: int,
        index: int,
        executor: str,
        launch: int,
        finish: int | None,
        *,
        run: int = 0,
        deserialize: int = 0,
        serialize: int = 0,
        gc: int = 0,
        fetch_wait: int = 0,
        write_ns: int = 0,
        attempt: int = 0,
        stage_attempt: int = 0,
        getting: int = 0,
        reason: str = "Success",
        speculative: bool = False,
        read: tuple[int, int, int] = (0, 0, 0),
        wrote: tuple[int, int] = (0, 0),
        spilled: int = 0,
        input_records: int = 0,
        output_bytes: int = 0,
        locality: str = "ANY",
        updates: dict[int, int] | None = None,
        peaks: dict[str, int] | None = None,
        task: int | None = None,
    ) -> EventLog:
        """Launch a task and, unless `finish` is None, end it.

        `read` is (remote bytes, local bytes, records) from a shuffle, `wrote` (bytes, records) to one; `updates` are
        what it adds to accumulators of plans, `peaks` what its executor holds of its memory.
        """
        number = self._next if task is None else task
        self._next = max(self._next, number) + 1
        info = {
            "Task ID": number,
            "Index": index,
            "Attempt": attempt,
            "Launch Time": ORIGIN_MS + launch,
            "Executor ID": executor,
            "Host": f"host-{executor}",
            "Locality": locality,
            "Speculative": speculative,
            "Getting Result Time": 0,
            "Finish Time": 0,
            "Failed": False,
            "Killed": False,
        }
        of_stage = {"Stage ID": stage, "Stage Attempt ID": stage_attempt}
        self.add("SparkListenerTaskStart", **of_stage, **{"Task Info": dict(info)})
        if finish is None:
            return self
        good = reason == "Success"
        info |= {
            "Finish Time": ORIGIN_MS + finish,
            "Getting Result Time": ORIGIN_MS + getting if getting else 0,
            "Failed": not good and reason != "TaskKilled",
            "Killed": reason == "TaskKilled",
        }
        metrics = {
            "Executor Deserialize Time": deserialize,
            "Executor Run Time": run,
            "Executor CPU Time": run * 1_000_000,
            "Result Size": 1000,
            "JVM GC Time": gc,
            "Result Serialization Time": serialize,
            "Memory Bytes Spilled": spilled * 2,
            "Disk Bytes Spilled": spilled,
            "Shuffle Read Metrics": {
                "Fetch Wait Time": fetch_wait,
                "Remote Bytes Read": read[0],
                "Local Bytes Read": read[1],
                "Total Records Read": read[2],
            },
            "Shuffle Write Metrics": {
                "Shuffle Bytes Written": wrote[0],
                "Shuffle Write Time": write_ns,
                "Shuffle Records Written": wrote[1],
            },
            "Input Metrics": {"Bytes Read": 0, "Records Read": input_records},
            "Output Metrics": {"Bytes Written": output_bytes, "Records Written": 0},
            "Peak Execution Memory": (peaks or {}).get("task", 0),
        }
        info["Accumulables"] = [
            {"ID": key, "Update": value, "Metadata": "sql"} for key, value in (updates or {}).items()
        ]
        return self.add(
            "SparkListenerTaskEnd",
            **of_stage,
            **{
                "Task Type": "ResultTask",
                "Task End Reason": {"Reason": reason},
                "Task Info": info,
                "Task Metrics": metrics if good else None,
                "Task Executor Metrics": {key: value for key, value in (peaks or {}).items() if key != "task"},
            },
        )

    def end(self, at: int) -> EventLog:
        """End the application."""
        return self.add("SparkListenerApplicationEnd", Timestamp=ORIGIN_MS + at)


def _stage_info(stage: int, attempt: int, tasks: int, parents: Sequence[int]) -> dict[str, Any]:
    return {
        "Stage ID": stage,
        "Stage Attempt ID": attempt,
        "Stage Name": f"count at program.py:{stage}",
        "Number of Tasks": tasks,
        "RDD Info": [{"RDD ID": 100 + stage, "Name": "RDD", "Parent IDs": []}],
        "Parent IDs": list(parents),
        "Details": "",
    }


def check_rows(events: pl.DataFrame) -> None:
    """Check what must hold of the rows of a mapped log; raises AssertionError with what does not.

    Times, numbers and epochs of a worker never fall; activities are balanced; every message has one send and one
    receive, in this order; nothing causes what caused it; a wait ends with a message; a worker ends with its exit.

    Parameters
    ----------
    events
        Columns of `TRACE_EVENTS`, workers together, in the order of their logs.

    Raises
    ------
    AssertionError
        If something does not hold.
    """
    rows = events.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    for name, least in (("t_ns", 0), ("epoch", 0), ("seq", 1)):
        falls = rows.filter(pl.col(name) - pl.col(name).shift(1).over("worker") < least)
        _require(not falls.height, f"{name} falls", falls)
    _check_nesting(rows)
    keys = ["channel", "message_seq", "sender", "receiver"]
    kind = pl.col("kind")
    sent = rows.filter(kind == "send").rename({"worker": "sender", "peer": "receiver"})
    received = rows.filter(kind == "receive").rename({"worker": "receiver", "peer": "sender"})
    for name, frame in (("send", sent), ("receive", received)):
        twice = frame.filter(pl.struct(keys).is_duplicated())
        _require(not twice.height, f"a {name} twice", twice)
    pairs = sent.select(*keys, "row", "t_ns").join(
        received.select(*keys, "row", "t_ns"), on=keys, how="full", coalesce=True, suffix="_got"
    )
    open_ends = pairs.filter(
        pl.col("row").is_null() | pl.col("row_got").is_null() | (pl.col("t_ns_got") < pl.col("t_ns"))
    )
    _require(not open_ends.height, "messages without an end, or backwards in time", open_ends)
    births = rows.group_by("worker").agg(pl.col("row").min().alias("first"), pl.col("t_ns").min())
    spawned = rows.filter(kind == "spawn").join(births, left_on="peer", right_on="worker", how="left", suffix="_born")
    early = spawned.filter(pl.col("first").is_null() | (pl.col("t_ns_born") < pl.col("t_ns")))
    _require(not early.height, "a spawn of nobody, or after the birth", early)
    last_rows = rows.group_by("worker").agg(pl.col("row").max().alias("last"))
    late = rows.filter(kind == "exit").join(last_rows, on="worker").filter(pl.col("row") != pl.col("last"))
    _require(not late.height, "rows after an exit", late)
    _check_order(rows, [*pairs.select("row", "row_got").rows(), *spawned.select("row", "first").rows()])


def _require(holds: bool, problem: str, frame: pl.DataFrame) -> None:  # noqa: FBT001 a condition
    if not holds:
        message = f"{problem}: {frame.head(5).to_dicts()}"
        raise AssertionError(message)


def _check_nesting(rows: pl.DataFrame) -> None:
    opened: list[tuple[int, int | None, str | None, int]] = []
    current, received_t = -1, -1
    for worker, kind, operator, activity, t in rows.select(
        "worker", "kind", "operator", "activity", "t_ns"
    ).iter_rows():
        if worker != current:
            _require(not opened, "activities left open", rows.filter(pl.col("worker") == current))
            current, received_t = worker, -1
        if kind == "receive":
            received_t = t
        elif kind == "start":
            opened.append((worker, operator, activity, t))
        elif kind == "stop":
            _require(
                bool(opened) and opened[-1][1] == operator, f"unbalanced stop of worker {worker} at {t}", rows.head(0)
            )
            _, _, activity_ended, since = opened.pop()
            _require(
                activity_ended != "waiting" or t in {since, received_t},
                f"a wait of worker {worker} without end at {t}",
                rows.head(0),
            )
    _require(not opened, "activities left open", rows.tail(5))


def _check_order(rows: pl.DataFrame, edges: list[tuple[int, int]]) -> None:
    """Check that no row comes before what causes it: an order of all rows exists (Kahn)."""
    count = rows.height
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    workers = rows["worker"].to_list()
    steps_of_workers = [(row, row + 1) for row in range(count - 1) if workers[row] == workers[row + 1]]
    for before, later in [*steps_of_workers, *edges]:
        after[before].append(later)
        missing[later] += 1
    ready = [row for row in range(count) if not missing[row]]
    ordered = 0
    while ready:
        row = ready.pop()
        ordered += 1
        for later in after[row]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    stuck = [row for row in range(count) if missing[row]]
    _require(ordered == count, "rows that cause each other", rows[stuck] if stuck else rows.head(0))
