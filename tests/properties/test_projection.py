"""Random small traces: windows cut edges as the definition says, and never do all workers wait for nothing."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.testing.strategies import small_traces
from tests.support.compare import assembled

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.testing.traces import SmallTrace

    Row = dict[str, Any]

PROVE = os.environ.get("PAG_PROVE") == "1"
STORES = settings(max_examples=1_000 if PROVE else 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projection")


def any_traces() -> st.SearchStrategy[SmallTrace]:
    return st.one_of(
        small_traces(max_workers=8 if PROVE else 4),
        small_traces(max_workers=4, skewed=True),
        small_traces(max_workers=4, skewed=True, damaged=True),
    )


def cut(edge: Row, start: int, end: int) -> tuple[Any, ...] | None:
    """One edge in a window, straight from the definition: the five cases, one after the other."""
    low, high = edge["start_ns"], edge["start_ns"] + edge["duration_ns"]
    src, dst = edge["src"], edge["dst"]
    at_start, at_end = -1 - 2 * (src // 2**40), -2 - 2 * (dst // 2**40)
    open_start = start or -1
    if high < low:
        inside = min(low, high) >= start and low <= end and max(low, high) > open_start
        return (src, dst, low, high) if inside else None
    if start <= low and high <= end:
        # All of it at the very start belongs to the window before.
        return (src, dst, low, high) if high > open_start else None
    if low < start and end < high:
        return (at_start, at_end, start, end)
    if low < start < high <= end:
        return (at_start, dst, start, high)
    if start <= low < end < high:
        return (src, at_end, low, end)
    return None


@STORES
@given(any_traces(), st.data())
def test_a_window_cuts_every_edge_as_the_definition_says(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("cut")
    trace.write(place / "trace")
    api.build(place / "trace", place / "store", engine="local")
    pag = api.open(place / "store")
    edges = pag.edges().collect().to_dicts()
    instants = sorted({row["start_ns"] for row in edges} | {row["start_ns"] + row["duration_ns"] for row in edges})
    last = pag.run.end_ns
    border = st.integers(0, last) | st.sampled_from([t for t in instants if 0 <= t <= last])
    for _ in range(4 if last else 0):
        start, end = sorted(data.draw(st.tuples(border, border)))
        if start == end:
            continue
        expected: Counter[tuple[Any, ...]] = Counter()
        for edge in edges:
            part = cut(edge, start, end)
            if part is not None:
                expected[edge["src"], edge["dst"], edge["type"], *part] += 1
        found = Counter(
            (
                row["edge_src"],
                row["edge_dst"],
                row["type"],
                row["src"],
                row["dst"],
                row["start_ns"],
                row["start_ns"] + row["duration_ns"],
            )
            for row in pag.snapshot(between=(start, end)).projection().iter_rows(named=True)
        )
        assert found == expected


@given(any_traces())
def test_never_do_all_wait_for_nothing(folder: Path, trace: SmallTrace) -> None:
    """Properties 3.9, 3.10 and 3.11 of CPA, on every graph that comes out."""
    graph = assembled(trace, folder)
    check_progress(graph.edges)
    ends = Counter(edge["dst"] for edge in graph.edges)
    active = {edge["dst"] for edge in graph.edges if edge["type"] != "waiting"}
    for vertex in graph.vertices:
        assert ends[vertex["id"]] or vertex["t_ns"] == 0
    for edge in graph.edges:
        if edge["type"] == "waiting":
            assert edge["dst"] in active


def check_progress(edges: list[Row]) -> None:
    """Sweep over all instants between two events: where every worker waits, a message is under way."""
    local = [edge for edge in edges if edge["read"] is None and edge["duration_ns"] > 0]
    messages = [edge for edge in edges if edge["read"] is not None]
    instants = sorted({t for edge in edges for t in (edge["start_ns"], edge["start_ns"] + edge["duration_ns"])})
    for low, high in pairwise(instants):
        now = [edge for edge in local if edge["start_ns"] <= low and high <= edge["start_ns"] + edge["duration_ns"]]
        if now and all(edge["type"] == "waiting" for edge in now):
            assert any(
                edge["start_ns"] <= low and high <= edge["start_ns"] + edge["duration_ns"] for edge in messages
            ), (low, high)


def test_the_sweep_finds_such_an_instant() -> None:
    wait = {"read": None, "type": "waiting", "start_ns": 0, "duration_ns": 10}
    with pytest.raises(AssertionError):
        check_progress([wait, {**wait, "duration_ns": 8}, {**wait, "type": "busy", "start_ns": 8, "duration_ns": 2}])
    check_progress([wait, wait, {"read": 5, "type": "data_message", "start_ns": 0, "duration_ns": 10}])
