"""The rules `timely`, case by case: traces small enough to draw, with the answer drawn next to them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.model.ids import vertex_id
from pag_graph.testing.reference import build_reference
from pag_graph.testing.traces import draw
from tests.support.compare import assembled, differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.testing.reference import Reference
    from pag_graph.testing.traces import SmallTrace

    Build = Callable[..., Reference]

# What a worker does that only has to be there: it runs an operator that does nothing, until the end of the run.
PEER = "0 start 9 | 100 stop 9"


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Build a drawn trace; the slow reference must agree with what is drawn here."""

    def run(*logs: str, **more: Any) -> Reference:
        trace: SmallTrace = draw(*logs, **more)
        graph = assembled(trace, tmp_path)
        assert differences(graph, build_reference(trace)) == ""
        return graph

    return run


def local(graph: Reference, worker: int = 0) -> str:
    """A worker's time as it is written in these tests: ``start type end`` per edge, in order."""
    edges = [edge for edge in graph.edges if edge["read"] is None and edge["src"] >> 40 == worker]
    edges.sort(key=lambda edge: edge["dst"])
    assert all(a["dst"] == b["src"] for a, b in itertools.pairwise(edges))
    return " ".join([str(edges[0]["start_ns"]), *(f"{e['type']} {e['start_ns'] + e['duration_ns']}" for e in edges)])


def messages(graph: Reference) -> list[tuple[str, int, int, int, int, str]]:
    """Messages as (type, sender, sent, receiver, end of the edge, kind of the vertex where it ends)."""
    kinds = {row["id"]: row["kind"] for row in graph.vertices}
    return sorted(
        (
            edge["type"],
            edge["src"] >> 40,
            edge["start_ns"],
            edge["dst"] >> 40,
            edge["start_ns"] + edge["duration_ns"],
            kinds[edge["dst"]],
        )
        for edge in graph.edges
        if edge["read"] is not None
    )


def kinds(graph: Reference, worker: int = 0) -> list[str]:
    return [row["kind"] for row in sorted(graph.vertices, key=lambda row: row["id"]) if row["worker"] == worker]


def found(graph: Reference) -> dict[str, int]:
    return {name: sum(n for key, n in graph.findings.items() if key[0] == name) for name, *_ in graph.findings}


