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

from typing import TYPE_CHECKING, Final, NamedTuple

import numba
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pag_graph.kernels import ABSENT, layout
from pag_graph.kernels.activations import PROGRESS_RECEIVE, PROGRESS_SEND, RECEIVE, SEND, START, STOP
from pag_graph.kernels.assembly import NO_EDGE
from pag_graph.kernels.messages import EVERYONE, index_sends, pair
from pag_graph.model.enums import ActivityType, EdgeFlags, Severity
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_FINDINGS
from pag_graph.rules.graph_columns import GraphColumns, LocalEdges, Messages, WorkerGraph, lay_out
from pag_graph.rules.rows import EDGE_CODES, KINDS, WorkerRows
from pag_graph.runtime.threads import each

if TYPE_CHECKING:
    from collections.abc import Sequence

columns: Final[tuple[str, ...]] = ()
aligned: Final = False
epochs_are_islands: Final = True
states_activities: Final = False
reads_prepared: Final = True
reads_idleness: Final = False
no_place_to_cut: Final = "they are of one epoch"

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

_SPINNING, _PROCESSING, _BUSY, _WAITING, _DATA_MESSAGE, _PROGRESS_MESSAGE = (
    EDGE_CODES[kind]
    for kind in (
        ActivityType.SPINNING,
        ActivityType.PROCESSING,
        ActivityType.BUSY,
        ActivityType.WAITING,
        ActivityType.DATA_MESSAGE,
        ActivityType.PROGRESS_MESSAGE,
    )
)
_OTHER = PROGRESS_RECEIVE + 1
"""Kinds from here on are none that SnailTrail 2 knows."""
_KEY = ("channel", "sender", "receiver", "message_seq")


def build_columns(
    rows: Sequence[WorkerRows], *, workers: int, prepared: bool, operators: pa.Table
) -> tuple[GraphColumns, pa.Table]:
    """Build the graph of whole epochs of all workers, as SnailTrail 2 does.

    Parameters
    ----------
    rows
        Per worker, ascending: all events of some epochs, times on its own clock.
    workers
        How many workers the trace has.
    prepared
        Whether rows were removed and moved already.
    operators
        Rows of `TRACE_OPERATORS`; addresses tell which operators are scopes.

    Returns
    -------
    columns
        Vertices and edges in the order of the store. `pos` is twice the number of the row in its worker's log, rows
        counted that are dropped; a receive and the row that it overtakes change numbers too. `t_ns` is the worker's own
        clock, except for receives that moved. Segments begin with a worker's first vertex of an epoch and with the
        ends of `waiting` edges. `records` is known for what ends with a stop and for data messages, `activation` for
        what leads from a start to its stop, `operator` for what begins with a start and does not end with one.
    ends
        Rows of `MESSAGE_ENDS`: whether a message crosses epochs or lost its other end cannot be told from a slice.
        Those of all slices, concatenated and given to `message_findings`, make the same findings for every slicing.

    Notes
    -----
    Linear in the events, plus hash joins of the messages.
    """
    # A prepared log has no scopes.
    scopes = np.sort(_scopes(operators.slice(0, 0) if prepared else operators))

    def chained(log: WorkerRows) -> tuple[_Part, _Ends, _I64]:
        is_kept, counts = _keep(log.kind, log.label, log.peer, log.operator, log.worker, scopes, len(_REASONS))
        if prepared:
            order = _keep_order(log, is_kept)
        else:
            order = _prepare(log.epoch, log.t, log.kind, log.operator, log.records, is_kept)
        chain = _chain(
            order.source,
            order.slot,
            order.records,
            log.kind,
            log.epoch,
            log.operator,
            log.first_order,
            _LOCAL_TYPES,
        )
        part = _Part(log, order, chain)
        return part, _ends_of(part, workers), counts

    parts = each(chained, rows)
    messages, unmatched = _match(parts)

    def graph(item: tuple[_Part, Messages]) -> WorkerGraph:
        part, read = item
        return WorkerGraph(
            rows=part.rows,
            operator=np.where(part.rows.kind <= STOP, part.rows.operator, ABSENT),
            row=part.order.source.astype(np.int32),
            pos=part.chain.pos,
            t=part.order.t_ns,
            segment=part.chain.segment,
            epoch=part.chain.epoch,
            local=part.chain.edges(),
            messages=read,
        )

    graphs = each(graph, [(part, read) for (part, _, _), read in zip(parts, messages, strict=True)])
    total = sum((counts for _, _, counts in parts), np.zeros(len(_REASONS), np.int64))
    dropped = {reason: int(count) for reason, count in zip(_REASONS, total, strict=True) if count}
    return lay_out(graphs, findings=PAG_FINDINGS.empty_table(), dropped=dropped), unmatched


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
    partners_seen = pl.col("found") + pl.col("elsewhere").fill_null(0)
    across = partners_seen >= pl.col("expected")

    def choose(if_across: str, if_sent: str, if_received: str) -> pl.Expr:
        one_side = pl.when("sent").then(pl.lit(if_sent)).otherwise(pl.lit(if_received))
        return pl.when(across).then(pl.lit(if_across)).otherwise(one_side)

    rows = (
        pl.concat(sides)
        .sort("vertex")
        .select(
            finding=choose("message_across_epochs", "send_without_receive", "receive_without_send"),
            severity=choose(Severity.INFO.value, Severity.WARNING.value, Severity.WARNING.value),
            worker=pl.col("worker"),
            vertex=pl.col("vertex"),
            seq=pl.col("seq"),
            file=pl.lit(None, pl.String),
            observed=pl.when(across).then(pl.col("partner")).otherwise(partners_seen),
            limit=pl.when(across).then(pl.col("epoch")).otherwise(pl.col("expected")),
            unit=choose("epoch", "receives", "sends"),
            action=pl.lit("no edge"),
        )
    )
    return rows.to_arrow().cast(PAG_FINDINGS)


