"""What a follower tells of a run beside its epochs: what is new in each state of the store, however old the run is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("neo4j", reason="Neo4j's driver is not installed")

from pag_graph.api.standing import standings
from pag_graph.cypher import load_query
from pag_graph.engines.following import Following, Until
from pag_graph.graph.run import Run
from pag_graph.motif.alerts import Rule
from pag_graph.neo4j_server.lease import Lease
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.load_steps import describe
from pag_graph.sinks.neo4j.model import WORKER, merge_nodes
from pag_graph.sinks.neo4j.told import Told
from pag_graph.sinks.neo4j.writer import Writer
from pag_graph.store import history
from tests.support.growing import GrowingTrace, rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

STATES = 24
EARLY, LATE = slice(3, 8), slice(STATES - 5, STATES)
EVERY = Rule(name="every", query="metrics", where="row.epoch >= 0")


class Noting(Writer):
    """Keeps what would be written: per query, the lists of all calls that were not empty."""

    def __init__(self) -> None:
        driver: Any = None
        super().__init__(driver, Lease(run="r", holder="h", lanes=1, lease_ms=1))
        self.rows: dict[str, list[int]] = {}

    def write_all(
        self, statements: Sequence[tuple[str, Mapping[str, Any]]], lane: int | None = None
    ) -> list[dict[str, Any]]:
        del lane
        for text, values in statements:
            lists = [len(value) for value in values.values() if isinstance(value, list)]
            self.rows.setdefault(text, []).append(max(lists, default=0))
        return []


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Told]], list[tuple[int, Any]]]:
    """Follow a trace commit by commit; return per state the commits that were read, and what was written."""
    read: list[int] = []
    work = history.read_content

    def reads(directory: Path, version: int) -> Any:
        read.append(version)
        return work(directory, version)

    monkeypatch.setattr(history, "read_content", reads)

    def states(told_at: Callable[[], Told]) -> list[tuple[int, dict[str, list[int]]]]:
        derive = standings((), (EVERY,))
        growing, store, seen = GrowingTrace(rounds(STATES + 2), tmp_path / "trace"), tmp_path / "store", []
        for epoch in range(STATES):
            growing.write_until(epoch + 1)
            Following(growing.path, store, commit_every_s=0, until=Until(idle_s=0.0), derive=derive).run()
            run, told, writer = Run(store), told_at(), Noting()
            read.clear()
            describe(writer, Reader(run, told=told), 5_000, logs=False)
            told.arrived(run)
            seen.append((len(read), writer.rows))
        return seen

    return states


def test_a_state_costs_what_is_new_in_it(states: Callable[[Callable[[], Told]], list[tuple[int, Any]]]) -> None:
    told = Told()
    seen = states(lambda: told)
    early, late = seen[EARLY], seen[LATE]
    assert max(read for read, _ in late) <= max(read for read, _ in early) <= 3
    jobs = load_query("load/jobs").text
    assert all(rows[jobs] == [1] for _, rows in seen[1:])
    assert max(len(rows) for _, rows in late) <= max(len(rows) for _, rows in early)
    assert max(max(sizes) for _, rows in late for sizes in rows.values()) <= 4


def test_whoever_begins_late_tells_of_many_commits_in_portions(tmp_path: Path) -> None:
    growing, store, writer = GrowingTrace(rounds(STATES + 2), tmp_path / "trace"), tmp_path / "store", Noting()
    for epoch in range(STATES):
        growing.write_until(epoch + 1)
        Following(growing.path, store, commit_every_s=0, until=Until(idle_s=0.0)).run()
    describe(writer, Reader(Run(store)), 10, logs=False)
    assert writer.rows[load_query("load/jobs").text] == [10, 10, 4]


def test_workers_are_told_of_when_one_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``logs`` they had been told of once: one that was born later took until the next time with them."""
    growing, store, told = GrowingTrace(rounds(3), tmp_path / "trace"), tmp_path / "store", Told()
    growing.finish()
    Following(growing.path, store, commit_every_s=0, until=Until()).run()
    run, all_workers = Run(store), Reader.workers
    monkeypatch.setattr(Reader, "workers", lambda reader: all_workers(reader).head(1))
    told_of = []
    for _ in range(3):
        writer = Noting()
        describe(writer, Reader(run, told=told), 5_000, logs=False)
        told.arrived(run)
        told_of.append(writer.rows.get(merge_nodes(WORKER)))
        monkeypatch.setattr(Reader, "workers", all_workers)
    assert told_of == [[1], [2], None]
