from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph.errors import MissingColumnError, TraceFormatError
from pag_graph.sources import convert, detect_format
from pag_graph.store.order import check_trace
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {
    "epoch": pl.UInt32,
    "t": pl.UInt64,
    "kind": pl.UInt8,
    "id": pl.UInt32,
    "src": pl.Int32,
    "dst": pl.Int32,
    "seq": pl.UInt64,
    "n": pl.Int64,
}
LOGS = (
    [
        (0, 10, 11, 8, -1, -1, 0, 0),
        (0, 20, 0, 1, -1, -1, 0, 0),
        (0, 30, 2, 3, 0, 1, 5, 100),
        (0, 40, 1, 1, -1, -1, 0, 0),
        (0, 45, 9, 1, -1, -1, 0, 0),
        (0, 50, 4, 8, 0, 7, 2, 3),
        (0, 60, 6, 0, -1, -1, 0, 250),
        (0, 90, 7, 0, -1, -1, 0, 0),
        (0, 95, 8, 0, -1, -1, 0, 0),
        (1, 99, 6, 0, -1, -1, 0, -1),
    ],
    [
        (0, 5, 5, 8, 0, 7, 2, 3),
        (0, 6, 10, 2, -1, -1, 0, 0),
        (0, 7, 0, 2, -1, -1, 0, 0),
        (0, 8, 3, 3, 0, 1, 5, 100),
        (0, 9, 1, 2, -1, -1, 0, 0),
    ],
)
OPERATORS = 'worker,id,addr,name\n{0},7,0,"Dataflow"\n{0},1,0.1,"Input"\n{0},2,0.2,"Map, then Filter"\n'
CHANNELS = (
    "worker,id,scope_addr,src_op,src_port,dst_op,dst_port,type\n"
    '{0},3,0,1,0,2,0,"alloc::vec::Vec<(u32, u64)>"\n{0},4,0,2,1,0,0,""\n{0},5,0,2,0,9,0,"u8"\n'
)


def write_events(file: Path, rows: list[tuple[int, ...]]) -> None:
    pl.DataFrame(rows, schema=COLUMNS, orient="row").write_parquet(file)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    for worker, rows in enumerate(LOGS):
        write_events(directory / f"events-{worker}.parquet", rows)
        (directory / f"operators-{worker}.csv").write_text(OPERATORS.format(worker))
        (directory / f"channels-{worker}.csv").write_text(CHANNELS.format(worker))
        set_meta(directory, worker)
    return directory


def set_meta(directory: Path, number: int, **changes: object) -> None:
    facts = {"worker": number, "peers": 2, "pid": 500 - number, "clock_zero_unix_ns": 1000 + number, "timely": "0.31.0"}
    (directory / f"meta-{number}.json").write_text(json.dumps({**facts, **changes}))


def test_events(logs: Path, tmp_path: Path) -> None:
    meta = convert(logs, tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    assert detect_format(logs) == "timely-prototype"
    assert trace.meta == meta
    assert meta.dropped == {"shutdown": 1, "communication_channel": 1}
    assert (meta.workers, meta.prepared, meta.aligned, meta.source.version) == (2, False, True, "0.31.0")
    check_trace(trace)
    found = [{key: value for key, value in row.items() if value is not None} for row in trace.events().to_pylist()]
    first, second = ({"worker": worker, "epoch": 0} for worker in (0, 1))
    assert found == [
        {**first, "seq": 1, "t_ns": 20, "kind": "start", "operator": 1},
        {**first, "seq": 2, "t_ns": 30, "kind": "send", "channel": 3, "peer": 1, "message_seq": 5, "records": 100},
        {**first, "seq": 3, "t_ns": 40, "kind": "stop", "operator": 1},
        {
            **first,
            "seq": 5,
            "t_ns": 50,
            "kind": "progress_send",
            "channel": 8,
            "scope": 7,
            "message_seq": 2,
            "records": 3,
        },
        {**first, "seq": 6, "t_ns": 60, "kind": "park", "timeout_ns": 250},
        {**first, "seq": 7, "t_ns": 90, "kind": "unpark"},
        {**first, "seq": 8, "t_ns": 95, "kind": "epoch_end"},
        {**first, "seq": 9, "t_ns": 99, "kind": "park", "epoch": 1},
        {
            **second,
            "seq": 0,
            "t_ns": 5,
            "kind": "progress_receive",
            "channel": 8,
            "scope": 7,
            "peer": 0,
            "message_seq": 2,
            "records": 3,
        },
        {**second, "seq": 1, "t_ns": 6, "kind": "push_progress", "operator": 2},
        {**second, "seq": 2, "t_ns": 7, "kind": "start", "operator": 2},
        {**second, "seq": 3, "t_ns": 8, "kind": "receive", "channel": 3, "peer": 0, "message_seq": 5, "records": 100},
        {**second, "seq": 4, "t_ns": 9, "kind": "stop", "operator": 2},
    ]


def test_small_tables(logs: Path, tmp_path: Path) -> None:
    convert(logs, tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    assert [tuple(row.values()) for row in trace.operators.to_pylist()] == [
        (1, "0.1", "Input"), (2, "0.2", "Map, then Filter"), (7, "0", "Dataflow"),
    ]  # fmt: skip
    assert [tuple(row.values()) for row in trace.channels.to_pylist()] == [
        (3, "0", 1, 0, 2, 0, "alloc::vec::Vec<(u32, u64)>"),
        (4, "0", 2, 1, 7, 0, None),
        (5, "0", 2, 0, None, 0, "u8"),
    ]
    assert [tuple(row.values()) for row in trace.workers.to_pylist()] == [
        (0, 0, None, "0", 1000, None, None, None), (1, 1, None, "1", 1001, None, None, None),
    ]  # fmt: skip


def test_workers_of_one_process_share_a_clock(logs: Path, tmp_path: Path) -> None:
    set_meta(logs, 1, pid=500)
    convert(logs, tmp_path / "trace")
    workers = Trace.open(tmp_path / "trace").workers
    assert workers["process"].to_pylist() == [0, 0]
    assert workers["clock_domain"].to_pylist() == ["0", "0"]


def test_large_logs_make_several_files(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(logs, tmp_path / "whole")
    monkeypatch.setattr("pag_graph.sources.timely_prototype._PART_ROWS", 3)
    convert(logs, tmp_path / "parts")
    whole, parts = Trace.open(tmp_path / "whole"), Trace.open(tmp_path / "parts")
    assert len(parts.files) == 6
    assert parts.events().equals(whole.events())
    assert parts.meta == whole.meta


def test_the_identity_stays_while_the_log_grows(logs: Path, tmp_path: Path) -> None:
    first = convert(logs, tmp_path / "trace")
    write_events(logs / "events-0.parquet", [*LOGS[0], (1, 100, 7, 0, -1, -1, 0, 0)])
    assert convert(logs, tmp_path / "trace", replace=True).trace_id == first.trace_id
    set_meta(logs, 0, pid=501)
    assert convert(logs, tmp_path / "trace", replace=True).trace_id != first.trace_id


@pytest.mark.parametrize("name", ["events-1.parquet", "operators-1.csv", "channels-0.csv", "meta-1.json"])
def test_missing_files(logs: Path, tmp_path: Path, name: str) -> None:
    (logs / name).unlink()
    with pytest.raises(TraceFormatError, match=f"no {name}, though the run had 2 workers"):
        convert(logs, tmp_path / "trace")
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"worker": 0}, r"meta-1.json states that it is of worker 0"),
        ({"peers": 3}, r"meta-1.json states 3 workers, but .*meta-0.json states 2"),
        ({"pid": "a"}, r"meta-1.json: the entry 'pid'"),
    ],
)
def test_meta_files_that_contradict(logs: Path, tmp_path: Path, changes: dict[str, object], match: str) -> None:
    set_meta(logs, 1, **changes)
    with pytest.raises(TraceFormatError, match=match):
        convert(logs, tmp_path / "trace")


