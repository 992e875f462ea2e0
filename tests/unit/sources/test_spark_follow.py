"""Event logs in progress: however they come, and whoever is killed meanwhile, the trace is the one of the whole log."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import polars as pl
import pytest

from pag_graph.errors import InvalidParameterError, StoreConflictError, StoreError, TraceFormatError
from pag_graph.sources import convert
from pag_graph.sources.spark.follow import EventLogFeed
from pag_graph.sources.spark.open_units import UNITS
from pag_graph.sources.spark.portion_reader import PortionReader
from pag_graph.store.trace import Trace
from tests.support.growing_logs import FORMS, content_of, grow, log_in, steps, told
from tests.support.spark_logs import ORIGIN_MS, EventLog, check_rows

DATA = Path(__file__).parents[2] / "data" / "spark"
PROVE = os.environ.get("PAG_PROVE") == "1"
LOGS = [*sorted(DATA.glob("*.zstd")), *sorted(DATA.glob("*/*.zstd")), DATA / "forms" / "eventlog_v2_two-jobs"]
PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
QUERY = "7d553db7-d5d4-4ba2-af35-17f2b50809dc"
SOME = ("streaming", "concurrent-jobs", "lost-executor", "dynamic-allocation", "retried-stage", "sql")


def cases() -> list[tuple[Path, str, str]]:
    """Return each log with each unit in each form; of a few logs one form each, unless all are to be proved."""
    if PROVE:
        return [(log, unit, form) for log in LOGS for unit in UNITS for form in FORMS]
    draw = random.Random(11)
    known = {log.stem: log for log in LOGS}
    return [(known[name], UNITS[i % 3], FORMS[(3 * i + draw.randrange(3)) % len(FORMS)]) for i, name in enumerate(SOME)]


def finished(feed: EventLogFeed) -> EventLogFeed:
    """Look until the log has ended."""
    for _ in range(30):
        feed.look()
    assert feed.ended
    return feed


def whole(lines: list[bytes], folder: Path, unit: str, name: str = "app") -> tuple[object, ...]:
    """Return what `pag convert --epochs` makes of a log."""
    folder.mkdir()
    (folder / name).write_bytes(b"".join(lines))
    convert(folder / name, folder / "trace", epochs=unit)
    return told(folder / "trace")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("log", "unit", "form"), cases(), ids=lambda value: getattr(value, "stem", value))
def test_a_log_that_grows_gives_the_trace_of_the_whole_log(log: Path, unit: str, form: str, tmp_path: Path) -> None:
    lines, draw = content_of(log), random.Random(f"{log.stem} {unit} {form}")
    name = "eventlog_v2_app" if form.startswith("rolled") else "app"
    expected = whole(lines, tmp_path / "whole", unit, name)
    place = log_in(tmp_path, form)
    feed = EventLogFeed(place, tmp_path / "trace", unit=unit)
    for step in steps(lines, form, draw):
        grow(tmp_path, step)
        if draw.random() < 0.5:
            feed.look()
        if draw.random() < 0.05:
            feed.close()
            feed = EventLogFeed(place, tmp_path / "trace", unit=unit)
    finished(feed).close()
    assert told(tmp_path / "trace") == expected


@pytest.mark.parametrize("form", [form for form in FORMS if not form.startswith("rolled")])
def test_what_encodes_a_log_is_told_when_enough_of_it_is_there(form: str, tmp_path: Path) -> None:
    """One byte of gzip is no plain log: nothing of it was read any more, and following did not end."""
    lines = content_of(next(log for log in LOGS if log.stem == "two-jobs"))
    expected = whole(lines, tmp_path / "whole", "job")
    growth = [step for step in steps(lines, form, random.Random(1)) if step.content]
    (tmp_path / "app.inprogress").touch()
    feed = EventLogFeed(tmp_path / "app", tmp_path / "trace", unit="job")
    for byte in b"".join(step.content or b"" for step in growth)[:8]:
        with (tmp_path / "app.inprogress").open("ab") as file:
            file.write(bytes([byte]))
        feed.look()
    with (tmp_path / "app.inprogress").open("ab") as file:
        file.write(b"".join(step.content or b"" for step in growth)[8:])
    (tmp_path / "app.inprogress").rename(tmp_path / "app")
    finished(feed).close()
    assert told(tmp_path / "trace") == expected


class KilledError(Exception):
    """Stands for the end of a process."""


def stream(batches: int) -> list[bytes]:
    """Return the log of a stream with a job and two tasks a batch."""
    log = EventLog(cores=[1, 1])
    for batch in range(batches):
        at = 1_000 * batch + 500
        log.job(batch, at, [batch], sql_streaming_queryId=QUERY, streaming_sql_batchId=str(batch))
        log.stage(batch, at, tasks=2)
        for index in range(2):
            log.task(batch, index, str(index), at + 10, at + 300 + index, run=200)
        log.stage_done(batch, at + 310).job_done(batch, at + 320)
        log.add(PROGRESS, progress=progress(batch, 400, rows=100, state=1_000 * batch))
    return [line.encode() + b"\n" for line in log.end(1_000 * batches + 500).lines]


def progress(batch: int, took: int, *, rows: int, state: int) -> dict[str, object]:
    """Return what a stream says of a batch."""
    return {
        "id": QUERY,
        "batchId": batch,
        "timestamp": "2026-11-21T22:13:07.782Z",
        "durationMs": {"triggerExecution": took},
        "sources": [{"numInputRows": rows}],
        "stateOperators": [{"numRowsTotal": state}],
    }


def another_application(later_ms: int, app_id: str) -> list[bytes]:
    """Return the log of an application with the same jobs, which begins later or has another name."""
    lines = []
    for line in stream(2):
        event = json.loads(line)
        if "Timestamp" in event:
            event["Timestamp"] += later_ms
        if "App ID" in event:
            event["App ID"] = app_id
        lines.append(json.dumps(event).encode() + b"\n")
    return lines


@pytest.mark.parametrize(
    ("ended", "later_ms", "app_id"),
    [(True, 3_600_000, "app-2"), (False, 3_600_000, "app-2"), (False, 3_600_000, "app-1"), (False, 0, "app-2")],
)
def test_another_application_in_a_later_portion_is_left_out(
    tmp_path: Path, *, ended: bool, later_ms: int, app_id: str
) -> None:
    first = stream(3)
    lines = (first if ended else first[:-1]) + another_application(later_ms, app_id)
    expected = whole(lines, tmp_path / "whole", "batch")
    place = tmp_path / "app.inprogress"
    feed = EventLogFeed(place, tmp_path / "trace")
    for number, line in enumerate(lines):
        with place.open("ab") as file:
            file.write(line)
        feed.look()
        if number % 8 == 7:
            feed.close()
            feed = EventLogFeed(place, tmp_path / "trace")
    place.rename(tmp_path / "app")
    finished(feed).close()
    trace = Trace.open(tmp_path / "trace")
    found = {row["finding"]: row["observed"] for row in trace.findings.to_pylist()}
    assert found.pop("second_application") == len(stream(2))
    # Nothing else is odd, in portions as in the whole log.
    assert found == ({} if ended else {"log_incomplete": 1})
    assert trace.meta.complete
    assert told(tmp_path / "trace") == expected


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(("lost", "later_ms"), [(2, 0), (4, -3_600_000), (16, 3_600_000)])
def test_an_application_without_its_start_stays_the_first_one(
    tmp_path: Path, *, ended: bool, later_ms: int, lost: int
) -> None:
    """The second one was taken for it, unless it began later: its tasks were tasks of the first one."""
    first = stream(3)[lost:] if ended else stream(3)[lost:-1]
    lines = first + another_application(later_ms, "app-2")
    expected = whole(lines, tmp_path / "whole", "batch")
    place = tmp_path / "app.inprogress"
    feed = EventLogFeed(place, tmp_path / "trace")
    for number, line in enumerate(lines):
        with place.open("ab") as file:
            file.write(line)
        feed.look()
        if number % 8 == 7:
            feed.close()
            feed = EventLogFeed(place, tmp_path / "trace")
    place.rename(tmp_path / "app")
    finished(feed).close()
    assert told(tmp_path / "trace") == expected
    whole(first, tmp_path / "alone", "batch")
    alone, both = Trace.open(tmp_path / "alone" / "trace"), Trace.open(tmp_path / "trace")
    assert pl.DataFrame(both.events()).equals(pl.DataFrame(alone.events()))
    found = {row["finding"]: row["observed"] for row in both.findings.to_pylist()}
    assert found["application_start_missing"] == 1
    assert found.pop("second_application") == len(stream(2))
    assert found == {row["finding"]: row["observed"] for row in alone.findings.to_pylist()}


@pytest.mark.parametrize("behind", [1, 2])
def test_no_portion_ends_between_what_begins_another_application_and_its_start(tmp_path: Path, behind: int) -> None:
    """What was logged before that start was then not known to be the other one's: its executors were workers here."""
    first, other = stream(3)[:-1], another_application(3_600_000, "app-2")
    other = [other[0], *(line.replace(b'"Executor ID": "', b'"Executor ID": "9') for line in other[2:4]), other[1]]
    # The stream says of its last batch, which ends a portion, when the other one has begun.
    lines = [*first[:-1], *other[:behind], first[-1], *other[behind:]]
    expected = whole(lines, tmp_path / "whole", "batch")
    for line in lines:
        with (tmp_path / "app.inprogress").open("ab") as file:
            file.write(line)
        feed = EventLogFeed(tmp_path / "app", tmp_path / "trace")
        feed.look()
        feed.close()
    (tmp_path / "app.inprogress").rename(tmp_path / "app")
    finished(EventLogFeed(tmp_path / "app", tmp_path / "trace")).close()
    assert told(tmp_path / "trace") == expected
    convert(tmp_path / "app", tmp_path / "one")
    for trace in map(Trace.open, (tmp_path / "trace", tmp_path / "one")):
        found = {row["finding"]: row["observed"] for row in trace.findings.to_pylist()}
        assert found == {"log_incomplete": 1, "second_application": len(other) + 1}
        assert [host for host in trace.workers.column("host").to_pylist() if host] == ["host-0", "host-1"]


