"""The rules of SnailTrail 2, kept exact so that both programs' graphs can be compared.

Epochs are islands: nothing leads from one epoch to another, clocks are not aligned, and everything an operator does not
do itself is `busy` or `waiting`. Use it for comparison; the rule set `timely` explains waits.

**Preparation**, unless the trace is marked as prepared, for the rows of one worker and epoch in the order of the log:

1. Starts and stops of scopes go away: those of operators whose address is another operator's address without its last
   part. Kinds that SnailTrail 2 does not know go away too, and so do messages of a worker to itself.
   A stop that says nothing about records gets the sum of what its activation received, local messages included.
2. Data receives move ahead. Going through the rows that are left, a row and the data receive right after it change
   places, and the receive takes the time of the row that it overtakes; both are done with, and the pass goes on behind
   them. A receive is logged inside the activation that reads it, so this puts the (first) message before the start.
   The row that is overtaken can be anything, a receive as well: in a run of receives after a start, the first moves
   ahead of the start, the third ahead of the second, the fifth ahead of the fourth. So not only the first receive after
   a start moves; in two programs of four that were compared, 20 of 117 that moved overtook another receive.

The pass of step 2 starts afresh in every epoch of every worker, because SnailTrail 2 handles each as one batch: the
first row of an epoch cannot be overtaken by a receive of another epoch, nor does it overtake one.

**Local edges** connect each row that is left to the next one of its worker and epoch, down to the last: SnailTrail 2
holds back an edge until it knows the row behind it, but closes the last one when the batch ends, so no edge is missing
at the end of an epoch, and an epoch of one row has none. The first line that fits gives the type:

============  ================  ==========================================================
from          to                type
============  ================  ==========================================================
start         stop              `processing` if the stop states records, else `spinning`
start, stop   start, stop       `busy`
anything      progress receive  `waiting`
anything      progress send     `busy`
progress      anything          `busy`
data message  anything          `processing`
anything      data message      `processing`
============  ================  ==========================================================

SnailTrail 2 refuses start to start and stop to stop, which only logs with nested activations have that step 1 cannot
recognise; here they are `busy`.

**Remote edges** connect a send to its receive in the same epoch: data by channel, sender, receiver and number, progress
by channel, sender and number, from one send to every other worker. Ends that find no partner become findings.

References
----------
.. [1] SnailTrail 2, https://github.com/li1/snailtrail: `st2-timely/src/lib.rs` (preparation), `st2/src/pag.rs` (edges).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numba
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pag_graph.model.enums import ActivityType, EdgeFlags, EventKind, Severity
from pag_graph.model.graph import GraphPart
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_EDGES, PAG_FINDINGS, PAG_VERTICES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MESSAGE_ENDS", "build_part", "build_slice", "message_findings"]

MESSAGE_ENDS = pa.schema(
    [
        pa.field("vertex", pa.int64(), nullable=False),
        pa.field("worker", pa.int32(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("sent", pa.bool_(), nullable=False),
        pa.field("channel", pa.int64()),
        pa.field("sender", pa.int32()),
        pa.field("receiver", pa.int32()),
        pa.field("message_seq", pa.int64()),
        pa.field("found", pa.int64(), nullable=False),
        pa.field("expected", pa.int64(), nullable=False),
    ]
)
"""One row per send or receive that has fewer partners in its own epoch (`found`) than it must have (`expected`).

