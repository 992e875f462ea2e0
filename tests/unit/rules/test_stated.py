"""The rules `stated`, case by case: traces small enough to draw, with the answer drawn next to them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph import api
from pag_graph.errors import TraceFormatError
from pag_graph.model.enums import RuleSet
from pag_graph.testing.traces import draw
from tests.support.compare import assembled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.testing.reference import Reference

    Build = Callable[..., Reference]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def run(*logs: str, **more: Any) -> Reference:
        return assembled(draw(*logs, rules=RuleSet.STATED), tmp_path, **more)

    return run


def local(graph: Reference, worker: int = 0) -> str:
    """A worker's time as it is written in these tests: ``start type end`` per edge in which time passes."""
    edges = [edge for edge in graph.edges if edge["read"] is None and edge["src"] >> 40 == worker]
    edges.sort(key=lambda edge: edge["dst"])
    assert all(a["dst"] == b["src"] for a, b in itertools.pairwise(edges))
    parts = [f"{e['type']} {e['start_ns'] + e['duration_ns']}" for e in edges if e["duration_ns"]]
    return " ".join([str(edges[0]["start_ns"]), *parts])


def messages(graph: Reference) -> list[tuple[str, int, int, int, int]]:
    """Messages as (type, sender, sent, receiver, end of the edge)."""
    return sorted(
        (e["type"], e["src"] >> 40, e["start_ns"], e["dst"] >> 40, e["start_ns"] + e["duration_ns"])
        for e in graph.edges
        if e["read"] is not None
    )


def found(graph: Reference) -> dict[str, int]:
    return {name: sum(n for key, n in graph.findings.items() if key[0] == name) for name, *_ in graph.findings}


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        # What the source states is what there is; a start without a type is work; the rest is unknown.
        ("0 start =gc | 4 stop | 6 start 7 | 9 stop 7 | 9 exit", "0 gc 4 unknown 6 processing 9"),
        # The innermost wins, and gives the time back.
        ("0 start 1 =io | 3 start 2 =gc | 5 stop 2 | 9 stop 1 | 9 exit", "0 io 3 gc 5 io 9"),
        # An event inside an activity splits it.
        ("0 start =buffer | 3 psend 1 | 9 stop | 9 exit", "0 buffer 3 buffer 9"),
        # A stop of something further out closes what is inside; a stop of nothing closes nothing.
        ("0 start 1 =io | 3 start 2 =gc | 5 stop 1 | 7 stop 9 | 9 exit", "0 io 3 gc 5 unknown 7 unknown 9"),
        # No message is an activity of a worker.
        ("0 start =data_message | 4 stop | 4 exit", "0 unknown 4"),
        # The program's own activities lie over all but waits.
        ("0 start =io | 2 app 5 | 4 endapp 5 | 6 stop | 6 exit", "0 io 2 application 4 io 6"),
    ],
)
def test_activities_have_the_type_that_is_stated(build: Build, log: str, expected: str) -> None:
    assert local(build(log)) == expected


def test_places_that_are_inferred_are_marked(build: Build) -> None:
    graph = build("0 start 1 =gc ? | 4 stop 1 | 4 start 1 =gc | 6 stop 1")
    assert [edge["flags"] for edge in sorted(graph.edges, key=lambda e: e["dst"]) if edge["duration_ns"]] == [1, 0]


SENDS = "0 start | 3 send 1>0 #0 | 5 send 1>0 #1 | 9 stop | 9 exit"


