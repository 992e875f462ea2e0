"""Stores that are followed into Neo4j: killed or slow, the database is what loads at the same details make of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api, samples
from pag_graph.engines.following import Following, Until
from pag_graph.motif.alerts import Rule
from pag_graph.sinks.neo4j.connection import Connection, connection_to_home
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.follow import FollowOptions, follow_store
from pag_graph.sinks.neo4j.loader import LoadOptions, load_run, state
from pag_graph.sinks.neo4j.query import run_query
from pag_graph.sinks.neo4j.retention import KeepDetail
from pag_graph.store.delta import open_store
from pag_graph.store.readers import is_read
from pag_graph.store.retention import Keep
from tests.integration.conftest import PROVE, build_first_epochs
from tests.integration.test_neo4j_export import LAST, Growing, command, contents, wipe
from tests.support.growing import GrowingTrace, rounds
from tests.support.skewed_rounds import SLOW, portions, skewed_rounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import neo4j

    from pag_graph.graph.run import Run
    from pag_graph.neo4j_server.server import ServerStatus

pytestmark = pytest.mark.neo4j

LOAD = LoadOptions(detail=Detail.FULL, group_edges=400, batch_rows=100)
SOON = FollowOptions(load=LOAD, until=Until(idle_s=0.0), look_every_s=0.01)
KILLS = 20 if PROVE else 2
FIRST = 2 if PROVE else 1

FOLLOWER = """
import sys
from dataclasses import replace
from pathlib import Path
from pag_graph.engines.following import Until
from pag_graph.sinks.neo4j.connection import connection_from_environment
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.follow import FollowOptions, follow_store
from pag_graph.sinks.neo4j.loader import LoadOptions
load = LoadOptions(detail=Detail.FULL, group_edges=400, batch_rows=40)
connection = connection_from_environment()
print("ready", flush=True)
follow_store(Path(sys.argv[1]), connection, options=FollowOptions(load=load, until=Until(complete=False)))
"""


@pytest.fixture
def connection(neo4j_server: ServerStatus) -> Connection:
    return connection_to_home(neo4j_server.home)


def details(driver: neo4j.Driver) -> dict[int, str]:
    rows = driver.execute_query("MATCH (e:Epoch {published: true}) RETURN e.epoch AS epoch, e.detail AS detail").records
    return {row["epoch"]: row["detail"] for row in rows}


def load_alike(driver: neo4j.Driver, run: Run) -> tuple[list[str], list[str]]:
    """Return what there is when each epoch is loaded anew with the detail that it has."""
    there = details(driver)
    wipe(driver)
    for detail in Detail:
        if epochs := [epoch for epoch, each in there.items() if each == detail]:
            load_run(run, driver, epochs=epochs, options=replace(LOAD, detail=detail))
    return contents(driver)


def followed(driver: neo4j.Driver) -> tuple[list[str], list[str]]:
    driver.execute_query("MATCH (old:Snapshot {current: false}) DETACH DELETE old")
    return contents(driver)


@pytest.fixture(scope="module")
def some_rounds(skewed: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The trace of 11 epochs, or its first 5."""
    return skewed if PROVE else build_first_epochs("skewed", 4, tmp_path_factory.mktemp("some rounds"))


