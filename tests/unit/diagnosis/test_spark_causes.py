"""Causes by hand: each with a log that has it, and one that looks alike and has it not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.diagnosis.spark.cores import predict_cores
from pag_graph.diagnosis.spark.lines import text_lines
from pag_graph.diagnosis.spark.look import Estimate
from pag_graph.diagnosis.spark.page import html_page
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import ORIGIN_MS, EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.diagnosis.spark.look import Cause
    from pag_graph.sources.spark.schedule import Schedule

MS = 1_000_000
SQL = "org.apache.spark.sql.execution.ui.SparkListener"


def schedule_of(log: EventLog, folder: Path) -> Schedule:
    file = log.write(folder / "log")
    return map_log(read_log(LogFiles(name="log", files=(file,)))).schedule


def diagnosis_of(log: EventLog, folder: Path) -> Diagnosis:
    return diagnose(schedule_of(log, folder))


def names(diagnosis: Diagnosis) -> list[str]:
    return [cause.cause for cause in diagnosis.causes]


def only(diagnosis: Diagnosis, name: str) -> Cause:
    (cause,) = [cause for cause in diagnosis.causes if cause.cause == name]
    return cause


# --- Tiny tasks of many stages ----------------------------------------------------------------------------------------


def many_stages(stages: int) -> EventLog:
    """Two tasks of 8 s on two cores, then stages of 40 tasks that work for 2 ms and hold their core for 20 ms."""
    log = EventLog(cores=[2]).job(0, 0, [0]).stage(0, 0, tasks=2)
    for index in range(2):
        log.task(0, index, "0", 0, 8_000, run=8_000)
    log.stage_done(0, 8_000).job_done(0, 8_000)
    now = 8_000
    for stage in range(1, stages + 1):
        log.job(stage, now, [stage]).stage(stage, now, tasks=40)
        for index in range(40):
            launch = now + 20 * (index // 2)
            log.task(stage, index, "0", launch, launch + 20, run=2, deserialize=17)
        now += 400
        log.stage_done(stage, now).job_done(stage, now)
    return log.end(now)


def test_tiny_tasks_of_stages_that_matter_only_together(tmp_path: Path) -> None:
    assert "tiny_tasks" not in names(diagnosis_of(many_stages(1), tmp_path))
    found = diagnosis_of(many_stages(6), tmp_path)
    cause = only(found, "tiny_tasks")
    assert (cause.signal["tasks"], cause.signal["stages"]) == (240, [1, 2, 3, 4, 5, 6])
    assert "and 5 more stages had 240 tasks" in cause.text
    # Six stages of 400 ms, of which 40 ms are work.
    assert cause.saved_ns == pytest.approx(6 * 360 * MS, rel=0.1)
    assert [change.text for change in cause.changes] == [
        "partitions: 40 -> 2, by coalesce(), or larger splits of the input, in 6 stages"
    ]


# --- Cores that come and go -------------------------------------------------------------------------------------------


def ramp_up() -> EventLog:
    """One core at first, three more after 20 s; 40 tasks of a second, and all cores go before a job on one of them."""
    log = EventLog(cores=[1])
    log.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.dynamicAllocation.enabled": "true"}})
    log.job(0, 1000, [0]).stage(0, 1000, tasks=40)
    for index in range(20):
        log.task(0, index, "0", 1000 * (index + 1), 1000 * (index + 2), run=1000)
    for name in "123":
        log.executor(name, 21_000)
    for index in range(20, 40):
        start = 21_000 + 1000 * ((index - 20) // 4)
        log.task(0, index, str(index % 4), start, start + 1000, run=1000)
    log.stage_done(0, 26_000).job_done(0, 26_000)
    for name in "123":
        log.executor_gone(name, 30_000, "Executor killed by driver.")
    return log.end(40_000)


def test_cores_that_came_late_are_replayed_as_they_came_and_from_the_start(tmp_path: Path) -> None:
    schedule = schedule_of(ramp_up(), tmp_path)
    found = diagnose(schedule)
    assert found.simulated_ns == schedule.end_ns == 40_000 * MS
    rows = [(row.cores, row.predicted_ns // MS, row.recorded) for row in predict_cores(schedule, found.plan)]
    # With four cores from the start 40 tasks take ten seconds instead of 25.
    assert rows == [(2, 35_000, False), (4, 40_000, True), (4, 25_000, False), (8, 20_000, False)]


def test_tasks_that_wait_for_executors_while_some_are_there(tmp_path: Path) -> None:
    cause = only(diagnosis_of(ramp_up(), tmp_path), "executor_wait")
    assert cause.saved_ns == 15_000 * MS
    assert cause.signal == {"waited_ns": 0, "most_cores": 4, "cores_at_first_job": 1, "executors_late": 3}
    # The same executors are there from the start: nobody waits, and what is replayed is what is said.
    log = ramp_up()
    for event in log.events:
        if event["Event"] == "SparkListenerExecutorAdded":
            event["Timestamp"] = ORIGIN_MS + 10
    assert "executor_wait" not in names(diagnosis_of(log, tmp_path))


def test_an_executor_that_takes_long_to_begin_is_no_wait_for_executors(tmp_path: Path) -> None:
    # It registers a moment after the job, and has its first task ten seconds later: there was no lack of executors.
    log = EventLog(cores=[]).job(0, 1000, [0]).stage(0, 1000, tasks=4).executor("0", 1060).executor("1", 1080)
    for index in range(4):
        start = 11_000 + 2000 * (index // 2)
        log.task(0, index, str(index % 2), start, start + 2000, run=2000)
    found = diagnosis_of(log.stage_done(0, 15_000).job_done(0, 15_000).end(15_100), tmp_path)
    assert "executor_wait" not in names(found)


def test_what_a_reused_exchange_states_again_counts_once(tmp_path: Path) -> None:
    metric = {"name": "metadata time", "accumulatorId": 7, "metricType": "timing"}
    scan = {"nodeName": "Scan parquet", "simpleString": "Scan parquet", "children": [], "metrics": [metric]}
    reused = {"nodeName": "ReusedExchange", "simpleString": "", "children": [scan], "metrics": []}
    plan = {"nodeName": "Union", "simpleString": "Union", "children": [scan, reused], "metrics": []}
    sql = "org.apache.spark.sql.execution.ui.SparkListener"
    log = EventLog(cores=[1])
    log.add(f"{sql}SQLExecutionStart", executionId=1, description="", time=ORIGIN_MS + 100, sparkPlanInfo=plan)
    log.add(f"{sql}DriverAccumUpdates", executionId=1, accumUpdates=[[7, 4000]])
    log.job(0, 100, [0], spark_sql_execution_id="1").stage(0, 6000, tasks=1)
    log.task(0, 0, "0", 6000, 9000, run=3000).stage_done(0, 9000).job_done(0, 9000)
    log.add(f"{sql}SQLExecutionEnd", executionId=1, time=ORIGIN_MS + 9100).end(9200)
    assert only(diagnosis_of(log, tmp_path), "listing").signal["metadata_ns"] == 4000 * MS


# --- How far off replays are ------------------------------------------------------------------------------------------


def unexplained_pauses(pause: int) -> EventLog:
    """Two cores and tasks in pairs, with pauses between the pairs that nothing in the log explains to a replay."""
    log = EventLog(cores=[1, 1]).job(0, 1000, [0]).stage(0, 1000, tasks=9)
    for index in range(8):
        start = 1010 + (index // 2) * 1000 + (pause if index >= 4 else 0)
        log.task(0, index, str(index % 2), start, start + 1000, run=1000)
    end = 5010 + pause
    log.task(0, 8, "0", end, end + 9000, run=9000)
    return log.stage_done(0, end + 9000).job_done(0, end + 9010).end(end + 9020)


@pytest.mark.parametrize(("pause", "reliable"), [(100, True), (4000, False)])
def test_replays_that_are_far_off_give_intervals_everywhere(tmp_path: Path, pause: int, *, reliable: bool) -> None:
    file = unexplained_pauses(pause).write(tmp_path / "app")
    told = answer(LogFiles(name="app", files=(file,)))
    assert told.diagnosis.reliable is reliable
    assert told.diagnosis.replay_error == pytest.approx(-pause / (pause + 13_030), abs=0.001)
    facts = told.facts()
    assert facts["what_if"]["reliable"] is reliable
    (cause,) = facts["causes"]
    assert cause["cause"] == "straggler"
    rows = [row for row in facts["what_if"]["cores"] if not row["recorded"]]
    changes = [row for row in facts["what_if"]["changes"] if "driver" not in row["change"]]
    # Nothing says what tasks on the same processors take from each other: other cores are always an interval.
    assert all(row["predicted_ns"] is None for row in rows)
    assert all(row["predicted_high_ns"] - row["predicted_low_ns"] >= 2 * pause * MS for row in rows)
    values = [cause["saved_ns"], cause["share"]]
    values += [row[name] for row in changes for name in ("saved_ns", "predicted_ns")]
    assert all((value is None) is not reliable for value in values)
    assert cause["saved_high_ns"] - cause["saved_low_ns"] == 2 * pause * MS
    text, page = "\n".join(text_lines(told)), html_page([told])
    for shown in (text, page):
        assert ("replayed times are intervals" in shown) is not reliable
        assert f"off by {told.diagnosis.replay_error:+.1%} of the time since the first job" in shown
        assert ("8.00 s (" in shown) is reliable
    assert ("4.00 s to 12.00 s (23% to 70% of" in text) is not reliable


def test_a_saving_below_its_error_is_only_a_bound() -> None:
    spelt = {estimate: estimate.text(lambda ns: f"{ns:.0f}") for estimate in _ESTIMATES}
    assert list(spelt.values()) == ["7", "4 to 10", "at most 10"]
    assert _ESTIMATES[2].facts("saved") == {"saved_ns": None, "saved_low_ns": 0, "saved_high_ns": 10}


_ESTIMATES = (Estimate(7, 1, reliable=True), Estimate(7, 3, reliable=False), Estimate(4, 6, reliable=False))


# --- Which cause a slow task has --------------------------------------------------------------------------------------


def one_slow(slow: dict[str, Any], *, typical: dict[str, Any] | None = None, name: str = "3") -> EventLog:
    """Four executors with four tasks of 500 ms, and one task of 15.8 s on the last one."""
    log = EventLog(cores=[1] * 4).job(0, 1000, [0]).stage(0, 1000, tasks=13)
    for index in range(12):
        start = 1010 + 500 * (index // 3)
        log.task(0, index, str(index % 3), start, start + 500, run=480, **(typical or {}))
    log.task(0, 12, name, 1010, 16_810, **slow)
    return log.stage_done(0, 16_810).job_done(0, 16_820).end(16_830)


def test_a_task_that_loads_code_is_no_straggler_and_not_for_want_of_partitions(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1]).job(0, 1000, [0]).stage(0, 1000, tasks=3)
    log.task(0, 0, "0", 1010, 1610, run=580, deserialize=10).task(0, 1, "0", 1610, 2210, run=580, deserialize=10)
    log.task(0, 2, "1", 1010, 16_810, run=600, deserialize=15_100)
    found = diagnosis_of(log.stage_done(0, 16_810).job_done(0, 16_820).end(16_830), tmp_path)
    assert names(found) == ["deserialization"]
    cause = found.causes[0]
    assert cause.signal["deserialization_part"] > 0.95
    assert "loading code and data before the work" in cause.text
    # The same time spent at work is a straggler.
    log.events[-4]["Task Metrics"] |= {"Executor Run Time": 15_600, "Executor Deserialize Time": 100}
    assert names(diagnosis_of(log, tmp_path)) == ["straggler"]


def test_a_task_that_is_slow_among_tasks_of_no_length_has_no_ratio(tmp_path: Path) -> None:
    """Where most tasks took no millisecond, one that took any was infinitely slow, which is no number of JSON."""
    log = EventLog(cores=[2, 2]).job(0, 100, [0]).stage(0, 110, tasks=12)
    for index in range(11):
        log.task(0, index, str(index % 2), 120 + index, 120 + index, run=0)
    log.task(0, 11, "0", 120, 20_120, run=20_000).stage_done(0, 20_121).job_done(0, 20_122).end(20_200)
    (cause,) = diagnosis_of(log, tmp_path).causes
    assert (cause.cause, cause.signal["index"], cause.signal["time_ratio"]) == ("straggler", 11, None)
    json.dumps(cause.signal, allow_nan=False)


@pytest.mark.parametrize(
    ("slow", "cause"),
    [
        ({"run": 15_000}, "straggler"),
        ({"run": 15_700, "gc": 14_000}, "gc"),
        ({"run": 15_700, "fetch_wait": 14_000}, "shuffle_fetch"),
        ({"run": 600}, "scheduling"),
        ({"run": 15_700, "read": (30_000, 0, 30_000)}, "key_skew"),
        ({"run": 15_700, "input_records": 30_000}, "partition_skew"),
    ],
)
def test_the_largest_part_of_a_slow_task_is_its_cause(slow: dict[str, Any], cause: str, tmp_path: Path) -> None:
    usual = {"read": (1000, 0, 1000), "input_records": 1000}
    typical = {name: value for name, value in usual.items() if name in slow}
    found = diagnosis_of(one_slow(slow, typical=typical), tmp_path)
    of_stage = next(found for found in found.causes if found.stage == 0)
    assert of_stage.cause == cause
    assert of_stage.text.startswith("Stage 0 (count at program.py:0): 1 of 13 tasks")


def planned(log: EventLog, *nodes: tuple[str, str], query: int = 0, at: int = 500, **more: Any) -> EventLog:
    """Add a query whose plan is a chain of nodes, each with its text and a metric that tasks can name."""
    plan: dict[str, Any] = {}
    for number, (name, text) in reversed(list(enumerate(nodes))):
        metric = {"name": "number of output rows", "accumulatorId": number + 1, "metricType": "sum"}
        children = [plan] if plan else []
        plan = {"nodeName": name, "simpleString": text, "children": children, "metrics": [metric]}
    log.add(f"{SQL}SQLExecutionStart", executionId=query, description="", time=ORIGIN_MS + at, sparkPlanInfo=plan)
    log.events[-1] |= more
    return log


def working(log: EventLog, count: int) -> EventLog:
    """Let the last task have worked for the first `count` nodes of its query's plan."""
    items = [{"ID": number + 1, "Update": "1", "Metadata": "sql"} for number in range(count)]
    log.events[-1]["Task Info"]["Accumulables"] = items
    return log


