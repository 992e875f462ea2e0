"""How Spark divides files among tasks, and what that tells of files that cannot be divided, or are too many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.diagnosis.spark.causes import diagnose
from pag_graph.diagnosis.spark.file_splits import FileSplits
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import ORIGIN_MS, EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.diagnosis.spark.look import Cause

SQL = "org.apache.spark.sql.execution.ui.SparkListener"
MIB = 1 << 20


def packed(splits: FileSplits, sizes: list[int]) -> list[int]:
    """Divide files as Spark does: parts of one size, the largest first, as many to a task as fit."""
    split = splits.bytes_of_task(len(sizes), sum(sizes))
    parts = [min(split, size - begin) for size in sizes for begin in range(0, size, split)]
    tasks: list[int] = []
    filled, read = 0, 0
    for part in sorted(parts, reverse=True):
        if filled + part > split and read:
            tasks.append(read)
            filled = read = 0
        filled += part + splits.open_bytes
        read += part
    return [*tasks, read] if read else tasks


@given(
    st.lists(st.integers(1, 40_000), min_size=1, max_size=60),
    st.integers(1_000, 20_000),
    st.integers(0, 4_000),
    st.integers(2, 40),
)
def test_no_task_reads_more_of_files_that_can_be_split(
    sizes: list[int], largest: int, opening: int, cores: int
) -> None:
    splits = FileSplits(largest=largest, open_bytes=max(opening, 1), tasks=cores, most_tasks=None)
    assert max(packed(splits, sizes)) <= splits.bytes_of_task(len(sizes), sum(sizes))


@given(
    st.integers(1, 300), st.integers(1, 40_000), st.integers(1_000, 20_000), st.integers(1, 4_000), st.integers(2, 40)
)
def test_tasks_of_files_of_one_size(files: int, size: int, largest: int, opening: int, cores: int) -> None:
    splits = FileSplits(largest=largest, open_bytes=opening, tasks=cores, most_tasks=None)
    tasks = packed(splits, [size] * files)
    # The last part of a file is shorter than the others, so a few more or less may fit together.
    assert len(tasks) / 2 - 1 <= splits.task_count(files, size * files) <= 2 * len(tasks) + 1
    if size <= splits.bytes_of_task(files, size * files):
        assert splits.task_count(files, size * files) == len(tasks)


def test_no_more_tasks_than_asked_for() -> None:
    splits = FileSplits(largest=128 * MIB, open_bytes=4 * MIB, tasks=2, most_tasks=3)
    assert splits.bytes_of_task(10, 1_000 * MIB) == -(-1_040 * MIB // 3)
    assert splits.task_count(10, 1_000 * MIB) == 4  # files of 100 MiB, three together
    assert FileSplits(largest=128 * MIB, open_bytes=0, tasks=2, most_tasks=None).task_count(3, 0) in {
        1,
        2,
    }  # nothing in them


def scanning(files: int, size: int, *, cores: int = 4, scope: str = "Scan csv ", **settings: str) -> EventLog:
    """Begin a query that reads a folder, of which the log tells the number of files and their size."""
    log = EventLog(cores=[cores])
    log.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.app.name": "by hand", **settings}})
    return query(log, 0, files, size, scope=scope)


def query(log: EventLog, number: int, files: int, size: int, *, scope: str = "Scan csv ", at_ms: int = 500) -> EventLog:
    """Begin one more query that reads the folder, with one job of one stage."""
    names = ("number of output rows", "number of files read", "size of files read", "scan time")
    kinds = ("sum", "sum", "size", "timing")
    first = 10 * number
    metrics: list[dict[str, Any]] = [
        {"name": name, "accumulatorId": first + place, "metricType": kind}
        for place, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    text = "FileScan csv [a#0] Batched: false, Location: InMemoryFileIndex(1 paths)[file:/data/text], PushedFilters: []"
    plan = {"nodeName": scope, "simpleString": text, "children": [], "metrics": metrics}
    start = {"executionId": number, "description": "", "time": ORIGIN_MS + at_ms, "sparkPlanInfo": plan}
    log.add(f"{SQL}SQLExecutionStart", **start)
    log.add(f"{SQL}DriverAccumUpdates", executionId=number, accumUpdates=[[first + 1, files], [first + 2, size]])
    return log.job(number, at_ms + 500, [number], spark_sql_execution_id=str(number))


def one_task(log: EventLog, read: int, *, scope: str = "") -> EventLog:
    """Let one task read all of it, for 20 seconds."""
    log.stage(0, 1000, tasks=1)
    rdd = log.events[-1]["Stage Info"]["RDD Info"][0]
    if scope:
        rdd["Scope"] = f'{{"id":"9","name":"{scope}"}}'
    log.task(0, 0, "0", 1010, 21_010, run=20_000, updates={0: 7})
    log.events[-1]["Task Metrics"]["Input Metrics"]["Bytes Read"] = read
    return log.stage_done(0, 21_010).job_done(0, 21_020).end(21_030)


def causes(log: EventLog, folder: Path) -> list[Cause]:
    (found,) = find_logs(log.write(folder / "log"))
    return diagnose(map_log(read_log(found)).schedule).causes


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        # Of 8 MiB that can be split, four cores get 4 MiB each: to open a file counts as much.
        (one_task(scanning(1, 8 * MIB), 8 * MIB), "unsplittable_input"),
        (one_task(scanning(1, 4 * MIB), 4 * MIB), "too_few_partitions"),
        # The end of a line, and what is fetched ahead, may be read by the task before.
        (one_task(scanning(1, 8 * MIB), 4 * MIB + 200_000), "too_few_partitions"),
        (one_task(scanning(1, 8 * MIB, cores=2), 8 * MIB), "unsplittable_input"),
        (one_task(scanning(1, 4 * MIB + 400_000, cores=2), 4 * MIB + 400_000), "too_few_partitions"),
        # A limit begins with one task, which reads little of many files.
        (one_task(scanning(900, 90_000 * MIB), 3 * MIB), "too_few_partitions"),
        (one_task(scanning(1, 90 * MIB), 90 * MIB, scope="Coalesce"), "too_few_partitions"),
        (one_task(scanning(1, 900 * MIB), 900 * MIB, scope="coalesce"), "too_few_partitions"),
        (one_task(scanning(1, 90 * MIB), 90 * MIB, scope="map"), "unsplittable_input"),
        (
            one_task(scanning(1, 90 * MIB, **{"spark.default.parallelism": "1"}), 90 * MIB),
            "too_few_partitions",
        ),
        (
            one_task(scanning(1, 90 * MIB, **{"spark.sql.files.minPartitionNum": "1"}), 90 * MIB),
            "too_few_partitions",
        ),
        (
            one_task(scanning(1, 300 * MIB, **{"spark.sql.files.maxPartitionNum": "1"}), 300 * MIB),
            "too_few_partitions",
        ),
        (
            one_task(scanning(1, 90 * MIB, **{"spark.sql.files.openCostInBytes": "100m"}), 90 * MIB),
            "too_few_partitions",
        ),
    ],
)
def test_files_that_cannot_be_split_are_known_by_what_a_task_read(log: EventLog, cause: str, tmp_path: Path) -> None:
    assert [found.cause for found in causes(log, tmp_path)] == [cause]


def many_tasks(*, scan_ms: int, frame_ms: int) -> EventLog:
    """Read 1,600 files of 10 KiB in 50 tasks of 100 ms on two cores, each with a frame and a time for its scan."""
    log = scanning(1_600, 1_600 * 10 * 1024, cores=2)
    log.stage(0, 1000, tasks=50)
    each = 100 + frame_ms
    for index in range(50):
        start = 1010 + index // 2 * each
        log.task(0, index, "0", start, start + each, run=100, deserialize=frame_ms, updates={0: 1, 3: scan_ms})
    done = 1010 + 25 * each
    return log.stage_done(0, done).job_done(0, done + 10).end(done + 20)


def test_the_rest_of_a_millisecond_that_the_timer_drops_counts(tmp_path: Path) -> None:
    (cause,) = causes(many_tasks(scan_ms=20, frame_ms=0), tmp_path)
    # 20 ms of each task's 100, and a millisecond for each of its 32 files; one file must be read all the same.
    assert cause.cause == "small_files_read"
    assert cause.saved_ns == pytest.approx(25 * 52e6, rel=0.01)
    # No scan takes longer than its task.
    (cause,) = causes(many_tasks(scan_ms=90, frame_ms=0), tmp_path)
    assert cause.saved_ns == pytest.approx(25 * 100e6, rel=0.01)


def test_the_tasks_that_files_make_count(tmp_path: Path) -> None:
    first, *_ = causes(many_tasks(scan_ms=20, frame_ms=60), tmp_path)
    assert first.cause == "small_files_read"
    # Of 50 tasks one file of 16 MB, in parts of 10 MB, leaves two: 48 frames of 60 ms, by two cores.
    assert first.saved_ns == pytest.approx(25 * 52e6 + 48 / 2 * 60e6, rel=0.02)


def asked_again(files: int, sizes: list[int], tasks: int) -> EventLog:
    """Let queries read so many bytes of files, one after the other, each in tasks of a second on two cores."""
    log = EventLog(cores=[2])
    log.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.app.name": "by hand"}})
    start = 0
    for number, size in enumerate(sizes):
        query(log, number, files, size, at_ms=start + 500)
        log.stage(number, start + 1000, tasks=tasks)
        for index in range(tasks):
            begin = start + 1010 + index // 2 * 1000
            updates = {10 * number: 1, 10 * number + 3: 900}
            log.task(number, index, "0", begin, begin + 1000, run=1000, updates=updates)
            log.events[-1]["Task Metrics"]["Input Metrics"]["Bytes Read"] = size // tasks
        start += 1010 + -(-tasks // 2) * 1000
        log.stage_done(number, start).job_done(number, start + 10)
    return log.end(start + 20)


def test_queries_that_read_the_same_archive_have_one_cause(tmp_path: Path) -> None:
    def unsplittable(*sizes: int) -> list[Cause]:
        found = causes(asked_again(1, list(sizes), 1), tmp_path)
        return [cause for cause in found if cause.cause == "unsplittable_input"]

    (one,) = unsplittable(90 * MIB)
    (cause,) = unsplittable(*[90 * MIB] * 3)
    assert cause.signal["stages"] == [0, 1, 2]
    assert cause.saved_ns == pytest.approx(3 * one.saved_ns, rel=0.01)
    assert cause.text.endswith("2 more stages read as much: 3.0 s together.")
    # What reads another amount is another file.
    assert len(unsplittable(90 * MIB, 80 * MIB)) == 2
    # Each of twenty queries alone would be too little to be named.
    (cause,) = unsplittable(*[90 * MIB] * 20)
    assert cause.signal["stages"] == list(range(20))


def test_queries_that_read_the_same_small_files_have_one_cause(tmp_path: Path) -> None:
    def small_files(queries: int) -> Cause:
        found = causes(asked_again(1_600, [1_600 * 10 * 1024] * queries, 50), tmp_path)
        (cause,) = (cause for cause in found if cause.cause == "small_files_read")
        return cause

    one, three = small_files(1), small_files(3)
    assert three.signal["stages"] == [0, 1, 2]
    assert three.saved_ns == pytest.approx(3 * one.saved_ns, rel=0.01)
    assert "and 2 more stages each read 1,600 files" in three.text
