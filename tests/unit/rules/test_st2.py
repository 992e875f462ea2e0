from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph.model.enums import EdgeFlags
from pag_graph.model.ids import vertex_id
from pag_graph.model.tables import PAG_EDGES, PAG_FINDINGS, PAG_VERTICES, TRACE_EVENTS, TRACE_OPERATORS
from pag_graph.rules.st2 import message_findings
from pag_graph.rules.st2_messages import MESSAGE_ENDS
from tests.support.st2_parts import build_part, build_slice

if TYPE_CHECKING:
    from pag_graph.model.graph import GraphPart

PROVE = os.environ.get("PAG_PROVE") == "1"
ADDRESSES = {0: "0", 1: "0.1", 2: "0.2", 3: "0.3", 4: "0.3.1", 10: "1"}
OPERATORS = pa.Table.from_pylist(
    [{"operator": key, "address": address, "name": "Map"} for key, address in ADDRESSES.items()], TRACE_OPERATORS
)


@dataclass(frozen=True)
class Row:
    worker: int
    seq: int
    epoch: int
    t_ns: int
    kind: str
    operator: int | None = None
    channel: int | None = None
    peer: int | None = None
    message_seq: int | None = None
    records: int | None = None
    bytes: int | None = None


def table(rows: list[Row]) -> pa.Table:
    blank = dict.fromkeys(TRACE_EVENTS.names)
    return pa.Table.from_pylist([{**blank, **vars(row)} for row in rows], TRACE_EVENTS)


def build(rows: list[Row], *, workers: int = 2, prepared: bool = False) -> GraphPart:
    return build_part(
        table(rows), position_offset=dict.fromkeys(range(workers), 0), prepared=prepared, operators=OPERATORS
    )


GOLDEN = [
    Row(0, 0, 1, 10, "start", operator=0),
    Row(0, 1, 1, 20, "start", operator=1),
    Row(0, 2, 1, 25, "send", channel=5, peer=1, message_seq=0, records=7, bytes=70),
    Row(0, 3, 1, 40, "stop", operator=1),
    Row(0, 4, 1, 50, "progress_send", channel=8, message_seq=0, records=2),
    Row(0, 5, 1, 60, "stop", operator=0),
    Row(0, 6, 2, 80, "start", operator=1),
    Row(0, 7, 2, 81, "stop", operator=1),
    Row(0, 8, 2, 90, "progress_receive", channel=8, peer=1, message_seq=9),
    Row(0, 9, 2, 95, "start", operator=2),
    Row(1, 0, 1, 5, "start", operator=0),
    Row(1, 1, 1, 8, "progress_receive", channel=8, peer=0, message_seq=0, records=2),
    Row(1, 2, 1, 10, "start", operator=2),
    Row(1, 3, 1, 30, "receive", channel=5, peer=0, message_seq=0, records=7),
    Row(1, 4, 1, 45, "stop", operator=2),
    Row(1, 5, 1, 46, "park"),
    Row(1, 6, 1, 48, "unpark"),
    Row(1, 7, 1, 70, "stop", operator=0),
]


def v(worker: int, order: int) -> int:
    return vertex_id(worker, 2 * order)


def test_golden_vertices() -> None:
    # The receive (row 4 of worker 1) and the start before it (row 3) change places; the receive takes the start's time.
    part = build(GOLDEN)
    assert [tuple(row.values()) for row in part.vertices.to_pylist()] == [
        # id, worker, pos, seq, epoch, t_ns, kind, operator, segment
        (v(0, 2), 0, 4, 1, 1, 20, "start", 1, v(0, 2)),
        (v(0, 3), 0, 6, 2, 1, 25, "send", None, v(0, 2)),
        (v(0, 4), 0, 8, 3, 1, 40, "stop", 1, v(0, 2)),
        (v(0, 5), 0, 10, 4, 1, 50, "progress_send", None, v(0, 2)),
        (v(0, 7), 0, 14, 6, 2, 80, "start", 1, v(0, 7)),
        (v(0, 8), 0, 16, 7, 2, 81, "stop", 1, v(0, 7)),
        (v(0, 9), 0, 18, 8, 2, 90, "progress_receive", None, v(0, 9)),
        (v(0, 10), 0, 20, 9, 2, 95, "start", 2, v(0, 9)),
        (v(1, 2), 1, 4, 1, 1, 8, "progress_receive", None, v(1, 2)),
        (v(1, 3), 1, 6, 3, 1, 10, "receive", None, v(1, 2)),
        (v(1, 4), 1, 8, 2, 1, 10, "start", 2, v(1, 2)),
        (v(1, 5), 1, 10, 4, 1, 45, "stop", 2, v(1, 2)),
    ]
    assert part.dropped == {"enclosing_scope": 4, "park": 1, "unpark": 1}
    assert part.vertices.schema.equals(PAG_VERTICES)


