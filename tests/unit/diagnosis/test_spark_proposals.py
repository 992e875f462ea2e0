"""What is proposed for causes that are found in tasks alone: values, with those that the log has."""

from __future__ import annotations

from pathlib import Path

import pytest

from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
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


def test_writing_for_shuffles_is_a_cause_with_a_bound(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=2)
    for index in range(2):
        start = 100 + 10_000 * index
        log.task(0, index, "0", start, start + 10_000, run=10_000, write_ns=6_000_000_000, wrote=(1 << 30, 1))
    found = diagnosis_of(written(log.stage_done(0, 20_101).job_done(0, 20_102).end(20_200), tmp_path))
    (cause,) = found.causes
    assert (cause.cause, cause.bound, cause.saved_ns) == ("shuffle_write", True, 12_000_000_000)
