"""Clocks estimated from messages: exact bounds by hand, the truth on simulated clocks, and what cannot be known."""

from __future__ import annotations

import itertools
import sys

import networkx as nx
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.builder.clocks import MAX_DRIFT, Clock, estimate_clocks
from pag_graph.errors import MissingExtraError
from pag_graph.kernels.clocks import lower_hull

SINCE_1970 = 1_795_258_388_426_779_597
"""Nanoseconds until late in 2026: floats are 256 apart there."""


def frame(*messages: tuple[int, int, int, int]) -> pl.DataFrame:
    return pl.DataFrame(
        messages,
        schema=dict.fromkeys(("sender", "receiver", "sent", "read"), pl.Int64),
        orient="row",
    )


def test_two_clocks_meet_in_the_middle_of_what_messages_allow() -> None:
    # 0 -> 1 takes at least 100 - 0 = 100, 1 -> 0 at least 0 - 60 = -60: worker 1 is ahead by 60 to 100.
    estimate = estimate_clocks(frame((0, 1, 0, 100), (0, 1, 10, 200), (1, 0, 160, 100)), {0: 0, 1: 0})
    assert estimate.clocks == {0: Clock(offset_ns=0), 1: Clock(offset_ns=-80)}
    assert estimate.uncertainty_ns == {0: 0, 1: 20}
    assert estimate.margin_ns == 20
    assert estimate.messages == 3


def test_a_third_clock_is_bound_through_the_second() -> None:
    # 0 and 2 never talk; each takes 10 to 1 and back.
    messages = frame((0, 1, 0, 10), (1, 0, 0, 10), (1, 2, 0, 1_010), (2, 1, 1_000, 10))
    estimate = estimate_clocks(messages, {0: 0, 1: 0, 2: 0})
    assert estimate.clocks[2].offset_ns == -1_000
    assert estimate.uncertainty_ns == {0: 0, 1: 10, 2: 20}


def test_messages_in_one_direction_only_move_a_clock_no_further_than_they_must() -> None:
    behind = estimate_clocks(frame((0, 1, 500, 100)), {0: 7, 1: 7})
    assert behind.clocks[1] == Clock(offset_ns=407)
    assert behind.uncertainty_ns[1] is None
    assert behind.margin_ns == 0
    fine = estimate_clocks(frame((0, 1, 100, 500)), {0: 7, 1: 7})
    assert fine.clocks[1] == Clock(offset_ns=7)
    ahead = estimate_clocks(frame((1, 0, 500, 100)), {0: 0, 1: 0})
    assert ahead.clocks[1] == Clock(offset_ns=-400)


def test_without_messages_clocks_stay_as_recorded() -> None:
    estimate = estimate_clocks(frame(), {0: 5, 3: 9})
    assert estimate.clocks == {0: Clock(offset_ns=5), 3: Clock(offset_ns=9)}
    assert estimate.uncertainty_ns == {0: 0, 3: None}
    assert estimate.margin_ns is None


def test_workers_of_one_clock_keep_their_differences() -> None:
    messages = frame((0, 2, 0, 100), (3, 1, 100, 0))
    estimate = estimate_clocks(messages, {0: 0, 1: 40, 2: 0, 3: 40}, {0: 0, 1: 0, 2: 1, 3: 1})
    offset = {worker: clock.offset_ns for worker, clock in estimate.clocks.items()}
    assert offset == {0: 0, 1: 40, 2: -100, 3: -60}
    assert estimate.margin_ns == 0


def test_the_first_clock_keeps_its_own_offset() -> None:
    estimate = estimate_clocks(frame((0, 1, 0, 100), (1, 0, 160, 100)), {0: SINCE_1970, 1: SINCE_1970})
    offset = {worker: clock.offset_ns for worker, clock in estimate.clocks.items()}
    assert offset == {0: SINCE_1970, 1: SINCE_1970 - 80}