# --- Activations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        # An operator that sends or reads data works, one that does neither spins.
        ("0 start 1 | 5 send 3>1 | 9 stop 1 | 10 end", "0 processing 5 processing 9 busy 10"),
        ("0 start 1 | 5 recv 3<1 | 9 stop 1 | 10 end", "0 processing 5 processing 9 busy 10"),
        ("0 start 1 | 9 stop 1 | 10 end", "0 spinning 9 busy 10"),
        # A message between operators of one worker is no edge, but it is work.
        ("0 start 1 | 5 send 3>0 | 9 stop 1 | 10 end", "0 processing 9 busy 10"),
        # Progress is no data.
        ("0 start 1 | 5 psend 9 | 9 stop 1 | 10 end", "0 spinning 5 spinning 9 busy 10"),
        ("0 start 1 | 5 precv 9<1 | 9 stop 1 | 10 end", "0 spinning 5 spinning 9 busy 10"),
        # Progress that was pushed just before makes it work, if that is what the operator was pushed for.
        ("0 push 1 | 0 start 1 | 9 stop 1 | 10 end", "0 processing 9 busy 10"),
        ("0 push 2 | 0 start 1 | 9 stop 1 | 10 end", "0 spinning 9 busy 10"),
        ("0 push 1 | 0 psend 9 | 0 start 1 | 9 stop 1 | 10 end", "0 busy 0 spinning 9 busy 10"),
        # A scope is the runtime outside its children; data inside a child is the child's.
        (
            "0 start 1 | 2 start 2 | 4 send 3>1 | 6 stop 2 | 8 stop 1 | 10 end",
            "0 busy 2 processing 4 processing 6 busy 8 busy 10",
        ),
        # Data of a scope itself does not make it work.
        ("0 start 1 | 1 send 3>1 | 2 start 2 | 6 stop 2 | 8 stop 1", "0 busy 1 busy 2 spinning 6 busy 8 unknown 100"),
        ("0 start 1 | 2 start 2 | 6 stop 2 | 7 send 3>1 | 8 stop 1", "0 busy 2 spinning 6 busy 7 busy 8 unknown 100"),
        # Between activations the runtime is at work.
        ("0 start 1 | 2 stop 1 | 5 start 1 | 6 stop 1 | 10 end", "0 spinning 2 busy 5 spinning 6 busy 10"),
    ],
)
def test_activations(build: Build, log: str, expected: str) -> None:
    graph = build(log, PEER)
    assert local(graph).removesuffix(" unknown 100") == expected.removesuffix(" unknown 100")


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        # What is open where rows are missing ends there, and what the worker did meanwhile nobody knows.
        ("0 start 1 | 2 send 3>1 | lost | 9 stop 1 | 10 end", "0 processing 2 unknown 9 busy 10"),
        ("0 start 1 | 2 start 2 | lost | 5 send 3>1 | 9 end", "0 busy 2 unknown 5 busy 9"),
        ("0 app 7 | 2 start 1 | lost | 5 start 2 | 7 stop 2 | 8 endapp 7 | 9 end",
         "0 application 2 unknown 5 spinning 7 busy 8 busy 9"),
        # Also where the first row behind is no vertex.
        ("0 start 1 | lost | 5 push 2 | 6 start 2 | 8 stop 2 | 9 end", "0 unknown 6 processing 8 busy 9"),
        # What is pushed, parks and continues is not what was logged just before.
        ("0 push 1 | lost | 2 start 1 | 8 stop 1 | 9 end", "0 unknown 2 spinning 8 busy 9"),
        ("0 start 1 | 1 stop 1 | 2 park 3 | lost | 6 unpark | 9 end", "0 spinning 1 busy 2 unknown 6 busy 9"),
        ("0 end | 1 park 3 | 4 unpark | lost | 5 park 2 | 7 unpark | 9 end", "0 busy 1 idle 4 unknown 5 idle 7 busy 9"),
        # A park that nothing explains before rows are missing may have been a wait.
        ("0 end | 1 park | 4 unpark | lost | 5 recv 3<1 | 9 end", "0 busy 1 unknown 4 unknown 5 busy 9"),
        ("0 end | 1 park | 4 unpark | 5 recv 3<1 | lost | 9 end", "0 busy 1 waiting 3 wake_up 4 busy 5 unknown 9"),
    ],
)  # fmt: skip
def test_rows_that_are_missing(build: Build, log: str, expected: str) -> None:
    graph = build(log, "0 start 9 | 3 send 3>0 | 100 stop 9")
    assert local(graph).removesuffix(" unknown 100") == expected


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        # What is open at an exit ends there, whatever a log says that goes on.
        ("0 start 1 | 2 send 3>1 | 4 exit | 9 stop 1 | 10 end", "0 processing 2 processing 4 unknown 9 busy 10"),
        ("0 app 7 | 4 exit | 6 start 1 | 8 stop 1 | 9 endapp 7", "0 application 4 unknown 6 spinning 8 busy 9"),
        (
            "0 start 1 | 1 stop 1 | 2 park 3 | 4 exit | 6 unpark | 9 end",
            "0 spinning 1 busy 2 unknown 4 unknown 6 busy 9",
        ),
        # What is read behind it ends no wait.
        ("0 end | 1 park | 4 unpark | 4 exit | 5 recv 3<1 | 9 end", "0 busy 1 busy 4 busy 4 unknown 5 busy 9"),
    ],
)
def test_logs_that_go_on_after_an_exit(build: Build, log: str, expected: str) -> None:
    graph = build(log, "0 start 9 | 3 send 3>0 | 100 stop 9")
    assert local(graph).removesuffix(" unknown 100") == expected
    assert found(graph)["exit_before_last_event"] == 1


def test_numbers_that_nobody_promised_to_be_without_gaps_say_nothing(tmp_path: Path) -> None:
    trace = replace(draw("0 start 1 | 2 send 3>1 | lost | 9 stop 1 | 10 end", "3 recv 3<0 | 10 end"), gapless=False)
    assert local(assembled(trace, tmp_path)) == "0 processing 2 processing 9 busy 10"


def test_what_is_open_where_rows_are_missing_is_named_once(build: Build) -> None:
    graph = build("0 app 7 | 1 start 1 | 2 start 2 | lost | 5 app 8 | lost | 6 stop 1 | 9 endapp 8", PEER)
    assert found(graph).items() >= {
        ("activation_not_stopped", 2),
        ("application_not_stopped", 2),
        ("stop_without_start", 1),
        ("application_stop_without_start", 1),
    }


def test_an_activation_is_named_by_its_start_and_counts_its_records_once(build: Build) -> None:
    graph = build(
        "0 start 1 | 2 recv 3<1 #0 *4 | 3 recv 3<1 #1 *5 | 8 start 2 | 9 stop 2 | 10 stop 1 | 11 end",
        "0 send 3>0 #0 *4 | 0 send 3>0 #1 *5 | 11 end",
    )
    edges = sorted((e for e in graph.edges if e["read"] is None and e["src"] >> 40 == 0), key=lambda e: e["dst"])
    assert [(e["type"], e["operator"], e["activation"], e["records"]) for e in edges] == [
        ("busy", 1, 2, 9),
        ("busy", 1, 2, None),
        ("busy", 1, 2, None),
        ("spinning", 2, 8, None),
        ("busy", 1, 2, None),
        ("busy", None, None, None),
    ]


