"""Event logs as canonical traces: drawn by hand, at random, from real logs, and as SnailTrail 1 had them."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

from pag_graph.analyses.diff import diff
from pag_graph.api import Pag, build, convert
from pag_graph.model.enums import RuleSet
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.spark import shuffles
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from pag_graph.sources.spark.operators import node_metrics, stage_nodes
from pag_graph.sources.spark.reader import read_log
from pag_graph.sources.spark.snailtrail import snailtrail_events, snailtrail_mapping
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.trace import Trace, write_trace
from tests.support.spark_logs import EventLog, check_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.sources.spark.mapping import Mapped

MS = 1_000_000
ORACLES = Path(__file__).parents[4] / "shared" / "oracles" / "spark"
LOGS = Path(__file__).parents[2] / "data" / "spark"


def mapped_of(log: EventLog, folder: Path) -> Mapped:
    file = log.write(folder / "log")
    return map_log(read_log(LogFiles(name="log", files=(file,))))


def events_of(mapped: Mapped) -> pl.DataFrame:
    frame = pl.concat([pl.from_arrow(table) for _, table in mapped.events()], how="diagonal")
    check_rows(frame)
    return frame


def names_of(mapped: Mapped) -> list[str]:
    return mapped.workers["name"].to_pylist()


def activities(events: pl.DataFrame, worker: int) -> list[tuple[float, float, str]]:
    """Return (from, to, activity) of a worker in milliseconds; none of a log's activities are nested."""
    own = events.filter((pl.col("worker") == worker) & pl.col("kind").is_in(["start", "stop"]))
    starts, stops = own.filter(pl.col("kind") == "start"), own.filter(pl.col("kind") == "stop")
    return [
        (a / MS, b / MS, activity)
        for a, b, activity in zip(starts["t_ns"], stops["t_ns"], starts["activity"], strict=True)
    ]


def path_of(log: EventLog, folder: Path) -> Pag:
    log.write(folder / "log")
    convert(folder / "log", folder / "trace")
    build(folder / "trace", folder / "pag", engine="local")
    return Pag(folder / "pag")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["healthy", "concurrent-jobs", "retried-stage", "driver-bound"])
def test_events_do_not_depend_on_the_size_of_parts(name: str) -> None:
    mapped = map_log(read_log(find_logs(LOGS / f"{name}.zstd")[0]))
    whole = events_of(mapped).sort("worker", "seq")
    for size in (1, 7):
        parts = [pl.from_arrow(table) for _, table in mapped.events(size=size)]
        assert pl.concat(parts, how="diagonal").select(whole.columns).sort("worker", "seq").equals(whole)


def test_plans_that_share_an_accumulator_each_have_their_own_stages(tmp_path: Path) -> None:
    log = EventLog(cores=[1])
    for query, node in ((1, "Scan"), (2, "InMemoryTableScan")):
        log.add(
            "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart",
            executionId=query,
            description=f"query {query}",
            time=1_700_000_000_000 + 100 * query,
            sparkPlanInfo={
                "nodeName": node,
                "simpleString": node,
                "children": [],
                "metrics": [{"name": "number of output rows", "accumulatorId": 7, "metricType": "sum"}],
            },
        )
    for stage, query in ((0, 1), (1, 2), (2, None)):
        start = 200 + 100 * stage
        more = {} if query is None else {"spark_sql_execution_id": str(query)}
        log.job(stage, start, [stage], **more).stage(stage, start, tasks=1).task(stage, 0, "0", start + 10, start + 50)
        log.stage_done(stage, start + 60)
        log.events[-1]["Stage Info"]["Accumulables"] = [{"ID": 7, "Name": "number of output rows", "Value": "5"}]
        log.job_done(stage, start + 70)
    schedule = mapped_of(log.end(600), tmp_path).schedule
    found = node_metrics(schedule).sort("stage").select("stage", "execution", "name").rows()
    assert found == [(0, 1, "Scan"), (1, 2, "InMemoryTableScan"), (2, 2, "InMemoryTableScan")]
    assert stage_nodes(schedule) == {0: ["Scan"], 1: ["InMemoryTableScan"], 2: ["InMemoryTableScan"]}


