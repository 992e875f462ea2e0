"""What epochs show in Neo4j: the same together and alone, with as many calls however many they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import local_inside
from pag_graph.model.tables import CRITICAL_PATH
from pag_graph.sinks.neo4j.content import Content, Reader
from pag_graph.sinks.neo4j.detail import Detail
from tests.support.growing import rounds
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