def test_inferred_work_is_flagged(build: Build) -> None:
    graph = build("0 push 1 | 0 start 1 | 4 stop 1 | 5 push 1 | 5 start 1 | 6 send 3>0 | 9 stop 1 | 10 end")
    assert [(e["start_ns"], e["type"], e["flags"]) for e in sorted(graph.edges, key=lambda e: e["dst"])] == [
        (0, "processing", 1),
        (4, "busy", 0),
        (5, "processing", 0),
        (9, "busy", 0),
    ]
    assert graph.dropped == {"push_progress": 2, "worker_local_message": 1}


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        # Sent before worker 1 is there: due at worker 0 alone.
        ("3 psend 9 | 4 precv 9<0", {}),
        ("3 psend 9", {"send_without_receive": 1}),
        # Whoever joins may read it all the same.
        ("3 psend 9 | 4 precv 9<0 | 8 recv 3<1 | 8 psend 9 #1 | 9 precv 9<0 #1", {"send_without_receive": 1}),
        # Sent after worker 1 has left.
        ("35 psend 9 | 36 precv 9<0", {}),
    ],
)
def test_broadcasts_are_due_where_workers_are_alive(build: Build, progress: str, expected: dict[str, int]) -> None:
    joiner = "7 start 1 | 7 send 3>0 | 9 stop 1 | 30 exit"
    ending = "" if "recv 3" in progress else "31 recv 3<1 | "
    log = f"0 start 1 | 1 stop 1 | 2 spawn 1 | {progress} | {ending}40 end"
    rows = sorted(log.split(" | "), key=lambda row: int(row.split()[0]))
    assert found(build(" | ".join(rows), joiner)) == expected


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        # A step ends at 7, and the program runs until the next one begins.
        (
            "0 start 1 | 5 stop 1 | 7 stepped | 20 program | 21 start 1 | 30 stop 1",
            "0 spinning 5 busy 7 program 20 busy",
        ),
        # What the program does there by itself cuts its time.
        ("0 stepped | 5 program | 5 send 3>0 | 9 program | 9 end | 10 end", "0 program 5 program 9 busy 9 busy"),
        # It cannot run while an operator does, whatever a log says, nor while the worker sleeps.
        ("0 start 1 | 3 program | 5 stop 1 | 9 program", "0 spinning 3 spinning 5 program 9"),
        ("0 stepped | 2 program | 2 park | 9 unpark | 9 start 1", "0 program 2 busy 2 busy 9 busy 9"),
        # A named activity covers it.
        ("0 stepped | 1 program | 1 app 50 | 8 program | 8 endapp 50 | 9 end", "0 program 1 busy 1 application 8"),
    ],
)
def test_the_program_runs_between_steps(build: Build, log: str, expected: str) -> None:
    assert local(build(log + " | 40 end")).startswith(expected)


@pytest.mark.parametrize(
    ("log", "expected", "finding"),
    [
        ("0 end | 3 stop 1 | 10 end", "0 busy 3 busy 10", "stop_without_start"),
        # Closing an outer activation closes those inside as well.
        ("0 start 1 | 2 start 2 | 5 stop 1 | 10 end", "0 busy 2 spinning 5 busy 10", "stop_of_outer_activation"),
        ("0 start 1 | 10 end", "0 spinning 10", "activation_not_stopped"),
        ("0 park | 10 end", "0 unknown 10", "park_without_unpark"),
        ("0 end | 4 unpark | 10 end", "0 busy 4 busy 10", "unpark_without_park"),
        ("0 park | 4 park | 10 unpark | 10 end", "0 unknown 4 busy 10 busy 10", "park_without_unpark"),
    ],
)
def test_broken_logs_are_findings(build: Build, log: str, expected: str, finding: str) -> None:
    graph = build(log)
    assert local(graph) == expected
    assert found(graph) == {finding: 1}


# --- Waits --------------------------------------------------------------------------------------------------------


def test_a_message_ends_a_wait_when_it_arrives(build: Build) -> None:
    graph = build("0 start 1 | 10 stop 1 | 20 park | 60 unpark | 65 recv 3<1 *2 | 70 end", "0 start 9 | 50 send 3>0 *2")
    assert local(graph) == "0 spinning 10 busy 20 waiting 50 wake_up 60 busy 65 busy 70"
    assert kinds(graph) == ["start", "stop", "park", "arrival", "unpark", "receive", "epoch_end"]
    assert messages(graph) == [("data_message", 1, 50, 0, 50, "arrival")]
    [message] = [edge for edge in graph.edges if edge["read"]]
    assert message["dst"] == vertex_id(0, 7)
    assert message["read"] == vertex_id(0, 10)
    assert (message["receive_buffer_ns"], message["flags"], message["records"]) == (15, 4, 2)


def test_segments_begin_where_waits_end(build: Build) -> None:
    graph = build("5 start 1 | 10 stop 1 | 20 park | 60 unpark | 65 recv 3<1 | 70 end", "0 start 9 | 50 send 3>0")
    segments = {row["pos"]: row["segment"] for row in graph.vertices if row["worker"] == 0}
    # run_start, start, stop, park | arrival, unpark, receive, epoch_end
    assert segments == dict.fromkeys((1, 2, 4, 6), vertex_id(0, 1)) | dict.fromkeys((7, 8, 10, 12), vertex_id(0, 7))


