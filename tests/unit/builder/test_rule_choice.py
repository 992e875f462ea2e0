"""Rules that a trace contradicts: refused, or forced and then said."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api
from pag_graph.builder.rule_choice import CONTRADICTS, choose_rules
from pag_graph.errors import UnsupportedPlanError
from pag_graph.model.enums import RuleSet
from pag_graph.store.meta import read_meta, write_meta
from pag_graph.store.trace import Trace
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
STATED, TIMELY, ST2 = RuleSet.STATED, RuleSet.TIMELY, RuleSet.ST2
REFUSED, MISSING = "its waits would be lost", "events are missing"


@pytest.fixture
def flink(tmp_path: Path) -> Path:
    api.convert(ROOT / "docs" / "examples" / "flink", tmp_path / "flink.trace")
    return tmp_path / "flink.trace"


@pytest.mark.parametrize(
    ("own", "prepared", "asked", "outcome"),
    [
        (STATED, False, None, STATED),
        (STATED, False, STATED, STATED),
        (STATED, False, TIMELY, REFUSED),
        (STATED, False, ST2, REFUSED),
        (TIMELY, False, None, TIMELY),
        (TIMELY, False, ST2, ST2),
        (TIMELY, False, STATED, REFUSED),
        (ST2, False, TIMELY, TIMELY),
        (ST2, False, STATED, REFUSED),
        (TIMELY, True, ST2, ST2),
        (TIMELY, True, None, MISSING),
        (TIMELY, True, STATED, MISSING),
    ],
)
def test_a_trace_is_built_by_rules_that_it_does_not_contradict(
    tmp_path: Path, own: RuleSet, asked: RuleSet | None, outcome: RuleSet | str, *, prepared: bool
) -> None:
    draw("0 start 1 | 5 stop 1 | 9 end", rules=own).write(tmp_path / "trace")
    meta = tmp_path / "trace" / "meta.json"
    write_meta(replace(read_meta(meta), prepared=prepared), meta)
    trace = Trace.open(tmp_path / "trace")
    if isinstance(outcome, RuleSet):
        rules, found = choose_rules(trace, asked)
        assert (rules, found.num_rows) == (outcome, 0)
        return
    with pytest.raises(UnsupportedPlanError, match=outcome) as caught:
        choose_rules(trace, asked)
    assert caught.value.context["trace"] == str(trace.path)
    # What is not there cannot be forced.
    if outcome == MISSING:
        with pytest.raises(UnsupportedPlanError, match=MISSING):
            choose_rules(trace, asked, force=True)
    else:
        rules, found = choose_rules(trace, asked, force=True)
        assert (rules, found["finding"].to_pylist()) == (asked, [CONTRADICTS])


def test_forced_rules_are_a_finding_of_the_store_and_lower_the_confidence(flink: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedPlanError, match="asks for the rule set stated") as caught:
        api.build(flink, tmp_path / "store", rules="timely", engine="local")
    assert "--force-rules" in caught.value.hint
    assert not (tmp_path / "store").exists()
    api.build(flink, tmp_path / "store", rules="timely", force_rules=True, engine="local")
    pag = api.open(tmp_path / "store")
    assert pag.epochs["waiting_ns"].sum() == 0
    rows = pag.findings().filter(finding=CONTRADICTS).to_dicts()
    assert [(row["severity"], row["file"]) for row in rows] == [("error", "meta.json")]
    told = pag.why()
    assert told.confidence == "low"
    assert "built by rules that its trace contradicts" in " ".join(told.text(top=50).split())


def job(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["build.py", *map(str, arguments)])
    build: Callable[..., Any] = api.build
    # In this process, as no cluster is needed to choose rules.
    monkeypatch.setattr(api, "build", lambda *paths, **more: build(*paths, **more, engine="local"))
    runpy.run_path(str(ROOT / "spark_jobs" / "build.py"), run_name="__main__")


def test_a_job_takes_the_rules_of_the_trace(
    flink: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job(monkeypatch, flink, tmp_path / "store")
    assert json.loads(capsys.readouterr().out)["committed"]
    pag = api.open(tmp_path / "store")
    assert (pag.run.rules, pag.epochs["waiting_ns"].sum()) == (STATED, 115_000_000)
    assert "io" in pag.edges().collect()["type"].to_list()


@pytest.mark.parametrize("rules", list(RuleSet))
def test_a_job_knows_all_rules(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def build(*_: Any, **more: Any) -> Any:
        asked.update(more)
        store = SimpleNamespace(run={"run_id": "r"}, versions={})
        return SimpleNamespace(store=store, committed=True, rows={})

    monkeypatch.setattr(api, "build", build)
    monkeypatch.setattr(sys, "argv", ["build.py", "trace", "store", "--rules", rules, "--force-rules"])
    runpy.run_path(str(ROOT / "spark_jobs" / "build.py"), run_name="__main__")
    assert (asked["rules"], asked["force_rules"]) == (rules, True)