def test_executors_that_the_log_does_not_add_are_numbered_by_their_tasks(tmp_path: Path) -> None:
    """Their order was another one at each reading, so who followed a log had workers of other numbers."""
    log = EventLog(cores=[])
    names = [f"{(7 * number) % 12}" for number in range(12)]
    log.job(0, 500, [0]).stage(0, 500, tasks=12)
    for index, name in enumerate(names):
        log.task(0, index, name, 510 + index, 900, run=200)
    log.stage_done(0, 910).job_done(0, 920).end(1_000).write(tmp_path / "app")
    for epochs in (None, "job"):
        convert(tmp_path / "app", tmp_path / f"{epochs}", epochs=epochs)
        workers = Trace.open(tmp_path / f"{epochs}").workers.column("host").to_pylist()
        assert [host for host in workers if host] == [f"host-{name}" for name in names]


def test_a_gap_in_what_another_application_logged_begins_no_portion() -> None:
    lines = stream(3)
    # The first one ends between its last job and what the stream says of it.
    lines = lines[: next(at for at, line in reversed([*enumerate(lines)]) if PROGRESS.encode() in line)]
    reader = PortionReader("app", "batch")
    assert sum(reader.line(line) is not None for line in [*lines, *another_application(3_600_000, "app-2")]) == 2
    assert reader.give_up() is None
    last = reader.last(in_progress=False)
    assert last is not None
    assert (last.last, last.log.app_id) == (True, "app-1")