@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        # Sent in the very instants of park and unpark: inside.
        ("0 start 9 | 20 send 3>0 | 99 end", "20 waiting 20 wake_up 60"),
        ("0 start 9 | 60 send 3>0 | 99 end", "20 waiting 60 wake_up 60"),
        # Sent before the park by a thread of the same process: it lay there already.
        ("0 start 9 | 19 send 3>0 | 99 end", "20 busy 60"),
        # Sent after the unpark: it cannot have ended the park.
        ("0 start 9 | 61 send 3>0 | 99 end", "20 busy 60"),
        # Progress ends waits as well.
        ("0 start 9 | 30 psend 3 | 99 end", "20 waiting 30 wake_up 60"),
    ],
)
def test_when_the_message_was_sent(build: Build, sender: str, expected: str) -> None:
    read = "precv" if "psend" in sender else "recv"
    graph = build(f"0 start 1 | 20 park | 60 unpark | 65 {read} 3<1 | 99 end", sender)
    assert expected in local(graph)


def test_a_buffered_message_keeps_a_park_from_being_a_wait_whatever_came_later(build: Build) -> None:
    sender = "0 start 9 | 10 send 3>0 #0 | 30 send 3>0 #1 | 99 end"
    graph = build("0 start 1 | 20 park | 60 unpark | 65 recv 3<1 #1 | 70 recv 3<1 #0 | 99 end", sender)
    assert "20 busy 60" in local(graph)
    assert messages(graph) == [
        ("data_message", 1, 10, 0, 70, "receive"),
        ("data_message", 1, 30, 0, 65, "receive"),
    ]


def test_a_buffered_message_to_itself_does_as_well(build: Build) -> None:
    log = "0 start 1 | 10 send 3>0 | 20 park | 60 unpark | 65 recv 3<0 | 66 recv 4<1 | 99 end"
    graph = build(log, "0 start 9 | 30 send 4>0 | 99 end")
    assert "10 busy" not in local(graph)
    assert "20 busy 60" in local(graph)
    assert graph.dropped == {"worker_local_message": 2}


def test_a_message_to_itself_ends_no_wait(build: Build) -> None:
    # A worker that sleeps sends nothing; a log that says so is at the very instant of the park.
    log = "0 start 1 | 5 stop 1 | 20 send 3>0 | 20 park | 60 unpark | 65 recv 3<0 | 99 end"
    assert "20 busy 60" in local(build(log, PEER))


def test_messages_read_before_the_park_or_after_the_next_one_do_not_count(build: Build) -> None:
    log = "0 start 1 | 15 recv 3<1 #0 | 20 park | 60 unpark | 62 start 2 | 63 stop 2 | 70 park | 80 unpark"
    graph = build(f"{log} | 85 recv 3<1 #1 | 99 end", "0 send 3>0 #0 | 30 send 3>0 #1 | 99 end")
    # The second message was sent during the first park, and lay there when the second began.
    assert "20 busy 60" in local(graph)
    assert "70 busy 80" in local(graph)


def test_several_parks_without_anything_between_are_one(build: Build) -> None:
    log = "0 start 1 | 20 park | 30 unpark | 35 park 7 | 42 unpark | 43 park | 60 unpark | 65 recv 3<1 | 99 end"
    graph = build(log, "0 start 9 | 50 send 3>0 | 99 end")
    assert "20 waiting 50 wake_up 60" in local(graph)
    assert kinds(graph) == ["start", "park", "arrival", "unpark", "receive", "epoch_end"]
    assert graph.dropped == {"merged_park": 4}


def test_parks_with_an_event_between_are_two(build: Build) -> None:
    log = "0 start 1 | 20 park | 30 unpark | 35 end | 43 park | 60 unpark | 65 recv 3<1 | 99 end"
    graph = build(log, "0 start 9 | 50 send 3>0 | 60 end | 99 end")
    assert "20 busy 30" in local(graph)
    assert "43 waiting 50 wake_up 60" in local(graph)
    assert not graph.dropped


