"""Which send each receive belongs to, by following the streams of messages.

A stream is what one worker sends to one other on one channel, or to all (progress). A channel numbers its messages,
and they are read nearly in that order: the next receive of a stream mostly belongs to the next send of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.activations import I8, I64, PROGRESS_RECEIVE, PROGRESS_SEND, RECEIVE, SEND
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.messages import EVERYONE
from pag_graph.model.ids import POSITION_BITS

I32 = NDArray[np.int32]

NUMBER, VERTEX, TIME, EPOCH, SEND_COLUMNS = range(5)
"""Columns of a send, and how many there are."""


@kernel
def message_ends(kind: I8) -> tuple[I32, I32]:
    """Return the rows that send something, and those that read something, ascending.

    Parameters
    ----------
    kind
        Rows of one worker.
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
    at = table[slot]
    # One branch that is mostly foreseen; with `and` and `break` instead, this took five times as long.
    while at >= 0 and not ((streams[at, 0] == channel) & (streams[at, 1] == sender) & (streams[at, 2] == receiver)):
        slot = (slot + 1) & mask
        at = table[slot]
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
    """
    table = np.full(size, -1, np.int32)
    for stream in range(count):
        table[_slot(streams[stream, 0], streams[stream, 1], streams[stream, 2], streams, table)] = stream
    return table


def find_streams(sending: I32, kind: I8, channel: I64, peer: I64, worker: int, which: I32) -> tuple[I64, I64]:
    """Find the streams that one worker sends.

    Parameters
    ----------
    sending
        Rows that send, as from `message_ends`.
    kind, channel, peer
        Rows of the worker in log order.
    worker
        Its number.
    which
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
        streams, sends = np.empty((room, 3), np.int64), np.zeros(room, np.int64)
        table = index_streams(streams, 0, 4 * room)
        count = _find_streams(sending, kind, channel, peer, worker, which, streams, sends, table)
        if count >= 0:
            return streams[:count], sends[:count]
        room *= 8


_FEW = 256
"""For how many streams there is room at first, a power of two."""


@kernel
def _find_streams(
    sending: I32, kind: I8, channel: I64, peer: I64, worker: int, which: I32, streams: I64, sends: I64, table: I32
) -> int:
    """Do as `find_streams`, and return how many streams there are; -1 if there is not room for them."""
    count = 0
    for send in range(sending.shape[0]):
        row = sending[send]
        receiver = peer[row] if kind[row] == SEND else EVERYONE
        slot = _slot(channel[row], worker, receiver, streams, table)
        if table[slot] < 0:
            if count == streams.shape[0]:
                return -1
            streams[count, 0], streams[count, 1], streams[count, 2] = channel[row], worker, receiver
            table[slot] = count
            count += 1
        which[send] = table[slot]
        sends[table[slot]] += 1
    return count


