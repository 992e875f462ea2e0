"""Profiles: of a graph drawn by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.analyses import find_analysis
from pag_graph.analyses.profile import ProfileParameters
from pag_graph.errors import InvalidParameterError
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    Fixture = Callable[..., Any]

profile = find_analysis("profile")


# Worker 0 works for worker 1, then worker 1 for worker 0; the end of the epoch is worker 0's.
PING = "0 start 1 | 30 send 3>1 *5 | 31 stop 1 | 40 park | 80 unpark | 85 start 2 | 86 recv 3<1 *2 | 90 stop 2 | 90 end"
PONG = (
    "0 park | 35 unpark | 36 start 1 | 37 recv 3<0 *5 | 70 send 3>0 *2 | 72 stop 1 | 75 park 30 | 105 unpark | 110 end"
)
NAMES = {1: ("0.1", "Map"), 2: ("0.2", "Reduce")}


def keys(in_memory: Fixture, whole_run: Fixture, **parameters: Any) -> list[tuple[Any, ...]]:
    run = whole_run(in_memory(draw(PING, PONG)), NAMES)
    rows = profile(run.snapshot(run.window(epoch=0)), ProfileParameters(**parameters)).to_pylist()
    return [(row["key"], row["steps"], row["path_ns"], round(row["share"], 3)) for row in rows]


def test_by_type(in_memory: Fixture, whole_run: Fixture) -> None:
    assert keys(in_memory, whole_run, by="type") == [
        ("processing", 5, 69, 0.767),
        ("wake_up", 2, 15, 0.167),
        ("busy", 3, 6, 0.067),
        ("data_message", 2, 0, 0.0),
    ]


def test_by_operator_worker_and_pair(in_memory: Fixture, whole_run: Fixture) -> None:
    assert keys(in_memory, whole_run, by="operator") == [
        ("Map (0.1)", 3, 64, 0.711),
        ("(no operator)", 5, 21, 0.233),
        ("Reduce (0.2)", 2, 5, 0.056),
        ("(messages)", 2, 0, 0.0),
    ]
    assert keys(in_memory, whole_run, by="worker")[:2] == [("worker 0", 6, 50, 0.556), ("worker 1", 4, 40, 0.444)]
    assert keys(in_memory, whole_run, by="pair") == [
        ("(local)", 10, 90, 1.0),
        ("0 -> 1", 1, 0, 0.0),
        ("1 -> 0", 1, 0, 0.0),
    ]


def test_what_is_not_listed_is_summed_up(in_memory: Fixture, whole_run: Fixture) -> None:
    assert keys(in_memory, whole_run, by="type", n=1) == [("processing", 5, 69, 0.767), ("(other)", 7, 21, 0.233)]
    assert len(keys(in_memory, whole_run, n=0)) == 4 + 4 + 3 + 3


@pytest.mark.parametrize("n", [2**63 - 1, 2**31])
def test_more_keys_than_there_are_may_be_asked_for(skewed: Any, n: int) -> None:
    """The rank after the largest number fits into no column."""
    assert skewed.profile(epoch=4, n=n) == skewed.profile(epoch=4, n=0)
    assert skewed.profile_rounds(n=n) == skewed.profile_rounds(n=0)


def test_the_number_of_keys_is_not_negative() -> None:
    with pytest.raises(InvalidParameterError, match=r"0 .for all. or more"):
        profile.function(None, ProfileParameters(n=-1))


def test_over_the_rounds_of_the_sample(skewed: Any) -> None:
    rows = skewed.profile_rounds(by="worker", n=0).to_pylist()
    rounds = skewed.rounds()
    assert sum(row["path_ns"] for row in rows) == sum(window.span_ns for window in rounds)
    worst = max(
        (dict(zip(table["key"].to_pylist(), table["path_ns"].to_pylist(), strict=True)).get("worker 0", 0), -epoch)
        for epoch in (window.epoch for window in rounds)
        for table in [skewed.profile(epoch=epoch, by="worker", n=0)]
    )
    first = next(row for row in rows if row["key"] == "worker 0")
    assert (first["max_ns"], -first["max_epoch"]) == worst
    assert first["p50_ns"] <= first["p90_ns"] <= first["p99_ns"] == first["max_ns"]
