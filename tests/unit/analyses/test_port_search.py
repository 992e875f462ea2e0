"""The search for ports: the numbers of Tang and Gedik's example, and enumeration of all sets of ports."""

from __future__ import annotations

import itertools
import math
import os
import random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.analyses.advising.port_search import Group, Threads, search

PROVE = bool(os.environ.get("PAG_PROVE"))
EXAMPLE = Threads(
    busy={0: 0.90, 1: 1.00, 2: 0.90, 3: 0.95},
    below={
        1: {0: 0.15},
        3: {0: 0.50, 1: 0.50},
        4: {0: 0.20, 1: 0.20, 2: 0.15},
        6: {2: 0.30},
        8: {3: 0.60},
        9: {3: 0.30},
        10: {2: 0.05, 3: 0.20},
    },
)


def nodes(threads: Threads, *, prune: bool, sort: bool) -> int:
    return sum(group.nodes for group in search(threads, prune=prune, sort=sort))


def test_utilities_of_the_example() -> None:
    expected = {1: 0.75, 3: 1.00, 4: 0.80, 6: 0.60, 8: 0.60, 9: 0.65, 10: 0.85}
    assert {one: EXAMPLE.utility(one) for one in EXAMPLE.below} == pytest.approx(expected)
    assert EXAMPLE.left(3) == pytest.approx({0: 0.4, 1: 0.5})
    assert EXAMPLE.taken(3) == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("prune", "sort", "count"), [(False, False, 9), (False, True, 9), (True, False, 5), (True, True, 3)]
)
def test_the_example_is_searched_as_in_figure_5(*, prune: bool, sort: bool, count: int) -> None:
    [group] = search(EXAMPLE, prune=prune, sort=sort)
    assert (group.threads, group.ports, group.nodes) == ((0, 1, 2, 3), (4, 4, 4, 8), count)
    assert (group.utility, group.before, group.limited) == (pytest.approx(0.8), 1.0, False)


def test_only_busy_threads_are_helped_and_all_threads_count() -> None:
    # o4 leaves o0 and o2, which are not busy, too: its thread takes 0.55, and t1 keeps 0.8.
    groups = search(EXAMPLE, beta=0.92)
    assert [(group.threads, group.ports) for group in groups] == [((1,), (4,)), ((3,), (8,))]
    assert max(group.utility for group in groups) == pytest.approx(0.8)


def test_the_new_threads_of_a_port_share_what_they_take() -> None:
    threads = Threads(busy=dict.fromkeys(range(3), 0.9), below={5: {0: 0.5, 1: 0.4, 2: 0.3}})
    assert threads.taken(5, 2) == pytest.approx([0.8, 0.4])
    assert threads.utility(5, 2) == pytest.approx(0.8)
    assert threads.utility(5, 3) == pytest.approx(0.6)