@pytest.mark.parametrize(
    ("reads", "first", "second", "alternatives"),
    [
        # The earliest sent, not the first read, not the lowest sender.
        ("65 recv 3<1 | 66 recv 3<2 *1", "40 send 3>0", "30 send 3>0", 0),
        # At the same time: the lower sender, then the lower channel, then the lower number.
        ("65 recv 3<2 | 66 recv 4<1 *1", "30 send 4>0", "30 send 3>0", 1),
        ("65 recv 4<1 #0 | 66 recv 3<1 #1 *1", "30 send 3>0 #1 | 30 send 4>0 #0", "99 end", 1),
        ("65 recv 3<1 #1 | 66 recv 3<1 #0 *1", "30 send 3>0 #1 | 30 send 3>0 #0", "99 end", 1),
        ("65 recv 3<1 #1 | 66 recv 3<1 #0 *1", "30 send 3>0 #0 | 30 send 3>0 #1", "99 end", 1),
        # A broadcast and a data message.
        ("65 precv 4<1 | 66 recv 3<1 *1", "30 psend 4 | 30 send 3>0", "99 end", 1),
    ],
)
def test_ties_between_messages(build: Build, reads: str, first: str, second: str, alternatives: int) -> None:
    graph = build(
        f"0 start 1 | 20 park | 60 unpark | {reads} | 99 end", f"0 start 9 | {first}", f"0 start 9 | {second}"
    )
    [ender] = [edge for edge in graph.edges if edge["read"] not in {None, edge["dst"]}]
    # The record marks the message that ended the wait. In one process only what was sent at the same time is as good.
    assert (ender["records"], ender["alternatives"]) == (1, alternatives)


def test_two_clocks_leave_alternatives(build: Build) -> None:
    graph = build(
        "0 start 1 | 20 park | 60 unpark | 65 recv 3<1 | 66 recv 3<2 | 67 recv 3<3 | 99 end",
        "0 start 9 | 30 send 3>0 | 99 end",
        "0 start 9 | 34 send 3>0 | 99 end",
        "0 start 9 | 36 send 3>0 | 99 end",
        processes=[0, 1, 1, 1],
        uncertainty_ns=[2, 3, 3, 3],
    )
    [edge] = [edge for edge in graph.edges if edge["read"] not in {None, edge["dst"]}]
    # 34 lies within 2 + 3 ns of 30, 36 does not.
    assert (edge["src"] >> 40, edge["alternatives"]) == (1, 1)


# --- Other processes ----------------------------------------------------------------------------------------------


def test_a_message_of_another_process_arrives_at_the_unpark(build: Build) -> None:
    log = "0 start 1 | 20 park | 60 unpark | 65 recv 3<1 | 99 end"
    graph = build(log, "0 start 9 | 50 send 3>0 | 99 end", processes=[0, 1])
    assert "20 waiting 60 wake_up 60" in local(graph)
    assert messages(graph) == [("data_message", 1, 50, 0, 60, "arrival")]
    assert [e["receive_buffer_ns"] for e in graph.edges if e["read"]] == [5]


def test_one_that_was_under_way_before_the_park_ends_it_where_nothing_better_does(build: Build) -> None:
    log = "0 start 1 | 20 park | 60 unpark | 65 recv 3<1 #0 | 66 recv 3<1 #1 | 99 end"
    graph = build(log, "0 start 9 | 10 send 3>0 #0 | 15 send 3>0 #1 | 99 end", processes=[0, 1])
    # The latest of them: it came last.
    assert messages(graph) == [("data_message", 1, 10, 0, 65, "receive"), ("data_message", 1, 15, 0, 60, "arrival")]
    later = build(log, "0 start 9 | 10 send 3>0 #0 | 45 send 3>0 #1 | 99 end", processes=[0, 1])
    assert messages(later) == [("data_message", 1, 10, 0, 65, "receive"), ("data_message", 1, 45, 0, 60, "arrival")]


def test_what_ended_no_wait_came_nobody_knows_when(build: Build) -> None:
    graph = build("0 start 1 | 65 recv 3<1 | 99 end", "0 start 9 | 50 send 3>0 | 99 end", processes=[0, 1])
    [edge] = [edge for edge in graph.edges if edge["read"]]
    assert (edge["duration_ns"], edge["receive_buffer_ns"], edge["flags"]) == (15, None, 4)


def test_the_message_that_arrived_first_ends_a_wait(build: Build) -> None:
    # Worker 1 sent first, but what worker 2 sent overtook it.
    senders = ("0 start 9 | 30 send 3>0 | 99 end", "0 start 9 | 40 send 3>0 | 99 end")
    log = "0 start 1 | 20 park | 60 unpark | 65 recv 3<1{} | 66 recv 3<2{} | 99 end"
    by_sends = build(log.format("", ""), *senders, processes=[0, 1, 1])
    assert messages(by_sends) == [("data_message", 1, 30, 0, 60, "arrival"), ("data_message", 2, 40, 0, 66, "receive")]
    by_arrivals = build(log.format(" @55", " @50"), *senders, processes=[0, 1, 1])
    assert messages(by_arrivals) == [
        ("data_message", 1, 30, 0, 65, "receive"),
        ("data_message", 2, 40, 0, 50, "arrival"),
    ]
    assert "20 waiting 50 wake_up 60" in local(by_arrivals)
    edges = sorted((edge for edge in by_arrivals.edges if edge["read"]), key=lambda edge: edge["read"])
    assert [(edge["receive_buffer_ns"], edge["flags"]) for edge in edges] == [(10, 0), (16, 0)]


