"""Patterns of plans without a time, on recorded logs and by hand; and what logs do not record."""

from __future__ import annotations

from pathlib import Path

import pytest

from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.diagnosis.spark.lines import text_lines
from pag_graph.diagnosis.spark.page import html_page
from pag_graph.diagnosis.spark.plan_view import PlanNode
from pag_graph.diagnosis.spark.suspicions import suspicions
from pag_graph.sources.spark.codecs import decode
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import EventLog

DATA = Path(__file__).parents[2] / "data" / "spark"

PATTERNS = {"agg_fallback", "multiplied_rows", "unused_order", "useless_partial_agg", "wasted_shuffle"}
OF_TEXTS = {"cache_unused", "codegen_fallback", "full_scan", "serial_jobs", "slow_expression"}
"""Its queries have one task each, one after another."""


def diagnosis(name: str) -> Diagnosis:
    (log,) = find_logs(DATA / name)
    return diagnose(map_log(read_log(log)).schedule)


def node(name: str, *children: PlanNode, rows: int | None = None, detail: str = "", **counted: int) -> PlanNode:
    """Return a node of a plan above its children, with what it counted."""
    counts = {metric.replace("_", " "): value for metric, value in counted.items()}
    if rows is not None:
        counts["number of output rows"] = rows
    made = PlanNode(execution=3, node=0, name=name, detail=detail, mark=0, children=list(children))
    made.counted = {metric: {(0, 0): value} for metric, value in counts.items()}
    for child in children:
        child.parent = made
    return made


def seen(root: PlanNode) -> list[str]:
    return [each.suspicion for each in suspicions(root.below())]


@pytest.mark.parametrize(("program", "patterns"), [("plan-patterns", PATTERNS), ("plan-texts", OF_TEXTS)])
def test_planted_patterns_are_seen_and_their_twins_are_not(program: str, patterns: set[str]) -> None:
    planted = diagnosis(f"plans/{program}-planted.zstd")
    assert {each.suspicion for each in planted.suspicions} == patterns
    assert planted.causes == [cause for cause in planted.causes if cause.cause not in patterns]
    assert diagnosis(f"plans/{program}-twin.zstd").suspicions == []


@pytest.mark.parametrize("name", ["sql.zstd", "plans/exploding-join-decoy.zstd", "plans/python-udf-twin.zstd"])
def test_ordinary_plans_look_ordinary(name: str) -> None:
    assert diagnosis(name).suspicions == []


def test_patterns_that_no_recorded_log_has() -> None:
    million = 1_000_000
    assert seen(node("MapElements", node("Range", rows=million), rows=million)) == ["typed_lambda"]
    assert seen(node("MapElements", node("Range", rows=99), rows=99)) == []
    assert seen(node("BroadcastExchange", node("Range"), data_size=2 << 30)) == ["broadcast_large"]
    assert seen(node("BroadcastExchange", node("Range"), data_size=2 << 20)) == []
    assert seen(node("GpuRowToColumnar", node("Project"))) == ["native_fallback"]
    assert seen(node("ColumnarToRow", node("Project"))) == []


def test_a_join_between_two_exchanges_needs_both() -> None:
    exchange = node("Exchange", node("Range"), rows=1_000_000, detail="hashpartitioning")
    below = node("Sort", exchange)
    assert seen(node("Exchange", node("Project", below), rows=1_000_000, detail="hashpartitioning")) == [
        "wasted_shuffle"
    ]
    joined = node("SortMergeJoin", below, node("Sort", node("Exchange", rows=9)), rows=1_000_000)
    assert seen(node("Exchange", node("Project", joined), rows=1_000_000, detail="hashpartitioning")) == []


def test_an_order_that_is_wanted_is_no_pattern() -> None:
    ordered = node("Exchange", node("Range", rows=1_000_000), rows=1_000_000, detail="rangepartitioning")
    assert seen(node("HashAggregate", node("Sort", ordered))) == ["unused_order"]
    assert seen(node("SortAggregate", node("Sort", ordered))) == []
    assert seen(node("OverwriteByExpression", node("Sort", ordered))) == []


def test_what_is_not_recorded_is_said_with_the_setting_that_records_it() -> None:
    settings = {each.setting for each in diagnosis("plans/cache-recomputed-planted.zstd").not_recorded}
    assert settings == {"spark.eventLog.logStageExecutorMetrics", "spark.eventLog.logBlockUpdates.enabled"}
    assert [each.setting for each in diagnosis("healthy.zstd").not_recorded] == [
        "spark.eventLog.logStageExecutorMetrics"
    ]