def test_one_task_by_hand(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 105, tasks=1)
    log.task(0, 0, "0", 110, 200, deserialize=10, run=50, serialize=3, gc=4, fetch_wait=6, write_ns=2 * MS)
    mapped = mapped_of(log.stage_done(0, 201).job_done(0, 210).end(300), tmp_path)
    events = events_of(mapped)
    assert names_of(mapped) == ["driver", "executor 0 core 1"]
    assert activities(events, 0) == [
        (0, 100, "busy"),
        (100, 110, "scheduling"),
        (110, 200, "waiting"),
        (200, 210, "scheduling"),
        (210, 300, "busy"),
    ]
    # 90 ms, of which 63 were measured: 9 of the delay of 27 before, 18 after.
    assert activities(events, 1) == [
        (10, 110, "waiting"),
        (110, 119, "scheduling"),
        (119, 129, "deserialization"),
        (129, 135, "input_wait"),
        (135, 173, "processing"),
        (173, 177, "gc"),
        (177, 179, "io"),
        (179, 182, "serialization"),
        (182, 200, "scheduling"),
        (200, 300, "idle"),
    ]
    inferred = events.filter((pl.col("worker") == 1) & (pl.col("kind") == "start"))["inferred"].to_list()
    assert inferred == [None, *[True] * 8, None]
    messages = events.filter(pl.col("kind").is_in(["send", "receive"])).select(
        "worker", "kind", "t_ns", "channel", "peer"
    )
    assert messages.rows() == [
        (0, "send", 110 * MS, 0, 1),
        (0, "receive", 200 * MS, 1, 1),
        (1, "receive", 110 * MS, 0, 0),
        (1, "send", 200 * MS, 1, 0),
    ]
    assert events.filter(pl.col("kind") == "epoch_end").select("worker", "t_ns", "epoch").rows() == [
        (0, 210 * MS, 0),
        (1, 210 * MS + 1, 0),
    ]
    assert mapped.operators.names[1:] == ["job 0: count at program.py:0", "stage 0: count at program.py:0"]


def test_a_result_that_the_driver_fetches(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 105, tasks=1).task(0, 0, "0", 110, 200, run=50, getting=160)
    mapped = mapped_of(log.job_done(0, 210).end(220), tmp_path)
    events = events_of(mapped)
    assert activities(events, 0)[2:4] == [(110, 160, "waiting"), (160, 200, "io")]
    assert activities(events, 1)[1] == (110, 160, "processing")


def test_a_core_takes_the_next_task_before_the_driver_wrote_down_the_end_of_the_last(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 105, tasks=2)
    # The first one has 30 ms of delay, the second is launched in the last 5 of them.
    log.task(0, 0, "0", 110, 200, run=60).task(0, 1, "0", 195, 300, run=105).job_done(0, 310)
    mapped = mapped_of(log.end(320), tmp_path)
    assert len(mapped.schedule.cores) == 1
    assert not mapped.schedule.findings
    assert activities(events_of(mapped), 1)[1:5] == [
        (110, 120, "scheduling"),
        (120, 180, "processing"),
        (180, 195, "scheduling"),
        (195, 300, "processing"),
    ]


def test_tasks_that_cannot_share_a_core_get_one_more(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 105, tasks=2)
    log.task(0, 0, "0", 110, 200, run=90).task(0, 1, "0", 150, 240, run=90).job_done(0, 250)
    mapped = mapped_of(log.end(260), tmp_path)
    events_of(mapped)
    assert names_of(mapped) == ["driver", "executor 0 core 1", "executor 0 core 2"]
    assert [finding.finding for finding in mapped.schedule.findings] == ["more_tasks_than_cores"]


