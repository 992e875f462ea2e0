"""Orders and medians of many windows at once, against NumPy's of one at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels.arranging import arrange, medians, sort_within

_SMALL = st.integers(0, 3)


@given(st.lists(st.tuples(st.integers(-1, 3), _SMALL, _SMALL, _SMALL), max_size=60), st.sampled_from(["any", "runs"]))
def test_rows_are_in_the_order_of_windows_and_of_keys_and_equal_ones_stay(
    rows: list[tuple[int, ...]], shape: str
) -> None:
    if shape == "runs":
        # As in a store: some runs that are in order.
        half = len(rows) // 2
        rows = sorted(rows[:half]) + sorted(rows[half:])
    table = np.array(rows, np.int64).reshape(-1, 4)
    first, order = arrange(table[:, 0].copy(), 4, np.ascontiguousarray(table[:, 1:]))
    wanted = sorted((row for row in range(len(rows)) if rows[row][0] >= 0), key=lambda row: rows[row])
    assert order.tolist() == wanted
    assert first.tolist() == [sum(0 <= row[0] < window for row in rows) for window in range(5)]


def test_only_what_is_given_is_sorted() -> None:
    order = np.array([4, 2, 0, 3, 1])
    sort_within(np.array([0, 3, 3, 5]), order, np.array([[5], [4], [9], [6], [1]]))
    assert order.tolist() == [4, 0, 2, 1, 3]


@given(
    st.lists(st.lists(st.integers(-5, 5) | st.integers(-(10**15), 10**15), max_size=15), max_size=4),
    st.integers(1, 4),
    st.integers(0, 6),
)
def test_medians_and_their_distances_are_those_of_the_values_before(
    groups: list[list[int]], at_least: int, more: int
) -> None:
    over = at_least + more
    first = np.cumsum([0, *map(len, groups)])
    median, mad = medians(first, np.array([value for group in groups for value in group], np.int64), at_least, over)
    for begin, group in zip(first, groups, strict=False):
        for at in range(len(group)):
            if at < at_least:
                assert np.isnan(median[begin + at])
                assert np.isnan(mad[begin + at])
            else:
                before = np.array(group[max(0, at - over) : at], np.float64)
                assert median[begin + at] == np.median(before)
                assert mad[begin + at] == np.median(np.abs(before - np.median(before)))
