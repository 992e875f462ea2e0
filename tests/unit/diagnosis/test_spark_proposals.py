"""What is proposed for causes that are found in tasks alone: values, with those that the log has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.diagnosis.spark.look import Cause
from pag_graph.diagnosis.spark.program_changes import PROGRAM_CHANGES
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import ORIGIN_MS, EventLog

DATA = Path(__file__).parents[2] / "data" / "spark"
SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"

RECORDED = {
    "gc-heavy": ("gc", ["spark.executor.memory: 600m -> 1200m"]),
    "slow-node": ("slow_node", ["spark.speculation: false (default) -> true"]),
    "speculation": ("speculation", ["spark.speculation.multiplier: 8 -> 1.5"]),
    "straggler-task": ("straggler", []),
    "cores/cores-skewed-key-1x2": (
        "key_skew",
        ["the key: all rows of one in one task -> salted, or aggregated in two steps, in stage 1"],
    ),
    "plans/small-files-written-planted": (
        "output_commit",
        [
            (
                "the committer of output files: moves them after the last job -> one that renames nothing (of the"
                " object store, or of a table format), or fewer files, in query 22"
            )
        ],
    ),
    "tiny-tasks": ("tiny_tasks", ["partitions: 900 -> 2, by coalesce(), or larger splits of the input, in stage 0"]),
    "too-few-partitions": (
        "too_few_partitions",
        ["partitions: 1 -> 2, by repartition(), or more splits of the input, in stage 0"],
    ),
}


def diagnosis_of(log: LogFiles) -> Diagnosis:
    return diagnose(map_log(read_log(log)).schedule)


def changes(found: Diagnosis, cause: str) -> list[str]:
    (only,) = [each for each in found.causes if each.cause == cause]
    return [change.text for change in only.changes]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_logs(name: str) -> None:
    cause, expected = RECORDED[name]
    (log,) = find_logs(DATA / f"{name}.zstd")
    assert changes(diagnosis_of(log), cause) == expected


PROGRAMS = {
    "collect_large": (
        None,
        {"result_bytes": 3 << 20},
        "results: 3 MiB to the driver -> written by tasks, or a part of",
    ),
    "deserialization": (4, {}, "what tasks carry: with each task -> a broadcast variable, in stage 4"),
    "listing": (None, {"jobs": [1, 2]}, "input files: listed by 2 jobs -> a table of a catalog that knows its files"),
    "many_small_jobs": (
        None,
        {"call_sites": {"count at a.py:1": 30, "count at a.py:9": 40}},
        "jobs: 40, each for a part -> one query for all, in count at a.py:9",
    ),
    "partition_skew": (2, {}, "partitions: as the input has them -> repartition() after reading, in stage 2"),
    "shuffle_fetch": (0, {}, "the shuffle: 8 MiB read -> fewer rows and columns before the exchange, in stage 0"),
    "single_window": (3, {}, "the window: over all rows, in one task -> PARTITION BY a column, in stage 3"),
    "unsplittable_input": (1, {}, "input files: one task for each, whatever its size -> more files, or a format whose"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_does_and_should_do(name: str) -> None:
    stage, signal, expected = PROGRAMS[name]
    cause = Cause(cause=name, saved_ns=1, share=0.5, stage=stage, signal=signal)
    columns = {"stage": [0, 0, 1], "remote_bytes": [3 << 20, 1 << 20, 1 << 30], "local_bytes": [4 << 20, 0, 0]}
    look = SimpleNamespace(tasks=pl.DataFrame(columns))
    change, *_ = PROGRAM_CHANGES[name](look, cause)  # type: ignore[arg-type]
    assert change.text.startswith(expected)


def test_what_helps_where_all_rows_must_be_ranked() -> None:
    cause = Cause(cause="single_window", saved_ns=1, share=0.5, stage=3)
    _, ranks = PROGRAM_CHANGES["single_window"](SimpleNamespace(), cause)  # type: ignore[arg-type]
    assert ranks.text.startswith("ranks: counted over all rows -> by ranges of what orders them, plus the rows")
    assert "If all rows must be ranked" in cause.advice


@pytest.mark.parametrize(("mode", "expected"), [("FIFO", ["spark.scheduler.mode: FIFO -> FAIR"]), ("FAIR", [])])
def test_jobs_take_turns_where_they_do_not(mode: str, expected: list[str], tmp_path: Path) -> None:
    log = EventLog(cores=[1]).add(
        "SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.scheduler.mode": mode}}
    )
    look = SimpleNamespace(schedule=map_log(read_log(written(log.end(10), tmp_path))).schedule)
    cause = Cause(cause="concurrent_jobs", saved_ns=1, share=0.5)
    assert [change.text for change in PROGRAM_CHANGES["concurrent_jobs"](look, cause)] == expected  # type: ignore[arg-type]


def few_partitions(properties: dict[str, str], *, tasks: int, spilled: int = 0, read: int = 1) -> EventLog:
    """Return a query whose shuffle has fewer partitions than the eight cores that there are."""
    log = EventLog(cores=[8])
    log.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": properties})
    log.add(f"{SQL}Start", executionId=7, description="", time=ORIGIN_MS + 90, sparkPlanInfo={})
    log.job(0, 100, [0], spark_sql_execution_id="7").stage(0, 100, tasks=tasks)
    for index in range(tasks):
        log.task(0, index, "0", 100, 20_100, run=20_000, read=(0, read << 20, 10), spilled=spilled << 20)
    return (
        log.stage_done(0, 20_101)
        .job_done(0, 20_102)
        .add(f"{SQL}End", executionId=7, time=ORIGIN_MS + 20_103)
        .end(20_200)
    )


def written(log: EventLog, folder: Path) -> LogFiles:
    return LogFiles(name="log", files=(log.write(folder / "log"),))


def test_the_setting_is_proposed_where_it_decided_the_number(tmp_path: Path) -> None:
    log = few_partitions({"spark.sql.shuffle.partitions": "2"}, tasks=2)
    found = changes(diagnosis_of(written(log, tmp_path)), "too_few_partitions")
    assert found == ["spark.sql.shuffle.partitions: 2 -> 8, in stage 0"]


def test_the_program_is_to_change_where_something_else_decided_it(tmp_path: Path) -> None:
    log = few_partitions({"spark.sql.shuffle.partitions": "200"}, tasks=2)
    found = changes(diagnosis_of(written(log, tmp_path)), "too_few_partitions")
    assert found == ["partitions: 2 -> 8, by repartition(), or more splits of the input, in stage 0"]


def test_tasks_that_spill_are_made_smaller_until_they_are_small(tmp_path: Path) -> None:
    settings = {"spark.sql.shuffle.partitions": "8", "spark.executor.memory": "2g", "spark.executor.cores": "8"}
    large = few_partitions(settings, tasks=8, spilled=4096, read=1024)
    assert changes(diagnosis_of(written(large, tmp_path)), "huge_partitions") == [
        "spark.sql.shuffle.partitions: 8 -> 64, in stage 0"
    ]
    small = few_partitions(settings, tasks=8, spilled=4096, read=64)
    assert changes(diagnosis_of(written(small, tmp_path)), "spill") == [
        "spark.executor.memory: 2g -> 4096m",
        "spark.executor.cores: 8 -> 4, if not more memory",
    ]
    bare = few_partitions({**settings, "spark.executor.memory": "2048"}, tasks=8, spilled=4096, read=64)
    assert changes(diagnosis_of(written(bare, tmp_path)), "spill")[0] == "spark.executor.memory: 2048 -> 4096m"


def test_writing_for_shuffles_is_a_cause_with_a_bound(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=2)
    for index in range(2):
        start = 100 + 10_000 * index
        log.task(0, index, "0", start, start + 10_000, run=10_000, write_ns=6_000_000_000, wrote=(1 << 30, 1))
    found = diagnosis_of(written(log.stage_done(0, 20_101).job_done(0, 20_102).end(20_200), tmp_path))
    (cause,) = found.causes
    assert (cause.cause, cause.bound, cause.saved_ns) == ("shuffle_write", True, 12_000_000_000)