def blocks_of(log: EventLog, states: list[tuple[int, str, str]]) -> EventLog:
    """Say of blocks (partition and executor) what they are in: memory, disk, or nothing."""
    for part, executor, kept in states:
        level = {"Use Disk": kept == "disk", "Use Memory": kept == "memory", "Deserialized": True, "Replication": 1}
        manager = {"Executor ID": executor, "Host": "h", "Port": 1}
        info = {"Block Manager ID": manager, "Block ID": f"rdd_4_{part}", "Storage Level": level, "Memory Size": 9}
        log.add("SparkListenerBlockUpdated", **{"Block Updated Info": {**info, "Disk Size": 0}})
    return log


def one_stage() -> EventLog:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=1)
    return log.task(0, 0, "0", 100, 1000, run=900).stage_done(0, 1000).job_done(0, 1000).end(1100)


def evictions(log: EventLog, folder: Path) -> tuple[list[str], set[str | None]]:
    read = read_log(LogFiles(name="log", files=(log.write(folder / "log"),)))
    found = diagnose(map_log(read).schedule)
    told = [each.text for each in found.suspicions if each.suspicion == "cache_evicted"]
    return told, {each.setting for each in found.not_recorded}


def test_what_becomes_of_a_caches_blocks_is_told_once_it_is_recorded(tmp_path: Path) -> None:
    # Partition 0 goes and comes back, 1 goes to disk, 2 has a copy elsewhere, 3 stays.
    kept = [*((part, "0", "memory") for part in range(4)), (2, "1", "memory")]
    gone = [(0, "0", "none"), (0, "0", "memory"), (0, "0", "none"), (1, "0", "disk"), (2, "0", "none")]
    (text,), _ = evictions(blocks_of(one_stage(), kept + gone), tmp_path)
    assert text.startswith("1 of 4 blocks were evicted from the cache (2 times)")
    assert evictions(blocks_of(one_stage(), kept), tmp_path)[0] == []
    assert evictions(blocks_of(one_stage(), [(9, "0", "none")]), tmp_path)[0] == []


def test_each_setting_that_is_named_brings_what_it_records(tmp_path: Path) -> None:
    plain = evictions(one_stage(), tmp_path)[1]
    assert plain == {"spark.eventLog.logStageExecutorMetrics"}
    metrics = {"JVMHeapMemory": 1, "TotalGCTime": 5}
    more = {"Executor ID": "driver", "Stage ID": 0, "Stage Attempt ID": 0, "Executor Metrics": metrics}
    assert evictions(one_stage().add("SparkListenerStageExecutorMetrics", **more), tmp_path)[1] == set()
    # With a cache in a plan block updates are asked for as well, until they are there.
    assert "spark.eventLog.logBlockUpdates.enabled" in {
        each.setting for each in diagnosis("plans/cache-recomputed-planted.zstd").not_recorded
    }
    rows = b"".join(decode(DATA / "plans" / "cache-recomputed-planted.zstd", stopped=print))
    with_blocks = blocks_of(EventLog(cores=[1]), [(0, "driver", "memory"), (0, "driver", "none")]).lines[-2:]
    file = tmp_path / "whole"
    file.write_bytes(rows + "\n".join(with_blocks).encode())
    found = diagnose(map_log(read_log(LogFiles(name="whole", files=(file,)))).schedule)
    assert "cache_evicted" in {each.suspicion for each in found.suspicions}
    assert "spark.eventLog.logBlockUpdates.enabled" not in {each.setting for each in found.not_recorded}


def test_they_stand_beside_the_answer() -> None:
    (log,) = find_logs(DATA / "plans/plan-patterns-planted.zstd")
    told = answer(log)
    facts = told.facts()
    assert {row["suspicion"] for row in facts["suspicions"]} == PATTERNS
    assert facts["not_recorded"][0]["setting"] == "spark.eventLog.logStageExecutorMetrics"
    text = "\n".join(text_lines(told))
    assert "Worth a look, though the log does not say how much time it took:" in text
    assert "200,000 rows are shuffled, and again by the next exchange. Remove the repartition before it." in text
    assert "Not in this log: how much memory" in text
    page = html_page([told])
    assert "<h2>Worth a look</h2>" in page
    assert "<h2>Not in this log</h2>" in page