@pytest.mark.parametrize(
    ("log", "expected", "arrivals"),
    [
        # Each stretch of a wait ends with the message that is read there.
        (
            "0 start =waiting | 4 recv 1<1 #0 | 6 recv 1<1 #1 | 6 stop | 9 exit",
            "0 waiting 4 waiting 6 unknown 9",
            [4, 6],
        ),
        # Of several in one instant the one sent last ended it, in whatever order they are read.
        ("0 start =waiting | 6 recv 1<1 #1 | 6 recv 1<1 #0 | 6 stop | 9 exit", "0 waiting 6 unknown 9", [6, 6]),
        ("0 start =waiting | 6 stop | 6 recv 1<1 #0 | 6 recv 1<1 #1 | 9 exit", "0 waiting 6 unknown 9", [6, 6]),
        # What is read after another activity began ended no wait.
        ("0 start =waiting | 6 stop | 6 start =io | 6 recv 1<1 #0 | 9 stop | 9 exit", "0 unknown 6 io 9", [6]),
        # Nothing came: nobody knows what the worker waited for.
        ("0 start =waiting | 6 stop | 9 exit", "0 unknown 6 unknown 9", []),
        # Waiting for the world outside needs no message.
        ("0 start =input_wait | 6 stop | 9 exit", "0 input_wait 6 unknown 9", []),
        # A wait without length that reads a message is ended by it; what is left of it in that instant is none.
        (
            "0 start =io | 6 stop | 6 start =waiting | 6 recv 1<1 #0 | 6 stop | 6 start =gc | 9 stop | 9 exit",
            "0 io 6 gc 9",
            [6],
        ),
        # The end of an epoch does not end a wait.
        ("0 start =waiting | 4 end | 6 recv 1<1 #0 | 6 stop | 9 exit", "0 waiting 6 unknown 9", [6]),
    ],
)
def test_waits_end_with_what_is_read(build: Build, log: str, expected: str, arrivals: list[int]) -> None:
    graph = build(log, SENDS)
    assert local(graph) == expected
    assert sorted(end for *_, end in messages(graph)) == arrivals
    assert found(graph).get("wait_without_ender", 0) == (expected.startswith("0 unknown"))


def test_the_path_leads_back_over_the_last_of_several_messages(tmp_path: Path) -> None:
    trace = draw(
        "0 start =waiting | 6 recv 1<1 #0 | 6 recv 1<2 #0 | 6 stop | 6 start =io | 9 stop",
        "0 start | 2 send 1>0 | 9 stop",
        "0 start | 5 send 1>0 | 9 stop",
        rules=RuleSet.STATED,
    )
    api.build(trace.write(tmp_path / "trace"), tmp_path / "store", engine="local")
    pag = api.open(tmp_path / "store")
    steps = pag.critical_path(between=(0, 9)).table.to_pylist()
    shown = [(s["worker"], s["type"], s["duration_ns"]) for s in steps if s["duration_ns"]]
    assert shown == [(2, "processing", 5), (2, "data_message", 1), (0, "io", 3)]


def test_a_wait_without_length_starts_a_segment(tmp_path: Path) -> None:
    log = "0 start =io | 6 stop | 6 start =waiting | 6 recv 1<1 #0 | 6 stop | 6 start =gc | 9 stop | 9 exit"
    draw(log, SENDS, rules=RuleSet.STATED).write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    steps = api.open(tmp_path / "store").critical_path(between=(0, 9)).steps.to_pylist()
    assert [(s["type"], s["worker"], s["duration_ns"]) for s in steps if s["duration_ns"]] == [
        ("processing", 1, 3),
        ("data_message", 1, 3),
        ("gc", 0, 3),
    ]


# Worker 0 works until 6; what it then reads was sent at 3, and there at 4.
QUEUED = "0 start =io | 6 recv 1<1 #0 @4 | 6 stop | 6 start =gc | 9 stop | 9 exit"


def test_a_message_that_lay_in_a_queue_ends_at_its_read_and_binds_from_its_arrival(tmp_path: Path) -> None:
    pags = {}
    for name, log in (("arrived", QUEUED), ("read", QUEUED.replace(" @4", ""))):
        draw(log, SENDS, rules=RuleSet.STATED).write(tmp_path / f"{name}.trace")
        api.build(tmp_path / f"{name}.trace", tmp_path / name, engine="local")
        pags[name] = api.open(tmp_path / name)
    edges = {name: pag.run.scan("edges").filter(pl.col("read").is_not_null()).collect() for name, pag in pags.items()}
    assert {name: table["receive_buffer_ns"].to_list() for name, table in edges.items()} == {
        "arrived": [2],
        "read": [0],
    }
    drop = "receive_buffer_ns"
    assert edges["arrived"].drop(drop).equals(edges["read"].drop(drop))
    # Without the work before it the read happens when the message is there.
    spans = {name: pag.what_if(type=["io"], factor=0, between=(0, 9)).span_ns for name, pag in pags.items()}
    assert spans == {"arrived": 7, "read": 9}


def test_a_message_is_not_there_before_it_was_sent_nor_after_it_was_read(build: Build) -> None:
    early = build(QUEUED.replace("@4", "@-1"), SENDS)
    assert [edge["receive_buffer_ns"] for edge in early.edges if edge["read"] is not None] == [3]
    with pytest.raises(TraceFormatError, match="Worker 0, event 1: arrived_ns is 7, after the read at 6"):
        build(QUEUED.replace("@4", "@7"), SENDS)


