"""Causes and costs that need a cluster, an object store or a table format, on logs by hand; each beside one without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import ORIGIN_MS, EventLog

if TYPE_CHECKING:
    from pathlib import Path

SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
SETTINGS = {"spark.executor.memory": "4g", "spark.driver.memory": "1g", "spark.locality.wait": "3s"}


def told(log: EventLog, folder: Path) -> Diagnosis:
    return diagnose(map_log(read_log(LogFiles(name="log", files=(log.write(folder / "log"),)))).schedule)


def names(found: Diagnosis) -> list[str]:
    return [cause.cause for cause in found.causes]


def changes(found: Diagnosis, name: str) -> list[str]:
    (cause,) = [cause for cause in found.causes if cause.cause == name]
    return [change.text for change in cause.changes]


def begun(cores: list[int], **more: str) -> EventLog:
    properties = SETTINGS | {f"spark.{name.replace('_', '.')}": value for name, value in more.items()}
    return EventLog(cores=cores).add("SparkListenerEnvironmentUpdate", **{"Spark Properties": properties})


def far_tasks(locality: str, launch: int, near: str = "NODE_LOCAL") -> EventLog:
    """Return a stage of two tasks near their data on one executor, and one that the other executor gets later."""
    log = begun([1, 1]).job(0, 100, [0]).stage(0, 100, tasks=3)
    for index in range(2):
        log.task(0, index, "0", 110 + 3_000 * index, 3_100 + 3_000 * index, run=2_980, locality=near)
    log.task(0, 2, "1", launch, launch + 3_000, run=2_990, locality=locality)
    return log.stage_done(0, 6_210).job_done(0, 6_220).end(6_300)


def test_a_core_that_waits_for_near_tasks(tmp_path: Path) -> None:
    found = told(far_tasks("ANY", 3_200), tmp_path)
    assert names(found) == ["locality_wait"]
    assert found.causes[0].saved_ns == 3_090_000_000
    assert changes(found, "locality_wait") == ["spark.locality.wait: 3s -> 0s"]
    # At once, or with nothing nearer to wait for: no wait.
    assert "locality_wait" not in names(told(far_tasks("ANY", 130), tmp_path))
    assert "locality_wait" not in names(told(far_tasks("ANY", 3_200, near="ANY"), tmp_path))


def test_a_core_that_runs_a_retry_is_not_empty(tmp_path: Path) -> None:
    def log(attempt: int) -> EventLog:
        log = begun([1, 1]).job(0, 100, [0]).stage(0, 100, tasks=4)
        for index in range(2):
            log.task(0, index, "0", 110 + 3_000 * index, 3_100 + 3_000 * index, run=2_980, locality="NODE_LOCAL")
        log.task(0, 3, "1", 115, 3_190, run=3_060, locality="ANY", attempt=attempt)
        log.task(0, 2, "1", 3_200, 6_200, run=2_990, locality="ANY")
        return log.stage_done(0, 6_210).job_done(0, 6_220).end(6_300)

    for attempt in (0, 1):
        assert "locality_wait" not in names(told(log(attempt), tmp_path))


def kept_tasks(log: EventLog, locality: str = "NODE_LOCAL", *, apart: int = 10) -> EventLog:
    """Return a stage of three tasks that one executor runs one after the other while another one is empty."""
    log.job(0, 100, [0]).stage(0, 100, tasks=3)
    for index in range(3):
        start = 110 + (2_000 + apart) * index
        log.task(0, index, "0", start, start + 2_000, run=1_980, locality=locality)
    return log.stage_done(0, 8_000).job_done(0, 8_010).end(8_100)


def test_tasks_that_are_kept_for_a_core_near_their_data(tmp_path: Path) -> None:
    found = told(kept_tasks(begun([1, 1])), tmp_path)
    [cause] = [cause for cause in found.causes if cause.cause == "locality_wait"]
    # From the first launch to the last one.
    assert cause.saved_ns == 4_020_000_000
    assert "1 of which were kept for a core near it" in cause.text
    assert changes(found, "locality_wait") == ["spark.locality.wait: 3s -> 0s"]
    # The time to wait for a core on the same host can be said by itself.
    found = told(kept_tasks(begun([1, 1], locality_wait_node="5s", locality_wait="0s")), tmp_path)
    assert changes(found, "locality_wait") == ["spark.locality.wait.node: 5s -> 0s"]


@pytest.mark.parametrize(
    "log",
    [
        kept_tasks(begun([1, 1]), "ANY"),
        kept_tasks(begun([1, 1]), "NO_PREF"),
        # One executor has nobody to lend a core, and an executor that was excluded may not.
        kept_tasks(begun([1])),
        kept_tasks(begun([1, 1], excludeOnFailure_enabled="true")),
        # The driver was slow: near cores were empty, too.
        kept_tasks(begun([1, 1]), apart=500),
        # Nobody waits if told not to.
        kept_tasks(begun([1, 1], locality_wait="0s")),
        # One that is lost later may have been dead.
        kept_tasks(begun([1, 1]).executor_gone("1", 7_000)),
        # Where a task takes two cores, the cores of one are not counted.
        kept_tasks(begun([1, 1], task_cpus="2")),
    ],
)
def test_tasks_that_are_not_kept(tmp_path: Path, log: EventLog) -> None:
    assert "locality_wait" not in names(told(log, tmp_path))


def driver_log(executor: str) -> EventLog:
    log = begun([1]) if executor == "0" else EventLog(cores=[])
    if executor == "driver":
        log.executor("driver", 10, 1).add("SparkListenerEnvironmentUpdate", **{"Spark Properties": SETTINGS})
    for job in range(2):
        at = 100 + 10_000 * job
        log.job(job, at, [job]).stage(job, at, tasks=1).task(job, 0, executor, at + 5, at + 4_000, run=3_990)
        log.stage_done(job, at + 4_001).job_done(job, at + 4_010)
    metrics = {"JVMHeapMemory": 900 << 20, "TotalGCTime": 4_000}
    log.add(
        "SparkListenerStageExecutorMetrics",
        **{"Executor ID": "driver", "Stage ID": 1, "Stage Attempt ID": 0, "Executor Metrics": metrics},
    )
    return log.end(14_200)


def test_garbage_of_the_driver(tmp_path: Path) -> None:
    found = told(driver_log("0"), tmp_path)
    assert changes(found, "driver_gc") == ["spark.driver.memory: 1g -> 2048m"]
    assert next(cause for cause in found.causes if cause.cause == "driver_gc").saved_ns == 4_000_000_000
    assert "spark.eventLog.logStageExecutorMetrics" not in [each.setting for each in found.not_recorded]
    # In one process it is the tasks' garbage as well.
    assert "driver_gc" not in names(told(driver_log("driver"), tmp_path))


def planned(node: dict[str, Any], updates: dict[int, int], **task: Any) -> EventLog:
    """Return a query with a plan of one node, of which two tasks of ten seconds have counted."""
    log = begun([1]).add(f"{SQL}Start", executionId=3, description="", time=ORIGIN_MS + 90, sparkPlanInfo=node)
    log.job(0, 100, [0], spark_sql_execution_id="3").stage(0, 100, tasks=2)
    for index in range(2):
        start = 100 + 10_000 * index
        log.task(0, index, "0", start, start + 10_000, run=9_990, updates=updates, **task)
    return log.stage_done(0, 20_101).job_done(0, 20_102).add(f"{SQL}End", executionId=3, time=ORIGIN_MS + 20_103)


def node(name: str, *metrics: tuple[str, int, str], text: str = "") -> dict[str, Any]:
    rows = [{"name": metric, "accumulatorId": number, "metricType": kind} for metric, number, kind in metrics]
    return {"nodeName": name, "simpleString": text or name, "children": [], "metrics": rows}


def test_requests_to_an_object_store(tmp_path: Path) -> None:
    scan = node("Scan parquet", ("gcs api time", 7, "timing"), ("number of output rows", 8, "sum"))
    found = told(planned(scan, {7: 6_000, 8: 5}).end(20_200), tmp_path)
    assert [(cause.cause, cause.bound) for cause in found.causes] == [("cloud_wait", True)]
    assert found.causes[0].saved_ns == pytest.approx(12_000_000_000, abs=100)
    assert told(planned(scan, {7: 100, 8: 5}).end(20_200), tmp_path).causes == []


def test_a_merge_that_writes_rows_again(tmp_path: Path) -> None:
    counts = [("number of target rows rewritten unmodified", 7, "sum"), ("number of updated rows", 8, "sum")]
    merge = node("Execute MergeIntoCommand", *counts)

    def merged(same: int) -> Diagnosis:
        log = planned(merge, {}, output_bytes=1 << 20)
        update = {"executionId": 3, "accumUpdates": [[7, same], [8, 100]]}
        log.events.insert(-1, {"Event": "org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates", **update})
        return told(log.end(20_200), tmp_path)

    found = merged(9_900)
    assert names(found) == ["merge_rewrite"]
    assert found.causes[0].saved_ns == pytest.approx(0.99 * 19_980_000_000, rel=1e-6)
    assert merged(900).causes == []


def test_jobs_for_a_tables_log(tmp_path: Path) -> None:
    def logged(description: str) -> Diagnosis:
        log = begun([1]).job(0, 100, [0], spark_job_description=description).stage(0, 100, tasks=1)
        log.task(0, 0, "0", 100, 5_100, run=4_990).stage_done(0, 5_101).job_done(0, 5_102)
        log.job(1, 5_110, [1]).stage(1, 5_110, tasks=1).task(1, 0, "0", 5_110, 20_100, run=14_980)
        return told(log.stage_done(1, 20_101).job_done(1, 20_102).end(20_110), tmp_path)

    found = logged("Delta: Filtering files for secret query")
    assert [(cause.cause, cause.saved_ns) for cause in found.causes] == [("table_commit", 5_002_000_000)]
    assert "secret" not in found.causes[0].text
    assert logged("Filtering files").causes == []


def test_partitions_that_do_not_fit_are_told_from_small_ones_that_spill(tmp_path: Path) -> None:
    def spilled(size: int) -> Diagnosis:
        log = planned(node("Sort"), {}, read=(0, size, 1), spilled=size)
        return told(log.end(20_200), tmp_path)

    assert names(spilled(2 << 30)) == ["huge_partitions"]
    assert changes(spilled(2 << 30), "huge_partitions") == [
        "partitions: 2 -> 32, by repartition(), or smaller splits of the input, in stage 0"
    ]
    assert names(spilled(64 << 20)) == ["spill"]


def roomy(*, cores: int, held: int, gap: int = 0, off_heap: int = 0, spilled: int = 0) -> EventLog:
    """Return four tasks a core, on executors that hold so many MiB; `gap` are milliseconds between two jobs."""
    log = begun([cores])
    peaks = {"JVMHeapMemory": 1 << 30, "OnHeapExecutionMemory": held << 20, "OffHeapUnifiedMemory": off_heap << 20}
    peaks["task"] = (held << 20) // cores
    for job in range(2):
        at = 100 + (4_000 + gap) * job
        log.job(job, at, [job]).stage(job, at, tasks=cores)
        for index in range(cores):
            log.task(
                job,
                index,
                "0",
                at,
                at + 4_000,
                run=3_990,
                spilled=spilled,
                peaks=peaks,
            )
        log.stage_done(job, at + 4_000).job_done(job, at + 4_000)
    return log.end(8_100 + gap)


def test_memory_that_nobody_used(tmp_path: Path) -> None:
    (cost,) = told(roomy(cores=2, held=200), tmp_path).costs
    assert (cost.cost, cost.unit, cost.change.text) == (
        "memory_over",
        "GiB-hours",
        "spark.executor.memory: 4g -> 2048m",
    )
    assert cost.saved == pytest.approx(2 * 8.09 / 3600, rel=0.01)
    for used in ({"held": 900}, {"held": 200, "off_heap": 5}, {"held": 200, "spilled": 1}):
        assert told(roomy(cores=2, **used), tmp_path).costs == []


def test_cores_that_nobody_used(tmp_path: Path) -> None:
    found = told(roomy(cores=8, held=2_000, gap=400_000), tmp_path)
    (cost,) = found.costs
    assert (cost.cost, cost.unit) == ("idle_cores", "core-hours")
    assert cost.change.text == "cores: 8 -> 3, in the application"
    assert cost.slower == pytest.approx(16 / 408, abs=0.002)
    assert told(roomy(cores=8, held=2_000), tmp_path).costs == []


def test_ends_of_tasks_that_the_log_lost(tmp_path: Path) -> None:
    log = begun([1]).job(0, 100, [0]).stage(0, 100, tasks=3)
    for index in range(2):
        log.task(0, index, "0", 100 + 100 * index, 190 + 100 * index, run=80)
    log.stage_done(0, 500).job_done(0, 510).end(600)
    read = read_log(LogFiles(name="log", files=(log.write(tmp_path / "log"),)))
    assert [(each.finding, each.observed) for each in read.findings if each.finding == "task_ends_lost"] == [
        ("task_ends_lost", 1)
    ]