@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_is_killed_at_any_write_loses_and_doubles_nothing(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = content_of(DATA / "streaming.zstd") if PROVE else stream(2)
    expected = whole(lines, tmp_path / "whole", "batch")
    replace, left = Path.replace, [-1]

    def killed(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] == 0 and when == "before":
            raise KilledError
        moved = replace(self, target)
        if left[0] == 0:
            raise KilledError
        return moved

    monkeypatch.setattr(Path, "replace", killed)
    at, survived = 1, False
    while not survived:
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "app").write_bytes(b"".join(lines))
        left[0] = at
        feed = EventLogFeed(folder / "app", folder / "trace")
        try:
            finished(feed)
            survived = True
        except KilledError:
            left[0] = -1
        feed.close()
        finished(EventLogFeed(folder / "app", folder / "trace")).close()
        assert told(folder / "trace") == expected, at
        at += 1 if PROVE else 6
    assert at > 12


def test_every_portion_ends_where_nothing_is_under_way() -> None:
    """Independent of the reader: times of jobs, tasks and executions in the log's own JSON."""
    for name, most in (("streaming", 5), ("concurrent-jobs", 1), ("sql", 2)):
        spans: dict[str, list[int]] = {}
        reader = PortionReader(name, "query")
        cuts = []
        for line in content_of(DATA / f"{name}.zstd"):
            event = json.loads(line)
            kind = event["Event"].rsplit(".", 1)[-1]
            if kind in {"SparkListenerJobStart", "SparkListenerJobEnd"}:
                at = event.get("Submission Time", event.get("Completion Time"))
                spans.setdefault(f"job {event['Job ID']}", []).append(at)
            if kind in {"SparkListenerSQLExecutionStart", "SparkListenerSQLExecutionEnd"}:
                spans.setdefault(f"query {event['executionId']}", []).append(event["time"])
            if kind == "SparkListenerTaskEnd":
                info = event["Task Info"]
                spans[f"task {info['Task ID']}"] = [info["Launch Time"], info["Finish Time"]]
            if (portion := reader.line(line)) is not None:
                cuts.append(portion.end_ms)
                assert all(len(times) == 2 for times in spans.values()), "something began and has not ended"
        assert len(cuts) >= most, name
        for cut in cuts:
            assert [what for what, (begin, end) in spans.items() if begin < cut < end] == []


