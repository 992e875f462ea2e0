"""Which send each receive belongs to, by following the streams of messages.

A stream is what one worker sends to one other on one channel, or to all (progress). A channel numbers its messages,
and they are read nearly in that order: the next receive of a stream mostly belongs to the next send of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels import NEVER
from pag_graph.kernels.activations import I8, I64, PROGRESS_RECEIVE, PROGRESS_SEND, RECEIVE, SEND
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.messages import EVERYONE, NOBODY
from pag_graph.model.ids import POSITION_BITS

I32 = NDArray[np.int32]

NUMBER, VERTEX, TIME, EPOCH, SEND_COLUMNS = range(5)
"""Columns of a send, and how many there are."""


class Ends(NamedTuple):
    """Ends of messages in the log of one worker; times are nanoseconds since the run's origin."""

    rows: I32
    """Rows that send something, or those that read something, as from `message_ends`."""
    kind: I8
    """This and what follows: per row of the worker."""
    channel: I64
    """Number of the channel."""
    peer: I64
    """The other worker: the receiver of a send, the sender of what is read; -1 for a progress send."""
    message_seq: I64
    """Number of the message in its stream."""
    t: I64
    """When the row was logged."""


class Sent(NamedTuple):
    """What one worker sends."""

    rows: I32
    """As of `Ends`."""
    stream: I32
    """Per send: the number of its stream, as from `find_streams`."""
    message_seq: I64
    """This and what follows: per row of the worker."""
    epoch: I64
    """The row's own label."""
    t: I64
    """Nanoseconds since the run's origin."""


class Streams(NamedTuple):
    """Streams and their sends."""

    streams: I64
    """Shape (streams, 3): channel, sender and receiver (`EVERYONE` for progress), all different."""
    table: I32
    """As from `index_streams`."""
    first: I64
    """Shape (streams + 1,): where the sends of each begin."""
    sends: I64
    """Shape (sends, `SEND_COLUMNS`): columns `NUMBER` to `EPOCH`, sorted by number within each stream."""


class Reads(NamedTuple):
    """What reads find; `follow_streams` changes it."""

    hints: I64
    """Per stream: the send that is probably next."""
    receive_counts: I32
    """Per send: how many receives found it."""
    reader: I32
    """Per send: the worker whose receive found it last, or -1."""
    sender: I64
    """Per row that reads, as what follows: the worker that it names."""
    vertex: I64
    """The send's vertex; this and what follows is -1, `NEVER` and -1 where there is none."""
    sent: I64
    """When it was sent (ns)."""
    epoch: I64
    """Epoch of that vertex."""


class _Begun(NamedTuple):
    """Streams that one worker begins, with room for more."""

    streams: I64
    sends: I64
    """Per stream: how many."""
    table: I32


@kernel
def message_ends(kind: I8) -> tuple[I32, I32]:
    """Return the rows that send something, and those that read something, ascending.

    Parameters
    ----------
    kind
        Codes of one worker's rows, in log order.

    Returns
    -------
    sends, reads
        Places of the rows, ascending. O(rows).

    Examples
    --------
    >>> message_ends(np.array([SEND, RECEIVE, SEND], np.int8))
    (array([0, 2], dtype=int32), array([1], dtype=int32))
    """
    sends = reads = 0
    for row in range(kind.shape[0]):
        sends += (kind[row] == SEND) | (kind[row] == PROGRESS_SEND)
        reads += (kind[row] == RECEIVE) | (kind[row] == PROGRESS_RECEIVE)
    # Written for every row, counted for some: what comes next is not to be foreseen, so a branch would cost more.
    sent, read = np.empty(sends + 1, np.int32), np.empty(reads + 1, np.int32)
    sends = reads = 0
    for row in range(kind.shape[0]):
        sent[sends], read[reads] = row, row
        sends += (kind[row] == SEND) | (kind[row] == PROGRESS_SEND)
        reads += (kind[row] == RECEIVE) | (kind[row] == PROGRESS_RECEIVE)
    return sent[:sends], read[:reads]


@kernel
def _slot(channel: int, sender: int, receiver: int, streams: I64, table: I32) -> int:
    """Return where in the table a stream is, or the free slot where it belongs."""
    mask = table.shape[0] - 1
    mixed: Any = (
        np.uint64(channel) * np.uint64(0x9E3779B97F4A7C15)
        + np.uint64(sender) * np.uint64(0xC2B2AE3D27D4EB4F)
        + np.uint64(receiver) * np.uint64(0xBF58476D1CE4E5B9)
    )
    slot: Any = np.int64(mixed >> np.uint64(32)) & mask
    stream = table[slot]
    # One branch that is mostly foreseen; with `and` and `break` instead, this took five times as long.
    while stream >= 0 and not (
        (streams[stream, 0] == channel) & (streams[stream, 1] == sender) & (streams[stream, 2] == receiver)
    ):
        slot = (slot + 1) & mask
        stream = table[slot]
    return slot  # type: ignore[no-any-return]


