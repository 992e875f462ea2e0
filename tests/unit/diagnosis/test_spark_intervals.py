"""Sets of instants against the sets that they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pag_graph.diagnosis.spark.intervals import Interval, common, length, united, without

INTERVALS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair))), max_size=6
)


def instants(intervals: list[Interval]) -> set[int]:
    return {instant for start, end in intervals for instant in range(start, end)}


@given(INTERVALS, INTERVALS)
def test_intervals_are_sets(first: list[Interval], second: list[Interval]) -> None:
    for answer, expected in (
        (united(first), instants(first)),
        (without(first, second), instants(first) - instants(second)),
        (common(first, second), instants(first) & instants(second)),
    ):
        assert instants(answer) == expected
        assert length(answer) == len(expected)
        assert all(start < end for start, end in answer)
        assert sorted(answer) == answer
