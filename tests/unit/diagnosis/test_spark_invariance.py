"""What must not matter: numbers, clocks and names; and what must: the evidence that a measured cause rests on."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.sources.spark.codecs import decode
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles
from pag_graph.sources.spark.reader import read_log

if TYPE_CHECKING:
    from collections.abc import Callable

LOGS = Path(__file__).parents[2] / "data" / "spark"
MORE = 1_000
LATER_MS = 86_400_000 * 30
NUMBERS = {"Stage ID", "Job ID", "Task ID", "RDD ID", "ID", "accumulatorId", "executionId", "rootExecutionId"}
LISTS = {"Stage IDs", "Parent IDs"}
PROPERTIES = {"spark.sql.execution.id", "spark.sql.execution.root.id"}
TIMES = {"Timestamp", "Launch Time", "Finish Time", "Getting Result Time", "Submission Time", "Completion Time", "time"}


def events(name: str) -> list[dict[str, Any]]:
    content = b"".join(decode(LOGS / f"{name}.zstd", stopped=print))
    return [json.loads(line) for line in content.splitlines()]


def told(rows: list[dict[str, Any]], folder: Path) -> Diagnosis:
    file = folder / "log"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return diagnose(map_log(read_log(LogFiles(name="log", files=(file,)))).schedule)


def changed(value: Any, change: Callable[[str, Any], Any], key: str = "") -> Any:
    """Return a value of JSON with every value in it changed by its key."""
    if isinstance(value, dict):
        return {name: changed(part, change, name) for name, part in value.items()}
    if isinstance(value, list) and key not in {*LISTS, "accumUpdates"}:
        return [changed(part, change, key) for part in value]
    return change(key, value)


def moved(key: str, value: Any) -> Any:
    """Give everything another number, time, and file of the program."""
    if key in NUMBERS and isinstance(value, int):
        return value + MORE
    if key in LISTS:
        return [number + MORE for number in value]
    if key == "accumUpdates":
        return [[number + MORE, update] for number, update in value]
    if key in PROPERTIES:
        return str(int(value) + MORE)
    if key in TIMES and value:
        return value + LATER_MS
    if key == "timestamp":
        later = datetime.fromisoformat(value) + timedelta(milliseconds=LATER_MS)
        return later.isoformat(timespec="milliseconds")
    if isinstance(value, str):
        return re.sub(r"\b(\w+)\.py:(\d+)", r"other_\1.py:9\2", value)
    return value


@pytest.mark.parametrize(
    "name", ["skewed-key", "plans/broadcast-missed-planted", "plans/python-udf-planted", "plans/stream-frames-planted"]
)
def test_other_numbers_clocks_and_names_change_no_cause(name: str, tmp_path: Path) -> None:
    before, after = told(events(name), tmp_path), told([changed(event, moved) for event in events(name)], tmp_path)
    assert before.causes
    assert [(cause.cause, cause.kind, cause.saved_ns) for cause in after.causes] == [
        (cause.cause, cause.kind, cause.saved_ns) for cause in before.causes
    ]
    stages = [None if cause.stage is None else cause.stage + MORE for cause in before.causes]
    assert [cause.stage for cause in after.causes] == stages
    assert after.span_ns == before.span_ns


def without_python_timers(key: str, value: Any) -> Any:
    return re.sub(r"^time to (\w+) Python.*", r"Python \1", value) if key in {"name", "Name"} and value else value


def nothing(*keys: str) -> Callable[[str, Any], Any]:
    return lambda key, value: 0 if key in keys else value


def renamed(name: str) -> Callable[[str, Any], Any]:
    """Call a metric something else wherever it stands."""
    return lambda key, value: value.replace(name, "other") if key in {"name", "Name"} and value else value


def without_events(*names: str) -> Callable[[str, Any], Any]:
    return lambda key, value: "Other" if key == "Event" and value.removeprefix("SparkListener") in names else value


def same(of: str, value: Any) -> Callable[[str, Any], Any]:
    return lambda key, own: value if key == of else own


EVIDENCE = {
    "plans/python-udf-planted": ("python_udf", without_python_timers),
    "gc-heavy": ("gc", nothing("JVM GC Time")),
    "plans/small-files-read-planted": ("small_files_read", renamed("number of files read")),
    "plans/small-files-written-planted": ("small_files_written", renamed("number of written files")),
    "plans/stream-frames-planted": ("batch_overrun", nothing("walCommit", "commitOffsets", "triggerExecution")),
    "plans/growing-state-planted": ("state_growth", nothing("numRowsTotal")),
    "plans/cache-recomputed-planted": ("cache_recomputed", nothing("Update")),
    "slow-node": ("slow_node", {"Host": "one", "Executor ID": "0"}.get),
    "speculation": ("speculation", nothing("Speculative", "Killed")),
    "lost-executor": ("lost_executor", without_events("ExecutorRemoved")),
    "retried-stage": ("stage_retry", {"Stage Attempt ID": 0, "Reason": "Success"}.get),
    "ramp-up": ("executor_wait", without_events("ExecutorAdded")),
    "failed-job": ("failed_job", same("Result", "JobSucceeded")),
}
"""Log to a cause that is measured there, and what takes its measure away."""


@pytest.mark.parametrize("name", EVIDENCE)
def test_without_its_evidence_a_measured_cause_is_modelled_or_gone(name: str, tmp_path: Path) -> None:
    cause, change = EVIDENCE[name]
    whole = told(events(name), tmp_path)
    (before,) = [each for each in (*whole.causes, *whole.minor) if each.cause == cause][:1]
    assert before.kind == "M"
    left = told([changed(event, change) for event in events(name)], tmp_path)
    after = [each for each in (*left.causes, *left.minor) if each.cause == cause]
    assert all(each.kind == "B" and each.saved_ns != before.saved_ns for each in after)
    if cause == "python_udf":
        assert "how long Python code ran" in [each.what for each in left.not_recorded]
