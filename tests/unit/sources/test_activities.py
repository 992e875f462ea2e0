"""Activities written down by hand: what becomes of them, and what a slip of the pen is told."""

from __future__ import annotations

import io
import itertools
import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph import api, sources
from pag_graph.errors import MissingColumnError, TraceFormatError
from pag_graph.model.enums import RuleSet
from pag_graph.sources.activities import convert as activities
from pag_graph.sources.activities import values
from pag_graph.sources.activities.event_rows import Converter
from pag_graph.sources.activities.table_columns import TABLES, Source, schema
from pag_graph.store.order import check_trace
from pag_graph.store.trace import Trace

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def convert(folder: Path, **tables: str) -> Trace:
    source = folder / "log"
    source.mkdir(exist_ok=True)
    for name, text in tables.items():
        (source / f"{name}.csv").write_text(text, encoding="utf-8")
    sources.convert(source, folder / "trace", replace=True)
    trace = Trace.open(folder / "trace")
    check_trace(trace)
    return trace


def rows(trace: Trace, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in trace.events(columns).to_pylist()]


def test_a_message_can_arrive_before_it_is_received(tmp_path: Path) -> None:
    trace = convert(
        tmp_path,
        activities="worker,start,end,activity\na,0,10,io\nb,0,20,io\n",
        messages="from,to,sent,arrived,received\na,b,3,4,9\na,b,5,,9\n",
    )
    reads = [row for row in rows(trace, "kind", "t_ns", "arrived_ns") if row[0] == "receive"]
    assert reads == [("receive", 9, 4), ("receive", 9, None)]


def test_epochs_can_say_when_their_input_was_due(tmp_path: Path) -> None:
    trace = convert(
        tmp_path,
        activities="worker,start,end,activity,epoch\n3,0,4,busy,0\n3,5,9,busy,1\n3,10,30,busy,2\n",
        epochs="epoch,end,due\n0,4,\n1,9,5\n2,30,7\n",
    )
    report = api.latency(trace.path)
    said = report.table.select(["worker", "number", "due_ns", "noticed_ns", "latency_ns"]).to_pylist()
    assert [tuple(row.values()) for row in said] == [(3, 1, 5, 9, 4), (3, 2, 7, 30, 23)]
    assert report.loop == "open"
    # Two within 2 ns: one every 2 ns.
    assert report.curve()[-1]["offered_per_s"] == 0.5e9
    silent = convert(tmp_path, activities="worker,start,end,activity\n3,0,4,busy\n", epochs="epoch,end\n0,4\n")
    with pytest.raises(TraceFormatError, match="does not say when input was due"):
        api.latency(silent.path)


def test_activities_nest_and_messages_end_waits(tmp_path: Path) -> None:
    trace = convert(
        tmp_path,
        activities="worker,start,end,activity,operator\n"
        "a,0,10,processing,map\n"
        "a,2,4,gc,\n"
        "b,0,12,waiting,\n"
        "b,12,20,processing,reduce\n",
        messages="from,to,sent,received,channel,records\na,b,10,12,shuffle,7\n",
    )
    assert rows(trace, "worker", "t_ns", "kind", "activity", "operator", "channel", "peer", "records") == [
        (0, 0, "start", "processing", 0, None, None, None),
        (0, 2, "start", "gc", None, None, None, None),
        (0, 4, "stop", None, None, None, None, None),
        # In one instant the message leaves before its activity ends.
        (0, 10, "send", None, None, 0, 1, 7),
        (0, 10, "stop", None, 0, None, None, None),
        (0, 20, "epoch_end", None, None, None, None, None),
        (1, 0, "start", "waiting", None, None, None, None),
        # And it is read before the wait that it ends is over.
        (1, 12, "receive", None, None, 0, 0, 7),
        (1, 12, "stop", None, None, None, None, None),
        (1, 12, "start", "processing", 1, None, None, None),
        (1, 20, "stop", None, 1, None, None, None),
        (1, 20, "epoch_end", None, None, None, None, None),
    ]
    assert trace.meta.rules is RuleSet.STATED
    assert trace.workers["name"].to_pylist() == ["a", "b"]
    assert trace.operators["name"].to_pylist() == ["map", "reduce"]
    assert trace.channels["type"].to_pylist() == ["shuffle"]
    assert trace.findings.num_rows == 0


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("7", 7),
        ("1.5ms", 1_500_000),
        ("1.5 ms", 1_500_000),
        ("20us", 20_000),
        ("20µs", 20_000),
        ("0.000000001s", 1),
        ("12.3456789019s", 12_345_678_901),
        ("2min", 120_000_000_000),
        ("0.5h", 1_800_000_000_000),
        ("-3ns", -3),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_times_are_exact(tmp_path: Path, written: str, expected: int) -> None:
    trace = convert(tmp_path, activities=f"worker,start,duration,activity\nw,{written},1,busy\n")
    assert trace.events(["t_ns"])["t_ns"].to_pylist()[:2] == [expected, expected + 1]


