"""Slack: of graphs drawn by hand, against brute force, and on the bundled samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.analyses import find_analysis
from pag_graph.analyses.constraints import constraint_graph
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.slack import SlackParameters
from pag_graph.errors import CycleError, PagError, UnsupportedPlanError
from pag_graph.graph.window import Window
from pag_graph.testing.strategies import small_traces
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.api import Pag

    Fixture = Callable[..., Any]

slack = find_analysis("slack")

# Worker 0 works until 30 and sends; worker 1, which waits for it from 10 on, works until 60 and ends the epoch first.
FAST = "0 start 1 | 20 stop 1 | 25 start 2 | 30 send 3>1 | 40 stop 2 | 70 end"
SLOW = "0 start 4 | 10 stop 4 | 10 park | 34 unpark | 35 start 3 | 36 recv 3<0 | 60 stop 3 | 60 end"


def table(drawn: Any, *, between: tuple[int, int] | None = None, **parameters: Any) -> dict[str, int | None]:
    """Slack by ``start worker:type``, or ``start sender>receiver:type``."""
    run = drawn.run
    window = run.window(between=between) if between else run.window(epoch=0)
    rows = slack(run.snapshot(window), SlackParameters(**parameters)).to_pylist()
    result = {}
    for row in rows:
        to = f">{row['to_worker']}" if row["to_worker"] != row["worker"] else ""
        result[f"{row['start_ns']} {row['worker']}{to}:{row['type']}"] = row["slack_ns"]
    assert len(result) == len(rows)
    return result


def test_what_others_wait_for_has_no_slack(in_memory: Fixture) -> None:
    assert table(in_memory(draw(FAST, SLOW))) == {
        # The path: worker 0 until it sends, the message, and worker 1 from then on.
        "0 0:spinning": 0,
        "20 0:busy": 0,
        "25 0:processing": 0,
        "30 0>1:data_message": 0,
        "30 1:wake_up": 0,
        "34 1:busy": 0,
        "35 1:processing": 0,
        "36 1:processing": 0,
        "60 1:busy": 0,
        # Worker 1 may be ready 20 later: when the message arrives.
        "0 1:spinning": 20,
        "10 1:busy": 20,
        # No activity, and what nobody waits for in the window.
        "10 1:waiting": None,
        "30 0:processing": None,
        "40 0:busy": None,
    }


def test_slack_is_free_time_until_the_end_of_the_window_that_one_looks_at(in_memory: Fixture) -> None:
    # At 50 worker 0 is the lowest that does not wait; for it worker 1 can be as late as it likes.
    found = table(in_memory(draw(FAST, SLOW)), between=(15, 50))
    on_path = {"15 0:spinning", "20 0:busy", "25 0:processing", "30 0:processing", "40 0:busy"}
    assert {name for name, ns in found.items() if ns is not None} == on_path
    assert {found[name] for name in on_path} == {0}
    assert set(found) - on_path == {
        "15 1:waiting",
        "30 0>1:data_message",
        "30 1:wake_up",
        "34 1:busy",
        "35 1:processing",
        "36 1:processing",
    }


def test_rows_lie_inside_the_window_and_tile_every_worker(skewed: Pag) -> None:
    for window in skewed.run.windows():
        rows = slack(skewed.run.snapshot(window)).to_pylist()
        assert all(window.start_ns <= row["start_ns"] <= window.end_ns for row in rows)
        for worker in skewed.run.workers:
            local = [row for row in rows if row["worker"] == worker and "message" not in row["type"]]
            assert sum(row["duration_ns"] for row in local) == window.span_ns


BUFFERED = ("0 send 3>1 | 5 send 3>1 #1 | 40 end", "0 start 1 | 10 recv 3<0 | 30 recv 3<0 #1 | 31 stop 1 | 35 end")


@pytest.mark.parametrize(
    ("processes", "arrival", "first", "second", "taken"),
    [
        # In one process a message is there when it is sent; it could arrive 10 and 25 later.
        ((0, 0), "shortest", 10, 25, [0, 0]),
        # From another process nobody knows; the first one took at most 10, so the second probably, too.
        ((0, 1), "shortest", 0, 15, [10, 10]),
        ((0, 1), "read", 0, 0, [10, 25]),
    ],
)
def test_a_message_may_arrive_until_it_is_read(
    in_memory: Fixture, processes: tuple[int, int], arrival: Any, first: int, second: int, taken: list[int]
) -> None:
    drawn = in_memory(draw(*BUFFERED, processes=processes))
    rows = slack(drawn.run.snapshot(drawn.run.window(epoch=0)), SlackParameters(arrival=arrival)).to_pylist()
    messages = sorted((row for row in rows if row["type"] == "data_message"), key=lambda row: row["start_ns"])
    assert [row["duration_ns"] for row in messages] == taken
    found = table(drawn, arrival=arrival)
    assert found["0 0>1:data_message"] == first
    assert found["5 0>1:data_message"] == second
    # What comes before the second send delays only that one.
    assert found["0 0:busy"] == second


def test_the_shortest_message_is_looked_for_between_the_same_processes(in_memory: Fixture) -> None:
    # 0 -> 1 takes 4 or 30, 1 -> 0 takes 9 or 40, and 2 -> 0 takes 20, until they are read.
    zero = "0 send 3>1 | 10 send 3>1 #1 | 19 recv 3<1 | 20 recv 3<2 | 51 recv 3<1 #1 | 60 end"
    one = "0 start 1 | 4 recv 3<0 | 10 send 3>0 | 11 send 3>0 #1 | 40 recv 3<0 #1 | 70 end"
    two = "0 send 3>0 | 80 end"
    found = table(in_memory(draw(zero, one, two, processes=(0, 1, 2))))
    assert {name: ns for name, ns in found.items() if "data_message" in name} == {
        "0 0>1:data_message": 0,
        # Worker 0 ends the epoch: what worker 1 reads when it has sent all delays nothing.
        "10 0>1:data_message": None,
        "10 1>0:data_message": 0,
        "11 1>0:data_message": 31,
        "0 2>0:data_message": 0,
    }


def test_activities_without_any_length_at_the_origin(in_memory: Fixture) -> None:
    run = in_memory(draw("0 start 1 | 0 start 2 | 0 stop 2 | 5 stop 1 | 9 end")).run
    snapshot = run.snapshot(run.window(epoch=0))
    rows = slack(snapshot).to_pylist()
    assert [(row["slack_ns"], row["duration_ns"]) for row in rows] == [(0, 5), (0, 4), (0, 0), (0, 0)]
    graph = constraint_graph(snapshot, loop="closed", arrival="shortest")
    for row in range(4):
        duration = graph.duration.copy()
        duration[row] += 7
        assert graph.replay(graph.weights(duration))[graph.end] == 9 + 7


def test_messages_that_come_before_they_were_sent_bind_nobody(in_memory: Fixture) -> None:
    drawn = in_memory(draw("0 start 1 | 30 send 3>1 | 40 end", "0 start 1 | 20 recv 3<0 | 35 end", processes=(0, 1)))
    assert table(drawn) == {
        "30 0>1:data_message": None,
        "0 0:processing": None,
        "30 0:processing": None,
        "0 1:processing": 0,
        "20 1:processing": 0,
    }


def test_input_of_an_open_loop_comes_when_it_comes(in_memory: Fixture) -> None:
    drawn = in_memory(draw("0 start 1 | 5 stop 1 | 6 park | 20 unpark | 21 start 1 | 22 send 3>0 | 30 stop 1 | 40 end"))
    assert set(table(drawn).values()) == {0}
    found = table(drawn, loop="open")
    # Before the input there are the 14 in which the worker waited for it.
    assert {found["0 0:spinning"], found["5 0:busy"]} == {14}
    assert {found["6 0:input_wait"], found["20 0:busy"], found["30 0:busy"]} == {0}


def test_least_slack_and_longest_activities_come_first(skewed: Pag) -> None:
    found = slack(skewed.snapshot(epoch=5)).select(["slack_ns", "duration_ns"]).to_pylist()
    keys = [(row["slack_ns"] is None, row["slack_ns"] or 0, -row["duration_ns"]) for row in found]
    assert keys == sorted(keys)
    assert len({key[0] for key in keys}) == 2


@pytest.mark.parametrize("loop", ["closed", "open"])
@pytest.mark.parametrize("sample", ["skewed", "bfs"])
def test_the_critical_path_has_no_slack(sample: str, loop: str, request: pytest.FixtureRequest) -> None:
    pag = request.getfixturevalue(sample)
    for window in pag.run.windows():
        snapshot = pag.run.snapshot(window)
        found = {
            (row["src"], row["dst"]): row["slack_ns"] for row in slack(snapshot, SlackParameters(loop=loop)).to_pylist()
        }
        assert all(ns is None or ns >= 0 for ns in found.values())
        steps = critical_path(snapshot).steps.to_pylist()
        if loop == "closed":
            assert [found[step["edge_src"], step["edge_dst"]] for step in steps] == [0] * len(steps)
        else:
            assert found[steps[-1]["edge_src"], steps[-1]["edge_dst"]] == 0


@given(
    st.one_of(small_traces(max_steps=40, instant=False), small_traces(max_steps=40, instant=False, skewed=True)),
    st.sampled_from(["closed", "open"]),
    st.sampled_from(["shortest", "read"]),
    st.data(),
)
def test_slack_says_by_how_much_the_end_moves(
    in_memory: Fixture, oracle: Any, trace: Any, loop: Any, arrival: Any, data: st.DataObject
) -> None:
    drawn = in_memory(trace)
    window = random_window(drawn, data)
    if window is None:
        return
    snapshot = drawn.run.snapshot(window)
    truth = oracle(drawn, window, loop=loop, arrival=arrival)
    assert truth.end_of() == window.end_ns
    found = slack(snapshot, SlackParameters(loop=loop, arrival=arrival)).to_pylist()
    assert len(found) == len(truth.edges)
    expected = truth.slacks()
    ids = {(edge["src"], edge["dst"]): number for number, edge in truth.edges.items()}
    for row in found:
        assert row["slack_ns"] == expected.get(ids[row["src"], row["dst"]])
    # Lengthen every activity: by less than its slack, by just it, and by more.
    graph = constraint_graph(snapshot, loop=loop, arrival=arrival)
    numbers = [ids[row["src"], row["dst"]] for row in graph.base.rows.iter_rows(named=True)]
    for number in truth.elements:
        free = expected.get(number)
        for more in {1, 10**6} if free is None else {free // 2 + 1, free, free + 1, free + 10**6}:
            moved = 0 if free is None else max(0, more - free)
            duration = graph.duration.copy()
            duration[numbers.index(number)] += more
            assert graph.replay(graph.weights(duration))[graph.end] == window.end_ns + moved
            if number % 5 == 0:
                assert truth.end_of({number: more}) == window.end_ns + moved


def random_window(drawn: Any, data: st.DataObject) -> Window | None:
    """An epoch's window, or a free one; None if it is empty."""
    run = drawn.run
    windows = run.windows()
    if run.end_ns and data.draw(st.booleans()):
        start = data.draw(st.integers(0, run.end_ns - 1))
        return run.window(between=(start, data.draw(st.integers(start + 1, run.end_ns))))
    window = data.draw(st.sampled_from(windows))
    return window if window.span_ns else None