class _Order(NamedTuple):
    """Events of one worker that become vertices, in the order of their vertices."""

    source: _I64
    """Row of the event."""
    slot: _I64
    """Row whose place it takes; differs where a receive moved."""
    t_ns: _I64
    records: _I64


class _Chain(NamedTuple):
    """Vertices of one worker by their positions, and per vertex the edge that leads to it from the one before."""

    pos: _I64
    segment: _I64
    epoch: _I64
    kind: _I8
    operator: _I64
    activation: _I64
    records: _I64

    def edges(self) -> LocalEdges:
        """Return the edges."""
        return LocalEdges(
            previous=(ABSENT, ABSENT, ABSENT),
            kind=self.kind,
            operator=self.operator,
            activation=self.activation,
            records=self.records,
            flags=np.zeros(len(self.kind), np.int8),
        )


class _Part(NamedTuple):
    """The part of one worker."""

    rows: WorkerRows
    order: _Order
    chain: _Chain


_REASONS = (*(str(kind) for kind in KINDS), "local_message", "own_progress", "enclosing_scope")
"""Why an event becomes no vertex: kinds that SnailTrail 2 does not know, and three more."""


@numba.njit(cache=True, nogil=True)
def _keep(
    code: _I8, label: _I8, peer: _I64, operator: _I64, worker: int, scopes: _I64, reasons: int
) -> tuple[_Bool, _I64]:
    """Say which rows become vertices, and count the others by reason."""
    rows = code.shape[0]
    is_kept = np.zeros(rows, np.bool_)
    counts = np.zeros(reasons, np.int64)
    for row in range(rows):
        if code[row] >= _OTHER:
            counts[label[row]] += 1
        elif peer[row] == worker and code[row] in (SEND, RECEIVE):
            counts[reasons - 3] += 1
        elif peer[row] == worker and code[row] == PROGRESS_RECEIVE:
            counts[reasons - 2] += 1
        else:
            is_scope = False
            if code[row] <= STOP:
                place = np.searchsorted(scopes, operator[row])
                is_scope = place < scopes.shape[0] and scopes[place] == operator[row]
            if is_scope:
                counts[reasons - 1] += 1
            else:
                is_kept[row] = True
    return is_kept, counts


