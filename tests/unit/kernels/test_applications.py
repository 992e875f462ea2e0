"""Application activities: the innermost wins, wrong stops do little harm, and slices can be told apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels.activations import CLOSES_NOTHING, CLOSES_OUTER
from pag_graph.kernels.applications import applications, unbalanced

Marks = list[tuple[bool, int]]


def run(marks: Marks, outer: list[int] | None = None) -> tuple[list[int], list[int], list[int], list[int]]:
    starts = np.array([start for start, _ in marks], np.bool_)
    number = np.array([number for _, number in marks], np.int64)
    before = np.array(outer or [], np.int64)
    innermost, depth, trouble, left = applications(starts, number, before)
    return innermost.tolist(), depth.tolist(), trouble.tolist(), left.tolist()


def test_the_innermost_wins_and_the_outer_goes_on() -> None:
    innermost, depth, trouble, left = run([(True, 7), (True, 8), (False, 8), (False, 7)])
    assert innermost == [-1, 0, 1, 0, -1]
    assert depth == [0, 1, 2, 1, 0]
    assert trouble == [0, 0, 0, 0]
    assert left == []


def test_an_activity_may_be_inside_one_of_the_same_number() -> None:
    assert run([(True, 7), (True, 7), (False, 7), (False, 7)])[0] == [-1, 0, 1, 0, -1]


def test_a_stop_of_an_outer_activity_closes_what_is_inside() -> None:
    innermost, _, trouble, _ = run([(True, 7), (True, 8), (False, 7), (False, 8)])
    assert innermost == [-1, 0, 1, -1, -1]
    assert trouble == [0, 0, CLOSES_OUTER, CLOSES_NOTHING]


def test_what_was_open_before_is_known_by_its_place() -> None:
    innermost, depth, trouble, left = run([(False, 5), (True, 9)], [4, 5])
    assert innermost == [-3, -2, 1]
    assert depth == [2, 1, 2]
    assert trouble == [0, 0]
    assert left == [-2, 1]


marks = st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=25)


def plain(sequence: Marks, stack: tuple[int, ...]) -> tuple[int, ...]:
    for start, number in sequence:
        if start:
            stack += (number,)
        elif number in stack:
            stack = stack[: len(stack) - 1 - stack[::-1].index(number)]
    return stack


@given(marks, st.lists(st.integers(0, 2), max_size=4))
def test_depths_agree_with_a_plain_stack(sequence: Marks, outer: list[int]) -> None:
    _, depth, _, left = run(sequence, outer)
    assert depth == [len(plain(sequence[:at], tuple(outer))) for at in range(len(sequence) + 1)]
    numbers = [sequence[at][1] if at >= 0 else outer[-2 - at] for at in left]
    assert tuple(numbers) == plain(sequence, tuple(outer))


@given(marks, st.lists(st.integers(0, 2), max_size=4))
def test_marks_that_cancel_change_nothing(sequence: Marks, outer: list[int]) -> None:
    kept = unbalanced(np.array([s for s, _ in sequence], np.bool_), np.array([n for _, n in sequence], np.int64))
    assert plain([sequence[at] for at in kept], tuple(outer)) == plain(sequence, tuple(outer))
    assert unbalanced(np.array([True, True, False, False]), np.array([1, 2, 2, 1])).tolist() == []