@kernel
def index_streams(streams: I64, count: int, size: int) -> I32:
    """Make the hash table of streams.

    Parameters
    ----------
    streams
        Channel, sender and receiver (`EVERYONE` for progress) per stream, all different.
    count
        How many of the rows are streams.
    size
        Slots, a power of two; more than there are streams.

    Returns
    -------
    table
        Per slot the number of a stream, or -1. O(size).

    Examples
    --------
    >>> sorted(index_streams(np.array([[3, 0, 1]]), 1, 2).tolist())
    [-1, 0]
    """
    table = np.full(size, -1, np.int32)
    for stream in range(count):
        table[_slot(streams[stream, 0], streams[stream, 1], streams[stream, 2], streams, table)] = stream
    return table


def find_streams(ends: Ends, worker: int, stream_of_send: I32) -> tuple[I64, I64]:
    """Find the streams that one worker sends.

    Parameters
    ----------
    ends
        Rows that send.
    worker
        Its number.
    stream_of_send
        Per send, written here: the number of its stream.

    Returns
    -------
    streams
        Channel, sender and receiver of each, in the order in which they begin.
    sends
        How many each has.

    Notes
    -----
    O(sends).
    """
    room = _FEW
    while True:
        own_streams = _Begun(
            np.empty((room, 3), np.int64),
            np.zeros(room, np.int64),
            index_streams(np.empty((0, 3), np.int64), 0, 4 * room),
        )
        count = _find_streams(ends, worker, stream_of_send, own_streams)
        if count >= 0:
            return own_streams.streams[:count], own_streams.sends[:count]
        room *= 8


_FEW = 256
"""For how many streams there is room at first, a power of two."""


@kernel
def _find_streams(ends: Ends, worker: int, stream_of_send: I32, own_streams: _Begun) -> int:
    """Do as `find_streams`, and return how many streams there are; -1 if there is not room for them."""
    rows, kind, channel, peer, _, _ = ends
    streams, sends, table = own_streams
    count = 0
    for send in range(rows.shape[0]):
        row = rows[send]
        receiver = EVERYONE
        if kind[row] == SEND:
            receiver = peer[row] if peer[row] >= 0 else NOBODY
        slot = _slot(channel[row], worker, receiver, streams, table)
        if table[slot] < 0:
            if count == streams.shape[0]:
                return -1
            streams[count, 0], streams[count, 1], streams[count, 2] = channel[row], worker, receiver
            table[slot] = count
            count += 1
        stream_of_send[send] = table[slot]
        sends[table[slot]] += 1
    return count


@kernel
def fill_streams(sent: Sent, worker: int, first_order: int, free: I64, sends: I64) -> bool:
    """Write the sends of one worker into their streams, in the order of its log.

    Parameters
    ----------
    sent
        What it sends.
    worker, first_order
        Its number, and the order of its first row.
    free
        Per stream of this worker: the first row of `sends` that is its own; changed here.
    sends
        Written here: `SEND_COLUMNS` per send.

    Returns
    -------
    bool
        Whether the numbers of every stream increase.

    Examples
    --------
    >>> sends, rows = np.empty((1, SEND_COLUMNS), np.int64), np.array([0], np.int32)
    >>> fill_streams(Sent(rows, rows, *np.array([[7], [3], [50]])), 0, 1, np.array([0]), sends), sends
    (True, array([[ 7,  2, 50,  3]]))
    """
    rows, streams, message_seq, epoch, t = sent
    first = free.copy()
    increase = True
    for send in range(rows.shape[0]):
        row, stream = rows[send], streams[send]
        place = free[stream]
        sends[place, NUMBER] = message_seq[row]
        sends[place, VERTEX] = (worker << POSITION_BITS) | (2 * (first_order + row))
        sends[place, TIME], sends[place, EPOCH] = t[row], epoch[row]
        increase &= place == first[stream] or sends[place - 1, NUMBER] < message_seq[row]
        free[stream] = place + 1
    return increase


@kernel
def order_streams(first: I64, sends: I64) -> None:
    """Sort the sends of each stream by number; those of one number stay in the order of the log.

    Parameters
    ----------
    first
        Per stream: its first row of `sends`; one more number says where the last one ends.
    sends
        Changed here.

    Examples
    --------
    >>> sends = np.array([[9, 2, 50, 0], [7, 4, 60, 0]])
    >>> order_streams(np.array([0, 2]), sends)
    >>> sends[:, NUMBER]
    array([7, 9])
    """
    for stream in range(first.shape[0] - 1):
        stream_sends = sends[first[stream] : first[stream + 1]]
        stream_sends[:] = stream_sends[np.argsort(stream_sends[:, NUMBER], kind="mergesort")]


