"""Edges of the messages that one worker reads from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels import ABSENT, NEVER
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
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I8, I64

I32 = NDArray[np.int32]


class Rows(NamedTuple):
    """Rows of one worker in log order; one element per row."""

    epoch: I64
    """The row's own label."""
    t: I64
    """Nanoseconds since the run's origin."""
    peer: I64
    """For a row that reads a message: the worker that sent it."""
    channel: I64
    """And its channel, records and bytes; `ABSENT` where the log does not say."""
    records: I64
    """See `channel`."""
    size: I64
    """Bytes."""
    arrived: I64
    """When the message was there that a row reads; `NEVER` where the source does not say. Empty where it never says."""


class Reads(NamedTuple):
    """Rows that read a message, ascending; one element per read."""

    row: I32
    """Its place among the worker's rows."""
    sender: I64
    """The worker that it names; of rows that read something, this is their `peer`."""
    send_id: I64
    """The vertex that sent it; -1 where that is not known."""
    sent: I64
    """When it was sent (ns); only read where the vertex is known, as the next one."""
    send_epoch: I64
    """Epoch of that vertex."""
    kind: I8
    """Type of the message: its place in `EDGE_TYPES`."""


class Waits(NamedTuple):
    """Waits of the worker that a message ended, in log order; one element per wait."""

    ender: I64
    """The row that reads the message."""
    arrival: I64
    """When the message arrived (ns)."""
    pos: I64
    """Position of the vertex that ends it."""
    row: I64
    """The row that this vertex stands for or precedes."""
    alternatives: I64
    """How many other messages may have ended it."""


class Reader(NamedTuple):
    """The reading worker, and what its source says of arrivals."""

    worker: int
    first_order: int
    """Order of its first row."""
    processes: I64
    """Per worker of the run: its process."""
    says: bool
    """Whether the source says itself when waits end: a message of which it says no arrival arrives when it is read."""
    inexact: int
    """Flag of messages whose arrival nobody logged."""
    negative: int
    """Flag of messages that were read before they were sent."""


class Table(NamedTuple):
    """Edges of messages, in the order of their reads; one row per message."""

    numbers: I64
    """Shape (messages, `ALL_NUMBERS`): columns `SRC` to `DST_EPOCH`."""
    row: I64
    """The row that reads the message."""
    kind: I8
    """Its type."""
    flags: I32
    """Shape (messages, 2): flags and alternatives."""


def edges_of_reads(rows: Rows, reads: Reads, waits: Waits, reader: Reader) -> Table:
    """Make an edge per message from another worker that is read here: to the wait's end that it caused, or its read.

    Parameters
    ----------
    rows, reads, waits
        Those of one worker.
    reader
        The worker.

    Returns
    -------
    Table
        One row per read whose send is known and comes from another worker. O(messages + waits log messages).

    Notes
    -----
    Definitions: `docs/model.md`, "Waits" and its paragraph "Arrivals".
    """
    room = len(reads.row)
    table = Table(
        np.empty((room, ALL_NUMBERS), np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int8),
        np.empty((room, 2), np.int32),
    )
    count = fill_edges(rows, reads, waits, reader, table)
    return Table(table.numbers[:count], table.row[:count], table.kind[:count], table.flags[:count])


@kernel
def fill_edges(rows: Rows, reads: Reads, waits: Waits, reader: Reader, table: Table) -> int:
    """Do as `edges_of_reads`, into a table that the caller provides.

    Parameters
    ----------
    rows, reads, waits, reader
        As for `edges_of_reads`.
    table
        Written here: room for a row per read.

    Returns
    -------
    int
        How many edges there are.

    Examples
    --------
    Worker 1 reads at 60 what worker 0 of its process sent at 40, and had waited for it.

    >>> rows = Rows(*np.array([[0], [60], [0], [3], [7], [8]]), np.empty(0, np.int64))
    >>> reads = Reads(np.array([0], np.int32), *np.array([[0], [4], [40], [0]]), np.array([8], np.int8))
    >>> waits = Waits(*np.array([[0], [40], [1], [0], [0]]))
    >>> table = edges_of_reads(rows, reads, waits, Reader(1, 1, np.zeros(2, np.int64), False, 1, 2))
    >>> table.numbers[0, [SRC, START, DURATION]], table.flags
    (array([ 4, 40,  0]), array([[1, 0]], dtype=int32))
    """
    numbers, row_of, kind_of, flags = table
    epoch, t, peer, channel, records, size, arrived = rows
    read_rows, sender, send_id, sent, send_epoch, kind = reads
    worker, first_order, processes, says, inexact, negative = reader
    base = worker << POSITION_BITS
    message = 0
    for place in range(read_rows.shape[0]):
        row, sent_at = read_rows[place], sent[place]
        if send_id[place] < 0 or sender[place] == worker:
            continue
        read = base | (2 * (row + first_order))
        row_of[message], kind_of[message] = row, kind[place]
        numbers[message, SRC], numbers[message, SRC_EPOCH] = send_id[place], send_epoch[place]
        numbers[message, DST], numbers[message, DST_EPOCH], numbers[message, READ] = read, epoch[row], read
        numbers[message, START], numbers[message, DURATION] = sent_at, t[row] - sent_at
        # Operator and activation are not known yet.
        numbers[message, WHO], numbers[message, ACTIVATION] = ABSENT, ABSENT
        numbers[message, CHANNEL], numbers[message, BUFFERED] = channel[row], ABSENT
        numbers[message, RECORDS], numbers[message, BYTES] = records[row], size[row]
        is_early = t[row] < sent_at
        is_arrival_known = arrived.shape[0] > 0 and arrived[row] != NEVER
        exact = says or (is_arrival_known and arrived[row] >= sent_at)
        flags[message, 1] = 0
        flags[message, 0] = (0 if exact else inexact) | (negative if is_early else 0)
        # In one process a message lies in the reader's memory from the moment it is sent. From another process, where
        # nobody logged the arrival, the unpark bounds it when the message ended a wait; otherwise it is not known.
        if is_arrival_known and not is_early:
            # It was never there before it was sent.
            numbers[message, BUFFERED] = t[row] - max(arrived[row], sent_at)
        elif says and not is_early:
            numbers[message, BUFFERED] = 0
        elif not is_early and processes[sender[place]] == processes[worker]:
            numbers[message, BUFFERED] = t[row] - sent_at
        message += 1
    count = message
    row_of = row_of[:count]
    for wait in range(waits.ender.shape[0]):
        message = not_below(row_of, waits.ender[wait])
        row, end, sent_at = waits.ender[wait], waits.arrival[wait], numbers[message, START]
        numbers[message, DST], numbers[message, DST_EPOCH] = base | waits.pos[wait], epoch[waits.row[wait]]
        numbers[message, DURATION] = end - sent_at
        is_early = t[row] < sent_at
        if says:
            # The wait lasted until it was read, so that is when it was there.
            numbers[message, BUFFERED] = 0
        elif not is_early and processes[peer[row]] != processes[worker]:
            numbers[message, BUFFERED] = t[row] - end
        flags[message, 1] = waits.alternatives[wait]
    return count
