from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph.errors import (
    FormatVersionError,
    MissingColumnError,
    PagGraphError,
    SchemaError,
    StoreError,
    StoreExistsError,
    TraceFormatError,
)
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_EVENTS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.store import trace as trace_module
from pag_graph.store.inputs import read_inputs
from pag_graph.store.log import TraceLog
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.order import check_events, check_trace, find_violation
from pag_graph.store.trace import Trace, write_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.store.event_files import EventFile


def events(*rows: tuple[int, int, int, int], kind: str = "start") -> pa.Table:
    """Rows of (worker, seq, epoch, t_ns)."""
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    return pa.table(
        {
            "worker": pa.array(columns[0], pa.int32()),
            "seq": pa.array(columns[1], pa.int64()),
            "epoch": pa.array(columns[2], pa.int64()),
            "t_ns": pa.array(columns[3], pa.int64()),
            "kind": pa.array([kind] * len(rows), pa.string()),
        }
    )


def workers(*numbers: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"worker": number, "process": 0, "host": None, "clock_domain": "0", "offset_ns": 0, "uncertainty_ns": None}
            for number in numbers
        ],
        TRACE_WORKERS,
    )


def operators(*numbers: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"operator": number, "address": f"0.{number}", "name": "Map"} for number in numbers], TRACE_OPERATORS
    )


def meta(count: int = 2, **changes: object) -> TraceMeta:
    facts: dict[str, object] = {
        "trace_id": "t",
        "source": TraceSource(system="timely", version="0.31.0", format="test"),
        "workers": count,
    }
    return TraceMeta(**{**facts, **changes})  # type: ignore[arg-type]


FILES = (
    ("w0", events((0, 0, 0, 10), (0, 1, 0, 20), (0, 2, 1, 20), (0, 5, 2, 30))),
    ("w1", events((1, 0, 0, 5), (1, 1, 1, 6))),
)


def write(path: Path, files: object = FILES, *, replace: bool = False, **changes: object) -> Path:
    parts: dict[str, object] = {
        "meta": meta(),
        "events": files,
        "operators": operators(1, 2),
        "channels": TRACE_CHANNELS.empty_table(),
        "workers": workers(0, 1),
    }
    write_trace(path, replace=replace, **{**parts, **changes})  # type: ignore[arg-type]
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace.open(write(tmp_path / "trace"))


def test_what_was_written_is_read(trace: Trace) -> None:
    assert trace.meta == meta()
    assert trace.operators.equals(operators(1, 2))
    assert trace.workers.schema.equals(TRACE_WORKERS)
    assert trace.channels.num_rows == 0
    assert trace.rows == 6
    assert [(file.name, file.rows, file.workers) for file in trace.files] == [
        ("events/w0.parquet", 4, (0,)),
        ("events/w1.parquet", 2, (1,)),
    ]
    table = trace.events()
    assert table.column_names == TRACE_EVENTS.names
    assert table["seq"].to_pylist() == [0, 1, 2, 5, 0, 1]
    assert table["peer"].null_count == 6
    assert pa.types.is_dictionary(table["kind"].type)
    assert table["kind"].cast(pa.string()).unique().to_pylist() == ["start"]