def test_a_worker_too_many(logs: Path, tmp_path: Path) -> None:
    set_meta(logs, 2)
    with pytest.raises(TraceFormatError, match=r"meta-2.json is of worker 2, but there are 2"):
        convert(logs, tmp_path / "trace")


def test_workers_that_disagree_on_an_operator(logs: Path, tmp_path: Path) -> None:
    (logs / "operators-1.csv").write_text(OPERATORS.format(1).replace("Input", "Probe"))
    expected = r"operators-1.csv: worker 1 states .*Probe.* for operator 1, but worker 0 states .*Input"
    with pytest.raises(TraceFormatError, match=expected):
        convert(logs, tmp_path / "trace")


def test_operators_that_only_one_worker_has(logs: Path, tmp_path: Path) -> None:
    (logs / "operators-1.csv").write_text(OPERATORS.format(1) + '1,9,1,"Dataflow"\n')
    convert(logs, tmp_path / "trace")
    assert Trace.open(tmp_path / "trace").operators["operator"].to_pylist() == [1, 2, 7, 9]


def test_workers_that_disagree_on_a_channel(logs: Path, tmp_path: Path) -> None:
    (logs / "channels-1.csv").write_text(CHANNELS.format(1).replace("u8", "u16"))
    with pytest.raises(TraceFormatError, match=r"channels-1.csv: worker 1 .*u16.* channel 5, but worker 0 .*u8"):
        convert(logs, tmp_path / "trace")


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ((0, 99, 12, 0, -1, -1, 0, 0), r"events-1.parquet, row 5: unknown kind 12"),
        ((0, 99, 3, 3, 0, 0, 6, 1), r"events-1.parquet, row 5: a message from 0 to 0 in the log of worker 1"),
        ((0, 99, 2, 3, 0, 1, 6, 1), r"row 5: a message from 0 to 1 in the log of worker 1"),
        ((1, 99, 8, 0, -1, -1, 0, 0), r"row 5: worker 1 ends epoch 0 while it is in epoch 1"),
    ],
)
def test_rows_that_contradict(logs: Path, tmp_path: Path, row: tuple[int, ...], match: str) -> None:
    write_events(logs / "events-1.parquet", [*LOGS[1], row])
    with pytest.raises(TraceFormatError, match=match):
        convert(logs, tmp_path / "trace")


def test_damaged_events(logs: Path, tmp_path: Path) -> None:
    file = logs / "events-1.parquet"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(TraceFormatError, match=r"events-1.parquet cannot be read as Parquet"):
        convert(logs, tmp_path / "trace")
    pl.DataFrame({"kind": [1]}).write_parquet(file)
    with pytest.raises(MissingColumnError, match=r"events-1.parquet lacks"):
        convert(logs, tmp_path / "trace")


def test_no_events(logs: Path, tmp_path: Path) -> None:
    for worker in (0, 1):
        write_events(logs / f"events-{worker}.parquet", [])
    with pytest.raises(TraceFormatError, match="no events"):
        convert(logs, tmp_path / "trace")