`receiver` is -1 for progress, which goes to everybody. Grain: one row per vertex."""

_I8 = NDArray[np.int8]
_I32 = NDArray[np.int32]
_I64 = NDArray[np.int64]
_Bool = NDArray[np.bool_]

_ABSENT = -1
_CODES: dict[str, int] = {
    EventKind.START: 0,
    EventKind.STOP: 1,
    EventKind.SEND: 2,
    EventKind.RECEIVE: 3,
    EventKind.PROGRESS_SEND: 4,
    EventKind.PROGRESS_RECEIVE: 5,
}
_START, _STOP, _SEND, _RECEIVE, _PROGRESS_SEND, _PROGRESS_RECEIVE = range(6)
_OTHER = 6
_TYPES = (
    ActivityType.SPINNING,
    ActivityType.PROCESSING,
    ActivityType.BUSY,
    ActivityType.WAITING,
    ActivityType.DATA_MESSAGE,
    ActivityType.PROGRESS_MESSAGE,
)
_SPINNING, _PROCESSING, _BUSY, _WAITING, _DATA_MESSAGE, _PROGRESS_MESSAGE = range(6)
_KEY = ("channel", "sender", "receiver", "message_seq")


def build_part(
    events: pa.Table, *, position_offset: Mapping[int, int], prepared: bool, operators: pa.Table
) -> GraphPart:
    """Build the graph of whole epochs of all workers, as SnailTrail 2 does.

    Parameters
    ----------
    events
        Rows of `TRACE_EVENTS`, a worker's rows together in the order of its log (as `Trace.events` returns them):
        all events of some epochs.
    position_offset
        Per worker: how many rows of its log precede the slice. Names every worker of the trace, because a progress
        message goes to all of them.
    prepared
        Whether rows were removed and moved already.
    operators
        Rows of `TRACE_OPERATORS`; addresses tell which operators are scopes.

    Returns
    -------
    GraphPart
        Vertices in the order of worker and position: `pos` is twice the number of the row in its worker's log, rows
        counted that are dropped; a receive and the row that it overtakes change numbers too. `t_ns` is the worker's own
        clock, except for receives that moved. Segments begin with a worker's first vertex of an epoch and with the
        ends of `waiting` edges.
        Edges: local ones in the order of their ends, then data, then progress messages. `records` is known for what
        ends with a stop and for data messages, `activation` for what leads from a start to its stop, `operator` for
        what begins with a start and does not end with one.
        Findings: see `message_findings`; partners are searched in the slice only.

    Notes
    -----
    Linear in the events, plus hash joins of the messages.
    """
    part, ends = build_slice(events, position_offset=position_offset, prepared=prepared, operators=operators)
    return GraphPart(vertices=part.vertices, edges=part.edges, findings=message_findings(ends), dropped=part.dropped)


def build_slice(
    events: pa.Table, *, position_offset: Mapping[int, int], prepared: bool, operators: pa.Table
) -> tuple[GraphPart, pa.Table]:
    """Build the graph of a slice and leave the judgement of unmatched messages for later.

    Whether a message crosses epochs or lost its other end cannot be told from a slice alone. The ends of all slices,
    concatenated and given to `message_findings`, make the same findings for every way of slicing.

    Parameters
    ----------
    events, position_offset, prepared, operators
        As for `build_part`.

    Returns
    -------
    part
        As `build_part` returns it, without findings.
    ends
        Rows of `MESSAGE_ENDS`.
    """
    rows = _read_rows(events, operators=operators, prepared=prepared)
    order = _keep_order(rows) if prepared else _prepare(*rows.log, rows.kept)
    first_rows = _first_rows(rows.worker)
    workers = rows.worker[first_rows].tolist()
    # What a row's number in the slice lacks to its number in the log of its worker.
    shift = np.array([position_offset.get(worker, 0) for worker in workers], np.int64) - first_rows + 1
    vertices = _vertices(rows.worker, rows.epoch, rows.code, rows.operator, order, first_rows, shift)
    messages, ends = _match(events, rows, order, vertices, workers=len(set(position_offset) | set(workers)))
    part = GraphPart(
        vertices=_vertex_table(rows, order, vertices),
        edges=pa.concat_tables([_local_edge_table(_local_edges(order, vertices)), messages]),
        findings=PAG_FINDINGS.empty_table(),
        dropped=rows.dropped,
    )
    return part, ends


def message_findings(ends: pa.Table) -> pa.Table:
    """Tell messages that cross epochs from messages that lack an end, one row per vertex.

    Parameters
    ----------
    ends
        Rows of `MESSAGE_ENDS`, of all slices whose findings are wanted.

    Returns
    -------
    pa.Table
        Rows of `PAG_FINDINGS`, in the order of `vertex`. `message_across_epochs`: all partners exist; `observed` is the
        lowest epoch among those in other epochs, `limit` the event's own. `send_without_receive` and
        `receive_without_send`: `observed` is the number of partners in any epoch, `limit` how many there must be.

    Notes
    -----
    Hash joins; a message whose channel, other side or number is unknown has no partner.
    """
    frame = pl.DataFrame(ends)

    def partners(*, sent: bool) -> pl.DataFrame:
        return (
            frame.filter(pl.col("sent") == sent).group_by(_KEY).agg(elsewhere=pl.len(), partner=pl.col("epoch").min())
        )

    sides = [
        frame.filter(pl.col("sent") == sent).join(partners(sent=not sent), on=_KEY, how="left")
        for sent in (True, False)
    ]
    seen = pl.col("found") + pl.col("elsewhere").fill_null(0)
    across = seen >= pl.col("expected")

    def choose(if_across: str, if_sent: str, if_received: str) -> pl.Expr:
        one_side = pl.when("sent").then(pl.lit(if_sent)).otherwise(pl.lit(if_received))
        return pl.when(across).then(pl.lit(if_across)).otherwise(one_side)

    found = (
        pl.concat(sides)
        .sort("vertex")
        .select(
            finding=choose("message_across_epochs", "send_without_receive", "receive_without_send"),
            severity=choose(Severity.INFO.value, Severity.WARNING.value, Severity.WARNING.value),
            worker=pl.col("worker"),
            vertex=pl.col("vertex"),
            seq=pl.col("seq"),
            file=pl.lit(None, pl.String),
            observed=pl.when(across).then(pl.col("partner")).otherwise(seen),
            limit=pl.when(across).then(pl.col("epoch")).otherwise(pl.col("expected")),
            unit=choose("epoch", "receives", "sends"),
            action=pl.lit("no edge"),
        )
    )
    return found.to_arrow().cast(PAG_FINDINGS)


class _Rows(NamedTuple):
    """Columns of the events, and which of them become vertices."""

    worker: _I64
    epoch: _I64
    seq: _I64
    t_ns: _I64
    code: _I8
    operator: _I64
    records: _I64
    kinds: pa.DictionaryArray
    kept: _Bool
    dropped: dict[str, int]

    @property
    def log(self) -> tuple[_I64, _I64, _I64, _I8, _I64, _I64]:
        return self.worker, self.epoch, self.t_ns, self.code, self.operator, self.records


class _Order(NamedTuple):
    """Events that become vertices, in the order of their vertices."""

    source: _I64
    """Row of the event."""
    slot: _I64
    """Row whose place it takes; differs where a receive moved."""
    t_ns: _I64
    records: _I64


class _Vertices(NamedTuple):
    """Columns of vertices."""

    id: _I64
    worker: _I32
    pos: _I64
    epoch: _I64
    code: _I8
    first: _Bool
    """Whether the vertex is the first of its worker and epoch."""
    operator: _I64
    segment: _I64


class _LocalEdges(NamedTuple):
    """Columns of local edges."""

    src: _I64
    dst: _I64
    type: _I8
    epoch: _I64
    start_ns: _I64
    duration_ns: _I64
    operator: _I64
    activation: _I64
    records: _I64


def _read_rows(events: pa.Table, *, operators: pa.Table, prepared: bool) -> _Rows:
    kinds = _encoded(events["kind"])
    vocabulary = kinds.dictionary.to_pylist()
    codes = np.array([_CODES.get(name, _OTHER) for name in vocabulary], np.int8)
    index = kinds.indices.to_numpy(zero_copy_only=False)
    code = codes[index]
    worker, operator, peer = (_integers(events, name) for name in ("worker", "operator", "peer"))

    own = peer == worker
    dropped: dict[str, int] = {}
    unknown = code == _OTHER
    for number, count in enumerate(np.bincount(index[unknown], minlength=len(vocabulary))):
        if count:
            dropped[vocabulary[number]] = int(count)
    reasons = {
        "local_message": own & ((code == _SEND) | (code == _RECEIVE)),
        "own_progress": own & (code == _PROGRESS_RECEIVE),
    }
    if not prepared:
        reasons["enclosing_scope"] = (code <= _STOP) & np.isin(operator, _scopes(operators))
    kept = ~unknown
    for reason, rows in reasons.items():
        if count := int(np.count_nonzero(rows)):
            dropped[reason] = count
            kept &= ~rows
    return _Rows(
        worker=worker,
        epoch=_integers(events, "epoch"),
        seq=_integers(events, "seq"),
        t_ns=_integers(events, "t_ns"),
        code=code,
        operator=operator,
        records=_integers(events, "records"),
        kinds=kinds,
        kept=kept,
        dropped=dropped,
    )


def _encoded(kinds: pa.ChunkedArray) -> pa.DictionaryArray:
    column = kinds if pa.types.is_dictionary(kinds.type) else kinds.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    return whole if isinstance(whole, pa.DictionaryArray) else whole.chunk(0)


def _integers(events: pa.Table, name: str) -> _I64:
    column = events[name]
    filled = column.fill_null(_ABSENT) if column.null_count else column
    values = np.asarray(filled.to_numpy(), np.int64)
    # Arrow lends some columns and copies others. A kernel is compiled for either, so make them alike.
    values.flags.writeable = False
    return values


def _scopes(operators: pa.Table) -> _I64:
    """Return the ids of operators that contain others."""
    addresses = dict(zip(operators["operator"].to_pylist(), operators["address"].to_pylist(), strict=True))
    # Operators whose address nobody knows are no scopes, though the outermost ones have an empty parent too.
    outer = {address.rpartition(".")[0] for address in addresses.values()} - {""}
    return np.array([operator for operator, address in addresses.items() if address in outer], np.int64)


def _keep_order(rows: _Rows) -> _Order:
    kept = np.flatnonzero(rows.kept)
    return _Order(source=kept, slot=kept, t_ns=rows.t_ns[kept], records=rows.records[kept])


@numba.njit(cache=True)
def _prepare(worker: _I64, epoch: _I64, t_ns: _I64, code: _I8, operator: _I64, records: _I64, kept: _Bool) -> _Order:
    rows = worker.shape[0]
    source = np.empty(rows, np.int64)
    slot = np.empty(rows, np.int64)
    time = np.empty(rows, np.int64)
    size = np.empty(rows, np.int64)
    count = 0
    running, received = _ABSENT, _ABSENT
    # Whether the last row that was kept can still be overtaken.
    waits = False
    for row in range(rows):
        if row == 0 or worker[row] != worker[row - 1] or epoch[row] != epoch[row - 1]:
            running, received = _ABSENT, _ABSENT
            waits = False
        if code[row] == _RECEIVE and records[row] >= 0:
            received = max(received, 0) + records[row]
        if not kept[row]:
            continue
        source[count], slot[count], time[count], size[count] = row, row, t_ns[row], records[row]
        if code[row] == _START:
            running, received = operator[row], _ABSENT
        elif code[row] == _STOP:
            if records[row] < 0 and running == operator[row]:
                size[count] = received
            running, received = _ABSENT, _ABSENT
        if code[row] == _RECEIVE and waits:
            source[count - 1], source[count] = row, source[count - 1]
            time[count] = time[count - 1]
            size[count - 1], size[count] = size[count], size[count - 1]
            waits = False
        else:
            waits = True
        count += 1
    return _Order(source[:count], slot[:count], time[:count], size[:count])


def _first_rows(worker: _I64) -> _I64:
    """Return the rows at which another worker's log begins."""
    changes = np.flatnonzero(worker[1:] != worker[:-1]) + 1
    return np.append(0, changes) if worker.size else changes


