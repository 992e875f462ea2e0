"""Spark's event logs: how fast and in how much memory a large one is read, converted and answered.

The log is made from a real one: its job is repeated with new numbers and later times, and every task of it
is repeated within its stage, so that tasks make up most of the log as they do in large ones.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import orjson

from bench.harness import ROOT, Bench, Figure, Session, Yardstick

if TYPE_CHECKING:
    from pathlib import Path

_TASKS = 20
"""Copies of each task within its stage."""
_WIDER = 20
"""Metrics by which tasks' ends are wider where 300 MB are to hold some 38,000 tasks."""
_UNKNOWN_METRICS = 10_000_000
"""Numbers of metrics from which on there are none in the real log."""


def real_log() -> Path | None:
    """Return the log that the large one is made of."""
    candidates = [
        ROOT / "tests" / "data" / "spark" / "healthy.zstd",
        ROOT.parent / "shared/oracles/spark/app-20170324182509-0000",
    ]
    return next((file for file in candidates if file.exists()), None)


def make_large(target: Path, size: int, *, wider: int = 0) -> None:
    """Write a log of at least `size` bytes: the real one's job again and again.

    Each task's end states `wider` metrics more than it did, as those of wide plans do. Copy k of the job has all
    numbers of jobs, stages, tasks, RDDs and executions shifted, and all times moved behind the copy before. Within a
    copy each task end and start occurs `_TASKS` times, one after the other in time.
    """
    from pag_graph.sources.spark.codecs import decode

    source = real_log()
    assert source is not None
    lines = b"".join(decode(source, stopped=print)).splitlines()
    events = [orjson.loads(line) for line in lines]
    body = [_widened(e, wider) for e in events if _repeats(e["Event"])]
    head = [e for e in events if not _repeats(e["Event"]) and e["Event"] != "SparkListenerApplicationEnd"]
    end = next(e for e in events if e["Event"] == "SparkListenerApplicationEnd")
    times = [e["Task Info"]["Launch Time"] for e in body if e["Event"] == "SparkListenerTaskStart"]
    finish = [e["Task Info"]["Finish Time"] for e in body if e["Event"] == "SparkListenerTaskEnd"]
    job = next(e for e in body if e["Event"] == "SparkListenerJobStart")
    job_end = next(e for e in body if e["Event"] == "SparkListenerJobEnd")
    span = max(*finish, job_end["Completion Time"]) - min(*times, job["Submission Time"])
    step = span * _TASKS + 1000
    written_bytes = copy = 0
    with target.open("wb") as log:
        for event in head:
            written_bytes += log.write(orjson.dumps(event) + b"\n")
        while written_bytes < size:
            for event in body:
                for line in _shifted(event, copy, step, span):
                    written_bytes += log.write(line)
            copy += 1
        end["Timestamp"] += copy * step
        log.write(orjson.dumps(end) + b"\n")


def _repeats(name: str) -> bool:
    return any(word in name for word in ("Task", "Stage", "Job", "SQLExecution", "SQLAdaptive", "DriverAccum"))


def _widened(event: dict[str, Any], wider: int) -> dict[str, Any]:
    """Return a task's end with so many metrics more, of no node that plans know; any other event as it is."""
    if event["Event"] != "SparkListenerTaskEnd" or not wider:
        return event
    info = event["Task Info"]
    metrics = info["Accumulables"]
    more = [{**metrics[place % len(metrics)], "ID": _UNKNOWN_METRICS + place} for place in range(wider)]
    return {**event, "Task Info": {**info, "Accumulables": [*metrics, *more]}}


