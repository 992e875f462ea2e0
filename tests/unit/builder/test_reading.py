"""Columns of plain integers, against the table that they were read from."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.builder.reading import check_order, read_columns
from pag_graph.errors import TraceFormatError
from pag_graph.kernels import NEVER
from pag_graph.model.enums import EventKind
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.rules.rows import EDGE_CODES, LABELS
from pag_graph.store import log as store_log
from pag_graph.store import row_groups
from pag_graph.store.log import TraceLog
from pag_graph.store.trace import Trace
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORDS = {"kind": (LABELS, 0), "activity": (EDGE_CODES, -1)}
ROWS = 1_000


def events() -> pa.Table:
    some = np.random.default_rng(5)
    kinds = np.array([str(kind) for kind in EventKind])
    absent = some.random((5, ROWS)) < 0.4
    columns = {
        "worker": pa.array(np.zeros(ROWS, np.int32)),
        "seq": pa.array(np.arange(ROWS)),
        "epoch": pa.array(np.arange(ROWS) // 100),
        "t_ns": pa.array(np.arange(ROWS) * 3),
        "kind": pa.array(kinds[some.integers(0, len(kinds), ROWS)]),
        "activity": pa.array(np.where(some.random(ROWS) < 0.5, "gc", "io"), mask=absent[0]),
        "operator": pa.array(some.integers(0, 2**62, ROWS), mask=absent[1]),
        "peer": pa.array(some.integers(0, 9, ROWS).astype(np.int32), mask=absent[2]),
        "inferred": pa.array(some.random(ROWS) < 0.5, mask=absent[3]),
        "arrived_ns": pa.array(some.integers(-2, 9, ROWS), mask=absent[4]),
    }
    filled = [columns.get(f.name, pa.nulls(ROWS, f.type)) for f in TRACE_EVENTS]
    return pa.Table.from_arrays(filled, schema=TRACE_EVENTS)


def log(place: Path, table: pa.Table, **options: Any) -> tuple[Trace, TraceLog]:
    """The trace of a drawing, with other events in the place of its own."""
    written = draw("0 start 1 | 1 end").write(place / "trace")
    for file in (written / "events").iterdir():
        file.unlink()
    pq.write_table(table, written / "events" / "worker-0.parquet", row_group_size=300, **options)
    trace = Trace.open(written)
    return trace, TraceLog.index(trace)


@pytest.mark.parametrize(("low", "high"), [(0, ROWS), (0, 1), (299, 301), (300, 600), (123, 987), (5, 5)])
@pytest.mark.parametrize("options", [{}, {"write_statistics": False}, {"use_dictionary": False}])
def test_columns_are_those_of_the_table(tmp_path: Path, low: int, high: int, options: dict[str, Any]) -> None:
    table = events()
    _, mine = log(tmp_path, table, **options)
    names = [name for name in TRACE_EVENTS.names if name != "worker"]
    columns = read_columns(mine, 0, low, high, names, WORDS)
    for name in names:
        values = table[name].slice(low, high - low).to_pylist()
        if name in WORDS:
            meaning, default = WORDS[name]
            values = [default if value is None else meaning[value] for value in values]
        elif name == "inferred":
            values = [int(bool(value)) for value in values]
        else:
            # A time of -1 is one.
            null = NEVER if name == "arrived_ns" else -1
            values = [null if value is None else value for value in values]
        assert columns[name].tolist() == values, name
        assert columns[name].dtype == (np.int8 if name in {*WORDS, "inferred"} else np.int64)


def with_value(name: str, row: int, value: object) -> pa.Table:
    table = events()
    values = table[name].to_pylist()
    values[row] = value
    place = table.column_names.index(name)
    field = pa.field(name, table.schema.field(name).type)
    return table.set_column(place, field, pa.array(values, field.type))


@pytest.mark.parametrize(
    ("name", "value"),
    [("kind", "jump"), ("kind", None), ("seq", None), ("operator", -7), ("peer", 1 << 30), ("activity", "dreaming")],
)
def test_what_is_wrong_is_said_as_by_the_table(tmp_path: Path, name: str, value: object) -> None:
    _, mine = log(tmp_path, with_value(name, 450, value))
    said: list[str] = []
    calls: list[Callable[[], object]] = [
        lambda: mine.read(0, 0, ROWS, [name]),
        lambda: read_columns(mine, 0, 0, ROWS, [name], WORDS),
    ]
    for call in calls:
        with pytest.raises(TraceFormatError) as caught:
            call()
        said.append(caught.value.message)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("name", "row", "value", "rule"),
    [("seq", 450, 3, "seq"), ("epoch", 300, 1, "epoch"), ("t_ns", 600, 5, "before"), ("epoch", 999, 2**60, "range")],
)
def test_a_log_out_of_order_is_refused(tmp_path: Path, name: str, row: int, value: int, rule: str) -> None:
    trace, mine = log(tmp_path, with_value(name, row, value))
    # The row before is a part of what is looked at, so that nothing hides between two slices.
    for low in (0, row):
        first = max(low - 1, 0)
        columns = read_columns(mine, 0, first, ROWS, ["seq", "epoch", "t_ns"], {})
        with pytest.raises(TraceFormatError, match=rule):
            check_order(trace, mine, 0, low, ROWS, columns)
    sound = read_columns(mine, 0, 0, row, ["seq", "epoch", "t_ns"], {})
    check_order(trace, mine, 0, 0, row, sound)


def test_rows_without_a_worker_are_found_by_the_index(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="worker"):
        log(tmp_path, with_value("worker", 450, None))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> TraceLog:
    return log(tmp_path_factory.mktemp("long"), events())[1]


@given(st.lists(st.integers(0, ROWS), max_size=8).map(sorted))
def test_logs_read_forward_are_those_read_anywhere(long: TraceLog, cuts: list[int]) -> None:
    forward = long.forward()
    columns = ["seq", "t_ns", "kind"]
    for low, high in pairwise([0, *cuts, ROWS]):
        # As a slice asks: with the row before.
        first = max(low - 1, 0)
        found = [table.select(columns) for table in forward.tables(0, first, high, columns)]
        assert sum(table.num_rows for table in found) == high - first
        if found:
            plain = pa.concat_tables(long.tables(0, first, high, columns)).select(columns)
            assert pa.concat_tables(found).unify_dictionaries().to_pylist() == plain.to_pylist()


def test_a_log_read_forward_keeps_what_it_may(long: TraceLog, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = long.forward()
    list(forward.tables(0, 0, 450, ["seq"]))
    assert [chunk.first_row for chunk in forward.chunks[0] if forward.kept.of(0, chunk)] == [300]
    opened, decoded = Mock(wraps=store_log.open_events), Mock(wraps=store_log.read_groups)
    monkeypatch.setattr(store_log, "open_events", opened)
    monkeypatch.setattr(store_log, "read_groups", decoded)
    list(forward.tables(0, 449, 600, ["seq"]))
    assert not decoded.called
    # Other columns of the same rows are not there, but the file is open; then there are both.
    list(forward.tables(0, 599, 600, ["t_ns"]))
    list(forward.tables(0, 599, 600, ["seq", "t_ns"]))
    assert decoded.call_count == 1
    assert decoded.call_args.args[2] == ["t_ns"]
    assert not opened.called
    monkeypatch.setattr(store_log, "_KEPT_FILES", 0)
    list(forward.tables(0, 599, 600, ["epoch"]))
    assert not forward.files
    list(forward.tables(0, 599, 600, ["kind"]))
    assert opened.call_count == 1
    # Two of a worker, as a stretch need not end in the row group in which it began.
    list(forward.tables(0, 600, 650, ["t_ns"]))
    list(forward.tables(0, 900, 950, ["t_ns"]))
    assert [chunk.first_row for chunk in forward.chunks[0] if forward.kept.of(0, chunk)] == [600, 900]
    monkeypatch.setattr(row_groups, "_KEPT_BYTES", 0)
    list(forward.tables(0, 300, 350, ["t_ns"]))
    assert not len(forward.kept)


def test_an_append_finds_the_last_rows_that_its_process_decoded(
    long: TraceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = long.forward()
    list(forward.tables(0, 600, 950, ["seq", "kind"]))
    forward.keep_last()
    assert isinstance(pickle.loads(pickle.dumps(forward)), TraceLog)
    monkeypatch.setattr(store_log, "read_groups", Mock(side_effect=AssertionError))
    (table,) = long.forward().tables(0, 949, ROWS, ["kind"])
    assert table.num_rows == ROWS - 949
    changed = replace(long, chunks={0: tuple(replace(chunk, of_file=(1, 1)) for chunk in long.chunks[0])})
    with pytest.raises(AssertionError):
        list(changed.forward().tables(0, 949, ROWS, ["kind"]))
    # Where nobody can tell that a file is the same, and where there is no room, it is read again.
    unknown = replace(long, chunks={0: tuple(replace(chunk, of_file=(-1, -1)) for chunk in long.chunks[0])})
    monkeypatch.undo()
    for log_, room in ((unknown, 1 << 20), (long, 0)):
        monkeypatch.setattr(row_groups, "_GROWING_BYTES", room)
        forward = log_.forward()
        list(forward.tables(0, 600, 950, ["seq"]))
        forward.keep_last()
        assert not len(log_.forward().kept)
