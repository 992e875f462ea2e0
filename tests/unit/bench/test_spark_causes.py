"""Event logs that are kept with the code: they tell nothing of the machine, and have the trouble that they claim."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

ROOT = Path(__file__).parents[3]
LOGS = ROOT / "tests" / "data" / "spark"
SCRIPTS = ROOT / "bench" / "spark_causes"
ANSWERS = json.loads((LOGS / "answers.json").read_text(encoding="utf-8"))
each_log = pytest.mark.parametrize("name", ANSWERS)


@cache
def events(name: str) -> list[dict[str, Any]]:
    with pa.input_stream(LOGS / f"{name}.zstd", compression="zstd") as file:
        return [json.loads(line) for line in file.read().decode().splitlines()]


def named(name: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in events(name) if event["Event"].rsplit(".", 1)[-1] == f"SparkListener{kind}"]


def tasks(name: str) -> list[dict[str, Any]]:
    return [{**e, **e["Task Info"], **(e.get("Task Metrics") or {})} for e in named(name, "TaskEnd")]


def test_all_together_are_small() -> None:
    assert sum(file.stat().st_size for file in LOGS.iterdir()) < 1_500_000
    assert {file.stem for file in LOGS.glob("*.zstd")} == set(ANSWERS)


@each_log
def test_a_log_tells_nothing_of_the_machine_that_it_was_made_on(name: str) -> None:
    (environment,) = named(name, "EnvironmentUpdate")
    assert not environment["Classpath Entries"]
    assert not environment["System Properties"]
    assert set(environment["JVM Information"]) <= {"Java Version", "Scala Version"}
    (started,) = named(name, "ApplicationStart")
    assert started["User"] == "spark"
    text = json.dumps(events(name))
    assert set(re.findall(r'"Host": "([^"]*)"', text)) <= {"127.0.0.1", "127.0.0.2"}
    paths = set(re.findall(r"(?<![\w.:/])/(?:[a-z]\w*)(?=/)", text))
    assert paths <= {"/spark", "/python", "/logPage"}, paths


@each_log
def test_a_log_is_whole(name: str) -> None:
    assert events(name)[0]["Event"] == "SparkListenerLogStart"
    assert len(named(name, "ApplicationEnd")) == 1
    assert len(named(name, "JobStart")) == len(named(name, "JobEnd")) > 0
    assert len(named(name, "TaskStart")) == len(named(name, "TaskEnd")) > 0


def longest(name: str, stage: int) -> dict[str, Any]:
    return max((t for t in tasks(name) if t["Stage ID"] == stage), key=lambda t: t["Executor Run Time"])


def test_skew_is_in_the_records_and_a_straggler_is_not() -> None:
    read = {
        t["Index"]: t["Shuffle Read Metrics"]["Total Records Read"] for t in tasks("skewed-key") if t["Stage ID"] == 1
    }
    assert longest("skewed-key", 1)["Index"] == max(read, key=lambda index: read[index])
    assert max(read.values()) > sum(read.values()) / 2
    assert longest("straggler-task", 0)["Index"] == 5
    others = [t["Executor Run Time"] for t in tasks("straggler-task") if t["Index"] != 5]
    assert longest("straggler-task", 0)["Executor Run Time"] > 2 * max(others)


def test_a_slow_node_is_slow_in_every_task() -> None:
    stages = {job["Stage IDs"][0] for job in named("slow-node", "JobStart")[1:]}
    mine = [t for t in tasks("slow-node") if t["Stage ID"] in stages]
    spans: dict[str, list[int]] = {}
    for task in mine:
        spans.setdefault(task["Host"], []).append(task["Finish Time"] - task["Launch Time"])
    assert min(spans["127.0.0.2"]) > 1.5 * sorted(spans["127.0.0.1"])[len(spans["127.0.0.1"]) // 2]


def test_collection_spill_and_tiny_tasks_are_in_the_metrics() -> None:
    last = [t for t in tasks("gc-heavy") if t["Stage ID"] == 1]
    assert sum(t["JVM GC Time"] for t in last) > 0.25 * sum(t["Executor Run Time"] for t in last)
    assert sum(t["Disk Bytes Spilled"] for t in tasks("spill")) > 10_000_000
    assert not any(t["Disk Bytes Spilled"] for t in tasks("healthy"))
    assert len(tasks("tiny-tasks")) >= 400


def test_losses_and_retries_happened() -> None:
    lost = Counter(t["Task End Reason"]["Reason"] for t in tasks("lost-executor"))
    assert lost["ExecutorLostFailure"] + lost["Resubmitted"] > 0
    assert len(named("lost-executor", "ExecutorRemoved")) == 1
    attempts = {
        (s["Stage Info"]["Stage ID"], s["Stage Info"]["Stage Attempt ID"])
        for s in named("retried-stage", "StageCompleted")
    }
    assert any(attempt for _, attempt in attempts)
    assert "FetchFailed" in {t["Task End Reason"]["Reason"] for t in tasks("retried-stage")}
    assert any(t["Speculative"] for t in tasks("speculation"))
    assert "TaskKilled" in {t["Task End Reason"]["Reason"] for t in tasks("speculation")}
    failed = Counter(t["Index"] for t in tasks("failed-task") if t["Failed"])
    assert failed == {3: 3}
    assert {j["Job Result"]["Result"] for j in named("failed-job", "JobEnd")} == {"JobSucceeded", "JobFailed"}


def test_executors_and_jobs_come_and_go_as_stated() -> None:
    assert len(named("dynamic-allocation", "ExecutorRemoved")) >= 2
    assert {len(named(name, "ExecutorAdded")) for name in ("healthy", "skewed-key", "concurrent-jobs")} == {2}
    starts = [job["Submission Time"] for job in named("concurrent-jobs", "JobStart")]
    assert max(starts) < min(job["Completion Time"] for job in named("concurrent-jobs", "JobEnd"))
    assert {s["Stage Info"]["Number of Tasks"] for s in named("too-few-partitions", "StageCompleted")} == {1}
    batches = {
        job["Properties"]["streaming.sql.batchId"]
        for job in named("streaming", "JobStart")
        if "streaming.sql.batchId" in job["Properties"]
    }
    assert len(batches) >= 4
    assert len(named("sql", "SQLExecutionStart")) >= 4
    assert named("sql", "SQLAdaptiveExecutionUpdate")


@pytest.fixture
def make_logs(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("pyspark", reason="the scripts start Spark: install pag-graph[spark]")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location("make_logs", SCRIPTS / "make_logs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in ("causes", "cluster"):
        sys.modules.pop(name, None)


def test_the_kept_answers_are_those_of_the_programs(make_logs: Any) -> None:
    assert {
        name: {"done": make_logs.ALL[name].done, "answer": make_logs.ALL[name].answer} for name in ANSWERS
    } == ANSWERS


def test_what_a_log_tells_of_the_machine_is_removed(make_logs: Any, tmp_path: Path) -> None:
    log = tmp_path / "app"
    folder = tmp_path / "run"
    lines = [
        {"Event": "SparkListenerLogStart", "Spark Version": "4.0.0"},
        {
            "Event": "SparkListenerEnvironmentUpdate",
            "JVM Information": {"Java Home": "/usr/lib/java", "Java Version": "17"},
            "Spark Properties": {"spark.eventLog.dir": f"file://{folder}", "spark.cores.max": "2"},
            "System Properties": {"user.dir": "/somewhere"},
            "Classpath Entries": {"/somewhere/x.jar": "System Classpath"},
        },
        {"Event": "SparkListenerStageSubmitted", "Stage Info": {"Stage Name": f"count at {folder}/causes.py:3"}},
    ]
    log.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")
    make_logs.scrub(log, folder)
    kept = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert kept == [
        lines[0],
        {
            "Event": "SparkListenerEnvironmentUpdate",
            "JVM Information": {"Java Version": "17"},
            "Spark Properties": {"spark.cores.max": "2"},
            "System Properties": {},
            "Classpath Entries": {},
        },
        {"Event": "SparkListenerStageSubmitted", "Stage Info": {"Stage Name": "count at /spark/causes.py:3"}},
    ]
