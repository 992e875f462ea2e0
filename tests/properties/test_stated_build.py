"""Random stated traces: the build is what the definitions say, however the trace is cut; paths span every window."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.analyses import find_analysis
from pag_graph.analyses.constraints import constraint_graph
from pag_graph.analyses.critical_path import critical_path
from pag_graph.model.tables import PAG_TRAFFIC
from pag_graph.testing.strategies import slice_sizes
from tests.support.compare import WAYS, assembled
from tests.support.reference_analyses import reference_path
from tests.support.stated_reference import build_stated, random_stated

if TYPE_CHECKING:
    import pytest

blame = find_analysis("blame")

PROVE = os.environ.get("PAG_PROVE") == "1"
EDGE = ("src", "dst", "type", "start_ns", "duration_ns", "operator", "activation", "records", "read", "flags")
EDGE += ("receive_buffer_ns",)
VERTEX = ("id", "t_ns", "segment")
# What the slow builder does not look at: epochs, application activities, and messages that lack an end.
ELSEWHERE = {
    "application_stop_without_start",
    "epoch_incomplete",
    "epoch_end_not_logged",
    "receive_without_send",
    "send_without_receive",
}


def rows(found: list[dict[str, Any]], names: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in names) for row in found)


@settings(max_examples=10_000 if PROVE else 25)
@given(seed=st.integers(0, 2**32), size=slice_sizes(), causal=st.booleans(), way=st.sampled_from(WAYS))
def test_a_build_is_what_the_definitions_say(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int, *, causal: bool, way: dict[str, int]
) -> None:
    trace = random_stated(seed, causal=causal)
    graph = assembled(trace, tmp_path_factory.mktemp("stated"), slice_events=size, **way)
    expected = build_stated(trace)
    assert rows(graph.edges, EDGE) == rows(expected.edges, EDGE)
    assert rows(graph.vertices, VERTEX) == rows(expected.vertices, VERTEX)
    names = tuple(PAG_TRAFFIC.names)
    assert rows(graph.traffic, names) == rows(expected.traffic, names)
    assert graph.dropped == expected.dropped
    found: Counter[str] = Counter()
    for (name, *_), count in graph.findings.items():
        found[name] += count
    assert {name: count for name, count in found.items() if name not in ELSEWHERE} == expected.findings


@settings(max_examples=1_000 if PROVE else 10)
@given(seed=st.integers(0, 2**32))
@example(seed=111)  # A window that closes where a wait ends.
def test_every_window_is_explained(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    place = tmp_path_factory.mktemp("stated")
    random_stated(seed, causal=True).write(place / "trace")
    api.build(place / "trace", place / "store", engine="local")
    run = api.open(place / "store").run
    edges = run.scan("edges").collect().to_dicts()
    chance = random.Random(seed)
    windows = run.windows()
    for _ in range(4 if run.end_ns > 1 else 0):
        start = chance.randrange(run.end_ns)
        windows.append(run.window(between=(start, chance.randint(start + 1, run.end_ns))))
    for window in windows:
        if not window.span_ns:
            continue
        bounds = {"start": window.start_ns, "end": window.end_ns}
        snapshot = run.snapshot(window)
        path = critical_path(snapshot)
        assert path.length_ns == window.span_ns
        steps = path.steps.to_pylist()
        found = [(step["edge_src"], step["edge_dst"], step["start_ns"], step["duration_ns"]) for step in steps]
        assert found == reference_path(edges, **bounds, end_vertex=window.end_vertex)
        # Building it replays the window, and fails if a single event moves.
        constraint_graph(snapshot, loop="closed", arrival="shortest")
        waits = [edge for edge in edges if edge["type"] == "waiting"]
        inside = (
            min(edge["start_ns"] + edge["duration_ns"], window.end_ns) - max(edge["start_ns"], window.start_ns)
            for edge in waits
        )
        assert sum(blame(snapshot)["blamed_ns"].to_pylist()) == sum(max(0, ns) for ns in inside)
    assert run.epochs["coverage"].is_between(0, 1).all()