@given(st.integers(-(2**61), 2**61))
def test_whole_nanoseconds_come_through(value: int) -> None:
    assert values._spelled(pl.Series([str(value)]), None).to_list() == [value]


@given(st.decimals(0, 10**6, places=9, allow_nan=False, allow_infinity=False), st.sampled_from(sorted(values.UNITS)))
def test_units_are_exact_down_to_the_nanosecond(value: Any, unit: str) -> None:
    text = format(value, "f")
    if unit == "ns":
        text = text.split(".")[0]
    expected = int((value if unit != "ns" else int(value)) * values.UNITS[unit])
    assert values._spelled(pl.Series([f"{text}{unit}"]), None).to_list() == [expected]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_every_form_of_a_table_gives_the_same_events(tmp_path: Path, form: str) -> None:
    frame = pl.DataFrame(
        {
            "worker": ["x", "y", "x"],
            "start_us": [0.5, 1, 4],
            "end_us": [3.0, 9, 9],
            "activity": ["Processing", "waiting", "busy"],
            "operator": ["f", None, "f"],
            "epoch": [0, 0, 1],
        }
    )
    sent = pl.DataFrame({"from": ["x"], "to": ["y"], "sent_us": [3], "received_us": [9], "bytes": [10]})
    found = []
    for chosen in ("csv", form):
        folder = tmp_path / chosen
        folder.mkdir(exist_ok=True)
        for name, table in (("activities", frame), ("messages-1", sent)):
            match chosen:
                case "csv":
                    table.write_csv(folder / f"{name}.csv")
                case "jsonl":
                    table.write_ndjson(folder / f"{name}.jsonl")
                case _:
                    table.write_parquet(folder / f"{name}.parquet")
        sources.convert(folder, tmp_path / "trace", replace=True)
        found.append(Trace.open(tmp_path / "trace").events().to_pylist())
    assert found[0] == found[1]
    assert len(found[0]) == 12


