"""Random logs, followed while they are written: the last commit is what one build gives, and nothing changes."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.builder.follow import Follower
from pag_graph.store.delta import open_store
from pag_graph.store.tail import Tail
from pag_graph.testing.reference import build_reference
from pag_graph.testing.strategies import slice_sizes, small_traces
from pag_graph.testing.traces import draw
from tests.support.compare import committed, differences
from tests.support.growing import GrowingTrace
from tests.support.polled_logs import polled_log
from tests.support.stated_reference import random_stated

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pag_graph.testing.traces import SmallTrace

PROVE = os.environ.get("PAG_PROVE") == "1"
FOLLOWED = settings(max_examples=5_000 if PROVE else 12)


class Watched:
    """A follower that is driven by hand, and restarted at will; what it commits is compared with what it did before."""

    def __init__(self, source: Path, store: Path, slice_events: int, portion: int | None) -> None:
        self.source, self.store, self.slice_events, self.portion = source, store, slice_events, portion
        self.rows: Counter[str] = Counter()
        self.fingerprint: dict[int, int] = {}
        self.closed: list[int] = []
        self.commits = 0
        self.start()

    def start(self) -> None:
        """Begin, or go on from what is committed, as a process does that knows nothing."""
        kept = open_store(self.store) if (self.store / "epochs").exists() else None
        self.follower = Follower(self.store, kept, slice_events=self.slice_events)
        self.tail = Tail(self.source, self.follower.done, portion=self.portion)

    def step(self, *, commit: bool) -> None:
        """Look, fold, and commit if an epoch was closed; at the end whatever there is."""
        self.tail.look(now_ns=0)
        log = self.tail.log()
        if log is None:
            return
        show = self.tail.complete
        closed = self.follower.advance(self.tail.trace(), log, show=show)
        self.tail.forget(self.follower.done)
        if show or (closed and commit):
            _, closed = self.follower.commit()
            self.commits += 1
            self.check(tuple(row.epoch for row in closed))

    def check(self, epochs: tuple[int, ...]) -> None:
        """Compare what is closed with what was, row by row."""
        info = open_store(self.store)
        last = info.run["last_closed_epoch"]
        # Each epoch is closed once, in order.
        assert list(epochs) == sorted(epochs)
        assert not self.closed or not epochs or epochs[0] > self.closed[-1]
        self.closed += epochs
        assert len(self.closed) == info.closed_epochs
        now: Counter[str] = Counter()
        for name in ("vertices", "edges", "epochs"):
            rows = info.scan(name).collect().to_dicts()
            now.update(f"{name} {row!r}" for row in rows if row["epoch"] <= last)
        assert not self.rows - now
        self.rows = now


def follow_anyhow(trace: SmallTrace, place: Path, slice_events: int, data: st.DataObject) -> Watched:
    """Write a trace in random portions, workers in any order, follow it, and restart the follower now and then."""
    growing = GrowingTrace(trace, place / "trace", joined=data.draw(st.sampled_from((1, 3, 20))))
    watched = Watched(growing.path, place / "store", slice_events, data.draw(st.sampled_from((None, 1, 20))))
    moves = st.tuples(st.integers(0, trace.workers - 1), st.integers(1, 12), st.sampled_from("wwwcccs r"))
    for worker, rows, then in data.draw(st.lists(moves, max_size=40)):
        growing.write(worker, min(growing.rows[worker] + rows, len(trace.events[worker])))
        if then == "r":
            watched.start()
        elif then != "w":
            watched.step(commit=then == "c")
    growing.finish()
    while not watched.tail.complete:
        watched.step(commit=data.draw(st.booleans()))
    return watched


def same_as_built(trace: SmallTrace, place: Path, *, reference: bool = True) -> None:
    """Compare the store with what one build of the whole trace gives, and with the definitions."""
    api.build(place / "trace", place / "once", engine="local")
    assert differences(committed(place / "store"), committed(place / "once")) == ""
    if reference:
        assert differences(committed(place / "store"), build_reference(trace)) == ""
    infos = [open_store(place / name) for name in ("store", "once")]
    facts = {
        (info.run["closed_fingerprint"], info.closed_epochs, str(sorted(info.dropped.items())), info.events)
        for info in infos
    }
    assert len(facts) == 1


@FOLLOWED
@given(
    st.one_of(
        small_traces(max_workers=3),
        small_traces(max_workers=4, complete=True),
        small_traces(max_workers=3, skewed=True),
        small_traces(max_workers=3, skewed=True, damaged=True),
        st.integers(0, 2**32).map(polled_log),
    ),
    st.data(),
    slice_sizes(),
)
def test_what_is_followed_is_what_is_built(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject, slice_events: int
) -> None:
    trace = replace(trace, complete=True)
    place = tmp_path_factory.mktemp("followed")
    follow_anyhow(trace, place, slice_events, data)
    same_as_built(trace, place)


def test_that_a_log_goes_on_after_its_exit_is_found_between_two_commits(tmp_path: Path) -> None:
    trace = draw("0 start 1 | 1 stop 1 | 2 end", "0 start 1 | 0 stop 1 | 0 exit | 4 end")
    growing = GrowingTrace(trace, tmp_path / "trace")
    watched = Watched(growing.path, tmp_path / "store", slice_events=1, portion=None)
    growing.write(1, 3)
    growing.write(0, 2)
    watched.step(commit=True)
    assert not watched.commits
    growing.finish()
    while not watched.tail.complete:
        watched.step(commit=True)
    same_as_built(trace, tmp_path)


@FOLLOWED
@given(seed=st.integers(0, 2**32), data=st.data(), slice_events=slice_sizes())
def test_stated_logs_that_are_followed_are_what_is_built(
    tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject, slice_events: int
) -> None:
    trace = replace(random_stated(seed, causal=True), complete=True)
    place = tmp_path_factory.mktemp("followed")
    follow_anyhow(trace, place, slice_events, data)
    same_as_built(trace, place, reference=False)
