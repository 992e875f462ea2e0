"""Reads event logs of Spark 2 to 4 line by line into columns; nothing in a log makes it fail.

A log is a file, or a directory ``eventlog_v2_*`` of rolled files, or a directory that holds several logs. What cannot
be read is counted and becomes a `LogFinding`; the rest is read all the same.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from pag_graph.errors import TraceFormatError
from pag_graph.sources.spark.codecs import Stopped, decode
from pag_graph.sources.spark.plans import Plan, plan_nodes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

__all__ = ["LogFiles", "LogFinding", "SparkLog", "find_logs", "read_log", "silent"]

_ROLLING = "eventlog_v2_"
_PART = re.compile(r"^events_(\d+)_.*$")
_LONGEST_LINE = 64 << 20
# Bytes of packed tasks that become columns at a time.
_FLUSH = 4 << 20
# 100,000 years in milliseconds: what is above it is no time.
_LATEST_MS = 1 << 52
_LARGEST = (1 << 62) - 1
_SQL = "org.apache.spark.sql.execution.ui.SparkListener"
_STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"

_TASK_COLUMNS: tuple[tuple[str, str], ...] = (
    ("task", "q"),
    ("launch_ms", "q"),
    ("finish_ms", "q"),
    ("getting_result_ms", "q"),
    ("stage", "i"),
    ("stage_attempt", "i"),
    ("index", "i"),
    ("attempt", "i"),
    ("executor", "i"),
    ("host", "i"),
    ("locality", "i"),
    ("reason", "i"),
    ("flags", "i"),
    ("deserialize_ms", "i"),
    ("run_ms", "i"),
    ("gc_ms", "i"),
    ("serialize_ms", "i"),
    ("fetch_wait_ms", "i"),
    ("cpu_ns", "q"),
    ("write_ns", "q"),
    ("result_bytes", "q"),
    ("memory_spilled_bytes", "q"),
    ("disk_spilled_bytes", "q"),
    ("remote_bytes", "q"),
    ("local_bytes", "q"),
    ("shuffle_read_records", "q"),
    ("shuffle_write_bytes", "q"),
    ("shuffle_write_records", "q"),
    ("input_bytes", "q"),
    ("input_records", "q"),
    ("output_bytes", "q"),
    ("output_records", "q"),
    ("peak_memory_bytes", "q"),
)
_ROW = struct.Struct("<" + "".join(code for _, code in _TASK_COLUMNS))
_DTYPE = np.dtype([(name, "<i8" if code == "q" else "<i4") for name, code in _TASK_COLUMNS])
_TASK_NAMES = tuple(name for name, _ in _TASK_COLUMNS)
_LIMITS = tuple(_LARGEST if code == "q" else 2**31 - 1 for _, code in _TASK_COLUMNS)
_TEXTS = ("executor", "host", "locality", "reason")

SPECULATIVE, FAILED, KILLED, ENDED, MEASURED = 1, 2, 4, 8, 16
"""Bits of a task's flags: a speculative copy, failed, killed, seen to end, and with metrics."""


