"""Rows of files that were just written stay in memory as far as they are few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from pag_graph.model.tables import PAG_TRAFFIC
from pag_graph.store import fresh as fresh_module
from pag_graph.store.fresh import Fresh
from pag_graph.store.parts import PartFile

if TYPE_CHECKING:
    import pytest

ROW = pa.Table.from_pylist(
    [{"epoch": 1, "from_worker": 0, "to_worker": 1, "type": "data_message", "messages": 1}], PAG_TRAFFIC
)


def part(number: int) -> PartFile:
    return PartFile(path=f"part-{number}", size_bytes=1, rows=1, statistics="{}")


def test_small_files_count_with_what_their_columns_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_module, "_AFTERWARDS", 1 << 20)
    fresh = Fresh()
    fresh.wanted = True
    for number in range(1_000):
        fresh.add("traffic", part(number), ROW)
    assert len(fresh.files) == 1_000
    fresh.let_go(fresh.files)
    # The values of all of them take a twentieth of what may stay, but each takes 14 KB besides.
    assert sum(pl.DataFrame(pl.from_arrow(ROW)).estimated_size() for _ in range(1_000)) < 1 << 17
    assert 60 <= len(fresh.files) <= 80
    assert fresh.files[-1] == "part-999"
    assert fresh.rows(part(0)) is None
    assert fresh.rows(part(999)) is not None
