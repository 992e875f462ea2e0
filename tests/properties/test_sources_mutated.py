"""Mutated inputs of all readers but Spark's: each is a typed error, or is read with every row accounted for.

Tables of CSV, JSON lines and Parquet, logs of SnailTrail 2 and of the prototype's adapter, and the trace that comes of
them: bytes are flipped, files cut off, lines and rows deleted, repeated and swapped, values made extreme, and columns
given other types and names. What can be read is built now and then, and must be built or refused as well. With
``PAG_PROVE=1`` thirty thousand of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph import api, sources
from pag_graph.errors import PagGraphError
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROVE = os.environ.get("PAG_PROVE") == "1"
TRIES = 6_000 if PROVE else 40
BUILT_EACH = 10
LONGEST_S = 60

ACTIVITIES = pl.DataFrame(
    {
        "worker": ["map-0", "map-1", "map-0", "sink", "sink", "map-1", "map-0", "sink"],
        "start_us": [0, 0, 9, 0, 12, 8, 11, 13],
        "end_us": [9, 8, 20, 12, 30, 25, 12, 13],
        "activity": ["processing", "io", "busy", "waiting", "processing", "gc", "serialization", "io"],
        "operator": ["f", None, "f", None, "g", None, "f", "g"],
        "epoch": [0, 0, 1, 0, 0, 1, 1, 0],
        "records": [3, None, 4, None, 7, None, 1, 0],
        "inferred": [None, True, False, None, None, None, None, None],
    }
)
MESSAGES = pl.DataFrame(
    {
        "from": ["map-0", "map-1", "sink"],
        "to": ["sink", "sink", "map-0"],
        "sent_us": [9, 8, 20],
        "received_us": [12, 12, None],
        "type": [None, "control_message", "data_message"],
        "bytes": [100, None, 3],
    }
)
RAW = {
    **dict.fromkeys(("epoch", "seq_no", "length", "ts", "worker"), pl.Int64),
    "kind": pl.String,
    **dict.fromkeys(("id", "is_send", "source", "target", "channel", "msg_seq", "msg_length"), pl.Int64),
    **dict.fromkeys(("addr", "name"), pl.String),
}


def raw_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for worker in (0, 1):
        mine: list[dict[str, Any]] = [
            {"kind": "operates", "epoch": 0, "ts": 0, "id": 1, "addr": "0.1", "name": "Map"},
            {"kind": "operates", "epoch": 0, "ts": 0, "id": 0, "addr": "0", "name": "Dataflow"},
        ]
        for epoch in (1, 2):
            at = epoch * 100
            mine += [
                {"kind": "start", "epoch": epoch, "ts": at, "id": 1},
                {"kind": "message", "epoch": epoch, "ts": at + 3, "is_send": 1, "source": worker, "target": 1 - worker,
                 "channel": 3, "msg_seq": epoch, "msg_length": 5},
                {"kind": "stop", "epoch": epoch, "ts": at + 5, "id": 1},
                {"kind": "progress", "epoch": epoch, "ts": at + 6, "is_send": 1, "source": worker, "channel": 4,
                 "msg_seq": epoch, "addr": "0"},
                {"kind": "progress", "epoch": epoch, "ts": at + 8, "is_send": 0, "source": 1 - worker, "channel": 4,
                 "msg_seq": epoch, "addr": "0"},
                {"kind": "start", "epoch": epoch, "ts": at + 9, "id": 1},
                {"kind": "message", "epoch": epoch, "ts": at + 10, "is_send": 0, "source": 1 - worker,
                 "target": worker, "channel": 3, "msg_seq": epoch, "msg_length": 5},
                {"kind": "stop", "epoch": epoch, "ts": at + 12, "id": 1, "length": 5},
            ]  # fmt: skip
        rows += [{**row, "worker": worker, "seq_no": number} for number, row in enumerate(mine, start=1)]
    return rows


def records_rows() -> list[dict[str, Any]]:
    kinds = {"start": ("Scheduling", "Start"), "stop": ("Scheduling", "End")}
    ends = {"message": "DataMessage", "progress": "ControlMessage"}
    rows = []
    for row in raw_rows():
        if row["kind"] == "operates":
            continue
        sent = row.get("is_send") == 1
        activity, event = kinds.get(row["kind"]) or (ends[row["kind"]], "Sent" if sent else "Received")
        remote = row.get("target") if sent else row.get("source")
        rows.append(
            {
                "seq_no": row["seq_no"], "epoch": row["epoch"], "timestamp": row["ts"], "local_worker": row["worker"],
                "activity_type": activity, "event_type": event, "remote_worker": remote, "operator_id": row.get("id"),
                "channel_id": row.get("channel"), "correlator_id": row.get("msg_seq"), "length": row.get("length"),
            }
        )  # fmt: skip
    return rows


def write_csv(place: Path) -> Path:
    place.mkdir()
    ACTIVITIES.write_csv(place / "activities.csv")
    MESSAGES.write_csv(place / "messages.csv")
    (place / "epochs.csv").write_text("# when\nepoch,end\n0,13us\n1,30us\n")
    return place


def write_lines(place: Path) -> Path:
    file = place.with_suffix(".jsonl")
    rows = [
        *ACTIVITIES.to_dicts(),
        *MESSAGES.to_dicts(),
        *({"worker": name, "host": "h"} for name in ("map-0", "map-1", "sink")),
    ]
    lines = [json.dumps({key: value for key, value in row.items() if value is not None}) for row in rows]
    file.write_text("\n".join(lines) + "\n")
    return file


def write_tables(place: Path) -> Path:
    place.mkdir()
    ACTIVITIES.write_parquet(place / "activities.parquet")
    MESSAGES.write_parquet(place / "messages.parquet")
    return place


def write_raw(place: Path) -> Path:
    file = place.with_suffix(".parquet")
    pl.DataFrame(raw_rows(), schema=RAW).write_parquet(file)
    return file


def write_records(place: Path) -> Path:
    file = place.with_suffix(".parquet")
    texts = ("activity_type", "event_type")
    schema = {name: pl.String if name in texts else pl.Int64 for name in records_rows()[0]}
    pl.DataFrame(records_rows(), schema=schema).write_parquet(file)
    return file


def write_prototype(place: Path) -> Path:
    place.mkdir()
    columns = ("epoch", "t", "kind", "id", "src", "dst", "seq", "n")
    for worker in (0, 1):
        other = 1 - worker
        rows = [
            (0, 1, 0, 1, None, None, None, None), (0, 2, 2, 7, worker, other, 1, 5),
            (0, 3, 1, 1, None, None, None, None),
            (0, 4, 6, None, None, None, None, -1), (0, 9, 7, None, None, None, None, None),
            (0, 10, 3, 7, other, worker, 1, 5), (0, 11, 9, 1, None, None, None, None),
            (0, 12, 8, None, None, None, None, 0),
        ]  # fmt: skip
        frame = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.Int64), orient="row")
        frame.write_parquet(place / f"events-{worker}.parquet")
        (place / f"operators-{worker}.csv").write_text(f'worker,id,addr,name\n{worker},1,"0.1",Map\n')
        (place / f"channels-{worker}.csv").write_text(
            f"worker,id,scope_addr,src_op,src_port,dst_op,dst_port,type\n{worker},7,0,1,0,1,0,u64\n"
        )
        facts = {"worker": worker, "peers": 2, "pid": 5, "clock_zero_unix_ns": 10**18, "timely": "0.31"}
        (place / f"meta-{worker}.json").write_text(json.dumps(facts, indent=1))
    return place


WRITERS: dict[str, Callable[[Path], Path]] = {
    "csv": write_csv,
    "lines": write_lines,
    "tables": write_tables,
    "st2-raw": write_raw,
    "st2-lrs": write_records,
    "timely-prototype": write_prototype,
}
EXTREMES: list[Any] = [
    None, -1, 0, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), float("nan"), float("inf"), -1e300, 0.5, "", "x", "-1",
    "9" * 5_000, "2300-01-01T00:00:00Z", "1e9", True, [1], {"a": 1}, b"\xff", datetime(2300, 1, 1, tzinfo=UTC),
    timedelta(days=300_000), Decimal("1e30"),
]  # fmt: skip
KINDS = [
    pa.float64(), pa.float32(), pa.int8(), pa.uint64(), pa.string(), pa.large_string(), pa.binary(), pa.bool_(),
    pa.timestamp("ms"), pa.timestamp("s", "UTC"), pa.duration("s"), pa.date32(), pa.decimal128(38, 3),
    pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.int64()), pa.null(), pa.time64("us"),
]  # fmt: skip
WORDS = [
    b"null", b"{}", b"[]", b'""', b"true", b"-1", b"1e9", b"99999999999999999999", b"NaN", b'"\\ud800"', b"0.1ms", b",",
    b"\x00", b"\xff", b"9" * 5_000, b"[" * 100_000, b"2300-01-01T00:00:00Z", b"_row", b"\n", b'"', b"#",
]  # fmt: skip


def mutate_bytes(file: Path, chance: random.Random) -> str:
    content = bytearray(file.read_bytes())
    if not content:
        return "empty"
    if chance.randrange(4) == 0:
        kept = chance.randrange(len(content))
        file.write_bytes(bytes(content[:kept]))
        return f"cut at {kept}"
    places = [chance.randrange(len(content)) for _ in range(chance.choice((1, 1, 2, 8)))]
    for place in places:
        content[place] = chance.randrange(256)
    file.write_bytes(bytes(content))
    return f"bytes {places}"


def mutate_lines(file: Path, chance: random.Random) -> str:
    lines = file.read_bytes().split(b"\n")
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    what = chance.choice(("delete", "repeat", "swap", "word", "half"))
    match what:
        case "delete":
            del lines[at]
        case "repeat":
            lines.insert(at, lines[other])
        case "swap":
            lines[at], lines[other] = lines[other], lines[at]
        case "half":
            lines[at] = lines[at][: len(lines[at]) // 2]
        case _:
            values = lines[at].replace(b":", b",").split(b",")
            lines[at] = lines[at].replace(chance.choice(values) or b",", chance.choice(WORDS), 1)
    file.write_bytes(b"\n".join(lines))
    return f"{what} line {at} of {len(lines)}"


def mutate_table(file: Path, chance: random.Random) -> str:
    table = pq.read_table(pa.OSFile(str(file)))
    at, row, other = (chance.randrange(max(n, 1)) for n in (table.num_columns, table.num_rows, table.num_rows))
    name = table.column_names[at]
    what = chance.choice(("value", "value", "value", "type", "delete", "repeat", "swap", "rename", "drop"))
    values = table[name].to_pylist()
    match what:
        case "value":
            values[row] = chance.choice([*EXTREMES, values[other]])
            changed = _column(values, table.schema.field(at).type)
            table = table.set_column(at, name, changed)
        case "type":
            table = table.set_column(at, name, _column(values, chance.choice(KINDS)))
        case "delete":
            table = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
        case "repeat":
            table = pa.concat_tables([table.slice(0, row + 1), table.slice(row)])
        case "swap":
            order = list(range(table.num_rows))
            order[row], order[other] = order[other], order[row]
            table = table.take(order)
        case "rename":
            names = ["_row", "_file", "_index", table.column_names[0], "", "\u00e9"]
            table = table.rename_columns(
                [chance.choice(names) if i == at else n for i, n in enumerate(table.column_names)]
            )
        case _:
            table = table.drop_columns([name])
    pq.write_table(table, file, compression=chance.choice(("zstd", "none")))
    return f"{what} {name} row {row}"


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values as a column of a type if they fit, else of whatever type they have, else as text."""
    for attempt in (lambda: pa.array(values, kind), lambda: pa.array(values).cast(kind), lambda: pa.array(values)):
        try:
            return attempt()
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            continue
    return pa.array([None if value is None else str(value) for value in values])


