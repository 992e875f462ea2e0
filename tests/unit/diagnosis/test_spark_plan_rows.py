"""The path by plan node: rows that add up to it, by the timers of the tasks that it leads through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.nodes import RowKey, apportion
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from pag_graph.sources.spark.task_updates import read_task_updates
from tests.support.spark_logs import EventLog

LOGS = Path(__file__).parents[2] / "data" / "spark"
ALL = sorted(path for folder in (LOGS, LOGS / "plans") for path in folder.glob("*.zstd"))
MS = 1_000_000
SQL_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_rows_add_up_to_path_and_tasks(path: Path) -> None:
    (log,) = find_logs(path)
    told = answer(log)
    tasks = told.mapped.schedule.tasks
    assert sum(row["path_ns"] for row in told.plan_nodes) == told.diagnosis.span_ns
    assert sum(row["task_ns"] for row in told.plan_nodes) == int((tasks["free"] - tasks["receipt"]).sum())
    assert all(row["path_ns"] >= 0 for row in told.plan_nodes)
    assert all(row["task_ns"] >= 0 for row in told.plan_nodes)


def two_sorts(first: int, second: int) -> EventLog:
    """Two tasks of one stage of 100 ms each, of which a sort took so many."""
    plan = {
        "nodeName": "Sort",
        "simpleString": "Sort [a#1]",
        "metrics": [{"name": "sort time", "accumulatorId": 7, "metricType": "timing"}],
        "children": [],
    }
    log = EventLog(cores=[1])
    log.add(SQL_START, executionId=0, description="q at p.py:1", time=0, sparkPlanInfo=plan)
    log.job(0, 100, [0], execution=0).stage(0, 100, tasks=2)
    for index, value in enumerate((first, second)):
        log.task(0, index, "0", 100 + 100 * index, 200 + 100 * index, run=100)
        end = next(event for event in reversed(log.events) if event["Event"] == "SparkListenerTaskEnd")
        end["Task Info"]["Accumulables"] = [{"ID": 7, "Update": str(value), "Metadata": "sql"}]
    return log.stage_done(0, 300).job_done(0, 300).end(300)


def rows_of(log: EventLog, folder: Path) -> tuple[dict[str, Any], dict[str, int]]:
    told = answer(LogFiles(name="log", files=(log.write(folder / "log"),)))
    return {(row["name"], row["kind"]): row["path_ns"] // MS for row in told.plan_nodes}, told.findings


def test_each_task_divides_by_its_own_timers(tmp_path: Path) -> None:
    rows, findings = rows_of(two_sorts(90, 10), tmp_path)
    assert rows["Sort", "node"] == 100
    assert rows["Sort", "shared"] == 100
    assert "timers_exceed_task" not in findings


def test_timers_beyond_a_tasks_work_are_scaled_and_told(tmp_path: Path) -> None:
    rows, findings = rows_of(two_sorts(300, 10), tmp_path)
    # The first task is all sort, however much its timer says; the second one a tenth.
    assert rows["Sort", "node"] == 110
    assert findings["timers_exceed_task"] == 1


def test_the_second_pass_takes_what_was_asked_for_only(tmp_path: Path) -> None:
    log = two_sorts(90, 10)
    log.events.append(dict(log.events[-2]))
    file = LogFiles(name="log", files=(log.write(tmp_path / "log"),))
    ids = [e["Task Info"]["Task ID"] for e in log.events if e["Event"] == "SparkListenerTaskEnd"]
    assert read_task_updates(file, ids, [7]) == {ids[0]: {7: 90}, ids[1]: {7: 10}}
    assert read_task_updates(file, ids[:1], [7]) == {ids[0]: {7: 90}}
    assert read_task_updates(file, ids, [8]) == {ids[0]: {}, ids[1]: {}}
    assert read_task_updates(file, [], [7]) == {}


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**12), min_size=1, max_size=8).filter(any))
def test_parts_add_up_and_are_near_their_share(total: int, sizes: list[int]) -> None:
    weights = {RowKey(0, number, "", "node"): size for number, size in enumerate(sizes)}
    parts = apportion(total, weights)
    assert sum(parts.values()) == total
    assert all(abs(parts[key] - total * size / sum(sizes)) < 1 + total * 1e-12 for key, size in weights.items())


def test_columns(tmp_path: Path) -> None:
    told = answer(LogFiles(name="log", files=(two_sorts(90, 10).write(tmp_path / "log"),)))
    frame = pl.DataFrame(told.plan_nodes)
    assert frame.columns == ["query", "node", "name", "kind", "path_ns", "task_ns", "measured"]
