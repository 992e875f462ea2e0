"""A small log of every format that can be converted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from pathlib import Path

_ACTIVITIES = [
    {"worker": 0, "start": 0, "end": 10, "activity": "processing", "operator": "map"},
    {"worker": 0, "start": 2, "end": 6, "activity": "serialization", "operator": "write"},
    {"worker": 0, "start": 12, "end": 30, "activity": "processing", "operator": "reduce, then map"},
    {"worker": 1, "start": 15, "end": 28, "activity": "processing", "operator": "reduce"},
]
_MESSAGES = [
    {"from": 0, "to": 1, "sent": 8, "received": 14, "records": 5, "channel": "shuffle"},
    {"from": 1, "to": 0, "sent": 20, "received": 29, "records": 1, "channel": "back"},
]
_EPOCHS = [{"epoch": 0, "end": 12}, {"epoch": 1, "end": 30}]
_TABLES = {"activities": _ACTIVITIES, "messages": _MESSAGES, "epochs": _EPOCHS}


def activities_csv(folder: Path) -> None:
    """Write activities as CSV."""
    folder.mkdir()
    for name, rows in _TABLES.items():
        pl.DataFrame(rows).write_csv(folder / f"{name}.csv")


def activities_jsonl(folder: Path) -> None:
    """Write activities as JSON lines."""
    folder.mkdir()
    for name, rows in _TABLES.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def activities_parquet(folder: Path) -> None:
    """Write activities as Parquet."""
    folder.mkdir()
    for name, rows in _TABLES.items():
        pl.DataFrame(rows).write_parquet(folder / f"{name}.parquet")


_TIMELY = {
    "epoch": pl.UInt32,
    "t": pl.UInt64,
    "kind": pl.UInt8,
    "id": pl.UInt32,
    "src": pl.Int32,
    "dst": pl.Int32,
    "seq": pl.UInt64,
    "n": pl.Int64,
}
_TIMELY_ROWS = (
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
_OPERATORS = 'worker,id,addr,name\n{0},7,0,"Dataflow"\n{0},1,0.1,"Input"\n{0},2,0.2,"Map, then Filter"\n'
_CHANNELS = (
    "worker,id,scope_addr,src_op,src_port,dst_op,dst_port,type\n"
    '{0},3,0,1,0,2,0,"alloc::vec::Vec<(u32, u64)>"\n{0},4,0,2,1,0,0,""\n{0},5,0,2,0,9,0,"u8"\n'
)


def timely_prototype(folder: Path) -> None:
    """Write a log of the first logger for Timely."""
    folder.mkdir()
    for worker, rows in enumerate(_TIMELY_ROWS):
        pl.DataFrame(rows, schema=_TIMELY, orient="row").write_parquet(folder / f"events-{worker}.parquet")
        (folder / f"operators-{worker}.csv").write_text(_OPERATORS.format(worker))
        (folder / f"channels-{worker}.csv").write_text(_CHANNELS.format(worker))
        facts = {
            "worker": worker,
            "peers": 2,
            "pid": 500 - worker,
            "clock_zero_unix_ns": 1000 + worker,
            "timely": "0.31.0",
        }
        (folder / f"meta-{worker}.json").write_text(json.dumps(facts))


_RAW = {
    **dict.fromkeys(("epoch", "seq_no", "length", "ts", "worker"), pl.Int64),
    "kind": pl.String,
    **dict.fromkeys(("id", "is_send", "source", "target", "channel", "msg_seq", "msg_length"), pl.Int64),
    **dict.fromkeys(("addr", "name"), pl.String),
}
_RAW_ROWS = [
    {"kind": "operates", "epoch": 0, "worker": worker, "seq_no": seq, "ts": 0, "id": number, "addr": addr, "name": name}
    for worker in (0, 1)
    for seq, number, addr, name in ((1, 4, "0.1", "Map"), (2, 0, "0", "Dataflow"))
] + [
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


def st2_raw(folder: Path) -> None:
    """Write a log of SnailTrail 2, as recorded."""
    folder.mkdir()
    rows = [{"epoch": 1, "worker": 0, **row} for row in _RAW_ROWS]
    pl.DataFrame(rows, schema=_RAW).write_parquet(folder / "raw.parquet")


_RECORDS = {
    **dict.fromkeys(("seq_no", "epoch", "timestamp", "local_worker"), pl.Int64),
    **dict.fromkeys(("activity_type", "event_type"), pl.String),
    **dict.fromkeys(
        ("remote_worker", "operator_id", "channel_id", "correlator_id", "length", "start", "end"), pl.Int64
    ),
}
_RECORD_ROWS = [
    (2, 1, "DataMessage", "Received", {"remote_worker": 0, "channel_id": 3, "correlator_id": 6, "length": 9}),
    (1, 1, "Scheduling", "Start", {"operator_id": 4}),
    (8, 0, "ControlMessage", "Sent", {"channel_id": 7, "correlator_id": 1}),
    (3, 1, "Scheduling", "End", {"operator_id": 4, "length": 9}),
    (4, 1, "ControlMessage", "Received", {"remote_worker": 0, "channel_id": 7, "correlator_id": 1}),
    (9, 0, "DataMessage", "Sent", {"remote_worker": 1, "channel_id": 3, "correlator_id": 6, "length": 9}),
]


def st2_records(folder: Path) -> None:
    """Write a log of SnailTrail 2, as it prepares it."""
    folder.mkdir()
    rows = [
        {"seq_no": seq, "epoch": 1, "timestamp": 5, "local_worker": worker, "activity_type": activity,
         "event_type": event, "start": 0, "end": 0, **rest}
        for seq, worker, activity, event, rest in _RECORD_ROWS
    ]  # fmt: skip
    pl.DataFrame(rows, schema=_RECORDS).write_parquet(folder / "lrs.parquet")
