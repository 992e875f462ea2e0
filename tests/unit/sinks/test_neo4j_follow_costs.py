"""What a follower into Neo4j does once for many epochs, and which of a database it looks at to remove detail."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pag_graph import api
from pag_graph.cypher import load_query
from pag_graph.neo4j_server.lease import Lease
from pag_graph.sinks.neo4j import loader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.follow import FollowOptions, _Following
from pag_graph.sinks.neo4j.groups import grouped
from pag_graph.sinks.neo4j.load_tasks import Counts
from pag_graph.sinks.neo4j.loader import Held, LoadOptions, LoadReport, _Load
from pag_graph.sinks.neo4j.retention import KeepDetail
from pag_graph.sinks.neo4j.writer import Writer
from pag_graph.store.needed import EpochsNeeded
from tests.support.growing import rounds

if TYPE_CHECKING:
    import neo4j

    from pag_graph.graph.run import Run

ROUNDS = 16


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("costs")
    rounds(ROUNDS).write(folder / "trace")
    api.build(folder / "trace", folder / "store", engine="local")
    return api.open(folder / "store").run


def following(run: Run, group_edges: int = 10**6) -> _Following:
    lease = Lease(run="run", holder="", lanes=1, lease_ms=60_000)
    options = FollowOptions(load=LoadOptions(group_edges=group_edges))
    return _Following(run, cast("neo4j.Driver", None), lease, options, lambda *_: None, EpochsNeeded(run.info.path))


@pytest.mark.parametrize("epochs", [1, 5])
def test_epochs_that_are_chosen_together_are_one_group(whole: Run, epochs: int) -> None:
    # Room for these, and for half of another one.
    edges = whole.epochs["edges"].to_list()
    room = sum(edges[:epochs]) + edges[epochs] // 2
    fresh = following(whole, room)._fresh(set())
    assert fresh == whole.epochs["epoch"].to_list()[:epochs]
    assert len(grouped(whole, whole.windows(fresh), {}, Detail.SUMMARY, room)) == 1
    # However large it is, an epoch is loaded.
    assert following(whole, 1)._fresh(set()) == fresh[:1]


@pytest.mark.parametrize("keep", ["full:2,waits:5,summary:all", "waits:4,summary:all", "full:3,summary:9", "waits:3"])
def test_what_is_due_follows_from_the_epochs_that_are_looked_at(keep: str) -> None:
    wanted, chance = KeepDetail.of(keep), random.Random(1)
    look = wanted.looks_at()
    for _ in range(200):
        details = {epoch: chance.choice(list(Detail)) for epoch in range(chance.randrange(30))}
        latest = sorted(details)[-look["latest"] :]
        seen = {epoch: detail for epoch, detail in details.items() if epoch in latest or detail in look["more"]}
        for exactly in (False, True):
            assert wanted.due(seen, exactly=exactly) == wanted.due(details, exactly=exactly)


def test_summaries_are_not_looked_at_to_take_detail_from_others() -> None:
    look = KeepDetail.of("full:20,waits:200,summary:all").looks_at()
    assert look == {"latest": 200, "more": ["waits", "critical", "full"]}


def test_a_summary_is_written_and_shown_in_one_transaction(whole: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions: list[list[str]] = []
    monkeypatch.setattr(
        Writer, "write_all", lambda _, statements: transactions.append([text for text, _ in statements])
    )
    monkeypatch.setattr(Writer, "read", lambda *_: [])
    windows = whole.windows(whole.epochs["epoch"].to_list())
    groups = grouped(whole, windows, {}, Detail.SUMMARY, 10**6)
    lease = Lease(run="run", holder="", lanes=1, lease_ms=60_000)
    driver = cast("neo4j.Driver", None)
    load = _Load(whole, driver, LoadOptions(detail=Detail.SUMMARY), lambda *_: None)
    load._load_in_process(Writer(driver, lease), groups, Counts())
    (statements,) = transactions
    assert (statements[0], statements[-1]) == (load_query("load/begin_epochs").text, load_query("load/publish").text)


def test_what_is_there_is_asked_for_once_and_only_behind_what_is_loaded(
    whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [{"last_closed_epoch": whole.info.run["last_closed_epoch"], "events": whole.info.events}]
    known[0] |= {name: [] for name in ("epochs", "details", "published", "highest")}
    asked: list[object] = []
    handed: list[object] = []

    def state(_driver: object, _run: object, *since: int) -> list[dict[str, object]]:
        asked.append(since)
        return known

    def load_run(*_: object, held: Held, **__: object) -> LoadReport:
        handed.append(held.known)
        return cast("LoadReport", SimpleNamespace(epochs=()))

    monkeypatch.setattr(loader, "state", state)
    monkeypatch.setattr(loader, "load_run", load_run)
    follower = following(whole)
    follower._there = set(whole.epochs["epoch"].to_list()[:5])
    assert follower._step()
    assert asked == [(whole.epochs["epoch"][5],)]
    assert handed == [known]
