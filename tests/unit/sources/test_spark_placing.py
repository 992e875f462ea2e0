"""Tasks on cores: an executor has the cores that it registered with, whatever the driver's clock says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph.diagnosis.spark.causes import diagnose
from pag_graph.diagnosis.spark.cores import recorded_cores
from pag_graph.diagnosis.spark.list_schedule import list_schedule
from pag_graph.diagnosis.spark.work_plan import plan_work
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import ORIGIN_MS, EventLog, check_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.sources.spark.mapping import Mapped
    from pag_graph.sources.spark.schedule import Schedule

MS = 1_000_000


def mapped_of(log: EventLog, folder: Path) -> Mapped:
    file = log.write(folder / "log")
    return map_log(read_log(LogFiles(name="log", files=(file,))))


def findings_of(schedule: Schedule) -> dict[str, int]:
    return {finding.finding: finding.observed for finding in [*schedule.log.findings, *schedule.findings]}


def waves(folder: Path, *, early: int, executor: str = "0", registered: bool = True, master: str = "") -> Mapped:
    """Two cores, ten waves of two tasks of a second; one task is launched `early` ms before the one before it ends."""
    log = EventLog(cores=[])
    if master:
        log.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.master": master}})
    if registered:
        log.executor(executor, 10, 2)
    log.job(0, 1000, [0]).stage(0, 1000, tasks=20)
    for index in range(20):
        start = 1000 + 1000 * (index // 2)
        launch = start - early if index == 9 else start
        log.task(0, index, executor, launch, start + 1000, run=start + 1000 - launch)
    return mapped_of(log.stage_done(0, 11_000).job_done(0, 11_000).end(11_010), folder)


def test_a_task_launched_before_another_ends_makes_no_core(tmp_path: Path) -> None:
    mapped = waves(tmp_path, early=12)
    schedule = mapped.schedule
    assert len(schedule.cores) == 2
    assert findings_of(schedule) == {"task_launch_shifted": 1}
    assert sum(group.cores for group in recorded_cores(schedule)) == 2
    assert list_schedule(plan_work(schedule), recorded_cores(schedule)) == pytest.approx(schedule.end_ns, abs=12 * MS)
    assert diagnose(schedule).core_ns["idle"] <= 50 * MS
    # One of both lost the 12 ms; everything else is as the log has it.
    parts = schedule.tasks.select("work", "run", "deserialize").sum().row(0)
    assert parts == (20_000 * MS, 20_000 * MS, 0)
    for _, table in mapped.events():
        assert table.num_rows


def test_the_delay_of_the_task_before_gives_way_first(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=2)
    # The first one has 30 ms of delay: a third before its work would push its end behind the next launch.
    log.task(0, 0, "0", 100, 200, run=70).task(0, 1, "0", 172, 300, run=128)
    schedule = mapped_of(log.stage_done(0, 300).job_done(0, 301).end(310), tmp_path).schedule
    assert len(schedule.cores) == 1
    assert schedule.tasks["work"].to_list() == [70 * MS, 128 * MS]
    assert schedule.tasks["begin"].to_list() == [102 * MS, 172 * MS]
    assert findings_of(schedule) == {"task_launch_shifted": 1}


def test_tasks_that_overlap_for_moments_only_do_not_make_an_executor_larger(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=12)
    for index in range(10):
        log.task(0, index, "0", 100 + 100 * index, 200 + 100 * index, run=100)
    # Two of 10 ms that cannot be one after the other, within a second of work.
    log.task(0, 10, "0", 1100, 1110, run=10).task(0, 11, "0", 1102, 1112, run=10)
    mapped = mapped_of(log.stage_done(0, 1112).job_done(0, 1113).end(1120), tmp_path)
    assert len(mapped.schedule.cores) == 2
    assert findings_of(mapped.schedule) == {"more_tasks_than_cores": 1}
    assert sum(group.cores for group in recorded_cores(mapped.schedule)) == 1


def test_cores_that_did_not_register_are_those_of_the_settings(tmp_path: Path) -> None:
    schedule = waves(tmp_path, early=12, executor="driver", registered=False, master="local[2]").schedule
    assert (len(schedule.cores), schedule.executors["cores"].to_list()) == (2, [2])
    assert schedule.executors["added"].to_list() == [0]
    assert len(waves(tmp_path, early=12, executor="driver", registered=False, master="local[*]").schedule.cores) == 3


def test_more_garbage_collection_than_a_task_ran_is_told(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=1).task(0, 0, "0", 100, 120, run=6, gc=64_354)
    schedule = mapped_of(log.stage_done(0, 121).job_done(0, 122).end(130), tmp_path).schedule
    assert schedule.tasks["gc"].to_list() == [6 * MS]
    assert findings_of(schedule) == {"gc_exceeds_task": 64_348}


def test_tasks_of_a_job_whose_start_is_missing_are_told(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).stage(62, 100, tasks=1).task(62, 0, "0", 100, 120, run=20).stage_done(62, 121)
    mapped = mapped_of(log.job_done(7, 122).end(130), tmp_path)
    assert findings_of(mapped.schedule) == {"job_start_missing": 1}
    (job,) = mapped.schedule.jobs
    assert (job.number, job.label) == (None, "stage 62 without a job")


def after_the_end(log: EventLog, at: int) -> EventLog:
    return log.executor_gone("0", at).executor("late", at)


@pytest.mark.parametrize("ended", [True, False])
def test_what_comes_long_after_the_application_does_not_make_it_longer(tmp_path: Path, *, ended: bool) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=1).task(0, 0, "0", 110, 200, run=90)
    log.stage_done(0, 200).job_done(0, 210)
    log = after_the_end(log.end(250) if ended else log, 80_374_294_000)
    mapped = mapped_of(log, tmp_path)
    assert mapped.schedule.end_ns == (250 if ended else 210) * MS
    assert findings_of(mapped.schedule)["time_outside_application"] == 2
    assert mapped.schedule.executors.select("executor", "removed").rows() == [("0", None)]
    for _, table in mapped.events():
        assert table.num_rows


def test_tasks_and_jobs_that_end_after_the_application(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=1).task(0, 0, "0", 110, 400, run=290)
    log.end(300).stage_done(0, 400).job_done(0, 900)
    log.job(1, 950, [1])
    mapped = mapped_of(log, tmp_path)
    # A task that was still at work counts; a job that was given up, and one that came later, do not.
    assert mapped.schedule.end_ns == 400 * MS
    assert [(job.start_ns, job.end_ns) for job in mapped.schedule.jobs] == [
        (100 * MS, 400 * MS),
        (400 * MS, 400 * MS),
    ]
    assert findings_of(mapped.schedule) == {"time_outside_application": 2}


def test_executors_that_came_years_before_do_not_move_the_start(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 100, tasks=1).task(0, 0, "0", 110, 200, run=90)
    log.stage_done(0, 200).job_done(0, 210).end(250)
    log.events[2]["Timestamp"] = ORIGIN_MS - 80_374_294_000
    schedule = mapped_of(log, tmp_path).schedule
    assert (schedule.origin_ms, schedule.end_ns) == (ORIGIN_MS, 250 * MS)
    # Without the application's start, executors that came shortly before tell when it was.
    log.events = [event for event in log.events if event["Event"] != "SparkListenerApplicationStart"]
    assert mapped_of(log, tmp_path).schedule.origin_ms == ORIGIN_MS + 100
    log.events[1]["Timestamp"] = ORIGIN_MS + 10
    assert mapped_of(log, tmp_path).schedule.origin_ms == ORIGIN_MS + 10


def test_tasks_at_work_where_a_log_stops_have_not_failed(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1]).job(0, 100, [0]).stage(0, 100, tasks=2)
    log.task(0, 0, "0", 110, 200, run=90).task(0, 1, "1", 110, None)
    found = diagnose(mapped_of(log, tmp_path).schedule)
    assert found.core_ns["wasted"] == 0
    assert found.core_ns["busy"] == 2 * 90 * MS
    assert found.stages.select("tasks", "failed", "running").rows() == [(2, 0, 1)]
    # Where the application has ended, what never answered was for nothing.
    ended = diagnose(mapped_of(log.end(400), tmp_path).schedule)
    assert ended.core_ns["wasted"] == 290 * MS


def test_the_rows_of_shifted_tasks_keep_every_rule(tmp_path: Path) -> None:
    for early in (1, 12, 400):
        mapped = waves(tmp_path, early=early)
        check_rows(pl.concat([pl.from_arrow(table) for _, table in mapped.events()], how="diagonal"))