def _scopes(operators: pa.Table) -> _I64:
    """Return the ids of operators that contain others."""
    addresses = dict(zip(operators["operator"].to_pylist(), operators["address"].to_pylist(), strict=True))
    # Operators with unknown addresses are no scopes, though the outermost ones have an empty parent too.
    outer = {address.rpartition(".")[0] for address in addresses.values()} - {""}
    return np.array([operator for operator, address in addresses.items() if address in outer], np.int64)


def _keep_order(rows: WorkerRows, is_kept: _Bool) -> _Order:
    rows_kept = np.flatnonzero(is_kept)
    return _Order(source=rows_kept, slot=rows_kept, t_ns=rows.t[rows_kept], records=rows.records[rows_kept])


@numba.njit(cache=True, nogil=True)
def _prepare(epoch: _I64, t_ns: _I64, code: _I8, operator: _I64, records: _I64, is_kept: _Bool) -> _Order:
    rows = epoch.shape[0]
    source = np.empty(rows, np.int64)
    slot = np.empty(rows, np.int64)
    time = np.empty(rows, np.int64)
    size = np.empty(rows, np.int64)
    count = 0
    running, received = ABSENT, ABSENT
    # Whether the last row that was kept can still be overtaken.
    waits = False
    for row in range(rows):
        if row == 0 or epoch[row] != epoch[row - 1]:
            running, received = ABSENT, ABSENT
            waits = False
        if code[row] == RECEIVE and records[row] >= 0:
            received = max(received, 0) + records[row]
        if not is_kept[row]:
            continue
        source[count], slot[count], time[count], size[count] = row, row, t_ns[row], records[row]
        if code[row] == START:
            running, received = operator[row], ABSENT
        elif code[row] == STOP:
            if records[row] < 0 and running == operator[row]:
                size[count] = received
            running, received = ABSENT, ABSENT
        if code[row] == RECEIVE and waits:
            source[count - 1], source[count] = row, source[count - 1]
            time[count] = time[count - 1]
            size[count - 1], size[count] = size[count], size[count - 1]
            waits = False
        else:
            waits = True
        count += 1
    return _Order(source[:count], slot[:count], time[:count], size[:count])


def _local_type_table() -> _I8:
    """Return the type for every pair of codes, as if stops stated records."""
    messages = (SEND, RECEIVE)
    types = np.full((_OTHER, _OTHER), _BUSY, np.int8)
    types[messages, :] = _PROCESSING
    types[:, messages] = _PROCESSING
    types[[PROGRESS_SEND, PROGRESS_RECEIVE], :] = _BUSY
    types[:, PROGRESS_SEND] = _BUSY
    types[:, PROGRESS_RECEIVE] = _WAITING
    types[START, STOP] = _PROCESSING
    return types


_LOCAL_TYPES = _local_type_table()


@numba.njit(cache=True, nogil=True)
def _chain(
    source: _I64,
    slot: _I64,
    records: _I64,
    code: _I8,
    epoch: _I64,
    operator: _I64,
    first_order: int,
    types: _I8,
) -> _Chain:
    count = source.shape[0]
    pos = np.empty(count, np.int64)
    segment = np.empty(count, np.int64)
    epochs = np.empty(count, np.int64)
    kind = np.empty(count, np.int8)
    operators = np.empty(count, np.int64)
    activation = np.empty(count, np.int64)
    size = np.empty(count, np.int64)
    for vertex in range(count):
        after = code[source[vertex]]
        epochs[vertex] = epoch[slot[vertex]]
        pos[vertex] = 2 * (slot[vertex] + first_order)
        first = vertex == 0 or epochs[vertex] != epochs[vertex - 1]
        # The edge to a progress receive is waiting, so a segment begins after it.
        begins = first or after == PROGRESS_RECEIVE
        segment[vertex] = pos[vertex] if begins else segment[vertex - 1]
        if first:
            kind[vertex], operators[vertex], activation[vertex], size[vertex] = NO_EDGE, ABSENT, ABSENT, ABSENT
            continue
        before = code[source[vertex - 1]]
        is_activation = before == START and after == STOP
        size[vertex] = records[vertex] if after == STOP else ABSENT
        kind[vertex] = _SPINNING if is_activation and size[vertex] < 0 else types[before, after]
        operators[vertex] = operator[source[vertex - 1]] if before == START and after != START else ABSENT
        activation[vertex] = pos[vertex - 1] if is_activation else ABSENT
    return _Chain(pos, segment, epochs, kind, operators, activation, size)


