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
    # A task ends again when its output is lost; an attempt that ran when the application ended has no end.
    ends = len(named(name, "TaskEnd")) - reasons(name)["Resubmitted"]
    assert len(named(name, "TaskStart")) - ends == (name == "speculation")


def longest(name: str, stage: int) -> dict[str, Any]:
    return max((t for t in tasks(name) if t["Stage ID"] == stage), key=lambda t: t["Executor Run Time"])


def reasons(name: str) -> Counter[str]:
    return Counter(task["Task End Reason"]["Reason"] for task in tasks(name))


def healthy(name: str) -> None:
    assert set(reasons(name)) == {"Success"}
    assert not any(t["Disk Bytes Spilled"] for t in tasks(name))
    assert len({t["Executor ID"] for t in tasks(name)}) == len(named(name, "ExecutorAdded")) == 2


def skewed_key(name: str) -> None:
    read = {t["Index"]: t["Shuffle Read Metrics"]["Total Records Read"] for t in tasks(name) if t["Stage ID"] == 1}
    assert longest(name, 1)["Index"] == max(read, key=lambda index: read[index])
    assert max(read.values()) > sum(read.values()) / 2


def straggler_task(name: str) -> None:
    assert longest(name, 0)["Index"] == 5
    assert longest(name, 0)["Executor Run Time"] > 2 * max(
        t["Executor Run Time"] for t in tasks(name) if t["Index"] != 5
    )
    assert len({t["Executor ID"] for t in tasks(name)}) == 2


def slow_node(name: str) -> None:
    after = named(name, "JobStart")[0]["Stage IDs"]
    spans: dict[str, list[int]] = {}
    for task in tasks(name):
        if task["Stage ID"] not in after:
            spans.setdefault(task["Host"], []).append(task["Finish Time"] - task["Launch Time"])
    assert min(spans["127.0.0.2"]) > 2 * sorted(spans["127.0.0.1"])[len(spans["127.0.0.1"]) // 2]


def gc_heavy(name: str) -> None:
    last = [t for t in tasks(name) if t["Stage ID"] == 1]
    assert sum(t["JVM GC Time"] for t in last) > 0.25 * sum(t["Executor Run Time"] for t in last)


def spill(name: str) -> None:
    assert sum(t["Disk Bytes Spilled"] for t in tasks(name)) > 10_000_000


def driver_bound(name: str) -> None:
    ends = {job["Job ID"]: job["Completion Time"] for job in named(name, "JobEnd")}
    starts = {job["Job ID"]: job["Submission Time"] for job in named(name, "JobStart")}
    assert all(starts[job] - ends[job - 1] > 3_000 for job in starts if job)


def lost_executor(name: str) -> None:
    assert reasons(name)["ExecutorLostFailure"] + reasons(name)["Resubmitted"] > 0
    assert len(named(name, "ExecutorRemoved")) == 1
    assert len(named(name, "ExecutorAdded")) == 3


def retried_stage(name: str) -> None:
    assert any(stage["Stage Info"]["Stage Attempt ID"] for stage in named(name, "StageCompleted"))
    assert reasons(name)["FetchFailed"]


def speculation(name: str) -> None:
    (copy,) = [t for t in tasks(name) if t["Speculative"] and t["Index"] == 7]
    assert copy["Task End Reason"]["Reason"] == "Success"
    attempts = [t["Task Info"]["Speculative"] for t in named(name, "TaskStart") if t["Task Info"]["Index"] == 7]
    assert attempts == [False, True]


def too_few_partitions(name: str) -> None:
    assert {stage["Stage Info"]["Number of Tasks"] for stage in named(name, "StageCompleted")} == {1}
    assert len(named(name, "ExecutorAdded")) == 2


def tiny_tasks(name: str) -> None:
    assert len(tasks(name)) == 900
    assert sorted(t["Executor Run Time"] for t in tasks(name))[450] < 200


def concurrent_jobs(name: str) -> None:
    starts = [job["Submission Time"] for job in named(name, "JobStart")]
    assert len(starts) == 3
    assert max(starts) < min(job["Completion Time"] for job in named(name, "JobEnd"))


def two_jobs(name: str) -> None:
    first, second = named(name, "JobEnd")[0], named(name, "JobStart")[1]
    assert second["Submission Time"] - first["Completion Time"] >= 1_000


def sql(name: str) -> None:
    assert len(named(name, "SQLExecutionStart")) >= 4
    assert named(name, "SQLAdaptiveExecutionUpdate")


def streaming(name: str) -> None:
    batches = {job["Properties"].get("streaming.sql.batchId") for job in named(name, "JobStart")} - {None}
    assert len(batches) >= 4


def dynamic_allocation(name: str) -> None:
    assert len(named(name, "ExecutorRemoved")) >= 2
    assert len(named(name, "ExecutorAdded")) >= 3


def ramp_up(name: str) -> None:
    first, second = sorted(event["Timestamp"] for event in named(name, "ExecutorAdded"))
    assert first < named(name, "JobStart")[0]["Submission Time"] < second
    assert second < named(name, "JobEnd")[0]["Completion Time"]


def ramp_up_mended(name: str) -> None:
    assert len(named(name, "ExecutorAdded")) == 2
    assert max(e["Timestamp"] for e in named(name, "ExecutorAdded")) < named(name, "JobStart")[0]["Submission Time"]


def failed_task(name: str) -> None:
    assert Counter(t["Index"] for t in tasks(name) if t["Failed"]) == {3: 3}


def failed_job(name: str) -> None:
    assert [job["Job Result"]["Result"] for job in named(name, "JobEnd")] == ["JobSucceeded", "JobFailed"]


CHECKS = (
    *(healthy, skewed_key, straggler_task, slow_node, gc_heavy, spill, driver_bound, lost_executor, retried_stage),
    *(speculation, too_few_partitions, tiny_tasks, concurrent_jobs, two_jobs, sql, streaming, dynamic_allocation),
    *(failed_task, failed_job, ramp_up, ramp_up_mended),
)


@each_log
def test_a_log_has_the_trouble_that_it_claims(name: str) -> None:
    checks = {check.__name__.replace("_", "-"): check for check in CHECKS}
    checks[name](name)


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
        {"Event": "Plan", "text": "file:/var/tmp/temporary-9299255f-0a8c-4756-8746-2c6f380b1198/state, runId"},
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
        {"Event": "Plan", "text": "file:/spark/checkpoint/state, runId"},
    ]
