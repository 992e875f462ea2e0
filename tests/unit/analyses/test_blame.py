"""Blame: of a graph drawn by hand, and on the bundled sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.analyses import find_analysis
from pag_graph.errors import PagError, UnsupportedPlanError
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    Fixture = Callable[..., Any]

blame = find_analysis("blame")


# Worker 0 works for worker 1, then worker 1 for worker 0; the end of the epoch is worker 0's.
PING = "0 start 1 | 30 send 3>1 *5 | 31 stop 1 | 40 park | 80 unpark | 85 start 2 | 86 recv 3<1 *2 | 90 stop 2 | 90 end"
PONG = (
    "0 park | 35 unpark | 36 start 1 | 37 recv 3<0 *5 | 70 send 3>0 *2 | 72 stop 1 | 75 park 30 | 105 unpark | 110 end"
)
NAMES = {1: ("0.1", "Map"), 2: ("0.2", "Reduce")}


def charges(table: Any) -> dict[tuple[Any, ...], int]:
    return {
        (row["worker"], row["by_worker"], row["type"], row["operator"]): row["blamed_ns"] for row in table.to_pylist()
    }


def test_a_wait_is_charged_to_what_its_sender_did_meanwhile(in_memory: Fixture, whole_run: Fixture) -> None:
    run = whole_run(in_memory(draw(PING, PONG)))
    assert charges(blame(run.snapshot(run.window(epoch=0)))) == {
        # Worker 1 waits from 0 to 30, worker 0 from 40 to 70. What worker 1 did before 40 is not to blame.
        (0, 1, "processing", 1): 30,
        (1, 0, "processing", 1): 30,
    }


def test_a_window_cuts_waits_and_charges(in_memory: Fixture, whole_run: Fixture) -> None:
    run = whole_run(in_memory(draw(PING, PONG)))
    # Both waits end outside: the messages that end them are known all the same.
    assert charges(blame(run.snapshot(run.window(between=(10, 20))))) == {(1, 0, "processing", 1): 10}
    assert charges(blame(run.snapshot(run.window(between=(45, 60))))) == {(0, 1, "processing", 1): 15}
    assert blame(run.snapshot(run.window(between=(71, 75)))).num_rows == 0


def test_who_waits_himself_is_not_to_blame(in_memory: Fixture, whole_run: Fixture) -> None:
    # Worker 2 waits for worker 1, which waits for worker 0 until 40.
    run = whole_run(
        in_memory(
            draw(
                "0 start 1 | 40 send 3>1 | 50 stop 1 | 100 end",
                "5 park | 45 unpark | 46 start 2 | 47 recv 3<0 | 70 send 4>2 | 80 stop 2 | 100 end",
                "0 park | 75 unpark | 76 start 3 | 77 recv 4<1 | 80 stop 3 | 100 end",
            )
        )
    )
    found = charges(blame(run.snapshot(run.window(between=(0, 100)))))
    assert found == {
        (1, 0, "processing", 1): 35,
        (2, 0, "processing", 1): 40,
        (2, 1, "wake_up", None): 5,
        (2, 1, "busy", None): 1,
        (2, 1, "processing", 2): 24,
    }


def test_a_message_under_way_is_charged_itself(in_memory: Fixture, whole_run: Fixture) -> None:
    # From another process, sent before the wait began and read after it: it was under way all the time.
    trace = draw(
        "0 start 1 | 10 send 3>1 | 20 stop 1 | 100 end",
        "0 start 2 | 30 stop 2 | 30 park | 60 unpark | 61 start 3 | 62 recv 3<0 | 70 stop 3 | 100 end",
        processes=[0, 1],
    )
    run = whole_run(in_memory(trace))
    assert charges(blame(run.snapshot(run.window(epoch=0)))) == {(1, 0, "data_message", None): 30}


def test_all_waiting_of_the_sample_is_charged(skewed: Any) -> None:
    for row in skewed.epochs.iter_rows(named=True):
        assert sum(skewed.blame(epoch=row["epoch"])["blamed_ns"].to_pylist()) == row["waiting_ns"]


def test_a_wait_that_no_message_ended_is_an_error(in_memory: Fixture, whole_run: Fixture) -> None:
    drawn = in_memory(draw(PING, PONG))
    drawn.edges[:] = [edge for edge in drawn.edges if edge["type"] != "data_message"]
    run = whole_run(drawn)
    with pytest.raises(PagError, match="worker 0"):
        blame(run.snapshot(run.window(epoch=0)))


def test_clocks_must_be_aligned(in_memory: Fixture, whole_run: Fixture) -> None:
    drawn = in_memory(draw(PING, PONG))
    drawn.rules = "st2"
    run = whole_run(drawn)
    with pytest.raises(UnsupportedPlanError):
        blame(run.snapshot(run.window(epoch=0)))