@pytest.mark.parametrize("zeros", [(SINCE_1970, 0, 7), (0, SINCE_1970, 0), (5, 0, SINCE_1970), (SINCE_1970,) * 3])
def test_clocks_may_count_from_anything(zeros: tuple[int, int, int]) -> None:
    messages = ((0, 1, 0, 10), (1, 0, 0, 11), (1, 2, 0, 1_010), (2, 1, 1_000, 13))
    shown = (
        (sender, receiver, sent + zeros[sender], read + zeros[receiver]) for sender, receiver, sent, read in messages
    )
    estimate = estimate_clocks(frame(*shown), {0: 0, 1: 0, 2: 0})
    offset = [estimate.clocks[worker].offset_ns + zeros[worker] - zeros[0] for worker in range(3)]
    assert offset == [0, 0, -1_000 + 1]
    assert estimate.uncertainty_ns == {0: 0, 1: 11, 2: 22}


def test_a_clock_that_keeps_its_offset_moves_those_behind_it_exactly() -> None:
    # Nothing says that worker 1, which counts from another zero, is far behind; worker 2 is bound to it alone.
    messages = frame((1, 0, 0, SINCE_1970), (1, 2, 0, 3), (2, 1, 0, 4))
    estimate = estimate_clocks(messages, {0: 0, 1: 0, 2: 0})
    assert [clock.offset_ns for clock in estimate.clocks.values()] == [0, 0, 0]
    assert [clock.drift for clock in estimate.clocks.values()] == [0, 0, 0]


@given(st.data())
def test_no_message_is_negative_and_the_truth_lies_within_the_bounds(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 5))
    # Some clocks count from 1970, some from the start of their machine.
    offset = st.integers(-(10**7), 10**7) | st.integers(-SINCE_1970, SINCE_1970)
    truth = [0, *data.draw(st.lists(offset, min_size=count - 1, max_size=count - 1))]
    pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda ends: ends[0] != ends[1])
    sent = data.draw(st.lists(st.tuples(pair, st.integers(0, 10**6), st.integers(0, 1_000)), max_size=40))
    messages = frame(*((a, b, t - truth[a], t + delay - truth[b]) for (a, b), t, delay in sent))
    estimate = estimate_clocks(messages, dict.fromkeys(range(count), 0))
    assert all(clock.drift == 0 for clock in estimate.clocks.values())
    assert estimate.margin_ns is None or estimate.margin_ns >= 0
    # An independent program: shortest paths in the graph of the constraints.
    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    for (a, b), _, delay in sent:
        bound = delay + truth[a] - truth[b]
        # o_a - o_b <= bound: the distance from b to a.
        if not graph.has_edge(b, a) or graph[b][a]["weight"] > bound:
            graph.add_edge(b, a, weight=bound)
    from_first = nx.single_source_bellman_ford_path_length(graph, 0)
    to_first = nx.single_source_bellman_ford_path_length(graph.reverse(), 0)
    for worker in range(1, count):
        if worker in from_first and worker in to_first:
            width = from_first[worker] + to_first[worker]
            assert estimate.uncertainty_ns[worker] == -(-width // 2)
            assert abs(estimate.clocks[worker].offset_ns - truth[worker]) <= width
        else:
            assert estimate.uncertainty_ns[worker] is None


def test_without_scipy_a_drift_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    # Worker 1 is behind by 50 at least as of the first message, and ahead by as much as of the second one.
    assert estimate_clocks(frame((0, 1, 100, 50)), {0: 0, 1: 0}).margin_ns == 0
    with pytest.raises(MissingExtraError, match="drift") as caught:
        estimate_clocks(frame((0, 1, 100, 50), (1, 0, 1_000, 960)), {0: 0, 1: 0})
    assert "pag-graph[clocks]" in str(caught.value)
    assert "--clocks recorded" in str(caught.value)


@pytest.mark.parametrize("drift", [3e-5, -8e-5])
@pytest.mark.parametrize(
    "zeros", [(0, 0), (10**12, 10**12), (SINCE_1970, SINCE_1970), (SINCE_1970, 0), (0, SINCE_1970)]
)
def test_a_drift_is_found_where_no_offset_fits(drift: float, zeros: tuple[int, int]) -> None:
    rng = np.random.default_rng(4)
    t = np.sort(rng.integers(0, 20_000_000_000, 4_000))
    delay = 5_000 + rng.exponential(20_000, len(t)).astype(np.int64)
    own = {0: lambda at: at, 1: lambda at: np.rint((at - 3_000_000) / (1 + drift)).astype(np.int64)}
    rows: list[tuple[int, int, int, int]] = []
    for (a, b), part in zip(itertools.cycle([(0, 1), (1, 0)]), np.split(np.arange(len(t)), 400), strict=False):
        rows.extend(
            zip(
                [a] * len(part),
                [b] * len(part),
                (own[a](t[part]) + zeros[a]).tolist(),
                (own[b](t[part] + delay[part]) + zeros[b]).tolist(),
                strict=True,
            )
        )
    estimate = estimate_clocks(frame(*rows), {0: 0, 1: 0})
    assert estimate.margin_ns is not None
    # Rounding to whole nanoseconds may cost one at each end.
    assert estimate.margin_ns >= -2
    assert estimate.clocks[1].drift == pytest.approx(drift, abs=2e-6)
    at = 10_000_000_000
    shown = own[1](np.array([at]))[0] + zeros[1]
    off = abs(int(estimate.clocks[1].common(int(shown))) - at - zeros[0])
    width = estimate.uncertainty_ns[1]
    assert width is not None
    assert off <= 2 * width <= 100_000


def test_clocks_that_jump_are_not_explained_away() -> None:
    messages = frame(*((0, 1, t, t + 10) for t in range(0, 1000, 10)), (1, 0, 500, 100), (1, 0, 100, 150))
    estimate = estimate_clocks(messages, {0: 0, 1: 0})
    assert estimate.margin_ns is not None
    assert estimate.margin_ns < 0
    assert estimate.clocks[1].drift == 0


def test_clocks_that_contradict_messages_do_so_as_little_as_can_be() -> None:
    rng = np.random.default_rng(1)
    rows = []
    for t in rng.integers(0, 10**9, 500).tolist():
        sender, receiver = rng.choice(10, 2, replace=False).tolist()
        # Each fifth message comes early, whatever the clocks are.
        late = int(rng.integers(1_000, 2_000)) - (3_000 if rng.random() < 0.2 else 0)
        rows.append((sender, receiver, t, t + late))
    estimate = estimate_clocks(frame(*rows), dict.fromkeys(range(10), 0))
    # By no offsets is the worst of the messages of any circle less early than their mean.
    least = nx.DiGraph()
    for sender, receiver, sent, read in rows:
        if not least.has_edge(sender, receiver) or least[sender][receiver]["delay"] > read - sent:
            least.add_edge(sender, receiver, delay=read - sent)
    circles = (zip(circle, [*circle[1:], circle[0]], strict=True) for circle in nx.simple_cycles(least, 4))
    worst = min(np.mean([least[a][b]["delay"] for a, b in circle]) for circle in circles)
    assert estimate.margin_ns == np.floor(worst)
    assert set(estimate.uncertainty_ns.values()) == {0, None}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30), st.floats(-3, 3))
