"""Edges of the messages that one worker reads from others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels import ABSENT
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.layout import (
    ACTIVATION,
    ALL_NUMBERS,
    BUFFERED,
    BYTES,
    CHANNEL,
    DST,
    DST_EPOCH,
    DURATION,
    READ,
    RECORDS,
    SRC,
    SRC_EPOCH,
    START,
    WHO,
)
from pag_graph.kernels.search import not_below

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64

I32 = NDArray[np.int32]


@kernel
def count_reads(reads: I32, send_id: I64, peer: I64, worker: int) -> int:
    """Count the rows of a worker that read a message with a known send from another one."""
    count = 0
    for read in range(reads.shape[0]):
        count += (send_id[read] >= 0) & (peer[reads[read]] != worker)
    return count


@kernel
def edges_of_reads(
    epoch: I64,
    t: I64,
    peer: I64,
    channel: I64,
    records: I64,
    size: I64,
    reads: I32,
    send_id: I64,
    sent: I64,
    send_epoch: I64,
    ender: I64,
    arrival: I64,
    wait_pos: I64,
    wait_row: I64,
    alternatives: I64,
    processes: I64,
    worker: int,
    first_order: int,
    base: int,
    says: bool,
    inexact: int,
    negative: int,
) -> tuple[I64, I64, I32]:
    """Make an edge per message from another worker that is read here: to the wait's end that it caused, or its read.

    Parameters
    ----------
    epoch, t, peer, channel, records, size
        Rows of the worker in log order.
    reads
        Rows that read a message, ascending.
    send_id, sent, send_epoch
        The same: vertex, time and epoch of its send; the vertex is -1 where that is not known.
    ender, arrival, wait_pos, wait_row, alternatives
        Per wait: the row that reads the message that ended it, when that arrived, position of the vertex that ends it
        and the row which that stands for or precedes, and how many other messages may have ended it.
    processes
        Per worker of the run: its process.
    worker, first_order, base
        Number of the worker, order of its first row, and the id of its position 0.
    says
        Whether the source says itself when messages arrive.
    inexact, negative
        Flags of messages whose arrival nobody logged, and of those that were read before they were sent.

    Returns
    -------
    numbers
        A row per message, in the order of their reads: columns `SRC` to `DST_EPOCH`.
    at
        Per message: the row that reads it.
    flags
        Per message: its flags, and its alternatives.

    Notes
    -----
    O(messages + waits log messages).
    """
    count = count_reads(reads, send_id, peer, worker)
    numbers, at = np.empty((count, ALL_NUMBERS), np.int64), np.empty(count, np.int64)
    flags = np.zeros((count, 2), np.int32)
    message = 0
    for place in range(reads.shape[0]):
        row, when = reads[place], sent[place]
        if send_id[place] < 0 or peer[row] == worker:
            continue
        read = base | (2 * (row + first_order))
        at[message] = row
        numbers[message, SRC], numbers[message, SRC_EPOCH] = send_id[place], send_epoch[place]
        numbers[message, DST], numbers[message, DST_EPOCH], numbers[message, READ] = read, epoch[row], read
        numbers[message, START], numbers[message, DURATION] = when, t[row] - when
        # What it was for is not known yet.
        numbers[message, WHO], numbers[message, ACTIVATION] = ABSENT, ABSENT
        numbers[message, CHANNEL], numbers[message, BUFFERED] = channel[row], ABSENT
        numbers[message, RECORDS], numbers[message, BYTES] = records[row], size[row]
        early = t[row] < when
        flags[message, 0] = (0 if says else inexact) | (negative if early else 0)
        # In one process a message lies in the reader's memory from the moment it is sent. From another process nobody
        # logged the arrival: when the message ended a wait, the unpark bounds it; otherwise it is not known.
        if says and not early:
            numbers[message, BUFFERED] = 0
        elif not says and not early and processes[peer[row]] == processes[worker]:
            numbers[message, BUFFERED] = t[row] - when
        message += 1
    for wait in range(ender.shape[0]):
        message = not_below(at, ender[wait])
        row, end, when = ender[wait], arrival[wait], numbers[message, START]
        numbers[message, DST], numbers[message, DST_EPOCH] = base | wait_pos[wait], epoch[wait_row[wait]]
        numbers[message, DURATION] = end - when
        early = t[row] < when
        if not says and not early and processes[peer[row]] != processes[worker]:
            numbers[message, BUFFERED] = t[row] - end
        flags[message, 1] = alternatives[wait]
    return numbers, at, flags
