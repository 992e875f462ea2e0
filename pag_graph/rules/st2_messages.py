"""The rules of SnailTrail 2: messages, each connected within its epoch, and what is said of those that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pag_graph.kernels import ABSENT, layout
from pag_graph.kernels.activations import PROGRESS_SEND, SEND
from pag_graph.kernels.messages import EVERYONE, index_sends, pair
from pag_graph.model.enums import ActivityType, EdgeFlags
from pag_graph.model.ids import POSITION_BITS
from pag_graph.rules.rows import EDGE_CODES
from pag_graph.rules.worker_graphs import Messages
from pag_graph.runtime.threads import each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.rules.st2_chains import Part

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

_DATA_MESSAGE, _PROGRESS_MESSAGE = EDGE_CODES[ActivityType.DATA_MESSAGE], EDGE_CODES[ActivityType.PROGRESS_MESSAGE]


class Ends(NamedTuple):
    """Ends of messages of one worker, in the order of its vertices."""

    vertex: _I64
    """Vertex."""
    sent: _Bool
    """Whether the message is sent there; otherwise it is read."""
    key: _I64
    """Epoch, channel, sender, receiver (`EVERYONE` for progress), number."""
    known: _Bool
    """Whether the key is known as a whole."""
    numbers: _I64
    """Vertex id, time, records, bytes; -1 records for progress, whose updates SnailTrail 2 does not count."""
    expected: _I64
    """How many other ends it must have."""


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
) -> Ends:
    """Return the ends of messages of one worker; rows as in its log, the rest as `Order` and `Chain`."""
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
    return Ends(vertices, sent, key, known, numbers, expected)


def ends_of(part: Part, workers: int) -> Ends:
    """Return the ends of messages of one worker.

    Parameters
    ----------
    part
        The worker's part.
    workers
        How many workers the trace has.

    Returns
    -------
    Ends
        O(its vertices).
    """
    rows, order, chain = part
    ends: Ends = _ends(
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


def match(parts: Sequence[tuple[Part, Ends, _I64]]) -> tuple[list[Messages], pa.Table]:
    """Return the edges of messages that end on each worker, and the ends that are left.

    Parameters
    ----------
    parts
        Per worker: its part, its ends, and what it dropped, which nobody asks here.

    Returns
    -------
    messages
        Per worker: those that it reads.
    ends
        Rows of `MESSAGE_ENDS`.
    """
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

    def read(worker_ends: Ends) -> tuple[Messages, _I64, _I64]:
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


def _unmatched_table(part: Part, ends: Ends, partners: _I64) -> pa.Table:
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