def test_nothing_but_the_trace_is_left_behind(tmp_path: Path) -> None:
    write(tmp_path / "trace")
    write(tmp_path / "trace", replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_files_have_delta_encoding_compression_and_statistics(trace: Trace) -> None:
    group = pq.ParquetFile(trace.path / "events/w0.parquet").metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in columns["t_ns"].encodings
    assert "RLE_DICTIONARY" in columns["kind"].encodings
    assert columns["t_ns"].compression == "LZ4"
    assert columns["epoch"].statistics.max == 2


@pytest.mark.parametrize(
    ("workers", "seqs"), [(None, [0, 1, 2, 5, 0, 1]), ([1], [0, 1]), ({0, 1}, [0, 1, 2, 5, 0, 1]), ([], []), ([7], [])]
)
def test_selections(trace: Trace, workers: list[int] | None, seqs: list[int]) -> None:
    table = trace.events(["t_ns", "seq"], workers)
    assert table.column_names == ["t_ns", "seq"]
    assert table["seq"].to_pylist() == seqs


def test_a_log_over_several_files_and_files_of_several_workers(tmp_path: Path) -> None:
    files = (
        ("part-1", events((1, 2, 1, 9), (0, 2, 1, 9), (1, 3, 1, 9))),
        ("part-0", events((0, 0, 0, 5), (0, 1, 0, 6), (1, 0, 0, 7))),
    )
    trace = Trace.open(write(tmp_path / "trace", files))
    table = trace.events(["worker", "seq"])
    assert table["worker"].to_pylist() == [0, 0, 0, 1, 1, 1]
    assert table["seq"].to_pylist() == [0, 1, 2, 0, 2, 3]
    assert [file.workers for file in trace.files] == [(0, 1), (0, 1)]
    assert trace.file_of(worker=1, seq=3) == str(trace.path / "events/part-1.parquet")


def test_a_trace_crosses_process_borders(trace: Trace) -> None:
    assert pickle.loads(pickle.dumps(trace)).events().equals(trace.events())


def test_an_existing_target_is_refused_and_kept(trace: Trace) -> None:
    with pytest.raises(StoreExistsError, match="exists already"):
        write(trace.path, FILES[:1])
    assert Trace.open(trace.path).rows == 6


def test_replace(trace: Trace) -> None:
    write(trace.path, FILES[:1], replace=True)
    assert Trace.open(trace.path).rows == 4


def test_replace_leaves_alone_what_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StoreExistsError, match="not a trace"):
        write(tmp_path, replace=True)
    assert (tmp_path / "thesis.tex").exists()


def test_a_failing_writer_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> object:
        yield FILES[0]
        message = "the source broke"
        raise ValueError(message)

    with pytest.raises(ValueError, match="the source broke"):
        write(tmp_path / "trace", broken())
    assert not list(tmp_path.iterdir())


def test_a_failing_writer_keeps_what_it_should_have_replaced(trace: Trace) -> None:
    with pytest.raises(TraceFormatError):
        write(trace.path, (), replace=True)
    assert Trace.open(trace.path).rows == 6


def test_a_file_system_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        write(tmp_path / "file" / "trace")


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"events": ()}, TraceFormatError, "no events"),
        ({"events": (("w0", events()),)}, TraceFormatError, "no events"),
        ({"events": (FILES[0], FILES[0])}, TraceFormatError, "given twice"),
        ({"events": (("w0", events((0, 0, 0, 1), (7, 0, 0, 1))),)}, TraceFormatError, "w0.* of worker 7"),
        ({"events": (("w0", events((0, 3, 0, 1), kind="nap")),)}, TraceFormatError, "worker 0 seq 3 .*'nap'"),
        ({"events": (("w0", FILES[0][1].drop_columns(["t_ns"])),)}, MissingColumnError, "t_ns"),
        ({"events": (("w0", FILES[0][1].append_column("x", [[1] * 4])),)}, SchemaError, "unknown column.* x"),
        ({"events": (("w0", FILES[0][1].append_column("peer", [["a"] * 4])),)}, SchemaError, "w0"),
        ({"operators": operators(1, 1)}, TraceFormatError, "operator 1 more than once"),
        ({"workers": workers(0, 0)}, TraceFormatError, "worker 0 more than once"),
        ({"workers": workers(0, 1, 2)}, TraceFormatError, "states 2 workers, but .* 3"),
        ({"workers": workers(0, MAX_WORKER + 1)}, TraceFormatError, "from 0 to"),
        ({"workers": workers(0, -1)}, TraceFormatError, "worker -1"),
    ],
)
def test_what_cannot_be_written(
    tmp_path: Path, changes: dict[str, object], error: type[PagGraphError], match: str
) -> None:
    with pytest.raises(error, match=match):
        write(
            tmp_path / "trace",
            **{"files": FILES, **({"files": changes.pop("events")} if "events" in changes else {})},
            **changes,
        )  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def rewrite(trace: Trace, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    file = trace.path / name
    pq.write_table(change(pq.read_table(file)), file)


def set_meta(trace: Trace, **changes: object) -> None:
    file = trace.path / "meta.json"
    content = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in content.items() if value != "absent"}))


