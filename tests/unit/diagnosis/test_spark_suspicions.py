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
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log

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
