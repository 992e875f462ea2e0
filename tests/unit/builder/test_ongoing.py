"""Whom the next epoch waits for, and why: a log drawn by hand for each reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.analyses.critical_path import critical_path
from pag_graph.builder.follow import Follower
from pag_graph.engines.so_far import path_so_far
from pag_graph.graph.run import Run
from pag_graph.store.delta import open_store
from pag_graph.store.tail import Tail
from pag_graph.testing.traces import draw
from tests.support.growing import GrowingTrace, rounds

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.builder.ongoing import Ongoing

WHOLE = "0 park | 5 unpark | 6 start 1 | 7 stop 1 | 9 end | 10 park | 15 unpark | 16 start 1 | 17 stop 1 | 30 park"


def seen(place: Path, *logs: str) -> Ongoing:
    """Return what is seen of a run that goes on when these logs are there."""
    trace = draw(*logs)
    growing = GrowingTrace(trace, place / "trace")
    for worker, log in enumerate(trace.events):
        growing.write(worker, len(log))
    follower, tail = Follower(place / "store"), Tail(growing.path)
    tail.look(now_ns=0)
    log = tail.log()
    assert log is not None
    follower.advance(tail.trace(), log)
    assert follower.ongoing is not None
    return follower.ongoing


@pytest.mark.parametrize(
    ("other", "why", "since"),
    [
        ("", "unborn", 0),
        ("0 start 1 | 4 stop 1", "silent", 4),
        ("0 start 1 | 4 stop 1 | 20 park", "not_ended", 20),
        ("0 park | 2 unpark | 3 start 1 | 29 end", "open_activation", 0),
        ("0 park | 2 unpark | 3 start 1 | 4 stop 1 | 9 end | 31 start 1 | 32 stop 1", "undecided_wait", 0),
    ],
)
def test_the_holder_and_why(tmp_path: Path, other: str, why: str, since: int) -> None:
    now = seen(tmp_path, WHOLE, other)
    assert now.holder is not None
    assert (now.epoch, now.holder.worker, now.holder.why, now.holder.since_ns) == (0, 1, why, since)
    assert not now.final


def test_a_read_that_nobody_sent_holds_until_nobody_can_have(tmp_path: Path) -> None:
    reader = "0 start 1 | 3 recv 3<0 #7 | 4 stop 1 | 9 end | 12 park | 14 unpark | 20 start 1 | 22 stop 1 | 30 park"
    now = seen(tmp_path, WHOLE, reader)
    assert now.holder is not None
    assert (now.holder.worker, now.holder.why, now.holder.since_ns) == (1, "unmatched_read", 3)


def test_a_read_before_its_send_by_a_wrong_clock_is_not_the_one_that_nobody_sent(tmp_path: Path) -> None:
    sender = WHOLE.replace("30 park", "20 start 1 | 21 send 3>1 #7 | 22 stop 1 | 30 park")
    reads = "3 recv 3<0 #7 | 4 recv 3<0 #8"
    reader = f"0 start 1 | {reads} | 5 stop 1 | 9 end | 12 park | 14 unpark | 20 start 1 | 22 stop 1 | 30 park"
    now = seen(tmp_path, sender, reader)
    assert now.holder is not None
    assert (now.holder.worker, now.holder.why, now.holder.since_ns) == (1, "unmatched_read", 4)


def test_bounds_only_grow(tmp_path: Path) -> None:
    trace = rounds(8)
    growing = GrowingTrace(trace, tmp_path / "trace")
    follower, tail = Follower(tmp_path / "store"), Tail(growing.path)
    before = None
    for rows in range(4, max(len(log) for log in trace.events), 3):
        for worker, log in enumerate(trace.events):
            growing.write(worker, min(rows, len(log)))
        tail.look(now_ns=0)
        log = tail.log()
        assert log is not None
        closed = follower.advance(tail.trace(), log)
        now = follower.ongoing
        assert now is not None
        if before is not None:
            assert now.as_of_ns >= before.as_of_ns
            if now.epoch == before.epoch and not closed:
                assert now.epoch_ns >= before.epoch_ns
        before = None if closed else now
        if closed:
            follower.commit()


def test_messages_that_nobody_has_read(tmp_path: Path) -> None:
    sender = WHOLE.replace("unpark | 6 start 1 |", "unpark | 6 start 1 | 6 send 3>1 #0 | 7 send 3>1 #1 |")
    now = seen(tmp_path, sender, "0 start 1 | 8 recv 3<0 #0 | 9 stop 1 | 9 end | 12 park | 13 unpark | 31 park")
    assert (now.unread, now.oldest_unread_ns, now.oldest_unread_by) == (1, 7, 0)


def test_an_ended_worker_holds_nobody(tmp_path: Path) -> None:
    trace = replace(draw(WHOLE, "0 start 1 | 4 stop 1 | 5 end | 6 exit"))
    growing = GrowingTrace(trace, tmp_path / "trace")
    for worker, log in enumerate(trace.events):
        growing.write(worker, len(log))
    follower, tail = Follower(tmp_path / "store"), Tail(growing.path)
    tail.look(now_ns=0)
    log = tail.log()
    assert log is not None
    assert follower.advance(tail.trace(), log) == 1
    assert follower.ongoing is not None
    assert (follower.ongoing.epoch, follower.ongoing.as_of_ns) == (1, 30)
    assert follower.ongoing.workers[1].ended


def test_the_critical_path_so_far_is_that_of_the_log_as_it_is(tmp_path: Path) -> None:
    growing, store = GrowingTrace(rounds(8), tmp_path / "trace"), tmp_path / "store"
    follower, tail = Follower(store), Tail(growing.path)
    for epoch in (2, 3):
        growing.write_until(epoch)
        tail.look(now_ns=0)
        log = tail.log()
        assert log is not None
        follower.advance(tail.trace(), log)
        if epoch == 2:
            follower.commit()
    now = follower.ongoing
    assert now is not None
    path = path_so_far(growing.path, store)
    assert path is not None
    assert (path.window.start_ns, path.window.end_ns) == (now.as_of_ns - now.epoch_ns, now.as_of_ns)
    assert path.length_ns == path.window.span_ns > 0
    api.build(growing.path, tmp_path / "once", engine="local")
    once = Run(tmp_path / "once")
    expected = critical_path(once.snapshot(once.window(between=(path.window.start_ns, path.window.end_ns))))
    assert path.steps.equals(expected.steps)
    # Nothing was written.
    assert open_store(store).versions == (follower.store and follower.store.versions)