@pytest.mark.parametrize("name", ["streaming", "lost-executor"])
def test_portions_hold_the_tasks_of_the_whole_log(name: str, tmp_path: Path) -> None:
    """What is measured is the same, whether the log is mapped as a whole or in portions; and the rows are sound."""
    convert(DATA / f"{name}.zstd", tmp_path / "whole")
    convert(DATA / f"{name}.zstd", tmp_path / "portions", epochs="batch")
    sums = []
    for trace in ("whole", "portions"):
        events = pl.DataFrame(Trace.open(tmp_path / trace).events()).sort("worker", "seq")
        check_rows(events)
        channels = pl.DataFrame(Trace.open(tmp_path / trace).channels).select("channel", "type")
        messages = events.filter(pl.col("kind") == "send").join(channels, on="channel")
        told = messages.group_by("type").agg(pl.len(), pl.col("bytes").sum()).sort("type")
        works = events.filter(pl.col("activity") == "processing").select("records", "bytes").sum()
        sums.append((told.filter(pl.col("type") != "driver lanes").rows(), works.rows(), events["epoch"].max()))
    assert sums[0] == sums[1]


def test_a_batch_that_takes_long_is_named_while_it_runs(tmp_path: Path) -> None:
    lines = stream(7)
    feed = EventLogFeed(tmp_path / "app", tmp_path / "trace")
    (tmp_path / "app").write_bytes(b"".join(lines[:-1]))
    feed.look()
    assert feed.ongoing(0) == []
    later = EventLog(cores=[])
    later.job(7, 9_000, [7], sql_streaming_queryId=QUERY, streaming_sql_batchId="7").stage(7, 9_000, tasks=1)
    begun = [line.encode() + b"\n" for line in later.lines[2:]]
    ticks = EventLog(cores=[]).task(7, 0, "0", 9_010, 9_700, run=500, task=99)
    for content, so_far, slow in ((begun, 0, False), ([ticks.lines[-1].encode() + b"\n"], 700, False)):
        with (tmp_path / "app").open("ab") as file:
            file.write(b"".join(content))
        feed.look()
        unit = next(unit for unit in feed.ongoing(0) if unit["name"].startswith("batch"))
        assert (unit["name"], unit["so_far_ms"], unit["slow"]) == (f"batch 7 of query {QUERY[:8]}", so_far, slow)
        assert (unit["usual_ms"], unit["state_rows"], unit["state_rows_before"]) == (400, 6_000, 0)
    # The clock of this machine counts where the log is written by it: the log's own times are of another day here.
    feed._heard_ms = ORIGIN_MS + 9_700
    unit = next(unit for unit in feed.ongoing(ORIGIN_MS + 9_801) if unit["name"].startswith("batch"))
    assert (unit["so_far_ms"], unit["slow"]) == (801, True)
    # A restart knows as much.
    feed.close()
    feed = EventLogFeed(tmp_path / "app", tmp_path / "trace")
    feed.look()
    assert [unit["usual_ms"] for unit in feed.ongoing(0) if "usual_ms" in unit] == [400]
    feed.close()