def replace_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def test_there_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="no trace at") as caught:
        Trace.open(tmp_path / "nowhere")
    assert caught.value.hint


@pytest.mark.parametrize("name", ["meta.json", "operators.parquet", "channels.parquet", "workers.parquet"])
def test_a_missing_file(trace: Trace, name: str) -> None:
    (trace.path / name).unlink()
    with pytest.raises(TraceFormatError, match=f"has no {name}"):
        Trace.open(trace.path)


def test_missing_events(trace: Trace) -> None:
    for file in trace.files:
        (trace.path / file.name).unlink()
    with pytest.raises(TraceFormatError, match="no events"):
        Trace.open(trace.path)
    (trace.path / "events").rmdir()
    with pytest.raises(TraceFormatError, match="no folder events"):
        Trace.open(trace.path)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"format_version": 2}, "version 2; this release reads version 1"),
        ({"format_version": True}, "version True"),
        ({"format_version": "absent"}, "version None"),
    ],
)
def test_other_versions(trace: Trace, changes: dict[str, object], match: str) -> None:
    set_meta(trace, **changes)
    with pytest.raises(FormatVersionError, match=match):
        Trace.open(trace.path)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"trace_id": 7}, "'trace_id' must be of type str, but is 7"),
        ({"workers": True}, "'workers' must be of type int"),
        ({"prepared": "absent"}, "'prepared' .* is missing"),
        ({"source": {"system": "timely"}}, "'version' .* is missing"),
        ({"dropped": {"shutdown": "a"}}, "'shutdown'"),
        ({"workers": 3}, "states 3 workers"),
    ],
)
def test_bad_meta(trace: Trace, changes: dict[str, object], match: str) -> None:
    set_meta(trace, **changes)
    with pytest.raises(TraceFormatError, match=match):
        Trace.open(trace.path)


@pytest.mark.parametrize(("text", "match"), [("{", "cannot be read as JSON"), ("[]", "holds list")])
def test_meta_that_is_no_json_object(trace: Trace, text: str, match: str) -> None:
    (trace.path / "meta.json").write_text(text)
    with pytest.raises(TraceFormatError, match=match):
        Trace.open(trace.path)


def test_a_store_is_told_from_a_trace(trace: Trace, tmp_path: Path) -> None:
    from pag_graph import api

    api.build(trace.path, tmp_path / "a store", engine="local")
    with pytest.raises(TraceFormatError, match="a store is a store, not a trace") as refused:
        Trace.open(tmp_path / "a store")
    assert refused.value.hint == f"Look into it: `pag info '{tmp_path / 'a store'}'`."
    with pytest.raises(TraceFormatError, match=r"The trace at .* has no meta\.json"):
        Trace.open(tmp_path)


@pytest.mark.parametrize("name", ["events/w0.parquet", "workers.parquet"])
def test_truncated_files(trace: Trace, name: str) -> None:
    file = trace.path / name
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(TraceFormatError, match=f"{name} cannot be read as Parquet"):
        Trace.open(trace.path)


def test_damaged_pages(trace: Trace) -> None:
    file = trace.path / "events/w0.parquet"
    content = bytearray(file.read_bytes())
    content[4:200] = bytes(196)
    file.write_bytes(content)
    opened = Trace.open(trace.path)
    with pytest.raises(TraceFormatError, match=r"w0.parquet cannot be read as Parquet"):
        opened.events()