def mutate(source: Path, chance: random.Random) -> str:
    """Do one to three things to the files of a source, and say what."""
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        file = chance.choice(files)
        ways = [mutate_bytes, mutate_table] if file.suffix == ".parquet" else [mutate_bytes, mutate_lines]
        way = ways[1] if chance.randrange(3) else ways[0]
        try:
            done.append(f"{file.name}: {way(file, chance)}")
        except (pa.ArrowException, OSError, ValueError):
            # What a mutation before left is no table any more.
            done.append(f"{file.name}: {mutate_bytes(file, chance)}")
    return "; ".join(done)


def check_accounted(name: str, source: Path, trace: Trace) -> None:
    """Check that no row of the source is lost: it is an event, or counted."""
    kinds = trace.events(["kind"])["kind"].value_counts().to_pylist()
    counts = {entry["values"]: entry["counts"] for entry in kinds}
    dropped = sum(trace.meta.dropped.values())
    if name.startswith("st2"):
        assert sum(counts.values()) + dropped == pq.read_metadata(source).num_rows
    elif name == "timely-prototype":
        rows = sum(pq.read_metadata(file).num_rows for file in source.glob("events-*.parquet"))
        assert sum(counts.values()) + dropped == rows
    elif name == "tables":
        rows = {file.stem: pq.read_metadata(file).num_rows for file in source.glob("*.parquet")}
        assert counts["start"] + dropped == counts["stop"] + dropped == rows["activities"]
        assert counts.get("send", 0) + counts.get("spawn", 0) == rows["messages"]


