"""Waits of workers that poll, drawn: figures 5.1 to 5.4 of CPA, and what they leave open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pag_graph.testing.reference import build_reference
from pag_graph.testing.traces import draw
from tests.support.compare import assembled, differences

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.testing.reference import Reference

WORKS = "0 start 9 | 1 start 1 | 2 send 3>0 #5 | 8 stop 1 | 10 stop 9"
"""A step of the scope 9 in which operator 1 does something."""


def polls(*times: int) -> str:
    """Steps of the scope 9 in which operators 1 and 2 find nothing to do."""
    step = "{} start 9 | {} start 1 | {} stop 1 | {} start 2 | {} stop 2 | {} stop 9"
    return " | ".join(step.format(t, t + 1, t + 2, t + 2, t + 3, t + 4) for t in times)


def local(graph: Reference, worker: int) -> str:
    """Return a worker's time as ``start type end type end``; ``?`` marks what is inferred."""
    edges = [edge for edge in graph.edges if edge["read"] is None and edge["src"] >> 40 == worker]
    edges.sort(key=lambda edge: edge["dst"])
    words = [f"{e['type']}{'?' * e['flags']} {e['start_ns'] + e['duration_ns']}" for e in edges]
    return " ".join([str(edges[0]["start_ns"]), *words])


@pytest.mark.parametrize(
    ("sender", "polled", "then", "expected"),
    [
        # 5.1: steps that find nothing are one wait; it ends when the message arrives, and the worker polls on.
        (
            "0 start 7 | 38 send 3>1 | 100 stop 7",
            (10, 15, 20, 25, 30, 35),
            "40 start 9 | 41 start 1 | 41 recv 3<0 | 49 stop 1 | 50 stop 9",
            "10 waiting? 38 wake_up 38 busy 39 busy 40 busy 41 processing 41 processing 49 busy 50 unknown 100",
        ),
        # 5.2: from the arrival of a message on, there is something to do, though other operators spin first.
        (
            "0 start 7 | 23 send 3>1 | 40 stop 7",
            (10, 15, 20),
            ("25 start 9 | 26 start 2 | 27 stop 2 | 28 start 1 | 29 recv 3<0 | 35 stop 1 | 36 stop 9"),
            (
                "10 waiting? 23 wake_up 23 busy 24 busy 25 busy 26 spinning 27 busy 28 processing 29 processing"
                " 35 busy 36"
                " unknown 40"
            ),
        ),
        # 5.3: progress makes operator 1 run in the next step, and what that sends makes operator 2 run: no waits.
        (
            "0 start 7 | 23 psend 8 | 60 stop 7",
            (10, 15),
            (
                "20 start 9 | 24 precv 8<0 | 25 push 1 | 26 stop 9 | 26 start 9 | 27 start 1"
                " | 28 send 4>1 #3 | 33 stop 1 | 33 start 2 | 34 recv 4<1 #3 | 38 stop 2 | 39 stop 9"
            ),
            (
                "10 waiting? 23 wake_up 24 spinning 26 busy 26 busy 27 processing 33 busy 33 processing 38 busy 39"
                " unknown 60"
            ),
        ),
        # 5.4: an operator does something that nothing explains: it got input, and the worker had waited for that.
        (
            "0 start 7 | 60 stop 7",
            (10, 15, 20),
            "25 start 9 | 26 start 2 | 27 send 3>0 | 35 stop 2 | 36 stop 9",
            "10 input_wait? 26 processing 27 processing 35 busy 36 unknown 60",
        ),
        # A message that a step did not find had not arrived when that step began, whenever it was sent.
        (
            "0 start 7 | 11 send 3>1 | 60 stop 7",
            (10, 15, 20),
            "25 start 9 | 26 start 1 | 27 recv 3<0 | 35 stop 1 | 36 stop 9",
            (
                "10 waiting? 20 wake_up 20 busy 21 spinning 22 busy 22 spinning 23 busy 24 busy 25 busy 26"
                " processing 27"
                " processing 35 busy 36 unknown 60"
            ),
        ),
        # Nothing ends the last stretch: it stays what the log shows.
        (
            "0 start 7 | 21 stop 7",
            (12,),
            "",
            "12 busy 13 spinning 14 busy 14 spinning 15 busy 16 unknown 21",
        ),
    ],
)
def test_a_worker_that_polls(tmp_path: Path, sender: str, polled: tuple[int, ...], then: str, expected: str) -> None:
    trace = draw(sender, f"{WORKS} | {polls(*polled)} | {then}", idle_logged=False)
    graph = assembled(trace, tmp_path)
    assert differences(graph, build_reference(trace)) == ""
    assert local(graph, 1).partition(" 8 busy 10 busy ")[2] == expected