@numba.njit(cache=True)
def _vertices(
    worker: _I64, epoch: _I64, code: _I8, operator: _I64, order: _Order, first_rows: _I64, shift: _I64
) -> _Vertices:
    count = order.source.shape[0]
    ids = np.empty(count, np.int64)
    workers = np.empty(count, np.int32)
    positions = np.empty(count, np.int64)
    epochs = np.empty(count, np.int64)
    codes = np.empty(count, np.int8)
    firsts = np.empty(count, np.bool_)
    operators = np.empty(count, np.int64)
    segments = np.empty(count, np.int64)
    log = 0
    for vertex in range(count):
        row, slot = order.source[vertex], order.slot[vertex]
        while log + 1 < first_rows.shape[0] and slot >= first_rows[log + 1]:
            log += 1
        first = vertex == 0 or worker[slot] != workers[vertex - 1] or epoch[slot] != epochs[vertex - 1]
        positions[vertex] = 2 * (slot + shift[log])
        ids[vertex] = worker[slot] << POSITION_BITS | positions[vertex]
        workers[vertex] = worker[slot]
        epochs[vertex] = epoch[slot]
        codes[vertex] = code[row]
        firsts[vertex] = first
        operators[vertex] = operator[row] if code[row] <= _STOP else _ABSENT
        # What leads to a progress receive is waiting: a segment begins behind it.
        begins = first or code[row] == _PROGRESS_RECEIVE
        segments[vertex] = ids[vertex] if begins else segments[vertex - 1]
    return _Vertices(ids, workers, positions, epochs, codes, firsts, operators, segments)