@pytest.mark.parametrize(
    ("node", "advice"),
    [
        ("Window", "PARTITION BY"),
        ("HashAggregate", "Aggregate in two steps"),
        ("SortMergeJoin", "adaptive skew joins"),
        ("Project", "Spread the key"),
    ],
)
def test_advice_against_skewed_keys_fits_the_operator(node: str, advice: str, tmp_path: Path) -> None:
    log = planned(EventLog(cores=[1, 1]), (node, node)).job(0, 1000, [0], spark_sql_execution_id="0")
    log.stage(0, 1000, tasks=8)
    for index in range(8):
        executor, start, long, more = "0", 1010 + 500 * index, 500, 1000
        if index == 5:
            executor, start, long, more = "1", 1010, 9000, 18_000
        log.task(0, index, executor, start, start + long, run=long, read=(more, 0, 100))
        working(log, 1)
    cause = only(diagnosis_of(log.stage_done(0, 10_010).job_done(0, 10_020).end(10_030), tmp_path), "key_skew")
    assert advice in cause.advice
    assert cause.text.startswith(f"Stage 0 ({node} of query 0): ")


# --- Too few tasks ----------------------------------------------------------------------------------------------------


def one_task(*nodes: tuple[str, str], rdd: str = "RDD", read: int = 0) -> EventLog:
    log = EventLog(cores=[1] * 4)
    if nodes:
        planned(log, *nodes)
    log.job(0, 1000, [0], **({"spark_sql_execution_id": "0"} if nodes else {})).stage(0, 1000, tasks=1)
    log.events[-1]["Stage Info"]["RDD Info"][0]["Name"] = rdd
    working(log.task(0, 0, "0", 1010, 21_010, run=20_000), len(nodes))
    log.events[-1]["Task Metrics"]["Input Metrics"]["Bytes Read"] = read
    return log.stage_done(0, 21_010).job_done(0, 21_020).end(21_030)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (one_task(), "too_few_partitions"),
        (one_task(("Window", "Window [row_number()]"), ("Sort", "Sort")), "single_window"),
        (one_task(("Scan csv", "FileScan csv Location: [file:/in/a.csv.gz]"), read=50 << 20), "unsplittable_input"),
        (one_task(rdd="/in/lines.txt.gz", read=50 << 20), "unsplittable_input"),
        (one_task(read=300 << 20), "unsplittable_input"),
        (
            one_task(("Scan parquet", "FileScan parquet [file:/in/part-0.gz.parquet]"), read=50 << 20),
            "too_few_partitions",
        ),
    ],
    ids=["plain", "window", "gzip", "gzip-rdd", "large", "parquet"],
)
def test_more_partitions_are_advised_only_where_there_can_be_more(log: EventLog, cause: str, tmp_path: Path) -> None:
    found = diagnosis_of(log, tmp_path)
    assert names(found) == [cause]
    assert found.causes[0].saved_ns == 15_000 * MS
    assert ("at least as many as there are cores" in found.causes[0].advice) is (cause == "too_few_partitions")