def test_an_empty_window_has_no_rows(skewed: Pag) -> None:
    empty = Window(start_ns=10, end_ns=10)
    assert slack(skewed.run.snapshot(empty)).num_rows == 0


def test_clocks_must_be_aligned(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST, SLOW))
    drawn.rules = "st2"
    with pytest.raises(UnsupportedPlanError, match="aligned clocks"):
        table(drawn)


def test_a_wait_that_nothing_ended_is_an_error(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST, SLOW))
    drawn.edges = [edge for edge in drawn.edges if edge["type"] != "data_message"]
    with pytest.raises(PagError, match="Nothing explains when worker 1, position 7"):
        table(drawn)


def test_a_gap_is_an_error(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST, SLOW))
    drawn.edges = [edge for edge in drawn.edges if (edge["type"], edge["start_ns"]) != ("busy", 20)]
    with pytest.raises(PagError, match="No edge leads to worker 0, position 6"):
        table(drawn)


def test_events_that_wait_for_each_other_are_an_error(in_memory: Fixture) -> None:
    # Each message of the one instant is read before the other one is sent.
    crossed = [f"0 start 1 | 10 recv 3<{other} | 10 send 3>{other} | 20 stop 1 | 30 end" for other in (1, 0)]
    with pytest.raises(CycleError, match="waits for itself"):
        table(in_memory(draw(*crossed)))


def test_windows_that_end_while_everybody_waits(in_memory: Fixture) -> None:
    sender = "0 start 1 | 10 send 3>1 | 12 stop 1 | 12 park | 80 unpark | 81 start 1 | 82 recv 3<1 | 84 stop 1 | 90 end"
    receiver = "0 park | 40 unpark | 41 start 1 | 42 recv 3<0 | 70 send 3>0 | 72 stop 1 | 95 end"
    drawn = in_memory(draw(sender, receiver, processes=(0, 1)))
    # At 30 the message to worker 1 is under way.
    assert {name: ns for name, ns in table(drawn, between=(5, 30)).items() if ns is not None} == {
        "5 0:processing": 0,
        "10 0>1:data_message": 0,
    }
    # Without it there is only worker 0's wait: time that nobody used.
    drawn.edges = [edge for edge in drawn.edges if edge["start_ns"] != 10 or edge["type"] != "data_message"]
    assert {name: ns for name, ns in table(drawn, between=(5, 30)).items() if ns is not None} == {
        "5 0:processing": 0,
        "10 0:processing": 0,
        "12 0:busy": 0,
        "12 0:unknown": 0,
    }
