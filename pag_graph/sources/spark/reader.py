"""Reads event logs of Spark 2 to 4 line by line into columns; nothing in a log makes it fail.

What cannot be read is counted and becomes a `LogFinding`; the rest is read all the same.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import orjson

from pag_graph.builder.engine import silent
from pag_graph.errors import TraceFormatError
from pag_graph.sources.spark import log_tables as tables
from pag_graph.sources.spark.accumulators import Accumulators
from pag_graph.sources.spark.begins import Begin, starts_another
from pag_graph.sources.spark.cached_blocks import CachedBlocks
from pag_graph.sources.spark.codecs import Stopped, decode
from pag_graph.sources.spark.event_values import SQL, id_of, integer, stage_facts
from pag_graph.sources.spark.executor_memory import ExecutorMemory
from pag_graph.sources.spark.log_lines import Lines
from pag_graph.sources.spark.log_tables import LogFinding, SparkLog, frame
from pag_graph.sources.spark.memory_errors import enough_memory
from pag_graph.sources.spark.plans import Plan, plan_mark, plan_nodes
from pag_graph.sources.spark.reading_findings import event_findings, lost_events
from pag_graph.sources.spark.settings import known_settings
from pag_graph.sources.spark.stream_progress import progress_row
from pag_graph.sources.spark.task_rows import (
    ENDED,
    FAILED,
    KILLED,
    LARGEST,
    LARGEST_ID,
    LATEST_MS,
    LOCALITIES,
    LOCALITY,
    MEASURED,
    SPECULATIVE,
    TaskRows,
    measures,
)
from pag_graph.sources.spark.texts import OTHER, Texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.sources.spark.logfiles import LogFiles

__all__ = ["Reading", "read_log"]

_MOST_EXECUTORS = 100_000
"""Each of them is a worker at least, whatever it did."""
_MOST_NAMES = 1_000
"""Names of events that are told apart: Spark has some hundred."""
_PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"


def read_log(
    log: LogFiles, *, keep_texts: bool = False, progress: Callable[[str, int, int], None] = silent
) -> SparkLog:
    """Read one log.

    Parameters
    ----------
    log
        Its files, as `find_logs` returns them.
    keep_texts
        Whether to keep descriptions of jobs and queries, names of plan nodes with all their words, and reasons in
        full. Without it only names are kept (`texts.py`).
    progress
        Called with (label, bytes read, bytes of all files).

    Returns
    -------
    SparkLog
        Always; what could not be read is among its findings.

    Raises
    ------
    TraceFormatError
        If no line of it is an event, a file cannot be read, or the log needs more memory than there is.

    Notes
    -----
    One pass, a line at a time. Memory grows with the number of tasks (60 to 170 bytes each, as large as their numbers),
    stages and plans, not with the length of the log.
    """
    reading = Reading(Texts(keep_texts))
    try:
        with enough_memory(log):
            _read_files(log, reading, progress)
            if missing := log.missing + reading.missing_parts():
                reading.find("log_part_missing", "error", missing, "files", "parts of a rolling log that are not there")
            if reading.counts:
                return reading.result(log)
    except OSError as error:
        message = f"{log.name} cannot be read: {error.strerror or error}."
        raise TraceFormatError(message, "Look at the file and who may read it.", {"file": log.name}) from error
    message = f"{log.name} is not an event log of Spark: none of its lines is an event."
    raise TraceFormatError(message, "Give the file or directory below spark.eventLog.dir.", {"file": log.name})


def _read_files(log: LogFiles, reading: Reading, progress: Callable[[str, int, int], None]) -> None:
    total = sum(file.stat().st_size for file in log.files)
    before = 0
    for file in log.files:
        stops: list[Stopped] = []

        def advance(done: int, before: int = before) -> None:
            progress("reading", before + done, total)

        for line in reading.lines.of(decode(file, stopped=stops.append, progress=advance)):
            reading.line(line)
            if len(reading.executors) > _MOST_EXECUTORS:
                message = f"{log.name} has more than {_MOST_EXECUTORS:,} executors, which is the limit."
                raise TraceFormatError(message, "Look at whether it is a log of one application.", {"file": log.name})
        for stop in stops:
            detail = f"{file.name}: {stop.reason} at byte {stop.offset}; read what is before"
            reading.find(f"file_{stop.reason}", "warning", stop.offset, "bytes", detail)
        before += file.stat().st_size


class Reading:
    """The state of a pass over a log."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.lines = Lines()
        self.counts: dict[str, int] = {}
        self.unknown: dict[str, int] = {}
        self.damaged: dict[str, int] = {}
        self.findings: list[LogFinding] = []
        self.tasks = TaskRows()
        self.running: dict[int, tuple[Any, ...]] = {}
        self.log = SparkLog()
        self.jobs: dict[int, dict[str, Any]] = {}
        self.job_stages: dict[tuple[int, int], dict[str, Any]] = {}
        self.stages: dict[tuple[int, int], dict[str, Any]] = {}
        self.executors: dict[str, dict[str, Any]] = {}
        self.executions: dict[int, dict[str, Any]] = {}
        self.plans: dict[int, Plan] = {}
        self.accumulators = Accumulators()
        self.memory = ExecutorMemory()
        self.blocks = CachedBlocks()
        self.progress: list[dict[str, Any]] = []
        self.driver_metrics: dict[int, int] = {}
        self.first_started: int | None = None
        self.rolled: set[int] = set()
        self.ended = False
        self.begin: Begin | None = None
        self.first_ms: int | None = None
        self.unparsed = self.of_others = self.last_ms = 0
        self.handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "SparkListenerTaskEnd": self._task_end,
            "SparkListenerTaskStart": self._task_start,
            "SparkListenerStageSubmitted": self._stage,
            "SparkListenerStageCompleted": self._stage,
            "SparkListenerJobStart": self._job_start,
            "SparkListenerJobEnd": self._job_end,
            "SparkListenerLogStart": self._log_start,
            "DBCEventLoggingListenerMetadata": self._databricks_start,
            "SparkListenerApplicationStart": self._application_start,
            "SparkListenerApplicationEnd": self._application_end,
            "SparkListenerEnvironmentUpdate": lambda event: self.log.properties.update(
                known_settings(event.get("Spark Properties"))
            ),
            "SparkListenerExecutorAdded": self._executor_added,
            "SparkListenerExecutorRemoved": self._executor_removed,
            "SparkListenerExecutorDecommission": self._executor_decommission,
            f"{SQL}SQLExecutionStart": self._execution_start,
            f"{SQL}SQLExecutionEnd": self._execution_end,
            f"{SQL}SQLAdaptiveExecutionUpdate": self._execution_plan,
            f"{SQL}DriverAccumUpdates": self._driver_metrics,
            "SparkListenerStageExecutorMetrics": lambda event: self.memory.add(
                event["Executor ID"], event["Executor Metrics"]
            ),
            "SparkListenerBlockUpdated": self.blocks.add,
            _PROGRESS: lambda event: self.progress.append(progress_row(event, self.texts)),
        }

    def find(self, finding: str, severity: str, observed: int, unit: str, detail: str) -> None:
        """Note something odd.

        Parameters
        ----------
        finding, severity
            Its stable name, and ``info``, ``warning`` or ``error``.
        observed, unit
            How much of it there is, and of what; 0 is noted as well.
        detail
            What it means, and what was done about it.
        """
        self.findings.append(
            LogFinding(finding=finding, severity=severity, observed=observed, unit=unit, detail=detail)
        )

    def line(self, line: bytes) -> None:
        """Take in one line."""
        try:
            event = orjson.loads(line)
            # Whoever writes no text there fails here, as one who writes no event does.
            name = event["Event"].strip()
            if name not in self.counts:
                name = self.texts.class_name(name) if len(self.counts) < _MOST_NAMES else OTHER
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
        if type(value) is not int or not 0 < value < LATEST_MS:
            raise ValueError
        self.last_ms = max(self.last_ms, value)
        if self.first_ms is None or value < self.first_ms:
            self.first_ms = value
        return value

    def _task_end(self, event: dict[str, Any]) -> None:
        info, code = event["Task Info"], self.tasks.code
        metrics = event.get("Task Metrics") or {}
        reason = event.get("Task End Reason") or {}
        launch, finish = info["Launch Time"], info.get("Finish Time", 0)
        end_reason = reason.get("Reason", "")
        if end_reason != "Success":
            end_reason = self.texts.task_end(reason)
        row: tuple[Any, ...] = (
            info["Task ID"],
            launch,
            finish,
            info.get("Getting Result Time", 0),
            *self._whose(event, info),
            code("reason", end_reason),
            (SPECULATIVE if info.get("Speculative") else 0)
            | (FAILED if info.get("Failed") else 0)
            | (KILLED if info.get("Killed") else 0)
            | ENDED
            | (MEASURED if metrics else 0)
            | LOCALITIES.get(info.get("Locality"), 0) * LOCALITY,
            *measures(metrics),
        )
        task, launch, finish = self.tasks.add(row)
        # An end that comes again, as it does when the task's output is lost, states its updates again.
        was_running = self.running.pop(task, None) is not None
        repeated = not was_running and self.first_started is not None and task >= self.first_started
        if task >= 0 and not repeated and end_reason != "Resubmitted" and (updates := info.get("Accumulables")):
            self.accumulators.add_task(row[4], row[5], updates)
        self.memory.add_task(info.get("Executor ID"), metrics.get("Peak Execution Memory"))
        if peaks := event.get("Task Executor Metrics"):
            self.memory.add(info.get("Executor ID"), peaks)
        self.last_ms = max(self.last_ms, launch, finish)
        if self.first_ms is None or launch < self.first_ms:
            self.first_ms = launch

    def _whose(self, event: dict[str, Any], info: dict[str, Any]) -> tuple[Any, ...]:
        """Return which task of which stage it is about, and where that runs."""
        code = self.tasks.code
        return (
            event["Stage ID"],
            event.get("Stage Attempt ID", 0),
            info.get("Index", 0),
            info.get("Attempt", 0),
            code("executor", info.get("Executor ID")),
            code("host", info.get("Host")),
        )

    def _task_start(self, event: dict[str, Any]) -> None:
        info, code = event["Task Info"], self.tasks.code
        key, launch = info["Task ID"], self._time(info["Launch Time"])
        if type(key) is not int or launch is None:
            raise ValueError
        if self.first_started is None or key < self.first_started:
            self.first_started = key
        self.running[key] = (
            key,
            launch,
            0,
            0,
            *self._whose(event, info),
            code("reason", "the log does not say how it ended"),
            SPECULATIVE if info.get("Speculative") else 0,
        )

    def _stage(self, event: dict[str, Any]) -> None:
        self._stage_info(event["Stage Info"], event.get("Properties") or {})

    def _stage_info(self, info: dict[str, Any], properties: dict[str, Any]) -> None:
        key = (id_of(info["Stage ID"]), id_of(info.get("Stage Attempt ID", 0)))
        stage = self.stages.setdefault(key, {"execution": None, **stage_facts(info, self.texts)})
        stage["submitted_ms"] = self._time(info.get("Submission Time")) or stage.get("submitted_ms")
        stage["completed_ms"] = self._time(info.get("Completion Time")) or stage.get("completed_ms")
        if execution := properties.get("spark.sql.execution.id"):
            stage["execution"] = id_of(execution, LARGEST)
        stage["failed"] = bool(info.get("Failure Reason"))
        if totals := info.get("Accumulables"):
            self.accumulators.add_stage(*key, totals)

    def _job_start(self, event: dict[str, Any]) -> None:
        number = id_of(event["Job ID"])
        properties = event.get("Properties") or {}
        submitted = self._time(event.get("Submission Time"))
        infos = [info for info in event.get("Stage Infos") or () if isinstance(info, dict)]
        for info in infos:
            facts = stage_facts(info, self.texts)
            self.job_stages[number, id_of(info["Stage ID"])] = facts
        for stage in event.get("Stage IDs") or ():
            self.job_stages.setdefault((number, id_of(stage)), stage_facts({}, self.texts))
        last_stage = max(infos, key=lambda info: id_of(info["Stage ID"]), default={})
        self.jobs[number] = {
            "submitted_ms": submitted,
            "completed_ms": None,
            "name": self.texts.call_site(properties.get("spark.job.description"))
            or self.texts.call_site(last_stage.get("Stage Name")),
            "execution": integer(properties.get("spark.sql.execution.id")),
            "root": integer(properties.get("spark.sql.execution.root.id")),
            "query": self.texts.query(properties.get("sql.streaming.queryId")),
            "batch": integer(properties.get("streaming.sql.batchId")),
            "result": None,
        }

    def _job_end(self, event: dict[str, Any]) -> None:
        number = id_of(event["Job ID"])
        job = self.jobs.get(number)
        completed = self._time(event.get("Completion Time"))
        if job is None:
            job = self.jobs[number] = {}
        job_result = event.get("Job Result") or {}
        job["completed_ms"] = completed
        if isinstance(exception := job_result.get("Exception"), dict):
            job["failure"] = self.texts.failure(exception.get("Message"))
        job["result"] = None if job_result.get("Result") is None else self.texts.class_name(job_result["Result"])

    def _log_start(self, event: dict[str, Any]) -> None:
        if self.ended:
            self._second_application(event)
        else:
            self.begin = Begin(self)
            self.log.version = self.log.version or self.texts.version(event.get("Spark Version"))

    def _databricks_start(self, event: dict[str, Any]) -> None:
        """Take in what Databricks writes at the begin of each part of a log, in place of Spark's own first event."""
        self.log.version = self.log.version or self.texts.version(event.get("Spark Version"))
        part_number = integer(event.get("Rollover Number"))
        if part_number is not None:
            self.rolled.add(part_number)

    def _second_application(self, _event: dict[str, Any]) -> None:
        """Leave this event out and all after it: they bear the numbers of jobs, stages and tasks a second time."""
        self.of_others += 1
        self.handlers = dict.fromkeys(self.handlers, self._second_application)

    def _application_start(self, event: dict[str, Any]) -> None:
        app_id = str(event.get("App ID") or "")[:200]
        if starts_another(self, event, app_id):
            if self.begin is not None:
                self.of_others += self.begin.restore(self)
            self._second_application(event)
            return
        self.begin = None
        self.log.app_name, self.log.app_id = str(event.get("App Name", ""))[:500], app_id
        self.log.start_ms = self._time(event["Timestamp"])

    def _application_end(self, event: dict[str, Any]) -> None:
        self.log.end_ms = self._time(event["Timestamp"])
        self.log.complete = self.ended = True

    def _executor_added(self, event: dict[str, Any]) -> None:
        info = event["Executor Info"]
        name = str(event["Executor ID"])
        added = self._time(event["Timestamp"])
        executor = self.executors.setdefault(name, {"removed_ms": None, "reason": None, "decommissioned_ms": None})
        executor.update(
            host=str(info.get("Host", ""))[:200], cores=self._cores(info.get("Total Cores", 0)), added_ms=added
        )

    def _cores(self, value: Any) -> int:
        """Return how many cores an executor has; 0, which is unknown, for a number that cannot be."""
        cores = integer(value)
        if cores is None or not 0 <= cores <= LARGEST_ID:
            self.tasks.odd_values += 1
            return 0
        return cores

    def _executor_removed(self, event: dict[str, Any]) -> None:
        name = str(event["Executor ID"])
        removed = self._time(event["Timestamp"])
        executor = self.executors.setdefault(name, {"removed_ms": None, "reason": None, "decommissioned_ms": None})
        executor["removed_ms"] = removed
        executor["reason"] = self.texts.reason(event.get("Removed Reason"))

    def _executor_decommission(self, event: dict[str, Any]) -> None:
        executor = self.executors.get(str(event.get("Executor Id") or event.get("Executor ID")))
        if executor is not None:
            executor["decommissioned_ms"] = self._time(event.get("Timestamp"))

    def _execution_start(self, event: dict[str, Any]) -> None:
        number = id_of(event["executionId"], LARGEST)
        self.executions[number] = {
            "root": integer(event.get("rootExecutionId")),
            "name": self.texts.call_site(event.get("description")),
            "started_ms": self._time(event["time"]),
            "ended_ms": None,
            "mark": plan_mark(event.get("sparkPlanInfo")),
            "replanned": 0,
        }
        if changed := known_settings(event.get("modifiedConfigs")):
            self.log.query_settings[number] = changed
        self._plan(number, event)

    def _execution_plan(self, event: dict[str, Any]) -> None:
        number = id_of(event["executionId"], LARGEST)
        if number in self.executions:
            self.executions[number]["replanned"] += 1
        self._plan(number, event)

    def _plan(self, number: int, event: dict[str, Any]) -> None:
        plan = plan_nodes(event.get("sparkPlanInfo") or {}, self.texts)
        earlier_plan = self.plans.get(number)
        # Metrics of earlier plans still count: an adaptive plan forgets the accumulators of what is done.
        self.plans[number] = plan if earlier_plan is None else plan.with_metrics_of(earlier_plan)
        self.accumulators.wanted.update(accumulator for _, accumulator, _, _ in plan.metrics)

    def _execution_end(self, event: dict[str, Any]) -> None:
        execution = self.executions.get(id_of(event["executionId"], LARGEST))
        ended_ms = self._time(event["time"])
        if execution is not None:
            execution["ended_ms"] = ended_ms

    def _driver_metrics(self, event: dict[str, Any]) -> None:
        for number, added in event.get("accumUpdates") or ():
            if type(number) is int and type(added) is int and abs(added) <= LARGEST:
                self.driver_metrics[number] = added

    def missing_parts(self) -> int:
        """Return how many parts of a log of Databricks are missing, by the numbers that the others bear."""
        return max(self.rolled) + 1 - len(self.rolled) if self.rolled and min(self.rolled) >= 0 else 0

    def result(self, log: LogFiles) -> SparkLog:
        """Return all as tables."""
        spark_log = self.log
        spark_log.name = log.name
        self.tasks.add_unended(self.running)
        spark_log.tasks = self.tasks.table()
        self.findings += event_findings(
            unparsed=self.unparsed,
            too_long=self.lines.too_long,
            damaged=self.damaged,
            odd_values=self.tasks.odd_values + self.accumulators.odd_values + self.memory.odd_values,
            unknown=self.unknown,
            of_others=self.of_others,
            twice=self.tasks.twice,
        )
        if self.log.start_ms is None:
            detail = "the application's start is not in the log; the answer begins with what is there"
            self.find("application_start_missing", "warning", 1, "logs", detail)
        if not self.log.complete:
            state = "still ran when the log was read" if log.in_progress else "has no end in the log"
            self.find(
                "log_incomplete", "warning", 1, "logs", f"the application {state}; answers are about what is there"
            )
        spark_log.first_ms = self.first_ms or 0
        spark_log.last_ms = max(self.last_ms, spark_log.first_ms)
        spark_log.texts = {name: list(codes) for name, codes in self.tasks.texts.items()}
        stages = ({"stage": key[0], "stage_attempt": key[1], **facts} for key, facts in self.stages.items())
        spark_log.stages = frame(tables.STAGES, stages)
        spark_log.jobs = frame(tables.JOBS, ({"job": job, **values} for job, values in sorted(self.jobs.items())))
        self.findings += lost_events(spark_log.stages, spark_log.tasks)
        rows = ({"job": job, "stage": stage, **values} for (job, stage), values in sorted(self.job_stages.items()))
        spark_log.job_stages = frame(tables.JOB_STAGES, rows)
        spark_log.executors = frame(
            tables.EXECUTORS, ({"executor": name, **values} for name, values in self.executors.items())
        )
        executions = ({"execution": number, **facts} for number, facts in sorted(self.executions.items()))
        spark_log.executions = frame(tables.EXECUTIONS, executions)
        plans = sorted(self.plans.items())
        spark_log.nodes = frame(tables.NODES, (row for number, plan in plans for row in plan.node_rows(number)))
        metrics = (row for number, plan in plans for row in plan.metric_rows(number, self.driver_metrics))
        spark_log.node_metrics = frame(tables.NODE_METRICS, metrics)
        spark_log.stage_metrics = frame(tables.STAGE_METRICS, self.accumulators.rows())
        spark_log.memory = frame(tables.MEMORY, self.memory.rows())
        spark_log.progress = frame(tables.PROGRESS, self.progress)
        spark_log.cached = frame(tables.CACHED, self.blocks.rows())
        spark_log.events, spark_log.unknown, spark_log.findings = dict(self.counts), dict(self.unknown), self.findings
        spark_log.read_bytes = self.lines.read_bytes
        # They hold this object, which would be in memory until Python looks for such rings.
        self.handlers.clear()
        return spark_log