def test_a_killed_follower_goes_on(neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path) -> None:
    log = Growing(tmp_path)
    log.reach(FIRST)
    chance, killed = random.Random(7), 0
    for number in range(KILLS):
        with command("-c", FOLLOWER, log.store, connection=connection) as process:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            log.reach(FIRST + 1 + number * (LAST - 3 - FIRST) // KILLS)
            try:
                process.wait(chance.uniform(0.0, 1.5))
            except subprocess.TimeoutExpired:
                process.kill()
                killed += 1
    assert killed == KILLS
    grown = log.reach(LAST - 2)
    not_ended = follow_store(log.store, connection, options=SOON)
    assert not_ended.ending == "idle"
    # What is not answered is not there.
    assert max(details(neo4j_driver)) <= grown.info.run["last_answered_epoch"]
    last = log.reach(None)
    done = follow_store(log.store, connection, options=replace(SOON, until=Until()))
    assert done.ending == "complete"
    assert details(neo4j_driver) == dict.fromkeys(last.epochs["epoch"], "full")
    (cursor,) = neo4j_driver.execute_query("MATCH (e:Export {command: 'follow'})-[:EXPORTED]->() RETURN e").records
    assert cursor["e"]["to_commit"] == last.info.commit_id
    assert cursor["e"]["to_version"] == done.version
    there = followed(neo4j_driver)
    assert there == load_alike(neo4j_driver, last)
    again = follow_store(log.store, connection, options=replace(SOON, until=Until()))
    assert (again.epochs, again.ending) == (0, "complete")


def test_states_that_were_left_are_no_longer_held(
    neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path
) -> None:
    del neo4j_driver
    log = Growing(tmp_path)
    log.reach(FIRST)
    first = open_store(log.store).versions["epochs"]
    held = []

    class Looks(Event):
        def is_set(self) -> bool:
            held.append(is_read(log.store, first))
            if len(held) == 1:
                log.reach(FIRST + 1)
            return len(held) == 8

    done = follow_store(log.store, connection, options=replace(SOON, until=Until()), stop=Looks())
    assert done.version > first
    assert (held[0], held[-1]) == (True, False)


def test_epochs_that_wait_get_less_detail_and_none_is_skipped(
    neo4j_driver: neo4j.Driver, connection: Connection, skewed: Run
) -> None:
    # Any wait is too long: the first epochs are loaded with all events, the last ones in sums.
    hurried = replace(SOON, max_lag_s=1e-9, until=Until())
    done = follow_store(skewed.info.path, connection, options=hurried)
    there = details(neo4j_driver)
    assert sorted(there) == skewed.epochs["epoch"].to_list()
    assert {str(detail) for detail in Detail} == set(there.values()) == set(done.by_detail)
    assert done.max_lag_s > 0
    assert [there[epoch] for epoch in sorted(there)] == sorted(
        there.values(), key=[str(detail) for detail in reversed(Detail)].index
    )
    assert followed(neo4j_driver) == load_alike(neo4j_driver, skewed)


KEEPS = ("full:2,critical:4,waits:6,summary:all", "critical:3,waits:5", "full:1,summary:4")
FEW_KEEPS = ("full:1,critical:2,waits:3,summary:all", "critical:1,waits:3")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("keep", KEEPS if PROVE else FEW_KEEPS)
def test_what_is_kept_is_what_loads_at_these_details_make(
    neo4j_driver: neo4j.Driver, connection: Connection, some_rounds: Run, keep: str
) -> None:
    skewed, wanted = some_rounds, KeepDetail.of(keep)
    wipe(neo4j_driver)
    # However long it takes, all details are there before any goes.
    whole = replace(SOON, until=Until(), load=replace(LOAD, group_edges=100), max_lag_s=1e9)
    follow_store(skewed.info.path, connection, options=whole)
    options = replace(whole, keep=wanted)
    done = follow_store(skewed.info.path, connection, options=options)
    assert done.trimmed > 0
    latest = sorted(skewed.epochs["epoch"], reverse=True)
    most = {epoch: wanted.most(place) for place, epoch in enumerate(latest)}
    assert details(neo4j_driver) == {epoch: str(detail) for epoch, detail in most.items() if detail is not None}
    assert followed(neo4j_driver) == load_alike(neo4j_driver, skewed)
    # Nothing that was removed is loaded again.
    again = follow_store(skewed.info.path, connection, options=options)
    assert (again.epochs, again.trimmed) == (0, 0)


def test_epochs_that_were_gone_before_they_were_loaded_are_counted(
    neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path
) -> None:
    wipe(neo4j_driver)
    growing, store = GrowingTrace(rounds(16), tmp_path / "trace"), tmp_path / "store"

    def reach(epoch: int) -> None:
        growing.write_until(epoch)
        until, keep = Until(idle_s=0.0), Keep(epochs=3)
        Following(growing.path, store, commit_every_s=0, until=until, keep=keep).run()

    def follow(keep: str = "all") -> int:
        return follow_store(store, connection, options=replace(SOON, keep=KeepDetail.of(keep))).missed

    def gone() -> set[int]:
        return set(range(min(api.open(store).run.epochs["epoch"])))

    reach(5)
    assert follow() == len(gone()) > 0
    # What is there is loaded, and goes; of what came and went meanwhile nothing was.
    loaded = {*details(neo4j_driver)}
    reach(13)
    missed = len(gone() - loaded)
    assert len(gone()) > missed > 0
    assert follow() == missed
    loaded |= {*details(neo4j_driver)}

    class Grows(Event):
        """At the second look the program has ended, and the store has only its last epoch."""

        looks = 0

        def is_set(self) -> bool:
            self.looks += 1
            if self.looks == 2:
                growing.finish()
                Following(growing.path, store, commit_every_s=0, keep=Keep(epochs=1)).run()
            return False

    done = follow_store(store, connection, options=replace(SOON, until=Until()), stop=Grows())
    assert done.missed == len(gone() - loaded) > missed
    # Who lets the database forget epochs cannot tell which of the old ones it never had.
    assert follow("full:1") == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("exchange_edges", [LOAD.exchange_edges, 0], ids=["exchanged", "taken back"])
def test_what_the_store_has_removed_stays_as_it_was_loaded(
    neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path, exchange_edges: int
) -> None:
    wipe(neo4j_driver)
    growing, store = GrowingTrace(rounds(16), tmp_path / "trace"), tmp_path / "store"
    options = replace(SOON, load=replace(LOAD, exchange_edges=exchange_edges))

    def reach(epoch: int, keep: int) -> Run:
        growing.write_until(epoch)
        Following(growing.path, store, commit_every_s=0, until=Until(idle_s=0.0), keep=Keep(epochs=keep)).run()
        follow_store(store, connection, options=options)
        return api.open(store).run

    def shown(text: str, **values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in neo4j_driver.execute_query(text, values).records]

    reach(4, 9)
    before = reach(5, 9)
    here = str(before.info.run["run_id"])
    there = details(neo4j_driver)
    last = max(there)
    content = Reader(before).read([before.window(epoch=last)], Detail.FULL)
    # Its window shows what is still open, which a later load takes for changed.
    assert content.epochs["highest_epoch"][0] > before.info.run["last_closed_epoch"]
    path = run_query(neo4j_driver, "analyses/critical_path", {"run": here, "epoch": last})
    assert path
    after = reach(11, 3)
    assert last < min(after.epochs["epoch"])
    assert details(neo4j_driver).items() >= there.items()
    # In another state of the store than the last one, so that the run is revised once more.
    after = reach(13, 3)
    assert details(neo4j_driver).items() >= {**there, **dict.fromkeys(_answered(after), "full")}.items()
    assert run_query(neo4j_driver, "analyses/critical_path", {"run": here, "epoch": last}) == path
    activities = shown("MATCH (a:Event)-[r]->(b:Event) RETURN a.id, b.id, toLower(type(r))")
    assert len(activities) == len({*activities})
    assert {*activities} >= {*content.activities.select("src", "dst", "type").iter_rows()}
    assert {*shown("MATCH (s:Segment) RETURN s.id")} >= {*content.segments.select("id").iter_rows()}
    released = shown("MATCH (a:Segment)-[r:RELEASED]->(b) RETURN a.id, b.id, r.src")
    assert {*released} >= {*content.released.select("source", "target", "src").iter_rows()}
    # What the store has is what a load makes of it.
    now = Reader(after).read([after.window(epoch=epoch) for epoch in _answered(after)], Detail.FULL)
    assert {*activities} >= {*now.activities.select("src", "dst", "type").iter_rows()}


def _answered(run: Run) -> list[int]:
    return [epoch for epoch in run.epochs["epoch"] if epoch <= run.info.run["last_answered_epoch"]]


def test_alerts_are_findings(neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path) -> None:
    wipe(neo4j_driver)
    parts = portions(skewed_rounds(16, {6, 7}), [9])
    late = Rule(name="late", query="metrics", where="row.epoch = 3")
    store = tmp_path / "store"

    def told() -> list[tuple[Any, ...]]:
        text = """
            MATCH (:Run)-[:HAS_FINDING]->(f:Finding {finding: 'alert'})
            OPTIONAL MATCH (shown:Snapshot {current: true})-[:CONTAINS]->(f)
            RETURN f.rule AS rule, f.id AS id, f.severity AS severity, f.first_epoch AS first, f.action AS action,
                   f.resolved_epoch AS resolved, shown.epoch AS epoch, f.limit AS limit
            ORDER BY rule"""
        return [tuple(row.values()) for row in neo4j_driver.execute_query(text).records]

    def follow() -> None:
        follow_store(store, connection, options=SOON)

    api.build(parts[0].write(tmp_path / "0"), store, engine="local", alerts=[SLOW])
    follow()
    run = str(open_store(store).run["run_id"])
    slow = (SLOW.name, SLOW.alert_id(run, '{"to_worker":0}', 6), "warning", 6)
    assert told() == [(*slow, "opened", None, 6, 150.0)]
    # An alert that comes without an epoch, as of the frontier.
    api.build(tmp_path / "0", store, engine="local", mode="append", alerts=[late])
    follow()
    assert [row[:1] + row[3:7] for row in told()] == [("late", 3, "resolved", 6, 3), ("slow", 6, "opened", None, 6)]
    api.build(parts[1].write(tmp_path / "1"), store, engine="local", mode="append")
    follow()
    assert told()[1] == (*slow, "resolved", 10, 6, 150.0)
    there = followed(neo4j_driver)
    assert there == load_alike(neo4j_driver, api.open(store).run)


def test_a_look_tells_of_what_is_new_and_of_what_may_have_changed(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    wipe(neo4j_driver)
    load_run(skewed, neo4j_driver, options=replace(LOAD, detail=Detail.SUMMARY))
    (everything,) = state(neo4j_driver, skewed)
    assert everything["epochs"] == skewed.epochs["epoch"].to_list()
    last = everything["epochs"][-1]
    closed = everything["last_closed_epoch"]
    expected = [
        epoch
        for epoch, highest in zip(everything["epochs"], everything["highest"], strict=True)
        if epoch >= last - 1 or highest > closed
    ]
    (some,) = state(neo4j_driver, skewed, last - 1)
    assert some["epochs"] == expected
    assert len(expected) < len(everything["epochs"])
    # As if the run had been loaded when only half of its epochs were closed.
    neo4j_driver.execute_query("MATCH (run:Run) SET run.last_closed_epoch = $closed", {"closed": last // 2})
    (earlier,) = state(neo4j_driver, skewed, last + 1)
    assert set(earlier["epochs"]) == {
        epoch for epoch, highest in zip(everything["epochs"], everything["highest"], strict=True) if highest > last // 2
    }
    wipe(neo4j_driver)
    assert state(neo4j_driver, skewed) == []


def test_a_follower_keeps_neo4j_current_beside_it(
    neo4j_driver: neo4j.Driver, neo4j_server: ServerStatus, tmp_path: Path
) -> None:
    wipe(neo4j_driver)
    growing = GrowingTrace(rounds(4), tmp_path / "trace")
    growing.write_until(2)
    command = [sys.executable, "-c", "from pag_graph.cli.app import main; main()", "follow"]
    command += [str(growing.path), str(tmp_path / "run.pag"), "--neo4j", "--format", "json"]
    surroundings = {**os.environ, "NEO4J_URI": str(neo4j_server.bolt_uri), "NEO4J_USERNAME": "neo4j"}
    surroundings["NEO4J_PASSWORD_FILE"] = str(neo4j_server.password_file)
    with subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        deadline = time.monotonic() + 240
        while not details(neo4j_driver) and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        seen = details(neo4j_driver)
        growing.finish()
        out, err = run.communicate(timeout=240)
    assert run.returncode == 0, err
    # While the program ran, the database had what was answered; in the end it has everything.
    assert seen
    assert json.loads(out)["complete"] is True
    assert (
        sorted(details(neo4j_driver))
        == open_store(tmp_path / "run.pag").scan("epochs").collect()["epoch"].sort().to_list()
    )


def test_a_server_that_is_not_there_is_told_before_anything_is_followed(
    run_pag: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:1")
    monkeypatch.setenv("NEO4J_PASSWORD", "none")
    code, _, err = run_pag("follow", str(samples.path("skewed")), str(tmp_path / "run.pag"), "--neo4j")
    assert code == 6
    assert "127.0.0.1:1" in err
    assert not (tmp_path / "run.pag").exists()