@pytest.mark.parametrize(
    ("arrived", "expected", "buffered"),
    [
        # It was there before the worker parked: there was nothing to wait for.
        ("@18", "20 busy 60", 47),
        # It came while the worker slept, though it was sent before.
        ("@20", "20 waiting 20 wake_up 60", 45),
        ("@58", "20 waiting 58 wake_up 60", 7),
        # It came after the worker had woken up.
        ("@61", "20 busy 60", 4),
        # Clocks that disagree: it was not there before it was sent.
        ("@10", "20 busy 60", 50),
    ],
)
def test_a_message_is_buffered_from_its_arrival_on(build: Build, arrived: str, expected: str, buffered: int) -> None:
    log = f"0 start 1 | 20 park | 60 unpark | 65 recv 3<1 {arrived} | 99 end"
    graph = build(log, "0 start 9 | 15 send 3>0 | 99 end", processes=[0, 1])
    assert expected in local(graph)
    [edge] = [edge for edge in graph.edges if edge["read"]]
    assert (edge["receive_buffer_ns"], edge["flags"]) == (buffered, 4 * (arrived == "@10"))


def test_negative_transfer_is_kept_flagged_found_and_ends_no_wait(build: Build) -> None:
    log = "0 start 1 | 20 park | 60 unpark | 65 recv 3<1 | 99 end"
    graph = build(log, "0 start 9 | 70 send 3>0 | 99 end", processes=[0, 1])
    assert "20 busy 60" in local(graph)
    [edge] = [edge for edge in graph.edges if edge["read"]]
    assert (edge["duration_ns"], edge["receive_buffer_ns"], edge["flags"]) == (-5, None, 2 + 4)
    assert graph.findings["negative_transfer", 0, 3, -5] == 1


def test_clocks_are_aligned_once(build: Build) -> None:
    log = "1000 start 1 | 1020 park | 1060 unpark | 1065 recv 3<1 | 1099 end"
    graph = build(log, "-7 start 9 | 43 send 3>0 | 92 end", offsets_ns=[0, 1007])
    # Worker 1's clock lags 1007 ns behind; the run begins with the first event of any worker, which is at 1000.
    assert local(graph) == "0 processing 20 waiting 50 wake_up 60 processing 65 processing 99"
    assert local(graph, 1).startswith("0 processing 50")


# --- Parks that no message ended ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parks", "expected"),
    [
        # It ran its time, to the nanosecond or longer.
        ("20 park 40 | 60 unpark", "20 idle 60"),
        ("20 park 39 | 60 unpark", "20 idle 60"),
        ("20 park 0 | 20 unpark", "20 idle 20"),
        # It did not.
        ("20 park 41 | 60 unpark", "20 busy 60"),
        # Of merged ones the last one's limit counts, from its own start.
        ("20 park | 30 unpark | 30 park 30 | 60 unpark", "20 idle 60"),
        ("20 park 10 | 30 unpark | 30 park | 60 unpark", "20 busy 60"),
        ("20 park 10 | 30 unpark | 30 park 31 | 60 unpark", "20 busy 60"),
        # Nothing explains it: below 5 us it is the runtime's own business.
        ("20 park | 5019 unpark", "20 busy 5019"),
        ("20 park | 5020 unpark", "20 unknown 5020"),
        # Work follows: the input came from outside.
        ("20 park | 60 unpark | 61 start 2 | 62 send 4>1 | 63 stop 2", "20 input_wait 60"),
        ("20 park | 60 unpark | 61 push 2 | 61 start 2 | 63 stop 2", "20 input_wait 60"),
        ("20 park | 60 unpark | 61 start 2 | 63 stop 2", "20 busy 60"),
        # Not before the next park.
        ("20 park | 60 unpark | 61 end | 62 park 1 | 63 unpark | 64 start 2 | 65 send 4>1 | 66 stop 2", "20 busy 60"),
        # A limit that ran out explains more than the work that follows.
        ("20 park 40 | 60 unpark | 61 start 2 | 62 send 4>1 | 63 stop 2", "20 idle 60"),
    ],
)
def test_parks_that_no_message_ended(build: Build, parks: str, expected: str) -> None:
    graph = build(f"0 start 1 | 5 stop 1 | {parks} | 6000 end", "0 start 9 | 6000 end")
    assert f" {expected}" in local(graph)


def test_a_message_explains_more_than_a_limit_that_ran_out(build: Build) -> None:
    graph = build("0 start 1 | 20 park 40 | 60 unpark | 65 recv 3<1 | 99 end", "0 start 9 | 50 send 3>0 | 99 end")
    assert "20 waiting 50 wake_up 60" in local(graph)


def test_a_message_whose_send_nobody_logged_ends_no_wait(build: Build) -> None:
    graph = build("0 start 1 | 20 park | 60 unpark | 65 recv 3<1 | 99 end", "0 start 9 | 99 stop 9")
    assert "20 busy 60" in local(graph)
    assert graph.findings["receive_without_send", 0, 3, None] == 1
    assert messages(graph) == []


