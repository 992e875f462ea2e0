"""Random portions of random logs: appended one after the other they give the rows of one build, and nothing changes."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.builder import saved
from pag_graph.builder.build import build
from pag_graph.engines.local import LocalEngine
from pag_graph.errors import StoreError
from pag_graph.store.check import check_store
from pag_graph.store.contents import GROWING
from pag_graph.store.delta import open_store
from pag_graph.testing.reference import build_reference
from pag_graph.testing.strategies import slice_sizes, small_traces
from pag_graph.testing.traces import SmallTrace, draw
from tests.support.compare import Apart, committed, differences
from tests.support.growing import rounds
from tests.support.polled_logs import polled_log
from tests.support.stated_reference import random_stated

if TYPE_CHECKING:
    from pathlib import Path

PROVE = os.environ.get("PAG_PROVE") == "1"
APPENDS = settings(max_examples=500 if PROVE else 3)


def until(trace: SmallTrace, rows: list[int]) -> SmallTrace:
    """Return the first rows of each worker: what of a log that goes on is there."""
    return replace(
        trace, complete=False, events=tuple(log[:count] for log, count in zip(trace.events, rows, strict=True))
    )


@st.composite
def portions(draw_: st.DrawFn, trace: SmallTrace) -> list[SmallTrace]:
    """Draw how a log grows: no worker's part of it gets shorter, and some are behind."""
    parts = []
    shares = [sorted(draw_(st.lists(st.integers(0, 100), min_size=2, max_size=2))) for _ in trace.events]
    for step in range(2):
        rows = [len(log) * share[step] // 100 for log, share in zip(trace.events, shares, strict=True)]
        parts.append(until(trace, rows))
    return [*(part for part in parts if part.rows), trace]


def decided_files(store: Path) -> dict[str, set[str]]:
    info = open_store(store)
    return {name: {part.path for part in info.parts(name) if not part.provisional} for name in GROWING}


def closed_rows(store: Path) -> Counter[str]:
    """Return all rows of closed epochs."""
    info = open_store(store)
    last = info.run["last_closed_epoch"]
    found: Counter[str] = Counter()
    for name in ("vertices", "edges", "epochs"):
        found.update(repr(row) for row in info.scan(name).collect().to_dicts() if row["epoch"] <= last)
    return found


def grows(
    parts: list[SmallTrace], place: Path, slice_events: int, expected: Any = build_reference, tasks: int = 0
) -> None:
    """Append portion after portion: each time the store holds what one build gives, and nothing decided changes.

    With `tasks`, the first portion is built by so many, which know nothing of each other.
    """
    first = Apart(tasks) if tasks else LocalEngine()
    files: dict[str, set[str]] = {}
    rows: Counter[str] = Counter()
    for number, part in enumerate(parts):
        written = part.write(place / f"trace-{number}")
        engine = LocalEngine() if number else first
        build(written, place / "store", engine=engine, mode="append", slice_events=slice_events)
        if expected is not None:
            assert differences(committed(place / "store"), expected(part)) == ""
        now = decided_files(place / "store")
        assert all(files.get(name, set()) <= now[name] for name in now)
        if not part.complete:
            files, closed = now, closed_rows(place / "store")
            assert not rows - closed
            rows = closed
    final = closed_rows(place / "store")
    assert not rows - final
    api.build(place / f"trace-{len(parts) - 1}", place / "once", engine="local")
    assert differences(committed(place / "store"), committed(place / "once")) == ""
    infos = [open_store(place / name) for name in ("store", "once")]
    assert (
        len({(info.run["closed_fingerprint"], info.closed_epochs, str(sorted(info.dropped.items()))) for info in infos})
        == 1
    )


@APPENDS
@given(
    st.one_of(
        small_traces(max_workers=3),
        small_traces(max_workers=3, skewed=True),
        small_traces(max_workers=3, skewed=True, damaged=True),
    ),
    st.data(),
    slice_sizes(),
)
def test_portions_give_what_one_build_gives(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject, slice_events: int
) -> None:
    parts = data.draw(portions(replace(trace, complete=True)))
    grows(parts, tmp_path_factory.mktemp("portions"), slice_events, tasks=data.draw(st.integers(0, 3)))


@APPENDS
@given(seed=st.integers(0, 2**32), data=st.data(), slice_events=slice_sizes())
def test_portions_of_stated_logs_do(
    tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject, slice_events: int
) -> None:
    parts = data.draw(portions(replace(random_stated(seed, causal=True), complete=True)))
    tasks = data.draw(st.integers(0, 3))
    grows(parts, tmp_path_factory.mktemp("stated"), slice_events, expected=None, tasks=tasks)


@pytest.mark.parametrize("tasks", [1, 2])
def test_files_of_a_build_that_no_append_can_go_on_from_are_provisional(tmp_path: Path, tasks: int) -> None:
    log = replace(random_stated(1_000_000_001, causal=True), complete=True)
    shares = [[30, 75], [16, 69], [47, 77]]
    parts = [
        until(log, [len(rows) * share[step] // 100 for rows, share in zip(log.events, shares, strict=True)])
        for step in range(2)
    ]
    info = build(parts[0].write(tmp_path / "part"), tmp_path / "store", engine=Apart(tasks), slice_events=1).store
    assert info.state is None
    assert decided_files(tmp_path / "store") == {name: set() for name in GROWING}
    grows([*parts, log], tmp_path / "grown", 1, expected=None, tasks=tasks)


@APPENDS
@given(seed=st.integers(0, 2**32), data=st.data(), slice_events=slice_sizes())
def test_portions_of_logs_that_say_nothing_of_idleness_do(
    tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject, slice_events: int
) -> None:
    parts = data.draw(portions(polled_log(seed)))
    grows(parts, tmp_path_factory.mktemp("polled"), slice_events, tasks=data.draw(st.integers(0, 3)))


@pytest.mark.parametrize("slice_events", [7, 1_000])
def test_epochs_close_as_the_log_grows(tmp_path: Path, slice_events: int) -> None:
    whole = rounds(8)
    closed = []
    for epochs in (1, 3, 5, 8):
        part = whole.until_epoch(epochs - 1)
        grown = part if epochs == 8 else replace(part, complete=False)
        info = api.build(
            grown.write(tmp_path / f"{epochs}"),
            tmp_path / "store",
            mode="append",
            engine="local",
            slice_events=slice_events,
        ).store
        closed.append(info.closed_epochs)
        assert differences(committed(tmp_path / "store"), build_reference(grown)) == ""
    # The last idle interval that begins is certain only when the next one does.
    assert closed == [0, 2, 4, 8]


@pytest.mark.parametrize("tasks", [1, 2, 100])
def test_an_append_goes_on_from_what_tasks_built(tmp_path: Path, tasks: int) -> None:
    whole = rounds(12)
    part = replace(whole.until_epoch(7), complete=False)
    written = part.write(tmp_path / "part")
    info = build(written, tmp_path / "store", engine=Apart(tasks), slice_events=20).store
    assert len(info.parts("vertices")) > 2
    begin = saved.load(info)
    assert begin is not None
    assert sum(state.rows for state in begin.state.workers.values()) > part.rows // 2
    local = saved.load(build(written, tmp_path / "local", engine=LocalEngine(), slice_events=20).store)
    assert local is not None
    # Where it goes on, and what is closed, do not depend on who built; names of files differ.
    assert (begin.state.workers, begin.closed, begin.fingerprint) == (
        local.state.workers,
        local.closed,
        local.fingerprint,
    )
    kept = decided_files(tmp_path / "store")
    build(whole.write(tmp_path / "whole"), tmp_path / "store", engine=Apart(tasks), mode="append")
    assert all(kept[name] <= now for name, now in decided_files(tmp_path / "store").items())
    assert differences(committed(tmp_path / "store"), build_reference(whole)) == ""


@pytest.mark.parametrize(
    ("log", "other", "late"),
    [
        # D2: what is read after the last unpark may end that wait.
        ("0 park | 5 unpark | 9 end", "0 start 1 | 3 stop 1 | 12 end", ("| 15 recv 3<1", "| 20 send 3>0")),
        # D1: what is open may turn out to have worked.
        ("0 start 1 | 9 end", "0 start 1 | 3 stop 1 | 9 end", ("| 10 send 3>1 | 11 stop 1", "| 15 recv 3<0")),
        # D3: what was read may be sent yet, as far as the clocks tell.
        (
            "0 park | 5 unpark | 6 recv 3<1 | 9 end | 10 park | 11 unpark",
            "0 start 1 | 9 end",
            ("| 20 end", "| 10 send 3>0"),
        ),
        # D4: who begins may have been spawned by one whose log is behind.
        ("0 start 1 | 4 stop 1 | 5 end", "3 start 1 | 4 stop 1 | 5 end", ("| 9 end", "| 9 end")),
    ],
)
def test_what_more_of_the_log_may_change_is_not_decided(
    tmp_path: Path, log: str, other: str, late: tuple[str, str]
) -> None:
    before = replace(draw(log, other), complete=False)
    after = draw(f"{log} {late[0]}", f"{other} {late[1]}")
    grows([before, after], tmp_path, 1)


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("0 start 1 | 4 stop 1 | 9 exit", "20 start 1 | 25 stop 1"),
        ("0 start 1 | 4 stop 1 | 9 exit", "20 start 1 | 25 stop 1 | 30 exit"),
        # What was open at the exit has ended there, and so has a wait that nothing had explained.
        ("0 start 1 | 9 exit", "9 stop 1 | 25 end"),
        ("0 app 7 | 1 start 1 | 4 stop 1 | 9 exit", "20 start 1 | 25 stop 1 | 30 endapp 7"),
        ("0 start 1 | 4 stop 1 | 5 park | 9 unpark | 9 exit", "9 recv 3<1 | 25 end"),
    ],
)
def test_a_worker_may_log_more_after_its_exit(tmp_path: Path, early: str, late: str) -> None:
    other = "0 start 1 | 2 send 3>0 | 3 stop 1 | 9 park | 20 unpark | 21 park | 40 unpark"
    before = replace(draw(early, other), complete=False)
    more = replace(draw(f"{early} | {late}", other), complete=False)
    grows([before, more, replace(more, complete=True)], tmp_path, 1)


def test_what_is_logged_later_than_the_horizon_is_not_what_was_read(tmp_path: Path) -> None:
    from pag_graph.rules.rows import RuleParameters

    other = "0 start 1 | 200 send 3>0 | 201 stop 1 | 210 end"
    trace = draw("0 park | 5 unpark | 6 recv 3<1 | 9 end | 10 park | 15 unpark | 220 end", other)
    found = {}
    for horizon in (193, 194):
        for slice_events in (1, 1_000):
            store = tmp_path / f"{horizon}-{slice_events}"
            report = api.build(
                trace.write(tmp_path / "trace", replace=True),
                store,
                engine="local",
                parameters=RuleParameters(horizon_ns=horizon),
                slice_events=slice_events,
            )
            names = set(report.findings["finding"].to_pylist())
            found[horizon, slice_events] = sorted(names - {"epoch_incomplete"})
    assert found[193, 1] == found[193, 1_000] == ["receive_without_send", "send_without_receive"]
    assert found[194, 1] == found[194, 1_000] == ["negative_transfer"]


def test_a_damaged_state_is_told_and_changes_nothing(tmp_path: Path) -> None:
    whole = rounds(4)
    early = replace(whole.until_epoch(1), complete=False).write(tmp_path / "early")
    info = api.build(early, tmp_path / "store", engine="local").store
    assert info.state is not None
    state = tmp_path / "store" / "epochs" / info.state["file"]
    content = state.read_bytes()
    for broken in (content[:-1], content.replace(b'"version":3', b'"version":9'), b""):
        state.write_bytes(broken)
        with pytest.raises(StoreError, match="damaged"):
            api.build(whole.write(tmp_path / "whole", replace=True), tmp_path / "store", mode="append", engine="local")
        assert check_store(open_store(tmp_path / "store")).damaged
    state.write_bytes(content)
    api.build(tmp_path / "whole", tmp_path / "store", mode="append", engine="local")
    assert differences(committed(tmp_path / "store"), build_reference(whole)) == ""
