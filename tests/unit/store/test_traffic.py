"""The table `traffic`: what it counts, and stores that were written before there was one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph import api
from pag_graph.errors import UnsupportedPlanError
from pag_graph.sinks.export import export
from pag_graph.store import commit, traffic
from pag_graph.store.check import check_store
from pag_graph.store.delta import open_store
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.testing.traces import SmallTrace

# Worker 0 keeps a message of 3 records and one of an unknown number, and sends another two, which are read an epoch
# later.
GROWING = draw(
    "0 send 3>0 *3 | 2 recv 3<0 *3 | 3 send 3>0 #1 | 4 recv 3<0 #1 | 5 send 3>1 *2 | 6 end |"
    "7 send 3>1 *4 #1 | 8 end | 9 end",
    "1 end | 10 recv 3<0 *2 | 11 recv 3<0 *4 #1 | 12 end | 13 end",
)
ROWS = [
    (0, 3, 0, 0, "data_message", 2, None, None),
    (0, 3, 0, 1, "data_message", 1, 2, None),
    (1, 3, 0, 1, "data_message", 1, 4, None),
]


def built(trace: SmallTrace, place: Path, *, mode: commit.Mode = "replace") -> api.Pag:
    trace.write(place / "trace", replace=True)
    api.build(place / "trace", place / "store", engine="local", mode=mode)
    return api.open(place / "store")


def test_messages_to_oneself_are_counted_and_unknown_records_stay_unknown(tmp_path: Path) -> None:
    pag = built(GROWING, tmp_path)
    assert pag.scan("traffic").collect().rows() == ROWS
    messages = pag.scan("edges").filter(pl.col("read").is_not_null()).collect()
    assert messages.height == sum(row[5] for row in ROWS if row[2] != row[3])


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a store as the release before wrote it, of the first epoch."""
    with monkeypatch.context() as patch:
        patch.setattr(commit, "STORE_FORMAT_VERSION", traffic.SINCE - 1)
        built(replace(GROWING.until_epoch(0), complete=False), tmp_path)
    shutil.rmtree(tmp_path / "store" / "traffic")
    return tmp_path


def test_a_store_without_the_table_is_read_but_for_it(old: Path) -> None:
    pag = api.open(old / "store")
    assert pag.scan("edges").collect().height
    assert "traffic" not in pag.run.info.versions
    with pytest.raises(UnsupportedPlanError, match="before stores had the table traffic") as caught:
        pag.scan("traffic")
    assert "--replace" in str(caught.value.hint)
    assert not check_store(open_store(old / "store")).damaged
    export(pag.run, old / "csv", "csv")
    assert (old / "csv" / "traffic.csv").read_text(encoding="utf-8").count("\n") == 1


def test_an_append_keeps_the_version_of_a_store(old: Path) -> None:
    pag = built(GROWING, old, mode="append")
    assert pag.epochs.height > 1
    assert pag.run.info.format_version == 1
    assert not list((old / "store").glob("traffic/*.parquet"))
    assert built(GROWING, old).scan("traffic").collect().rows() == ROWS