@pytest.mark.parametrize("read", ["recv 3<7", "precv 3<7", "recv 3<7 @55"])
@pytest.mark.parametrize(
    ("rest", "more"),
    [("20 park | 60 unpark", {}), ("20 park | 60 unpark", {"processes": [0, 1]}), ("", {"idle_logged": False})],
    ids=["one process", "processes", "nothing said of idleness"],
)
def test_nor_does_one_of_a_worker_that_the_run_does_not_have(
    build: Build, read: str, rest: str, more: dict[str, Any]
) -> None:
    graph = build(f"0 start 1 | 9 stop 1 | {rest} | 65 {read} | 99 end", PEER, **more)
    assert found(graph)["receive_without_send"] == 1
    assert "waiting" not in local(graph)
    assert messages(graph) == []


# --- Messages -------------------------------------------------------------------------------------------------------


def test_progress_goes_to_every_other_worker(build: Build) -> None:
    graph = build(
        "0 psend 9 | 5 precv 9<0 | 9 end", "0 start 1 | 6 precv 9<0 | 9 end", "0 start 1 | 7 precv 9<0 | 9 end"
    )
    assert messages(graph) == [
        ("progress_message", 0, 0, 1, 6, "progress_receive"),
        ("progress_message", 0, 0, 2, 7, "progress_receive"),
    ]
    assert graph.dropped == {"worker_local_message": 1}
    assert not [name for name in found(graph) if "receive" in name]


@pytest.mark.parametrize(
    ("logs", "finding"),
    [
        (("0 send 3>1 | 9 end", "0 start 1 | 9 stop 1 | 9 end"), ("send_without_receive", 0, 0, 1)),
        # One of three workers, the sender among them, read it.
        (("0 psend 3 | 1 precv 3<0 | 9 end", "0 end", "0 end"), ("send_without_receive", 0, 0, 2)),
        (("0 send 3>1 | 9 end", "0 end | 1 recv 3<0 | 2 recv 3<0"), ("receive_without_send", 1, 2, None)),
        # Data that goes nobody knows where is not for everyone.
        (("0 send 3> | 9 end", "0 end | 1 precv 3<0"), ("send_without_receive", 0, 0, 1)),
        (("0 send 3> | 9 end", "0 end | 1 precv 3<0"), ("receive_without_send", 1, 1, None)),
        # The number, the channel and the receiver must fit.
        (("0 send 3>1 #1 | 9 end", "0 end | 1 recv 3<0 #0"), ("receive_without_send", 1, 1, None)),
        (("0 send 4>1 | 9 end", "0 end | 1 recv 3<0"), ("receive_without_send", 1, 1, None)),
        (("0 send 3>2 | 9 end", "0 end | 1 recv 3<0", "0 end"), ("receive_without_send", 1, 1, None)),
    ],
)
def test_messages_that_do_not_match_are_findings(
    tmp_path: Path, logs: tuple[str, ...], finding: tuple[str, int, int, int | None]
) -> None:
    graph = assembled(draw(*logs), tmp_path)
    assert graph.findings[finding] == 1
    assert differences(graph, build_reference(draw(*logs))) == ""


# --- Birth and death ------------------------------------------------------------------------------------------------


def test_time_without_a_log_is_unknown(build: Build) -> None:
    graph = build("0 start 1 | 10 stop 1 | 30 end", "7 start 1 | 9 stop 1", "")
    assert local(graph) == "0 spinning 10 busy 30"
    assert (local(graph, 1), kinds(graph, 1)) == (
        "0 unknown 7 spinning 9 unknown 30",
        ["run_start", "start", "stop", "run_end"],
    )
    assert (local(graph, 2), kinds(graph, 2)) == ("0 unknown 30", ["run_start", "run_end"])
    positions = [row["pos"] for row in sorted(graph.vertices, key=lambda row: row["id"]) if row["worker"] == 1]
    assert positions == [1, 2, 4, 5]
    assert sum(row["unknown_ns"] for row in graph.epochs) == 7 + 21 + 30


def test_a_worker_whose_log_makes_no_vertex_lives_as_well(build: Build) -> None:
    graph = build("0 start 1 | 10 stop 1 | 30 end", "4 push 1 | 5 send 3>1 | 6 recv 3<1")
    assert (local(graph, 1), kinds(graph, 1)) == ("0 unknown 30", ["run_start", "run_end"])


def test_a_worker_that_another_one_starts_is_there_from_its_birth_on(build: Build) -> None:
    graph = build("0 start 1 | 5 spawn 1 | 10 stop 1 | 30 end", "7 start 1 | 9 stop 1 | 30 end")
    assert local(graph) == "0 spinning 5 spinning 10 busy 30"
    assert local(graph, 1) == "7 spinning 9 busy 30"
    assert messages(graph) == [("spawn", 0, 5, 1, 7, "start")]


