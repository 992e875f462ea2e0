"""What a process remembers of the statistics of files is what they say."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.store import file_bounds as file_bounds_module
from pag_graph.store.file_bounds import file_bounds
from pag_graph.store.parts import BOUNDS, PartFile

COLUMNS = ["epoch", "channel", "messages"]
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(COLUMNS, INTEGERS | st.sampled_from([None, 1 << 63, 1.5, "1"]))
)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with room for two files, so that it has to grow, and with all forgotten soon."""
    monkeypatch.setattr(file_bounds_module, "_FIRST", 2)
    monkeypatch.setattr(file_bounds_module, "_FEW", 8)
    monkeypatch.setattr(file_bounds_module, "_known", {table: file_bounds_module._Known(table) for table in BOUNDS})


def file_of(low: dict[str, Any], high: dict[str, Any], number: int = 0) -> PartFile:
    statistics = json.dumps({"numRecords": 1, "minValues": low, "maxValues": high, "nullCount": {}})
    return PartFile(path=f"part-{number}", size_bytes=1, rows=1, statistics=statistics)


def told(files: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[dict[str, int | None]]:
    """Say per file what its statistics tell, one by one."""
    rows = []
    for file in files:
        row = {}
        for bound, values in zip(("min", "max"), file, strict=True):
            for name in COLUMNS:
                value = values.get(name)
                usable = isinstance(value, int) and -(1 << 63) <= value < 1 << 63
                row[f"{bound}_{name}"] = value if usable else None
        rows.append(row)
    return rows


@given(st.lists(st.lists(st.tuples(VALUES, VALUES), max_size=8), min_size=1, max_size=6))
def test_bounds_are_those_of_the_statistics(asked: list[list[tuple[dict[str, Any], dict[str, Any]]]]) -> None:
    for files in asked:
        parts = [file_of(*file) for file in files]
        bounds = file_bounds("traffic", parts)
        assert bounds.columns == ["_at", *BOUNDS["traffic"]]
        assert bounds["_at"].to_list() == list(range(len(files)))
        some = file_bounds("traffic", parts, [name for name in BOUNDS["traffic"] if name[4:] in COLUMNS])
        assert some.drop("_at").to_dicts() == told(files)
        assert bounds.select(some.columns).equals(some)
        assert set(some.drop("_at").dtypes) == {pl.Int64}


def test_threads_that_ask_at_once_get_what_they_asked_for() -> None:
    def ask(begin: int) -> list[int]:
        files = [file_of({"epoch": number}, {"epoch": number}, number) for number in range(begin, begin + 50)]
        return file_bounds("traffic", files)["min_epoch"].to_list()

    with ThreadPoolExecutor(8) as threads:
        for begin, epochs in zip(range(400), threads.map(ask, range(400)), strict=True):
            assert epochs == list(range(begin, begin + 50))