class _Ends(NamedTuple):
    """Ends of messages of one worker, in the order of its vertices."""

    vertex: _I64
    """Vertex."""
    sent: _Bool
    key: _I64
    """Epoch, channel, sender, receiver (`EVERYONE` for progress), number."""
    known: _Bool
    """Whether the key is known as a whole."""
    numbers: _I64
    """Vertex id, time, records, bytes; -1 records for progress, whose updates SnailTrail 2 does not count."""
    expected: _I64


@numba.njit(cache=True, nogil=True)
def _ends(
    code: _I8,
    channel: _I64,
    peer: _I64,
    number: _I64,
    size: _I64,
    source: _I64,
    t_ns: _I64,
    records: _I64,
    pos: _I64,
    epoch: _I64,
    worker: int,
    workers: int,
) -> _Ends:
    """Return the ends of messages of one worker; rows as in its log, the rest as `_Order` and `_Chain`."""
    count = 0
    for row in source:
        count += code[row] >= SEND
    vertices, expected = np.empty(count, np.int64), np.empty(count, np.int64)
    sent, known = np.empty(count, np.bool_), np.empty(count, np.bool_)
    key, numbers = np.empty((count, 5), np.int64), np.empty((count, 4), np.int64)
    end = 0
    for vertex in range(source.shape[0]):
        row = source[vertex]
        kind, peer_worker = code[row], peer[row]
        if kind < SEND:
            continue
        progress = kind >= PROGRESS_SEND
        sends = (kind == SEND) | (kind == PROGRESS_SEND)
        vertices[end], sent[end] = vertex, sends
        key[end, 0], key[end, 1], key[end, 4] = epoch[vertex], channel[row], number[row]
        key[end, 2] = worker if sends else peer_worker
        key[end, 3] = EVERYONE if progress else peer_worker if sends else worker
        known[end] = (channel[row] >= 0) & (number[row] >= 0) & ((peer_worker >= 0) | (kind == PROGRESS_SEND))
        numbers[end, 0], numbers[end, 1] = (worker << POSITION_BITS) | pos[vertex], t_ns[vertex]
        numbers[end, 2], numbers[end, 3] = ABSENT if progress else records[vertex], size[row]
        expected[end] = workers - 1 if sends & progress else 1
        end += 1
    return _Ends(vertices, sent, key, known, numbers, expected)


def _ends_of(part: _Part, workers: int) -> _Ends:
    rows, order, chain = part
    ends: _Ends = _ends(
        rows.kind,
        rows.channel,
        rows.peer,
        rows.message_seq,
        rows.bytes,
        order.source,
        order.t_ns,
        order.records,
        chain.pos,
        chain.epoch,
        rows.worker,
        workers,
    )
    return ends


@numba.njit(cache=True, nogil=True)
def _edges(
    read_ends: _I64, send: _I64, key: _I64, ends: _I64, origin: _I64, data: int, progress: int, negative: int
) -> tuple[_I64, _I8, _I32]:
    """Return the edges from sends to reads; `read_ends` and `send` are positions among the ends and the sends."""
    count = read_ends.shape[0]
    numbers = np.empty((count, layout.ALL_NUMBERS), np.int64)
    kind, flags = np.empty(count, np.int8), np.zeros((count, 2), np.int32)
    for edge in range(count):
        read, sent = read_ends[edge], send[edge]
        numbers[edge, layout.SRC], numbers[edge, layout.START] = origin[sent, 0], origin[sent, 1]
        numbers[edge, layout.RECORDS], numbers[edge, layout.BYTES] = origin[sent, 2], origin[sent, 3]
        numbers[edge, layout.DST], numbers[edge, layout.READ] = ends[read, 0], ends[read, 0]
        numbers[edge, layout.DST_EPOCH], numbers[edge, layout.SRC_EPOCH] = key[read, 0], key[read, 0]
        numbers[edge, layout.DURATION], numbers[edge, layout.CHANNEL] = ends[read, 1] - origin[sent, 1], key[read, 1]
        numbers[edge, layout.WHO], numbers[edge, layout.ACTIVATION] = ABSENT, ABSENT
        numbers[edge, layout.BUFFERED] = ABSENT
        flags[edge, 0] = negative if ends[read, 1] < origin[sent, 1] else 0
        kind[edge] = progress if key[read, 3] == EVERYONE else data
    return numbers, kind, flags


