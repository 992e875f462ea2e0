"""What an open page is told: an event per closed epoch, alerts that open and are resolved, and whom a run waits for."""

from __future__ import annotations

import json
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from pag_graph import api, samples
from pag_graph.store.live import read_status, write_status
from pag_graph.workbench import app as workbench
from pag_graph.workbench import news
from pag_graph.workbench.app import ANSWERS, Workbench, make_app
from pag_graph.workbench.library import Library, is_live
from pag_graph.workbench.news import Known, News
from tests.support.asgi import get, scope_of
from tests.support.growing import GrowingTrace, rounds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pag_graph.workbench.library import Opened


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A run that was followed, with alerts."""
    folder = tmp_path_factory.mktemp("followed")
    api.follow(
        samples.path("skewed"), folder / "run.pag", queries=["critical-path"], alerts="docs/examples/alerts.toml"
    )
    return Library([folder])


def parsed(event: bytes) -> tuple[str, int | None, Any]:
    """Return an event's name, its id, and what it says."""
    lines = dict(line.split(": ", 1) for line in event.decode().splitlines() if line)
    return lines["event"], int(lines["id"]) if "id" in lines else None, json.loads(lines["data"])


def told(library: Library, after: int | None, count: int) -> list[tuple[str, int | None, Any]]:
    """Return the first events of a stream."""
    (name,) = library.stores()

    async def listen() -> list[bytes]:
        events: AsyncIterator[bytes] = Workbench(library).news.told(name, after)
        return [await anext(events) for _ in range(count)]

    return [parsed(event) for event in anyio.run(listen)]


def test_every_closed_epoch_is_told_once_and_a_reconnection_goes_on(followed: Library) -> None:
    (name,) = followed.stores()
    run = followed.open(name).pag.run
    events = told(followed, -1, 14)
    assert [event[0] for event in events] == ["commit", *["epoch"] * 11, "alerts", "ongoing"]
    epochs = events[1:12]
    assert [number for _, number, _ in epochs] == list(range(11))
    for (_, _, said), row in zip(epochs, run.epochs.sort("epoch").iter_rows(named=True), strict=True):
        assert (said["start"], said["end"]) == (row["start_ns"], row["end_ns"])
        assert sum(said["types"].values()) == row["end_ns"] - row["start_ns"]
    # Whoever has seen epoch 8 hears of the two after it.
    assert [event[1] for event in told(followed, 8, 4)] == [None, 9, 10, None]
    # Whoever knows none asks for none.
    assert [event[0] for event in told(followed, None, 3)] == ["commit", "alerts", "ongoing"]


def test_who_has_drawn_a_commit_hears_of_another_one_only(runs: Path, tmp_path: Path) -> None:
    """A store that was removed and built again has the run and the version of the first one."""
    store = tmp_path / "run.pag"
    library = Library([tmp_path])
    shutil.copytree(runs / "skewed.pag", store)
    (name,) = library.stores()
    commit = library.open(name).commit

    async def listen() -> list[bytes]:
        events = Workbench(library).news.told(name, 10, commit)
        heard = [await anext(events), await anext(events)]
        shutil.rmtree(store)
        heard.append(await anext(events))
        await anyio.to_thread.run_sync(partial(api.build, samples.path("skewed"), store, engine="local"))
        return [*heard, await anext(events)]

    first, nothing, gone, last = anyio.run(listen)
    assert nothing == gone == b":\n\n"
    told = [parsed(event)[2] for event in (first, last)]
    assert [(each["run"], each["version"]) for each in told] == [(told[0]["run"], 0)] * 2
    assert [each["commit"] for each in told] == [commit, api.open(store).run.info.commit_id]
    assert told[0] != told[1]


