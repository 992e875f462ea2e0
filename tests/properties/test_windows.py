"""Random small traces, random windows: paths are as long as the window, walks are those that one can list."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.analyses.k_hops import KHopsParameters
from pag_graph.testing.reference import build_reference
from pag_graph.testing.strategies import small_traces
from tests.support.reference_analyses import longest_path_ns, reference_k_hops, reference_path

if TYPE_CHECKING:
    import pytest

    from pag_graph.analyses.critical_path import CriticalPath
    from pag_graph.api import Pag, Window
    from pag_graph.testing.traces import SmallTrace

    Rows = list[dict[str, Any]]

PROVE = os.environ.get("PAG_PROVE") == "1"
STORES = settings(max_examples=1_000 if PROVE else 10)


def built(tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace) -> tuple[Pag, Rows]:
    place = tmp_path_factory.mktemp("windows")
    trace.write(place / "trace")
    api.build(place / "trace", place / "store", engine="local")
    return api.open(place / "store"), build_reference(trace).edges


def windows_of(pag: Pag, data: st.DataObject) -> list[Window]:
    """All windows of epochs, and some free ones."""
    end = pag.run.end_ns
    chosen = pag.run.windows()
    for _ in range(3 if end else 0):
        start = data.draw(st.integers(0, end - 1))
        chosen.append(pag.run.window(between=(start, data.draw(st.integers(start + 1, end)))))
    return [window for window in chosen if window.span_ns]


def path_of(pag: Pag, window: Window) -> CriticalPath:
    from pag_graph.analyses.critical_path import critical_path

    return critical_path(pag.run.snapshot(window))


def check_path(path: CriticalPath, edges: Rows) -> None:
    """It spans the window, its steps connect, and each is an edge of the store or a cut of one."""
    window, steps = path.window, path.steps.to_pylist()
    assert path.length_ns == window.span_ns
    assert sum(path.by_type.values()) == window.span_ns
    assert [step["step"] for step in steps] == list(range(len(steps)))
    known = Counter((edge["src"], edge["dst"], edge["type"], edge["start_ns"], edge["duration_ns"]) for edge in edges)
    types = {(edge["src"], edge["dst"]): edge for edge in edges}
    now = window.start_ns
    for before, after in pairwise(steps):
        assert before["dst"] == after["src"] == before["edge_dst"] == after["edge_src"]
    for step in steps:
        edge = types[step["edge_src"], step["edge_dst"]]
        assert known[edge["src"], edge["dst"], step["type"], edge["start_ns"], edge["duration_ns"]]
        assert step["type"] != "waiting"
        assert step["start_ns"] == now
        now += step["duration_ns"]
        assert step["src"] == (-1 if edge["start_ns"] < window.start_ns else edge["src"])
        assert step["dst"] == (-2 if edge["start_ns"] + edge["duration_ns"] > window.end_ns else edge["dst"])
    assert now == window.end_ns


@STORES
@given(small_traces(max_workers=8 if PROVE else 4, instant=False), st.data())
def test_critical_paths(tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject) -> None:
    pag, edges = built(tmp_path_factory, trace)
    for window in windows_of(pag, data):
        path = path_of(pag, window)
        check_path(path, edges)
        steps = path.steps.to_pylist()
        found = [(step["edge_src"], step["edge_dst"], step["start_ns"], step["duration_ns"]) for step in steps]
        bounds = {"start": window.start_ns, "end": window.end_ns}
        assert found == reference_path(edges, **bounds, end_vertex=window.end_vertex)
        assert longest_path_ns(edges, **bounds) == window.span_ns


@STORES
@given(small_traces(max_workers=4, skewed=True), st.data())
def test_critical_paths_of_traces_with_coarse_and_wrong_clocks(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject
) -> None:
    pag, edges = built(tmp_path_factory, trace)
    for window in windows_of(pag, data):
        check_path(path_of(pag, window), edges)


@STORES
@given(
    small_traces(max_workers=4, max_steps=40, skewed=True),
    st.data(),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(("delivered", "transfer")),
)
def test_k_hops(
    tmp_path_factory: pytest.TempPathFactory,
    trace: SmallTrace,
    data: st.DataObject,
    k: int,
    through_waits: bool,  # noqa: FBT001  (Hypothesis draws it)
    weight: Any,
) -> None:
    pag, edges = built(tmp_path_factory, trace)
    parameters = KHopsParameters(k=k, through_waits=through_waits, weight=weight)
    from pag_graph.analyses import find_analysis

    k_hops = find_analysis("k-hops")

    for window in windows_of(pag, data):
        found: Counter[tuple[int, str, int, int | None, str]] = Counter()
        for row in k_hops(pag.run.snapshot(window), parameters).to_pylist():
            for name in ("walks", "edges", "walk_ns", "edge_ns"):
                found[row["hop"], row["type"], row["worker"], row["operator"], name] += row[name]
        expected = reference_k_hops(
            edges, start=window.start_ns, end=window.end_ns, k=k, through_waits=through_waits, weight=weight
        )
        assert +found == +expected
        assert -found == -expected


@STORES
@given(small_traces(max_workers=4, skewed=True), st.data())
def test_waits_and_traffic_add_up(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject
) -> None:
    pag, edges = built(tmp_path_factory, trace)
    sent = sum(edge["read"] is not None for edge in edges)
    assert sum(sum(pag.traffic(epoch=epoch)["messages"].to_pylist()) for epoch in pag.epochs["epoch"]) == sent
    for row in pag.epochs.iter_rows(named=True):
        table = pag.waits(epoch=row["epoch"]).to_pylist()
        assert sum(wait["waiting_ns"] for wait in table) == row["waiting_ns"]
        assert all(wait["from_worker"] is not None for wait in table)
    for window in windows_of(pag, data):
        snapshot = pag.run.snapshot(window)
        ends = {*snapshot.edges["src"], *snapshot.edges["dst"]}
        assert set(snapshot.vertices()["id"].to_pylist()) == ends
        touching = [
            (edge["src"], edge["dst"])
            for edge in edges
            if max(edge["start_ns"], edge["start_ns"] + edge["duration_ns"])
            > window.start_ns - (window.start_ns == 0 and not window.follows)
            and min(edge["start_ns"], edge["start_ns"] + edge["duration_ns"]) <= window.end_ns
        ]
        assert Counter(snapshot.edges.select("src", "dst").iter_rows()) == Counter(touching)