def _match(parts: Sequence[tuple[_Part, _Ends, _I64]]) -> tuple[list[Messages], pa.Table]:
    """Return the edges of messages that end on each worker, and the ends that are left."""
    ends = [worker_ends for _, worker_ends, _ in parts]
    sends = [np.flatnonzero(worker_ends.sent & worker_ends.known) for worker_ends in ends]
    key = np.concatenate(
        [worker_ends.key[ends_of_sends] for worker_ends, ends_of_sends in zip(ends, sends, strict=True)]
        or [np.empty((0, 5), np.int64)]
    )
    origin = np.concatenate(
        [worker_ends.numbers[ends_of_sends] for worker_ends, ends_of_sends in zip(ends, sends, strict=True)]
        or [np.empty((0, 4), np.int64)]
    )
    table, following = index_sends(key)

    def read(worker_ends: _Ends) -> tuple[Messages, _I64, _I64]:
        reads = np.flatnonzero(~worker_ends.sent & worker_ends.known)
        receive, send = pair(worker_ends.key[reads], key, table, following)
        read_ends = reads[receive]
        codes_ = _DATA_MESSAGE, _PROGRESS_MESSAGE, int(EdgeFlags.NEGATIVE)
        numbers, kind, flags = _edges(read_ends, send, worker_ends.key, worker_ends.numbers, origin, *codes_)
        return (
            Messages(numbers=numbers, kind=kind, flags=flags),
            np.bincount(read_ends, minlength=len(worker_ends.vertex)),
            send,
        )

    read_ones = each(read, ends)
    times_read = np.zeros(len(key), np.int64)
    for _, _, send in read_ones:
        times_read += np.bincount(send, minlength=len(key))
    counts_of_ends = [count for _, count, _ in read_ones]
    first = np.cumsum([0, *map(len, sends)])
    for ends_of_sends, low, high, count in zip(sends, first, first[1:], counts_of_ends, strict=False):
        count[ends_of_sends] += times_read[low:high]
    unmatched = each(
        lambda item: _unmatched_table(*item),
        [(part, worker_ends, c) for (part, worker_ends, _), c in zip(parts, counts_of_ends, strict=True)],
    )
    return [messages for messages, _, _ in read_ones], pa.concat_tables(unmatched or [MESSAGE_ENDS.empty_table()])


def _unmatched_table(part: _Part, ends: _Ends, partners: _I64) -> pa.Table:
    unmatched = np.flatnonzero(partners < ends.expected)
    key = ends.key[unmatched]

    def nullable(values: _I64, absent: _Bool) -> pa.Array:
        return pa.array(values, pa.int64(), mask=absent)

    data = key[:, 3] != EVERYONE
    # The other side of a message between two operators is absent where the log does not name it.
    peer = part.rows.peer[part.order.source[ends.vertex[unmatched]]]
    nobody = (peer < 0) & ~(ends.sent[unmatched] & ~data)
    columns = {
        "vertex": ends.numbers[unmatched, 0],
        "worker": np.full(len(unmatched), part.rows.worker),
        "seq": part.rows.seq[part.order.source[ends.vertex[unmatched]]],
        "epoch": key[:, 0],
        "sent": ends.sent[unmatched],
        "channel": nullable(key[:, 1], key[:, 1] < 0),
        "sender": nullable(key[:, 2], nobody & ~ends.sent[unmatched]),
        "receiver": nullable(key[:, 3], nobody & ends.sent[unmatched]),
        "message_seq": nullable(key[:, 4], key[:, 4] < 0),
        "found": partners[unmatched],
        "expected": ends.expected[unmatched],
    }
    return pa.table(columns).cast(MESSAGE_ENDS)
