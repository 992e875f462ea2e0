"""The loop around a follower: what it commits and when, how it ends, and who may not follow."""

from __future__ import annotations

import json
import signal
from contextlib import nullcontext
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import pag_graph
from pag_graph import api
from pag_graph.api.standing import standings
from pag_graph.builder.ongoing import HOLDING
from pag_graph.cli.app import app
from pag_graph.cli.follow import NOT_COMPLETE, stopping
from pag_graph.engines.following import Following, Until
from pag_graph.errors import (
    InvalidParameterError,
    StoreConflictError,
    StoreError,
    StoreNotFoundError,
    TraceFormatError,
    UnsupportedPlanError,
)
from pag_graph.graph.run import Run
from pag_graph.motif.alerts import BUILT_IN, Rule
from pag_graph.store.delta import open_store
from pag_graph.store.live import followed, read_status, read_timings, write_status
from pag_graph.store.meta import read_meta, write_meta
from pag_graph.store.retention import Keep
from pag_graph.store.trace_files import META
from pag_graph.testing.traces import draw
from tests.support.compare import committed, differences
from tests.support.growing import GrowingTrace, late_reads, rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pag_graph.engines.following import Progress
    from pag_graph.graph.following import Committed


class Program(Event):
    """Stands for the program that is recorded: whenever the follower has looked, it does its next step.

    When there is none left, it asks to stop.
    """

    def __init__(self, steps: Iterator[Callable[[], object]]) -> None:
        super().__init__()
        self._steps = steps

    def wait(self, timeout: float | None = None) -> bool:
        """Do the next step."""
        del timeout
        step = next(self._steps, None)
        if step is None:
            self.set()
        else:
            step()
        return self.is_set()


def following(growing: GrowingTrace, store: Path, *steps: Callable[[], object], **options: Any) -> Following:
    options = {"commit_every_s": 0, "stop": Program(iter(steps)), **options}
    return Following(growing.path, store, **options)


def built(growing: GrowingTrace, place: Path) -> Path:
    api.build(growing.path, place, engine="local")
    return place