@pytest.mark.parametrize("name", ["events/w1.parquet", "operators.parquet"])
def test_missing_columns(trace: Trace, name: str) -> None:
    column = "kind" if "events" in name else "address"
    rewrite(trace, name, lambda table: table.drop_columns([column]))
    with pytest.raises(MissingColumnError, match=f"{name} lacks the column\\(s\\) {column}"):
        Trace.open(trace.path)


def test_wrong_types(trace: Trace) -> None:
    rewrite(trace, "events/w1.parquet", lambda table: replace_column(table, "t_ns", table["t_ns"].cast(pa.float64())))
    with pytest.raises(SchemaError, match=r"w1.parquet: the column t_ns is of type double, not int64"):
        Trace.open(trace.path)


def test_other_encodings_of_text_are_fine(trace: Trace) -> None:
    rewrite(
        trace, "events/w0.parquet", lambda table: replace_column(table, "kind", table["kind"].cast(pa.large_string()))
    )
    rewrite(trace, "operators.parquet", lambda table: replace_column(table, "name", table["name"].dictionary_encode()))
    opened = Trace.open(trace.path)
    assert opened.operators.equals(trace.operators)
    assert opened.events().equals(trace.events())


def test_no_statistics(trace: Trace) -> None:
    for file in trace.files:
        table = pq.read_table(trace.path / file.name)
        pq.write_table(table, trace.path / file.name, write_statistics=False)
    opened = Trace.open(trace.path)
    assert opened.files == tuple(replace(file, groups=(None,), numbers=(None,)) for file in trace.files)
    assert TraceLog.index(opened).chunks == TraceLog.index(trace).chunks
    assert opened.events(workers=[1]).equals(trace.events(workers=[1]))


def test_unknown_workers(trace: Trace) -> None:
    rewrite(trace, "workers.parquet", lambda table: table.slice(0, 1))
    set_meta(trace, workers=1)
    with pytest.raises(TraceFormatError, match=r"w1.parquet has events of worker 1, which is not in the table"):
        Trace.open(trace.path)


def test_unknown_kinds(trace: Trace) -> None:
    kinds = pa.array(["start", "start", "nap", "start"])
    rewrite(trace, "events/w0.parquet", lambda table: replace_column(table, "kind", kinds))
    with pytest.raises(TraceFormatError, match=r"w0.parquet: worker 0 seq 2 \(row 2\) has the unknown kind 'nap'"):
        Trace.open(trace.path).events()


def test_missing_values(trace: Trace) -> None:
    times = pa.array([1, None, 2, 3], pa.int64())
    rewrite(trace, "events/w0.parquet", lambda table: replace_column(table, "t_ns", times))
    with pytest.raises(TraceFormatError, match=r"w0.parquet: worker 0 seq 1 \(row 1\) has no value in the column t_ns"):
        Trace.open(trace.path).events()


def test_unknown_columns_cannot_be_read(trace: Trace) -> None:
    with pytest.raises(MissingColumnError, match=r"lacks the column.* colour"):
        trace.events(["colour"])


GOOD = ((0, 0, 0, 1), (0, 1, 0, 1), (0, 3, 1, 2), (1, 0, 0, 0), (1, 7, 5, 0))


def test_an_orderly_log(trace: Trace) -> None:
    assert find_violation(events(*GOOD)) is None
    assert find_violation(events(*GOOD), prepared=True) is None
    assert find_violation(events()) is None
    check_trace(trace)