def test_a_hull_keeps_the_minimum_of_every_linear_function(points: list[tuple[int, int]], slope: float) -> None:
    x, y = np.array(sorted(points), np.float64).T
    hull = lower_hull(x, y)
    value = y + slope * x
    assert value[hull].min() == pytest.approx(value.min(), abs=1e-9)
    assert (np.diff(x[hull]) > 0).all()


def test_clocks_keep_the_order_of_events() -> None:
    clock = Clock(offset_ns=-5, drift=-MAX_DRIFT)
    t = np.arange(10**15, 10**15 + 100_000)
    assert (np.diff(clock.common(t)) >= 0).all()
    assert clock.common(int(t[77])) == clock.common(t)[77]


@given(
    st.integers(-SINCE_1970, SINCE_1970), st.integers(0, SINCE_1970), st.just(0.0) | st.floats(-MAX_DRIFT, MAX_DRIFT)
)
def test_a_clock_shows_a_time_first_at_one_instant(offset_ns: int, own: int, drift: float) -> None:
    clock = Clock(offset_ns=offset_ns, drift=drift)
    t = int(clock.common(own))
    assert clock.common(clock.own(t)) == t
    assert clock.common(clock.own(t) - 1) < t
    assert clock.common(clock.own(t + 1) - 1) <= t < clock.common(clock.own(t + 1))