def test_jobs_that_overlap_get_lanes_of_their_own(tmp_path: Path) -> None:
    log = EventLog(cores=[2]).job(0, 100, [0]).job(1, 120, [1])
    log.stage(0, 101, tasks=1).task(0, 0, "0", 110, 200, run=90).stage(1, 121, tasks=1).task(
        1, 0, "0", 130, 400, run=270
    )
    log.job_done(0, 210).job_done(1, 410).job(2, 500, [2]).stage(2, 500, tasks=1).task(2, 0, "0", 510, 520, run=10)
    mapped = mapped_of(log.job_done(2, 530).end(600), tmp_path)
    events = events_of(mapped)
    assert names_of(mapped) == ["driver", "driver lane 2", "executor 0 core 1", "executor 0 core 2"]
    assert [job.lane for job in mapped.schedule.jobs] == [0, 1, 0]
    # The second lane is born where the first job begins; the first one waits for it after its own job.
    assert activities(events, 1) == [
        (100, 120, "busy"),
        (120, 130, "scheduling"),
        (130, 400, "waiting"),
        (400, 410, "scheduling"),
    ]
    assert (210, 410, "waiting") in activities(events, 0)
    assert (410, 500, "busy") in activities(events, 0)
    ends = events.filter(pl.col("worker") == 1).tail(1)
    assert ends.select("kind", "t_ns").row(0) == ("exit", 410 * MS)


def test_a_job_waits_for_a_core_that_another_job_has(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).job(1, 120, [1])
    log.stage(0, 101, tasks=1).task(0, 0, "0", 110, 200, run=90).stage(1, 121, tasks=1).task(
        1, 0, "0", 205, 300, run=95
    )
    mapped = mapped_of(log.job_done(0, 210).job_done(1, 310).end(400), tmp_path)
    events = events_of(mapped)
    assert activities(events, 1)[1:3] == [(120, 200, "waiting"), (200, 205, "scheduling")]
    offers = events.filter(pl.col("channel") == 4).select("worker", "kind", "t_ns", "peer").rows()
    assert offers == [(1, "receive", 200 * MS, 2), (2, "send", 200 * MS, 1)]


def test_an_executor_that_is_lost_and_the_one_after_it(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1]).job(0, 100, [0]).stage(0, 105, tasks=2)
    log.task(0, 0, "0", 110, 300, run=190).task(0, 1, "1", 111, 250, reason="ExecutorLostFailure")
    log.executor_gone("1", 250).executor("2", 320).task(0, 1, "2", 330, 420, run=90, attempt=1)
    mapped = mapped_of(log.stage_done(0, 421).job_done(0, 430).end(500), tmp_path)
    events = events_of(mapped)
    lost = names_of(mapped).index("executor 1 core 1")
    # That it was lost is all that it did at its end.
    assert activities(events, lost)[-2:] == [(111, 250, "processing"), (250, 250, "busy")]
    assert events.filter(pl.col("worker") == lost).tail(1)["kind"].item() == "exit"
    spawned = events.filter(pl.col("kind") == "spawn").select("t_ns", "peer").rows()
    assert spawned == [(0, 1), (0, 2), (250 * MS, 3)]
    # The driver waits for the new executor only through its launch.
    assert (300, 330, "scheduling") in activities(events, 0)


def path_parts(log: EventLog, folder: Path) -> dict[str, int]:
    """Return milliseconds of the path by type of edge, in the order of their length."""
    pag = path_of(log, folder)
    path = pag.critical_path(between=(0, pag.run.end_ns))
    assert path.length_ns == pag.run.end_ns
    return {kind: ns // MS for kind, ns in sorted(path.by_type.items(), key=lambda item: -item[1]) if ns}


def test_an_executor_that_goes_while_it_has_nothing_to_do_is_not_on_the_path(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1]).job(0, 100, [0]).stage(0, 105, tasks=2)
    log.task(0, 0, "0", 110, 160, run=50).task(0, 1, "1", 110, 160, run=50).stage_done(0, 161).job_done(0, 162)
    # Executor 1 has had nothing to do for 29 s when it goes, within a later job.
    log.job(1, 20_000, [1]).stage(1, 20_005, tasks=1).task(1, 0, "0", 20_010, 40_000, run=19_990)
    log.executor_gone("1", 29_000).executor("2", 30_000)
    parts = path_parts(log.stage_done(1, 40_001).job_done(1, 40_002).end(40_010), tmp_path)
    assert "idle" not in parts
    assert parts["processing"] >= 19_990


