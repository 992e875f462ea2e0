"""Streams: what their batches' frame costs, state that grows, sources that get ahead, rows that come too late."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.diagnosis.spark.cores import recorded_cores
from pag_graph.diagnosis.spark.list_schedule import list_schedule
from pag_graph.diagnosis.spark.work_plan import plan_work
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from pag_graph.sources.spark.placing import MS
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import ORIGIN_MS, EventLog

PLANS = Path(__file__).parents[2] / "data" / "spark" / "plans"
PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
QUERY = "7d553db7-d5d4-4ba2-af35-17f2b50809dc"


def stream(
    batches: int,
    *,
    work: int = 800,
    frame: int = 200,
    pause: int = 0,
    rows: tuple[int, int] = (100, 0),
    state: tuple[int, int] = (0, 0),
    late: int = 0,
) -> EventLog:
    """Return a stream whose batches work and are framed for so many milliseconds, and pause.

    `rows` and `state` are (of the first batch, more in each): rows that come, and rows of the state, which takes a
    millisecond for every ten.
    """
    log = EventLog(cores=[1])
    at = 100
    for batch in range(batches):
        held = state[0] + state[1] * batch
        took = work + held // 10
        begin = at + frame // 2
        log.job(batch, begin, [batch], sql_streaming_queryId=QUERY, streaming_sql_batchId=str(batch))
        log.stage(batch, begin, tasks=1).task(batch, 0, "0", begin, begin + took, run=took)
        log.stage_done(batch, begin + took).job_done(batch, begin + took)
        started = datetime.fromtimestamp((ORIGIN_MS + at) / 1000, UTC)
        progress = {
            "id": QUERY,
            "batchId": batch,
            "timestamp": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "durationMs": {
                "triggerExecution": took + frame,
                "addBatch": took,
                "walCommit": frame // 2,
                "commitOffsets": frame // 2,
            },
            "eventTime": {},
            "stateOperators": [
                {"numRowsTotal": held, "memoryUsedBytes": held * 100, "commitTimeMs": held // 10}
                | {"numRowsDroppedByWatermark": late}
            ],
            "sources": [{"numInputRows": rows[0] + rows[1] * batch}],
        }
        log.add(PROGRESS, progress=progress)
        at += took + frame + pause
    return log.end(at)


def recorded(name: str) -> Diagnosis:
    (log,) = find_logs(PLANS / f"{name}.zstd")
    return diagnose(map_log(read_log(log)).schedule)


def told(log: EventLog, folder: Path) -> Diagnosis:
    return diagnose(map_log(read_log(LogFiles(name="log", files=(log.write(folder / "log"),)))).schedule)


def names(found: Diagnosis) -> list[str]:
    return [cause.cause for cause in found.causes]


def patterns(found: Diagnosis) -> list[str]:
    return [each.suspicion for each in found.suspicions]


def test_the_frame_of_batches(tmp_path: Path) -> None:
    found = told(stream(20, work=600, frame=400), tmp_path)
    assert names(found) == ["batch_overrun"]
    # All of it but what came before the first job and is no part of the time that counts.
    assert found.causes[0].saved_ns == 20 * 400_000_000 - 200_000_000
    (change,) = found.causes[0].changes
    assert change.text == "rows of a batch: 100 -> 1,000, by the source's limit for a batch, in the stream"


@pytest.mark.parametrize(
    "other", [stream(20, work=900, frame=100), stream(20, work=600, frame=400, pause=300), stream(5, frame=900)]
)
def test_batches_that_work_or_wait_for_their_turn(other: EventLog, tmp_path: Path) -> None:
    assert "batch_overrun" not in names(told(other, tmp_path))


def test_a_stream_that_waits_for_input_is_no_driver_at_work(tmp_path: Path) -> None:
    found = told(stream(12, work=600, frame=200, pause=1_200), tmp_path)
    assert names(found) == ["stream_idle"]
    # Nobody knows what would have come after the last batch.
    assert found.causes[0].saved_ns == 11 * 1_200_000_000
    assert "driver_bound" not in names(found)


def test_a_path_tells_pauses_of_streams_from_the_drivers_work(tmp_path: Path) -> None:
    log = stream(12, work=600, frame=200, pause=1_200)
    told_of = answer(LogFiles(name="log", files=(log.write(tmp_path / "log"),)))
    pauses = 11 * 1_200_000_000
    by_activity = {row["key"]: row["path_ns"] for row in told_of.shares["activity"]}
    assert by_activity["streams without input"] == pauses
    assert sum(by_activity.values()) == told_of.diagnosis.span_ns
    assert told_of.steps["duration_ns"].sum() == told_of.diagnosis.span_ns
    assert sum(row["path_ns"] for row in told_of.plan_nodes) == told_of.diagnosis.span_ns
    # Whatever is sooner, the next batch comes by the clock: only the last one, and what follows it, ends earlier.
    assert told_of.diagnosis.simulated_ns == told_of.diagnosis.span_ns
    assert all(what_if.saving.ns <= 2_000_000_000 for what_if in told_of.what_if)


def test_batches_that_follow_at_once_come_sooner_where_they_can(tmp_path: Path) -> None:
    schedule = map_log(read_log(LogFiles(name="log", files=(stream(4, pause=10).write(tmp_path / "log"),)))).schedule
    assert not any(job.not_before_ns for job in plan_work(schedule).jobs)


def test_a_stream_that_is_late_has_pauses_to_catch_up(tmp_path: Path) -> None:
    schedule = map_log(read_log(LogFiles(name="log", files=(stream(4, pause=500).write(tmp_path / "log"),)))).schedule
    plan = plan_work(schedule)
    assert [job.not_before_ns // MS for job in plan.jobs] == [0, 1_700, 3_200, 4_700]
    cores = recorded_cores(schedule)
    recorded_end = list_schedule(plan, cores)
    # A second more in the first batch is half a second in the second one, and nothing in the third.
    durations = plan.durations.copy()
    durations[0] += 1_000 * MS
    assert list_schedule(plan, cores, durations=durations) == recorded_end
    durations[-1] += 1_000 * MS
    assert list_schedule(plan, cores, durations=durations) == recorded_end + 1_000 * MS
    # More than all pauses is late in the end.
    durations = plan.durations.copy()
    durations[0] += 2_000 * MS
    assert list_schedule(plan, cores, durations=durations) == recorded_end + 500 * MS


def test_another_stream_that_works_meanwhile_is_no_pause(tmp_path: Path) -> None:
    log = stream(12, work=600, frame=200, pause=1_200)
    progress = [dict(event) for event in log.events if event["Event"] == PROGRESS]
    for event in progress:
        event["progress"] = event["progress"] | {"id": "another", "durationMs": {"triggerExecution": 2_000}}
    log.events[-1:-1] = progress
    assert "stream_idle" not in names(told(log, tmp_path))


def test_state_that_grows_costs_what_it_takes_more_than_in_the_begin(tmp_path: Path) -> None:
    found = told(stream(15, frame=0, state=(0, 500)), tmp_path)
    assert names(found) == ["state_growth"]
    (cause,) = found.causes
    first = 100  # milliseconds: the median of the first five batches, 0 to 200
    more = sum(max(0, 50 * batch - first) for batch in range(15))
    assert cause.saved_ns == pytest.approx(more * 1_000_000, rel=1e-6)
    assert cause.bound
    assert cause.changes[0].text == "the watermark: none -> withWatermark(), so that old groups go, in the stream"
    # What is a cause is no pattern as well; where it hardly costs, it is one.
    assert patterns(found) == []
    cheap = told(stream(15, frame=0, work=40_000, state=(0, 500)), tmp_path)
    assert (names(cheap), patterns(cheap)) == ([], ["state_growth"])
    same = told(stream(15, frame=0, state=(3_000, 0)), tmp_path)
    assert (names(same), patterns(same)) == ([], [])


def test_recorded_state_that_grows_stays_or_goes() -> None:
    (grown,) = [cause for cause in recorded("growing-state-planted").causes if cause.cause == "state_growth"]
    assert grown.signal["state_rows"] == [60_000, 180_000]
    for role in ("decoy", "twin"):
        found = recorded(f"growing-state-{role}")
        assert "state_growth" not in [*names(found), *patterns(found)]


def test_data_and_freshness_that_are_lost(tmp_path: Path) -> None:
    assert patterns(told(stream(15, frame=0, late=3), tmp_path)) == ["watermark_late"]
    growing = told(stream(15, frame=0, rows=(100, 100), state=(0, 100)), tmp_path)
    assert "source_lag" in patterns(growing)
    assert patterns(told(stream(15, frame=0, rows=(1_500, -50)), tmp_path)) == []
    assert patterns(told(stream(15, frame=0, pause=500, rows=(100, 100)), tmp_path)) == []


def test_damaged_progress_is_counted_and_left_out(tmp_path: Path) -> None:
    log = stream(12)
    for event in log.events:
        if event["Event"] == PROGRESS:
            event["progress"]["timestamp"] = "yesterday"
    read = read_log(LogFiles(name="log", files=(log.write(tmp_path / "log"),)))
    assert read.progress.height == 0
    assert [(each.finding, each.observed) for each in read.findings if each.finding == "event_damaged"] == [
        ("event_damaged", 12)
    ]