@kernel
def _find(number: int, low: int, high: int, hint: int, sends: I64) -> int:
    """Return the first of the sends `low` to `high` (exclusive) whose number is not smaller; `hint` is tried first."""
    if hint < high and sends[hint, NUMBER] == number:
        while hint > low and sends[hint - 1, NUMBER] == number:
            hint -= 1
        return hint
    while low < high:
        middle = (low + high) >> 1
        if sends[middle, NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def follow_streams(ends: Ends, worker: int, known: Streams, reads: Reads, horizon_ns: int) -> int:
    """Find the send of every receive of one worker.

    Parameters
    ----------
    ends
        Rows that read.
    worker
        Its number.
    known
        All streams.
    reads
        Changed here; what `receive_counts` has is added to.
    horizon_ns
        What is sent later than so long after a read is not what was read.

    Returns
    -------
    lost
        How many receives have no send.

    Notes
    -----
    O(receives) where streams are read in order; one that is out of order takes O(log sends) more. Of several sends with
    one number (a corrupt log) the first counts, and of several receives of one message the first.

    Examples
    --------
    Worker 1 reads message 7 of channel 3, which worker 0 sent.

    >>> streams, row = np.array([[3, 0, 1]]), np.array([0], np.int32)
    >>> known = Streams(streams, index_streams(streams, 1, 4), np.array([0, 1]), np.array([[7, 2, 50, 9]]))
    >>> reads = Reads(np.array([0]), np.array([0], np.int32), np.array([-1], np.int32), *np.empty((4, 1), np.int64))
    >>> follow_streams(Ends(row, np.array([RECEIVE], np.int8), *np.array([[3], [0], [7], [60]])), 1, known, reads, 5)
    0
    >>> reads.vertex, reads.sent, reads.receive_counts
    (array([2]), array([50]), array([1], dtype=int32))
    """
    rows, kind, channel, peer, message_seq, t = ends
    streams, table, first, sends = known
    hints, receive_counts, reader, sender, vertex, sent, epoch = reads
    lost = 0
    for read in range(rows.shape[0]):
        row = rows[read]
        sender[read], vertex[read], sent[read], epoch[read] = peer[row], -1, NEVER, -1
        receiver = worker if kind[row] == RECEIVE else EVERYONE
        stream = table[_slot(channel[row], sender[read], receiver, streams, table)]
        if stream < 0:
            lost += 1
            continue
        end, number = first[stream + 1], message_seq[row]
        send = _find(number, first[stream], end, hints[stream], sends)
        exists = send < end and sends[send, NUMBER] == number
        hints[stream] = send + exists
        # A worker reads a message once, and reads none that was sent much later.
        if exists and reader[send] != worker and sends[send, TIME] - t[row] <= horizon_ns:
            vertex[read], sent[read], epoch[read] = sends[send, VERTEX], sends[send, TIME], sends[send, EPOCH]
            receive_counts[send] += 1
            reader[send] = worker
        else:
            lost += 1
    return lost


@kernel
def unmatched_sends(streams: I64, first: I64, workers: int, receive_counts: I32) -> tuple[I64, I64, I64]:
    """Return the sends that were not received as often as they should be.

    Parameters
    ----------
    streams, first
        As for `follow_streams`.
    workers
        How many receive what is for everyone.
    receive_counts
        Per lane and send: how often it was received.

    Returns
    -------
    send, stream, missing
        Per such send, ascending: its place, its stream, and how many receives it lacks; a negative number if it was
        received more often than it should be.

    Notes
    -----
    O(sends x lanes).

    Examples
    --------
    Two of three workers read what is for everyone.

    >>> unmatched_sends(np.array([[3, 0, EVERYONE]]), np.array([0, 1]), 3, np.array([[2]], np.int32))
    (array([0]), array([0]), array([1]))
    """
    lacking = np.zeros(streams.shape[0], np.int64)
    for stream in range(streams.shape[0]):
        expected = workers if streams[stream, 2] == EVERYONE else 1
        for send in range(first[stream], first[stream + 1]):
            lacking[stream] += _times_received(receive_counts, send) != expected
    total = 0
    for stream in range(streams.shape[0]):
        total += lacking[stream]
    sends, stream_of_send, missing = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    count = 0
    # Most streams lack nothing.
    for stream in range(streams.shape[0]):
        if lacking[stream] == 0:
            continue
        expected = workers if streams[stream, 2] == EVERYONE else 1
        for send in range(first[stream], first[stream + 1]):
            lacks = expected - _times_received(receive_counts, send)
            if lacks != 0:
                sends[count], stream_of_send[count], missing[count] = send, stream, lacks
                count += 1
    return sends, stream_of_send, missing


@kernel
def _times_received(receive_counts: I32, send: int) -> int:
    """Return how often a send was received, in all lanes."""
    count: Any = 0
    for lane in range(receive_counts.shape[0]):
        count += receive_counts[lane, send]
    return count  # type: ignore[no-any-return]