@pytest.mark.parametrize("ended", [True, False])
def test_nothing_goes_on_in_an_application_that_is_over(tmp_path: Path, *, ended: bool) -> None:
    """Its end or another application's start ends it, though its last batch has no end in the log."""
    first, second = stream(3), another_application(3_600_000, "app-2")
    progress_of = [at for at, line in enumerate(first) if PROGRESS.encode() in line]
    # What comes after all but what the stream says of its last batch.
    over = first[-1:] if ended else second[:2]
    feed = EventLogFeed(tmp_path / "app", tmp_path / "trace")
    named = []
    for lines in (first[: progress_of[-1]], over, [] if ended else second[2:8]):
        with (tmp_path / "app").open("ab") as file:
            file.write(b"".join(lines))
        feed.look()
        named.append([unit["name"] for unit in feed.ongoing(0)])
    feed.close()
    assert named == [[f"batch 2 of query {QUERY[:8]}"], [], []]


def test_parts_that_went_are_told_and_compacted_ones_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "eventlog_v2_app"
    folder.mkdir()
    lines = stream(3)
    (folder / "appstatus_app.inprogress").touch()
    (folder / "events_1_app").write_bytes(b"".join(lines[:12]))
    feed = EventLogFeed(folder, tmp_path / "trace")
    feed.look()
    # The first part was read: what Spark makes of it says nothing new.
    (folder / "events_1_app").rename(folder / "events_1_app.compact")
    (folder / "events_2_app").write_bytes(b"".join(lines[12:16]))
    feed.look()
    assert feed.reader.events == 16
    # The third one goes before anybody saw it, and job 1 has no end.
    (folder / "events_4_app").write_bytes(b"".join(lines[-9:]))
    (folder / "events_2_app").unlink()
    (folder / "appstatus_app.inprogress").rename(folder / "appstatus_app")
    finished(feed).close()
    found = {row["finding"]: row["observed"] for row in Trace.open(tmp_path / "trace").findings.to_pylist()}
    assert found["log_part_missing"] >= 1


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "app").write_bytes(b"".join(stream(2)))
    with pytest.raises(InvalidParameterError, match="batch, query, job"):
        EventLogFeed(tmp_path / "app", tmp_path / "trace", unit="hour")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary").write_text("dear")
    with pytest.raises(StoreError, match="is not empty"):
        EventLogFeed(tmp_path / "app", tmp_path / "other")
    feed = EventLogFeed(tmp_path / "app", tmp_path / "trace")
    with pytest.raises(StoreConflictError, match="Another process"):
        EventLogFeed(tmp_path / "app", tmp_path / "trace")
    feed.look()
    feed.close()
    with pytest.raises(StoreConflictError, match="unit batch, not job"):
        EventLogFeed(tmp_path / "app", tmp_path / "trace", unit="job")
    with pytest.raises(StoreConflictError, match="log app, not app2"):
        EventLogFeed(tmp_path / "app2", tmp_path / "trace")
    EventLogFeed(tmp_path / "app", tmp_path / "trace", unit="job", replace=True).close()
    (tmp_path / "app3").write_bytes(b"".join(stream(2)))
    feed = EventLogFeed(tmp_path / "app3", tmp_path / "trace3")
    feed.look()
    (tmp_path / "app3").write_bytes(b"{}\n")
    feed.close()
    shorter = EventLogFeed(tmp_path / "app3", tmp_path / "trace3")
    with pytest.raises(TraceFormatError, match="shorter than what was read"):
        shorter.look()
    shorter.close()
