"""Causes of full memory, unused cores, shared processors and what runs in turn: each beside a log that has it not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.diagnosis.spark.contention import fit_sharing
from pag_graph.diagnosis.spark.cores import predict_cores
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import ORIGIN_MS, EventLog

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.look import Cause
    from pag_graph.sources.spark.schedule import Schedule

LOGS = Path(__file__).parents[2] / "data" / "spark"
SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQL"
GIB = 1 << 30


def schedule_of(log: EventLog, folder: Path) -> Schedule:
    return map_log(read_log(LogFiles(name="log", files=(log.write(folder / "log"),)))).schedule


def told(log: EventLog, folder: Path) -> Diagnosis:
    return diagnose(schedule_of(log, folder))


def recorded(name: str) -> Diagnosis:
    (log,) = find_logs(LOGS / f"{name}.zstd")
    return diagnose(map_log(read_log(log)).schedule)


def names(found: Diagnosis) -> list[str]:
    return [cause.cause for cause in found.causes]


def only(found: Diagnosis, name: str) -> Cause:
    (cause,) = [cause for cause in found.causes if cause.cause == name]
    return cause


def begun(cores: list[int], **settings: str) -> EventLog:
    properties = {"spark.executor.memory": "4g", **{f"spark.{k.replace('_', '.')}": v for k, v in settings.items()}}
    return EventLog(cores=cores).add("SparkListenerEnvironmentUpdate", **{"Spark Properties": properties})


# --- Full memory ------------------------------------------------------------------------------------------------------


def filled(heap: int, *, gc: int = 3_000, spilled: int = 0, read: int = 0) -> EventLog:
    """Return four tasks of ten seconds on an executor of 4 GiB that had so many bytes of its heap in use."""
    log = begun([1]).job(0, 100, [0]).stage(0, 100, tasks=4)
    for index in range(4):
        start = 100 + 10_000 * index
        more: dict[str, Any] = {"spilled": spilled, "read": (0, read, 1), "peaks": {"JVMHeapMemory": heap}}
        log.task(0, index, "0", start, start + 10_000, run=9_990, gc=gc, **more)
    return log.stage_done(0, 40_101).job_done(0, 40_102).end(40_200)


def test_a_full_heap_is_told_from_garbage_alone(tmp_path: Path) -> None:
    found = told(filled(int(3.9 * GIB)), tmp_path)
    assert names(found) == ["memory_under"]
    cause = found.causes[0]
    assert (cause.kind, cause.bound, cause.saved_ns) == ("B", True, 12_000_000_000)
    assert [change.text for change in cause.changes] == ["spark.executor.memory: 4g -> 8192m"]
    # With room in the heap it is garbage, and without a sample nobody knows.
    assert names(told(filled(3 * GIB), tmp_path)) == ["gc"]
    assert names(told(filled(0), tmp_path)) == ["gc"]
    # A heap that is full and costs nothing is as it should be.
    assert names(told(filled(int(3.9 * GIB), gc=100), tmp_path)) == []


def test_a_full_heap_takes_spilling_with_it(tmp_path: Path) -> None:
    both = told(filled(int(3.9 * GIB), spilled=64 << 20, read=64 << 20), tmp_path)
    assert names(both) == ["memory_under"]
    assert both.causes[0].saved_ns == pytest.approx(12e9 + 4 * 6.99e9 / 2, rel=1e-6)
    room = told(filled(3 * GIB, spilled=64 << 20, read=64 << 20), tmp_path)
    assert sorted(names(room)) == ["gc", "spill"]


# --- Cores that no task may use ---------------------------------------------------------------------------------------


def half_used(*, cpus: str = "", tasks: int = 12, run: int = 2_000, at_once: int = 2, cpu: float = 1.0) -> EventLog:
    """Return a stage on four cores with so many tasks at once."""
    log = begun([4], **({"task_cpus": cpus} if cpus else {})).job(0, 100, [0]).stage(0, 100, tasks=tasks)
    for index in range(tasks):
        start = 100 + run * (index // at_once)
        log.task(0, index, "0", start, start + run, run=run - 10)
        log.events[-1]["Task Metrics"]["Executor CPU Time"] = int(cpu * (run - 10) * 1_000_000)
    end = 100 + run * -(-tasks // at_once)
    return log.stage_done(0, end).job_done(0, end + 1).end(end + 10)


@pytest.mark.parametrize("cpus", ["2", ""])
def test_cores_that_no_task_may_use(cpus: str, tmp_path: Path) -> None:
    schedule = schedule_of(half_used(cpus=cpus), tmp_path)
    found = diagnose(schedule)
    assert names(found) == ["unused_slots"]
    # The replay has the places that tasks had, so it gives what was recorded: 12 s, of which 6 with all cores.
    assert found.simulated_ns == found.span_ns
    assert found.causes[0].saved_ns == 6_000_000_000
    before = "spark.task.cpus: 2 -> 1" if cpus else "cores of a task: 2 -> 1, in the stages' resource profile"
    assert [change.text for change in found.causes[0].changes] == [before]
    assert [row.cores for row in predict_cores(schedule, found.plan) if row.recorded] == [2]


def test_cores_without_tasks_for_other_reasons(tmp_path: Path) -> None:
    # All cores have tasks, tasks work in two threads, there are no more tasks, or they end before they can be launched.
    assert names(told(half_used(at_once=4), tmp_path)) == []
    assert names(told(half_used(cpus="2", cpu=1.9), tmp_path)) == []
    assert "unused_slots" not in names(told(half_used(tasks=2), tmp_path))
    assert "unused_slots" not in names(told(half_used(run=100), tmp_path))


# --- Adaptive queries -------------------------------------------------------------------------------------------------


def adaptive(*, updates: int = 2, gap: int = 2_000, same_rdd: bool = False, build: int = 0) -> EventLog:
    """Return a query of three jobs with pauses in between, planned again so many times."""
    metrics = [{"name": "time to build", "accumulatorId": 7, "metricType": "timing"}]
    plan = {"nodeName": "BroadcastExchange", "simpleString": "", "children": [], "metrics": metrics}
    log = begun([1]).add(f"{SQL}ExecutionStart", executionId=3, description="", time=ORIGIN_MS + 90, sparkPlanInfo=plan)
    at = 100
    for job in range(3):
        log.job(job, at, [job], spark_sql_execution_id="3")
        if same_rdd:
            log.events[-1]["Stage Infos"][0]["RDD Info"][0]["RDD ID"] = 100
        log.stage(job, at, tasks=1).task(job, 0, "0", at, at + 3_000, run=2_990)
        log.stage_done(job, at + 3_001).job_done(job, at + 3_001)
        at += 3_001 + gap
        if job < updates:
            log.add(f"{SQL}AdaptiveExecutionUpdate", executionId=3, sparkPlanInfo=plan)
    if build:
        log.add("org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates", executionId=3)
        log.events[-1]["accumUpdates"] = [[7, build]]
    return log.add(f"{SQL}ExecutionEnd", executionId=3, time=ORIGIN_MS + at).end(at + 10)


def test_the_driver_between_stages_of_an_adaptive_query(tmp_path: Path) -> None:
    cause = only(told(adaptive(), tmp_path), "aqe_lag")
    assert (cause.saved_ns, cause.kind, cause.bound) == (4_000_000_000, "M", True)
    assert cause.signal["queries"] == [3]
    # Building what is sent to all is no planning.
    assert only(told(adaptive(build=1_000), tmp_path), "aqe_lag").saved_ns == 3_000_000_000
    # Not adaptive; more of the same rows (`take`); no pause.
    for other in (adaptive(updates=0), adaptive(same_rdd=True), adaptive(gap=10)):
        assert "aqe_lag" not in names(told(other, tmp_path))


def test_recorded_queries_that_are_planned_again() -> None:
    assert names(recorded("streams/h-no-broadcast-planted")) == ["aqe_lag"]
    # There broadcasts take most of the time between stages; those that a reused exchange names again count once.
    cause = only(recorded("streams/h-no-broadcast-twin"), "aqe_lag")
    assert (cause.signal["between_ns"], cause.signal["broadcast_ns"]) == (11_436_000_000, 6_199_000_000)
    assert cause.saved_ns == 5_237_000_000


def test_many_jobs_of_one_query_are_not_many_small_jobs(tmp_path: Path) -> None:
    def small(*, one_query: bool) -> list[str]:
        log = begun([1])
        for job in range(30):
            at = 100 + 500 * job
            query = "3" if one_query else str(100 + job)
            start = {"executionId": int(query), "description": "", "sparkPlanInfo": {}, "time": ORIGIN_MS + at}
            log.add(f"{SQL}ExecutionStart", **start)
            log.job(job, at, [job], spark_sql_execution_id=query).stage(job, at, tasks=1)
            log.events[-2]["Properties"]["spark.job.description"] = "count at program.py:1"
            log.task(job, 0, "0", at, at + 100, run=90).stage_done(job, at + 101).job_done(job, at + 101)
        return names(told(log.end(15_200), tmp_path))

    assert "many_small_jobs" in small(one_query=False)
    assert "many_small_jobs" not in small(one_query=True)


# --- What runs in turn ------------------------------------------------------------------------------------------------


def in_turn(*, shared: bool = False, tasks: int = 1, run: int = 4_000, apart: bool = True) -> EventLog:
    """Return four jobs on four cores, with so many tasks each."""
    log = begun([4])
    for job in range(4):
        at = 100 + (run * job if apart else 10 * job)
        log.job(job, at, [job])
        if shared:
            log.events[-1]["Stage Infos"][0]["RDD Info"].append({"RDD ID": 900, "Name": "RDD", "Parent IDs": []})
        log.stage(job, at, tasks=tasks)
        for index in range(tasks):
            log.task(job, index, "0", at, at + run - 20, run=run - 40)
        log.stage_done(job, at + run - 20).job_done(job, at + run - 19)
    return log.end(100 + 4 * run)


def test_jobs_that_could_have_run_at_the_same_time(tmp_path: Path) -> None:
    (seen,) = told(in_turn(), tmp_path).suspicions
    assert (seen.suspicion, seen.node) == ("serial_jobs", "job 0 to job 3")
    assert "4 queries or jobs ran one after another for 15.9 s" in seen.text
    # With a dataset in common, with all cores at work, too short, or at the same time already.
    for other in (in_turn(shared=True), in_turn(tasks=4), in_turn(run=500), in_turn(apart=False)):
        assert told(other, tmp_path).suspicions == []


# --- Shared processors ------------------------------------------------------------------------------------------------


def shared(cost: float, *, inflation: float = 1.0, cpu_share: float = 1.0) -> EventLog:
    """Return 80 tasks of a second on a host of two processors: two at once, then three, when another executor comes.

    A task more than there are processors makes each lose half of `cost` times its processor time, which grows as well.
    """
    log = begun([2]).job(0, 100, [0]).stage(0, 100, tasks=80)
    at = 100
    for at_once, indices in ((2, range(40)), (3, range(40, 80))):
        if at_once > 2:
            log.executor("1", at)
            log.events[-1]["Executor Info"]["Host"] = "host-0"
        cpu = int(1_000 * (inflation if at_once > 2 else 1))
        run = int(cpu / cpu_share * (1 + cost * max(0, at_once - 2) / 2))
        for place, index in enumerate(indices):
            start, core = at + (run + 10) * (place // at_once), place % at_once
            log.task(0, index, "1" if core > 1 else "0", start, start + run + 10, run=run)
            log.events[-1]["Task Metrics"]["Executor CPU Time"] = cpu * 1_000_000
            log.events[-1]["Task Info"]["Host"] = "host-0"
        at += (run + 10) * -(-len(indices) // at_once)
    return log.stage_done(0, at).job_done(0, at).end(at + 10)


def test_tasks_that_lose_more_than_their_turn(tmp_path: Path) -> None:
    cause = only(told(shared(1.8), tmp_path), "contention")
    assert (cause.kind, cause.bound) == ("B", True)
    assert cause.signal["processors"] == 2
    assert cause.signal["share"] == pytest.approx(1.8, abs=0.1)
    # Forty tasks took 26.7 s instead of 20.2; the last of them ran alone, and one was the first on its core.
    assert 5e9 < cause.saved_ns < 6.6e9
    assert [change.text for change in cause.changes] == ["spark.executor.cores: unknown -> 2 on a host in all"]
    # Processor time that grows with the neighbours is lost too.
    assert only(told(shared(1.0, inflation=1.5), tmp_path), "contention").signal["inflation"] == 1.5


def test_taking_turns_and_waiting_are_no_contention(tmp_path: Path) -> None:
    assert "contention" not in names(told(shared(1.0), tmp_path))
    assert "contention" not in names(told(shared(0.0), tmp_path))
    assert "contention" not in names(told(shared(1.8, cpu_share=0.3), tmp_path))


def test_a_knee_needs_tasks_on_both_sides() -> None:
    cpu, at_once = np.full(40, 10**9), np.repeat([2.0, 4.0], [36, 4])
    stolen = np.where(at_once > 2, 3 * 10**9, 0)
    assert fit_sharing(stolen, cpu, at_once, 5) is None
    known = fit_sharing(stolen, cpu, at_once, 4)
    assert known is not None
    assert (known.processors, known.share, known.alone, known.crowded) == (2, 3.0, 36, 4)
    # Stolen time that goes with nothing is not explained.
    drawn = np.random.default_rng(25).integers(0, 10**9, 40)
    assert fit_sharing(drawn, cpu, at_once, 4) is None


# --- Recorded logs ----------------------------------------------------------------------------------------------------

NEW = {"memory_under", "aqe_lag", "unused_slots", "contention", "serial_jobs"}
HAVE = {"streams/h-no-broadcast-planted": {"aqe_lag"}, "plans/plan-texts-planted": {"serial_jobs"}}
RECORDED = sorted(str(file.relative_to(LOGS))[:-5] for file in LOGS.rglob("*.zstd") if "eventlog" not in str(file))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", RECORDED)
def test_no_recorded_log_has_them_but_those_that_have(name: str) -> None:
    found = recorded(name)
    seen = {*names(found), *(each.suspicion for each in found.suspicions)}
    assert seen & NEW == HAVE.get(name, set())
