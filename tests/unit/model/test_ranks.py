"""Percentiles by nearest rank."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.model.ranks import nearest_rank, rank_of


def test_percentiles_are_nearest_ranks_and_may_weigh_values() -> None:
    values = np.array([30, 10, 20])
    assert [nearest_rank(values, share) for share in (0.0, 0.33, 0.34, 0.5, 0.99, 1.0)] == [10, 10, 20, 20, 30, 30]
    assert nearest_rank(values, 0.5, np.array([8, 1, 1])) == 30
    assert nearest_rank(values[:0], 0.5) is None


@given(percent=st.integers(0, 100), count=st.integers(1, 10**15))
def test_a_rank_is_exact_for_any_percent_of_any_count(percent: int, count: int) -> None:
    assert rank_of(percent / 100, count) == max(1, -(-percent * count // 100))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=1), st.integers(0, 100))
def test_weights_count_values_so_many_times(pairs: list[tuple[int, int]], percent: int) -> None:
    values, weights = (np.array(column) for column in zip(*pairs, strict=True))
    repeated = np.repeat(values, weights)
    assert nearest_rank(values, percent / 100, weights) == nearest_rank(repeated, percent / 100)