def test_one_file_of_json_lines_holds_everything(tmp_path: Path) -> None:
    lines = [
        {"worker": "w", "start": "0ms", "end": "2ms", "activity": "processing", "records": 3},
        {"from": "w", "to": "v", "sent": "2ms", "received": "2.5ms", "type": "spawn"},
        {"worker": "v", "host": "h1", "process": "p"},
        {"worker": "v", "start": "3ms", "end": "4ms", "activity": "io"},
        {"epoch": 0, "end": "4ms"},
    ]
    file = tmp_path / "all.jsonl"
    del lines[1]["received"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert sources.detect_format(file) == "activities"
    sources.convert(file, tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    assert rows(trace, "worker", "t_ns", "kind", "peer") == [
        (0, 3_000_000, "start", None),
        (0, 4_000_000, "stop", None),
        (0, 4_000_000, "epoch_end", None),
        (1, 0, "start", None),
        (1, 2_000_000, "spawn", 0),
        (1, 2_000_000, "stop", None),
        (1, 4_000_000, "epoch_end", None),
    ]
    assert trace.workers["host"].to_pylist() == ["h1", None]


@pytest.mark.parametrize("suffix", ["", "_ms"])
def test_ends_of_epochs_among_json_lines_may_state_units_and_due_times(tmp_path: Path, suffix: str) -> None:
    lines = [
        {"worker": "a", f"start{suffix}": 0, f"end{suffix}": 4, "activity": "busy", "epoch": 0},
        {"epoch": 0, f"end{suffix}": 6, f"due{suffix}": 2},
    ]
    file = tmp_path / "run.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    sources.convert(file, tmp_path / "trace")
    trace, scale = Trace.open(tmp_path / "trace"), 1_000_000 if suffix else 1
    assert ("epoch_end", 6 * scale) in rows(trace, "kind", "t_ns")
    assert api.latency(trace.path).table["due_ns"].to_pylist() == [2 * scale]


@pytest.mark.parametrize("name", ["activities.csv", "activities.jsonl"])
def test_a_mark_of_the_encoding_is_no_part_of_the_first_column(tmp_path: Path, name: str) -> None:
    tables = {
        "activities.csv": "worker,start,end,activity\na,0,4,busy\na,9,5,busy\n",
        "activities.jsonl": '{"worker":"a","start":0,"end":4,"activity":"busy"}\n'
        '{"worker":"a","start":9,"end":5,"activity":"busy"}\n',
    }
    whole, cut = tables[name], tables[name].rpartition("9")[0].rpartition("\n")[0]
    (tmp_path / name).write_text(f"\ufeff{cut}\n", encoding="utf-8")
    sources.convert(tmp_path / name, tmp_path / "trace")
    assert ("start", 0) in rows(Trace.open(tmp_path / "trace"), "kind", "t_ns")
    (tmp_path / name).write_text(f"\ufeff{whole}", encoding="utf-8")
    with pytest.raises(TraceFormatError, match=rf"{name}, line {3 if name.endswith('csv') else 2}: the activity ends"):
        sources.convert(tmp_path / name, tmp_path / "trace", replace=True)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_file_whose_name_is_no_text_is_read(tmp_path: Path, suffix: str) -> None:
    table = pl.DataFrame({"worker": "a", "start": [0, 5], "end": [9, 12], "activity": "busy"})
    written = {
        "csv": table.write_csv().encode(),
        "jsonl": table.write_ndjson().encode(),
        "parquet": _parquet(table),
    }
    # A name of another encoding than UTF-8, as Python has it.
    file = tmp_path / f"activities-l\udce4ufe.{suffix}"
    file.write_bytes(written[suffix])
    sources.convert(file, tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    assert trace.rows > 0
    (finding,) = trace.findings.to_pylist()
    assert finding["file"].startswith(f"activities-l\ufffdufe.{suffix}, ")


def _parquet(table: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    table.write_parquet(content)
    return content.getvalue()


def test_activities_that_overlap_are_cut_and_found(tmp_path: Path) -> None:
    trace = convert(
        tmp_path, activities="# by hand\nworker,start,end,activity\nw,0,10,busy\n\nw,6,15,io\nw,8,9,gc\nv,0,1,busy\n"
    )
    assert rows(trace, "worker", "t_ns", "kind", "activity")[:7] == [
        (0, 0, "start", "busy"),
        (0, 6, "stop", None),
        (0, 6, "start", "io"),
        (0, 8, "start", "gc"),
        (0, 9, "stop", None),
        (0, 15, "stop", None),
        (0, 15, "epoch_end", None),
    ]
    (found,) = trace.findings.to_pylist()
    assert (found["finding"], found["severity"], found["worker"]) == ("activities_overlap", "warning", 0)
    # Lines as an editor counts them, comments and empty ones included.
    assert (found["file"], found["observed"], found["unit"]) == ("activities.csv, line 3", 4, "ns")
    assert "activities.csv, line 5" in found["action"]


_interval = st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30), st.integers(0, 3))


@given(st.lists(_interval, min_size=1, max_size=30))
def test_what_is_stated_covers_the_same_time_however_it_overlaps(stated: list[tuple[int, int, int, int]]) -> None:
    frame = pl.DataFrame(
        [
            {"worker": str(w), "start": min(s, e), "end": max(s, e), "activity": "busy", "epoch": epoch}
            for w, s, e, epoch in stated
        ]
    )
    empty = {name: pl.DataFrame(schema=schema(table)) for name, table in TABLES.items()}
    filled = pl.concat(
        [empty["activities"], frame.with_columns(_file=pl.lit(0, pl.Int64), _row=pl.int_range(pl.len()))],
        how="diagonal",
    )
    # Places of findings are read from the file.
    file = EXAMPLES / "heron" / "heron.jsonl"
    tables = {
        name: Source(frame=filled if name == "activities" else table, files=(file,)) for name, table in empty.items()
    }
    found: list[Any] = []
    events = Converter(tables, found).events()
    covered: dict[int, set[int]] = {}
    for w, s, e, _ in stated:
        covered.setdefault(w, set()).update(range(min(s, e), max(s, e)))
    numbers = {int(name): number for name, number in Converter(tables, []).workers.items()}
    for worker, seconds in covered.items():
        mine = events.filter(pl.col("worker") == numbers[worker])
        depth, inside, last = 0, set(), None
        for kind, t, epoch in mine.select("kind", "t_ns", "epoch").iter_rows():
            if depth:
                inside.update(range(last, t))
            depth += {"start": 1, "stop": -1}.get(kind, 0)
            assert depth >= 0
            last = t
            assert epoch is not None
        assert depth == 0
        assert inside == seconds
        # In order, in time and in epochs; and every epoch is ended exactly once.
        assert mine["t_ns"].is_sorted()
        assert mine["epoch"].is_sorted()
        ended = mine.filter(pl.col("kind") == "epoch_end")["epoch"].to_list()
        assert ended == sorted({epoch for *_, epoch in stated})


def test_epochs_end_with_their_last_activity_or_when_a_worker_goes_on(tmp_path: Path) -> None:
    trace = convert(
        tmp_path,
        activities="worker,start,end,activity,epoch\n"
        "a,0,10,busy,0\n"
        "a,12,30,busy,1\n"
        "b,0,20,busy,0\n"
        "b,20,25,busy,1\n"
        # Whoever states no epoch is in the one that is under way.
        "c,0,40,busy,\n",
    )
    ends = [row for row in rows(trace, "worker", "t_ns", "epoch", "kind") if row[3] == "epoch_end"]
    assert [row[:3] for row in ends] == [(0, 12, 0), (0, 30, 1), (1, 20, 0), (1, 30, 1), (2, 20, 0), (2, 30, 1)]


def test_an_epoch_that_goes_back_is_found(tmp_path: Path) -> None:
    trace = convert(tmp_path, activities="worker,start,end,activity,epoch\nw,0,5,busy,1\nw,5,9,busy,0\n")
    (found,) = trace.findings.to_pylist()
    assert (found["finding"], found["file"]) == ("epoch_goes_back", "activities.csv, line 3")
    assert (found["observed"], found["limit"]) == (0, 1)


def test_stated_epochs_and_exits_are_taken(tmp_path: Path) -> None:
    trace = convert(
        tmp_path,
        activities="worker,start,end,activity,epoch\na,0,10,busy,0\nb,0,3,busy,0\na,20,30,busy,1\n",
        epochs="epoch,end\n0,15\n1,35\n",
        workers="worker,end\na,\nb,5\n",
    )
    kept = [row for row in rows(trace, "worker", "t_ns", "epoch", "kind") if row[3] in {"epoch_end", "exit"}]
    assert kept == [(0, 15, 0, "epoch_end"), (0, 35, 1, "epoch_end"), (1, 5, 0, "exit")]


def test_waits_without_length_alone_are_refused_and_beside_messages_counted(tmp_path: Path) -> None:
    waits = "worker,start,end,activity\na,4,4,waiting\nb,4,4,waiting\n"
    with pytest.raises(TraceFormatError, match="nothing but waits that take no time"):
        convert(tmp_path, activities=waits)
    trace = convert(tmp_path, activities=waits, messages="from,to,sent,received\na,b,1,4\n")
    assert rows(trace, "worker", "kind", "epoch") == [(0, "send", 0), (1, "receive", 0)]
    assert trace.meta.dropped == {"waits that take no time": 2}


@pytest.mark.parametrize("before", ["# said\n\n", "\n# said\n\n\n# again\n", "\n\n"])
def test_a_header_follows_comments_and_empty_lines(tmp_path: Path, before: str) -> None:
    trace = convert(tmp_path, activities=before + "worker,start,end,activity\n\n# more\na,4,9,busy\n")
    assert rows(trace, "kind", "t_ns") == [("start", 4), ("stop", 9), ("epoch_end", 9)]
    with pytest.raises(TraceFormatError, match=rf"activities.csv, line {before.count(chr(10)) + 2}: start is 'x'"):
        convert(tmp_path, activities=before + "worker,start,end,activity\na,x,9,busy\n")


def test_waits_without_length_are_counted(tmp_path: Path) -> None:
    trace = convert(tmp_path, activities="worker,start,end,activity\nw,0,5,busy\nw,5,5,waiting\nw,5,5,io\n")
    assert dict(trace.meta.dropped) == {"waits that take no time": 1}
    assert [row for row in rows(trace, "t_ns", "kind", "activity") if row[0] == 5] == [
        (5, "stop", None),
        (5, "start", "io"),
        (5, "stop", None),
        (5, "epoch_end", None),
    ]


WRONG = {
    "unknown activity": (
        {"activities": "worker,start,end,activity\nw,0,1,procesing\n"},
        r"activities.csv, line 2: 'procesing' is no type of an activity.\n.*Did you mean processing\?",
    ),
    "message types are no activities": (
        {"activities": "worker,start,end,activity\nw,0,1,data_message\n"},
        "line 2: 'data_message' is no type of an activity",
    ),
    "bad time": (
        {"activities": "worker,start,end,activity\nw,0,1,busy\n# note\nw,1 parsec,2,busy\n"},
        "activities.csv, line 4: start is '1 parsec', and must be a time such as 1.5ms",
    ),
    "fractions of a nanosecond": (
        {"activities": "worker,start,end,activity\nw,0.5,2,busy\n"},
        r"line 2: start is '0\.5', and must be",
    ),
    "ends before it starts": (
        {"activities": "worker,start,end,activity\nw,9,2,busy\n"},
        r"line 2: the activity ends \(2 ns\) before it starts \(9 ns\)",
    ),
    "no worker": ({"activities": "worker,start,end,activity\n,1,2,busy\n"}, "line 2: no value for worker"),
    "no end": ({"activities": "worker,start,end,activity\nw,1,,busy\n"}, "line 2: no value for end"),
    "end and duration": (
        {"activities": "worker,start,end,duration,activity\nw,1,2,1,busy\n"},
        "both the columns end and duration",
    ),
    "neither end nor duration": ({"activities": "worker,start,activity\nw,1,busy\n"}, "neither of the columns end"),
    "unknown column": (
        {"activities": "worker,start,end,activity,operater\nw,1,2,busy,x\n"},
        r"unknown column 'operater'.\n.*Did you mean operator\?",
    ),
    "a column twice": ({"activities": "worker,start,start_ms,end,activity\nw,1,1,2,busy\n"}, "the column start twice"),
    "too many values": (
        {"activities": "worker,start,end,activity\nw,1,2,busy\nw,1,2,busy,map,reduce\n"},
        "line 3: 6 values, but the header has 4",
    ),
    "negative records": (
        {"activities": "worker,start,end,activity,records\nw,1,2,busy,-1\n"},
        "records is '-1', and must be a whole number",
    ),
    "nothing in it": ({"activities": "worker,start,end,activity\n"}, "holds no activity"),
    "unknown message type": (
        {"activities": "worker,start,end,activity\nw,1,2,busy\n", "messages": "from,to,sent,type\nw,v,1,date\n"},
        "messages.csv, line 2: 'date' is no type of a message",
    ),
    "two births": (
        {
            "activities": "worker,start,end,activity\nw,1,2,busy\n",
            "messages": "from,to,sent,type\nw,v,1,spawn\nw,v,2,spawn\n",
        },
        "messages.csv, line 2: the worker v is started more than once",
    ),
    "a spawn that is received": (
        {
            "activities": "worker,start,end,activity\nw,1,2,busy\n",
            "messages": "from,to,sent,received,type\nw,v,1,2,spawn\n",
        },
        "a spawn is received at 2 ns",
    ),
    "a message that arrives after it was received": (
        {
            "activities": "worker,start,end,activity\nw,1,9,busy\nv,1,9,busy\n",
            "messages": "from,to,sent,arrived,received\nw,v,1,6,5\n",
        },
        "messages.csv, line 2: a message arrives at 6 ns and is received at 5 ns",
    ),
    "life after the end": (
        {"activities": "worker,start,end,activity\nw,1,9,busy\n", "workers": "worker,end\nv,\nw,5\n"},
        "workers.csv, line 3: the worker w ends at 5 ns, but something happens on it at 9 ns",
    ),
    "a worker twice": (
        {"activities": "worker,start,end,activity\nw,1,9,busy\n", "workers": "worker\nw\nw\n"},
        "the worker w is in this table twice",
    ),
    "epochs out of order": (
        {"activities": "worker,start,end,activity\nw,1,9,busy\n", "epochs": "epoch,end\n0,9\n1,5\n"},
        r"epochs.csv, line 3: epoch 1 ends too early \(5 ns\)",
    ),
    "input due after its epoch": (
        {"activities": "worker,start,end,activity\nw,1,9,busy\n", "epochs": "epoch,end,due\n0,4,\n1,9,10\n"},
        r"epochs.csv, line 3: epoch 1 ends at 9 ns, before its input is due at 10 ns",
    ),
    "a table that is none": (
        {"activities": "worker,start,end,activity\nw,1,9,busy\n", "mesages": "from,to,sent\n"},
        r"none of the tables.*\n.*Call it messages\.csv",
    ),
}


@pytest.mark.parametrize(("tables", "message"), WRONG.values(), ids=WRONG)
def test_slips_of_the_pen_are_named_with_file_and_line(tmp_path: Path, tables: dict[str, str], message: str) -> None:
    with pytest.raises(TraceFormatError, match=message):
        convert(tmp_path, **tables)
    assert not (tmp_path / "trace").exists()


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingColumnError, match=r"messages\.csv lacks the column\(s\) to") as caught:
        convert(tmp_path, activities="worker,start,end,activity\nw,1,9,busy\n", messages="from,sent\nw,3\n")
    assert caught.value.hint == "The table needs from, to, sent; docs/generic.md has examples."


def test_broken_json_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"worker": "w", "start": 0, "end": 2, "activity": "busy"}\n{"worker": \n', encoding="utf-8")
    with pytest.raises(TraceFormatError, match=r"a\.jsonl, line 2: Expecting value"):
        sources.convert(file, tmp_path / "trace")


def test_what_else_lies_about_is_not_taken_for_activities(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert "no column worker" in str(activities.mismatch(tmp_path / "other.csv"))
    assert "without a file activities.csv" in str(activities.mismatch(tmp_path))
    with pytest.raises(TraceFormatError, match="no known format"):
        sources.detect_format(tmp_path / "other.csv")


@pytest.mark.parametrize("example", ["flink", "heron/heron.jsonl", "tensorflow"])
def test_the_examples_of_the_documentation_convert(tmp_path: Path, example: str) -> None:
    assert sources.detect_format(EXAMPLES / example) == "activities"
    sources.convert(EXAMPLES / example, tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    check_trace(trace)
    assert trace.findings.num_rows == 0


ANSWERS = {
    # What docs/generic.md says of each example.
    "flink": [
        [
            ("source-0", "processing", 18),
            ("source-0", "data_message", 2),
            ("window-0", "processing", 75),
            ("window-0", "io", 35),
        ]
    ],
    "heron/heron.jsonl": [
        [
            ("spout-1", "processing", 4),
            ("spout-1", "serialization", 1),
            ("spout-1", "data_message", 0.5),
            ("stmgr-1", "busy", 0.5),
            ("stmgr-1", "data_message", 0.5),
            ("bolt-1", "deserialization", 0.5),
            ("bolt-1", "processing", 4),
            ("bolt-1", "control_message", 0.2),
            ("stmgr-1", "busy", 0.3),
            ("stmgr-1", "control_message", 0.5),
            ("spout-1", "processing", 2),
        ]
    ],
    "tensorflow": [
        [
            ("input", "processing", 0.9),
            ("input", "data_message", 0.05),
            ("python", "processing", 0.05),
            ("gpu", "processing", 0.6),
            ("gpu", "io", 0.08),
            ("gpu", "processing", 0.02),
        ],
        [
            ("input", "processing", 0.8),
            ("input", "data_message", 0.05),
            ("python", "processing", 0.05),
            ("gpu", "processing", 0.55),
            ("gpu", "io", 0.08),
            ("gpu", "processing", 0.02),
        ],
    ],
}


@pytest.mark.parametrize("example", ANSWERS)
def test_the_examples_of_the_documentation_have_the_answers_that_it_states(tmp_path: Path, example: str) -> None:
    sources.convert(EXAMPLES / example, tmp_path / "trace")
    report = api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    assert report.store.run["rules"] == "stated"
    assert report.findings.num_rows == 0
    pag = api.open(tmp_path / "store")
    names = dict(pag.run.scan("workers").select("worker", "name").collect().iter_rows())
    for window, expected in zip(pag.run.windows(), ANSWERS[example], strict=True):
        path = pag.critical_path(epoch=window.epoch).steps.to_pylist()
        steps = [(names[step["worker"]], step["type"], step["duration_ns"]) for step in path if step["duration_ns"]]
        merged = [
            (*key, sum(step[2] for step in group) / 1e6) for key, group in itertools.groupby(steps, key=lambda s: s[:2])
        ]
        assert [(worker, kind, pytest.approx(ms)) for worker, kind, ms in merged] == expected


def test_findings_of_the_reader_come_with_the_store(tmp_path: Path) -> None:
    convert(tmp_path, activities="worker,start,end,activity\nw,0,10,busy\nw,6,15,io\n")
    report = api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    assert report.findings["finding"].to_pylist() == ["activities_overlap"]


def test_a_wait_that_nothing_ended_is_unknown(tmp_path: Path) -> None:
    convert(tmp_path, activities="worker,start,end,activity\nw,0,10,busy\nw,10,15,waiting\nw,15,20,busy\n")
    report = api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    assert report.findings.num_rows == 1
    edges = api.open(tmp_path / "store").edges().filter(pl.col("duration_ns") > 0).sort("start_ns").collect()
    assert edges["type"].to_list() == ["busy", "unknown", "busy"]


def test_a_path_is_a_path_and_no_pattern(tmp_path: Path) -> None:
    for name in ("r1", "r2", "r[12]"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "activities.csv").write_text(f"worker,start,end,activity\nof {name},0,5,busy\n")
    (tmp_path / "x*.csv").write_text("worker,start,end,activity\nstar,0,5,busy\n")
    (tmp_path / "x1.csv").write_text("worker,start,end,activity\nother,0,5,busy\n")
    for source, worker in (("r[12]", "of r[12]"), ("x*.csv", "star")):
        sources.convert(tmp_path / source, tmp_path / "o.trace", replace=True)
        assert Trace.open(tmp_path / "o.trace").workers["name"].to_pylist() == [worker]


def _typed(values: list[Any], kind: Any) -> pl.Series:
    return pl.Series(values, dtype=kind)


FAR = "must be a time such as"


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"start_ms": [2**62], "end_ms": [2**62]}, f"row 0: start_ms is '4611686018427387904', and {FAR}"),
        ({"start_s": [18446744073], "end_s": [18446744074]}, "start_s is '18446744073'"),
        ({"start_h": [0], "end_h": [-1_281_024]}, "end_h is '-1281024'"),
        ({"start": _typed([2**63 + 5], pl.UInt64), "end": [9]}, "start is '9223372036854775813'"),
        ({"start": [0], "end": [2**62]}, "end is '4611686018427387904'"),
        ({"start_ms": [0.0], "end_ms": [float("nan")]}, "end_ms is 'NaN'"),
        ({"start_ms": [0.0], "end_ms": [float("inf")]}, "end_ms is 'inf'"),
        ({"start_s": [0.0], "end_s": [4.7e9]}, "end_s is '4"),
        ({"start": _typed([datetime(2300, 1, 1)], pl.Datetime("ms")), "end": [1]}, "start is '2300-01-01"),  # noqa: DTZ001
        ({"start": [0], "end": _typed([2**61], pl.Int64).cast(pl.Duration("ms"))}, "end is '"),
        ({"start": [0], "duration": ["2300-01-01T00:00:00Z"]}, "duration is '2300-01-01T00:00:00Z'"),
        ({"start": [2**62 - 1], "duration": [1]}, "row 0: the activity ends more than 146 years from zero"),
        ({"start": [[1, 2]], "end": [3]}, r"values of type List\(Int64\) in the column start"),
        ({"start": [0], "end": [3], "operator": [{"a": 1}]}, "values of type Struct.* in the column operator"),
        ({"start": [0], "end": [3], "operator": [b"\xff"]}, "values of type Binary in the column operator"),
        (
            {"start": [0], "end": [3], "records": [2**60]},
            "records is '1152921504606846976', and must be a whole number",
        ),
        ({"start": [0], "end": [3], "epoch": _typed([2**63], pl.UInt64)}, "epoch is '9223372036854775808'"),
        ({"start": [0], "end": [3], "_row": [1]}, "unknown column '_row'"),
        ({"start": [0], "end": [3], "_file": [1]}, "unknown column '_file'"),
    ],
)
def test_values_of_parquet_that_do_not_fit_are_refused(tmp_path: Path, columns: dict[str, Any], problem: str) -> None:
    (tmp_path / "log").mkdir()
    pl.DataFrame({"worker": ["w"], "activity": ["busy"], **columns}).write_parquet(tmp_path / "log/activities.parquet")
    with pytest.raises(TraceFormatError, match=rf"activities\.parquet.*{problem}"):
        sources.convert(tmp_path / "log", tmp_path / "trace")