def test_a_store_that_goes_before_its_epochs_are_read_is_awaited(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was opened, and then there was nothing to be read; the stream ended, and the page heard of no other store."""
    store = tmp_path / "run.pag"
    shutil.copytree(runs / "skewed.pag", store)
    library = Library([tmp_path])
    (name,) = library.stores()
    whole = library.open

    def opened_and_gone(name: str) -> Opened:
        opened = whole(name)
        monkeypatch.setattr(library, "open", whole)
        shutil.rmtree(store)
        return opened

    async def listen() -> list[bytes]:
        monkeypatch.setattr(library, "open", opened_and_gone)
        events = Workbench(library).news.told(name, 8)
        heard = [await anext(events)]
        shutil.copytree(runs / "skewed.pag", store)
        return heard + [await anext(events) for _ in range(3)]

    gone, *told = anyio.run(listen)
    assert gone == b":\n\n"
    assert [parsed(event)[:2] for event in told] == [("commit", None), ("epoch", 9), ("epoch", 10)]


def test_news_wait_for_their_turn_while_too_many_ask(followed: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is a refusal to a question was the end of a stream, and the page stood still."""
    (name,) = followed.stores()

    async def listen() -> list[bytes]:
        events = Workbench(followed).news.told(name, 8)
        monkeypatch.setattr(workbench, "WAITING", 0)
        return [await anext(events) for _ in range(3)]

    assert [parsed(event)[:2] for event in anyio.run(listen)] == [("commit", None), ("epoch", 9), ("epoch", 10)]


def test_clocks_that_are_not_aligned_end_no_stream(tmp_path: Path) -> None:
    """Such a run has no critical paths, and its commits are told all the same."""
    api.build(samples.path("skewed"), tmp_path / "run.pag", engine="local", rules="st2", force_rules=True)
    assert [event[0] for event in told(Library([tmp_path]), 8, 1)] == ["commit"]


def test_a_commit_says_whether_a_later_one_changes_its_epochs(tmp_path: Path) -> None:
    trace, said = GrowingTrace(rounds(4), tmp_path / "trace"), []
    library = Library([tmp_path])
    trace.write_until(1)
    for is_last in (False, True):
        if is_last:
            trace.finish()
        api.follow(trace.path, tmp_path / "run.pag", until="idle:20ms")
        said.append(told(library, None, 1)[0][2]["open"])
    assert said == [True, False]


def test_a_browser_that_comes_back_hears_what_it_missed(followed: Library) -> None:
    (name,) = followed.stores()
    app = make_app(followed)

    def ids(headers: dict[str, str]) -> list[int]:
        answer = get(app, f"/api/run/{name}/events?after=5", headers, leave_after=6)
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [int(line[4:]) for line in answer.body.decode().splitlines() if line.startswith("id: ")]

    assert ids({}) == [6, 7, 8, 9, 10]
    # The browser repeats the address that it began with; the id of the last event says more.
    assert ids({"Last-Event-ID": "8"}) == [9, 10]
    assert ids({"Last-Event-ID": "nonsense"}) == [6, 7, 8, 9, 10]


def test_alerts_are_those_of_the_store_the_open_ones_first(followed: Library) -> None:
    (name,) = followed.stores()
    path = followed.open(name).pag.run.info.path
    rows = api.alerts(path).to_pylist()
    opened = {row["id"] for row in rows} - {row["id"] for row in rows if row["event"] == "resolved"}
    assert followed.rows()[0]["alerts"] == len(opened)
    last = {row["id"]: row["event"] for row in rows}
    (said,) = [event[2]["alerts"] for event in told(followed, None, 2) if event[0] == "alerts"]
    assert {row["id"]: row["event"] for row in said} == last
    assert {"opened", "resolved"} == set(last.values())
    states = [row["event"] for row in said]
    assert states == sorted(states)


def test_what_goes_on_is_what_the_follower_saw(followed: Library) -> None:
    (name,) = followed.stores()
    said = told(followed, None, 3)[-1][2]
    assert said["complete"]
    assert said["closed_ns"] == followed.open(name).pag.run.epochs["end_ns"].max()
    assert said["lag_ns"] > 0
    assert said["why"] is None or said["holder"]
    assert len(said["workers"]) == 4


def test_a_commit_costs_what_is_new_in_it(followed: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = followed.stores()
    opened, known = followed.open(name), Known()
    known.update(opened)
    assert known.epochs is not None
    whole, asked = known.epochs, []

    def counted(store: Any, *, since: int) -> Any:
        asked.append(since)
        return api.alerts(store, since=since)

    monkeypatch.setattr(news, "alerts", counted)
    known.update(opened)
    assert asked == []
    # As if the last two epochs had come with this commit.
    known.epochs, known.version = whole.filter(whole["epoch"] < 9), opened.version - 1
    known.update(opened)
    assert asked == [opened.version - 1]
    assert known.epochs.equals(whole)


def test_alerts_that_were_resolved_long_ago_are_forgotten(followed: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = followed.stores()
    monkeypatch.setattr(news, "MOST_ALERTS", 2)
    known = Known()
    known.update(followed.open(name))
    open_ones = [row for row in known.alerts.values() if row["event"] == "opened"]
    assert len(known.alerts) == max(2, len(open_ones))
    assert len(known.told_alerts()) == 2


def test_runs_that_nobody_looks_at_are_forgotten(followed: Library) -> None:
    kept = News(followed, partial)
    for number in range(20):
        kept.known(f"run {number}")
    assert len(kept._known) == news._RUNS
    assert "run 19" in kept._known


def test_browsers_that_read_nothing_hold_nobody(followed: Library) -> None:
    """More of them than answers are worked on at a time; those who ask beside them are answered."""
    app = make_app(followed)
    (name,) = followed.stores()
    silent, all_silent, told = 0, anyio.Event(), []

    async def receive() -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    async def never(message: Any) -> None:
        nonlocal silent
        if message.get("body"):
            silent += 1
            if silent == ANSWERS + 2:
                all_silent.set()
            await anyio.sleep_forever()

    async def answered(message: Any) -> None:
        told.append(message)
        await anyio.lowlevel.checkpoint()

    async def ask() -> None:
        async with anyio.create_task_group() as browsers:
            for _ in range(ANSWERS + 2):
                browsers.start_soon(app, scope_of(f"/api/run/{name}/events"), receive, never)
            with anyio.fail_after(60):
                await all_silent.wait()
                await app(scope_of("/api/runs"), receive, answered)
            browsers.cancel_scope.cancel()

    anyio.run(ask)
    assert told[0]["status"] == 200
    # Nothing is made for them in advance: each was handed one event, and there is no queue.
    assert silent == ANSWERS + 2


def test_a_run_that_was_built_has_no_follower(library: Library, store: str, runs: Path) -> None:
    assert news.ongoing(library.open(store)) is None
    assert api.alerts(runs / "skewed.pag").num_rows == 0
    (first, *_) = told(library, None, 1)
    assert first[0] == "commit"
    assert not first[2]["followed"]


def test_a_run_is_live_while_its_follower_looks(followed: Library, tmp_path: Path) -> None:
    (path,) = followed.stores().values()
    assert not followed.rows()[0]["live"]
    folder = tmp_path / "_live"
    folder.mkdir()
    for complete, ago_s, live in ((False, 0, True), (False, 3_600, False), (True, 0, False)):
        write_status(folder, {**read_status(path), "complete": complete, "looked_ns": time.time_ns() - ago_s * 10**9})
        assert is_live(tmp_path) is live