@pytest.mark.parametrize("settings", [True, False])
def test_executors_on_demand_are_told_by_their_coming_where_the_settings_are_lost(
    tmp_path: Path, *, settings: bool
) -> None:
    log = EventLog(cores=[1])
    if settings:
        log.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.dynamicAllocation.enabled": "true"}})
    log.job(0, 100, [0]).stage(0, 105, tasks=1).task(0, 0, "0", 110, 5000, run=4890).stage_done(0, 5001)
    log.job_done(0, 5002).executor_gone("0", 10_000, "Executor killed by driver.")
    log.job(1, 20_000, [1]).stage(1, 20_005, tasks=1).executor("1", 22_000)
    log.task(1, 0, "1", 22_010, 30_000, run=7990).stage_done(1, 30_001).job_done(1, 30_002)
    parts = path_parts(log.end(30_010), tmp_path)
    # Two seconds for the executor that the second job asked for, not all the time before it.
    assert parts["spawn"] == 2_000
    assert parts["processing"] == 4_890 + 7_990


def test_cores_of_two_runs_are_not_compared_by_their_numbers(tmp_path: Path) -> None:
    runs = []
    for name, long in (("before", "0"), ("after", "1")):
        (tmp_path / name).mkdir()
        log = EventLog(cores=[1, 1]).job(0, 100, [0]).stage(0, 105, tasks=2)
        log.events[1]["App ID"] = name
        short = "10"[int(long)]
        log.task(0, 0, long, 110, 5000, run=4890).task(0, 1, short, 110, 210, run=100)
        pag = path_of(log.stage_done(0, 5001).job_done(0, 5002).end(5010), tmp_path / name)
        runs.append(pag.run.snapshot(pag.run.window(between=(0, pag.run.end_ns))))
    # The same stage took as long, on the other core: no time appeared or went.
    found = diff(*runs)
    assert not found.by_worker
    assert set(found.table["difference_ns"].to_pylist()) == {0}
    assert diff(runs[0], runs[0]).by_worker


def test_a_job_waits_for_its_first_executor(tmp_path: Path) -> None:
    log = EventLog(cores=[]).job(0, 100, [0]).stage(0, 105, tasks=1).executor("0", 5000)
    log.task(0, 0, "0", 5010, 5100, run=90).job_done(0, 5110).end(5200)
    events = events_of(mapped_of(log, tmp_path))
    assert activities(events, 0)[1:3] == [(100, 5000, "waiting"), (5000, 5010, "scheduling")]


def test_bytes_of_a_shuffle_go_from_the_executors_that_wrote_to_each_reader(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1, 1]).job(0, 100, [0, 1], parents={1: [0]}).stage(0, 105, tasks=3)
    for index in range(3):
        log.task(0, index, str(index), 110, 200, run=90, wrote=(100 * (index + 1), 10))
    log.stage_done(0, 200).stage(1, 201, tasks=1)
    log.task(1, 0, "0", 210, 300, run=90, read=(501, 99, 60)).stage_done(1, 300).job_done(0, 301)
    mapped = mapped_of(log.end(310), tmp_path)
    sent = events_of(mapped).filter((pl.col("kind") == "send") & (pl.col("channel") >= 10))
    # 99 bytes were local; 501 came from the two others, which wrote 200 and 300.
    assert sent.select("worker", "peer", "bytes", "records").rows() == [
        (1, 1, 99, 10),
        (2, 1, 200, 20),
        (3, 1, 301, 30),
    ]
    assert sent["records"].sum() == 60
    channel = mapped.channels.to_pylist()[-1]
    names = mapped.operators.names
    assert (names[channel["source_operator"]], names[channel["target_operator"]]) == (
        "stage 0: count at program.py:0",
        "stage 1: count at program.py:1",
    )