def silent(label: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """Something odd about a log."""

    finding: str
    """Stable name of the kind."""
    severity: str
    """``info``, ``warning`` or ``error``."""
    observed: int
    """How many, or how much."""
    unit: str
    """Unit of it."""
    detail: str
    """What it is about, and what was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """The files of one log, in order."""

    name: str
    """Name of the file or directory, as people know the log."""
    files: tuple[Path, ...]
    """Parts in the order in which they were written."""
    missing: int = 0
    """Parts that are not there."""
    in_progress: bool = False
    """Whether the name says that the application still ran."""


@dataclass(slots=True, kw_only=True)
class SparkLog:
    """What a log holds, as columns; times in milliseconds since 1970, as Spark writes them."""

    name: str = ""
    """Name of the log's file."""
    app_id: str = ""
    """``spark.app.id``; empty where the log does not say."""
    app_name: str = ""
    """Name that the program gave."""
    version: str = ""
    """Spark's version."""
    start_ms: int | None = None
    """When the application started."""
    end_ms: int | None = None
    """When it ended; None where the log does not say."""
    last_ms: int = 0
    """Latest time in the log."""
    first_ms: int = 0
    """Earliest time in the log."""
    complete: bool = False
    """Whether the log has the application's end."""
    properties: dict[str, str] = field(default_factory=dict)
    """Spark's settings that the mapping reads."""
    tasks: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per task attempt, by launch time."""
    stages: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per stage attempt that was submitted, by stage and attempt."""
    jobs: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per job, by number."""
    job_stages: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per job and stage of it, also of stages that were skipped."""
    executors: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per executor, in the order in which they came."""
    executions: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per SQL execution, by number."""
    nodes: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per plan node of a SQL execution's last plan."""
    node_metrics: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per metric of a plan node, with its value where the log has one."""
    stage_metrics: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per accumulator of a completed stage that belongs to a plan node."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """Texts that the tasks' columns executor, host, locality and reason number."""
    events: dict[str, int] = field(default_factory=dict)
    """Events read, counted by name."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Events that say nothing to this reader, counted by name."""
    findings: list[LogFinding] = field(default_factory=list)
    """What is odd."""
    read_bytes: int = 0
    """Bytes of content."""


def find_logs(path: str | os.PathLike[str]) -> list[LogFiles]:
    """Return the logs at a place: a file, a rolling directory, or a directory of both.

    Parameters
    ----------
    path
        File or directory.

    Returns
    -------
    list of LogFiles
        In the order of their names, at least one.

    Raises
    ------
    TraceFormatError
        If there is nothing that could be a log.
    """
    root = Path(path)
    if root.is_file():
        return [LogFiles(name=root.name, files=(root,), in_progress=root.name.endswith(".inprogress"))]
    if not root.is_dir():
        message = f"There is no event log at {root}."
        raise TraceFormatError(message, "Give the file or directory below spark.eventLog.dir.", {"file": str(root)})
    if rolled := _rolled(root):
        return [rolled]
    found = []
    for entry in sorted(root.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            rolled = _rolled(entry)
            found += [rolled] if rolled else []
        elif _looks_like_log(entry):
            found += find_logs(entry)
    if not found:
        message = f"{root} holds no event log."
        raise TraceFormatError(message, "Give the file or directory below spark.eventLog.dir.", {"file": str(root)})
    return found


def looks_like_log(path: Path) -> bool:
    """Return whether a file or directory is one event log, by its names and first bytes."""
    if path.is_dir():
        return _rolled(path) is not None
    return path.is_file() and _looks_like_log(path)


def _looks_like_log(file: Path) -> bool:
    try:
        head = next(decode(file, stopped=lambda _: None), b"")
    except OSError:
        return False
    return head.lstrip()[:1] == b"{" and b'"Event"' in head[:4096]


def _rolled(folder: Path) -> LogFiles | None:
    parts: dict[int, Path] = {}
    compact = -1
    for entry in folder.iterdir():
        match = _PART.match(entry.name)
        if match is None or not entry.is_file():
            continue
        number = int(match[1])
        if entry.name.endswith(".compact"):
            compact = max(compact, number)
            parts[number] = entry
        else:
            parts.setdefault(number, entry)
    if not parts:
        return None
    # A compacted file stands for its own number and all before it.
    numbers = sorted(number for number in parts if number >= compact)
    first = numbers[0] if compact >= 0 else 1
    missing = numbers[-1] - first + 1 - len(numbers)
    running = any(entry.name.endswith(".inprogress") for entry in folder.glob("appstatus_*"))
    return LogFiles(
        name=folder.name, files=tuple(parts[number] for number in numbers), missing=max(missing, 0), in_progress=running
    )


def read_log(log: LogFiles, *, progress: Callable[[str, int, int], None] = silent) -> SparkLog:
    """Read one log.

    Parameters
    ----------
    log
        Its files, as `find_logs` returns them.
    progress
        Called with (label, bytes read, bytes of all files).

    Returns
    -------
    SparkLog
        Always; what could not be read is among its findings.

    Raises
    ------
    TraceFormatError
        If no line of it is an event.

    Notes
    -----
    One pass, a line at a time. Memory grows with the number of tasks (about 200 bytes each), stages and plans, not with
    the length of the log.
    """
    reading = _Reading()
    total = sum(file.stat().st_size for file in log.files)
    before = 0
    for file in log.files:
        stops: list[Stopped] = []

        def advance(done: int, before: int = before) -> None:
            progress("reading", before + done, total)

        for line in _lines(decode(file, stopped=stops.append, progress=advance), reading):
            reading.line(line)
        for stop in stops:
            detail = f"{file.name}: {stop.reason} at byte {stop.offset}; read what is before"
            reading.find(f"file_{stop.reason}", "warning", stop.offset, "bytes", detail)
        before += file.stat().st_size
    if not reading.counts:
        message = f"{log.name} is no event log of Spark: none of its lines is an event."
        raise TraceFormatError(message, "Give the file or directory below spark.eventLog.dir.", {"file": log.name})
    if log.missing:
        detail = "parts of a rolling log are not there; what they said is lost"
        reading.find("log_part_missing", "error", log.missing, "files", detail)
    return reading.result(log)


def _lines(pieces: Iterable[bytes], reading: _Reading) -> Iterator[bytes]:
    rest, too_long = b"", False
    for piece in pieces:
        reading.read_bytes += len(piece)
        lines = piece.split(b"\n")
        if len(lines) == 1:
            if len(rest) + len(piece) > _LONGEST_LINE:
                too_long, rest = True, b""
            elif not too_long:
                rest += piece
            continue
        first = rest + lines[0]
        if too_long:
            reading.too_long += 1
        elif first:
            yield first
        too_long = False
        yield from filter(None, lines[1:-1])
        rest = lines[-1]
    if too_long:
        reading.too_long += 1
    elif rest:
        reading.unended = True
        yield rest


class _Reading:
    """The state of a pass over a log."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self.too_long = 0
        self.unended = False
        self.unparsed = 0
        self.unended_unparsed = False
        self.counts: dict[str, int] = {}
        self.unknown: dict[str, int] = {}
        self.damaged: dict[str, int] = {}
        self.odd_values = 0
        self.findings: list[LogFinding] = []
        self.rows = bytearray()
        self.parts: list[dict[str, NDArray[Any]]] = []
        self.texts: dict[str, dict[str, int]] = {name: {} for name in _TEXTS}
        self.running: dict[int, tuple[Any, ...]] = {}
        self.log = SparkLog()
        self.jobs: dict[int, dict[str, Any]] = {}
        self.job_stages: dict[tuple[int, int], dict[str, Any]] = {}
        self.stages: dict[tuple[int, int], dict[str, Any]] = {}
        self.executors: dict[str, dict[str, Any]] = {}
        self.executions: dict[int, dict[str, Any]] = {}
        self.plans: dict[int, Plan] = {}
        self.metrics: dict[tuple[int, int, int], tuple[int, str]] = {}
        self.driver_metrics: dict[int, int] = {}
        self.wanted: set[int] = set()
        self.first_ms: int | None = None
        self.last_ms = 0
        self.handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "SparkListenerTaskEnd": self._task_end,
            "SparkListenerTaskStart": self._task_start,
            "SparkListenerStageSubmitted": self._stage,
            "SparkListenerStageCompleted": self._stage,
            "SparkListenerJobStart": self._job_start,
            "SparkListenerJobEnd": self._job_end,
            "SparkListenerLogStart": self._log_start,
            "SparkListenerApplicationStart": self._application_start,
            "SparkListenerApplicationEnd": self._application_end,
            "SparkListenerEnvironmentUpdate": self._environment,
            "SparkListenerExecutorAdded": self._executor_added,
            "SparkListenerExecutorRemoved": self._executor_removed,
            "SparkListenerExecutorDecommission": self._executor_decommission,
            f"{_SQL}SQLExecutionStart": self._execution_start,
            f"{_SQL}SQLExecutionEnd": self._execution_end,
            f"{_SQL}SQLAdaptiveExecutionUpdate": self._execution_plan,
            f"{_SQL}DriverAccumUpdates": self._driver_metrics,
        }

    def find(self, finding: str, severity: str, observed: int, unit: str, detail: str) -> None:
        """Note something odd."""
        self.findings.append(
            LogFinding(finding=finding, severity=severity, observed=observed, unit=unit, detail=detail)
        )

    def line(self, line: bytes) -> None:
        """Take in one line."""
        try:
            event = orjson.loads(line)
            # Whoever writes no text there fails here, as one who writes no event does.
            name = event["Event"].strip()
            self.counts[name] = self.counts.get(name, 0) + 1
        except (ValueError, KeyError, TypeError, AttributeError):
            self.unparsed += 1
            return
        handler = self.handlers.get(name)
        if handler is None:
            self.unknown[name] = self.unknown.get(name, 0) + 1
            return
        try:
            handler(event)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, struct.error, OverflowError):
            self.damaged[name] = self.damaged.get(name, 0) + 1

    def _time(self, value: Any) -> int | None:
        """Return a time; None for none. Anything else than a time raises."""
        if value is None or value in {0, -1}:
            return None
        if isinstance(value, str):
            value = int(value)
        if type(value) is not int or not 0 < value < _LATEST_MS:
            raise ValueError
        self.last_ms = max(self.last_ms, value)
        if self.first_ms is None or value < self.first_ms:
            self.first_ms = value
        return value

    def _code(self, column: str, value: Any) -> int:
        if type(value) is not str:
            value = "" if value is None else str(value)
        codes = self.texts[column]
        code = codes.get(value)
        if code is None:
            code = codes[value] = len(codes)
        return code

    def _task_end(self, event: dict[str, Any]) -> None:
        info = event["Task Info"]
        metrics = event.get("Task Metrics") or {}
        read = metrics.get("Shuffle Read Metrics") or {}
        write = metrics.get("Shuffle Write Metrics") or {}
        taken = metrics.get("Input Metrics") or {}
        put = metrics.get("Output Metrics") or {}
        reason = event.get("Task End Reason") or {}
        launch, finish = info["Launch Time"], info.get("Finish Time", 0)
        why = reason.get("Reason", "")
        if why != "Success":
            why = _reason(reason)
        row: tuple[Any, ...] = (
            info["Task ID"],
            launch,
            finish,
            info.get("Getting Result Time", 0),
            event["Stage ID"],
            event.get("Stage Attempt ID", 0),
            info.get("Index", 0),
            info.get("Attempt", 0),
            self._code("executor", info.get("Executor ID")),
            self._code("host", info.get("Host")),
            self._code("locality", info.get("Locality")),
            self._code("reason", why),
            (SPECULATIVE if info.get("Speculative") else 0)
            | (FAILED if info.get("Failed") else 0)
            | (KILLED if info.get("Killed") else 0)
            | ENDED
            | (MEASURED if metrics else 0),
            metrics.get("Executor Deserialize Time", 0),
            metrics.get("Executor Run Time", 0),
            metrics.get("JVM GC Time", 0),
            metrics.get("Result Serialization Time", 0),
            read.get("Fetch Wait Time", 0),
            metrics.get("Executor CPU Time", 0),
            write.get("Shuffle Write Time", 0),
            metrics.get("Result Size", 0),
            metrics.get("Memory Bytes Spilled", 0),
            metrics.get("Disk Bytes Spilled", 0),
            read.get("Remote Bytes Read", 0),
            read.get("Local Bytes Read", 0),
            read.get("Total Records Read", 0),
            write.get("Shuffle Bytes Written", 0),
            write.get("Shuffle Records Written", 0),
            taken.get("Bytes Read", 0),
            taken.get("Records Read", 0),
            put.get("Bytes Written", 0),
            put.get("Records Written", 0),
            metrics.get("Peak Execution Memory", 0),
        )
        try:
            packed = _ROW.pack(*row)
            fits = min(row) >= 0
        except (struct.error, TypeError):
            fits = False
        if not fits:
            packed = _ROW.pack(*map(self._number, row, _LIMITS))
            launch, finish = (self._number(value, _LARGEST) for value in (launch, finish))
        if not 0 < launch < _LATEST_MS or finish >= _LATEST_MS:
            raise ValueError
        self.rows += packed
        if len(self.rows) >= _FLUSH:
            self._flush()
        self.running.pop(row[0] if fits else -1, None)
        self.last_ms = max(self.last_ms, launch, finish)
        if self.first_ms is None or launch < self.first_ms:
            self.first_ms = launch

    def _number(self, value: Any, limit: int) -> int:
        """Return a number within its column's range; what is none counts as odd and becomes 0."""
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                value = None
        if isinstance(value, float) and value == value and abs(value) <= limit:  # noqa: PLR0124 not NaN
            value = int(value)
        if not isinstance(value, int) or not 0 <= value <= limit:
            self.odd_values += 1
            return limit if isinstance(value, int) and value > limit else 0
        return value

    def _task_start(self, event: dict[str, Any]) -> None:
        info = event["Task Info"]
        key, launch = info["Task ID"], self._time(info["Launch Time"])
        if type(key) is not int or launch is None:
            raise ValueError
        self.running[key] = (
            key,
            launch,
            0,
            0,
            event["Stage ID"],
            event.get("Stage Attempt ID", 0),
            info.get("Index", 0),
            info.get("Attempt", 0),
            self._code("executor", info.get("Executor ID")),
            self._code("host", info.get("Host")),
            self._code("locality", info.get("Locality")),
            self._code("reason", "the log does not say how it ended"),
            SPECULATIVE if info.get("Speculative") else 0,
            *([0] * (len(_TASK_COLUMNS) - 13)),
        )

    def _stage(self, event: dict[str, Any]) -> None:
        self._stage_info(event["Stage Info"], event.get("Properties") or {})

    def _stage_info(self, info: dict[str, Any], properties: dict[str, Any]) -> None:
        key = (int(info["Stage ID"]), int(info.get("Stage Attempt ID", 0)))
        stage = self.stages.setdefault(key, {"execution": None, **_stage_facts(info)})
        stage["submitted_ms"] = self._time(info.get("Submission Time")) or stage.get("submitted_ms")
        stage["completed_ms"] = self._time(info.get("Completion Time")) or stage.get("completed_ms")
        failure = info.get("Failure Reason")
        stage["failure"] = str(failure).split("\n", 1)[0][:500] if failure else stage.get("failure")
        if execution := properties.get("spark.sql.execution.id"):
            stage["execution"] = int(execution)
        for item in info.get("Accumulables") or ():
            number = item.get("ID")
            if number in self.wanted and isinstance(item.get("Value"), int | str):
                try:
                    self.metrics[(*key, number)] = (int(item["Value"]), str(item.get("Name", "")))
                except ValueError:
                    continue

    def _job_start(self, event: dict[str, Any]) -> None:
        number = int(event["Job ID"])
        properties = event.get("Properties") or {}
        submitted = self._time(event.get("Submission Time"))
        infos = [info for info in event.get("Stage Infos") or () if isinstance(info, dict)]
        for info in infos:
            facts = _stage_facts(info)
            self.job_stages[number, int(info["Stage ID"])] = facts
        for stage in event.get("Stage IDs") or ():
            self.job_stages.setdefault((number, int(stage)), _stage_facts({}))
        last = max(infos, key=lambda info: int(info["Stage ID"]), default={})
        self.jobs[number] = {
            "submitted_ms": submitted,
            "completed_ms": None,
            "name": str(properties.get("spark.job.description") or last.get("Stage Name") or "")[:500],
            "group": _text(properties.get("spark.jobGroup.id")),
            "pool": _text(properties.get("spark.scheduler.pool")),
            "execution": _integer(properties.get("spark.sql.execution.id")),
            "root": _integer(properties.get("spark.sql.execution.root.id")),
            "query": _text(properties.get("sql.streaming.queryId")),
            "batch": _integer(properties.get("streaming.sql.batchId")),
            "result": None,
            "error": None,
        }

    def _job_end(self, event: dict[str, Any]) -> None:
        job = self.jobs.get(int(event["Job ID"]))
        completed = self._time(event.get("Completion Time"))
        if job is None:
            job = self.jobs[int(event["Job ID"])] = {}
        result = event.get("Job Result") or {}
        job["completed_ms"] = completed
        job["result"] = _text(result.get("Result"))
        error = (result.get("Exception") or {}).get("Message")
        job["error"] = str(error).split("\n", 1)[0][:500] if error else None

    def _log_start(self, event: dict[str, Any]) -> None:
        self.log.version = str(event.get("Spark Version", ""))[:64]

    def _application_start(self, event: dict[str, Any]) -> None:
        self.log.app_name = str(event.get("App Name", ""))[:500]
        self.log.app_id = str(event.get("App ID") or "")[:200]
        self.log.start_ms = self._time(event["Timestamp"])

    def _application_end(self, event: dict[str, Any]) -> None:
        self.log.end_ms = self._time(event["Timestamp"])
        self.log.complete = True

    def _environment(self, event: dict[str, Any]) -> None:
        for key, value in (event.get("Spark Properties") or {}).items():
            # Only what the mapping and the advice read: settings can hold secrets.
            if key in _SETTINGS:
                self.log.properties[key] = str(value)[:500]

    def _executor_added(self, event: dict[str, Any]) -> None:
        info = event["Executor Info"]
        name = str(event["Executor ID"])
        added = self._time(event["Timestamp"])
        executor = self.executors.setdefault(name, {"removed_ms": None, "reason": None, "decommissioned_ms": None})
        executor.update(
            host=str(info.get("Host", "")), cores=max(0, min(int(info.get("Total Cores", 0)), 4096)), added_ms=added
        )

    def _executor_removed(self, event: dict[str, Any]) -> None:
        name = str(event["Executor ID"])
        removed = self._time(event["Timestamp"])
        executor = self.executors.setdefault(name, {"removed_ms": None, "reason": None, "decommissioned_ms": None})
        executor["removed_ms"] = removed
        executor["reason"] = str(event.get("Removed Reason") or "").split("\n", 1)[0][:500]

    def _executor_decommission(self, event: dict[str, Any]) -> None:
        executor = self.executors.get(str(event.get("Executor Id") or event.get("Executor ID")))
        if executor is not None:
            executor["decommissioned_ms"] = self._time(event.get("Timestamp"))

    def _execution_start(self, event: dict[str, Any]) -> None:
        number = int(event["executionId"])
        self.executions[number] = {
            "root": _integer(event.get("rootExecutionId")),
            "name": str(event.get("description") or "")[:500],
            "started_ms": self._time(event["time"]),
            "ended_ms": None,
            "error": None,
        }
        self._plan(number, event)

    def _execution_plan(self, event: dict[str, Any]) -> None:
        self._plan(int(event["executionId"]), event)

    def _plan(self, number: int, event: dict[str, Any]) -> None:
        plan = plan_nodes(event.get("sparkPlanInfo") or {})
        old = self.plans.get(number)
        # Metrics of earlier plans still count: an adaptive plan forgets the accumulators of what is done.
        self.plans[number] = plan if old is None else plan.with_metrics_of(old)
        self.wanted.update(accumulator for _, accumulator, _, _ in plan.metrics)

    def _execution_end(self, event: dict[str, Any]) -> None:
        execution = self.executions.get(int(event["executionId"]))
        ended = self._time(event["time"])
        if execution is not None:
            execution["ended_ms"] = ended
            error = event.get("errorMessage")
            execution["error"] = str(error).split("\n", 1)[0][:500] if error else None

    def _driver_metrics(self, event: dict[str, Any]) -> None:
        for number, value in event.get("accumUpdates") or ():
            if type(number) is int and type(value) is int and abs(value) <= _LARGEST:
                self.driver_metrics[number] = value

    def result(self, log: LogFiles) -> SparkLog:
        """Return all as tables."""
        self._count_findings(log)
        out = self.log
        out.name = log.name
        for row in self.running.values():
            self.rows += _ROW.pack(*map(self._number, row, _LIMITS))
        out.first_ms = self.first_ms or 0
        out.last_ms = max(self.last_ms, out.first_ms)
        out.tasks = self._tasks()
        out.texts = {name: list(codes) for name, codes in self.texts.items()}
        out.stages = _frame(_STAGES, [{"stage": s, "stage_attempt": a, **v} for (s, a), v in self.stages.items()])
        out.jobs = _frame(_JOBS, [{"job": job, **values} for job, values in sorted(self.jobs.items())])
        rows = [{"job": job, "stage": stage, **values} for (job, stage), values in sorted(self.job_stages.items())]
        out.job_stages = _frame(_JOB_STAGES, rows)
        out.executors = _frame(_EXECUTORS, [{"executor": name, **values} for name, values in self.executors.items()])
        out.executions = _frame(_EXECUTIONS, [{"execution": e, **v} for e, v in sorted(self.executions.items())])
        out.nodes = _frame(_NODES, [row for e, plan in sorted(self.plans.items()) for row in plan.node_rows(e)])
        rows = [row for e, plan in sorted(self.plans.items()) for row in plan.metric_rows(e, self.driver_metrics)]
        out.node_metrics = _frame(_NODE_METRICS, rows)
        out.stage_metrics = _frame(
            _STAGE_METRICS,
            [
                {"stage": s, "stage_attempt": a, "accumulator": n, "value": max(-_LARGEST, min(value, _LARGEST))}
                for (s, a, n), (value, _) in self.metrics.items()
            ],
        )
        out.events, out.unknown, out.findings = dict(self.counts), dict(self.unknown), self.findings
        out.read_bytes = self.read_bytes
        return out

    def _count_findings(self, log: LogFiles) -> None:
        if self.unparsed:
            detail = "lines that are no event (the last one may be cut short); left out"
            self.find("line_unreadable", "warning", self.unparsed, "lines", detail)
        if self.too_long:
            detail = f"lines longer than {_LONGEST_LINE >> 20} MiB; left out"
            self.find("line_too_long", "warning", self.too_long, "lines", detail)
        for name, count in sorted(self.damaged.items()):
            detail = f"{name} events that lack a value or hold one of another type; left out"
            self.find("event_damaged", "warning", count, "events", detail)
        if self.odd_values:
            detail = "numbers of tasks that are out of range; taken as 0 or as the largest number"
            self.find("value_out_of_range", "warning", self.odd_values, "values", detail)
        if self.unknown:
            names = ", ".join(
                f"{count} x {name.rsplit('.', 1)[-1][:60]}" for name, count in sorted(self.unknown.items())[:8]
            )
            self.find("event_unknown", "info", sum(self.unknown.values()), "events", f"not needed here: {names}")
        if not self.log.complete:
            state = "still ran when the log was read" if log.in_progress else "has no end in the log"
            detail = f"the application {state}; answers are about what is there"
            self.find("log_incomplete", "warning", 1, "logs", detail)

    def _flush(self) -> None:
        """Turn the rows so far into columns, as narrow as their numbers allow: most metrics of most tasks are 0."""
        rows = np.frombuffer(bytes(self.rows), _DTYPE)
        self.rows = bytearray()
        if rows.size:
            self.parts.append({name: _narrow(rows[name]) for name in _TASK_NAMES})

    def _column(self, name: str) -> pl.Series:
        """Return a column of all tasks, in the order of the log."""
        parts = [part.pop(name) for part in self.parts]
        return pl.Series(name, np.concatenate(parts, dtype=_DTYPE[name]) if parts else np.zeros(0, _DTYPE[name]))

    def _tasks(self) -> pl.DataFrame:
        self._flush()
        known = {name: self._column(name) for name in ("task", "launch_ms", "reason")}
        order, again = self._order(pl.DataFrame(known).with_row_index("row"))
        # Column by column, so that a long log is never in memory twice.
        columns = {}
        for name in _TASK_NAMES:
            column = known.pop(name) if name in known else self._column(name)
            columns[name] = column.gather(order)
        return pl.DataFrame(columns).with_columns(output_lost=pl.col("task").is_in(again.implode()))

    def _order(self, keys: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """Return the rows that count, by launch, and the tasks whose output was lost."""
        # Spark reports a task again, as resubmitted, when the executor that holds its output is lost.
        lost = self.texts["reason"].get("Resubmitted", -1)
        again = keys.filter(pl.col("reason") == lost)["task"].unique()
        own = keys.filter(pl.col("reason") != lost)
        alone = keys.filter((pl.col("reason") == lost) & ~pl.col("task").is_in(own["task"].implode()))
        kept = pl.concat([own, alone]).unique("task", keep="first", maintain_order=True)
        twice = own.height + alone.height - kept.height
        if twice:
            detail = "ends of tasks that the log states twice; the first one counts"
            self.find("task_end_twice", "warning", twice, "events", detail)
        return kept.sort("launch_ms", "task")["row"], again


_SETTINGS = frozenset(
    {
        "spark.app.id",
        "spark.app.name",
        "spark.cores.max",
        "spark.default.parallelism",
        "spark.dynamicAllocation.enabled",
        "spark.executor.cores",
        "spark.executor.memory",
        "spark.locality.wait",
        "spark.master",
        "spark.scheduler.mode",
        "spark.speculation",
        "spark.sql.adaptive.enabled",
        "spark.sql.shuffle.partitions",
        "spark.task.cpus",
    }
)

_I, _S = pl.Int64, pl.String
_STAGE_COLUMNS: dict[str, Any] = {
    "name": _S,
    "tasks": _I,
    "parents": pl.List(_I),
    "rdd": _I,
    "scopes": pl.List(_S),
}
_STAGES: dict[str, Any] = {
    "stage": _I,
    "stage_attempt": _I,
    **_STAGE_COLUMNS,
    "execution": _I,
    "submitted_ms": _I,
    "completed_ms": _I,
    "failure": _S,
}
_JOB_STAGES: dict[str, Any] = {"job": _I, "stage": _I, **_STAGE_COLUMNS}
_JOBS: dict[str, Any] = {
    "job": _I,
    "name": _S,
    "group": _S,
    "pool": _S,
    "execution": _I,
    "root": _I,
    "query": _S,
    "batch": _I,
    "submitted_ms": _I,
    "completed_ms": _I,
    "result": _S,
    "error": _S,
}
_EXECUTORS: dict[str, Any] = {
    "executor": _S,
    "host": _S,
    "cores": _I,
    "added_ms": _I,
    "removed_ms": _I,
    "reason": _S,
    "decommissioned_ms": _I,
}
_EXECUTIONS: dict[str, Any] = {
    "execution": _I,
    "root": _I,
    "name": _S,
    "started_ms": _I,
    "ended_ms": _I,
    "error": _S,
}
_NODES: dict[str, Any] = {"execution": _I, "node": _I, "parent": _I, "name": _S, "text": _S, "scope": _S}
_NODE_METRICS: dict[str, Any] = {
    "execution": _I,
    "node": _I,
    "accumulator": _I,
    "metric": _S,
    "kind": _S,
    "driver_value": _I,
}
_STAGE_METRICS: dict[str, Any] = {"stage": _I, "stage_attempt": _I, "accumulator": _I, "value": _I}


def _frame(schema: dict[str, Any], rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in schema}, schema=schema)


def _stage_facts(info: dict[str, Any]) -> dict[str, Any]:
    rdds = [rdd for rdd in info.get("RDD Info") or () if isinstance(rdd, dict)]
    scopes = []
    for rdd in rdds:
        if scope := rdd.get("Scope"):
            try:
                scopes.append(str(orjson.loads(scope)["name"]))
            except (ValueError, KeyError, TypeError):
                continue
    return {
        "name": str(info.get("Stage Name") or "")[:500],
        "tasks": _integer(info.get("Number of Tasks")) or 0,
        "parents": [int(parent) for parent in info.get("Parent IDs") or ()],
        "rdd": max((int(rdd.get("RDD ID", -1)) for rdd in rdds), default=None),
        "scopes": list(dict.fromkeys(scopes)),
    }


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers that are not negative in the narrowest type that holds them."""
    most = int(values.max())
    kind = next(kind for kind in (np.int8, np.int16, np.int32, np.int64) if most <= np.iinfo(kind).max)
    return values.astype(kind)


def _integer(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) <= _LARGEST else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:500]


def _reason(reason: dict[str, Any]) -> str:
    """Return why a task ended, in one line."""
    name = str(reason.get("Reason", "unknown"))[:200]
    more = {
        "ExecutorLostFailure": "Loss Reason",
        "TaskKilled": "Kill Reason",
        "FetchFailed": "Message",
        "ExceptionFailure": "Class Name",
    }.get(name)
    detail = str(reason.get(more) or "").split("\n", 1)[0][:200] if more else ""
    return f"{name}: {detail}" if detail else name