def _vertex_table(rows: _Rows, order: _Order, vertices: _Vertices) -> pa.Table:
    columns = {
        "id": vertices.id,
        "worker": vertices.worker,
        "pos": vertices.pos,
        "seq": rows.seq[order.source],
        "epoch": vertices.epoch,
        "t_ns": order.t_ns,
        "kind": rows.kinds.take(pa.array(order.source)).cast(pa.string()),
        "operator": _nullable(vertices.operator),
        "segment": vertices.segment,
    }
    return pa.table(columns).cast(PAG_VERTICES)


def _local_type_table() -> _I8:
    """Return the type for every pair of codes, as if stops stated records."""
    messages = (_SEND, _RECEIVE)
    types = np.full((_OTHER, _OTHER), _BUSY, np.int8)
    types[messages, :] = _PROCESSING
    types[:, messages] = _PROCESSING
    types[[_PROGRESS_SEND, _PROGRESS_RECEIVE], :] = _BUSY
    types[:, _PROGRESS_SEND] = _BUSY
    types[:, _PROGRESS_RECEIVE] = _WAITING
    types[_START, _STOP] = _PROCESSING
    return types


_LOCAL_TYPES = _local_type_table()


@numba.njit(cache=True)
def _local_edges(order: _Order, vertices: _Vertices) -> _LocalEdges:
    count = vertices.id.shape[0]
    src = np.empty(count, np.int64)
    dst = np.empty(count, np.int64)
    types = np.empty(count, np.int8)
    epochs = np.empty(count, np.int64)
    starts = np.empty(count, np.int64)
    durations = np.empty(count, np.int64)
    operators = np.empty(count, np.int64)
    activations = np.empty(count, np.int64)
    records = np.empty(count, np.int64)
    edges = 0
    for vertex in range(1, count):
        if vertices.first[vertex]:
            continue
        before, after = vertices.code[vertex - 1], vertices.code[vertex]
        activation = before == _START and after == _STOP
        records[edges] = order.records[vertex] if after == _STOP else _ABSENT
        kind = _LOCAL_TYPES[before, after]
        types[edges] = _SPINNING if activation and records[edges] < 0 else kind
        src[edges], dst[edges] = vertices.id[vertex - 1], vertices.id[vertex]
        epochs[edges] = vertices.epoch[vertex]
        starts[edges] = order.t_ns[vertex - 1]
        durations[edges] = order.t_ns[vertex] - order.t_ns[vertex - 1]
        operators[edges] = vertices.operator[vertex - 1] if before == _START and after != _START else _ABSENT
        activations[edges] = vertices.id[vertex - 1] if activation else _ABSENT
        edges += 1
    return _LocalEdges(
        src[:edges],
        dst[:edges],
        types[:edges],
        epochs[:edges],
        starts[:edges],
        durations[:edges],
        operators[:edges],
        activations[:edges],
        records[:edges],
    )