def test_what_ended_a_wait_arrived_when_the_wait_ended(build: Build) -> None:
    graph = build("0 start =waiting | 6 recv 1<1 #0 @4 | 6 stop | 9 exit", SENDS)
    assert local(graph) == "0 waiting 6 unknown 9"
    assert [edge["receive_buffer_ns"] for edge in graph.edges if edge["read"] is not None] == [0]


def test_messages_have_the_type_that_their_reader_states(build: Build) -> None:
    graph = build("5 recv 1<1 =control_message | 6 recv 2<1 | 7 exit", "0 start | 2 send 1>0 | 3 send 2>0 | 7 exit")
    assert messages(graph) == [("control_message", 1, 2, 0, 5), ("data_message", 1, 3, 0, 6)]


@pytest.mark.parametrize("rules", [RuleSet.STATED, RuleSet.TIMELY])
def test_workers_come_and_go(tmp_path: Path, rules: RuleSet) -> None:
    logs = (
        "0 start 1 | 4 spawn 1 | 10 stop 1 | 20 end",
        "7 start 2 | 9 spawn 2 | 12 stop 2 | 12 exit",
        "9 start 3 | 15 stop 3 | 20 end",
    )
    graph = assembled(draw(*logs, rules=rules), tmp_path)
    # A worker's time begins with its birth and ends with its exit: nothing before or after is unknown.
    assert local(graph, 1).startswith("7 ")
    assert local(graph, 1).endswith(" 12")
    assert local(graph, 2).startswith("9 ")
    # A worker may spawn with the very event that it is born before.
    assert messages(graph) == [("spawn", 0, 4, 1, 7), ("spawn", 1, 9, 2, 9)]
    assert {row["kind"] for row in graph.vertices} == {"start", "stop", "spawn", "exit", "epoch_end"}
    # Worker 1 was gone when the epoch ended, so the epoch is complete without it.
    assert [(row["epoch"], row["end_ns"]) for row in graph.epochs] == [(0, 20)]
    alive = 20 + 5 + 11
    unknown = sum(edge["duration_ns"] for edge in graph.edges if edge["type"] == "unknown")
    assert graph.epochs[0]["coverage"] == pytest.approx(1 - unknown / alive)
    assert found(graph) == {}


@pytest.mark.parametrize(
    ("logs", "finding"),
    [
        (("0 start 1 | 4 spawn 1 | 10 stop 1", ""), "spawn_of_nobody"),
        (("0 start 1 | 4 spawn 7 | 10 stop 1",), "spawn_of_nobody"),
        (("0 start 1 | 4 spawn 1 | 5 spawn 1 | 10 stop 1", "6 start 1 | 10 stop 1"), "spawned_twice"),
        (("0 start 1 | 4 spawn 1 | 10 stop 1", "2 start 1 | 10 stop 1"), "spawned_after_birth"),
        (
            ("0 start 1 | 4 spawn 1 | 10 stop 1", "5 start 1 | 10 stop 1", "3 start 1 | 10 stop 1"),
            "worker_without_spawn",
        ),
        (("0 start 1 | 4 exit | 10 stop 1",), "exit_before_last_event"),
        (("0 start 1 =io | 4 stop 1 *7 | 10 exit",), "records_on_stop"),
        (("0 start 1 =io | 4 park | 5 unpark | 10 stop 1",), "park_in_stated_trace"),
        (("0 start 1 =io | 10 end",), "activation_not_stopped"),
    ],
)
def test_what_is_odd_is_a_finding(build: Build, logs: tuple[str, ...], finding: str) -> None:
    graphs = [build(*logs, slice_events=size) for size in (1_000_000, 1)]
    for graph in graphs:
        assert finding in found(graph)
    assert graphs[0].findings == graphs[1].findings


def test_a_level_shows_outer_activities_and_keeps_waits(tmp_path: Path) -> None:
    from pag_graph.rules.rows import RuleParameters

    trace = draw(
        "0 start 1 =io | 2 start 2 =gc | 4 stop 2 | 4 start =waiting | 6 recv 1<1 #1 | 6 stop | 9 stop 1",
        SENDS,
        rules=RuleSet.STATED,
    )
    api.build(trace.write(tmp_path / "trace"), tmp_path / "store", engine="local", parameters=RuleParameters(level=1))
    edges = api.open(tmp_path / "store").run.scan("edges").collect().sort("dst").to_dicts()
    shown = [(e["type"], e["duration_ns"]) for e in edges if e["src"] >> 40 == 0 and e["duration_ns"]]
    assert shown == [("io", 2), ("io", 2), ("waiting", 2), ("io", 3)]