def python_of_few_rows(*, timed: bool) -> EventLog:
    """Two tasks that each wait nine of ten seconds for Python, of which a limit takes the first rows only."""
    executes = {"name": "time to execute Python code", "accumulatorId": 9, "metricType": "timing"}
    rows = {"name": "number of output rows", "accumulatorId": 1, "metricType": "sum"}
    node = {"nodeName": "ArrowEvalPython", "simpleString": "", "children": [], "metrics": [rows, executes]}
    log = EventLog(cores=[1, 1])
    log.add(f"{SQL}SQLExecutionStart", executionId=0, description="", time=ORIGIN_MS + 500, sparkPlanInfo=node)
    log.job(0, 1000, [0], spark_sql_execution_id="0").stage(0, 1000, tasks=2)
    for index in range(2):
        log.task(0, index, str(index), 1010, 11_010, run=10_000)
        log.events[-1]["Task Metrics"]["Executor CPU Time"] = 1000 * MS
        items = [{"ID": 1, "Update": "500", "Metadata": "sql"}]
        items += [{"ID": 9, "Update": "9000", "Metadata": "sql"}] if timed else []
        log.events[-1]["Task Info"]["Accumulables"] = items
    return log.stage_done(0, 11_010).job_done(0, 11_020).end(11_030)


