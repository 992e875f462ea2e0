"""Causes that `pag spark` names in public event logs, with their evidence counted a second time from the events alone.

    git clone --depth 1 https://github.com/NVIDIA/spark-rapids-tools
    python -m bench.spark_public_causes spark-rapids-tools/core/src/test/resources

For every cause of every log below a folder the numbers that it rests on (`signal` in JSON) are worked out again with
`json` and no code of the reader, and compared: all must be equal. Exit code 1 if one is not. Causes for which there is
no second count are listed. The logs are read where they lie; none is kept.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.spark_public import _events, logs_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Recount", "recounted"]

_MS = 1_000_000
_WRITES = ("Execute Insert", "Execute Save", "Execute Create", "InsertInto", "AppendData", "OverwriteBy", "WriteFiles")
_PYTHON = re.compile(r"BatchEvalPython|ArrowEvalPython|.*InPandas|MapInArrow|.*ArrowPython.*")

Span = tuple[int, int]


def _union(spans: Iterable[Span]) -> list[Span]:
    disjoint: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if disjoint and start <= disjoint[-1][1]:
            disjoint[-1] = (disjoint[-1][0], max(disjoint[-1][1], end))
        else:
            disjoint.append((start, end))
    return disjoint


def _length(spans: Iterable[Span], low: int, high: int) -> int:
    """Return how much of [low, high) some spans cover."""
    return sum(max(0, min(end, high) - max(start, low)) for start, end in _union(spans))


class Recount:
    """What a log's events say, as far as causes rest on it; times in milliseconds since 1970.

    Parameters
    ----------
    files
        Of one log, in order. Their events are read as they are, without the reader of the package.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.jobs: dict[int, list[Any]] = {}
        self.queries: dict[int, list[int]] = {}
        self.plans: dict[int, dict[str, Any]] = {}
        self.tasks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        self.executors: dict[str, list[int]] = {}
        """When each came and went (0 for never), and its cores."""
        self.settings: dict[str, str] = {}
        self.accumulated: Counter[tuple[int, int]] = Counter()
        self.given: Counter[int] = Counter()
        self.names: dict[int, str] = {}
        self.end = 0
        for name, event in _events(files):
            handler = getattr(self, f"_{name}", None)
            if handler is not None:
                handler(event)
        finishes = [task["Task Info"]["Finish Time"] for stage_tasks in self.tasks.values() for task in stage_tasks]
        begins = [*(job[1] or job[0] for job in self.jobs.values()), *(max(span) for span in self.queries.values())]
        self.end = max([self.end, *finishes, *([] if self.end else begins)])
        self.first = min((job[0] for job in self.jobs.values()), default=0)

    def _ApplicationEnd(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        self.end = event["Timestamp"]

    def _EnvironmentUpdate(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        self.settings |= dict(event["Spark Properties"])

    def _ExecutorAdded(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        self.executors[event["Executor ID"]] = [event["Timestamp"], 0, event["Executor Info"]["Total Cores"]]

    def _ExecutorRemoved(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        self.executors.setdefault(event["Executor ID"], [0, 0, 0])[1] = event["Timestamp"]

    def _JobStart(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        properties = event.get("Properties") or {}
        query = properties.get("spark.sql.execution.id")
        words = properties.get("spark.job.description") or properties.get("callSite.short") or ""
        self.jobs[event["Job ID"]] = [
            event["Submission Time"],
            None,
            query and int(query),
            words,
            event["Stage IDs"],
            "",
        ]

    def _JobEnd(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        job = self.jobs.get(event["Job ID"])
        if job is not None:
            job[1], job[5] = event["Completion Time"], event["Job Result"]["Result"]

    def _SQLExecutionStart(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        self.queries[event["executionId"]] = [event["time"], 0]
        self._plan(event)

    def _SQLExecutionEnd(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        self.queries.setdefault(event["executionId"], [event["time"], 0])[1] = event["time"]

    def _SQLAdaptiveExecutionUpdate(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        self._plan(event)

    def _plan(self, event: dict[str, Any]) -> None:
        self.plans[event["executionId"]] = event["sparkPlanInfo"]
        for node in _nodes(event["sparkPlanInfo"]):
            for metric in node.get("metrics", ()):
                self.names[metric["accumulatorId"]] = metric["name"].split(" total (")[0]

    def _DriverAccumUpdates(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        for number, added in event["accumUpdates"]:
            self.given[number] += added

    def _TaskEnd(self, event: dict[str, Any]) -> None:  # noqa: N802 Spark's name
        self.tasks[event["Stage ID"], event["Stage Attempt ID"]].append(event)
        for update in event["Task Info"].get("Accumulables", ()):
            try:
                self.accumulated[event["Stage ID"], update["ID"]] += int(update["Update"])
            except (KeyError, TypeError, ValueError):
                continue

    # --- What several causes rest on ---

    def job_spans(self, jobs: Iterable[int] | None = None) -> list[Span]:
        """Return when jobs ran, in milliseconds since 1970: all of them, or those with some numbers."""
        chosen = self.jobs.values() if jobs is None else [self.jobs[number] for number in jobs]
        return [(job[0], self.end if job[1] is None else job[1]) for job in chosen]

    def query_spans(self) -> list[Span]:
        """Return when queries ran."""
        return [(start, end or self.end) for start, end in self.queries.values()]

    def commits(self) -> list[Span]:
        """Return what queries that write take after their last job."""
        tails = []
        for number, plan in self.plans.items():
            ends = [span[1] for job, span in zip(self.jobs.values(), self.job_spans(), strict=True) if job[2] == number]
            if ends and any(node["nodeName"].startswith(_WRITES) for node in _nodes(plan)):
                tails.append((max(ends), self.queries[number][1] or self.end))
        return tails

    def outside(self, spans: Iterable[Span]) -> int:
        """Return how much of the time since the first job some spans leave, in nanoseconds."""
        return (self.end - self.first - _length(spans, self.first, self.end)) * _MS

    def metric(self, query: int, name: str, stages: Iterable[int] | None = None) -> int:
        """Return what tasks and driver added to a query's metrics of a name.

        Parameters
        ----------
        query, name
            Number of the query, and the metric as its plan names it.
        stages
            Only what tasks of these stages added; of all if absent.
        """
        accumulators = {
            metric["accumulatorId"] for node in _nodes(self.plans[query]) for metric in node.get("metrics", ())
        }
        accumulators = {number for number in accumulators if self.names[number] == name}
        of_stages = None if stages is None else set(stages)
        tasks = sum(
            value
            for (stage, accumulator), value in self.accumulated.items()
            if accumulator in accumulators and (of_stages is None or stage in of_stages)
        )
        return tasks + sum(self.given[number] for number in accumulators)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("children", ()):
        yield from _nodes(child)


def _metrics(task: dict[str, Any]) -> dict[str, Any]:
    return task.get("Task Metrics") or {}


def _took(task: dict[str, Any]) -> int:
    return task["Task Info"]["Finish Time"] - task["Task Info"]["Launch Time"]


def _work_and_gc(task: dict[str, Any]) -> tuple[int, int]:
    """Return a task's work and garbage collection in nanoseconds, cut to fit as the documentation says."""
    metrics = _metrics(task)
    run = metrics.get("Executor Run Time", 0) * _MS
    write = min((metrics.get("Shuffle Write Metrics") or {}).get("Shuffle Write Time", 0), run)
    wait = min((metrics.get("Shuffle Read Metrics") or {}).get("Fetch Wait Time", 0) * _MS, run - write)
    gc = min(metrics.get("JVM GC Time", 0) * _MS, run - write - wait)
    return run - write - wait - gc, gc


Checked = list[tuple[str, Any, Any]]
"""What was compared: its name, as told, as counted."""


def _idle_shell(log: Recount, cause: dict[str, Any]) -> Checked:
    return [("idle_ns", cause["signal"]["idle_ns"], log.outside([*log.job_spans(), *log.query_spans()]))]


def _driver_bound(log: Recount, cause: dict[str, Any]) -> Checked:
    signal = cause["signal"]
    every = log.outside([*log.job_spans(), *log.commits()])
    beside = log.outside([*log.job_spans(), *log.commits(), *log.query_spans()])
    return [("driver_ns", signal["driver_ns"], every), ("in_queries_ns", signal["in_queries_ns"], every - beside)]


def _output_commit(log: Recount, cause: dict[str, Any]) -> Checked:
    took = log.outside(log.job_spans()) - log.outside([*log.job_spans(), *log.commits()])
    return [("after_jobs_ns", cause["signal"]["after_jobs_ns"], took)]


def _failed_job(log: Recount, cause: dict[str, Any]) -> Checked:
    failed = [number for number, job in log.jobs.items() if job[5] == "JobFailed"]
    span_ns = _length(log.job_spans(failed), log.first, log.end) * _MS
    stated_jobs = [cause["signal"]["job"], *cause["signal"]["same"], *cause["signal"]["followed"]]
    return [("jobs", sorted(stated_jobs), sorted(failed)), ("span_ns", cause["signal"]["span_ns"], span_ns)]


def _listing(log: Recount, cause: dict[str, Any]) -> Checked:
    jobs = [number for number, job in log.jobs.items() if job[3].startswith("Listing leaf files")]
    scans = sum(v for number, v in log.given.items() if log.names.get(number) == "metadata time")
    return [
        ("jobs", cause["signal"]["jobs"], jobs),
        ("metadata_ns", cause["signal"]["metadata_ns"], scans * _MS),
        ("saved_ns", cause["saved_ns"], (_length(log.job_spans(jobs), log.first, log.end) + scans) * _MS),
    ]


def _executor_wait(log: Recount, cause: dict[str, Any]) -> Checked:
    available = [(added, removed or log.end) for added, removed, _ in log.executors.values()]
    waited = log.outside(available) - log.outside([*available, *log.job_spans()])
    before = sum(cores for added, removed, cores in log.executors.values() if added <= log.first < (removed or log.end))
    signal = cause["signal"]
    return [("waited_ns", signal["waited_ns"], waited), ("cores_at_first_job", signal["cores_at_first_job"], before)]


def _stage(log: Recount, cause: dict[str, Any]) -> list[dict[str, Any]]:
    return log.tasks[cause["stage"], 0]


def _tiny_tasks(log: Recount, cause: dict[str, Any]) -> Checked:
    ends = [task for stage in cause["signal"]["stages"] for task in log.tasks[stage, 0]]
    # A task whose output was lost ends again, as resubmitted; the first of its ends counts.
    tasks = {task["Task Info"]["Task ID"]: task for task in reversed(ends)}
    median = int(statistics.median(_work_and_gc(task)[0] for task in tasks.values()))
    return [
        ("tasks", cause["signal"]["tasks"], len(tasks)),
        ("median_work_ns", cause["signal"]["median_work_ns"], median),
    ]


def _gc(log: Recount, cause: dict[str, Any]) -> Checked:
    gc_times = [_work_and_gc(task)[1] for stage in cause["signal"]["stages"] for task in log.tasks[stage, 0]]
    return [("gc_ns", cause["signal"]["gc_ns"], sum(gc_times))]


def _spill(log: Recount, cause: dict[str, Any]) -> Checked:
    task_metrics = [_metrics(task) for task in _stage(log, cause)]
    names = {"spilled_bytes": "Disk Bytes Spilled", "memory_spilled_bytes": "Memory Bytes Spilled"}
    return [
        (signal_name, cause["signal"][signal_name], sum(task[name] for task in task_metrics))
        for signal_name, name in names.items()
    ]


def _too_few_partitions(log: Recount, cause: dict[str, Any]) -> Checked:
    cores = sum(cores for *_, cores in log.executors.values())
    signal = cause["signal"]
    return [("tasks", signal["tasks"], len(_stage(log, cause))), ("cores", signal["cores"], cores)]


def _cloud_wait(log: Recount, cause: dict[str, Any]) -> Checked:
    query = cause["signal"]["query"]
    names = {name: name.removesuffix("_ns").replace("_", " ") for name in cause["signal"] if name.endswith("_ns")}
    query_stages = {stage for job in log.jobs.values() if job[2] == query for stage in job[4]}
    return [
        (signal_name, cause["signal"][signal_name], log.metric(query, name, query_stages) * _MS)
        for signal_name, name in names.items()
    ]


def _python_udf(log: Recount, cause: dict[str, Any]) -> Checked:
    task_metrics = [_metrics(task) for stage in cause["signal"]["stages"] for task in log.tasks[stage, 0]]
    run = sum(task["Executor Run Time"] for task in task_metrics) * _MS
    nodes = {node["nodeName"] for plan in log.plans.values() for node in _nodes(plan)}
    python = sorted(name for name in nodes if _PYTHON.fullmatch(name))
    waits = sum(_work_and_gc(task)[0] for stage in cause["signal"]["stages"] for task in log.tasks[stage, 0])
    beside = waits - sum(task["Executor CPU Time"] for task in task_metrics)
    signal = cause["signal"]
    rows = [("run_ns", signal["run_ns"], run), ("nodes", sorted(signal["nodes"]), python)]
    return rows if signal["timers"] else [*rows, ("python_ns", signal["python_ns"], beside)]


def _slow_task(log: Recount, cause: dict[str, Any]) -> Checked:
    stage_tasks = _stage(log, cause)
    longest = max(stage_tasks, key=_took)
    read_bytes = [(_metrics(task).get("Input Metrics") or {}).get("Bytes Read", 0) for task in stage_tasks]
    rows = [
        ("tasks", cause["signal"]["tasks"], len(stage_tasks)),
        ("index", cause["signal"]["index"], longest["Task Info"]["Index"]),
    ]
    if cause["cause"] == "partition_skew":
        largest = max(range(len(stage_tasks)), key=read_bytes.__getitem__)
        return [
            *rows,
            (
                "reads most",
                True,
                read_bytes[largest] > 2 * statistics.median(read_bytes)
                and _took(stage_tasks[largest]) * 2 > _took(longest),
            ),
        ]
    loading = _metrics(longest)["Executor Deserialize Time"]
    return [*rows, ("most of it is loading", True, loading > _took(longest) / 2)]


def _scheduling(log: Recount, cause: dict[str, Any]) -> Checked:
    names = ("Executor Deserialize Time", "Executor Run Time", "Result Serialization Time")
    delays = []
    for stage_tasks in log.tasks.values():
        for task in stage_tasks:
            fetching = task["Task Info"].get("Getting Result Time", 0)
            whole_ms = (fetching or task["Task Info"]["Finish Time"]) - task["Task Info"]["Launch Time"]
            delays.append(
                max(0, whole_ms - sum(_metrics(task).get(name, 0) for name in names)) if _metrics(task) else 0
            )
    return [("at least", True, sum(delays) * _MS >= cause["signal"]["time_ns"])]


def _unused_slots(log: Recount, cause: dict[str, Any]) -> Checked:
    cores_of_task = int(log.settings.get("spark.task.cpus", "1"))
    signal = cause["signal"]
    return [("used_at_once", signal["used_at_once"], signal["cores"] // cores_of_task)]


def _exploding_join(log: Recount, cause: dict[str, Any]) -> Checked:
    query, name = cause["signal"]["query"], cause["signal"]["join"]
    accumulators = [
        metric["accumulatorId"]
        for node in _nodes(log.plans[query])
        if node["nodeName"] == name
        for metric in node["metrics"]
    ]
    row_counts = [
        sum(value for (_, number), value in log.accumulated.items() if number == accumulator)
        for accumulator in accumulators
        if log.names[accumulator] == "number of output rows"
    ]
    return [("made", True, cause["signal"]["made"] in row_counts)]


_CHECKS: dict[str, Callable[[Recount, dict[str, Any]], Checked]] = {
    "cloud_wait": _cloud_wait,
    "deserialization": _slow_task,
    "driver_bound": _driver_bound,
    "executor_wait": _executor_wait,
    "exploding_join": _exploding_join,
    "failed_job": _failed_job,
    "gc": _gc,
    "idle_shell": _idle_shell,
    "listing": _listing,
    "output_commit": _output_commit,
    "partition_skew": _slow_task,
    "python_udf": _python_udf,
    "scheduling": _scheduling,
    "spill": _spill,
    "tiny_tasks": _tiny_tasks,
    "too_few_partitions": _too_few_partitions,
    "unused_slots": _unused_slots,
}


def recounted(log: Recount, cause: dict[str, Any]) -> Checked | None:
    """Count a cause's evidence again; None where there is no second count for it.

    Parameters
    ----------
    log
        Counted events.
    cause
        As in `pag spark --format json`.
    """
    check = _CHECKS.get(cause["cause"])
    return None if check is None else check(log, cause)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count the evidence of all causes in the logs below a folder, and say where it is another."""
    from pag_graph.diagnosis.spark.causes import diagnose
    from pag_graph.sources.spark.convert import map_log
    from pag_graph.sources.spark.reader import read_log

    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_public_causes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    counted_again, alone = Counter[str](), Counter[str]()
    numbers = wrong = 0
    logs = logs_below(folder)
    for log in logs:
        causes = [cause.facts() for cause in diagnose(map_log(read_log(log)).schedule).causes]
        counted = Recount(log.files) if causes else None
        for cause in causes:
            rows = None if counted is None else recounted(counted, cause)
            if rows is None:
                alone[cause["cause"]] += 1
                continue
            counted_again[cause["cause"]] += 1
            numbers += len(rows)
            for number_name, stated, recount in rows:
                if stated != recount:
                    wrong += 1
                    print(f"{log.name}: {cause['cause']} {number_name}: {stated} told, {recount} counted")
    print(f"{len(logs)} logs, {counted_again.total()} causes, {numbers} numbers counted again: {wrong} differ")
    print(", ".join(f"{name} {count}" for name, count in sorted(counted_again.items())))
    print(
        "without a second count: " + (", ".join(f"{name} {count}" for name, count in sorted(alone.items())) or "none")
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