def attempt(name: str, source: Path, place: Path, *, build: bool) -> str:
    """Convert, and build if that is asked for; say which typed error came of it, or what was found."""
    trace = place / "trace"
    try:
        sources.convert(source, trace, format=None if name in {"lines", "tables"} else FORMATS.get(name))
        opened = Trace.open(trace)
        check_accounted(name, source, opened)
        if build:
            rules = "st2" if name.startswith("st2") else None
            api.build(trace, place / "store", rules=rules, engine="local", mode="replace")
    except PagGraphError as error:
        return type(error).__name__
    return "finding" if opened.findings.num_rows else "read"


FORMATS = {"csv": "activities", **{name: name for name in ("st2-raw", "st2-lrs", "timely-prototype")}}


@pytest.mark.parametrize("name", WRITERS)
def test_mutated_sources(name: str, tmp_path: Path) -> None:
    original = WRITERS[name](tmp_path / "original")
    intact = tmp_path / "intact"
    intact.mkdir()
    assert attempt(name, original, intact, build=True) == "read"
    outcomes: dict[str, int] = {}
    for number in range(TRIES):
        chance = random.Random(f"{name}-{number}")
        place = tmp_path / "try"
        place.mkdir()
        copy = place / original.name
        (shutil.copytree if original.is_dir() else shutil.copy)(original, copy)
        what = mutate(copy, chance)
        began = time.process_time()
        try:
            outcome = attempt(name, copy, place, build=number % BUILT_EACH == 0)
        except BaseException as error:
            error.add_note(f"{name} {number}: {what}")
            raise
        # No hang: these are a few rows.
        assert time.process_time() - began < LONGEST_S, what
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        shutil.rmtree(place)
    # Both ways out occur, or the test would show nothing.
    assert outcomes.get("TraceFormatError", 0) > TRIES // 10, outcomes
    assert outcomes.get("read", 0) + outcomes.get("finding", 0) > TRIES // 20, outcomes