@pytest.mark.parametrize("timed", [True, False])
def test_where_python_is_not_timed_the_start_of_its_workers_is_said_to_count(tmp_path: Path, *, timed: bool) -> None:
    found = diagnosis_of(python_of_few_rows(timed=timed), tmp_path)
    cause = only(found, "python_udf")
    assert cause.saved_ns == pytest.approx(9000 * MS, rel=0.01)
    assert cause.facts()["class"] == ("M" if timed else "B")
    assert any("start of Python's workers" in trap for trap in cause.traps) is not timed
    assert any("unless a limit ends the tasks early" in each.text for each in found.not_recorded) is not timed


# --- Failures ---------------------------------------------------------------------------------------------------------


OUT_OF_MEMORY = (
    "Job aborted due to stage failure: Task 2 in stage 0.0 failed 4 times, most recent failure: Lost task 2.3 in stage"
    " 0.0 (TID 9) (10.0.0.7 executor 1): java.lang.OutOfMemoryError: Java heap space of ada's secret\n\tat a.b.C"
)
CANCELLED = "Job {} cancelled because SparkContext was shut down"


def failing(*messages: str) -> EventLog:
    """Jobs that begin a second after each other and fail together, the first of them first."""
    log = EventLog(cores=[2])
    for job, _ in enumerate(messages):
        log.job(job, 1000 + 1000 * job, [job]).stage(job, 1000 + 1000 * job, tasks=1)
    for job, message in enumerate(messages):
        log.task(job, 0, "0", 8000 + job, 9000 + job, reason="ExceptionFailure")
        log.job_done(job, 20_000 + 10 * job, failed=True)
        log.events[-1]["Job Result"]["Exception"]["Message"] = message.format(job)
    return log.end(21_000)