def test_golden_edges() -> None:
    part = build(GOLDEN)
    columns = ["src", "dst", "type", "epoch", "start_ns", "duration_ns", "operator", "activation", "records"]
    assert [tuple(row.values()) for row in part.edges.select(columns).to_pylist()] == [
        (v(0, 2), v(0, 3), "processing", 1, 20, 5, 1, None, None),
        (v(0, 3), v(0, 4), "processing", 1, 25, 15, None, None, None),
        (v(0, 4), v(0, 5), "busy", 1, 40, 10, None, None, None),
        (v(0, 7), v(0, 8), "spinning", 2, 80, 1, 1, v(0, 7), None),
        (v(0, 8), v(0, 9), "waiting", 2, 81, 9, None, None, None),
        (v(0, 9), v(0, 10), "busy", 2, 90, 5, None, None, None),
        (v(1, 2), v(1, 3), "busy", 1, 8, 2, None, None, None),
        (v(1, 3), v(1, 4), "processing", 1, 10, 0, None, None, None),
        (v(1, 4), v(1, 5), "processing", 1, 10, 35, 2, v(1, 4), 7),
        (v(0, 3), v(1, 3), "data_message", 1, 25, -15, None, None, 7),
        (v(0, 5), v(1, 2), "progress_message", 1, 50, -42, None, None, None),
    ]
    assert part.edges.schema.equals(PAG_EDGES)
    assert part.edges["src_epoch"].equals(part.edges["epoch"])
    negative = int(EdgeFlags.NEGATIVE)
    columns = ["channel", "bytes", "read", "flags", "alternatives", "send_buffer_ns", "receive_buffer_ns"]
    assert [tuple(row.values()) for row in part.edges.slice(8).select(columns).to_pylist()] == [
        (None, None, None, 0, 0, None, None),
        (5, 70, v(1, 3), negative, 0, None, None),
        (8, None, v(1, 2), negative, 0, None, None),
    ]


def test_golden_findings() -> None:
    findings = build(GOLDEN).findings
    assert findings.schema.equals(PAG_FINDINGS)
    assert [tuple(row.values()) for row in findings.to_pylist()] == [
        ("receive_without_send", "warning", 0, v(0, 9), 8, None, 0, 1, "sends", "no edge"),
    ]


def test_prepared_rows_stay_as_they_are() -> None:
    part = build(GOLDEN[10:], prepared=True)
    assert part.vertices["seq"].to_pylist() == [0, 1, 2, 3, 4, 7]
    assert part.dropped == {"park": 1, "unpark": 1}
    assert part.edges["type"].to_pylist() == ["waiting", "busy", "processing", "processing", "busy"]
    assert part.edges["records"].null_count == 5


def test_runs_of_receives_move_pairwise() -> None:
    rows = [Row(0, 0, 1, 10, "start", operator=1)]
    rows += [Row(0, n, 1, 10 + n, "receive", channel=5, peer=1, message_seq=n, records=1) for n in (1, 2, 3, 4)]
    rows += [Row(0, 5, 1, 20, "stop", operator=1, records=9)]
    rows += [Row(0, n, 2, 20 + n, "receive", channel=5, peer=1, message_seq=n, records=1) for n in (6, 7, 8)]
    vertices = build(rows).vertices
    assert vertices["seq"].to_pylist() == [1, 0, 3, 2, 4, 5, 7, 6, 8]
    assert vertices["t_ns"].to_pylist() == [10, 10, 12, 12, 14, 20, 26, 26, 28]
    assert vertices["pos"].to_pylist() == [2, 4, 6, 8, 10, 12, 14, 16, 18]


