"""Differences: of graphs drawn by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.analyses.diff import diff
from pag_graph.errors import InvalidParameterError
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    Fixture = Callable[..., Any]


# Worker 0 works for worker 1, then worker 1 for worker 0; the end of the epoch is worker 0's.
PING = "0 start 1 | 30 send 3>1 *5 | 31 stop 1 | 40 park | 80 unpark | 85 start 2 | 86 recv 3<1 *2 | 90 stop 2 | 90 end"
PONG = (
    "0 park | 35 unpark | 36 start 1 | 37 recv 3<0 *5 | 70 send 3>0 *2 | 72 stop 1 | 75 park 30 | 105 unpark | 110 end"
)
NAMES = {1: ("0.1", "Map"), 2: ("0.2", "Reduce")}


def window_of(in_memory: Fixture, whole_run: Fixture, *logs: str, **more: Any) -> Any:
    run = whole_run(in_memory(draw(*logs)), more.pop("names", NAMES), readers={3: 1}, **more)
    return run.snapshot(run.window(epoch=0))


def rows_of(found: Any) -> dict[Any, tuple[int, ...]]:
    names = ("before_steps", "after_steps", "difference_ns", "count_ns", "mean_ns")
    return {
        (row["type"], row["operator_name"], row["worker"]): tuple(row[name] for name in names)
        for row in found.table.to_pylist()
        if row["difference_ns"]
    }


def test_a_slower_operator_is_the_difference(in_memory: Fixture, whole_run: Fixture) -> None:
    before = window_of(in_memory, whole_run, PING, PONG)
    slow = PONG.replace("70 send", "75 send").replace("72 stop", "77 stop").replace("75 park", "79 park")
    later = PING.replace("80 unpark", "85 unpark").replace("85 start", "90 start").replace("86 recv", "91 recv")
    after = window_of(in_memory, whole_run, later.replace("90 stop", "95 stop").replace("90 end", "95 end"), slow)
    found = diff(before, after)
    assert (found.before_ns, found.after_ns, found.difference_ns, found.by_worker) == (90, 95, 5, True)
    assert rows_of(found) == {("processing", "Map", 1): (2, 2, 5, 0, 5)}


def test_count_and_mean(in_memory: Fixture, whole_run: Fixture) -> None:
    before = window_of(in_memory, whole_run, "0 start 1 | 10 stop 1 | 10 start 1 | 20 stop 1 | 20 end")
    after = window_of(in_memory, whole_run, "0 start 1 | 30 stop 1 | 30 end")
    # Two of 10 become one of 30: one less of 20 on average, and 1.5 steps longer by 20.
    assert rows_of(diff(before, after))["spinning", "Map", 0] == (2, 1, 10, -20, 30)


def test_other_numbers_of_workers_and_other_operators(in_memory: Fixture, whole_run: Fixture) -> None:
    before = window_of(in_memory, whole_run, PING, PONG, run_id="old")
    after = window_of(
        in_memory, whole_run, "0 start 1 | 50 stop 1 | 50 end", names={1: ("0.1", "Filter")}, run_id="new"
    )
    found = diff(before, after)
    assert not found.by_worker
    assert (found.appeared, found.gone) == (("Filter (0.1)",), ("Map (0.1)", "Reduce (0.2)"))
    assert set(found.table["worker"].to_pylist()) == {None}
    assert sum(found.table["difference_ns"].to_pylist()) == -40
    status = {(row["type"], row["operator_name"]): row["status"] for row in found.table.to_pylist()}
    assert status["spinning", "Filter"] == "appeared"
    assert status["processing", "Map"] == status["data_message", "Map"] == "gone"
    report = found.markdown(top=2)
    assert "Operators appeared: Filter (0.1)." in report
    assert "| **sum** | 90 | 50 | -40 |" in report
    assert "processing, Map (0.1) *gone*" in report


def test_whole_runs_are_compared_round_by_round_in_sum(skewed: Any, bfs: Any) -> None:
    found = skewed.diff(against=bfs)
    assert (found.before_windows, found.after_windows) == (20, 9)
    spans = [sum(window.span_ns for window in pag.rounds()) for pag in (bfs, skewed)]
    assert [found.before_ns, found.after_ns] == spans
    assert sum(found.table["difference_ns"].to_pylist()) == spans[1] - spans[0]
    same = skewed.diff(against=skewed)
    assert set(same.table["difference_ns"].to_pylist()) == {0}


def test_without_a_choice_the_slowest_is_compared_with_the_median(skewed: Any) -> None:
    spans = sorted(window.span_ns for window in skewed.rounds())
    found = skewed.diff()
    assert (found.before_ns, found.after_ns) == (spans[4], spans[-1])
    assert skewed.diff(epoch=5, against_epoch=4).before.startswith("epoch 4")


def test_nothing_is_not_compared(in_memory: Fixture, whole_run: Fixture) -> None:
    one = window_of(in_memory, whole_run, PING, PONG)
    with pytest.raises(InvalidParameterError, match="no window to compare with"):
        diff([], one)
    with pytest.raises(InvalidParameterError, match="no window to compare"):
        diff(one, [])