def test_one_job_failed_and_the_others_followed(tmp_path: Path) -> None:
    found = diagnosis_of(failing(OUT_OF_MEMORY, *[CANCELLED] * 4), tmp_path)
    cause = only(found, "failed_job")
    assert found.causes[0] is cause
    assert cause.saved_ns == (20_040 - 1000) * MS
    assert cause.share <= 1
    assert cause.signal["job"] == 0
    assert cause.signal["followed"] == [1, 2, 3, 4]
    assert "java.lang.OutOfMemoryError" in cause.text
    assert "Java heap space" in cause.text
    assert "secret" not in cause.text
    assert "Jobs 1, 2, 3, 4 were given up because of it" in cause.text


def test_the_same_failure_again_is_one_cause_and_another_is_a_second(tmp_path: Path) -> None:
    cause = only(diagnosis_of(failing(OUT_OF_MEMORY, OUT_OF_MEMORY), tmp_path), "failed_job")
    assert (cause.signal["job"], cause.signal["same"]) == (0, [1])
    found = diagnosis_of(failing(OUT_OF_MEMORY, "java.io.IOException: no"), tmp_path)
    causes = [cause for cause in [*found.causes, *found.minor] if cause.cause == "failed_job"]
    assert [cause.signal["job"] for cause in causes] == [0, 1]
    assert sum(cause.share for cause in causes) <= 1
    # The whole first line where texts are kept.
    file = failing(OUT_OF_MEMORY).write(tmp_path / "log")
    kept = read_log(LogFiles(name="log", files=(file,)), keep_texts=True)
    assert kept.jobs["failure"].to_list() == [OUT_OF_MEMORY.split("\n", 1)[0]]


