from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.diagnosis.spans import crisp_policy, jaeger_policy
from pag_graph.diagnosis.spans.one_trace import OneTrace, each_trace
from tests.support.simulated_spans import read_spans
from tests.support.span_policies import CrispTree, jaeger_path, random_trace, table_of

if TYPE_CHECKING:
    from pag_graph.sources.spans.table import SpanTable

ORACLES = Path(os.environ.get("PAG_ORACLES", Path(__file__).parents[5] / "shared" / "oracles")) / "jaeger"
TREES = 10_000 if os.environ.get("PAG_PROVE") == "1" else 200
oracle = pytest.mark.oracle


def sections_of(table: SpanTable) -> tuple[list[tuple[str, int, int]], int]:
    (trace,) = each_trace(table)
    sections, failed = jaeger_policy.critical_path(trace)
    return [(trace.ids[span], start, end) for span, start, end in sections], failed


def labelled(table: SpanTable, exclusive: dict[int, int]) -> dict[str, int]:
    return {f"[{table.operations[o].service}] {table.operations[o].name}": time for o, time in exclusive.items()}


def cases(tool: str) -> list[Any]:
    files = sorted((ORACLES / tool).glob("*.json"))
    return [pytest.param(file, id=file.stem) for file in files] or [pytest.param(None, id="absent")]


@oracle
@pytest.mark.parametrize("file", cases("jaeger-ui"))
def test_the_policy_jaeger_gives_the_sections_that_its_ui_expects(file: Path | None, tmp_path: Path) -> None:
    if file is None:
        pytest.skip(f"no oracles at {ORACLES}")
    case = json.loads(file.read_text())
    (tmp_path / "trace.json").write_text(json.dumps(case["trace"]))
    sections, failed = sections_of(read_spans([tmp_path / "trace.json"]))
    expected = [(part["spanID"], part["sectionStart"], part["sectionEnd"]) for part in case["criticalPathSections"]]
    assert (sections, failed) == (expected, 0)


@oracle
@pytest.mark.parametrize("file", cases("crisp"))
def test_the_policy_crisp_gives_the_values_that_crisp_expects(file: Path | None) -> None:
    if file is None:
        pytest.skip(f"no oracles at {ORACLES}")
    stated = json.loads(file.read_text())["testing"]
    expected = {"opTimeExclusive": stated[0]} if isinstance(stated, list) else stated
    table = read_spans([file])
    (trace,) = each_trace(table)
    result = crisp_policy.critical_path(trace, table, "S1", "O1")
    assert result is not None
    values = {
        "opTimeExclusive": labelled(table, result.exclusive),
        "totalWork": result.total_work,
        "timeSavedOnWork": result.saved_on_work,
        "timeSavedOnCP": result.saved_on_path,
    }
    assert {name: values[name] for name in values if name in expected} == {
        name: expected[name] for name in values if name in expected
    }


def test_both_policies_follow_the_rules_on_random_trees() -> None:
    paths = savings = 0
    for seed in range(TREES):
        record = random_trace(seed, wild=seed % 3 > 0)
        table = table_of(record)
        expected = jaeger_path(record)
        sections, failed = sections_of(table)
        assert bool(failed) == (expected is None or not expected), seed
        if expected:
            assert sections == expected, seed
            paths += 1
        (trace,) = each_trace(table)
        savings += compare_crisp(record, table, trace, seed)
    assert paths > TREES // 2
    assert savings > TREES // 2


def compare_crisp(record: dict[str, Any], table: SpanTable, trace: OneTrace, seed: int) -> bool:
    """Compare what CRISP says of a trace; returns whether it can reckon savings."""
    result, tree = crisp_policy.critical_path(trace, table), CrispTree(record)
    try:
        exclusive = tree.exclusive()
    except ZeroDivisionError:
        assert result is None, seed
        return False
    assert result is not None
    assert labelled(table, result.exclusive) == {f"[{s}] {o}": value for (s, o), value in exclusive.items()}, seed
    assert (result.total_work, result.saved_on_work) == tree.work(tree.root), seed
    try:
        saved: int | None = tree.saved(tree.root)
    except (AssertionError, ZeroDivisionError):
        saved = None
    assert result.saved_on_path == saved, seed
    return saved is not None


@pytest.mark.parametrize("deep", [False, True])
def test_ten_thousand_spans_take_no_recursion_and_little_time(deep: bool) -> None:  # noqa: FBT001
    spans: list[dict[str, Any]] = [{"spanID": "0", "startTime": 1, "duration": 50_000, "references": [], "tags": []}]
    for number in range(1, 10_000):
        parent = number - 1 if deep else 0
        start, duration = (1 + number, 50_000 - 2 * number) if deep else (1 + 4 * number, 3)
        reference = {"refType": "CHILD_OF", "traceID": "t", "spanID": str(parent)}
        spans.append({"spanID": str(number), "startTime": start, "duration": duration, "references": [reference]})
    record = {"traceID": "t", "spans": [{**span, "processID": "p", "operationName": "o"} for span in spans]}
    table = table_of({**record, "processes": {"p": {"serviceName": "s"}}})
    (trace,) = each_trace(table)
    begin = time.process_time()
    sections, failed = jaeger_policy.critical_path(trace)
    result = crisp_policy.critical_path(trace, table)
    assert time.process_time() - begin < 3
    assert not failed
    assert sum(end - start for _, start, end in sections) == 50_000
    assert result is not None
    assert len(result.path) == 10_000
