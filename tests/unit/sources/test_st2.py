from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph.errors import SchemaError, TraceFormatError
from pag_graph.sources import convert, detect_format, st2, st2_survey
from pag_graph.store.order import check_trace
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

RAW = {
    **dict.fromkeys(("epoch", "seq_no", "length", "ts", "worker"), pl.Int64),
    "kind": pl.String,
    **dict.fromkeys(("id", "is_send", "source", "target", "channel", "msg_seq", "msg_length"), pl.Int64),
    **dict.fromkeys(("addr", "name"), pl.String),
}
RECORDS = {
    **dict.fromkeys(("seq_no", "epoch", "timestamp", "local_worker"), pl.Int64),
    **dict.fromkeys(("activity_type", "event_type"), pl.String),
    **dict.fromkeys(
        ("remote_worker", "operator_id", "channel_id", "correlator_id", "length", "start", "end"), pl.Int64
    ),
}


def raw(*rows: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame([{"epoch": 1, "worker": 0, **row} for row in rows], schema=RAW)


STRUCTURE = [
    {"kind": "operates", "epoch": 0, "worker": worker, "seq_no": seq, "ts": 0, "id": id_, "addr": addr, "name": name}
    for worker in (0, 1)
    for seq, id_, addr, name in ((1, 4, "0.1", "Map"), (2, 0, "0", "Dataflow"))
]
LOG = [
    {"seq_no": 3, "ts": 10, "kind": "start", "id": 4},
    {"seq_no": 1, "ts": 7, "kind": "progress", "worker": 1, "is_send": 0, "source": 0, "channel": 8, "msg_seq": 2,
     "addr": "0"},
    {"seq_no": 4, "ts": 11, "kind": "message", "is_send": 1, "source": 0, "target": 1, "channel": 3, "msg_seq": 6,
     "msg_length": 9, "length": 9},
    {"seq_no": 6, "ts": 12, "kind": "stop", "id": 4, "length": 20},
    {"seq_no": 7, "ts": 13, "kind": "progress", "is_send": 1, "source": 0, "channel": 8, "msg_seq": 2, "addr": "0.7"},
    {"seq_no": 9, "ts": 14, "kind": "stop", "id": 0},
    {"seq_no": 2, "ts": 7, "kind": "message", "worker": 1, "is_send": 0, "source": 0, "target": 1, "channel": 3,
     "msg_seq": 6, "msg_length": 9, "length": 9},
]  # fmt: skip


def rows_of(trace: Trace) -> list[dict[str, object]]:
    return [{key: value for key, value in row.items() if value is not None} for row in trace.events().to_pylist()]


def test_logs_as_recorded(tmp_path: Path) -> None:
    raw(*STRUCTURE, *LOG).write_parquet(tmp_path / "raw.parquet")
    assert detect_format(tmp_path / "raw.parquet") == "st2-raw"
    meta = convert(tmp_path / "raw.parquet", tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    check_trace(trace)
    assert trace.meta == meta
    assert (meta.workers, meta.prepared, meta.aligned, meta.dropped) == (2, False, False, {"operates": 4})
    first, second = ({"worker": worker, "epoch": 1} for worker in (0, 1))
    assert rows_of(trace) == [
        {**first, "seq": 3, "t_ns": 10, "kind": "start", "operator": 4},
        {**first, "seq": 4, "t_ns": 11, "kind": "send", "channel": 3, "peer": 1, "message_seq": 6, "records": 9},
        {**first, "seq": 6, "t_ns": 12, "kind": "stop", "operator": 4, "records": 20},
        {**first, "seq": 7, "t_ns": 13, "kind": "progress_send", "channel": 8, "message_seq": 2},
        {**first, "seq": 9, "t_ns": 14, "kind": "stop", "operator": 0},
        {
            **second,
            "seq": 1,
            "t_ns": 7,
            "kind": "progress_receive",
            "channel": 8,
            "scope": 0,
            "peer": 0,
            "message_seq": 2,
        },
        {**second, "seq": 2, "t_ns": 7, "kind": "receive", "channel": 3, "peer": 0, "message_seq": 6, "records": 9},
    ]
    assert [tuple(row.values()) for row in trace.operators.to_pylist()] == [(0, "0", "Dataflow"), (4, "0.1", "Map")]
    assert [tuple(row.values()) for row in trace.channels.to_pylist()] == [(3, "", None, None, None, None, None)]
    assert [tuple(row.values()) for row in trace.workers.to_pylist()] == [
        (0, 0, None, "0", 0, None, None, None), (1, 1, None, "1", 0, None, None, None),
    ]  # fmt: skip


def test_the_identity_stays_while_the_log_grows(tmp_path: Path) -> None:
    file = tmp_path / "raw.parquet"
    raw(*STRUCTURE, *LOG).write_parquet(file)
    first = convert(file, tmp_path / "trace")
    raw(*STRUCTURE, *LOG, {"seq_no": 10, "ts": 99, "kind": "start", "id": 0}).write_parquet(file)
    assert convert(file, tmp_path / "trace", replace=True).trace_id == first.trace_id
    raw(*STRUCTURE, *LOG[1:]).write_parquet(file)
    assert convert(file, tmp_path / "trace", replace=True).trace_id != first.trace_id


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ({"kind": "nap"}, "row 4: unknown kind nap"),
        ({"kind": None}, "row 4: unknown kind None"),
        ({"kind": "start"}, "row 4: a start without operator"),
        ({"kind": "start", "id": 4, "worker": 2**31}, "row 4: a worker that is none: 2147483648"),
        ({"kind": "operates", "id": 4, "worker": 2**53 + 1}, "row 4: a worker that is none: 9007199254740993"),
        ({"kind": "stop", "id": 4, "ts": None}, "row 4: no t_ns"),
        (
            {"kind": "message", "is_send": 1, "source": 1, "target": 0, "channel": 3, "msg_seq": 6},
            "row 4: a message from 1 to 0 in the log of worker 0",
        ),
        (
            {"kind": "progress", "is_send": 1, "source": 0, "channel": 3, "addr": "0"},
            "row 4: a progress_send without message_seq",
        ),
    ],
)
def test_rows_that_contradict(tmp_path: Path, row: dict[str, object], match: str) -> None:
    raw(*STRUCTURE, {"seq_no": 3, "ts": 1, **row}).write_parquet(tmp_path / "raw.parquet")
    with pytest.raises(TraceFormatError, match=rf"raw.parquet, {match}"):
        convert(tmp_path / "raw.parquet", tmp_path / "trace")