@pytest.mark.parametrize("kind", [pl.Int64, pl.Int32, pl.UInt64, pl.UInt32, pl.Float64, pl.Float32, pl.Decimal(20, 3)])
def test_times_of_every_type_are_scaled_alike(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "log").mkdir()
    frame = pl.DataFrame({"worker": ["w"], "activity": ["busy"], "start_ms": [0], "end_ms": [3_600_000]})
    frame.with_columns(pl.col("start_ms", "end_ms").cast(kind)).write_parquet(tmp_path / "log/activities.parquet")
    sources.convert(tmp_path / "log", tmp_path / "trace")
    assert Trace.open(tmp_path / "trace").events(["t_ns"])["t_ns"].to_pylist()[-1] == 3_600 * 10**9


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_timestamps_have_units_of_their_own(tmp_path: Path, unit: Any) -> None:
    (tmp_path / "log").mkdir()
    moments = pl.Series([datetime(2000, 1, 1, 0, 0, 1, 2_000)]).cast(pl.Datetime(unit))  # noqa: DTZ001
    lengths = pl.Series([timedelta(milliseconds=7)]).cast(pl.Duration(unit))
    frame = pl.DataFrame({"worker": ["w"], "activity": ["busy"], "start": moments, "duration": lengths})
    frame.write_parquet(tmp_path / "log" / "activities.parquet")
    sources.convert(tmp_path / "log", tmp_path / "trace")
    start = 946_684_801_002_000_000
    times = Trace.open(tmp_path / "trace").events(["t_ns"])["t_ns"].to_pylist()
    assert (times[0], times[-1]) == (start, start + 7_000_000)