def test_a_message_of_another_process_arrives_with_the_step_that_reads_it(tmp_path: Path) -> None:
    trace = draw(
        "0 start 7 | 3 send 3>1 | 60 stop 7",
        f"{WORKS} | {polls(10, 15)} | 25 start 9 | 26 start 1 | 27 recv 3<0 | 35 stop 1 | 36 stop 9",
        processes=[0, 1],
        idle_logged=False,
    )
    graph = assembled(trace, tmp_path)
    assert differences(graph, build_reference(trace)) == ""
    assert "waiting? 25 wake_up 25 busy 26" in local(graph, 1)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        # Since 9 the worker has not looked: the message may have been there at 10, whatever is read from 25 on.
        (9, "10 busy 25 busy 26"),
        # The same, though the step before took long and began before the send.
        (1, "10 busy 25 busy 26"),
        # It was sent while the worker did nothing: whether it came at once or at 25, the worker waited for it.
        (11, "10 waiting? 25 wake_up 25 busy 26"),
    ],
)
def test_what_nobody_looked_for_may_have_been_there(tmp_path: Path, sent: int, expected: str) -> None:
    trace = draw(
        f"0 start 7 | {sent} send 3>1 | 60 stop 7",
        f"{WORKS} | 25 start 9 | 26 start 1 | 27 recv 3<0 | 35 stop 1 | 36 stop 9",
        processes=[0, 1],
        idle_logged=False,
    )
    graph = assembled(trace, tmp_path, busy_below_ns=5)
    assert differences(graph, build_reference(trace, busy_below_ns=5)) == ""
    assert expected in local(graph, 1)


def test_a_step_that_sends_progress_did_something(tmp_path: Path) -> None:
    # Operator 1 has no message in the log, as local ones are not in it: what the step says at 38 tells that it worked.
    long = "20 start 9 | 21 start 1 | 37 stop 1 | 38 psend 8 | 39 stop 9"
    trace = draw("0 start 7 | 60 stop 7", f"{WORKS} | {polls(12)} | {long}", idle_logged=False)
    graph = assembled(trace, tmp_path)
    assert differences(graph, build_reference(trace)) == ""
    assert local(graph, 1).endswith(" 20 busy 21 spinning 37 busy 38 busy 39 unknown 60")


def test_a_stop_of_what_never_started_ends_no_activity_of_the_program(tmp_path: Path) -> None:
    later = "50 start 9 | 51 start 1 | 51 recv 3<0 | 58 stop 1 | 60 stop 9"
    trace = draw(
        "0 start 7 | 49 send 3>1 | 99 stop 7",
        f"{WORKS} | {polls(12)} | 20 app 4 | 21 endapp 5 | {polls(22)} | 30 endapp 4 | {polls(31, 40)} | {later}",
        idle_logged=False,
    )
    graph = assembled(trace, tmp_path)
    assert differences(graph, build_reference(trace)) == ""
    waits = [edge for edge in graph.edges if edge["type"] in {"waiting", "input_wait"}]
    assert [(edge["start_ns"], edge["duration_ns"]) for edge in waits] == [(30, 19)]


def test_what_the_log_says_is_not_inferred(tmp_path: Path) -> None:
    logs = ("0 start 7 | 38 send 3>1 | 60 stop 7", f"{WORKS} | {polls(10, 15, 20)} | 40 recv 3<0 | 50 end")
    said = assembled(draw(*logs), tmp_path / "said")
    assert {edge["type"] for edge in said.edges} & {"waiting", "input_wait"} == set()
    assert not any(name == "no_idle_logged" for name, *_ in said.findings)
    inferred = assembled(draw(*logs, idle_logged=False), tmp_path / "inferred")
    assert [key[:2] for key in inferred.findings if key[0] == "no_idle_logged"] == [
        ("no_idle_logged", 0),
        ("no_idle_logged", 1),
    ]


@pytest.mark.parametrize("one", ["", " 2147483648", " 2305843009213693952"])
@pytest.mark.parametrize("other", ["", " 0", " 7"])
def test_operators_may_have_no_number_or_any(tmp_path: Path, one: str, other: str) -> None:
    trace = draw(
        f"0 start{one} | 1 stop{one} | 2 push 0 | 3 start{other} | 4 stop{other} | 5 precv 9<1 | 6 start{one}"
        f" | 6 recv 3<1 | 7 stop{one} | 8 start{other} | 30 recv 3<1 #1 | 31 stop{other} | 50 end",
        "0 start 9 | 2 send 3>0 | 3 psend 9 | 20 send 3>0 #1 | 50 end",
        idle_logged=False,
    )
    assert differences(assembled(trace, tmp_path), build_reference(trace)) == ""
