"""Reading event logs: rolled, cut, in progress, of many versions, with things in them that nobody expects."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from pag_graph.diagnosis.spark.causes import diagnose
from pag_graph.errors import TraceFormatError
from pag_graph.sources import detect_format
from pag_graph.sources.spark import reader
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.plans import plan_nodes
from pag_graph.sources.spark.reader import read_log
from pag_graph.sources.spark.task_rows import LATEST_MS
from tests.support.spark_logs import ORIGIN_MS, EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.sources.spark.log_tables import SparkLog

    Command = Callable[..., tuple[int, str, str]]


LOGS = Path(__file__).parents[2] / "data" / "spark"


def two_stages() -> EventLog:
    log = EventLog().job(0, 100, [0, 1], parents={1: [0]}).stage(0, 110, tasks=2)
    log.task(0, 0, "0", 120, 220, run=90, deserialize=5, wrote=(100, 10)).task(
        0, 1, "1", 121, 240, run=100, wrote=(300, 30)
    )
    log.stage_done(0, 240).stage(1, 241, tasks=1).task(1, 0, "0", 250, 300, run=40, read=(300, 100, 40))
    return log.stage_done(1, 301).job_done(0, 305).end(400)


def read(path: Path) -> SparkLog:
    (log,) = find_logs(path)
    return read_log(log)


def found(log: SparkLog) -> dict[str, int]:
    return {finding.finding: finding.observed for finding in log.findings}


def test_everything_of_a_small_log(tmp_path: Path) -> None:
    log = read(two_stages().write(tmp_path / "app-1"))
    assert (log.version, log.app_name, log.app_id, log.complete) == ("4.1.0", "by hand", "app-1", True)
    assert (log.start_ms, log.end_ms) == (ORIGIN_MS, ORIGIN_MS + 400)
    assert log.findings == []
    assert log.jobs.select("job", "submitted_ms", "completed_ms", "result").rows() == [
        (0, ORIGIN_MS + 100, ORIGIN_MS + 305, "JobSucceeded")
    ]
    assert log.stages.select("stage", "parents", "tasks", "submitted_ms", "completed_ms").rows() == [
        (0, [], 2, ORIGIN_MS + 110, ORIGIN_MS + 240),
        (1, [0], 1, ORIGIN_MS + 241, ORIGIN_MS + 301),
    ]
    tasks = log.tasks.select("task", "stage", "launch_ms", "run_ms", "remote_bytes", "shuffle_write_bytes")
    assert tasks.rows() == [
        (0, 0, ORIGIN_MS + 120, 90, 0, 100),
        (1, 0, ORIGIN_MS + 121, 100, 0, 300),
        (2, 1, ORIGIN_MS + 250, 40, 300, 0),
    ]
    assert [log.texts["executor"][code] for code in log.tasks["executor"]] == ["0", "1", "0"]
    assert detect_format(tmp_path / "app-1") == "spark"


def test_a_log_in_progress_is_answered_and_said(tmp_path: Path) -> None:
    log = two_stages()
    log.events.pop()
    whole = log.content
    file = tmp_path / "app-1.inprogress"
    file.write_bytes(whole[:-30])
    got = read(file)
    assert not got.complete
    assert got.tasks.height == 3
    assert found(got) == {"line_unreadable": 1, "log_incomplete": 1}
    assert "still ran" in got.findings[-1].detail


def test_a_task_that_is_not_seen_to_end_is_there(tmp_path: Path) -> None:
    log = EventLog().job(0, 100, [0]).stage(0, 110, tasks=1).task(0, 0, "1", 120, None)
    got = read(log.write(tmp_path / "app"))
    assert got.tasks.select("task", "finish_ms", "flags").rows() == [(0, 0, 0)]


def test_unknown_events_are_counted(tmp_path: Path) -> None:
    log = two_stages().add("SparkListenerOfTomorrow", Anything=[1]).add("SparkListenerOfTomorrow")
    got = read(log.write(tmp_path / "app"))
    assert got.unknown == {"SparkListenerOfTomorrow": 2}
    assert found(got) == {"event_unknown": 2}


@pytest.mark.parametrize(
    "line",
    [b"", b"not json", b"[]", b"3", b'{"Event":7}', b'{"NoEvent":1}', b'{"Event":{}}', b"\xff\xfe", b'{"Event":"x"'],
)
def test_lines_that_are_no_events_are_counted(line: bytes, tmp_path: Path) -> None:
    file = tmp_path / "app"
    file.write_bytes(two_stages().content + line + b"\n")
    got = read(file)
    assert got.tasks.height == 3
    assert sum(found(got).values()) == (1 if line else 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("Task Info",), None),
        (("Task Info",), 3),
        (("Task Info", "Launch Time"), "soon"),
        (("Task Info", "Launch Time"), -5),
        (("Task Info", "Launch Time"), 1 << 70),
        (("Task Info", "Task ID"), {}),
        (("Task Info", "Finish Time"), [1]),
        (("Task Metrics",), []),
        (("Task Metrics", "Executor Run Time"), 1e300),
        (("Task Metrics", "Executor Run Time"), -1),
        (("Task Metrics", "JVM GC Time"), True),
        (("Task Metrics", "Shuffle Read Metrics"), "none"),
        (("Stage ID",), "first"),
        (("Task End Reason",), "Success"),
    ],
)
def test_a_task_end_with_a_strange_value_is_read_or_counted(path: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    log = two_stages()
    event = next(e for e in log.events if e["Event"] == "SparkListenerTaskEnd")
    target = event
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    got = read(log.write(tmp_path / "app"))
    # The start of a task whose end is lost is still there.
    assert got.tasks.height == 3 or found(got)
    assert got.tasks["task"].n_unique() == got.tasks.height
    assert (got.tasks.select("run_ms", "gc_ms").min_horizontal() >= 0).all()


def test_numbers_written_as_texts_count(tmp_path: Path) -> None:
    log = two_stages()
    event = next(e for e in log.events if e["Event"] == "SparkListenerTaskEnd")
    event["Task Metrics"]["Executor Run Time"] = "77"
    assert read(log.write(tmp_path / "app")).tasks["run_ms"][0] == 77


def test_the_first_of_two_ends_counts_and_a_resubmitted_task_lost_its_output(tmp_path: Path) -> None:
    log = two_stages()
    ends = [e for e in log.events if e["Event"] == "SparkListenerTaskEnd"]
    again = json.loads(json.dumps(ends[0]))
    again["Task End Reason"] = {"Reason": "Resubmitted"}
    log.events += [again, json.loads(json.dumps(ends[1]))]
    got = read(log.write(tmp_path / "app"))
    assert got.tasks.select("task", "output_lost").rows() == [(0, True), (1, False), (2, False)]
    assert found(got) == {"task_end_twice": 1}


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(("started", "later_ms"), [(True, 3_600_000), (False, 3_600_000), (False, 0), (False, -60_000)])
def test_a_second_application_in_a_file_is_left_out(
    tmp_path: Path, *, started: bool, later_ms: int, ended: bool
) -> None:
    first, second = two_stages(), two_stages()
    for event in second.events:
        for key in ("Timestamp", "Submission Time", "Completion Time"):
            if key in event:
                event[key] += later_ms
    if not ended:
        first.events.pop()
    if not started:
        # The beginning of the file was lost.
        del first.events[:2]
    alone = read(first.write(tmp_path / "one"))
    both = first.events + second.events
    first.events = both
    got = read(first.write(tmp_path / "two"))
    assert (got.start_ms, got.end_ms, got.last_ms) == (alone.start_ms, alone.end_ms, alone.last_ms)
    assert got.tasks.equals(alone.tasks)
    assert found(got) == {**found(alone), "second_application": len(second.events)}
    assert found(got).get("application_start_missing", 0) == (not started)
    # The parts of a rolled log begin alike, and the same start may come twice.
    again = two_stages()
    again.events[2:2] = again.events[:2]
    assert found(read(again.write(tmp_path / "again"))) == {}


@pytest.mark.parametrize("started", [True, False])
def test_what_a_second_application_states_before_its_start_is_not_the_first_ones(
    tmp_path: Path, *, started: bool
) -> None:
    """Without the first one's end, the second one's version, settings and executors counted for the first."""
    first, second = two_stages(), EventLog(cores=[], version="3.5.0")
    setting = {"spark.sql.shuffle.partitions": "7"}
    second.executor("0", 3_600_000, cores=7).executor("9", 3_600_001)
    second.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": setting})
    second.add("SparkListenerBlockManagerAdded", Timestamp=ORIGIN_MS + 3_600_000)
    second.executor("10", 3_600_002, cores=-1).executor_gone("1", 3_600_003).add("SparkListenerExecutorAdded")
    start = second.events.pop(1)
    second.events.append({**start, "App ID": "app-2", "Timestamp": ORIGIN_MS + 3_600_004})
    first.events.pop()
    if not started:
        del first.events[:2]
    alone = read(first.write(tmp_path / "one"))
    # What comes between may also be of the first one: the same start again, and work, say so.
    again = [
        *first.events[:2],
        {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {"spark.locality.wait": "1s"}},
    ]
    both = first.events + second.events
    first.events = both
    got = read(first.write(tmp_path / "two"))
    assert (got.version, got.properties, got.last_ms) == (alone.version, alone.properties, alone.last_ms)
    assert got.executors.equals(alone.executors)
    assert got.unknown == alone.unknown
    assert found(got) == {**found(alone), "second_application": len(second.events)}
    if started:
        first.events = both[: -len(second.events)] + again + second.events
        got = read(first.write(tmp_path / "three"))
        assert got.properties == {"spark.locality.wait": "1s"}
        assert got.executors.equals(alone.executors)


def parts(folder: Path, log: EventLog, numbers: list[int]) -> Path:
    folder.mkdir()
    lines = log.lines
    size = len(lines) // 4 + 1
    for number in numbers:
        own = lines[(number - 1) * size : number * size]
        (folder / f"events_{number}_app-1").write_text("".join(line + "\n" for line in own))
    (folder / "appstatus_app-1").touch()
    return folder


def test_rolled_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = parts(tmp_path / "eventlog_v2_app-1", two_stages(), [2, 1, 4, 3])
    (folder / ".events_1_app-1.crc").write_bytes(b"crc")
    assert detect_format(folder) == "spark"
    got = read(folder)
    assert (got.tasks.height, got.complete, got.findings) == (3, True, [])
    whole = read(two_stages().write(tmp_path / "app-1"))
    assert got.tasks.equals(whole.tasks)


def test_a_missing_part_is_an_error_among_the_findings(tmp_path: Path) -> None:
    got = read(parts(tmp_path / "eventlog_v2_app-1", two_stages(), [1, 2, 4]))
    assert found(got)["log_part_missing"] == 1


def test_a_compacted_part_stands_for_those_before(tmp_path: Path) -> None:
    folder = parts(tmp_path / "eventlog_v2_app-1", two_stages(), [1, 2, 3, 4])
    merged = (folder / "events_1_app-1").read_text() + (folder / "events_2_app-1").read_text()
    (folder / "events_2_app-1.compact").write_text(merged)
    got = read(folder)
    assert (got.tasks.height, found(got)) == (3, {})


def test_a_folder_of_logs(tmp_path: Path) -> None:
    two_stages().write(tmp_path / "app-b")
    parts(tmp_path / "eventlog_v2_app-1", two_stages(), [1, 2, 3, 4])
    (tmp_path / "README").write_text("no log")
    (tmp_path / ".hidden").write_bytes(two_stages().content)
    assert [log.name for log in find_logs(tmp_path)] == ["app-b", "eventlog_v2_app-1"]


@pytest.mark.parametrize("codec", ["lz4", "lzf", "snappy", "zstd"])
def test_a_log_that_spark_compressed_is_the_plain_one(codec: str) -> None:
    plain, packed = (read_log(find_logs(LOGS / name)[0]) for name in ("two-jobs.zstd", f"forms/two-jobs.{codec}"))
    assert packed.complete
    assert packed.tasks.height == 20
    for name in ("tasks", "stages", "jobs", "job_stages", "executors", "executions", "nodes", "node_metrics"):
        assert getattr(packed, name).equals(getattr(plain, name)), name
    assert (packed.read_bytes, packed.events, packed.findings) == (plain.read_bytes, plain.events, plain.findings)


def test_a_rolled_log_of_spark() -> None:
    (files,) = find_logs(LOGS / "forms" / "eventlog_v2_two-jobs")
    log = read_log(files)
    assert (log.app_name, log.complete, log.tasks.height) == ("two-jobs", True, 20)
    assert [finding.finding for finding in log.findings] == ["event_unknown"]


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="There is no event log"):
        find_logs(tmp_path / "none")
    with pytest.raises(TraceFormatError, match="holds no event log"):
        find_logs(tmp_path)
    (tmp_path / "text").write_text("some text\nand more\n")
    with pytest.raises(TraceFormatError, match="none of its lines is an event"):
        read(tmp_path / "text")
    with pytest.raises(TraceFormatError, match="no known format"):
        detect_format(tmp_path / "text")


def test_logs_of_spark_2_have_no_app_id_and_no_attempts(tmp_path: Path) -> None:
    log = two_stages()
    log.events[0]["Spark Version"] = "2.1.0"
    log.events[1].pop("App ID")
    for event in log.events:
        info = event.get("Task Info", {})
        info.pop("Partition ID", None)
        event.pop("Stage Attempt ID", None)
    got = read(log.write(tmp_path / "app"))
    assert (got.app_id, got.tasks.height, got.findings) == ("", 3, [])


def test_a_plan_keeps_its_steps_and_drops_what_only_holds_them() -> None:
    plan = plan_nodes(
        {
            "nodeName": "AdaptiveSparkPlan",
            "children": [
                {
                    "nodeName": "WholeStageCodegen (1)",
                    "children": [
                        {
                            "nodeName": "HashAggregate",
                            "simpleString": "HashAggregate(keys=[])",
                            "metrics": [{"name": "time", "accumulatorId": 7, "metricType": "timing"}],
                            "children": [{"nodeName": "InputAdapter", "children": [{"nodeName": "Exchange"}]}],
                        }
                    ],
                }
            ],
        }
    )
    assert [(number, parent, name, scope) for number, parent, name, _, scope in plan.nodes] == [
        (0, None, "WholeStageCodegen (1)", "WholeStageCodegen (1)"),
        (1, 0, "HashAggregate", "WholeStageCodegen (1)"),
        (2, 1, "Exchange", None),
    ]
    assert plan.metrics == ((1, 7, "time", "timing"),)


def test_a_plan_that_is_endless_or_nonsense_ends() -> None:
    node: dict[str, Any] = {"nodeName": "A"}
    for _ in range(20_000):
        node = {"nodeName": "A", "children": [node]}
    assert len(plan_nodes(node).nodes) == 10_000
    assert plan_nodes({"nodeName": 3, "children": [None, 4, {"metrics": [None, {"accumulatorId": "x"}]}]}).metrics == ()


DEEP = b'{"Event":"SparkListenerJobStart","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
DIGITS = b'{"Event":"SparkListenerJobStart","Job ID":' + b"9" * 5_000 + b"}"
SURROGATE = rb'{"Event":"SparkListenerJobStart","Job ID":1,"name":"\ud800"}'


@pytest.mark.parametrize("line", [DEEP, DIGITS, SURROGATE], ids=["deep", "digits", "surrogate"])
@pytest.mark.parametrize("place", [0, 3])
def test_lines_that_parsers_choke_on_are_counted(run_pag: Command, line: bytes, place: int, tmp_path: Path) -> None:
    lines = two_stages().content.splitlines()
    (tmp_path / "log").write_bytes(b"\n".join([*lines[:place], line, *lines[place:]]) + b"\n")
    log = read(tmp_path / "log")
    assert found(log) == {"line_unreadable": 1}
    assert log.tasks.height == 3
    assert run_pag("convert", tmp_path / "log", tmp_path / "trace")[0] == 0
    (tmp_path / "log").write_bytes(line)
    for command in (("spark", tmp_path / "log"), ("convert", tmp_path / "log", tmp_path / "other")):
        code, _, error = run_pag(*command)
        assert code == 3
        assert "Traceback" not in error


SQL_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
ODD = (2**31, 2**63, 2**64 - 1, -1, 1e300, "²", [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("value", ODD, ids=[f"{str(value)[:12]}-{k}" for k, value in enumerate(ODD)])
def test_numbers_that_cannot_be_are_counted_and_the_rest_is_answered(value: Any, tmp_path: Path) -> None:
    """Of jobs, stages, executions, RDDs, accumulators, executors: whatever stands for a number, it is read or told."""
    for path in (
        *(("SparkListenerJobStart", name) for name in ("Job ID", "Submission Time", "Stage IDs")),
        ("SparkListenerJobStart", "Stage Infos", 0, "Stage ID"),
        ("SparkListenerJobStart", "Stage Infos", 0, "RDD Info", 0, "RDD ID"),
        ("SparkListenerJobStart", "Stage Infos", 0, "Parent IDs", 0),
        ("SparkListenerJobStart", "Properties", "spark.sql.execution.id"),
        ("SparkListenerJobEnd", "Job ID"),
        ("SparkListenerStageSubmitted", "Stage Info", "Stage ID"),
        ("SparkListenerStageSubmitted", "Stage Info", "Stage Attempt ID"),
        ("SparkListenerStageSubmitted", "Stage Info", "Number of Tasks"),
        ("SparkListenerExecutorAdded", "Executor Info", "Total Cores"),
        ("SparkListenerExecutorAdded", "Timestamp"),
        ("SparkListenerApplicationStart", "Timestamp"),
        ("SparkListenerTaskEnd", "Task Info", "Task ID"),
        ("SparkListenerTaskEnd", "Task Info", "Finish Time"),
        ("SparkListenerTaskEnd", "Stage ID"),
        ("SparkListenerTaskEnd", "Task Metrics", "Shuffle Read Metrics", "Remote Bytes Read"),
        (SQL_START, "executionId"),
        (SQL_START, "rootExecutionId"),
        (SQL_START, "sparkPlanInfo", "metrics", 0, "accumulatorId"),
    ):
        log = two_stages()
        plan = {"nodeName": "Scan", "metrics": [{"accumulatorId": 1}]}
        log.add(SQL_START, executionId=0, time=ORIGIN_MS)
        log.events[-1] |= {"sparkPlanInfo": plan, "rootExecutionId": 0}
        for info in log.events[4]["Stage Infos"]:
            info["Parent IDs"] = [0]
        event = next(event for event in log.events if event["Event"] == path[0])
        *way, last = path[1:]
        for key in way:
            event = event[key]
        event[last] = value
        mapped = map_log(read(log.write(tmp_path / "log")))
        for _, table in mapped.events():
            assert table.num_rows
        assert diagnose(mapped.schedule).span_ns > 0


def test_times_stay_in_range_as_nanoseconds(tmp_path: Path) -> None:
    log = two_stages()
    log.events[1]["Timestamp"] = 1
    last = log.add("SparkListenerApplicationEnd", Timestamp=LATEST_MS - 1).write(tmp_path / "log")
    assert map_log(read(last)).schedule.end_ns == (LATEST_MS - 2) * 1_000_000 < 2**62
    log.events[-1]["Timestamp"] = LATEST_MS
    assert found(read(log.write(tmp_path / "log"))) == {"event_damaged": 1}


def test_what_is_no_file_is_never_opened(run_pag: Command, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    two_stages().write(folder / "app-1")
    os.mkfifo(folder / "app-0")
    os.mkfifo(tmp_path / "pipe")
    (folder / "app-2").symlink_to(tmp_path / "pipe")
    assert [log.name for log in find_logs(folder)] == ["app-1"]
    with pytest.raises(TraceFormatError, match="neither a file nor a directory"):
        find_logs(tmp_path / "pipe")
    code, _, error = run_pag("spark", folder / "app-0")
    assert code == 3
    assert "neither a file nor a directory" in error


def test_a_name_that_is_no_text_is_shown_with_what_is(run_pag: Command, tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"app-\xff")
    two_stages().write(file)
    (log,) = find_logs(file)
    assert log.name == "app-\ufffd"
    assert run_pag("spark", file, "--out", tmp_path / "run")[0] == 0


def test_a_file_that_goes_away_is_an_error_of_ours(tmp_path: Path) -> None:
    (log,) = find_logs(two_stages().write(tmp_path / "log"))
    (tmp_path / "log").unlink()
    with pytest.raises(TraceFormatError, match="log cannot be read: No such file"):
        read_log(log)


def test_memory_that_runs_out_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (log,) = find_logs(two_stages().write(tmp_path / "log"))
    monkeypatch.setattr(reader, "frame", Mock(side_effect=MemoryError))
    with pytest.raises(TraceFormatError, match="log needs more memory than there is"):
        read_log(log)


def test_more_executors_than_any_application_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = EventLog(cores=[1] * 11).end(100).write(tmp_path / "log")
    monkeypatch.setattr(reader, "_MOST_EXECUTORS", 11)
    assert read(file).executors.height == 11
    monkeypatch.setattr(reader, "_MOST_EXECUTORS", 10)
    with pytest.raises(TraceFormatError, match="more than 10 executors"):
        read(file)


def test_names_of_events_are_bounded(tmp_path: Path) -> None:
    log = two_stages()
    for number in range(1_500):
        log.add(f"News{number}")
    log.add("some text that is no name")
    counted = read(log.write(tmp_path / "log"))
    assert sum(counted.unknown.values()) == 1_501
    assert len(counted.events) <= 1_001
    assert "some text that is no name" not in counted.events