@pytest.mark.parametrize(
    ("rows", "rule", "worker", "seq", "previous", "text"),
    [
        (((0, 0, 0, 1), (0, 0, 0, 1)), "duplicate_seq", 0, 0, 0, "event seq 0 occurs more than once"),
        (((0, 4, 0, 1), (0, 5, 0, 1), (0, 4, 0, 1)), "duplicate_seq", 0, 4, 5, "more than once"),
        (((0, 4, 0, 1), (0, 3, 0, 0)), "seq_order", 0, 3, 4, "event seq 3 follows event seq 4"),
        (((0, 0, 0, 1), (0, 1, 0, 0), (0, 0, 0, 0)), "clock", 0, 1, 0, "happened 1 ns before event seq 0"),
        (((0, 0, 0, 9), (1, 0, 0, 5), (1, 8, 0, 2)), "clock", 1, 8, 0, "worker 1: event seq 8 happened 3 ns before"),
        (((0, 0, 2, 1), (0, 1, 1, 1)), "epoch", 0, 1, 0, "of epoch 1, but event seq 0 before it is of epoch 2"),
        (((0, 0, 2, 1), (0, 1, 1, 0)), "clock", 0, 1, 0, "1 ns"),
        (((0, -1, 0, 1),), "value", 0, -1, None, "out of range: -1"),
        (((MAX_WORKER + 1, 0, 0, 1),), "value", MAX_WORKER + 1, 0, None, "out of range"),
        (((0, 0, -3, 1),), "value", 0, 0, None, "out of range: -3"),
    ],
)
def test_violations(
    rows: tuple[tuple[int, int, int, int], ...], rule: str, worker: int, seq: int, previous: int | None, text: str
) -> None:
    found = find_violation(events(*rows))
    assert found is not None
    assert (found.rule, found.worker, found.seq, found.previous_seq) == (rule, worker, seq, previous)
    assert text in found.message


def test_the_first_violation_wins() -> None:
    rows = [(0, 0, 0, 5), (0, 1, 0, 5), (1, 0, 1, 9), (1, 1, 0, 9), (1, 2, 0, 1), (1, 2, 0, 1)]
    found = find_violation(events(*rows))
    assert found is not None
    assert (found.rule, found.worker, found.seq) == ("epoch", 1, 1)


def test_numbers_of_prepared_logs_need_only_be_unique() -> None:
    moved = ((0, 0, 0, 1), (0, 2, 0, 1), (0, 1, 0, 1), (1, 1, 0, 0))
    assert find_violation(events(*moved), prepared=True) is None
    found = find_violation(events(*moved, (1, 1, 0, 0), (1, 0, 0, 0)), prepared=True)
    assert found is not None
    assert (found.rule, found.worker, found.seq) == ("duplicate_seq", 1, 1)


def last_events(rows: pa.Table) -> pa.Table:
    """The last row of every worker: what a slice that follows is compared with."""
    last = pl.DataFrame(rows).group_by("worker", maintain_order=True).last()
    return last.select("worker", "seq", "epoch", "t_ns").to_arrow()


@pytest.mark.parametrize("cut", range(len(GOOD) + 1))
def test_slices(cut: int) -> None:
    first, second = events(*GOOD[:cut]), events(*GOOD[cut:])
    assert find_violation(second, previous=last_events(first)) is None


def test_borders_between_slices() -> None:
    previous = last_events(events((0, 0, 0, 9), (0, 1, 0, 9), (1, 0, 0, 5), (3, 0, 0, 4)))
    assert previous.to_pylist() == [
        {"worker": 0, "seq": 1, "epoch": 0, "t_ns": 9},
        {"worker": 1, "seq": 0, "epoch": 0, "t_ns": 5},
        {"worker": 3, "seq": 0, "epoch": 0, "t_ns": 4},
    ]
    later = events((0, 2, 1, 9), (1, 1, 1, 4), (2, 0, 1, 0))
    assert find_violation(later) is None
    found = find_violation(later, previous=previous)
    assert found is not None
    assert (found.rule, found.worker, found.seq, found.previous_seq) == ("clock", 1, 1, 0)


