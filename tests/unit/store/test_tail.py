"""A trace that grows: new files are found without listing all, in the order of each worker's log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pag_graph.errors import TraceFormatError
from pag_graph.store import tail as module
from pag_graph.store.tail import Tail
from pag_graph.store.trace import Trace
from pag_graph.testing.traces import draw
from tests.support.growing import GrowingTrace, rounds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa


def seqs(tables: Iterable[pa.Table]) -> list[int]:
    return [seq for table in tables for seq in table["seq"].to_pylist()]


def look_often(tail: Tail) -> None:
    for _ in range(200):
        tail.look(now_ns=0)


def test_a_worker_that_begins_late_is_found_while_others_write(tmp_path: Path) -> None:
    trace = rounds(6)
    growing, tail = GrowingTrace(trace, tmp_path / "trace"), Tail(tmp_path / "trace")
    for rows in (2, 4, 6):
        growing.write(1, rows)
        assert tail.look(now_ns=0)
    growing.write(1, 8)
    growing.write(0, 3)
    assert tail.look(now_ns=0)
    assert (tail.rows_of(0), tail.rows_of(1), tail.rows) == (3, 8, 11)


def test_the_folder_is_not_listed_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = rounds(60)
    growing, tail = GrowingTrace(trace, tmp_path / "trace"), Tail(tmp_path / "trace")
    for worker in range(2):
        growing.write(worker, 1)
    tail.look(now_ns=0)
    listed: list[object] = []
    listdir = os.listdir
    monkeypatch.setattr(module.os, "listdir", lambda path: listed.append(path) or listdir(path))
    for rows in range(2, 150):
        for worker in range(2):
            growing.write(worker, rows)
        assert tail.look(now_ns=0)
    assert not listed
    growing.finish()
    assert tail.look(now_ns=0)
    assert len(listed) == 1
    assert (tail.complete, tail.rows) == (True, trace.rows)
    assert not tail.look(now_ns=0)


def test_what_is_forgotten_is_not_kept_and_the_last_row_is(tmp_path: Path) -> None:
    trace = rounds(20)
    growing, tail = GrowingTrace(trace, tmp_path / "trace"), Tail(tmp_path / "trace")
    for rows in range(1, 80, 4):
        for worker in range(2):
            growing.write(worker, rows)
        tail.look(now_ns=0)
        done = {worker: max(tail.rows_of(worker) - 6, 0) for worker in range(2)}
        tail.forget(done)
        log = tail.log()
        assert log is not None
        for worker, count in done.items():
            assert len(log.chunks[worker]) <= 4
            assert log.chunks[worker][0].first_row <= max(count - 1, 0)
            read = log.read(worker, count, tail.rows_of(worker), ["seq"])["seq"].to_pylist()
            assert read == [event.seq for event in trace.events[worker][count : tail.rows_of(worker)]]
            assert seqs(log.tables(worker, count, tail.rows_of(worker), ["seq"])) == read
        assert len(tail.trace().files) <= 8
    # Which file held a row is known for all of them.
    growing.finish()
    tail.look(now_ns=0)
    log = tail.log()
    assert log is not None
    whole = Trace.open(growing.path)
    assert len({log.arrivals[0][place].file for place in range(len(log.arrivals[0]))}) == sum(
        file.workers == (0,) for file in whole.files
    )


def test_beyond_its_memory_it_reads_the_files(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(6), tmp_path / "trace")
    growing.finish()
    found = []
    for memory in (0, 1 << 20):
        tail = Tail(growing.path, memory=memory)
        tail.look(now_ns=0)
        log = tail.log()
        assert log is not None
        assert bool(log.content) == (memory > 0)
        found.append(seqs(log.tables(1, 3, 17, ["seq", "kind", "message_seq"])))
    assert found[0] == found[1] == list(range(3, 17))


def test_tables_that_contradict_each_other_for_a_while_are_waited_for(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(3), tmp_path / "trace")
    growing.write(0, 4)
    workers = growing.path / "workers.parquet"
    whole = workers.read_bytes()
    GrowingTrace(draw("0 end"), tmp_path / "other")
    workers.write_bytes((tmp_path / "other" / "workers.parquet").read_bytes())
    tail = Tail(growing.path)
    assert not any(tail.look(now_ns=0) for _ in range(5))
    workers.write_bytes(whole)
    assert tail.look(now_ns=0)
    assert tail.rows == 4


def test_tables_that_stay_contradictory_are_refused(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(3), tmp_path / "trace")
    (growing.path / "workers.parquet").unlink()
    tail = Tail(growing.path)
    with pytest.raises(TraceFormatError, match="workers"):
        look_often(tail)


def test_files_of_a_worker_that_come_in_another_order_are_refused(tmp_path: Path) -> None:
    growing, tail = GrowingTrace(rounds(3), tmp_path / "trace"), Tail(tmp_path / "trace")
    for worker in range(2):
        growing.write(worker, 3)
    tail.look(now_ns=0)
    events = growing.path / "events"
    (events / "a-0.parquet").write_bytes((events / "worker-0000000-0000000.parquet").read_bytes())
    with pytest.raises(TraceFormatError, match="came after"):
        look_often(tail)
