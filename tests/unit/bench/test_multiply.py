"""A trace that repeats another one holds its graph as often."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from pag_graph import api
from pag_graph.model.enums import RuleSet
from pag_graph.store.order import check_trace
from pag_graph.store.trace import Trace

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "pag_graph" / "samples" / "triangles"
TIMES = 3


@pytest.fixture
def multiply(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("bench.multiply").multiply


def test_every_copy_has_all_of_the_run(multiply: Any, tmp_path: Path) -> None:
    multiply(SAMPLE, tmp_path / "trace", times=TIMES, seed=7)
    one, many = Trace.open(SAMPLE), Trace.open(tmp_path / "trace")
    assert many.rows == TIMES * one.rows
    check_trace(many)
    whole, slices = (
        api.build(tmp_path / "trace", tmp_path / f"store-{size}", engine="local", slice_events=size)
        for size in (many.rows, one.rows // 2)
    )
    first = api.build(SAMPLE, tmp_path / "one", engine="local")
    # All messages are matched in every copy: nothing is found in the copies that is not in the run.
    assert whole.findings["finding"].unique().to_pylist() == first.findings["finding"].unique().to_pylist()
    assert sum(whole.store.dropped.values()) == TIMES * sum(first.store.dropped.values())
    # Of messages files hold sums per slice; added up they are the same.
    assert {**whole.rows, "traffic": 0} == {**slices.rows, "traffic": 0}
    assert whole.store.scan("traffic").collect().equals(slices.store.scan("traffic").collect())
    assert whole.rows["epochs"] > TIMES * (first.rows["epochs"] - 2)
    # Between two copies every worker has one more edge, or one that begins with what the last copy ended with.
    assert abs(whole.rows["edges"] - TIMES * first.rows["edges"]) <= TIMES * 2 * one.meta.workers


def test_the_same_seed_makes_the_same_trace(multiply: Any, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        multiply(SAMPLE, tmp_path / name, times=2, seed=seed)
    a, b, c = (Trace.open(tmp_path / name) for name in "abc")
    assert a.events().equals(b.events())
    assert not a.events().equals(c.events())
    assert a.meta.trace_id == b.meta.trace_id != c.meta.trace_id


def test_the_name_of_a_kept_trace_says_what_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(ROOT)
    bench = importlib.import_module("bench.multiply")
    session = importlib.import_module("bench.harness").Session(tmp_path)
    source = tmp_path / "triangles-9.trace"
    source.symlink_to(SAMPLE)
    kept = [bench.multiplied(session, source, 2, per_epoch=per_epoch) for per_epoch in (None, 2)]
    assert [trace.name for trace in kept] == ["triangles-9-x2-1.trace", "triangles-9-x2-1-by-2.trace"]
    assert [Trace.open(trace).rows > Trace.open(SAMPLE).rows for trace in kept] == [True, True]


@pytest.mark.parametrize("rules", [RuleSet.TIMELY, RuleSet.ST2])
@pytest.mark.parametrize("slice_events", [None, 500])
def test_a_graph_that_is_not_kept_has_the_same_epochs(tmp_path: Path, rules: RuleSet, slice_events: int | None) -> None:
    store = tmp_path / "store"
    api.build(SAMPLE, store, rules=rules, engine="local", slice_events=slice_events)
    staging = tmp_path / "staging"
    found = importlib.import_module("bench.in_memory").graph_in_memory(SAMPLE, staging, rules, slice_events)
    assert found.equals(api.open(store).epochs.to_arrow().cast(found.schema))
    assert not staging.exists()