def test_checks_name_file_worker_and_events(tmp_path: Path) -> None:
    files = (*FILES[:1], ("w1", events((1, 0, 0, 100), (1, 1, 0, 93))))
    trace = Trace.open(write(tmp_path / "trace", files))
    expected = "events/w1.parquet: worker 1: event seq 1 happened 7 ns before event seq 0"
    with pytest.raises(TraceFormatError, match=expected) as caught:
        check_events(trace, trace.events())
    assert caught.value.context["worker"] == 1
    with pytest.raises(TraceFormatError, match=expected):
        check_trace(trace)


def test_checksums_that_are_no_file_are_not_taken_for_absent(trace: Trace) -> None:
    (trace.path / "checksums.json").unlink()
    (trace.path / "checksums.json").mkdir()
    with pytest.raises(TraceFormatError, match=r"checksums\.json"):
        Trace.open(trace.path)


def test_inputs_that_changed_are_found(tmp_path: Path) -> None:
    inputs = pa.table({"worker": pa.array([0], pa.int32()), "number": [0], "due_ns": [10], "given_ns": [12]})
    path = write(tmp_path / "trace", inputs=inputs)
    file = path / "inputs/inputs-00000.parquet"
    assert Trace.open(path).findings.num_rows == 0
    content = file.read_bytes()
    for change in (lambda: pq.write_table(read_inputs(path), file), file.unlink):
        change()
        (found,) = Trace.open(path).findings.to_pylist()
        assert (found["finding"], found["file"]) == ("file_changed", "inputs/inputs-00000.parquet")
    file.write_bytes(content)
    (path / "inputs/inputs-00001.parquet").write_bytes(content)
    assert Trace.open(path).findings["file"].to_pylist() == ["inputs/inputs-00001.parquet"]


def test_a_trace_that_is_replaced_is_not_mixed_with_its_successor(tmp_path: Path) -> None:
    from pag_graph.testing.traces import draw

    one, other = draw("0 start 1 | 9 stop 1"), draw("0 start 2 | 5 stop 2 | 7 end")
    one.write(tmp_path / "trace")
    opened = Trace.open(tmp_path / "trace")
    assert opened.events().num_rows == 2
    (tmp_path / "trace").rename(tmp_path / "old")
    other.write(tmp_path / "trace")
    with pytest.raises(TraceFormatError, match="was replaced while it was read"):
        opened.events()
    assert Trace.open(tmp_path / "trace").events().num_rows == 3
    assert pickle.loads(pickle.dumps(Trace.open(tmp_path / "old"))).events().num_rows == 2


def test_a_trace_that_ends_while_it_is_read_is_the_same_trace(tmp_path: Path) -> None:
    from pag_graph.testing.traces import draw

    path = draw("0 start 1 | 9 stop 1").write(tmp_path / "trace", trace_id="one")
    opened, meta = Trace.open(path), json.loads((path / "meta.json").read_text())

    def says(**more: object) -> None:
        (path / "new.json").write_text(json.dumps(meta | more))
        (path / "new.json").replace(path / "meta.json")

    says(complete=True)
    assert opened.events().num_rows == 2
    says(trace_id="another")
    with pytest.raises(TraceFormatError, match="was replaced while it was read"):
        opened.events()


def test_known_files_are_not_opened_again(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = trace_module.inspect

    def inspected(root: Path, name: str, status: os.stat_result | None) -> EventFile:
        opened.append(name)
        return real(root, name, status)

    monkeypatch.setattr(trace_module, "inspect", inspected)
    known = Trace.open(trace.path).files
    opened.clear()
    assert Trace.open(trace.path, known=known).files == known
    assert not opened
    # Another size, or another time of change.
    changed = trace.path / known[0].name
    os.utime(changed, ns=(known[0].mtime_ns + 1, known[0].mtime_ns + 1))
    assert Trace.open(trace.path, known=known).files == known
    assert opened == [known[0].name]
    table = pq.read_table(changed)
    pq.write_table(table.slice(0, table.num_rows - 1), changed)
    assert Trace.open(trace.path, known=known).rows == trace.rows - 1
