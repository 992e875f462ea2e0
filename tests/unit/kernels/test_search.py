from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels.search import above, grown, not_below, sort

numbers = st.lists(st.integers(-5, 5), max_size=40)


@given(numbers, st.integers(-6, 6))
def test_places_are_those_that_numpy_finds(values: list[int], wanted: int) -> None:
    ordered = np.sort(np.array(values, np.int64))
    assert not_below(ordered, wanted) == np.searchsorted(ordered, wanted)
    assert above(ordered, wanted) == np.searchsorted(ordered, wanted, side="right")


@given(numbers, st.integers(0, 40))
def test_the_first_values_are_sorted_and_the_others_stay(values: list[int], count: int) -> None:
    mine, count = np.array(values, np.int64), min(count, len(values))
    sort(mine, count)
    assert mine.tolist() == sorted(values[:count]) + values[count:]


def test_values_grow_only_when_there_is_no_room() -> None:
    values = np.arange(4)
    assert np.shares_memory(grown(values, 4, 4), values)
    wider = grown(values, 3, 5)
    assert len(wider) == 8
    assert wider[:3].tolist() == [0, 1, 2]
