"""Replay kernels on graphs without any meaning, against networkx."""

from __future__ import annotations

from itertools import pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels.replay import (
    NEVER,
    NONE,
    Arcs,
    Groups,
    binding_arcs,
    earliest,
    group_arcs,
    latest,
    scaled_ends,
    slacks,
    topological_order,
)

Graph = tuple[int, list[tuple[int, int, int]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Vertices in topological order, each but 0 with an arc that leads to it."""
    vertices = draw(st.integers(2, 12))
    weight = st.integers(0, 9)
    arcs = [(draw(st.integers(0, vertex - 1)), vertex, draw(weight)) for vertex in range(1, vertices)]
    more = st.tuples(st.integers(0, vertices - 1), st.integers(0, vertices - 1), weight)
    arcs += [(min(a, b), max(a, b), w) for a, b, w in draw(st.lists(more, max_size=25)) if a != b]
    return vertices, draw(st.permutations(arcs))


def columns(graph: Graph) -> tuple[np.ndarray, ...]:
    vertices, arcs = graph
    src, dst, weight = (np.array(column, np.int64) for column in zip(*arcs, strict=True))
    first, position = group_arcs(dst, vertices)
    return first, src[position], dst[position], weight[position]


def longest(graph: Graph, source: int, target: int) -> int | None:
    """Weight of the longest path, found by listing all."""
    dag = nx.MultiDiGraph()
    dag.add_nodes_from(range(graph[0]))
    for src, dst, weight in graph[1]:
        dag.add_edge(src, dst, weight=weight)
    if source == target:
        return 0
    paths = nx.all_simple_edge_paths(dag, source, target)
    return max((sum(dag.edges[edge]["weight"] for edge in path) for path in paths), default=None)


def test_arcs_into_a_vertex_keep_their_order() -> None:
    first, position = group_arcs(np.array([2, 1, 2, 1, 2]), 4)
    assert first.tolist() == [0, 0, 2, 5, 5]
    assert position.tolist() == [1, 3, 0, 2, 4]


@given(graphs())
def test_replays_take_the_longest_way(graph: Graph) -> None:
    first, src, _, weight = columns(graph)
    time = earliest(Arcs(first, src, weight), 100)
    assert time.tolist() == [100 + (longest(graph, 0, vertex) or 0) for vertex in range(graph[0])]
    end = graph[0] - 1
    arcs = binding_arcs(Arcs(first, src, weight), time, np.array([0]), np.array([end]))
    assert weight[arcs].sum() == time[end] - 100
    assert src[arcs[-1]] == 0
    for after, before in pairwise(arcs):
        assert first[src[after]] <= before < first[src[after] + 1]


@given(graphs(), st.data())
def test_latest_times_and_slacks(graph: Graph, data: st.DataObject) -> None:
    first, src, dst, weight = columns(graph)
    end = data.draw(st.integers(0, graph[0] - 1))
    early = earliest(Arcs(first, src, weight), 0)
    late = latest(Arcs(first, src, weight), np.array([end]), early[[end]])
    for vertex in range(graph[0]):
        way = longest(graph, vertex, end)
        assert late[vertex] == (NONE if way is None else early[end] - way)
    # The first three arcs belong to no activity, and one activity has no arc.
    row = np.maximum(np.arange(len(src)) - 3, -1)
    found = slacks(Arcs(first, src, weight), row, len(src) + 1, early, late)
    for arc in range(3, len(src)):
        free = late[dst[arc]] - early[src[arc]] - weight[arc]
        assert found[row[arc]] == (NONE if late[dst[arc]] == NONE else free)
    assert found[len(src)] == NONE


@given(graphs(), st.integers(1, 25))
def test_many_replays_are_the_same_as_each_alone(graph: Graph, steps: int) -> None:
    first, src, dst, weight = columns(graph)
    end = graph[0] - 1
    groups = [np.arange(0, len(src), 2), np.arange(1, len(src), 3), np.arange(0)]
    ends = scaled_ends(
        Arcs(first, src, weight),
        dst,
        earliest(Arcs(first, src, weight), 7),
        Groups(
            np.zeros(len(groups), np.int64),
            np.full(len(groups), end),
            np.cumsum([0, *map(len, groups)]),
            np.concatenate(groups),
            np.concatenate([weight[group] for group in groups]),
        ),
        steps,
    )
    for number, group in enumerate(groups):
        for step in range(1, steps + 1):
            changed = weight.copy()
            changed[group] = np.rint(weight[group] * ((steps - step) / steps))
            assert ends[number, step - 1] == earliest(Arcs(first, src, changed), 7)[end]


def test_what_never_binds_is_as_if_it_were_not_there() -> None:
    first, src, _, weight = columns((3, [(0, 1, 4), (0, 2, 1), (1, 2, NEVER)]))
    time = earliest(Arcs(first, src, weight), 1 << 59)
    assert (time - (1 << 59)).tolist() == [0, 4, 1]
    assert binding_arcs(Arcs(first, src, weight), time, np.array([0]), np.array([2])).tolist() == [1]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_topological_order(times: list[int], data: st.DataObject) -> None:
    t = np.array(times, np.int64)
    number = st.integers(0, len(t) - 1)
    pairs = [(a, b) for a, b in data.draw(st.lists(st.tuples(number, number), max_size=20)) if t[a] <= t[b]]
    src, dst = np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)
    order, stuck = topological_order(np.argsort(t, kind="stable"), t, src, dst)
    dag = nx.DiGraph(pairs)
    if stuck >= 0:
        cycles = {vertex for part in nx.strongly_connected_components(dag) if len(part) > 1 for vertex in part}
        cycles |= {a for a, b in pairs if a == b}
        assert stuck in cycles
        return
    assert nx.is_directed_acyclic_graph(dag)
    assert sorted(order.tolist()) == list(range(len(t)))
    assert (np.diff(t[order]) >= 0).all()
    place = {vertex: at for at, vertex in enumerate(order.tolist())}
    assert all(place[a] < place[b] for a, b in pairs)


def test_a_cycle_in_one_instant_is_found() -> None:
    t = np.array([0, 5, 5, 5, 9], np.int64)
    src, dst = np.array([0, 1, 2, 3, 3]), np.array([1, 2, 3, 2, 4])
    _, stuck = topological_order(np.arange(5), t, src, dst)
    assert stuck in {2, 3}


@pytest.mark.parametrize("numbers", list(permutations(range(4))))
def test_what_only_waits_for_a_cycle_is_not_called_one(numbers: tuple[int, ...]) -> None:
    before, one, other, after = numbers
    arcs = np.array([(before, one), (one, other), (other, one), (other, after)])
    _, stuck = topological_order(np.arange(4), np.zeros(4, np.int64), arcs[:, 0].copy(), arcs[:, 1].copy())
    assert stuck in {one, other}
