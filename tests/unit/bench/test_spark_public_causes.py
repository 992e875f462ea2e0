"""Causes whose evidence is counted a second time from the events: equal on recorded logs, and seen where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.spark_public_causes import Recount, recounted
from pag_graph.diagnosis.spark.causes import diagnose
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import EventLog

LOGS = Path(__file__).parents[2] / "data" / "spark"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("spill", "spill"),
        ("failed-job", "failed_job"),
        ("tiny-tasks", "tiny_tasks"),
        ("gc-heavy", "gc"),
        ("driver-bound", "driver_bound"),
        ("ramp-up", "executor_wait"),
        ("too-few-partitions", "too_few_partitions"),
        ("plans/exploding-join-planted", "exploding_join"),
    ],
)
def test_the_evidence_of_recorded_logs_is_the_same_twice(name: str, cause: str) -> None:
    (log,) = find_logs(LOGS / f"{name}.zstd")
    causes = {each.cause: each.facts() for each in diagnose(map_log(read_log(log)).schedule).causes}
    counted = Recount(log.files)
    rows = recounted(counted, causes[cause])
    assert rows
    assert [row for row in rows if row[1] != row[2]] == []
    # A number that is another one is seen.
    what, told, _ = rows[-1]
    if what in causes[cause]["signal"] and isinstance(told, int):
        causes[cause]["signal"][what] = told + 1
        assert [row[0] for row in recounted(counted, causes[cause]) or () if row[1] != row[2]] == [what]


def test_tiny_tasks_of_several_stages_are_counted_together(tmp_path: Path) -> None:
    written = EventLog(cores=[1])
    for stage in range(2):
        written.job(stage, 1000 * stage, [stage]).stage(stage, 1000 * stage, tasks=40)
        for index in range(40):
            launch = 1000 * stage + 20 * index
            written.task(stage, index, "0", launch, launch + 20, run=2 + stage, deserialize=15)
        written.stage_done(stage, 1000 * stage + 800).job_done(stage, 1000 * stage + 801)
    (log,) = find_logs(written.end(1900).write(tmp_path / "log"))
    (cause,) = (each.facts() for each in diagnose(map_log(read_log(log)).schedule).causes if each.cause == "tiny_tasks")
    rows = recounted(Recount(log.files), cause)
    assert rows == [("tasks", 80, 80), ("median_work_ns", 2_500_000, 2_500_000)]