def test_a_loss_that_cost_nothing_is_seen_and_is_no_cause(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1]).job(0, 1000, [0]).stage(0, 1000, tasks=2)
    log.task(0, 0, "0", 1010, 90_000, run=88_990).task(0, 1, "1", 1010, 1020, reason="ExecutorLostFailure")
    log.executor_gone("1", 1020).executor("2", 1030).task(0, 1, "2", 1040, 1100, run=60, attempt=1)
    found = diagnosis_of(log.stage_done(0, 90_000).job_done(0, 90_010).end(90_020), tmp_path)
    assert "lost_executor" not in names(found)
    assert [cause.cause for cause in found.minor] == ["lost_executor"]


# --- The driver's time ------------------------------------------------------------------------------------------------


def job_of(log: EventLog, job: int, start: int, end: int, **properties: str) -> EventLog:
    """Add a job of one task that is busy from its start to its end."""
    log.job(job, start, [job], **properties).stage(job, start, tasks=1)
    log.task(job, 0, "0", start + 2, end - 2, run=end - start - 5)
    return log.stage_done(job, end - 1).job_done(job, end)


def test_a_shell_without_work_is_told_from_a_driver_at_work(tmp_path: Path) -> None:
    log = job_of(job_of(EventLog(cores=[1]), 0, 1000, 3000), 1, 40_000, 42_000).end(43_000)
    found = diagnosis_of(log, tmp_path)
    assert names(found) == ["driver_bound"]
    assert "does not say what the driver did" in found.causes[0].advice
    log.events[1]["App Name"] = "PySparkShell"
    found = diagnosis_of(log, tmp_path)
    assert names(found) == ["idle_shell"]
    assert found.causes[0].saved_ns == 38_000 * MS
    # Within a query the driver of a shell plans, and that is no thinking.
    log.events[2:2] = planned(EventLog(cores=[]), ("Project", "Project"), at=3000).events[2:]
    log.events.insert(-1, {"Event": f"{SQL}SQLExecutionEnd", "executionId": 0, "time": ORIGIN_MS + 40_000})
    found = diagnosis_of(log, tmp_path)
    assert names(found) == ["driver_bound"]
    assert only(found, "driver_bound").signal["in_queries_ns"] == 37_000 * MS