def test_the_end_of_the_run_belongs_to_no_closed_epoch(build: Build) -> None:
    graph = build("0 start 1 | 10 end | 20 end | 40 start 1", "~0 5 end | 6 end", "")
    last = {row["worker"]: row["epoch"] for row in graph.vertices if row["kind"] == "run_end"}
    assert last == {1: 2, 2: 2}
    assert [row["epoch"] for row in graph.epochs] == [0, 1, 2]
    # Nor where the last event of an epoch stands in for its end.
    graph = build("0 start 1 | 10 stop 1", "0 start 1 | 20 stop 1")
    assert [row["epoch"] for row in graph.vertices if row["kind"] == "run_end"] == [1]


def test_what_is_no_vertex_counts_as_dropped(build: Build) -> None:
    log = "0 push 1 | 0 start 1 | 1 send 3>0 | 2 recv 3<0 | 3 stop 1 | 4 park | 5 unpark | 5 park | 6 unpark | 9 end"
    graph = build(log)
    assert graph.dropped == {"push_progress": 1, "worker_local_message": 2, "merged_park": 2}
    assert len([row for row in graph.vertices if row["seq"] is not None]) + 5 == 10


# Activities of the program itself.


def test_an_application_activity_lies_over_everything_but_waiting(build: Build) -> None:
    graph = build(
        "0 start 1 | 2 app 7 | 4 stop 1 | 6 park | 20 unpark | 21 recv 3<1 | 24 endapp 7 | 30 end",
        "0 start 2 | 15 send 3>0 | 30 stop 2",
    )
    expected = (
        "0 spinning 2 application 4 application 6 waiting 15 application 20 application 21 application 24 busy 30"
    )
    assert local(graph) == expected
    covered = [edge for edge in graph.edges if edge["type"] == "application"]
    assert {edge["operator"] for edge in covered} == {7}
    assert {edge["activation"] for edge in covered} == {vertex_id(0, 4)}


def test_the_innermost_application_activity_wins(build: Build) -> None:
    graph = build("0 app 7 | 2 app 8 | 5 endapp 8 | 9 endapp 7 | 12 end")
    assert [(e["operator"], e["duration_ns"]) for e in sorted(graph.edges, key=lambda e: e["dst"])] == [
        (7, 2),
        (8, 3),
        (7, 4),
        (None, 3),
    ]


def test_application_activities_that_are_not_nested_are_findings(build: Build) -> None:
    graph = build("0 app 7 | 2 app 8 | 5 endapp 7 | 9 endapp 8 | 10 app 9 | 12 end")
    assert found(graph) == {
        "application_stop_of_outer": 1,
        "application_stop_without_start": 1,
        "application_not_stopped": 1,
    }
    assert local(graph) == "0 application 2 application 5 busy 9 busy 10 application 12"


# Workers that spin instead of parking.


def test_empty_steps_that_a_message_ends_are_a_wait(build: Build) -> None:
    graph = build("0 end | 2 idle_start | 20 idle_stop | 21 recv 3<1 | 22 end", "0 start 1 | 14 send 3>0 | 22 stop 1")
    assert local(graph) == "0 busy 2 waiting 14 wake_up 20 busy 21 busy 22"
    assert kinds(graph) == ["epoch_end", "idle_start", "arrival", "idle_stop", "receive", "epoch_end"]


def test_empty_steps_and_parks_with_nothing_between_are_one_interval(build: Build) -> None:
    graph = build("0 idle_start | 5 idle_stop | 5 park | 9 unpark | 9 idle_start | 12 idle_stop | 13 end")
    assert local(graph) == "0 busy 12 busy 13"
    assert graph.dropped == {"merged_park": 4}


def test_activities_of_the_program_have_the_type_that_they_state(tmp_path: Path) -> None:
    log = (
        "0 start 1 | 10 app 100 =io | 20 app 101 | 30 endapp 101 | 40 endapp 100 | 50 app 102 =waiting | 60 endapp 102"
        " | 70 app 103 =gc | 75 stop 1 | 80 park | 90 unpark | 95 recv 3<1 | 99 endapp 103"
    )
    trace = draw(log, "0 start 1 | 85 send 3>0 | 99 stop 1")
    for slice_events in (1, 100):
        graph = assembled(trace, tmp_path, slice_events=slice_events)
        assert differences(graph, build_reference(trace)) == ""
    types = [
        (edge["type"], edge["start_ns"] + edge["duration_ns"])
        for edge in sorted(graph.edges, key=lambda edge: edge["dst"])
        if edge["read"] is None and edge["src"] >> 40 == 0
    ]
    assert types == [
        *(("spinning", 10), ("io", 20), ("application", 30), ("io", 40), ("spinning", 50), ("application", 60)),
        *(("spinning", 70), ("gc", 75), ("gc", 80), ("waiting", 85), ("gc", 90), ("gc", 95), ("gc", 99)),
    ]
    assert [key[:3] for key in graph.findings if key[0] == "application_of_other_type"] == [
        ("application_of_other_type", 0, 5)
    ]
