"""Why an application was slow: causes of real logs, list scheduling by hand, and the command."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pag_graph.cli.app import app
from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.catalogue import CAUSES
from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.diagnosis.spark.cores import predict_cores, recorded_cores, with_cores
from pag_graph.diagnosis.spark.lines import text_lines
from pag_graph.diagnosis.spark.list_schedule import Cores, JobPlan, StagePlan, WorkPlan, list_schedule
from pag_graph.diagnosis.spark.page import html_page
from pag_graph.diagnosis.spark.work_plan import plan_work
from pag_graph.errors import InvalidParameterError
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from pag_graph.sources.spark.reader import read_log
from pag_graph.sources.spark.schedule import IDLE_CORES
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from pag_graph.sources.spark.schedule import Schedule

MS = 1_000_000
LOGS = Path(__file__).parents[2] / "data" / "spark"
NO_LOGS = "no event logs in tests/data/spark; bench/spark_causes/make_logs.py --tests-data makes them"

EXPECTED: dict[str, str | None] = {
    "healthy": None,
    "two-jobs": None,
    "sql": None,
    "skewed-key": "key_skew",
    "straggler-task": "straggler",
    "slow-node": "slow_node",
    "gc-heavy": "gc",
    "spill": "spill",
    "driver-bound": "driver_bound",
    "lost-executor": "lost_executor",
    "retried-stage": "stage_retry",
    "speculation": "speculation",
    "too-few-partitions": "too_few_partitions",
    "tiny-tasks": "tiny_tasks",
    "concurrent-jobs": "concurrent_jobs",
    "failed-task": "task_retry",
    "failed-job": "failed_job",
    "streaming": None,
    "dynamic-allocation": "executor_wait",
    "ramp-up": "executor_wait",
    "ramp-up-mended": None,
}
"""Cause to be named first for each log; None for no alarm at all."""


def schedule_of(log: EventLog, folder: Path) -> Schedule:
    file = log.write(folder / "log")
    return map_log(read_log(LogFiles(name="log", files=(file,)))).schedule


def diagnosis_of(log: EventLog, folder: Path) -> Diagnosis:
    return diagnose(schedule_of(log, folder))


@pytest.mark.parametrize("name", EXPECTED)
def test_real_logs_name_their_cause_first(name: str) -> None:
    files = sorted(LOGS.glob(f"{name}.*")) + sorted(LOGS.glob(f"{name}/*"))
    if not files:
        pytest.skip(NO_LOGS)
    (log,) = find_logs(files[0])
    causes = diagnose(map_log(read_log(log)).schedule).causes
    assert (causes[0].cause if causes else None) == EXPECTED[name], [cause.text for cause in causes]


# --- List scheduling by hand ------------------------------------------------------------------------------------------


def plan(durations: list[int], **more: Any) -> WorkPlan:
    stages = (StagePlan(job=0, tasks=tuple(range(len(durations)))),)
    fields = {"jobs": (JobPlan(),), "stages": stages, "last": (0,), **more}
    return WorkPlan(durations=np.array(durations, np.int64), **fields)


def ends(work: WorkPlan, count: int, **more: Any) -> int:
    return list_schedule(work, [(0, None)] * count, **more)


def test_tasks_on_one_two_and_many_cores() -> None:
    work = plan([5, 3, 4, 2])
    assert [ends(work, count) for count in (1, 2, 3, 4)] == [14, 7, 5, 5]


def test_a_core_that_comes_late_and_one_that_goes() -> None:
    work = plan([5, 5, 5])
    assert list_schedule(work, [(0, None), (7, None)]) == 12
    # The second core takes no task after instant 4.
    assert list_schedule(work, [(0, None), (0, 4)]) == 10
    with pytest.raises(InvalidParameterError, match="no core"):
        list_schedule(work, [(0, 4)])


def test_the_driver_before_between_and_after() -> None:
    jobs = (JobPlan(gap_ns=10, tail_ns=2), JobPlan(after=(0,), gap_ns=7))
    stages = (
        StagePlan(job=0, tasks=(0,), gap_ns=1),
        StagePlan(job=0, after=(0,), tasks=(1,), gap_ns=3),
        StagePlan(job=1, tasks=(2,)),
    )
    work = plan([5, 5, 5], jobs=jobs, stages=stages, last=(1,), tail_ns=4)
    assert ends(work, 1) == 10 + 1 + 5 + 3 + 5 + 2 + 7 + 5 + 4


def test_a_job_without_stages_takes_its_time() -> None:
    jobs = (JobPlan(gap_ns=10, tail_ns=20), JobPlan(after=(0,), gap_ns=1, tail_ns=0))
    work = plan([5], jobs=jobs, stages=(StagePlan(job=1, tasks=(0,)),), last=(1,))
    assert ends(work, 1) == 36


def test_jobs_at_the_same_time_share_cores_in_order() -> None:
    jobs = (JobPlan(), JobPlan(begun=0, gap_ns=1))
    stages = (StagePlan(job=0, tasks=(0, 1)), StagePlan(job=1, tasks=(2,)))
    work = plan([5, 5, 5], jobs=jobs, stages=stages, last=(0, 1))
    assert [ends(work, count) for count in (1, 2, 3)] == [15, 10, 6]


def test_retries_follow_and_copies_come_later() -> None:
    assert ends(plan([5, 3], follows={1: 0}), 2) == 8
    assert ends(plan([5, 3], offsets={1: 4}), 2) == 7
    assert ends(plan([5, 3], follows={1: 0}), 2, skip=frozenset({0})) == 3


def test_first_tasks_and_the_time_between() -> None:
    stages = (StagePlan(job=0, tasks=(0, 1, 2), between_ns=2, key=(0, 0)),)
    work = plan([5, 5, 5], stages=stages)
    assert ends(work, 1) == 5 + 2 + 5 + 2 + 5
    assert ends(work, 1, first={(0, 0): 10}) == 29
    assert ends(work, 3, first={(0, 0): 10}) == 15


def even(tasks: int, folder: Path) -> Schedule:
    log = EventLog(cores=[1, 1]).job(0, 1000, [0]).stage(0, 1000, tasks=tasks)
    for index in range(tasks):
        start = 1010 + (index // 2) * 1000
        log.task(0, index, str(index % 2), start, start + 1000, run=1000)
    return schedule_of(log.stage_done(0, 1010 + tasks * 500).job_done(0, 1020 + tasks * 500).end(10_000), folder)


def test_a_replay_on_the_recorded_cores_ends_when_it_did(tmp_path: Path) -> None:
    schedule = even(8, tmp_path)
    work = plan_work(schedule)
    assert list_schedule(work, recorded_cores(schedule)) == schedule.end_ns == 10_000 * MS
    rows = {row.cores: row.predicted_ns for row in predict_cores(schedule, work, [8])}
    assert rows == {1: 14_000 * MS, 2: 10_000 * MS, 4: 8_000 * MS, 8: 7_000 * MS}
    assert with_cores(schedule, 3) == [(10 * MS, None, 1)] * 3
    with pytest.raises(InvalidParameterError):
        with_cores(schedule, 0)


# --- Cores that a log states ------------------------------------------------------------------------------------------


def stated(cores: float, folder: Path) -> Schedule:
    """Return a log of eleven tasks on one executor that says it has so many cores."""
    log = EventLog(cores=[1]).job(0, 100, [0, 1], parents={1: [0]}).stage(0, 110, tasks=7)
    log.events[2]["Executor Info"]["Total Cores"] = cores
    for index in range(7):
        log.task(0, index, "0", 120 + 5 * index, 400 + 50 * index, run=200, wrote=(100, 10))
    log.stage_done(0, 1000).stage(1, 1001, tasks=4)
    for index in range(4):
        log.task(1, index, "0", 1010, 1400, run=300, read=(0, 100, 10))
    return schedule_of(log.stage_done(1, 1500).job_done(0, 1501).end(2000), folder)


@pytest.mark.parametrize("cores", [512, 65_536, 2**31 - 1])
def test_cores_that_no_task_needs_cost_nothing(cores: int, tmp_path: Path) -> None:
    few, many = stated(16, tmp_path), stated(cores, tmp_path)
    # Seven tasks overlap; the others are there, and only some of them are workers.
    assert len(few.cores) == 16
    assert len(many.cores) == 7 + IDLE_CORES
    assert [finding.finding for finding in many.findings] == ["idle_cores_left_out"]
    assert sum(group.cores for group in recorded_cores(many)) == cores
    ends = [list_schedule(plan_work(schedule), recorded_cores(schedule)) for schedule in (few, many)]
    assert ends[0] == ends[1]
    found = diagnose(many)
    busy = found.core_ns["busy"] + found.core_ns["wasted"]
    assert found.core_ns["idle"] == cores * (many.end_ns - 90 * MS - 10 * MS) - busy
    rows = {row.cores: row.predicted_ns for row in predict_cores(many, found.plan, [10**15])}
    assert list(rows) == [cores // 2, cores, 2 * cores, 10**15]
    assert len(set(rows.values())) == 1


@pytest.mark.parametrize("cores", [1e308, 2**31, 2**63, -4, "many"])
def test_cores_that_cannot_be_are_unknown(cores: float, tmp_path: Path) -> None:
    schedule = stated(cores, tmp_path)
    assert len(schedule.cores) == len(stated(0, tmp_path).cores) == 4
    assert [finding.finding for finding in schedule.log.findings] == ["value_out_of_range"]


def test_groups_of_cores_are_the_cores_one_by_one() -> None:
    chance = random.Random(1)
    for _ in range(200):
        work = plan([chance.randint(1, 20) for _ in range(chance.randint(1, 12))])
        groups = [
            Cores(chance.randint(0, 15), chance.choice([None, chance.randint(5, 40)]), chance.randint(0, 4))
            for _ in range(3)
        ]
        groups.append(Cores(chance.randint(0, 15), None))
        single = [(since, until) for since, until, cores in groups for _ in range(cores)]
        first = {(-1, 0): chance.randint(0, 5)}
        assert list_schedule(work, groups, first=first) == list_schedule(work, single, first=first)


# --- Causes by hand ---------------------------------------------------------------------------------------------------


def stage_of(times: list[int], folder: Path, *, cores: int = 2, **more: Any) -> Diagnosis:
    """Diagnose one stage with tasks of these milliseconds, given out to the first free core."""
    log = EventLog(cores=[1] * cores).job(0, 1000, [0]).stage(0, 1000, tasks=len(times))
    free = [1010] * cores
    for index, time in enumerate(times):
        core = free.index(min(free))
        details = {key: values[index] for key, values in more.items()}
        log.task(0, index, str(core), free[core], free[core] + time, run=time, **details)
        free[core] += time
    return diagnosis_of(log.stage_done(0, max(free)).job_done(0, max(free) + 5).end(max(free) + 10), folder)


def names(diagnosis: Diagnosis) -> list[str]:
    return [cause.cause for cause in diagnosis.causes]


def test_even_work_is_no_alarm(tmp_path: Path) -> None:
    assert names(stage_of([1000] * 12, tmp_path)) == []


def test_slow_first_tasks_of_all_cores_are_no_alarm(tmp_path: Path) -> None:
    assert names(stage_of([4000, 4000, *[500] * 12], tmp_path)) == []


def test_the_first_task_of_an_executor_that_starts_late_is_no_alarm(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1]).job(0, 1000, [0, 1], parents={1: [0]}).stage(0, 1000, tasks=1)
    log.task(0, 0, "0", 1010, 1310, run=100, deserialize=200).stage_done(0, 1310).stage(1, 1310, tasks=6)
    # Executor 1 loads everything now; executor 0 has loaded most of it already.
    log.task(1, 0, "1", 1310, 6810, run=4000, deserialize=1500)
    for index in range(1, 6):
        start = 1310 + 500 * (index - 1)
        log.task(1, index, "0", start, start + 500, run=490, deserialize=10)
    log.stage_done(1, 6810).job_done(0, 6820).end(6830)
    assert names(diagnosis_of(log, tmp_path)) == []
    # Without that much to load the same task is a straggler.
    log.events = [
        event
        if event["Event"] != "SparkListenerTaskEnd" or event["Task Info"]["Executor ID"] == "0"
        else {**event, "Task Metrics": {**event["Task Metrics"], "Executor Deserialize Time": 20}}
        for event in log.events
    ]
    assert names(diagnosis_of(log, tmp_path)) == ["straggler"]


def test_one_task_with_more_data_is_skew_and_with_as_much_a_straggler(tmp_path: Path) -> None:
    times = [500, 500, 500, 500, 500, 9000, 500, 500]
    reads = [(1000, 0, 100)] * 5 + [(18_000, 0, 1800)] + [(1000, 0, 100)] * 2
    skewed = stage_of(times, tmp_path, read=reads)
    assert names(skewed) == ["key_skew"]
    assert skewed.causes[0].signal["shuffle_read_ratio"] == 18.0
    assert skewed.causes[0].signal["index"] == 5
    assert names(stage_of(times, tmp_path, read=[(1000, 0, 100)] * 8)) == ["straggler"]
    inputs = [10] * 5 + [180] + [10] * 2
    assert names(stage_of(times, tmp_path, input_records=inputs)) == ["partition_skew"]


def test_garbage_collection_of_one_task_is_no_straggler(tmp_path: Path) -> None:
    times = [500, 500, 500, 500, 500, 9000, 500, 500]
    found = stage_of(times, tmp_path, gc=[0] * 5 + [8000] + [0] * 2)
    assert found.causes[0].cause == "gc"


def test_a_stage_that_spills(tmp_path: Path) -> None:
    found = stage_of([3000, 3000], tmp_path, spilled=[10**8] * 2, read=[(10**8, 0, 100)] * 2)
    assert names(found) == ["spill"]
    assert found.causes[0].bound


def test_one_task_for_two_cores(tmp_path: Path) -> None:
    found = stage_of([9000], tmp_path)
    assert names(found) == ["too_few_partitions"]
    assert found.causes[0].saved_ns == 4500 * MS


def test_the_driver_alone(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1])
    for job in range(3):
        start = 1000 + 5000 * job
        log.job(job, start, [job]).stage(job, start, tasks=2)
        log.task(job, 0, "0", start + 10, start + 900, run=890).task(job, 1, "1", start + 10, start + 900, run=890)
        log.stage_done(job, start + 900).job_done(job, start + 1000)
    found = diagnosis_of(log.end(16_000), tmp_path)
    assert names(found) == ["driver_bound"]
    assert found.causes[0].saved_ns == 12_000 * MS


def test_an_executor_lost_on_the_way(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1]).job(0, 1000, [0]).stage(0, 1000, tasks=4)
    log.task(0, 0, "0", 1010, 3010, run=2000).task(0, 1, "1", 1010, 2500, reason="ExecutorLostFailure")
    log.executor_gone("1", 2500).task(0, 2, "0", 3010, 5010, run=2000).task(0, 3, "0", 5010, 7010, run=2000)
    log.task(0, 1, "0", 7010, 9010, run=2000, attempt=1).stage_done(0, 9010).job_done(0, 9015)
    found = diagnosis_of(log.end(9020), tmp_path)
    assert names(found)[0] == "lost_executor"
    # Two cores for four tasks of two seconds would have taken four seconds.
    assert found.causes[0].saved_ns == pytest.approx(4000 * MS, rel=0.01)


def test_every_cause_has_advice_and_every_answer_its_facts(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1]).job(0, 1000, [0]).stage(0, 1000, tasks=1).task(0, 0, "0", 1010, 9000, run=7990)
    file = log.stage_done(0, 9000).job_done(0, 9010).end(9020).write(tmp_path / "app")
    told = answer(LogFiles(name="app", files=(file,)))
    facts = told.facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["path"]["length_ns"] == facts["span_ns"] == 9020 * MS
    assert facts["path"]["explained"] == 1.0
    for division in ("stage", "activity", "executor", "host", "query"):
        assert sum(row["path_ns"] for row in facts["path"][f"by_{division}"]) == facts["span_ns"]
    assert [cause["cause"] for cause in facts["causes"]] == ["too_few_partitions"]
    assert set(CAUSES) >= {cause["cause"] for cause in facts["causes"]}
    assert {row["change"] for row in facts["what_if"]["changes"]} >= {"half the work in stage 0"}
    text = "\n".join(text_lines(told))
    assert "1. Too few partitions" in text
    page = html_page([told])
    assert page.count("<svg") == 1
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_names_from_a_log_are_text_in_the_page(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 1000, [0]).stage(0, 1000, tasks=1).task(0, 0, "0", 1010, 1020, run=5)
    log.events[1]["App Name"] = "<script>alert(1)</script>"
    log.events[-2]["Task Info"]["Host"] = '"><b>'
    file = log.job_done(0, 1030).end(1040).write(tmp_path / "app")
    page = html_page([answer(LogFiles(name="app", files=(file,)))])
    assert "<script>" not in page
    assert '"><b>' not in page


def test_the_command_keeps_a_store_and_takes_many_logs(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 1000, [0]).stage(0, 1000, tasks=1).task(0, 0, "0", 1010, 1900, run=880)
    log.job_done(0, 1910).end(2000)
    (tmp_path / "logs").mkdir()
    for name in ("app-1", "app-2"):
        log.write(tmp_path / "logs" / name)
    run = CliRunner()
    one = run.invoke(
        app, ["spark", str(tmp_path / "logs" / "app-1"), "--out", str(tmp_path / "out"), "--format", "json"]
    )
    assert one.exit_code == 0, one.output
    assert json.loads(one.stdout)["span_ns"] == 2000 * MS
    again = run.invoke(app, ["critical-path", str(tmp_path / "out" / "pag"), "--format", "json"])
    assert again.exit_code == 0, again.output
    html = tmp_path / "why.html"
    both = run.invoke(app, ["spark", str(tmp_path / "logs"), "--html", str(html), "--format", "json", "--cores", "4"])
    assert both.exit_code == 0, both.output
    assert [row["log"] for row in json.loads(both.stdout)] == ["app-1", "app-2"]
    assert html.read_text().count("<svg") == 2
    table = run.invoke(app, ["spark", str(tmp_path / "logs" / "app-1")])
    assert "Nothing stands out" in table.stdout