GOOD_LINE = '{"worker": "w", "start": 0, "end": 5, "activity": "busy"}'


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[" * 100_000, "nested too deeply"),
        (GOOD_LINE.replace("0", "9" * 5_000), "a number of thousands of digits"),
        (GOOD_LINE.replace('"w"', r'"\ud800"'), "half of a character"),
        (GOOD_LINE.replace('"w"', "NaN"), "NaN"),
        (GOOD_LINE.replace('"end"', '"start"'), "states 'start' twice"),
        (GOOD_LINE.replace('"end"', '"_row"'), "unknown column '_row'"),
    ],
)
def test_lines_that_nobody_can_hold_are_named(tmp_path: Path, line: str, problem: str) -> None:
    (tmp_path / "log.jsonl").write_text(f"{GOOD_LINE}\n{line}\n")
    with pytest.raises(TraceFormatError, match=rf"log\.jsonl.*{problem}"):
        sources.convert(tmp_path / "log.jsonl", tmp_path / "trace")
    # As the first line it must not keep the format from being looked for.
    (tmp_path / "log.jsonl").write_text(f"{line}\n")
    with pytest.raises(TraceFormatError):
        sources.convert(tmp_path / "log.jsonl", tmp_path / "trace")


@pytest.mark.parametrize("name", ["activities-2.csv", "meta-0.json", "events_1_app", "socket"])
def test_pipes_among_logs_are_not_waited_for(tmp_path: Path, name: str) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "activities.csv").write_text("worker,start,end,activity\nw,0,5,busy\n")
    os.mkfifo(tmp_path / "log" / name)
    for source in (tmp_path / "log", tmp_path / "log" / name):
        with pytest.raises(TraceFormatError, match="is a pipe"):
            sources.convert(source, tmp_path / "trace")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_tables_that_do_not_fit_in_memory_are_refused(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({"worker": ["w"] * 9, "start": range(9), "end": range(1, 10), "activity": ["busy"] * 9})
    (tmp_path / "log").mkdir()
    file = tmp_path / "log" / f"activities.{form}"
    {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[form](file)
    sources.convert(tmp_path / "log", tmp_path / "trace")
    monkeypatch.setattr("pag_graph.store.capacity.available_bytes", lambda: 1_000)
    with pytest.raises(TraceFormatError, match=r"log has (9|10) rows, which take about .* GiB of memory"):
        sources.convert(tmp_path / "log", tmp_path / "trace", replace=True)


def test_memory_that_runs_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(activities, "read", full)
    (tmp_path / "activities.csv").write_text("worker,start,end,activity\nw,0,5,busy\n")
    with pytest.raises(TraceFormatError, match="takes more memory to convert than there is"):
        sources.convert(tmp_path / "activities.csv", tmp_path / "trace")


def test_true_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = {"worker": ["a"], "start": [0], "end": [9], "activity": ["busy"], "records": [True]}
    pl.DataFrame(rows).write_parquet(tmp_path / "in" / "activities.parquet")
    with pytest.raises(TraceFormatError, match="records is 'true', and must be a whole number"):
        sources.convert(tmp_path / "in", tmp_path / "trace")