def test_what_lies_between_is_overtaken_too() -> None:
    rows = [
        Row(0, 0, 1, 1, "start", operator=1),
        Row(0, 1, 1, 2, "push_progress", operator=1),
        Row(0, 2, 1, 3, "receive", channel=5, peer=0, message_seq=0, records=4),
        Row(0, 3, 1, 4, "receive", channel=5, peer=1, message_seq=0, records=3),
        Row(0, 4, 1, 5, "stop", operator=1),
    ]
    part = build(rows)
    assert [(row["seq"], row["pos"], row["t_ns"]) for row in part.vertices.to_pylist()] == [
        (3, 2, 1), (0, 8, 1), (4, 10, 5),
    ]  # fmt: skip
    assert part.dropped == {"push_progress": 1, "local_message": 1}
    assert part.edges["records"].to_pylist() == [None, 7]


@pytest.mark.parametrize(
    ("rows", "records"),
    [
        ([("receive", 3)], 3),
        ([("receive", 3), ("receive", None), ("receive", 2)], 5),
        ([("receive", 0)], 0),
        ([("receive", None)], None),
        ([("send", 3)], None),
        ([], None),
    ],
)
def test_records_of_activations(rows: list[tuple[str, int | None]], records: int | None) -> None:
    inner = [
        Row(0, n + 2, 1, n, kind, channel=5, peer=0, message_seq=n, records=count)
        for n, (kind, count) in enumerate(rows)
    ]
    before = Row(0, 0, 1, 0, "receive", channel=5, peer=0, message_seq=99, records=100)
    log = [before, Row(0, 1, 1, 0, "start", operator=1), *inner, Row(0, 99, 1, 99, "stop", operator=1)]
    part = build(log)
    assert part.edges["records"].to_pylist() == [records]
    assert part.edges["type"].to_pylist() == ["spinning" if records is None else "processing"]
    stated = build([*log[:-1], replace(log[-1], records=50)])
    assert stated.edges["records"].to_pylist() == [50]


def test_activations_end_with_their_epoch() -> None:
    rows = [
        Row(0, 0, 1, 0, "start", operator=1),
        Row(0, 1, 1, 1, "receive", channel=5, peer=0, message_seq=0, records=4),
        Row(0, 2, 2, 2, "receive", channel=5, peer=0, message_seq=1, records=4),
        Row(0, 3, 2, 3, "stop", operator=1),
    ]
    assert build(rows).edges.num_rows == 0


def test_nested_activations_that_addresses_do_not_reveal_are_busy() -> None:
    rows = [Row(0, n, 1, n, kind, operator=key) for n, (kind, key) in enumerate(
        [("start", 77), ("start", 78), ("stop", 78), ("stop", 77)]
    )]  # fmt: skip
    assert build(rows).edges["type"].to_pylist() == ["busy", "spinning", "busy"]


def test_addresses_that_nobody_knows_hide_nothing() -> None:
    operators = OPERATORS.set_column(1, TRACE_OPERATORS.field("address"), [[""] * OPERATORS.num_rows])
    rows = table([Row(0, 0, 1, 0, "start", operator=0), Row(0, 1, 1, 1, "stop", operator=0)])
    part = build_part(rows, position_offset={0: 0}, prepared=False, operators=operators)
    assert part.vertices.num_rows == 2


def broadcast(epochs: list[int]) -> list[Row]:
    """Worker 0 sends in epoch 1; the others receive in the given ones."""
    send = Row(0, 0, 1, 5, "progress_send", channel=8, message_seq=3)
    reads = [
        Row(worker, 0, epoch, 6, "progress_receive", channel=8, peer=0, message_seq=3)
        for worker, epoch in enumerate(epochs, start=1)
        if epoch
    ]
    return [send, *reads]


