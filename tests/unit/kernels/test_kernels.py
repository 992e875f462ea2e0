"""Kernels on columns written by hand; `tests/unit/rules/test_timely.py` shows what they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pag_graph.kernels import activations as act
from pag_graph.kernels import path
from pag_graph.kernels.activations import activations, idle_intervals
from pag_graph.kernels.assembly import window_sums
from pag_graph.kernels.path import CYCLE, GAP, NO_ENDER, REACHED_START, Local, Sends, Waits, Walks
from pag_graph.model.ids import MAX_POSITION, MAX_WORKER, position_of, vertex_id, worker_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

P, U, X = act.PARK, act.UNPARK, act.OTHER


def i64(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def nested(*rows: tuple[int, int, int], gaps: NDArray[np.int64] | None = None) -> tuple[list[int], ...]:
    kind, operator, records = (np.array(column) for column in zip(*rows, strict=True))
    columns = kind.astype(np.int8), operator.astype(np.int64), records.astype(np.int64)
    return tuple(part.tolist() for part in activations(*columns, i64() if gaps is None else gaps))


def test_the_innermost_activation_is_that_after_the_row() -> None:
    innermost, role, consumed, trouble = nested(
        (act.START, 1, -1), (act.START, 2, -1), (act.RECEIVE, -1, 4), (act.RECEIVE, -1, -1), (act.STOP, 2, -1),
        (act.RECEIVE, -1, 3), (act.STOP, 1, -1), (X, -1, -1),
    )  # fmt: skip
    assert innermost == [0, 1, 1, 1, 0, 0, -1, -1]
    assert role[:2] == [act.SCOPE, act.PROCESSING]
    # A message of unknown size neither counts nor makes the others unknown.
    assert consumed[:2] == [3, 4]
    assert not any(trouble)


def test_what_is_wrong_with_activations() -> None:
    innermost, _, _, trouble = nested(
        (act.STOP, 5, -1), (act.START, 1, -1), (act.START, 2, -1), (act.STOP, 1, -1), (act.START, 3, -1)
    )
    assert innermost == [-1, 1, 2, -1, 4]
    assert trouble == [act.CLOSES_NOTHING, 0, 0, act.CLOSES_OUTER, act.OPEN]


def test_activations_end_where_rows_are_missing() -> None:
    innermost, role, _, trouble = nested(
        (act.START, 1, -1), (act.START, 2, -1), (act.PUSH_PROGRESS, 3, -1), (act.START, 3, -1), (act.STOP, 1, -1),
        gaps=i64(3),
    )  # fmt: skip
    assert innermost == [0, 1, 1, 3, 3]
    # What was pushed may have been for another activation.
    assert role[3] == act.SPINNING
    assert trouble == [act.CUT_BY_GAP, act.CUT_BY_GAP, 0, act.OPEN, act.CLOSES_NOTHING]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], []),
        ([P], []),
        ([U, P], []),
        ([P, U], [(0, 1, 0)]),
        ([P, U, P, U], [(0, 3, 2)]),
        ([P, U, X, P, U], [(0, 1, 0), (3, 4, 3)]),
        ([P, U, P, U, P, U, X, P], [(0, 5, 4)]),
        ([P, U, P, X, U, P, U], [(0, 1, 0), (5, 6, 5)]),
        ([P, P, U, U, P, U], [(1, 2, 1), (4, 5, 4)]),
    ],
)
def test_idle_intervals(kinds: list[int], expected: list[tuple[int, int, int]]) -> None:
    parks, unparks, last = idle_intervals(np.array(kinds, np.int8), i64())
    assert list(zip(parks.tolist(), unparks.tolist(), last.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("gap", "expected"),
    [(0, [(0, 3, 2)]), (1, [(2, 3, 2)]), (2, [(0, 1, 0), (2, 3, 2)]), (3, [(0, 1, 0)]), (4, [(0, 3, 2)])],
)
def test_no_idle_interval_reaches_over_missing_rows(gap: int, expected: list[tuple[int, int, int]]) -> None:
    intervals = idle_intervals(np.array([P, U, P, U, X], np.int8), i64(gap))
    assert list(zip(*(column.tolist() for column in intervals), strict=True)) == expected


@pytest.mark.parametrize(
    ("intervals", "bounds", "sums"),
    [
        ([(0, 10)], [0, 4, 10], [4, 6]),
        ([(2, 3), (3, 9), (9, 9)], [0, 4, 10], [2, 5]),
        # What lies before the first window or after the last is in none; an empty window has nothing.
        ([(0, 10)], [2, 4, 4, 7], [2, 0, 3]),
        ([], [0, 5], [0]),
    ],
)
def test_window_sums(intervals: list[tuple[int, int]], bounds: list[int], sums: list[int]) -> None:
    start, end = (i64(*column) for column in zip(*intervals, strict=True)) if intervals else (i64(), i64())
    assert window_sums(start, end, i64(*bounds)).tolist() == sums


def a(worker: int, *positions: int) -> list[int]:
    return [vertex_id(worker, position) for position in positions]


# Worker 0: 4 at 10, 6 at 20, 8 at 40. Worker 1: 4 at 12, its wait's end 5 at 20, 6 at 25, 8 at 40.
LOCAL = i64(*a(0, 4, 6, 8), *a(1, 4, 5, 6, 8))
ENDS = i64(10, 20, 40, 12, 20, 25, 40)


def walk(last: int, *, ender: int = 0, sender: int = vertex_id(0, 6), sent: int = 20, start: int = 0) -> Any:
    hops, _, outcome, stopped = path.walk(
        Walks(i64(0), i64(-1), i64(LOCAL[last]), i64(start)),
        Local(i64(0, 7), LOCAL, ENDS),
        Waits(i64(0, 1), i64(*a(1, 5)), i64(20), i64(ender)),
        Sends(i64(sender), i64(sent)),
    )
    return list(zip(hops.low.tolist(), hops.high.tolist(), hops.message.tolist(), strict=True)), outcome, stopped


def test_a_walk_goes_from_wait_to_wait() -> None:
    assert walk(6)[:2] == ([(5, 7, 0), (0, 2, -1)], REACHED_START)
    # A worker that did not wait is walked to the window's start.
    assert walk(2)[:2] == ([(0, 3, -1)], REACHED_START)


def test_a_walk_stops_where_an_edge_crosses_the_start() -> None:
    assert walk(6, start=15)[0] == [(5, 7, 0), (1, 2, -1)]
    # The wait ended before the window.
    assert walk(6, start=20)[:2] == ([(5, 7, -1)], REACHED_START)
    # The message was sent before the window.
    assert walk(6, sent=14, start=15)[:2] == ([(5, 7, 0)], REACHED_START)


def test_a_walk_says_why_it_cannot_go_on() -> None:
    assert walk(6, ender=-1)[1:] == (NO_ENDER, vertex_id(1, 5))
    assert walk(6, sender=vertex_id(0, 5))[1:] == (GAP, vertex_id(0, 5))
    assert walk(6, sender=vertex_id(1, 6))[1] == CYCLE


@pytest.mark.parametrize(("worker", "position"), [(0, 1), (1, 2), (MAX_WORKER, MAX_POSITION)])
def test_ids_hold_worker_and_position(worker: int, position: int) -> None:
    number = vertex_id(worker, position)
    assert 0 < number < 2**62
    assert (worker_of(number), position_of(number)) == (worker, position)