def test_epochs_are_committed_as_they_close(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    steps = [*(lambda epoch=epoch: growing.write_until(epoch) for epoch in (1, 2, 5)), growing.finish]
    seen = []

    class Watching:
        def committed(self, commit: Committed) -> None:
            # A commit can be looked at as soon as somebody knows of it.
            assert commit.run.info.versions["epochs"] == commit.version
            assert set(commit.closed) <= set(commit.run.epochs["epoch"].to_list())
            seen.append((commit.closed, commit.complete))

    run = following(growing, tmp_path / "store", *steps, observers=[Watching()])
    assert [commit.closed for commit in run.commits()] == [closed for closed, _ in seen]
    assert seen == [((0,), False), ((1,), False), ((2, 3, 4), False), ((5, 6, 7), True)]
    assert run.report.complete
    assert (run.report.ending, run.report.closed, run.report.commits) == ("complete", 8, 4)
    assert differences(committed(tmp_path / "store"), committed(built(growing, tmp_path / "once"))) == ""


def test_a_commit_shows_what_it_committed_however_late_it_is_looked_at(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    steps = [*(lambda epoch=epoch: growing.write_until(epoch) for epoch in (1, 2, 5)), growing.finish]
    first, _, third, last = list(following(growing, tmp_path / "store", *steps).commits())
    for commit, closed in ((first, 1), (third, 5), (last, 8)):
        assert commit.run.info.versions["epochs"] == commit.version
        assert commit.run.info.closed_epochs == closed
    early, late, whole = (commit.run.scan("edges").collect().height for commit in (first, third, last))
    assert 0 < early < late < whole


def test_what_a_commit_held_is_gone_once_it_was_removed_unless_somebody_has_it_open(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    steps = [*(lambda epoch=epoch: growing.write_until(epoch) for epoch in (1, 2, 5)), growing.finish]
    commits = []
    for commit in following(growing, tmp_path / "store", *steps, keep=Keep.of("1")).commits():
        commits.append(commit)
        if len(commits) == 2:
            # Opened here, so that it stays.
            assert commit.run.info.closed_epochs == 2
    _, second, third, *_ = commits
    assert second.run.scan("edges").collect().height > 0
    assert Run(tmp_path / "store").epochs.height < 8
    with pytest.raises(StoreNotFoundError, match=f"Version {third.version} of the store"):
        third.run  # noqa: B018  (it is opened)


def test_the_last_commit_can_be_opened_when_all_is_over_whatever_was_removed(tmp_path: Path) -> None:
    """It was the one before the last removal, which took its files away."""
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    steps = [*(lambda epoch=epoch: growing.write_until(epoch) for epoch in (1, 2, 5)), growing.finish]
    told = []

    class Watching:
        def committed(self, commit: Committed) -> None:
            told.append(commit)

    watched = following(growing, tmp_path / "store", *steps, keep=Keep.of("1"), observers=[Watching()])
    commits = list(watched.commits())
    assert commits == told
    assert watched.report.commits == len(commits)
    assert sum((commit.closed for commit in commits), ()) == tuple(range(8))
    for last in (commits[-1], told[-1]):
        assert last.complete
        assert last.run.epochs.equals(Run(tmp_path / "store").epochs)
        assert last.run.info.versions == open_store(tmp_path / "store").versions
    # Nothing is kept for it.
    assert last.run.epochs["epoch"].min() == 7


def test_rows_are_read_while_queries_are_answered(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    events_read, has_read_on = set(), Event()

    def tell(progress: Progress) -> None:
        events_read.add(progress.events)
        if len(events_read - {0}) > 1:
            has_read_on.set()

    def derive(*_: object, **__: object) -> None:
        assert has_read_on.wait(60)

    steps = [*(lambda epoch=epoch: growing.write_until(epoch) for epoch in (2, 4)), growing.finish]
    run = following(growing, tmp_path / "store", *steps, derive=derive, tell=tell)
    commits = list(run.commits())
    assert [epoch for commit in commits for epoch in commit.closed] == list(range(8))
    assert differences(committed(tmp_path / "store"), committed(built(growing, tmp_path / "once"))) == ""


def test_whoever_cannot_be_told_ends_the_follower_and_the_next_one_goes_on(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    steps = [*(lambda epoch=epoch: growing.write_until(epoch) for epoch in (2, 4)), growing.finish]

    class Refusing:
        def committed(self, commit: Committed) -> None:
            message = f"It does not want to know of {commit.closed}."
            raise LookupError(message)

    with pytest.raises(LookupError, match=r"\(0, 1\)"):
        list(following(growing, tmp_path / "store", *steps, observers=[Refusing()]).commits())
    assert open_store(tmp_path / "store").closed_epochs == 2
    growing.finish()
    assert following(growing, tmp_path / "store").run().complete
    assert differences(committed(tmp_path / "store"), committed(built(growing, tmp_path / "once"))) == ""


def test_who_looks_at_no_more_commits_ends_the_follower(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    steps = [*(lambda epoch=epoch: growing.write_until(epoch) for epoch in (2, 4)), growing.finish]
    commits = following(growing, tmp_path / "store", *steps).commits()
    assert next(commits).closed == (0, 1)
    commits.close()
    growing.finish()
    assert following(growing, tmp_path / "store").run().complete
    assert differences(committed(tmp_path / "store"), committed(built(growing, tmp_path / "once"))) == ""


def piled_up(path: Path) -> GrowingTrace:
    """Write a trace of 63,878 events in 80 files."""
    growing = GrowingTrace.of(pag_graph.samples.path("bfs"), path)
    for number in range(1, 40):
        for worker, rows in enumerate((32_866, 31_012)):
            growing.write(worker, rows * number // 40)
    growing.finish()
    return growing


@pytest.mark.parametrize(("commit_every_s", "commits"), [(0, 4), (3_600, 2)])
def test_what_has_piled_up_is_worked_on_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit_every_s: float, commits: int
) -> None:
    # So little memory: 20,000 events before a step.
    monkeypatch.setattr("pag_graph.engines.following.FEWEST_EVENTS", 5_000)
    growing = piled_up(tmp_path / "trace")
    looks = Program(iter([lambda: None] * 50))
    following = Following(growing.path, tmp_path / "store", commit_every_s=commit_every_s, memory_bytes=1, stop=looks)
    made = list(following.commits())
    assert (following.report.ending, len(made)) == ("complete", commits)
    api.build(growing.path, tmp_path / "once", engine="local")
    assert differences(committed(tmp_path / "store"), committed(tmp_path / "once")) == ""


@pytest.mark.parametrize(("settle_s", "waits"), [(1, True), (0, False)])
def test_epochs_are_answered_when_their_messages_are_read(tmp_path: Path, settle_s: float, waits: bool) -> None:  # noqa: FBT001
    growing = GrowingTrace(late_reads(8, sent=1, read=4), tmp_path / "trace")
    steps = [*(lambda epoch=epoch: growing.write_until(epoch) for epoch in range(7)), growing.finish]
    seen = list(following(growing, tmp_path / "store", *steps, settle_s=settle_s).commits())
    closed, answered = (
        {epoch: commit.version for commit in seen for epoch in getattr(commit, name)} for name in ("closed", "answered")
    )
    assert sorted(closed) == sorted(answered) == list(range(8))
    assert sum(len(commit.answered) for commit in seen) == 8
    later = {epoch for epoch, version in answered.items() if version > closed[epoch]}
    # Epochs 1 to 3 are closed, and a message of epoch 1 is read in epoch 4.
    assert later == ({1, 2, 3} if waits else set())
    rows = read_timings(tmp_path / "store")
    assert dict(zip(rows["epoch"].to_pylist(), rows["commit"].to_pylist(), strict=True)) == closed


HELD = Rule(name="held", query="frontier", where="row.held_ns >= ns(0)", subject=("worker",))


def events(store: Path) -> list[tuple[str, str, int]]:
    rows = pag_graph.alerts(store).to_pylist()
    return [(row["event"], row["subject"], row["first_epoch"]) for row in rows]


def test_a_worker_that_holds_the_frontier_is_an_alert_until_its_epoch_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pag_graph.engines.following.HELD_EVERY_S", 0.0)
    growing, store = GrowingTrace(rounds(8), tmp_path / "trace"), tmp_path / "store"
    told = []

    class Watching:
        def committed(self, commit: Committed) -> None:
            told.append((commit.closed, events(store)))

    # Nothing comes between some looks: the same worker holds the same epoch, which is said once.
    steps = [lambda: growing.write_until(2), *[lambda: None] * 5, lambda: growing.write_until(4), *[lambda: None] * 5]
    derive = standings(alerts=[HELD])
    run = following(growing, store, *steps, derive=derive, observers=[Watching()])
    run.run()
    first = events(store)
    opened = [event for event in first if event[0] == "opened"]
    assert [epoch for *_, epoch in opened] == sorted({epoch for *_, epoch in opened})
    assert len(opened) == 2
    assert [event[0] for event in first] == ["opened", "resolved", "opened"]
    assert first[0][1:] == first[1][1:]
    # Alerts about what is held are commits that close nothing.
    assert [closed for closed, known in told if known and known[-1][0] == "opened"] == [(), ()]
    [row, *_] = pag_graph.alerts(store).to_pylist()
    seen = json.loads(row["row"])
    assert (row["query"], row["rule"], seen["epoch"]) == ("frontier", "held", row["first_epoch"])
    assert seen["why"] in HOLDING
    assert json.loads(row["subject"]) == {"worker": seen["worker"]}

    # Who goes on does not say it again, and resolves it; the graph is that of one build.
    following(growing, store, *[lambda: None] * 5, growing.finish, derive=standings()).run()
    last = events(store)
    assert last[:3] == first
    assert [event[0] for event in last] == ["opened", "resolved", "opened", "resolved"]
    assert differences(committed(store), committed(built(growing, tmp_path / "once"))) == ""


@pytest.mark.parametrize("more", [(), (lambda: None,)], ids=["at once", "later"])
def test_what_was_held_before_the_first_commit_is_an_alert_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[Callable[[], None], ...]
) -> None:
    monkeypatch.setattr("pag_graph.engines.following.HELD_EVERY_S", 0.0)
    whole = rounds(6)
    trace = replace(replace(draw(*("" for _ in range(3))), complete=True), events=(*whole.events, ()))
    growing, store = GrowingTrace(trace, tmp_path / "trace"), tmp_path / "store"
    # The third worker never logs: nothing can be committed before the trace is complete.
    steps = [lambda: growing.write_until(4), *[lambda: None] * 4, growing.finish, *more]
    following(growing, store, *steps, derive=standings(alerts=[HELD])).run()
    assert [(event, json.loads(subject), epoch) for event, subject, epoch in events(store)] == [
        ("opened", {"worker": 2}, 0),
        ("resolved", {"worker": 2}, 0),
    ]
    [row, _] = pag_graph.alerts(store).to_pylist()
    assert json.loads(row["row"])["why"] == "unborn"
    assert differences(committed(store), committed(built(growing, tmp_path / "once"))) == ""


def test_a_short_hold_is_no_alert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pag_graph.engines.following.HELD_EVERY_S", 0.0)
    growing, store = GrowingTrace(rounds(8), tmp_path / "trace"), tmp_path / "store"
    steps = [lambda: growing.write_until(2), *[lambda: None] * 5, growing.finish]
    run = following(growing, store, *steps, derive=standings(alerts=[*BUILT_IN]))
    seen = list(run.commits())
    assert all(commit.closed for commit in seen)
    assert [event for event in events(store) if "frontier" in event[0]] == []
    assert "frontier_held" in {rule["name"] for rule in (open_store(store).live or {})["rules"]}


def test_who_is_stopped_leaves_what_is_decided_and_the_next_one_goes_on(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    run = following(growing, tmp_path / "store", lambda: growing.write_until(4))
    assert run.run().ending == "stopped"
    assert not run.report.complete
    info = open_store(tmp_path / "store")
    assert info.closed_epochs == 4
    assert not any(part.provisional for name in info.versions for part in info.parts(name))
    again = following(growing, tmp_path / "store", growing.finish)
    assert [commit.closed for commit in again.commits()] == [(4, 5, 6, 7)]
    assert differences(committed(tmp_path / "store"), committed(built(growing, tmp_path / "once"))) == ""
    # What is there is not done again.
    assert following(growing, tmp_path / "store").run().commits == 0


def test_when_nothing_comes_any_more_the_store_is_what_an_incomplete_trace_gives(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(6), tmp_path / "trace")
    growing.write_until(3)
    report = following(growing, tmp_path / "store", until=Until(idle_s=0)).run()
    assert (report.ending, report.complete) == ("idle", False)
    assert differences(committed(tmp_path / "store"), committed(built(growing, tmp_path / "cut"))) == ""
    growing.finish()
    assert following(growing, tmp_path / "store").run().complete
    assert differences(committed(tmp_path / "store"), committed(built(growing, tmp_path / "once"))) == ""


def test_nothing_is_committed_before_every_worker_has_logged(tmp_path: Path) -> None:
    whole = rounds(6)
    silent = replace(draw(*("" for _ in range(3))), complete=True)
    trace = replace(silent, events=(*whole.events, ()))
    growing = GrowingTrace(trace, tmp_path / "trace")
    run = following(growing, tmp_path / "store", lambda: growing.write_until(4))
    assert run.run().store is None
    assert not (tmp_path / "store").exists()
    assert following(growing, tmp_path / "store", growing.finish).run().commits == 1
    assert differences(committed(tmp_path / "store"), committed(built(growing, tmp_path / "once"))) == ""


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_workers_may_join_unless_they_began_before_what_is_decided(
    tmp_path: Path, *, late: bool, restarted: bool
) -> None:
    begin = 0 if late else 200
    ends = " | ".join(f"{20 * number + 10} end" for number in range(10))
    joins = f"~10 {begin} start 1 | ~10 {begin + 5} stop 1 | ~10 {begin + 20} end"
    trace = draw(f"{ends} | ~10 200 spawn 2 | ~10 230 end", f"{ends} | ~10 230 end", joins)
    growing = GrowingTrace(trace, tmp_path / "trace")
    description = growing.path / "workers.parquet"
    workers, meta = pq.read_table(description), read_meta(growing.path / META)

    def two() -> None:
        pq.write_table(workers.slice(0, 2), description)
        write_meta(replace(meta, workers=2), growing.path / META)
        for worker in (0, 1):
            growing.write(worker, 6)

    def all_three() -> None:
        pq.write_table(workers, description)
        write_meta(meta, growing.path / META)
        growing.finish()

    if restarted:
        following(growing, tmp_path / "store", two).run()
        run = following(growing, tmp_path / "store", all_three)
    else:
        run = following(growing, tmp_path / "store", two, all_three)
    if late:
        with pytest.raises(StoreConflictError, match=r"Worker 2 joined run .* too late"):
            run.run()
    else:
        run.run()
        assert differences(committed(tmp_path / "store"), committed(built(growing, tmp_path / "once"))) == ""


def test_a_follower_may_be_there_before_the_trace(tmp_path: Path) -> None:
    def record() -> None:
        GrowingTrace(rounds(3), tmp_path / "trace").finish()

    steps = [lambda: None, record]
    run = Following(tmp_path / "trace", tmp_path / "store", stop=Program(iter(steps)), commit_every_s=0)
    assert run.run().closed == 3


def test_one_follows_at_a_time(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(3), tmp_path / "trace")
    with followed(tmp_path / "store"), pytest.raises(StoreConflictError, match="followed by another process"):
        following(growing, tmp_path / "store").run()
    assert not (tmp_path / "store").exists()


def test_stores_that_are_built_and_stores_that_are_followed_do_not_mix(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(4), tmp_path / "trace")
    growing.write_until(2)
    followed_store, built_store = tmp_path / "followed", built(growing, tmp_path / "built")
    following(growing, followed_store, until=Until(idle_s=0)).run()
    with pytest.raises(StoreConflictError, match="was followed, and cannot be appended to"):
        api.build(growing.path, followed_store, engine="local", mode="append")
    before = committed(built_store)
    with pytest.raises(StoreConflictError, match="was built, and cannot be followed"):
        following(growing, built_store, lambda: None).run()
    assert differences(committed(built_store), before) == ""
    growing.finish()
    following(growing, built_store, replace=True).run()
    assert differences(committed(built_store), committed(built(growing, tmp_path / "once"))) == ""


def test_another_trace_in_its_place_is_told(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(4), tmp_path / "trace")

    def change() -> None:
        meta = growing.path / "meta.json"
        text = meta.read_text().replace('"small"', '"other"')
        meta.unlink()
        meta.write_text(text)

    with pytest.raises(StoreConflictError, match="holds trace other now"):
        following(growing, tmp_path / "store", lambda: growing.write_until(2), change, growing.finish).run()
    # What was committed of the first one stays.
    assert open_store(tmp_path / "store").closed_epochs == 2


def test_a_damaged_file_is_named_and_commits_stay(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(4), tmp_path / "trace")
    bad = growing.path / "events" / "worker-0000001-0000001.parquet"
    with pytest.raises(TraceFormatError, match="worker-0000001-0000001"):
        following(growing, tmp_path / "store", lambda: growing.write_until(2), lambda: bad.write_bytes(b"PAR1")).run()
    assert open_store(tmp_path / "store").closed_epochs == 2


def test_a_store_is_not_waited_for(tmp_path: Path) -> None:
    """A store never becomes a trace, and was waited for without end."""
    growing = GrowingTrace(rounds(2), tmp_path / "trace")
    growing.finish()
    store = built(growing, tmp_path / "built")
    with pytest.raises(TraceFormatError, match="built is a store, not a trace") as refused:
        api.follow(store, tmp_path / "store", until="idle:0ms")
    assert refused.value.hint == f"Look into it: `pag info {store}`."
    with pytest.raises(TraceFormatError, match="built is a store, not a trace"):
        api.follow_on_spark(store, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_who_stops_before_the_first_commit_is_not_sent_to_a_store_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Event()
    stop.set()
    monkeypatch.setattr("pag_graph.cli.follow.stopping", lambda: nullcontext(stop))
    result = CliRunner().invoke(app, ["follow", str(tmp_path / "trace"), str(tmp_path / "store")])
    assert result.exit_code == NOT_COMPLETE
    assert "The source is not complete; nothing is committed yet." in result.output
    assert "pag why" not in result.output


def test_rules_without_a_state_are_refused(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(2), tmp_path / "trace")
    growing.finish()
    with pytest.raises(UnsupportedPlanError, match="cannot be followed"):
        following(growing, tmp_path / "store", rules=api.RuleSet.ST2).run()


def test_an_empty_trace_is_told(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(2), tmp_path / "trace")
    with pytest.raises(TraceFormatError, match="has no events"):
        following(growing, tmp_path / "store", until=Until(idle_s=0)).run()


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("complete", Until()),
        ("forever", Until(complete=False)),
        ("idle:30s", Until(idle_s=30)),
        ("idle:500ms", Until(idle_s=0.5)),
    ],
)
def test_when_to_stop(text: str, until: Until) -> None:
    assert Until.of(text) == until


@pytest.mark.parametrize("text", ["", "idle", "idle:", "idle:soon", "never"])
def test_what_says_nothing_of_when_to_stop_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        Until.of(text)


def test_from_python(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(3), tmp_path / "trace")
    growing.finish()
    commits = list(pag_graph.live(growing.path, tmp_path / "live"))
    assert [(commit.closed, commit.complete) for commit in commits] == [((0, 1, 2), True)]
    told: list[Any] = []
    report = pag_graph.follow(growing.path, tmp_path / "followed", progress=told.append)
    assert (report.complete, report.closed, told[-1].epochs) == (True, 3, 3)


def test_a_commit_that_only_answers_a_new_query_is_told_and_counted(tmp_path: Path) -> None:
    """It was made, but nobody who waited for commits heard of it, and the report did not count it."""
    growing = GrowingTrace(rounds(4), tmp_path / "trace")
    growing.write_until(2)
    stored = following(growing, tmp_path / "store").run().store
    assert stored is not None
    again = following(growing, tmp_path / "store", derive=standings(["metrics"]))
    told = [(commit.version, commit.closed, commit.complete) for commit in again.commits()]
    assert told == [(stored.versions["epochs"] + 1, (), False)]
    assert again.report.commits == 1
    growing.finish()
    pag_graph.follow(growing.path, tmp_path / "store")
    commits = list(pag_graph.live(growing.path, tmp_path / "store", queries=["rounds"]))
    assert [(commit.closed, commit.answered, commit.complete) for commit in commits] == [((), (), True)]


def test_the_command_says_whether_the_source_was_complete(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(3), tmp_path / "trace")
    growing.write_until(1)
    arguments = ["follow", str(growing.path), str(tmp_path / "store"), "--commit-every", "0"]
    found = CliRunner().invoke(app, [*arguments, "--until", "idle:1ms", "--format", "json"])
    assert found.exit_code == NOT_COMPLETE, found.output
    growing.finish()
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0, found.output
    assert "3 epochs closed" in found.output


def test_ctrl_c_asks_to_stop_and_a_second_one_interrupts() -> None:
    # What is started in the background of a shell ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stopping() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.is_set()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_timings_and_what_goes_on_can_be_asked_for(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    store = str(tmp_path / "store")
    assert CliRunner().invoke(app, ["ongoing", store]).exit_code != 0
    following(growing, tmp_path / "store", *(lambda e=e: growing.write_until(e) for e in (2, 4))).run()
    now = json.loads(CliRunner().invoke(app, ["ongoing", store, "--format", "json"]).output)
    assert (now["epoch"], now["final"], now["holder"]["why"]) == (4, False, "undecided_wait")
    assert "epoch 4 has taken" in CliRunner().invoke(app, ["ongoing", store]).output
    with_path = ["ongoing", store, "--trace", str(growing.path)]
    assert "So far, " in CliRunner().invoke(app, with_path).output
    # A place that is misspelt, or the store itself.
    refused = CliRunner().invoke(app, ["ongoing", store, "--trace", str(tmp_path / "trac")]).exception
    assert isinstance(refused, TraceFormatError)
    assert refused.hint == f"Name the trace that is followed into {store}."
    refused = CliRunner().invoke(app, ["ongoing", store, "--trace", store]).exception
    assert isinstance(refused, TraceFormatError)
    assert "is a store, not a trace" in refused.message
    path = json.loads(CliRunner().invoke(app, [*with_path, "--format", "json"]).output)["path"]
    assert path["length_ns"] == path["end_ns"] - path["start_ns"] == now["epoch_ns"]
    found = json.loads(CliRunner().invoke(app, ["timings", store, "--format", "json"]).output)
    assert [row["epoch"] for row in found["epochs"]] == [0, 1, 2, 3]
    for row in found["epochs"]:
        assert row["published_ns"] <= row["read_ns"] <= row["closed_ns"] <= row["committed_ns"] <= row["answered_ns"]
    # Epochs of one commit have one time of commit; what came in another file came at another time.
    assert [row["commit"] for row in found["epochs"]] == [0, 0, 1, 1]
    assert "published to answered" in CliRunner().invoke(app, ["timings", store]).output
    # Of a run that takes its place nothing of this is known any more.
    growing.finish()
    following(growing, tmp_path / "store", replace=True).run()
    again = json.loads(CliRunner().invoke(app, ["timings", store, "--format", "json"]).output)
    assert [row["epoch"] for row in again["epochs"]] == list(range(8))
    assert "the run has ended" in CliRunner().invoke(app, ["ongoing", store]).output


def test_what_cannot_be_noted_beside_the_store_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pag_graph.engines import following as loop

    growing, store = GrowingTrace(rounds(8), tmp_path / "trace"), tmp_path / "store"
    write, refused = loop.add_timings, [True, False]

    def sometimes(folder: Path, rows: Any) -> None:
        if refused and refused.pop(0):
            message = "There is no room."
            raise StoreError(message)
        write(folder, rows)

    monkeypatch.setattr(loop, "add_timings", sometimes)
    report = following(growing, store, lambda: growing.write_until(2), lambda: growing.write_until(4)).run()
    assert (report.untimed, report.trouble) == (0, "There is no room.")
    found = json.loads(CliRunner().invoke(app, ["timings", str(store), "--format", "json"]).output)
    assert [(row["epoch"], row["commit"]) for row in found["epochs"]] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    refused[:] = [True] * 9
    growing.finish()
    result = CliRunner().invoke(app, ["follow", str(growing.path), str(store)])
    assert result.exit_code == 0
    assert "There is no room." in result.stderr


def test_what_the_run_does_is_noted_in_the_end_where_it_could_not_be_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pag_graph.engines import following as loop

    growing, store = GrowingTrace(rounds(8), tmp_path / "trace"), tmp_path / "store"
    growing.finish()
    write, refused = loop.write_status, [True]

    def later(folder: Path, status: Any) -> None:
        if refused:
            refused.pop()
            message = "There is no room."
            raise StoreError(message)
        write(folder, status)

    monkeypatch.setattr(loop, "write_status", later)
    assert following(growing, store).run().trouble == "There is no room."
    assert read_status(store)["complete"]


def test_what_cannot_be_noted_leaves_nothing_behind(tmp_path: Path) -> None:
    # Nothing takes the place of a folder that is not empty.
    (tmp_path / "status.json" / "folder").mkdir(parents=True)
    with pytest.raises(StoreError):
        write_status(tmp_path, {})
    assert [place.name for place in tmp_path.iterdir()] == ["status.json"]