@pytest.mark.parametrize(
    ("epochs", "edges", "found"),
    [
        ([1, 1, 1], 3, []),
        ([1, 2, 1], 2, [("message_across_epochs", 0, 2, 1, "epoch"), ("message_across_epochs", 2, 1, 2, "epoch")]),
        ([1, 0, 1], 2, [("send_without_receive", 0, 2, 3, "receives")]),
        (
            [4, 0, 1],
            1,
            [("send_without_receive", 0, 2, 3, "receives"), ("message_across_epochs", 1, 1, 4, "epoch")],
        ),
    ],
)
def test_broadcasts(epochs: list[int], edges: int, found: list[tuple[object, ...]]) -> None:
    part = build(broadcast(epochs), workers=4)
    assert part.edges.num_rows == edges
    columns = ["finding", "worker", "observed", "limit", "unit"]
    assert [tuple(row.values()) for row in part.findings.select(columns).to_pylist()] == found


def test_messages_without_number_find_no_partner() -> None:
    rows = [
        Row(0, 0, 1, 1, "send", channel=5, peer=1, records=1),
        Row(1, 0, 1, 2, "receive", channel=5, peer=0, records=1),
    ]
    part = build(rows)
    assert part.edges.num_rows == 0
    assert part.findings["finding"].to_pylist() == ["send_without_receive", "receive_without_send"]


@pytest.mark.parametrize("prepared", [True, False])
def test_no_events(*, prepared: bool) -> None:
    part = build([], prepared=prepared)
    assert (part.vertices.num_rows, part.edges.num_rows, part.findings.num_rows, part.dropped) == (0, 0, 0, {})
    assert part.edges.schema.equals(PAG_EDGES)


def test_encoded_and_chunked_columns_give_the_same() -> None:
    rows = table(GOLDEN)
    pieces = [rows.slice(start, 5) for start in range(0, rows.num_rows, 5)]
    kind = rows.column_names.index("kind")
    encoded = pa.concat_tables([piece.set_column(kind, "kind", piece["kind"].dictionary_encode()) for piece in pieces])
    parts = [
        build_part(events, position_offset={0: 0, 1: 0}, prepared=False, operators=OPERATORS)
        for events in (rows, encoded)
    ]
    assert parts[0].vertices.equals(parts[1].vertices)
    assert parts[0].edges.equals(parts[1].edges)


# A second implementation, row by row, close to SnailTrail 2's own text.

SCOPES = {
    operator for operator, address in ADDRESSES.items() if any(a.startswith(address + ".") for a in ADDRESSES.values())
}
KNOWN = {"start", "stop", "send", "receive", "progress_send", "progress_receive"}


def is_dropped(row: Row) -> bool:
    return (
        row.kind not in KNOWN
        or (row.kind in {"start", "stop"} and row.operator in SCOPES)
        or (row.kind in {"send", "receive", "progress_receive"} and row.peer == row.worker)
    )


def with_records(batch: list[Row]) -> list[Row]:
    found = []
    for index, row in enumerate(batch):
        if row.kind == "stop" and row.records is None:
            inside: list[int] = []
            for earlier in reversed(batch[:index]):
                if earlier.kind == "receive" and earlier.records is not None:
                    inside.append(earlier.records)
                if earlier.kind in {"start", "stop"} and not is_dropped(earlier):
                    if (earlier.kind, earlier.operator) == ("start", row.operator) and inside:
                        row = replace(row, records=sum(inside))  # noqa: PLW2901
                    break
        found.append(row)
    return found


def peel_and_move(batch: list[Row]) -> list[Row]:
    left = [row for row in with_records(batch) if not is_dropped(row)]
    made = []
    while left:
        x = left.pop(0)
        if left and left[0].kind == "receive":
            made.append(replace(left.pop(0), t_ns=x.t_ns))
        made.append(x)
    return made