def test_bytes_that_nobody_is_seen_to_write_are_counted(tmp_path: Path) -> None:
    log = EventLog(cores=[1, 1]).job(0, 100, [0, 1], parents={1: [0]}).stage(0, 105, tasks=1)
    log.task(0, 0, "0", 110, 200, run=90, wrote=(100, 10)).stage_done(0, 200).stage(1, 201, tasks=2)
    log.task(1, 0, "0", 210, 300, run=90, read=(501, 99, 60)).task(1, 1, "1", 210, 300, run=90, read=(7, 3, 1))
    mapped = mapped_of(log.stage_done(1, 300).job_done(0, 301).end(310), tmp_path)
    assert mapped.shuffles.messages["bytes"].to_list() == [99, 7]
    assert [(found.finding, found.observed) for found in mapped.shuffles.findings] == [("shuffle_bytes_unsent", 504)]


def test_shuffle_data_of_an_earlier_job_is_found_by_its_rdd(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 105, tasks=1).task(0, 0, "0", 110, 200, run=90, wrote=(100, 10))
    log.stage_done(0, 200).job_done(0, 201)
    log.job(1, 210, [1, 2], parents={2: [1]})
    infos = log.events[-1]["Stage Infos"]
    infos[0]["RDD Info"] = [{"RDD ID": 100}]
    log.stage(2, 211, tasks=1).task(2, 0, "0", 220, 300, run=80, read=(0, 100, 10)).stage_done(2, 300).job_done(1, 301)
    mapped = mapped_of(log.end(310), tmp_path)
    assert mapped.shuffles.channels == [((0, 0), (2, 0))]
    assert mapped.shuffles.messages["bytes"].to_list() == [100]


def test_many_readers_and_writers_stay_few_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffles, "PAIRS", 8)
    log = EventLog(cores=[1] * 4).job(0, 100, [0, 1], parents={1: [0]}).stage(0, 105, tasks=4)
    for index in range(4):
        log.task(0, index, str(index), 110, 200 + index, run=80, wrote=(100, 10))
    log.stage_done(0, 203).stage(1, 204, tasks=4)
    for index in range(4):
        log.task(1, index, str(index), 210, 300, run=80, read=(75, 25, 10))
    mapped = mapped_of(log.stage_done(1, 300).job_done(0, 301).end(310), tmp_path)
    messages = mapped.shuffles.messages
    assert messages.select("source", "target", "bytes").rows() == [(3, task, 100) for task in range(4, 8)]
    assert [finding.finding for finding in mapped.shuffles.findings] == ["shuffle_messages_joined"]


def test_epochs_are_queries_where_there_are_any_and_batches_before_them(tmp_path: Path) -> None:
    log = EventLog(cores=[1])
    for job, execution in ((0, "7"), (1, "7"), (2, "8")):
        log.job(job, 100 + 100 * job, [job], spark_sql_execution_id=execution, spark_sql_execution_root_id=execution)
        log.job_done(job, 150 + 100 * job)
    mapped = mapped_of(log.end(500), tmp_path)
    assert mapped.epochs.ends == [(250 * MS, "query 7"), (350 * MS, "query 8")]
    log = EventLog(cores=[1])
    for job in range(2):
        log.job(job, 100 + 100 * job, [job])
        log.events[-1]["Properties"] = {"streaming.sql.batchId": str(job), "sql.streaming.queryId": "0123456789"}
        log.job_done(job, 150 + 100 * job)
    mapped = mapped_of(log.end(500), tmp_path)
    assert mapped.epochs.ends == [(150 * MS, "batch 0 of query 01234567"), (250 * MS, "batch 1 of query 01234567")]


@pytest.mark.parametrize(
    "log", [EventLog(cores=[]).end(10), EventLog(cores=[1]).end(10), EventLog(cores=[]).job(0, 5, [])]
)
def test_a_log_without_tasks_is_a_driver(log: EventLog, tmp_path: Path) -> None:
    pag = path_of(log, tmp_path)
    path = pag.critical_path(between=(0, pag.run.end_ns))
    assert path.length_ns == pag.run.end_ns


