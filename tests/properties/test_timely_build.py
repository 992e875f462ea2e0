"""Random small traces: what a build makes of them is what the definitions say, however the work is cut."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.errors import StoreConflictError
from pag_graph.model.enums import EventKind
from pag_graph.testing.reference import build_reference
from pag_graph.testing.strategies import slice_sizes, small_traces
from pag_graph.testing.traces import Event, SmallTrace, draw
from tests.support.compare import WAYS, assembled, committed, differences

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.testing.reference import Reference

PROVE = os.environ.get("PAG_PROVE") == "1"
WORKERS = 8 if PROVE else 4
# A commit to Delta costs more than all steps before it.
STORES = settings(max_examples=1_000 if PROVE else 8)
BUILDS = settings(max_examples=2_000 if PROVE else 15)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("builds")


def any_traces() -> st.SearchStrategy[SmallTrace]:
    return st.one_of(
        st.tuples(small_traces(max_workers=WORKERS, skewed=True), st.booleans(), st.randoms(use_true_random=False))
        .map(lambda drawn: (drawn[0].silenced() if drawn[1] else drawn[0]).losing(drawn[2]))
        .filter(lambda trace: trace.rows > 0),
        small_traces(max_workers=WORKERS),
        small_traces(max_workers=WORKERS, skewed=True),
        small_traces(max_workers=WORKERS, skewed=True, damaged=True),
        small_traces(max_workers=WORKERS, skewed=True, arrivals=True),
        small_traces(max_workers=WORKERS, skewed=True, arrivals=True)
        .map(SmallTrace.silenced)
        .filter(lambda trace: trace.rows > 0),
    )


def shuffles() -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, 1_000)


@given(any_traces(), slice_sizes(), shuffles(), st.sampled_from(WAYS))
def test_a_build_is_what_the_definitions_say(
    folder: Path, trace: SmallTrace, slice_events: int, shuffle: int | None, way: dict[str, int]
) -> None:
    found = assembled(trace, folder, slice_events=slice_events, shuffle=shuffle, **way)
    assert differences(found, build_reference(trace)) == ""
    check_counts(found, trace)
    check_tiling(found, trace)
    check_ends(found)
    check_windows(found)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("slice_events", [1, 2, 3, 100])
def test_a_park_that_was_cut_off_tells_what_follows_in_other_slices(
    folder: Path, slice_events: int, way: dict[str, int]
) -> None:
    kinds = ["start", "stop", "park", "push_progress", "park", "unpark", "start", "stop", "epoch_end"]
    times = [0, 10, 20, 21, 25, 30, 31, 40, 41]
    events = tuple(
        Event(
            worker=0, seq=seq, epoch=0, t_ns=t, kind=EventKind(kind), operator=2 if kind in {"start", "stop"} else None
        )
        for seq, (kind, t) in enumerate(zip(kinds, times, strict=True))
    )
    trace = SmallTrace(events=(events,), processes=(0,), offsets_ns=(0,), uncertainty_ns=(None,))
    found = assembled(trace, folder, slice_events=slice_events, **way)
    assert differences(found, build_reference(trace)) == ""
    assert [(row["start_ns"], row["duration_ns"]) for row in found.edges if row["type"] == "unknown"] == [(20, 5)]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("slice_events", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("8 end | lost", "unknown"),
        ("5 push 1 | 5 start 1 | 7 stop 1 | lost | 8 end", "unknown"),
        ("5 push 1 | 5 start 1 | 7 stop 1 | 8 end | lost", "input_wait"),
    ],
    ids=["nothing", "work", "work and an end"],
)
def test_what_is_missing_behind_a_slice_may_have_explained_its_last_park(
    folder: Path, slice_events: int, way: dict[str, int], after: str, expected: str
) -> None:
    """It was busy where the logs were cut right there."""
    trace = draw(f"0 park | 5 unpark | {after} | 10 park | 15 unpark | 15 start 2 | 20 stop 2 | 20 end")
    found = assembled(trace, folder, slice_events=slice_events, **way)
    assert differences(found, build_reference(trace)) == ""
    assert (expected, 0, 5) in [(row["type"], row["start_ns"], row["duration_ns"]) for row in found.edges]


@pytest.mark.parametrize("slice_events", [1, 3, 100])
def test_what_a_scope_sends_is_no_polling(folder: Path, slice_events: int) -> None:
    def rows(worker: int, *drawn: tuple[str, int]) -> tuple[Event, ...]:
        messages = {"send": 0, "receive": 1}
        return tuple(
            Event(
                worker=worker,
                seq=seq,
                epoch=0,
                t_ns=t,
                kind=EventKind(kind),
                operator=0 if kind in {"start", "stop", "push_progress"} else None,
                **({"channel": 10, "peer": messages[kind], "message_seq": 0} if kind in messages else {}),
            )
            for seq, (kind, t) in enumerate(drawn)
        )

    # An activation sends, and another one begins in it afterwards.
    scope = (("push_progress", 1), ("start", 2), ("send", 2), ("start", 2), ("stop", 3), ("stop", 4), ("epoch_end", 5))
    reader = (("start", 0), ("receive", 2), ("stop", 3), ("epoch_end", 4))
    trace = SmallTrace(
        events=(rows(0, *reader), rows(1, *scope)),
        processes=(0, 0),
        offsets_ns=(0, 0),
        uncertainty_ns=(None, None),
        idle_logged=False,
    )
    found = assembled(trace, folder, slice_events=slice_events)
    assert differences(found, build_reference(trace)) == ""
    check_ends(found)
    assert [edge["type"] for edge in found.edges if edge["read"] is not None] == ["data_message"]


@BUILDS
@given(any_traces(), slice_sizes(), slice_sizes(), shuffles())
def test_slices_and_the_order_of_files_do_not_matter(
    folder: Path, trace: SmallTrace, slice_events: int, others: int, shuffle: int | None
) -> None:
    one = assembled(trace, folder, slice_events=slice_events)
    other = assembled(trace, folder, slice_events=others, shuffle=shuffle, passes=2)
    assert differences(other, one) == ""


def check_counts(graph: Reference, trace: SmallTrace) -> None:
    """Every event is a vertex or counted as dropped, with a reason."""
    logged = [row for row in graph.vertices if row["seq"] is not None]
    assert len(logged) + sum(graph.dropped.values()) == trace.rows
    assert sum(row["events"] for row in graph.epochs) == trace.rows
    assert sum(row["vertices"] for row in graph.epochs) == len(graph.vertices)
    assert sum(row["edges"] for row in graph.epochs) == len(graph.edges)


def check_tiling(graph: Reference, trace: SmallTrace) -> None:
    """Local edges chain all vertices of a worker, from the run's origin or its birth to the run's end or its exit."""
    end = max(row["t_ns"] for row in graph.vertices)
    born = {edge["dst"] for edge in graph.edges if edge["type"] == "spawn"}
    local = {row["src"]: row for row in graph.edges if row["read"] is None}
    assert len(local) == sum(row["read"] is None for row in graph.edges)
    for worker in range(trace.workers):
        chain = sorted((row for row in graph.vertices if row["worker"] == worker), key=lambda row: row["id"])
        assert chain[0]["t_ns"] == 0 or chain[0]["id"] in born
        assert chain[-1]["t_ns"] == end or trace.events[worker][-1].kind is EventKind.EXIT
        for before, after in pairwise(chain):
            edge = local.pop(before["id"])
            assert edge["dst"] == after["id"]
            assert edge["duration_ns"] == after["t_ns"] - before["t_ns"] >= 0
    assert not local


def check_ends(graph: Reference) -> None:
    """Edges connect vertices of the graph and carry their times and epochs; a wait ends where its message arrives."""
    vertices = {row["id"]: row for row in graph.vertices}
    assert len(vertices) == len(graph.vertices)
    for edge in graph.edges:
        src, dst = vertices[edge["src"]], vertices[edge["dst"]]
        assert (edge["start_ns"], edge["start_ns"] + edge["duration_ns"]) == (src["t_ns"], dst["t_ns"])
        assert (edge["src_epoch"], edge["epoch"]) == (src["epoch"], dst["epoch"])
        assert (src["worker"] == dst["worker"]) == (edge["read"] is None)
    waits = {edge["dst"] for edge in graph.edges if edge["type"] == "waiting"}
    enders = [edge["dst"] for edge in graph.edges if edge["read"] not in {None, edge["dst"]}]
    assert sorted(enders) == sorted(waits) == sorted(v["id"] for v in graph.vertices if v["kind"] == "arrival")


def check_windows(graph: Reference) -> None:
    """Windows tile the run."""
    rows = sorted(graph.epochs, key=lambda row: row["epoch"])
    assert rows[0]["start_ns"] == 0
    assert rows[-1]["end_ns"] == max(row["t_ns"] for row in graph.vertices)
    assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(rows))


@STORES
@given(any_traces(), slice_sizes())
def test_a_store_holds_what_was_built(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, slice_events: int
) -> None:
    place = tmp_path_factory.mktemp("store")
    trace.write(place / "trace")
    report = api.build(place / "trace", place / "store", engine="local", slice_events=slice_events)
    found = committed(place / "store")
    assert differences(found, build_reference(trace)) == ""
    assert report.rows["vertices"] == len(found.vertices)
    assert report.rows["edges"] == len(found.edges)
    assert (report.store.events, report.findings.num_rows) == (trace.rows, found.findings.total())


@STORES
@given(small_traces(max_workers=3, complete=True), st.data(), slice_sizes())
def test_appending_gives_what_one_build_gives(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject, slice_events: int
) -> None:
    place = tmp_path_factory.mktemp("append")
    last = max(event.epoch for log in trace.events for event in log)
    expected = build_reference(trace)
    for epoch in sorted(data.draw(st.sets(st.integers(0, last), max_size=2)) | {last}):
        grown = replace(trace.until_epoch(epoch), complete=epoch == last)
        written = grown.write(place / f"trace-{epoch}")
        try:
            api.build(written, place / "store", engine="local", mode="append", slice_events=slice_events)
        except StoreConflictError as error:
            # What came later changed what was committed, and the store says so: it holds what it held before.
            assert "contradicts what is committed" in error.message  # noqa: PT017
            assert differences(committed(place / "store"), expected) == ""
            return
        expected = build_reference(grown)
        assert differences(committed(place / "store"), expected) == ""