def test_workers_that_disagree_on_an_operator(tmp_path: Path) -> None:
    other = {**STRUCTURE[2], "name": "Filter"}
    raw(*STRUCTURE[:2], other, *LOG).write_parquet(tmp_path / "raw.parquet")
    expected = r"worker 1 states .*Filter.* for operator 4, but worker 0 states .*Map"
    with pytest.raises(TraceFormatError, match=expected):
        convert(tmp_path / "raw.parquet", tmp_path / "trace")


def record(seq: int, worker: int, activity: str, event: str, **rest: object) -> dict[str, object]:
    return {
        "seq_no": seq, "epoch": 1, "timestamp": 5, "local_worker": worker, "activity_type": activity,
        "event_type": event, "start": 0, "end": 0, **rest,
    }  # fmt: skip


def test_prepared_logs(tmp_path: Path) -> None:
    rows = [
        record(2, 1, "DataMessage", "Received", remote_worker=0, channel_id=3, correlator_id=6, length=9),
        record(1, 1, "Scheduling", "Start", operator_id=4),
        record(8, 0, "ControlMessage", "Sent", channel_id=7, correlator_id=1),
        record(3, 1, "Scheduling", "End", operator_id=4, length=9),
        record(4, 1, "ControlMessage", "Received", remote_worker=0, channel_id=7, correlator_id=1),
        record(9, 0, "DataMessage", "Sent", remote_worker=1, channel_id=3, correlator_id=6, length=9),
    ]
    pl.DataFrame(rows, schema=RECORDS).write_parquet(tmp_path / "lrs.parquet")
    assert detect_format(tmp_path / "lrs.parquet") == "st2-lrs"
    meta = convert(tmp_path / "lrs.parquet", tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    check_trace(trace)
    assert (meta.prepared, meta.aligned, meta.dropped) == (True, False, {})
    first, second = ({"worker": worker, "epoch": 1, "t_ns": 5} for worker in (0, 1))
    assert rows_of(trace) == [
        {**first, "seq": 8, "kind": "progress_send", "channel": 7, "message_seq": 1},
        {**first, "seq": 9, "kind": "send", "channel": 3, "peer": 1, "message_seq": 6, "records": 9},
        {**second, "seq": 2, "kind": "receive", "channel": 3, "peer": 0, "message_seq": 6, "records": 9},
        {**second, "seq": 1, "kind": "start", "operator": 4},
        {**second, "seq": 3, "kind": "stop", "operator": 4, "records": 9},
        {**second, "seq": 4, "kind": "progress_receive", "channel": 7, "peer": 0, "message_seq": 1},
    ]
    assert [tuple(row.values()) for row in trace.operators.to_pylist()] == [(4, "", "")]
    assert trace.channels["channel"].to_pylist() == [3]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (record(1, 0, "Scheduling", "Sent"), "row 0: unknown record Scheduling Sent"),
        (record(1, 0, "Napping", "Start"), "row 0: unknown record Napping Start"),
        (record(1, 0, "Scheduling", "Start"), "row 0: a start without operator"),
        (record(1, 0, "DataMessage", "Sent", channel_id=1, correlator_id=1), "row 0: a send without peer"),
    ],
)
def test_prepared_rows_that_contradict(tmp_path: Path, row: dict[str, object], match: str) -> None:
    pl.DataFrame([row], schema=RECORDS).write_parquet(tmp_path / "lrs.parquet")
    with pytest.raises(TraceFormatError, match=rf"lrs.parquet, {match}"):
        convert(tmp_path / "lrs.parquet", tmp_path / "trace")