@kernel
def fill_streams(
    sending: I32,
    message_seq: I64,
    epoch: I64,
    t: I64,
    worker: int,
    first_order: int,
    which: I32,
    free: I64,
    sends: I64,
) -> bool:
    """Write the sends of one worker into their streams, in the order of its log.

    Parameters
    ----------
    sending
        Rows that send, as from `message_ends`.
    message_seq, epoch, t
        Rows of the worker in log order.
    worker, first_order
        Its number, and the order of its first row.
    which
        As from `find_streams`.
    free
        Per stream of this worker: the first row of `sends` that is its own; changed here.
    sends
        Written here: `SEND_COLUMNS` per send.

    Returns
    -------
    bool
        Whether the numbers of every stream increase.
    """
    first = free.copy()
    increase = True
    for send in range(sending.shape[0]):
        row, stream = sending[send], which[send]
        at = free[stream]
        sends[at, NUMBER] = message_seq[row]
        sends[at, VERTEX] = (worker << POSITION_BITS) | (2 * (first_order + row))
        sends[at, TIME], sends[at, EPOCH] = t[row], epoch[row]
        increase &= at == first[stream] or sends[at - 1, NUMBER] < message_seq[row]
        free[stream] = at + 1
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
    """
    for stream in range(first.shape[0] - 1):
        mine = sends[first[stream] : first[stream + 1]]
        mine[:] = mine[np.argsort(mine[:, NUMBER], kind="mergesort")]


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
def follow_streams(
    reading: I32,
    kind: I8,
    channel: I64,
    peer: I64,
    message_seq: I64,
    worker: int,
    streams: I64,
    table: I32,
    first: I64,
    sends: I64,
    never: int,
    hints: I64,
    seen: I32,
    vertex: I64,
    sent: I64,
    epoch: I64,
) -> int:
    """Find the send of every receive of one worker.

    Parameters
    ----------
    reading
        Rows that read, as from `message_ends`.
    kind, channel, peer, message_seq
        Rows of the worker in log order.
    worker
        Its number.
    streams, table, first, sends
        All streams, as from `index_streams`, `fill_streams` and `order_streams`.
    never
        What to write as time where there is no send.
    hints
        Per stream: the send that is probably next; changed here.
    seen
        Per send: how many receives found it; what is found here is added.
    vertex, sent, epoch
        Per row that reads, written here: vertex, time and epoch of its send; -1, `never` and -1 where it has none.

    Returns
    -------
    lost
        How many receives have no send.

    Notes
    -----
    O(receives) where streams are read in order; one that is out of order takes O(log sends) more. Of several sends with
    one number (a corrupt log) the first counts.
    """
    lost = 0
    for read in range(reading.shape[0]):
        row = reading[read]
        vertex[read], sent[read], epoch[read] = -1, never, -1
        receiver = worker if kind[row] == RECEIVE else EVERYONE
        stream = table[_slot(channel[row], peer[row], receiver, streams, table)]
        if stream < 0:
            lost += 1
            continue
        end = first[stream + 1]
        at = _find(message_seq[row], first[stream], end, hints[stream], sends)
        hints[stream] = at
        if at < end and sends[at, NUMBER] == message_seq[row]:
            vertex[read], sent[read], epoch[read] = sends[at, VERTEX], sends[at, TIME], sends[at, EPOCH]
            seen[at] += 1
            hints[stream] = at + 1
        else:
            lost += 1
    return lost


@kernel
def unmatched_sends(streams: I64, first: I64, workers: int, seen: I32) -> tuple[I64, I64, I64]:
    """Return the sends that were not received as often as they should be.

    Parameters
    ----------
    streams, first
        As for `follow_streams`.
    workers
        How many receive what is for everyone.
    seen
        Per lane and send: how often it was received.

    Returns
    -------
    send, stream, missing
        Per send, ascending; `missing` is negative where it was received too often.
    """
    lacking = np.zeros(streams.shape[0], np.int64)
    for stream in range(streams.shape[0]):
        wanted = workers if streams[stream, 2] == EVERYONE else 1
        for send in range(first[stream], first[stream + 1]):
            lacking[stream] += _received(seen, send) != wanted
    total = 0
    for stream in range(streams.shape[0]):
        total += lacking[stream]
    left, of, missing = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    count = 0
    # Most streams lack nothing.
    for stream in range(streams.shape[0]):
        if lacking[stream] == 0:
            continue
        wanted = workers if streams[stream, 2] == EVERYONE else 1
        for send in range(first[stream], first[stream + 1]):
            lacks = wanted - _received(seen, send)
            if lacks != 0:
                left[count], of[count], missing[count] = send, stream, lacks
                count += 1
    return left, of, missing


@kernel
def _received(seen: I32, send: int) -> int:
    """Return how often a send was received, in all lanes."""
    count: Any = 0
    for lane in range(seen.shape[0]):
        count += seen[lane, send]
    return count  # type: ignore[no-any-return]