def _local_edge_table(edges: _LocalEdges) -> pa.Table:
    return _edge_table(
        {
            "src": edges.src,
            "dst": edges.dst,
            "type": _type_names(edges.type),
            "epoch": edges.epoch,
            "src_epoch": edges.epoch,
            "start_ns": edges.start_ns,
            "duration_ns": edges.duration_ns,
            "operator": _nullable(edges.operator),
            "activation": _nullable(edges.activation),
            "records": _nullable(edges.records),
        }
    )


def _match(
    events: pa.Table, rows: _Rows, order: _Order, vertices: _Vertices, *, workers: int
) -> tuple[pa.Table, pa.Table]:
    """Return the edges of messages, and the ends that are left."""
    at = np.flatnonzero(vertices.code >= _SEND)
    ends = pl.DataFrame(events.select(["channel", "peer", "message_seq", "bytes"]).take(pa.array(order.source[at])))
    is_progress = pl.col("code") >= _PROGRESS_SEND
    sent = (pl.col("code") == _SEND) | (pl.col("code") == _PROGRESS_SEND)
    own = pl.col("worker")
    ends = ends.with_columns(
        vertex=vertices.id[at],
        worker=vertices.worker[at],
        seq=rows.seq[order.source[at]],
        epoch=vertices.epoch[at],
        t_ns=order.t_ns[at],
        records=order.records[at],
        code=vertices.code[at],
    ).with_columns(
        sent=sent,
        sender=pl.when(sent).then(own).otherwise("peer"),
        receiver=pl.when(is_progress).then(pl.lit(-1, pl.Int32)).when(sent).then("peer").otherwise(own),
        expected=pl.when(is_progress & sent).then(pl.lit(workers - 1, pl.Int64)).otherwise(pl.lit(1, pl.Int64)),
    )
    sends, receives = ends.filter("sent"), ends.filter(~pl.col("sent"))
    pairs = receives.join(sends, on=["epoch", *_KEY], how="inner", suffix="_sent", maintain_order="left_right")
    pairs = pl.concat([pairs.filter(~is_progress), pairs.filter(is_progress)])
    counts = pl.concat([pairs["vertex"], pairs["vertex_sent"]]).value_counts(name="found")
    left = (
        ends.join(counts, on="vertex", how="left", maintain_order="left")
        .with_columns(found=pl.col("found").fill_null(0).cast(pl.Int64))
        .filter(pl.col("found") < pl.col("expected"))
    )
    return _message_edges(pairs), left.select(MESSAGE_ENDS.names).to_arrow().cast(MESSAGE_ENDS)