def random_log(seed: int) -> EventLog:
    """Return an application of a few jobs, some of which overlap, with tasks on some cores and things that go wrong."""
    chance = random.Random(seed)
    cores = [chance.randint(1, 3) for _ in range(chance.randint(1, 3))]
    log = EventLog(cores=cores)
    clock, stage = 100, 0
    free = [[20] * count for count in cores]
    ends = []
    for job in range(chance.randint(1, 5)):
        start = max(20, clock - chance.choice([0, 0, 150]))
        stages = list(range(stage, stage + chance.randint(1, 3)))
        stage = stages[-1] + 1
        log.job(job, start, stages, parents={b: [a] for a, b in pairwise(stages)})
        ready = start + chance.randint(0, 20)
        for number in stages:
            log.stage(number, ready, tasks=3)
            done = ready
            for index in range(chance.randint(1, 5)):
                executor = chance.randrange(len(cores))
                core = min(range(cores[executor]), key=lambda k: free[executor][k])
                launch = max(ready, free[executor][core]) + chance.choice([0, 0, 1, 7])
                length = chance.choice([0, 0, 1, 5, 40, 90])
                late = chance.choice([0, 0, 3]) if length > 10 else 0
                parts = sorted(chance.randint(0, length) for _ in range(3))
                reason = chance.choice(["Success"] * 6 + ["ExceptionFailure", "TaskKilled"])
                log.task(
                    number, index, str(executor), launch, launch + length, deserialize=parts[0],
                    run=parts[1] - parts[0], serialize=parts[2] - parts[1], gc=chance.randint(0, 9),
                    fetch_wait=chance.randint(0, 9), write_ns=chance.randint(0, 9_000_000), reason=reason,
                    getting=chance.choice([0, 0, launch + length // 2]) if reason == "Success" else 0,
                    read=(chance.randint(0, 300), chance.randint(0, 300), 10), wrote=(chance.randint(0, 500), 10),
                )  # fmt: skip
                free[executor][core] = launch + length - late
                done = max(done, launch + length)
            ready = done + chance.choice([0, 0, 2])
            log.stage_done(number, ready)
        ends.append(ready + chance.randint(0, 3))
        log.job_done(job, ends[-1])
        clock = max(ends) + chance.choice([0, 0, 60])
    return log.end(clock + 5)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(60))
def test_random_applications_keep_every_rule(seed: int, tmp_path: Path) -> None:
    mapped = mapped_of(random_log(seed), tmp_path)
    events = events_of(mapped)
    # The parts of a task tile its time on the core exactly.
    stages = set(mapped.operators.stages.values())
    held = mapped.schedule.tasks.select((pl.col("free") - pl.col("receipt")).sum()).item()
    total = 0
    for worker in range(mapped.lanes, mapped.workers.num_rows):
        own = events.filter(pl.col("worker") == worker)
        for kind, sign in (("start", -1), ("stop", 1)):
            of_stage = own.filter((pl.col("kind") == kind) & pl.col("operator").is_in(stages))
            total += sign * of_stage["t_ns"].sum()
    assert total == held
    sums = mapped.shuffles.messages.group_by("target").agg(pl.col("bytes").sum())
    for target, count in sums.iter_rows():
        row = mapped.schedule.tasks.row(target, named=True)
        assert count <= row["remote_bytes"] + row["local_bytes"]


@pytest.mark.parametrize("seed", range(8))
def test_the_path_of_random_applications_is_as_long_as_they_are(seed: int, tmp_path: Path) -> None:
    pag = path_of(random_log(1000 + seed), tmp_path)
    path = pag.critical_path(between=(0, pag.run.end_ns))
    assert path.length_ns == pag.run.end_ns
    assert path.explained == 1.0
    found = set(pag.findings()["finding"].to_list())
    assert not found & {"wait_without_ender", "message_unmatched", "cycle"}


def real_logs() -> Sequence[Path]:
    return sorted(LOGS.glob("*.zstd"))


@pytest.mark.parametrize("file", real_logs() or [None], ids=lambda file: file.stem if file else "none")
def test_real_logs_keep_every_rule(file: Path | None) -> None:
    if file is None:
        pytest.skip("no event logs in tests/data/spark; bench/spark_causes/make_logs.py --tests-data makes them")
    for log in find_logs(file):
        events_of(map_log(read_log(log)))


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLES.is_dir(), reason="the oracles are not here")
class TestWordCount:
    """The log that SnailTrail 1 was shown with."""

    log = ORACLES / "app-20170324182509-0000"

    def test_snailtrails_activities_and_messages_come_out_exactly(self) -> None:
        mapping = snailtrail_mapping(read_log(find_logs(self.log)[0]))
        theirs = pl.read_csv(ORACLES / "app_shuffle.st1.csv")
        is_message = pl.col("activity").str.ends_with("Message")
        word = pl.col("activity").str.replace("_m", "M").str.to_lowercase()
        ours = pl.concat(
            mapping.activities.select(
                timestamp_ns=time, worker="worker", activity=word, event=pl.lit(event), operator="operator"
            )
            for time, event in (("start", "Start"), ("stop", "End"))
        )
        wanted = theirs.filter(~is_message).select("timestamp_ns", "worker", word, "event", "operator")
        assert ours.sort(pl.all()).equals(wanted.sort(pl.all()))
        messages = theirs.filter(is_message).with_columns(word)
        sent, got = (messages.filter(pl.col("event") == event) for event in ("Sent", "Received"))
        pairs = sent.join(got, on="correlator").select(
            sender="worker", sent="timestamp_ns", receiver="remote", received="timestamp_ns_right", activity="activity"
        )
        assert mapping.messages.with_columns(word).sort(pl.all()).equals(pairs.sort(pl.all()))
        assert ours.height + 2 * mapping.messages.height == theirs.height == 324
        without = snailtrail_mapping(read_log(find_logs(self.log)[0]), shuffle=False)
        assert 2 * (without.activities.height + without.messages.height) == 276

    def test_snailtrails_path_is_as_long_as_its_span(self, tmp_path: Path) -> None:
        events = snailtrail_events(snailtrail_mapping(read_log(find_logs(self.log)[0])))
        check_rows(events)
        origin = int(events["t_ns"].min())
        workers = [
            {"worker": k, "process": k, "clock_domain": "driver", "offset_ns": origin, "uncertainty_ns": 0}
            for k in range(5)
        ]
        write_trace(
            tmp_path / "trace",
            meta=TraceMeta(
                trace_id="1",
                source=TraceSource(system="spark", version="2.1.0", format="spark"),
                workers=5,
                rules=RuleSet.STATED,
            ),
            events=[("all", events.with_columns(pl.col("t_ns") - origin).to_arrow())],
            operators=pa.Table.from_pylist(
                [{"operator": k, "address": str(k), "name": f"stage {k}"} for k in range(3)], TRACE_OPERATORS
            ),
            channels=pa.Table.from_pylist([{"channel": k, "scope": ""} for k in range(2)], TRACE_CHANNELS),
            workers=pa.Table.from_pylist(workers, TRACE_WORKERS),
        )
        build(tmp_path / "trace", tmp_path / "pag", engine="local")
        pag = Pag(tmp_path / "pag")
        path = pag.critical_path(between=(0, pag.run.end_ns))
        assert path.length_ns == pag.run.end_ns == 1395 * MS
        parts = {kind: round(ns / MS, 1) for kind, ns in path.by_type.items() if ns}
        # A core is born of its first launch: SnailTrail counts that as a control message.
        parts["control_message"] = round(parts["control_message"] + parts.pop("spawn"), 1)
        assert parts == {
            "processing": 826.5,
            "deserialization": 414.0,
            "scheduling": 63.0,
            "control_message": 62.0,
            "buffer": 28.5,
            "serialization": 1.0,
        }

    def test_our_mapping_explains_all_of_the_application(self, tmp_path: Path) -> None:
        convert(self.log, tmp_path / "trace")
        trace = Trace.open(tmp_path / "trace")
        assert trace.meta.rules is RuleSet.STATED
        build(tmp_path / "trace", tmp_path / "pag", engine="local")
        pag = Pag(tmp_path / "pag")
        path = pag.critical_path(between=(0, pag.run.end_ns))
        assert path.length_ns == pag.run.end_ns == 12_070 * MS
        assert path.explained == 1.0
        steps = pl.DataFrame(pl.from_arrow(path.steps))
        driver = steps.filter((pl.col("worker") == 0) & (pl.col("type") == "busy"))["duration_ns"].sum()
        assert driver == (8_450 + 2_176) * MS
