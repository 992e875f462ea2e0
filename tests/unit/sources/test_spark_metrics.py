"""What stages added to their plan nodes' accumulators, and settings with where they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from pag_graph.diagnosis.spark.nodes import self_times
from pag_graph.diagnosis.spark.stage_table import stage_table
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from pag_graph.sources.spark.plans import metric_name
from pag_graph.sources.spark.reader import read_log
from pag_graph.sources.spark.settings import SETTINGS, setting, settings_of
from tests.support.spark_logs import ORIGIN_MS, EventLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.sources.spark.log_tables import SparkLog

LOGS = Path(__file__).parents[2] / "data" / "spark"
SQL_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"


def read(log: EventLog, folder: Path) -> SparkLog:
    return read_log(LogFiles(name="log", files=(log.write(folder / "log"),)))


def accumulators_of(plan: dict[str, Any]) -> Iterator[int]:
    yield from (metric["accumulatorId"] for metric in plan.get("metrics", ()))
    for child in plan.get("children", ()):
        yield from accumulators_of(child)


def test_all_values_of_a_real_log_are_the_sums_of_their_tasks() -> None:
    file = LOGS / "sql.zstd"
    with pa.input_stream(file, compression="zstd") as stream:
        events = [json.loads(line) for line in stream.read().decode().splitlines()]
    wanted = {number for event in events for number in accumulators_of(event.get("sparkPlanInfo", {}))}
    sums: dict[tuple[int, int, int], int] = {}
    for event in events:
        if event["Event"] == "SparkListenerTaskEnd":
            for item in event["Task Info"]["Accumulables"]:
                if item["ID"] in wanted and "Update" in item:
                    key = (event["Stage ID"], event["Stage Attempt ID"], item["ID"])
                    sums[key] = sums.get(key, 0) + int(item["Update"])
    log = read_log(find_logs(file)[0])
    assert len(sums) == 184
    assert {row[:3]: row[3] for row in log.stage_metrics.iter_rows()} == sums


def updated(log: EventLog, update: Any, total: int = 0) -> EventLog:
    """State what the last task or stage event of a log adds to accumulator 7."""
    item = {"ID": 7, "Name": "number of output rows", "Update": update, "Value": total, "Metadata": "sql"}
    event = log.events[-1]
    (event["Stage Info"] if "Stage Info" in event else event["Task Info"])["Accumulables"] = [item]
    return log


def of_plan(log: EventLog, **more: Any) -> EventLog:
    metrics = [{"name": "number of output rows", "accumulatorId": 7, "metricType": "sum"}]
    plan = {"nodeName": "Scan parquet", "simpleString": "Scan", "children": [], "metrics": metrics}
    log.add(SQL_START, executionId=0, description="", time=ORIGIN_MS + 20, sparkPlanInfo=plan)
    log.events[-1] |= more
    return log


def test_stages_that_share_an_accumulator_and_an_end_that_comes_again(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0, 1])
    for stage, total in ((0, 5), (1, 12)):
        log.stage(stage, 100, tasks=1)
        updated(log.task(stage, 0, "0", 100 + 100 * stage, 190 + 100 * stage, run=90), str(5 + 2 * stage))
        updated(log.stage_done(stage, 190 + 100 * stage), None, total)
    # The output of the first task was lost with its executor: Spark states its end again.
    again = json.loads(json.dumps(next(e for e in log.events if e["Event"] == "SparkListenerTaskEnd")))
    log.events.append({**again, "Task End Reason": {"Reason": "Resubmitted"}})
    log.events.append(again)
    # Adaptive execution tells of the plan after its stages have run.
    found = read(of_plan(log.job_done(0, 300).end(310)), tmp_path)
    assert found.stage_metrics.rows() == [(0, 0, 7, 5, 1), (1, 0, 7, 7, 1)]


@pytest.mark.parametrize("update", [[], {}, "many", 1e308, None])
def test_updates_that_are_no_numbers_are_left_out_and_told(update: Any, tmp_path: Path) -> None:
    log = of_plan(EventLog(cores=[1])).job(0, 100, [0]).stage(0, 100, tasks=1)
    updated(log.task(0, 0, "0", 100, 190, run=90), update)
    found = read(log.stage_done(0, 191).job_done(0, 200).end(210), tmp_path)
    assert found.tasks.height == 1
    assert [row[:3] for row in found.stage_metrics.rows()] == ([(0, 0, 7)] if update == 1e308 else [])
    assert {f.finding for f in found.findings} == (set() if update in (None, 1e308) else {"value_out_of_range"})


def test_names_of_metrics_are_those_of_all_versions() -> None:
    assert metric_name("time in aggregation build total (min, med, max)") == "time in aggregation build"
    assert metric_name("scan time total (min, med, max (stageId: taskId))") == "scan time"
    assert metric_name("data size total (min, med, max (stageId (attemptId): taskId))") == "data size"
    assert metric_name("SELECT pin FROM t WHERE pin = 1234") == "other"


def metrics(*rows: tuple[int, str, str, int]) -> pl.DataFrame:
    names = ("node", "metric", "kind", "value")
    return pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows]).with_columns(execution=0)


def test_timers_mean_what_spark_measures_with_them() -> None:
    # An aggregate (1) pulls from a sort (2), which pulls from a scan (4) in code that was generated (3).
    parents = {(0, 0): None, (0, 1): 0, (0, 2): 1, (0, 3): 2, (0, 4): 3}
    ms = 1_000_000
    stage = metrics(
        (1, "time in aggregation build", "timing", 10_031),
        (2, "sort time", "timing", 5_755),
        (2, "peak memory", "size", 1 << 30),
        (3, "duration", "timing", 11_285),
        (4, "scan time", "timing", 1_000),
        (4, "remote reqs duration", "timing", 90_000),
        (0, "shuffle write time", "nsTiming", 7),
    )
    assert self_times(stage, parents) == {0: 7, 1: 3_276 * ms, 2: 5_755 * ms, 4: 1_000 * ms}
    # What is timed below can be more than the timer above: then nothing is left for it.
    assert self_times(metrics((1, "time to build hash map", "timing", 5), (2, "sort time", "timing", 9)), parents) == {
        2: 9 * ms
    }


def test_a_setting_says_where_its_value_comes_from(tmp_path: Path) -> None:
    log = EventLog(cores=[1], version="4.1.0")
    log.add(
        "SparkListenerEnvironmentUpdate",
        **{"Spark Properties": {"spark.sql.shuffle.partitions": "7", "spark.password": "x", "spark.master": "local"}},
    )
    changed = {"spark.sql.shuffle.partitions": "9", "spark.hadoop.secret": "x"}
    found = read(of_plan(log, modifiedConfigs=changed).end(100), tmp_path)
    assert setting(found, "spark.sql.shuffle.partitions") == ("7", "application")
    assert setting(found, "spark.sql.shuffle.partitions", 0) == ("9", "query")
    assert setting(found, "spark.sql.shuffle.partitions", 1) == ("7", "application")
    assert setting(found, "spark.sql.adaptive.enabled") == ("true", "default")
    assert setting(found, "spark.executor.cores") == (None, "unknown")
    assert (found.query_settings, set(found.properties)) == (
        {0: {"spark.sql.shuffle.partitions": "9"}},
        {"spark.sql.shuffle.partitions", "spark.master"},
    )
    assert settings_of(found)["spark.sql.shuffle.partitions"] == {
        "value": "7",
        "source": "application",
        "queries": {"0": "9"},
    }
    assert settings_of(found).keys() == SETTINGS.keys()


def test_defaults_are_those_of_the_version_and_unknown_without_an_environment(tmp_path: Path) -> None:
    for version, environment, expected in (
        ("2.4.8", True, ("false", "default")),
        ("3.2.0", True, ("true", "default")),
        ("4.1.0", False, (None, "unknown")),
    ):
        log = EventLog(cores=[1], version=version)
        if environment:
            log.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.master": "local"}})
        assert setting(read(log.end(100), tmp_path), "spark.sql.adaptive.enabled") == expected


@pytest.mark.parametrize("cpu_ns", [0, 40_000_000])
def test_processor_time_that_is_always_zero_was_not_measured(cpu_ns: int, tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=1).task(0, 0, "0", 100, 190, run=90)
    log.events[-1]["Task Metrics"]["Executor CPU Time"] = cpu_ns
    found = read(log.stage_done(0, 191).job_done(0, 200).end(210), tmp_path)
    assert stage_table(map_log(found).schedule)["cpu_ns"].to_list() == [cpu_ns or None]
