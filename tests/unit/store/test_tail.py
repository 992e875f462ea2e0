"""Files that do not come in their order, of a trace that is being written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from pag_graph import api
from pag_graph.builder.follow import Follower
from pag_graph.errors import TraceFormatError
from pag_graph.store.log import TraceLog
from pag_graph.store.meta import read_meta, write_meta
from pag_graph.store.tail import GIVE_UP_NS, Tail
from pag_graph.store.trace import Trace
from pag_graph.store.trace_files import EVENTS, META
from tests.support.compare import committed, differences
from tests.support.growing import GrowingTrace, rounds

if TYPE_CHECKING:
    from pathlib import Path

_SOME_LOOKS = 70
"""More than after which the folder is listed."""


class Lacking:
    """A trace whose second file of worker 1 is aside, and a follower of it."""

    def __init__(self, place: Path) -> None:
        self.trace = rounds(8)
        self.growing = GrowingTrace(self.trace, place / "trace")
        meta = read_meta(self.growing.path / META)
        # A format whose numbers of events have no gaps.
        meta = replace(meta, source=replace(meta.source, format="pag-timely"))
        write_meta(meta, self.growing.path / META)
        for epoch in (1, 2, 3):
            self.growing.write_until(epoch)
        self.file, self.aside = self.growing.path / EVENTS / "worker-0000001-0000001.parquet", place / "aside"
        self.file.rename(self.aside)
        self.store, self.tail = place / "store", Tail(self.growing.path)
        self.follower = Follower(self.store)

    def step(self, now_ns: int = 0, looks: int = _SOME_LOOKS) -> None:
        for _ in range(looks):
            self.tail.look(now_ns)
        log = self.tail.log()
        assert log is not None
        complete = self.tail.complete
        if self.follower.advance(self.tail.trace(), log, show=complete) or complete:
            self.follower.commit()


def test_a_file_that_lacks_is_waited_for(tmp_path: Path) -> None:
    lacking = Lacking(tmp_path)
    lacking.step()
    assert lacking.tail.awaited == {1}
    lacking.step(GIVE_UP_NS, 1)
    now = lacking.follower.ongoing
    assert now is not None
    assert now.holder is not None
    assert (now.holder.worker, now.holder.why) == (1, "missing_rows")
    lacking.aside.rename(lacking.file)
    lacking.step()
    assert not lacking.tail.awaited
    assert lacking.tail.rows == sum(lacking.growing.rows)
    lacking.growing.finish()
    lacking.step()
    api.build(lacking.growing.path, tmp_path / "once", engine="local")
    assert differences(committed(lacking.store), committed(tmp_path / "once")) == ""


def test_what_did_not_come_is_missing(tmp_path: Path) -> None:
    lacking = Lacking(tmp_path)
    lacking.step()
    lacking.step(GIVE_UP_NS + 1)
    assert not lacking.tail.awaited
    whole = lacking.tail.rows
    assert 0 < whole < sum(lacking.growing.rows)
    assert lacking.tail.trace().findings["finding"].to_pylist() == ["events_missing"]
    lacking.growing.finish()
    lacking.step(GIVE_UP_NS + 2)
    api.build(lacking.growing.path, tmp_path / "once", engine="local")
    assert differences(committed(lacking.store), committed(tmp_path / "once")) == ""


def test_what_comes_after_all_is_refused(tmp_path: Path) -> None:
    lacking = Lacking(tmp_path)
    lacking.step()
    lacking.step(GIVE_UP_NS + 1)
    lacking.aside.rename(lacking.file)
    lacking.growing.finish()
    with pytest.raises(TraceFormatError, match="came after"):
        lacking.step(GIVE_UP_NS + 2)


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace", joined=3)
    tail = Tail(growing.path)
    # Of two portions it sees the second only: the last of one file, and the first of the next.
    for epoch in range(7):
        growing.write_until(epoch)
        if epoch != 5:
            assert tail.look(0)
            assert tail.rows == sum(growing.rows)
    growing.finish()
    assert tail.look(0)
    assert not tail.look(0)
    assert max(file.name for file in (growing.path / EVENTS).iterdir()) == "worker-0000001-0000002.parquet"
    log = tail.log()
    assert log is not None
    whole = TraceLog.index(Trace.open(growing.path))
    for worker in (0, 1):
        assert [len(log.arrivals[worker]), log.rows_of(worker)] == [8, whole.rows_of(worker)]
        assert log.read(worker, 0, log.rows_of(worker), ["seq", "t_ns"]) == whole.read(
            worker, 0, whole.rows_of(worker), ["seq", "t_ns"]
        )
    assert tail.trace().findings.num_rows == 0


def test_a_file_may_grow_and_have_successors_at_the_end(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace", joined=3)
    growing.write_until(1)
    tail = Tail(growing.path)
    tail.look(0)
    for epoch in range(2, 8):
        growing.write_until(epoch)
    growing.finish()
    tail.look(0)
    assert tail.rows == sum(growing.rows)


@pytest.mark.parametrize("joined", [1, 3])
def test_what_is_more_than_a_portion_waits(tmp_path: Path, joined: int) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace", joined=joined)
    tail = Tail(growing.path, portion=1)
    for epoch in range(8):
        growing.write_until(epoch)
        if epoch == 1:
            tail.look(0)
            assert tail.waiting
    growing.finish()
    tail.forget({})
    ahead = []
    while not tail.complete:
        rows = tail.rows
        assert tail.look(0)
        # A file is read, and nothing else before that portion is done.
        assert 0 < tail.rows - rows < sum(growing.rows) / 4
        assert not tail.look(0)
        assert tail.trace().meta.complete == tail.complete
        tail.forget({})
        ahead.append(tail.rows_of(0) - tail.rows_of(1))
    # The workers get on together.
    assert max(map(abs, ahead)) < max(growing.rows) / 2
    log, whole = tail.log(), TraceLog.index(Trace.open(growing.path))
    assert log is not None
    for worker in (0, 1):
        assert log.rows_of(worker) == whole.rows_of(worker)
        assert log.read(worker, 0, log.rows_of(worker), ["seq", "t_ns"]) == whole.read(
            worker, 0, whole.rows_of(worker), ["seq", "t_ns"]
        )


def test_two_series_of_one_worker_are_read_in_the_order_of_its_log(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    for epoch in range(8):
        growing.write_until(epoch)
    growing.finish()
    events = growing.path / EVENTS
    for number in range(4, len(list(events.glob("worker-0000001-*")))):
        name = f"worker-0000001-{number:07}.parquet"
        (events / name).rename(events / name.replace("1-", "1-later-"))
    tail = Tail(growing.path, portion=1)
    while not tail.complete:
        tail.look(0)
        tail.forget({})
    assert tail.rows == Trace.open(growing.path).rows


def test_a_follower_that_goes_on_counts_only_what_is_new(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    for epoch in range(8):
        growing.write_until(epoch)
    rows = list(growing.rows)
    tail = Tail(growing.path, {worker: count - 1 for worker, count in enumerate(rows)}, portion=2)
    tail.look(0)
    assert tail.rows == sum(rows)


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(8), tmp_path / "trace", joined=3)
    growing.write_until(3)
    tail = Tail(growing.path)
    tail.look(0)
    file = growing.path / EVENTS / "worker-0000001-0000000.parquet"
    pq.write_table(pq.read_table(file).slice(1), file)
    with pytest.raises(TraceFormatError, match="does not begin any more"):
        tail.look(0)