def test_many_small_jobs_are_told_from_few_long_ones(tmp_path: Path) -> None:
    log = EventLog(cores=[1])
    for job in range(150):
        job_of(log, job, 1000 + 200 * job, 1050 + 200 * job)
        log.events[-6]["Stage Infos"][0]["Stage Name"] = "collect at lookup.py:7"
    found = diagnosis_of(log.end(31_100), tmp_path)
    assert names(found) == ["many_small_jobs"]
    assert found.causes[0].signal["call_sites"] == {"collect at lookup.py:7": 149}
    assert "150 jobs" not in found.causes[0].text
    assert found.causes[0].saved_ns == 149 * 150 * MS


@pytest.mark.parametrize(("plan", "cause"), [("Filter (id#{0} > {0})", "many_small_jobs"), ("Q{1}", "driver_bound")])
def test_queries_of_one_line_are_many_only_if_they_differ_in_numbers_alone(
    plan: str, cause: str, tmp_path: Path
) -> None:
    log = EventLog(cores=[1])
    for job in range(40):
        at = 1000 + 200 * job
        text = plan.format(job, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[job % 26] * (1 + job // 26))
        root = {"nodeName": "Filter", "simpleString": text, "children": [], "metrics": []}
        start = {"executionId": job, "description": "", "time": ORIGIN_MS + at, "sparkPlanInfo": root}
        log.add(f"{SQL}SQLExecutionStart", **start)
        job_of(log, job, at, at + 50, spark_sql_execution_id=str(job))
        log.events[-6]["Stage Infos"][0]["Stage Name"] = "collect at queries.py:7"
        log.add(f"{SQL}SQLExecutionEnd", executionId=job, time=ORIGIN_MS + at + 51)
    assert names(diagnosis_of(log.end(9_100), tmp_path)) == [cause]


def test_results_that_the_driver_fetches(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 1000, [0]).stage(0, 1000, tasks=1)
    log.task(0, 0, "0", 1010, 11_000, run=1990, getting=3000).stage_done(0, 11_001).job_done(0, 11_005)
    log.events[-3]["Task Metrics"]["Result Size"] = 700 << 20
    cause = only(diagnosis_of(log.end(11_010), tmp_path), "collect_large")
    assert (cause.saved_ns, cause.bound) == (8000 * MS, True)
    assert "700 MiB" in cause.text


@pytest.mark.parametrize(
    ("node", "cause"), [("Execute InsertIntoHadoopFsRelationCommand", "output_commit"), ("Project", "driver_bound")]
)
def test_what_follows_the_last_job_of_a_query_that_writes_is_its_commit(node: str, cause: str, tmp_path: Path) -> None:
    log = planned(EventLog(cores=[1]), (node, node)).job(0, 1000, [0], spark_sql_execution_id="0")
    log.stage(0, 1000, tasks=1).task(0, 0, "0", 1002, 2000, run=990).stage_done(0, 2001).job_done(0, 2002)
    log.add(f"{SQL}SQLExecutionEnd", executionId=0, time=ORIGIN_MS + 12_002)
    found = diagnosis_of(log.end(12_010), tmp_path)
    assert names(found) == [cause]
    assert found.causes[0].saved_ns // MS in (10_000, 10_008)


def test_jobs_that_list_files(tmp_path: Path) -> None:
    log = EventLog(cores=[1])
    job_of(log, 0, 1000, 9000, spark_job_description="Listing leaf files and directories for 900 paths:<br/>/data/in")
    found = diagnosis_of(job_of(log, 1, 9010, 11_000).end(11_010), tmp_path)
    cause = only(found, "listing")
    assert (cause.saved_ns, cause.signal["jobs"]) == (8000 * MS, [0])
    assert "/home" not in json.dumps(cause.facts())


# --- Cost -------------------------------------------------------------------------------------------------------------


def test_what_cannot_matter_is_not_replayed(tmp_path: Path) -> None:
    log = EventLog(cores=[2, 2])
    free = [1000] * 2
    for job in range(120):
        lane = job % 2
        start = free[lane]
        log.job(job, start, [job]).stage(job, start, tasks=3)
        for index in range(3):
            log.task(job, index, str(lane), start + 1, start + 100 + 300 * (index == 2), run=90, spilled=100, gc=30)
        log.stage_done(job, start + 400).job_done(job, start + 401)
        free[lane] = start + 410
    found = diagnosis_of(log.end(max(free)), tmp_path)
    assert found.stages.height == 120
    assert found.replays <= 12
