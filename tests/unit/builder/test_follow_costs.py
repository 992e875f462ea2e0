"""What a step of a follower costs does not grow with the age of the run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING

import orjson
import pytest

from pag_graph.api.standing import standings
from pag_graph.builder.follow import Follower
from pag_graph.model.enums import EventKind
from pag_graph.store import compaction, file_bounds
from pag_graph.store.parts import BOUNDS, PartFile
from pag_graph.store.tail import Tail
from tests.support.growing import GrowingTrace, rounds

if TYPE_CHECKING:
    from pathlib import Path

EPOCHS = 2_000 if os.environ.get("PAG_PROVE") == "1" else 96
ANSWERED = 2_000 if os.environ.get("PAG_PROVE") == "1" else 48
"""Epochs that standing queries are asked about, which takes longer."""


class Opened:
    """Counts the files that Python opens, and the folders that it lists, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.counts, self.on = str(folder), Counter[str](), True
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.on and event in {"open", "os.listdir", "os.scandir"} and str(arguments[0]).startswith(self.folder):
            self.counts[event] += 1

    def take(self) -> Counter[str]:
        """Return what was counted since the last time."""
        counts, self.counts = self.counts, Counter()
        return counts


@pytest.mark.parametrize(("epochs", "queries"), [(EPOCHS, ()), (ANSWERED, ("critical-path", "metrics", "totals"))])
def test_steps_cost_what_is_new(tmp_path: Path, epochs: int, queries: tuple[str, ...]) -> None:
    trace, some = rounds(epochs), epochs // 4
    growing, follower, tail = (
        GrowingTrace(trace, tmp_path / "trace"),
        Follower(tmp_path / "store", derive=standings(queries, ())),
        Tail(tmp_path / "trace"),
    )
    ends = [[place + 1 for place, event in enumerate(log) if event.kind is EventKind.EPOCH_END] for log in trace.events]
    opened = Opened(tmp_path / "store")
    counted, states, closed = [], [], 0
    for epoch in range(epochs):
        for worker in range(2):
            growing.write(worker, ends[worker][epoch])
        tail.look(now_ns=0)
        log = tail.log()
        assert log is not None
        new = follower.advance(tail.trace(), log)
        tail.forget(follower.done)
        if new:
            info, rows = follower.commit()
            closed += len(rows)
            assert info.state is not None
            states.append(info.state["size"])
        counted.append(opened.take())
        # What is kept of the trace are the rows behind the decided ones.
        assert all(len(chunks) <= 4 for chunks in log.chunks.values())
    opened.on = False
    follower.close()
    assert closed == epochs - 1
    # Rows are assembled once; those behind the cut are looked at again with the next portion.
    assert follower.scanned <= 2 * trace.rows
    for name in ("open", "os.listdir", "os.scandir"):
        early, late = (median(counts[name] for counts in part) for part in (counted[some : 2 * some], counted[-some:]))
        assert late == early, name
        assert early > 0 or name != "open"
    assert max(states[-some:]) <= 1.1 * max(states[some : 2 * some])


def test_a_commit_looks_only_at_files_that_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs, looked_at = 60, Counter[str]()
    # All files are large, so they stay as they are, and there are more and more.
    monkeypatch.setattr(compaction, "LARGE_ROWS", 1)
    is_provisional = vars(PartFile)["provisional"].fget

    def counted_provisional(part: PartFile) -> bool:
        looked_at["provisional"] += 1
        return bool(is_provisional(part))

    def counted_loads(content: bytes | str) -> object:
        looked_at["statistics"] += 1
        return orjson.loads(content)

    monkeypatch.setattr(PartFile, "provisional", property(counted_provisional))
    monkeypatch.setattr(file_bounds, "_known", {table: file_bounds._Known(table) for table in BOUNDS})
    monkeypatch.setattr(file_bounds, "orjson", SimpleNamespace(loads=counted_loads))
    growing, tail = GrowingTrace(rounds(epochs), tmp_path / "trace"), Tail(tmp_path / "trace")
    follower = Follower(tmp_path / "store", derive=standings(("critical-path", "metrics"), ()))
    counts = []
    for epoch in range(epochs):
        growing.write_until(epoch)
        tail.look(now_ns=0)
        log = tail.log()
        assert log is not None
        looked_at.clear()
        if follower.advance(tail.trace(), log, show=False):
            info, _ = follower.commit()
        counts.append(looked_at.copy())
        tail.forget(follower.done)
    follower.close()
    assert len(info.parts("edges")) > epochs - 4
    for kind in ("provisional", "statistics"):
        early, late = (median(step[kind] for step in part) for part in (counts[10:20], counts[-10:]))
        assert 0 < late <= early, kind


def test_edges_are_not_read_again_by_the_queries_of_a_follower(tmp_path: Path) -> None:
    trace = rounds(12)
    growing, tail = GrowingTrace(trace, tmp_path / "trace"), Tail(tmp_path / "trace")
    follower = Follower(tmp_path / "store", derive=standings(("critical-path", "metrics", "invariants"), ()))
    opened = Opened(tmp_path / "store" / "edges" / "part-")
    for epoch in range(12):
        growing.write_until(epoch)
        tail.look(now_ns=0)
        log = tail.log()
        assert log is not None
        # Files are written here, and the first commit registers the queries: it reads what was written before.
        opened.on = False
        new = follower.advance(tail.trace(), log)
        opened.on = epoch > 3
        if new:
            follower.commit()
        tail.forget(follower.done)
    opened.on = False
    follower.close()
    assert opened.counts["open"] == 0