def _message_edges(pairs: pl.DataFrame) -> pa.Table:
    src, dst = pairs["vertex_sent"].to_arrow(), pairs["vertex"].to_arrow()
    start = pairs["t_ns_sent"].to_numpy()
    duration = pairs["t_ns"].to_numpy() - start
    progress = pairs["code"].to_numpy() == _PROGRESS_RECEIVE
    return _edge_table(
        {
            "src": src,
            "dst": dst,
            "type": _type_names(np.where(progress, _PROGRESS_MESSAGE, _DATA_MESSAGE).astype(np.int8)),
            "epoch": pairs["epoch"].to_arrow(),
            "src_epoch": pairs["epoch"].to_arrow(),
            "start_ns": start,
            "duration_ns": duration,
            "channel": pairs["channel"].to_arrow(),
            # Updates in a progress message are no records: SnailTrail 2 does not count them.
            "records": _nullable(np.where(progress, _ABSENT, pairs["records_sent"].to_numpy())),
            "bytes": pairs["bytes_sent"].to_arrow(),
            "read": dst,
            "flags": np.where(duration < 0, EdgeFlags.NEGATIVE, EdgeFlags.NONE).astype(np.int32),
        }
    )


def _edge_table(columns: Mapping[str, object]) -> pa.Table:
    rows = len(columns["src"])  # type: ignore[arg-type]
    zero = pa.array(np.zeros(rows, np.int32))
    # Absent columns share one array of nulls: they cost no memory of their own.
    absent = pa.nulls(rows, pa.int64())
    filled = {column.name: columns.get(column.name, absent if column.nullable else zero) for column in PAG_EDGES}
    return pa.table(filled).cast(PAG_EDGES)


def _type_names(codes: _I8) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([str(name) for name in _TYPES])).cast(pa.string())


def _nullable(values: _I64) -> pa.Array:
    return pa.array(values, mask=values < 0)
