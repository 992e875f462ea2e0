"""What is said of executors that went, and which setting is proposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.catalogue import CAUSES
from pag_graph.diagnosis.spark.loss_reasons import loss_of, most_common_loss
from pag_graph.sources.spark.logfiles import LogFiles
from pag_graph.sources.spark.texts import Texts
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.diagnosis.spark.look import Cause

# What Spark's schedulers write (standalone, YARN, Kubernetes), and what of it is kept without --keep-texts.
SAID = {
    "Command exited with code 137": "killed",
    "Container killed on request. Exit code is 137": "killed",
    "The executor with id 7 exited with exit code 137(SIGKILL, possible container OOM).": "killed",
    "Container from a bad node: c_1 on host: h. Exit status: 137. Diagnostics: killed": "killed",
    "Container killed by YARN for exceeding physical memory limits. 4.5 GB of 4.5 GB used.": "memory_limit",
    "The executor with id 7 exited with exit code 52(JVM OOM).": "heap_full",
    "Command exited with code 52": "heap_full",
    "Executor heartbeat timed out after 147262 ms": "silent",
    "Container preempted by scheduler": "taken_back",
    "Command exited with code 1": "other",
    "Command exited with code 143": "other",
    "worker lost: my password is 137": "other",
    "": "other",
}


@pytest.mark.parametrize(("said", "name"), SAID.items())
@pytest.mark.parametrize("keep", [True, False])
def test_reasons_are_told_apart_with_and_without_texts(said: str, name: str, *, keep: bool) -> None:
    assert loss_of(Texts(keep=keep).reason(said)).name == name


def test_the_reason_of_most_executors_counts() -> None:
    reasons = ["Command exited with code 1", "Command exited with code 137", "Command exited with code 137", None]
    assert most_common_loss(reasons).name == "killed"
    assert most_common_loss(["Command exited with code 1", "Command exited with code 52"]).name == "heap_full"


def lost(place: Path, reason: str, **settings: str) -> Cause:
    log = EventLog(cores=[1, 1])
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    log.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.app.name": "by hand", **properties}})
    log.job(0, 1000, [0]).stage(0, 1000, tasks=4)
    log.task(0, 0, "0", 1010, 3010, run=2000).task(0, 1, "1", 1010, 2500, reason="ExecutorLostFailure")
    log.executor_gone("1", 2500, reason).task(0, 2, "0", 3010, 5010, run=2000).task(0, 3, "0", 5010, 7010, run=2000)
    log.task(0, 1, "0", 7010, 9010, run=2000, attempt=1).stage_done(0, 9010).job_done(0, 9015)
    file = log.end(9020).write(place / "app")
    [cause] = [
        each for each in answer(LogFiles(name="app", files=(file,))).diagnosis.causes if each.cause == "lost_executor"
    ]
    return cause


YARN: dict[str, str] = {"spark_master": "yarn"}
KUBERNETES = {"spark_master": "k8s://https://10.0.0.1:443"}
OVERHEAD, HEAP = "spark.executor.memoryOverhead", "spark.executor.memory"


@pytest.mark.parametrize(
    ("reason", "settings", "expected"),
    [
        # The default is a tenth of the heap, and 384 MiB at least.
        ("Command exited with code 137", {**YARN, "spark_executor_memory": "8g"}, [(OVERHEAD, "819m", "1638m")]),
        ("Command exited with code 137", YARN, [(OVERHEAD, "384m", "768m")]),
        (
            "Container killed by YARN for exceeding physical memory limits.",
            {**YARN, "spark_executor_memory": "8g", "spark_executor_memoryOverhead": "1000"},
            [(OVERHEAD, "1000m", "2000m")],
        ),
        (
            "exited with exit code 137(SIGKILL, possible container OOM).",
            {**KUBERNETES, "spark_executor_memory": "4g", "spark_executor_memoryOverheadFactor": "0.4"},
            [(OVERHEAD, "1638m", "3276m")],
        ),
        ("Command exited with code 52", {**YARN, "spark_executor_memory": "2g"}, [(HEAP, "2g", "4096m")]),
        # Bare numbers of both are MiB.
        ("Command exited with code 52", {**YARN, "spark_executor_memory": "2048"}, [(HEAP, "2048", "4096m")]),
        ("Command exited with code 137", {**YARN, "spark_executor_memory": "8192"}, [(OVERHEAD, "819m", "1638m")]),
        # Its own cluster manager knows no memory beside the heap, and other losses have nothing to do with memory.
        ("Command exited with code 137", {"spark_master": "spark://10.0.0.1:7077"}, []),
        ("Executor heartbeat timed out after 147262 ms", YARN, []),
        ("Command exited with code 1", YARN, []),
    ],
)
def test_twice_the_memory_is_proposed_where_it_was_short(
    tmp_path: Path, reason: str, settings: dict[str, str], expected: list[tuple[str, str, str]]
) -> None:
    cause = lost(tmp_path, reason, **settings)
    found: list[Any] = [(change.what, change.recorded, change.proposed) for change in cause.changes]
    assert found == expected
    assert cause.signal["loss"] == loss_of(reason).name
    assert cause.advice == (loss_of(reason).advice or CAUSES["lost_executor"].advice)
    assert bool(cause.traps) == (cause.signal["loss"] == "killed")