def _shifted(event: dict[str, Any], copy: int, step: int, span: int) -> list[bytes]:
    shift = copy * step
    name = event["Event"]
    if name in {"SparkListenerTaskStart", "SparkListenerTaskEnd"}:
        task_events = []
        for place in range(_TASKS):
            copied_event = {**event, "Stage ID": event["Stage ID"] + 1000 * copy}
            info = dict(event["Task Info"])
            info["Task ID"] += (copy * _TASKS + place) * 100_000
            info["Index"] += place * 1000
            for key in ("Launch Time", "Finish Time", "Getting Result Time"):
                if info.get(key):
                    info[key] += shift + place * span
            copied_event["Task Info"] = info
            task_events.append(orjson.dumps(copied_event) + b"\n")
        return task_events
    late = shift + span * (_TASKS - 1)
    copied_event = dict(event)
    if "Stage Info" in copied_event:
        info = dict(copied_event["Stage Info"])
        info["Stage ID"] += 1000 * copy
        info["Parent IDs"] = [parent + 1000 * copy for parent in info["Parent IDs"]]
        info["Number of Tasks"] *= _TASKS
        info["RDD Info"] = [{**rdd, "RDD ID": rdd["RDD ID"] + 1000 * copy} for rdd in info["RDD Info"]]
        for key, shift_ms in (("Submission Time", shift), ("Completion Time", late)):
            if key in info:
                info[key] += shift_ms
        copied_event["Stage Info"] = info
    if "Job ID" in copied_event:
        copied_event["Job ID"] += 1000 * copy
        if "Submission Time" in copied_event:
            copied_event["Submission Time"] += shift
            copied_event["Stage IDs"] = [stage + 1000 * copy for stage in copied_event["Stage IDs"]]
            copied_event["Stage Infos"] = [
                {
                    **info,
                    "Stage ID": info["Stage ID"] + 1000 * copy,
                    "Parent IDs": [parent + 1000 * copy for parent in info["Parent IDs"]],
                }
                for info in copied_event["Stage Infos"]
            ]
            properties = dict(copied_event.get("Properties") or {})
            for key in ("spark.sql.execution.id", "spark.sql.execution.root.id"):
                if key in properties:
                    properties[key] = str(int(properties[key]) + 1000 * copy)
            copied_event["Properties"] = properties
        if "Completion Time" in copied_event:
            copied_event["Completion Time"] += late
    if "executionId" in copied_event:
        copied_event["executionId"] += 1000 * copy
        if copied_event.get("rootExecutionId") is not None:
            copied_event["rootExecutionId"] += 1000 * copy
        if "time" in copied_event:
            copied_event["time"] += late if name.endswith("End") else shift
    return [orjson.dumps(copied_event) + b"\n"]


_PEAK = """
from pathlib import Path
def peak():
    # Not what `getrusage` says: that is at least what the process had which started this one.
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
"""
_CHILD = """
import sys, time
from pag_graph.sources.spark.convert import map_log, write_mapped
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log
before = peak()
begin, cpu = time.perf_counter(), time.process_time()
log = read_log(find_logs(sys.argv[1])[0])
read, read_cpu = time.perf_counter() - begin, time.process_time() - cpu
peak_read = peak()
tasks, read_logs = log.tasks.height, [log]
del log
if sys.argv[2] == "convert":
    # As `convert` does: nobody holds the log while its trace is written.
    write_mapped(map_log(read_logs.pop()), Path(sys.argv[3]), replace=True)
whole = time.perf_counter() - begin
print(read, read_cpu, whole, before, peak_read, peak(), tasks)
"""

_ANSWER = """
import atexit, os, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
begin = time.perf_counter()
def say():
    print(time.perf_counter() - begin, time.process_time(), peak() / 1024, file=sys.stderr)
atexit.register(say)
from pag_graph.cli.app import main
main()
"""


