"""Logs counted a second time without our reader: what is told of them, and why it can differ from what they state."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.spark_public import FACTS, answered, compare, count_log, logs_below, main
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from tests.support.spark_logs import EventLog

LOGS = Path(__file__).parents[2] / "data" / "spark"


@pytest.mark.parametrize(
    "name", ["failed-task", "lost-executor", "retried-stage", "speculation", "spill", "streaming", "forms/two-jobs"]
)
def test_recorded_logs_say_the_same_twice(name: str) -> None:
    (log,) = find_logs(LOGS / f"{name}.zstd")
    counted = count_log(log.files)
    rows = compare(answered(log, counted), counted)
    assert set(rows) == set(FACTS)
    assert {fact: rest for fact, (_, _, rest) in rows.items() if rest} == {}


def test_a_rule_explains_what_is_cut_and_nothing_else(tmp_path: Path) -> None:
    written = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=1)
    written.task(0, 0, "0", 100, 200, run=150, gc=170).stage_done(0, 201).job_done(0, 202).end(300)
    log = LogFiles(name="log", files=(written.write(tmp_path / "log"),))
    counted = count_log(log.files)
    told = answered(log, counted)
    assert counted.rules["run_ms", "task_parts_exceed_task"] == -50
    assert compare(told, counted)["run_ms"] == (100_000_000, 150_000_000, 0)
    assert compare(told, counted)["gc_ms"] == (100_000_000, 170_000_000, 0)
    assert compare(told | {"run_ns": 99_000_000, "jobs": 2}, counted)["run_ms"][2] == -1_000_000
    assert compare(told | {"jobs": 2}, counted)["jobs"] == (2, 1, 1)


def test_logs_lie_below_folders_that_hold_other_things(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log4j.properties").write_text("level=info")
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected/rows.csv").write_text("a,b\n")
    for place in ("events", "events/more"):
        (tmp_path / place).mkdir()
        written = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=1).task(0, 0, "0", 100, 200, run=50)
        written.stage_done(0, 201).job_done(0, 202).end(300).write(tmp_path / place / "app")
    found = [log.files for log in logs_below(tmp_path)]
    assert found == [(tmp_path / "events/app",), (tmp_path / "events/more/app",)]
    assert main([str(tmp_path)]) == 0
    assert "2 logs: 2 equal, 0 explained, 0 not; 0 are no logs" in capsys.readouterr().out
