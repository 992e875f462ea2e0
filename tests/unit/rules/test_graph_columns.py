"""Columns in the order of the store, against a sort of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels import layout
from pag_graph.kernels.assembly import NO_EDGE
from pag_graph.model.enums import ActivityType, EventKind, VertexKind
from pag_graph.model.ids import vertex_id
from pag_graph.model.tables import PAG_EDGES, PAG_VERTICES
from pag_graph.rules.graph_columns import VERTEX_KINDS
from pag_graph.rules.rows import EDGE_CODES, EDGE_TYPES, LABELS, WorkerRows
from pag_graph.rules.worker_graphs import LocalEdges, Messages, WorkerGraph, lay_out
from pag_graph.store.findings import no_findings

STEPS = st.lists(st.integers(0, 2), max_size=12)
"""How far the epoch goes on from vertex to vertex."""


def graph(worker: int, steps: list[int], read_at: list[int]) -> WorkerGraph:
    """A chain of busy edges, the first vertex inserted, and messages that are read at some of the vertices."""
    count = len(steps)
    epoch, order = np.cumsum(np.array(steps, np.int64)), np.arange(1, count + 1)
    none, zero = np.full(count, -1, np.int64), np.zeros(count, np.int8)
    kind = np.full(count, EDGE_CODES[ActivityType.BUSY], np.int8)
    kind[:1] = NO_EDGE
    rows = WorkerRows(
        worker=worker,
        first_order=1,
        starts_run=True,
        ends_log=True,
        ends_run=True,
        seq=order * 10,
        epoch=epoch,
        t=order,
        kind=zero,
        label=np.full(count, LABELS[EventKind.SEND], np.int8),
        operator=none,
        channel=none,
        peer=none,
        message_seq=none,
        records=none,
        bytes=none,
        timeout=none,
        activity=zero,
        inferred=zero,
    )
    numbers = np.full((len(read_at), layout.ALL_NUMBERS), -1, np.int64)
    numbers[:, layout.SRC] = np.arange(len(read_at))
    numbers[:, layout.DST] = numbers[:, layout.READ] = [vertex_id(worker, 2 * (at + 1)) for at in read_at]
    numbers[:, layout.DST_EPOCH] = epoch[read_at] if read_at else []
    for name in (layout.SRC_EPOCH, layout.START, layout.DURATION):
        numbers[:, name] = 3
    row = (order - 1).astype(np.int32)
    if count:
        row[0] = -2
    messages = Messages(
        numbers=numbers,
        kind=np.full(len(read_at), EDGE_CODES[ActivityType.DATA_MESSAGE], np.int8),
        flags=np.tile(np.array([[4, 1]], np.int32), (len(read_at), 1)),
    )
    return WorkerGraph(
        rows=rows,
        operator=np.where(order % 2, order, -1),
        row=row,
        pos=2 * order,
        t=order,
        segment=np.full(count, 2),
        epoch=epoch,
        local=LocalEdges(
            previous=(-1, -1, -1),
            kind=kind,
            operator=none,
            activation=np.where(order % 3, 2 * order, -1),
            records=none,
            flags=zero,
        ),
        messages=messages,
    )


@given(st.lists(st.tuples(STEPS, st.lists(st.integers(0, 11), max_size=6)), min_size=1, max_size=3))
def test_rows_stand_by_epoch_and_place(workers: list[tuple[list[int], list[int]]]) -> None:
    parts = [graph(w, steps, [at for at in reads if at < len(steps)]) for w, (steps, reads) in enumerate(workers)]
    columns = lay_out(parts, findings=no_findings(), dropped={})
    vertices = columns.vertices.table(0, columns.vertices.rows).cast(PAG_VERTICES).to_pylist()
    expected = [
        {
            "id": vertex_id(part.rows.worker, int(pos)),
            "worker": part.rows.worker,
            "pos": int(pos),
            "seq": int(part.rows.seq[at]) if at else None,
            "epoch": int(part.epoch[at]),
            "t_ns": int(part.t[at]),
            "kind": str(EventKind.SEND if at else VertexKind.RUN_START),
            # An inserted vertex has no operator.
            "operator": int(part.operator[at]) if at and part.operator[at] >= 0 else None,
            "segment": vertex_id(part.rows.worker, 2),
        }
        for part in parts
        for at, pos in enumerate(part.pos)
    ]
    assert vertices == sorted(expected, key=lambda row: (row["epoch"], row["id"]))
    edges = columns.edges.table(0, columns.edges.rows).cast(PAG_EDGES).to_pylist()
    made = [_rows(part) for part in parts]
    assert edges == sorted((row for rows in made for row in rows), key=lambda row: (row["epoch"], row["dst"]))
    for table, rows in ((columns.vertices, vertices), (columns.edges, edges)):
        found, epochs = [row["epoch"] for row in rows], table.epochs
        assert {e: found.count(e) for e in found} == dict(zip(epochs.epoch.tolist(), epochs.rows.tolist(), strict=True))
        assert [epochs.before(last) for last in range(-1, 3)] == [
            sum(e <= last for e in found) for last in range(-1, 3)
        ]
        for cut in range(table.rows + 1):
            parts = table.table(0, cut).to_pylist(), table.table(cut, table.rows).to_pylist()
            assert [*parts[0], *parts[1]] == rows


def _rows(part: WorkerGraph) -> list[dict[str, object]]:
    """Local edges, then messages in the order in which they were given: a sort leaves those of one vertex so."""
    worker, local = part.rows.worker, part.local
    blank: dict[str, object] = dict.fromkeys(PAG_EDGES.names)
    rows = [
        {
            **blank,
            "src": vertex_id(worker, int(part.pos[at - 1])),
            "dst": vertex_id(worker, int(part.pos[at])),
            "type": "busy",
            "epoch": int(part.epoch[at]),
            "src_epoch": int(part.epoch[at - 1]),
            "start_ns": int(part.t[at - 1]),
            "duration_ns": 1,
            "activation": vertex_id(worker, int(local.activation[at])) if local.activation[at] >= 0 else None,
            "flags": 0,
            "alternatives": 0,
        }
        for at in range(1, len(part.pos))
    ]
    for numbers in part.messages.numbers.tolist():
        src, dst, epoch = (numbers[place] for place in (layout.SRC, layout.DST, layout.DST_EPOCH))
        message = {"src": src, "dst": dst, "read": dst, "type": "data_message", "epoch": epoch, "src_epoch": 3}
        rows.append({**blank, **message, "start_ns": 3, "duration_ns": 3, "flags": 4, "alternatives": 1})
    return rows


def test_a_fingerprint_tells_rows_and_not_their_order() -> None:
    words = {str(kind): code for code, kind in enumerate((*EDGE_TYPES, *VERTEX_KINDS))}
    one = lay_out([graph(0, [0, 0, 0], [1])], findings=no_findings(), dropped={})
    other = lay_out([graph(0, [0, 0, 0], [2])], findings=no_findings(), dropped={})
    both = lay_out([graph(0, [0, 0, 0], [1]), graph(1, [0, 1], [])], findings=no_findings(), dropped={})
    second = lay_out([graph(1, [0, 1], [])], findings=no_findings(), dropped={})
    for name in ("vertices", "edges"):
        a, b, c, d = (getattr(columns, name) for columns in (one, other, both, second))
        whole = [int(table.fingerprints(words).sum()) for table in (a, b, c, d)]
        assert (whole[0] + whole[3] - whole[2]) % 2**64 == 0
        assert (whole[0] == whole[1]) == (name == "vertices")
        # Of each epoch by itself.
        assert (d.fingerprints(words)[-1:] == c.fingerprints(words)[-1:]).all()


def test_words_come_as_a_dictionary_of_those_that_occur() -> None:
    columns = lay_out([graph(0, [0, 0], [1])], findings=no_findings(), dropped={})
    kinds = columns.edges.table(0, 2)["type"]
    assert pa.types.is_dictionary(kinds.type)
    assert sorted(kinds.chunk(0).dictionary.to_pylist()) == ["busy", "data_message"]