def _answer(log: Path) -> dict[str, float]:
    """Return what ``pag spark`` takes for a log, on one core: with the start of Python, and all that it prints."""
    words = [sys.executable, "-c", _PEAK + _ANSWER, "spark", str(log), "--format", "json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT)
    told = orjson.loads(done.stdout)
    numbers = map(float, done.stderr.splitlines()[-1].split())
    tasks = sum(stage["tasks"] for stage in told["stages"])
    return {**dict(zip(("seconds", "cpu_seconds", "memory_mb"), numbers, strict=True)), "tasks": tasks}


def child(log: Path, what: str, target: Path) -> dict[str, float]:
    """Read, or read and convert, a log in a process of its own.

    Parameters
    ----------
    log
        The log.
    what
        ``read`` or ``convert``.
    target
        Where the trace goes.

    Returns
    -------
    dict
        Seconds, the most resident memory before, while reading and at all (in units of 1,024 x 1,024 bytes), and the
        number of tasks.
    """
    numbers = subprocess.run(
        [sys.executable, "-c", _PEAK + _CHILD, str(log), what, str(target)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout.split()
    read_s, cpu_s, whole_s, before, peak_read, peak, tasks = map(float, numbers)
    return {
        "read_seconds": read_s,
        "read_cpu_seconds": cpu_s,
        "whole_seconds": whole_s,
        "memory_before_mb": before / 1024,
        "memory_reading_mb": peak_read / 1024,
        "memory_mb": peak / 1024,
        "tasks": tasks,
    }


def _parse(log: Path) -> Yardstick:
    def lines() -> int:
        count = 0
        with log.open("rb") as file:
            for line in file:
                orjson.loads(line)
                count += 1
        return count

    return Yardstick(name="orjson parses the same lines", run=lines)


def run(session: Session) -> None:
    """Measure."""
    from pag_graph.diagnosis.spark.answer import answer
    from pag_graph.sources.spark.logfiles import find_logs
    from pag_graph.sources.spark.reader import read_log

    small = session.fixed("spark-log-100mb-v1", lambda path: make_large(path, 100 << 20))
    files = find_logs(small)[0]
    session.measure(
        "read a log of 100 MB",
        lambda: read_log(files),
        against=_parse(small),
        items=small.stat().st_size,
        unit="bytes",
        repeat=3,
        target="30 MB/s per core",
    )
    size = (200 << 20) if session.quick else (2 << 30)
    large = session.fixed(f"spark-log-{size >> 20}mb-v1", lambda path: make_large(path, size))
    facts = child(large, "read", session.new_folder("spark-trace"))
    facts["read_mb_per_cpu_second"] = large.stat().st_size / 1e6 / max(facts["read_cpu_seconds"], 1e-9)
    session.keep(Figure(name=f"read {size >> 20} MiB, memory of the process", values=facts, target="300 MB, 30 MB/s"))
    converted = child(large, "convert", session.new_folder("spark-trace"))
    converted["bytes_per_task"] = (
        (converted["memory_mb"] - converted["memory_reading_mb"]) * 2**20 / max(converted["tasks"], 1)
    )
    session.keep(Figure(name=f"convert {size >> 20} MiB, memory of the process", values=converted, target="300 MB"))
    many_tasks = session.fixed("spark-log-300mb-v1", lambda path: make_large(path, 300 << 20))
    session.keep(Figure(name="whole answer, 300 MB, one core", values=_answer(many_tasks), target="15 s, 500 MB"))
    wide_tasks = session.fixed("spark-log-300mb-wide-v1", lambda path: make_large(path, 300 << 20, wider=_WIDER))
    session.keep(Figure(name="the same, wider tasks", values=_answer(wide_tasks), target="15 s, 500 MB"))
    source = real_log()
    if source is not None:
        real = find_logs(source)[0]
        session.measure("pag spark on a log of a minute", lambda: answer(real), repeat=3)


def _needs() -> str:
    return "" if real_log() else "a real event log in tests/data/spark"


BENCH = Bench(
    name="spark-log",
    title="Spark's event logs",
    about=(
        "A log of 2 GiB is made from a real one: its job is repeated with new numbers and later times, and each"
        " task 20 times. Reading is one pass over the lines. Memory is the most that the whole process used,"
        " libraries included (`memory_before_mb`)."
    ),
    run=run,
    needs=_needs,
)
