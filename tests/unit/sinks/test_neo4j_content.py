"""What epochs show in Neo4j: the same together and alone, with as many calls however many they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import local_inside
from pag_graph.engines.following import Following, Until
from pag_graph.model.tables import CRITICAL_PATH
from pag_graph.sinks.neo4j.content import Content, Reader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.store.leftovers import vacuum
from pag_graph.store.retention import Keep
from pag_graph.testing.traces import draw
from tests.support.growing import GrowingTrace, rounds
from tests.support.skewed_rounds import skewed_rounds

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from pag_graph.graph.run import Run
    from pag_graph.testing.traces import SmallTrace

TABLES = ("epochs", "snapshots", "segments", "then", "released", "findings", "spent", "steps", "events", "ends")


def built(trace: SmallTrace, place: Path) -> Run:
    return api.open(api.build(trace.write(place / "trace"), place / "store", engine="local").store.path).run


@pytest.mark.parametrize("detail", Detail)
def test_epochs_show_the_same_together_and_alone(tmp_path: Path, detail: Detail) -> None:
    run = built(skewed_rounds(8, {3, 4}), tmp_path)
    windows = run.windows()
    together = Reader(run).read(windows, detail)
    alone = [Reader(run).read([window], detail) for window in windows]
    assert together.snapshots.height == len(windows) > 5

    def rows(contents: list[Content], name: str) -> list[str]:
        # Neighbours show some of the same.
        return sorted({repr(row) for content in contents for row in getattr(content, name).iter_rows(named=True)})

    for name in TABLES:
        assert rows([together], name) == rows(alone, name), name
    edges = together.activities.select("src", "dst", "type").rows()
    assert set(edges) == {row for content in alone for row in content.activities.select("src", "dst", "type").rows()}


def test_sums_and_paths_are_those_of_the_analyses(tmp_path: Path) -> None:
    run = built(skewed_rounds(6, {3}), tmp_path)
    windows = run.windows()
    content = Reader(run).read(windows, Detail.CRITICAL)
    assert content.steps.height > len(windows) < content.spent.height
    for window, snapshot in zip(windows, content.snapshots["id"], strict=True):
        part = run.snapshot(window)
        path = pl.DataFrame(pl.from_arrow(critical_path(part).steps))
        steps = content.steps.filter(pl.col("snapshot") == snapshot).select(CRITICAL_PATH.names)
        assert steps.rows() == path.select(CRITICAL_PATH.names).rows()
        spent = content.spent.filter(pl.col("snapshot") == snapshot)
        of_operators = local_inside(part).filter(pl.col("operator").is_not_null())
        assert spent["ns"].sum() == of_operators["inside_ns"].sum()
        assert spent["path_ns"].sum() == path.filter(pl.col("operator").is_not_null())["duration_ns"].sum()


@pytest.mark.parametrize("detail", [Detail.SUMMARY, Detail.WAITS])
def test_many_epochs_take_hardly_more_calls_than_a_few(tmp_path: Path, detail: Detail) -> None:
    run, calls = built(rounds(60), tmp_path), 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        del argument
        calls += event == "call" and "polars" in frame.f_code.co_filename

    counts = []
    for windows in (run.windows()[5:10], run.windows()[5:55]):
        calls, reader = 0, Reader(run)
        sys.setprofile(count)
        try:
            content = reader.read(windows, detail)
        finally:
            sys.setprofile(None)
        assert content.snapshots.height == len(windows)
        counts.append(calls)
    assert 0 < counts[1] < 1.2 * counts[0]


def over_borders(count: int) -> SmallTrace:
    """Worker 1 never waits; what it sends in a round arrives, and ends a wait of worker 0, when the round is over."""
    logs: list[list[str]] = [[], []]
    for number in range(count):
        t = 20 * number
        logs[0].append(
            f"{t} start 2 | {t + 1} stop 2 | {t + 7} end | {t + 8} park | {t + 12} unpark"
            f" | {t + 12} recv 3<1 #{number} @{t + 11}"
        )
        logs[1].append(f"{t} start 1 | {t + 5} send 3>0 #{number} | {t + 6} stop 1 | {t + 6} end")
    return draw(*(" | ".join(log) for log in logs))


def test_what_follows_removed_epochs_shows_the_same(tmp_path: Path) -> None:
    """A segment is shown whole, though most of it was removed, and so is who sent what released it."""
    growing, store = GrowingTrace(over_borders(16), tmp_path / "growing"), tmp_path / "kept"
    for epoch in range(2, 16, 2):
        growing.write_until(epoch)
        Following(growing.path, store, commit_every_s=0, until=Until(idle_s=0.0), keep=Keep(epochs=3)).run()
        vacuum(store, forget=True)
    growing.finish()
    Following(growing.path, store, keep=Keep(epochs=3)).run()
    kept, whole = api.open(store).run, built(over_borders(16), tmp_path)
    assert kept.epochs["epoch"][0] > 10
    senders = []
    for number in kept.epochs["epoch"].to_list():
        content, expected = (Reader(run).read([run.window(epoch=number)], Detail.FULL) for run in (kept, whole))
        for name in ("segments", "then", "released", "spent", "steps", "events", "activities"):
            rows = [getattr(shown, name).drop("snapshot", strict=False) for shown in (content, expected)]
            assert rows[0].equals(rows[1]), (number, name)
        # That of worker 1 began with the run.
        assert content.segments["round"].to_list()[-1] == 0
        senders.append(content.released["sender_operator"].to_list())
    # What the first of them waited for was sent before.
    assert senders[:2] == [[1], [1]]
