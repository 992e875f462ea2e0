"""Sends that nobody reads wait in files: memory and state hold those that are under way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph import api
from pag_graph.builder import saved, sends
from pag_graph.builder.follow import Follower
from pag_graph.builder.match import READERS, RECEIVES, SENDS
from pag_graph.builder.sends import SendBook
from pag_graph.builder.sink import StoreSink
from pag_graph.builder.spilled import FILE_ROWS
from pag_graph.errors import StoreError
from pag_graph.rules.rows import RuleParameters
from pag_graph.store.check import check_store
from pag_graph.store.leftovers import vacuum
from pag_graph.store.tail import Tail
from pag_graph.testing.traces import draw
from tests.support.compare import committed, differences
from tests.support.growing import GrowingTrace

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pag_graph.testing.traces import SmallTrace

UNREAD = 1_000_000 if os.environ.get("PAG_PROVE") == "1" else 100_000
SLICE = 5_000
SMALL = RuleParameters(horizon_ns=40)


def sent(first: int, count: int) -> pl.DataFrame:
    """Sends of worker 0 to worker 1, one each nanosecond, that nobody has read."""
    number = np.arange(first, first + count)
    columns = {"slice": 0, "channel": 3, "sender": 0, "receiver": 1, "message_seq": number, "id": 2 * (number + 1)}
    columns |= {"t": number, "epoch": 0, "seq": number, "missing": 1}
    return pl.DataFrame({name: np.broadcast_to(columns[name], count) for name in SENDS})


def read(number: int, order: int) -> pl.DataFrame:
    """Worker 1 reads a message."""
    row = {"slice": 1, "channel": 3, "sender": 0, "receiver": 1, "message_seq": number, "worker": 1, "order": order}
    return pl.DataFrame(row | {"seq": order, "t": UNREAD + order, "peer": 0}, schema=RECEIVES)


def test_memory_holds_what_is_under_way(tmp_path: Path) -> None:
    book = SendBook()
    book.place = StoreSink(tmp_path)
    held = 0
    for first in range(0, UNREAD, SLICE):
        book.add(sent(first, SLICE), pl.DataFrame(schema=READERS))
        book.spill(first - SLICE, {0: first + SLICE, 1: 0})
        held = max(held, len(book.columns()["id"]))
    # What is younger than the horizon, and not yet enough for a file.
    assert held <= FILE_ROWS + 3 * SLICE
    assert book.count_unread() == (UNREAD, (0, 2))
    assert book.unread_since([0, 1], book.find(read(0, 1).clear(), 0)) == {1: 0}
    assert book.first_unread_ns() == 0
    for order, number in enumerate((0, 0, SLICE, UNREAD - 1, UNREAD), 1):
        stitched = book.find(read(number, order), 10)
        # Nobody reads a message twice, nor one that was not sent.
        assert stitched["t"].to_list() == ([] if order in {2, 5} else [number])
        book.take(stitched)
        book.forget({0: UNREAD, 1: 0})
    assert book.count_unread() == (UNREAD - 3, (1, 4))
    assert book.first_unread_ns() == 1
    left = book.unread()
    assert left.height == UNREAD - 3
    assert left["message_seq"].head(2).to_list() == [1, 2]


def unread_rounds(count: int) -> SmallTrace:
    """Worker 0 sends something in each round that worker 1 does not read, but for the first one, in the end."""
    logs: list[list[str]] = [[], []]
    for e in range(count):
        t = 20 * e
        logs[0].append(f"{t} park | {t + 6} unpark | {t + 7} send 3>1 #{e} | {t + 8} psend 4 #{e} | {t + 9} end")
        late = f" | {t + 7} recv 3<0 #0" if e == count - 2 else ""
        logs[1].append(f"{t} park | {t + 6} unpark{late} | {t + 8} precv 4<0 #{e} | {t + 9} end")
    return draw(*(" | ".join(log) for log in logs))


def test_a_run_is_the_same_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = unread_rounds(24)
    growing, store = GrowingTrace(trace, tmp_path / "trace"), tmp_path / "store"
    monkeypatch.setattr(sends, "FILE_ROWS", 4)
    kept, sizes = None, []
    for epoch in range(24):
        growing.write_until(epoch)
        if epoch == 23:
            growing.finish()
        # Each time as after a restart.
        follower = Follower(store, kept, parameters=SMALL)
        tail = Tail(growing.path, follower.done)
        tail.look(now_ns=0)
        log = tail.log()
        assert log is not None
        follower.advance(tail.trace(), log, show=epoch == 23)
        kept, _ = follower.commit()
        begin = saved.load(kept)
        assert begin is not None
        assert begin.state.sends.count_unread()[0] >= epoch - 1
        sizes.append(len(begin.state.sends.columns()["id"]))
    assert max(sizes) <= 12
    monkeypatch.undo()
    api.build(growing.path, tmp_path / "once", engine="local", parameters=SMALL)
    assert differences(committed(store), committed(tmp_path / "once")) == ""
    names = set(kept.state["sends"]) if kept and kept.state else set()
    assert len(names) > 1
    # What a commit names stays, and is checked; what none names goes.
    (store / "epochs" / f"sends-{'0' * 32}-{'0' * 8}.arrow").write_bytes(b"")
    vacuum(store)
    assert {file.name for file in (store / "epochs").glob("sends-*")} == names
    assert not check_store(kept).damaged
    # Each that is damaged is named: one file, the state, and the last file as well.
    spoilt: list[str] = []
    for name in (min(names), kept.state["file"], max(names)):
        (store / "epochs" / name).write_bytes(b"")
        spoilt.append(name)
        damaged = check_store(kept).damaged
        assert [type(error) for error in damaged] == [StoreError] * len(spoilt)
        assert all(any(name in str(error) for error in damaged) for name in spoilt)