def local_type(prev: Row, record: Row) -> str:
    scheduling, messages = {"start", "stop"}, {"send", "receive"}
    match prev.kind, record.kind:
        case "start", "stop":
            return "spinning" if record.records is None else "processing"
        case p, r if p in scheduling and r in scheduling:
            return "busy"
        case _, "progress_receive":
            return "waiting"
        case p, r if "progress_send" in {p, r} or p == "progress_receive":
            return "busy"
        case p, r if p in messages or r in messages:
            return "processing"
    raise AssertionError


Edge = tuple[object, ...]


def brute_force(
    rows: list[Row], *, workers: int, prepared: bool
) -> tuple[list[tuple[int, Row]], Counter[Edge], Counter[Edge]]:
    batches: dict[tuple[int, int], list[tuple[int, Row]]] = defaultdict(list)
    orders: Counter[int] = Counter()
    for row in rows:
        orders[row.worker] += 1
        batches[row.worker, row.epoch].append((orders[row.worker], row))
    vertices: list[tuple[int, Row]] = []
    edges: Counter[Edge] = Counter()
    for (worker, _), numbered in batches.items():
        batch = [row for _, row in numbered]
        places = [v(worker, order) for order, row in numbered if not (row.kind not in KNOWN or own(row))
                  and (prepared or not is_dropped(row))]  # fmt: skip
        kept = [row for row in batch if row.kind in KNOWN and not own(row)] if prepared else peel_and_move(batch)
        made = list(zip(places, kept, strict=True))
        for (src, a), (dst, b) in pairwise(made):
            operator = a.operator if a.kind == "start" and b.kind != "start" else None
            records = b.records if b.kind == "stop" else None
            edges[src, dst, local_type(a, b), b.t_ns - a.t_ns, operator, records] += 1
        vertices += made
    return vertices, edges + remote(vertices), unmatched(vertices, workers)


def own(row: Row) -> bool:
    return row.kind in {"send", "receive", "progress_receive"} and row.peer == row.worker


def partners(row: Row, other: Row) -> bool:
    if (row.kind, other.kind) == ("send", "receive"):
        ends = (row.worker, row.peer) == (other.peer, other.worker)
    elif (row.kind, other.kind) == ("progress_send", "progress_receive"):
        ends = row.worker == other.peer
    else:
        return False
    return ends and row.message_seq == other.message_seq and row.channel == other.channel


def remote(vertices: list[tuple[int, Row]]) -> Counter[Edge]:
    return Counter(
        (src, dst, "data_message" if a.kind == "send" else "progress_message", b.t_ns - a.t_ns, None,
         a.records if a.kind == "send" else None)
        for src, a in vertices for dst, b in vertices if a.epoch == b.epoch and partners(a, b)
    )  # fmt: skip


def unmatched(vertices: list[tuple[int, Row]], workers: int) -> Counter[Edge]:
    found: Counter[Edge] = Counter()
    incomplete: list[tuple[int, Row, int, int]] = []
    for vertex, row in vertices:
        if row.kind not in {"start", "stop"}:
            expected = workers - 1 if row.kind == "progress_send" else 1
            near = sum(
                1 for _, other in vertices
                if other.epoch == row.epoch and (partners(row, other) or partners(other, row))
            )  # fmt: skip
            if near < expected:
                incomplete.append((vertex, row, near, expected))
    for vertex, row, near, expected in incomplete:
        far = [other.epoch for _, other, _, _ in incomplete if partners(row, other) or partners(other, row)]
        if near + len(far) >= expected:
            found["message_across_epochs", vertex, min(far), row.epoch] += 1
        else:
            name = "send_without_receive" if row.kind.endswith("send") else "receive_without_send"
            found[name, vertex, near + len(far), expected] += 1
    return found


WORKERS = 3
event = st.tuples(
    st.integers(0, 2),  # epochs to advance, halved
    st.integers(0, 3),  # time that passes
    st.sampled_from([*sorted(KNOWN), "receive", "receive", "start", "stop", "park", "push_progress", "epoch_end"]),
    st.sampled_from(sorted(ADDRESSES)),
    st.integers(0, WORKERS - 1),
    st.integers(0, 2),
    st.none() | st.integers(0, 3),
)


