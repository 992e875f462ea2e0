"""An idle interval of a log that goes on is certain once no message can turn up that ended it, whatever follows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.builder.build import build
from pag_graph.testing.traces import draw
from tests.support.compare import Apart, committed, differences
from tests.support.growing import GrowingTrace

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.testing.traces import SmallTrace

EPOCHS = " | ".join(f"{t} start 1 | {t + 4} stop 1 | {t + 5} end" for t in range(30, 80, 10))
"""Worker 1 never sleeps again."""


def trace(end: str, other: str = "2 start 1 | 10 send 3>1 #0 | 11 stop 1") -> SmallTrace:
    """Worker 1 sleeps from 4 to 15; after that comes `end`, and no further park in any epoch."""
    rest = " | ".join(f"{t} park | {t + 4} unpark | {t + 5} end" for t in range(30, 80, 10))
    logs = f"{other} | 20 end | {rest} | 90 park", f"4 park | 15 unpark | {end} | 20 end | {EPOCHS} | 91 start 1"
    return replace(draw(*logs), complete=False)


def closed(part: SmallTrace, place: Path, tasks: int = 0) -> int:
    """Build it; return the number of closed epochs, and see that the end of the log changes nothing in them."""
    written, whole = part.write(place / "part"), replace(part, complete=True).write(place / "whole")
    api.build(whole, place / "once", engine="local")
    if tasks:
        info = build(written, place / "store", engine=Apart(tasks), slice_events=5).store
    else:
        info = api.build(written, place / "store", engine="local").store
    api.build(whole, place / "store", engine="local", mode="append")
    assert differences(committed(place / "store"), committed(place / "once")) == ""
    return info.closed_epochs


@pytest.mark.parametrize("tasks", [0, 1, 3])
@pytest.mark.parametrize(
    "end",
    ["16 recv 3<0 #0", "16 start 1 | 17 recv 3<0 #0 | 18 stop 1"],
    ids=["a message ended it", "a message that an activity reads"],
)
def test_a_wait_with_an_end_closes_epochs(tmp_path: Path, end: str, tasks: int) -> None:
    assert closed(trace(end), tmp_path, tasks) == 5


@pytest.mark.parametrize(
    ("end", "other"),
    [
        ("15 start 1 | 17 send 5>1 #0 | 18 recv 5<1 #0 | 19 stop 1", "2 start 1 | 11 stop 1"),
        ("16 recv 3<0 #0", "2 send 3>1 #0"),
        ("16 recv 3<7 #0 | 17 recv 3<0 #0", "2 send 3>1 #0"),
    ],
    ids=["work follows", "a message lay there", "and one of a worker that the run does not have is read"],
)
def test_so_does_one_that_was_none(tmp_path: Path, end: str, other: str) -> None:
    assert closed(trace(end, other), tmp_path) == 5


@pytest.mark.parametrize(
    ("end", "other"),
    [
        ("16 recv 3<0 #0", "2 send 4>1 #0 | 10 send 3>1 #0"),
        ("16 recv 3<0 #0", "2 psend 4 #0 | 3 precv 4<0 #0 | 10 send 3>1 #0"),
        ("16 precv 3<0 #0", "2 send 4>1 #0 | 10 psend 3 #0"),
        ("16 start 1 | 17 stop 1", "2 start 1 | 11 stop 1"),
    ],
    ids=["a message is unread", "a broadcast is", "data while a broadcast is read", "nothing explains it"],
)
def test_what_may_still_have_an_end_does_not(tmp_path: Path, end: str, other: str) -> None:
    assert closed(trace(end, other), tmp_path) == 0


def test_a_log_that_lags_behind_may_tell_more(tmp_path: Path) -> None:
    lagging = draw(
        "2 start 1 | 10 send 3>1 #0 | 11 stop 1 | 12 end | 15 end",
        "4 park | 15 unpark | 16 recv 3<0 #0 | 16 end | " + EPOCHS,
    )
    assert closed(replace(lagging, complete=False), tmp_path) == 0


@pytest.mark.parametrize(("behind", "epochs"), [("41 recv 4<0 #1", 0), ("41 recv 4<0 #1 | 45 end", 3)])
def test_a_read_in_a_later_epoch_that_tells_of_the_wait_is_waited_for(tmp_path: Path, behind: str, epochs: int) -> None:
    told = trace("16 recv 3<0 #0", "9 send 4>1 #1 | 10 send 3>1 #0").events[0]
    log = draw("", f"4 park | 15 unpark | 16 recv 3<0 #0 | 20 end | 31 start 1 | 34 stop 1 | 35 end | {behind}").events[
        1
    ]
    part = replace(draw("", ""), events=(told, log), complete=False)
    assert closed(part, tmp_path) == epochs


@pytest.mark.parametrize("rest", ["", "| 8 start 1 | 9 stop 1"], ids=["at once", "later"])
def test_what_is_missing_later_changes_nothing_that_is_decided(tmp_path: Path, rest: str) -> None:
    """Work followed, so it waited for input; one build said that nothing is known of it."""
    log = f"0 park | 5 unpark | 5 push 1 | 5 start 1 | 7 stop 1 | 8 end {rest} | lost | 10 park | 15 unpark | 20 end"
    whole = draw(log, "0 start 1 | 3 stop 1 | 8 end | 9 start 1 | 14 stop 1 | 30 end")
    api.build(whole.write(tmp_path / "whole"), tmp_path / "once", engine="local")
    closed_epochs = set()
    for rows in range(1, len(whole.events[0])):
        growing = GrowingTrace(whole, tmp_path / f"{rows}.trace")
        growing.write(0, rows)
        growing.write(1, 5)
        store = tmp_path / f"{rows}.pag"
        closed_epochs.add(api.build(growing.path, store, engine="local", mode="append").store.closed_epochs)
        growing.finish()
        api.build(growing.path, store, engine="local", mode="append")
        assert differences(committed(store), committed(tmp_path / "once")) == ""
    assert closed_epochs == {0, 1}