@pytest.mark.parametrize("schema", [RAW, RECORDS])
def test_no_events(tmp_path: Path, schema: dict[str, type[pl.DataType]]) -> None:
    pl.DataFrame(schema=schema).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(TraceFormatError, match="no events"):
        convert(tmp_path / "log.parquet", tmp_path / "trace")


def activations(*steps: tuple[str, int], worker: int = 0) -> list[dict[str, object]]:
    return [
        {"seq_no": number, "ts": number, "kind": kind, "id": operator, "worker": worker}
        for number, (kind, operator) in enumerate(steps, start=1)
    ]


WHOLE = activations(
    ("start", 1), ("start", 2), ("stop", 2), ("start", 3), ("stop", 3), ("stop", 1), ("start", 1), ("stop", 1)
)


@pytest.mark.parametrize("pieces", [1, 3, 100])
@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ([], []),
        # Numbers have no gaps, and starts and stops belong together.
        ([1], [("events_missing", None, 1), ("stop_without_start", 3, 1), ("activation_not_stopped", 1, 1)]),
        ([0], [("events_missing", None, 1), ("stop_without_start", 6, 1)]),
        ([3, 4], [("events_missing", None, 2)]),
        ([7], [("activation_not_stopped", 7, 1)]),
    ],
)
def test_what_a_log_lacks_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pieces: int,
    lost: list[int],
    expected: list[tuple[str, int | None, int]],
) -> None:
    monkeypatch.setattr(st2, "_PART_ROWS", pieces)
    monkeypatch.setattr(st2, "_KEPT_ROWS", 3)
    kept = [row for number, row in enumerate(WHOLE) if number not in lost]
    raw(*kept, *activations(("start", 1), ("stop", 1), worker=1)).write_parquet(tmp_path / "raw.parquet")
    convert(tmp_path / "raw.parquet", tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    check_trace(trace)
    assert trace.rows == len(kept) + 2
    told = [(row["finding"], row["seq"], row["observed"]) for row in trace.findings.to_pylist()]
    if lost == [1]:
        # What is lost inside another activation ends that one early: its own stop comes alone.
        assert told[0] == expected[0]
        assert {name for name, _, _ in told[1:]} <= {"stop_without_start", "activation_not_stopped"}
        assert len(told) > 1
    else:
        assert told == expected


def test_prepared_logs_that_lack_ends_of_activations(tmp_path: Path) -> None:
    rows = [
        record(1, 0, "Scheduling", "Start", operator_id=4),
        record(3, 0, "Scheduling", "Start", operator_id=5),
        record(4, 0, "Scheduling", "End", operator_id=5),
        record(5, 0, "Scheduling", "End", operator_id=6),
    ]
    pl.DataFrame(rows, schema=RECORDS).write_parquet(tmp_path / "lrs.parquet")
    convert(tmp_path / "lrs.parquet", tmp_path / "trace")
    (found,) = Trace.open(tmp_path / "trace").findings.to_pylist()
    assert (found["finding"], found["worker"], found["seq"]) == ("stop_without_start", 0, 5)


def test_a_log_gives_the_same_trace_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw(*STRUCTURE, *LOG).write_parquet(tmp_path / "raw.parquet")
    whole = convert(tmp_path / "raw.parquet", tmp_path / "whole")
    monkeypatch.setattr(st2, "_PART_ROWS", 2)
    monkeypatch.setattr(st2, "_KEPT_ROWS", 2)
    for most in (1_000, 0):
        monkeypatch.setattr(st2, "_MOST_FILES", most)
        assert convert(tmp_path / "raw.parquet", tmp_path / "pieces", replace=True) == whole
        one, other = (Trace.open(tmp_path / name) for name in ("whole", "pieces"))
        assert one.events().to_pylist() == other.events().to_pylist()
        assert one.findings == other.findings


@pytest.mark.parametrize("sent", [None, 2])
def test_a_message_says_whether_it_was_sent(tmp_path: Path, sent: int | None) -> None:
    row = {"seq_no": 3, "ts": 1, "kind": "progress", "is_send": sent, "source": 0, "channel": 3, "msg_seq": 1}
    raw(*STRUCTURE, row).write_parquet(tmp_path / "raw.parquet")
    with pytest.raises(TraceFormatError, match="row 4: a message of which is_send is"):
        convert(tmp_path / "raw.parquet", tmp_path / "trace")


def test_numbers_with_gaps_may_be_floats_and_nothing_else(tmp_path: Path) -> None:
    frame = raw(*STRUCTURE, *LOG)
    frame.write_parquet(tmp_path / "raw.parquet")
    expected = convert(tmp_path / "raw.parquet", tmp_path / "trace")
    frame.with_columns(pl.col("target").cast(pl.Float64)).write_parquet(tmp_path / "raw.parquet")
    assert convert(tmp_path / "raw.parquet", tmp_path / "trace", replace=True) == expected
    for kind in (pl.col("ts") + 0.5, pl.col("ts").cast(pl.Datetime("ns")), pl.concat_list("ts")):
        frame.with_columns(ts=kind).write_parquet(tmp_path / "raw.parquet")
        with pytest.raises(SchemaError, match="ts"):
            convert(tmp_path / "raw.parquet", tmp_path / "trace", replace=True)


def test_activations_that_nobody_stops_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_PART_ROWS", 3), ("_KEPT_ROWS", 0)):
        monkeypatch.setattr(st2, name, value)
    monkeypatch.setattr(st2_survey, "_DEEPEST", 2)
    raw(*activations(*[("start", 1)] * 10, ("stop", 1))).write_parquet(tmp_path / "raw.parquet")
    convert(tmp_path / "raw.parquet", tmp_path / "trace")
    (found,) = Trace.open(tmp_path / "trace").findings.to_pylist()
    assert (found["finding"], found["seq"], found["observed"]) == ("activation_not_stopped", 1, 9)