@st.composite
def logs(draw: st.DrawFn) -> list[Row]:
    rows = []
    for worker in range(WORKERS):
        epoch = t_ns = 0
        for seq, (advance, passed, kind, operator, peer, number, records) in enumerate(
            draw(st.lists(event, max_size=14))
        ):
            epoch += advance // 2
            t_ns += passed
            row = Row(worker, seq, epoch, t_ns, kind)
            if kind in {"start", "stop", "push_progress"}:
                row = replace(row, operator=operator, records=records if kind == "stop" else None)
            elif kind in KNOWN:
                row = replace(
                    row,
                    channel=5 if kind in {"send", "receive"} else 8,
                    peer=None if kind == "progress_send" else peer,
                    message_seq=number,
                    records=records,
                )
            rows.append(row)
    return rows


def edges_of(part: GraphPart) -> Counter[Edge]:
    columns = ["src", "dst", "type", "duration_ns", "operator", "records"]
    return Counter(pl.DataFrame(part.edges).select(columns).iter_rows())


@settings(max_examples=10_000 if PROVE else 75)
@given(rows=logs(), prepared=st.booleans())
def test_a_plain_implementation_gives_the_same(rows: list[Row], *, prepared: bool) -> None:
    part = build(rows, workers=WORKERS, prepared=prepared)
    vertices, edges, findings = brute_force(rows, workers=WORKERS, prepared=prepared)
    found = pl.DataFrame(part.vertices).select("id", "worker", "seq", "epoch", "t_ns", "kind", "operator")
    assert sorted(found.rows()) == sorted(
        (vertex, row.worker, row.seq, row.epoch, row.t_ns, row.kind, row.operator) for vertex, row in vertices
    )
    assert edges_of(part) == edges
    columns = ["finding", "vertex", "observed", "limit"]
    assert Counter(pl.DataFrame(part.findings).select(columns).iter_rows()) == findings
    assert part.vertices.num_rows + sum(part.dropped.values()) == len(rows)


@settings(max_examples=3_000 if PROVE else 25)
@given(rows=logs(), cuts=st.sets(st.integers(0, 16)))
def test_slices_make_the_whole(rows: list[Row], cuts: set[int]) -> None:
    whole = build(rows, workers=WORKERS)
    borders = [0, *sorted(cuts), 1000]
    parts, ends = [], []
    for first, last in pairwise(borders):
        offsets = {worker: sum(row.worker == worker and row.epoch < first for row in rows) for worker in range(WORKERS)}
        events = table([row for row in rows if first <= row.epoch < last])
        part, left = build_slice(events, position_offset=offsets, prepared=False, operators=OPERATORS)
        assert part.findings.num_rows == 0
        assert left.schema.equals(MESSAGE_ENDS)
        parts.append(part)
        ends.append(left)
    vertices = pa.concat_tables([part.vertices for part in parts]).sort_by("id")
    assert vertices.equals(whole.vertices.sort_by("id"))
    assert sum((edges_of(part) for part in parts), Counter()) == edges_of(whole)
    assert message_findings(pa.concat_tables(ends)).equals(whole.findings)
    assert sum((Counter(part.dropped) for part in parts), Counter()) == whole.dropped


@settings(max_examples=2_000 if PROVE else 25)
@given(rows=logs())
def test_segments(rows: list[Row]) -> None:
    part = build(rows, workers=WORKERS)
    ends_of_waits = set(pl.DataFrame(part.edges).filter(type="waiting")["dst"])
    before: dict[str, object] = {}
    for vertex in part.vertices.to_pylist():
        fresh = not before or any(vertex[name] != before[name] for name in ("worker", "epoch"))
        begins = fresh or vertex["id"] in ends_of_waits
        assert vertex["segment"] == (vertex["id"] if begins else before["segment"])
        before = vertex