def test_splitting_eight_equal_operators_takes_three_steps() -> None:
    # Each thread runs a chain; after a step all are saturated again.
    chains, counts = [8], [1]
    while True:
        busy = dict.fromkeys(range(len(chains)), 1.0)
        below = {
            100 * thread + place: {thread: (length - place) / length}
            for thread, length in enumerate(chains)
            for place in range(length)
        }
        groups = search(Threads(busy=busy, below=below))
        ports = [group.ports[0] for group in groups if group.ports[0] is not None]
        if not ports:
            break
        chains = [part for port in ports for part in (port % 100, chains[port // 100] - port % 100)]
        counts.append(len(chains))
    assert counts == [1, 2, 4, 8]


def test_so_many_sets_there_are() -> None:
    # PIPE, section 1, says multiple billions.
    assert sum(math.comb(50, count) for count in range(9)) == 655_023_686


def reverse_tree(height: int, *, from_leaves: bool = False, nested: bool = False) -> Threads:
    """2^height threads, each with its way from a leaf to the root, where all ways end."""
    threads = 1 << height
    below = {}
    for node in range(1, threads):
        depth = node.bit_length() - 1
        first, width = (node - (1 << depth)) * (threads >> depth), threads >> depth
        share = (depth + 1 if nested else 1) / (height + 1)
        below[threads - node if from_leaves else node] = dict.fromkeys(range(first, first + width), share)
    return Threads(busy=dict.fromkeys(range(threads), 1.0), below=below)


@pytest.mark.parametrize(
    ("height", "basic", "root", "leaves", "ordered"),
    [
        (2, 9, 7, 5, 7),
        (3, 51, 15, 9, 15),
        (4, 1_353, 165, 155, 165),
        # A second of search, for one number more.
        *([(5, 916_659, 4_621, 3_579, 4_621)] if PROVE else []),
    ],
)
def test_matrices_of_a_reverse_tree(height: int, basic: int, root: int, leaves: int, ordered: int) -> None:
    # Figure 16 has no values: these are of all utilisations equal. Sorting can cost.
    assert nodes(reverse_tree(height), prune=False, sort=False) == basic
    assert nodes(reverse_tree(height), prune=True, sort=False) == root
    assert nodes(reverse_tree(height, from_leaves=True), prune=True, sort=False) == leaves
    assert nodes(reverse_tree(height, from_leaves=True), prune=True, sort=True) == ordered


def test_nothing_helps_where_every_way_ends_in_one_thread() -> None:
    [group] = search(reverse_tree(3, nested=True))
    assert (group.operators, group.nodes, group.pruned) == ((), 1, 1)


def shared(ratio: float, seed: int) -> Threads:
    """Eight threads with eight operators each, out of so few that one is shared by `ratio` threads in the mean."""
    chance = random.Random(seed)
    below: dict[int, dict[int, float]] = {}
    for thread in range(8):
        for operator in chance.sample(range(round(64 / ratio)), 8):
            # What is hardly used is no way to help anybody.
            below.setdefault(operator, {})[thread] = chance.uniform(0.05, 1)
    return Threads(busy=dict.fromkeys(range(8), 1.0), below=below)


def test_matrices_rise_and_fall_with_what_is_shared() -> None:
    # Figure 17 c; its figures name no distribution.
    basic, pruned = (
        [mean(nodes(shared(ratio, seed), prune=prune, sort=False) for seed in range(5)) for ratio in (0.5, 1, 2, 3)]
        for prune in (False, True)
    )
    assert [round(count) for count in basic] == [102, 321, 265, 97]
    assert pruned[0] < pruned[1] > pruned[2] > pruned[3]
    assert basic[2] > 10 * pruned[2]


@st.composite
def groups(draw: st.DrawFn) -> Threads:
    threads = draw(st.integers(1, 4))
    share = st.sampled_from([0.05, 0.1, 0.25, 0.3, 0.5, 0.75])
    below = draw(st.dictionaries(st.integers(0, 9), st.dictionaries(st.integers(0, threads - 1), share, min_size=1)))
    busy = {thread: draw(st.sampled_from([0.8, 0.9, 1.0])) for thread in range(threads)}
    return Threads(busy=busy, below=below)


def enumerated(threads: Threads, group: Group) -> float | None:
    """The least utility of all sets that have exactly one operator of each thread of a group."""
    rows = [{one for one, shares in threads.below.items() if thread in shares} for thread in group.threads]
    known = sorted(set().union(*rows))
    sets = itertools.chain.from_iterable(itertools.combinations(known, size) for size in range(1, len(rows) + 1))
    fit = [chosen for chosen in sets if all(len(row.intersection(chosen)) == 1 for row in rows)]
    return min((max(map(threads.utility, chosen)) for chosen in fit), default=None)


@given(groups())
def test_the_tree_finds_what_enumeration_finds(threads: Threads) -> None:
    for prune, sort in itertools.product((False, True), repeat=2):
        for group in search(threads, beta=0.0, prune=prune, sort=sort):
            best = enumerated(threads, group)
            helps = best is not None and best < group.before
            assert bool(group.operators) == helps, (prune, sort, group)
            if helps:
                assert group.utility == best
                assert max(map(threads.utility, group.operators)) == best
                assert all(port is not None for port in group.ports)


@pytest.mark.parametrize("limit", [1, 4])
def test_a_search_that_was_ended_says_so(limit: int) -> None:
    [group] = search(EXAMPLE, nodes=limit, prune=False, sort=False)
    assert (group.nodes, group.limited) == (limit, True)
    # The first leaf holds o3 and o10, with which t' is full.
    assert group.operators == ()
