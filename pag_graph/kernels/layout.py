"""Rows of several workers, each in the order of its log, laid out in the order of epochs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels import ABSENT
from pag_graph.kernels.assembly import NO_EDGE
from pag_graph.kernels.compiling import kernel

I8 = NDArray[np.int8]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]

# Places of the numbers of a vertex, of every edge, of a message alone, and what only its layout asks for.
ID, SEQ, TIME, OPERATOR, SEGMENT = range(5)
VERTEX_NUMBERS = 5
SRC, DST, SRC_EPOCH, START, DURATION, WHO, ACTIVATION, RECORDS, CHANNEL, BYTES, BUFFERED, READ, DST_EPOCH = range(13)
EDGE_NUMBERS, MESSAGE_NUMBERS, ALL_NUMBERS = 8, 12, 13


class Rows(NamedTuple):
    """Rows of one worker in log order; one element per row."""

    seq: I64
    """Their numbers in the log."""
    label: I8
    """Code of the vertex's kind."""
    operator: I64
    """`ABSENT` where there is none."""


class VertexColumns(NamedTuple):
    """Vertices of one worker in order, as from `pag_graph.kernels.assembly.local_graph`; one element per vertex."""

    row: I32
    """Its row, negative for inserted ones."""
    pos: I64
    """Position on the worker."""
    t: I64
    """Nanoseconds since the run's origin."""
    segment: I64
    """Position of the vertex that starts its segment."""


class Places(NamedTuple):
    """Where rows of one worker, in its order, belong."""

    ends: I64
    """Per run of one epoch: the row after its last."""
    shift: I64
    """Per run: how far its place lies behind."""


class VertexTable(NamedTuple):
    """Vertices of all workers, in the order of epochs."""

    numbers: I64
    """Shape (`VERTEX_NUMBERS`, vertices): rows `ID` to `SEGMENT`."""
    kind: I8
    """Per vertex: its label."""
    inserted: int
    """Label of vertices whose row is -1; one more for -2, two more for -3."""


class LocalColumns(NamedTuple):
    """Vertices of one worker in order, and per vertex the edge that leads to it from the one before."""

    pos: I64
    """Position on the worker."""
    t: I64
    """Nanoseconds since the run's origin."""
    epoch: I64
    """Of the vertex, as from `epochs_at`."""
    edge: I8
    """Type of the edge, or `NO_EDGE`; what follows belongs to the edge as well, as in
    `pag_graph.kernels.assembly.Graph`.
    """
    operator: I64
    """-1 where there is none."""
    activation: I64
    """Position of the `start` of its activation, or -1."""
    records: I64
    """-1 where there are none."""
    flags: I8
    """1 where the type is inferred."""


class Before(NamedTuple):
    """The vertex before the first one, and what the worker's ids begin with."""

    pos: int
    """Position of that vertex on the worker."""
    t: int
    """Its time (ns since the run's origin)."""
    epoch: int
    """Its epoch."""
    base: int
    """Id of the worker's position 0."""


class MessageColumns(NamedTuple):
    """Messages that end on one worker; one element per message."""

    order: I64
    """Their places, in the order of the vertices that they end at."""
    numbers: I64
    """Shape (messages, `ALL_NUMBERS`): columns `SRC` to `DST_EPOCH`."""
    kind: I8
    """Code of the edge's type."""
    flags: I32
    """Shape (messages, 2): flags and alternatives."""
    ends: I64
    """As of `Places`, counting messages alone."""
    shift: I64
    """The same."""


class EdgeTable(NamedTuple):
    """Edges of all workers, in the order of epochs."""

    numbers: I64
    """Shape (`EDGE_NUMBERS`, edges): rows `SRC` to `RECORDS`."""
    kind: I8
    """Per edge: code of its type."""
    flags: I8
    """Per edge."""
    place: I64
    """Per message: the place of its edge."""
    of_messages: I64
    """Shape (`MESSAGE_NUMBERS` - `EDGE_NUMBERS`, messages): rows `CHANNEL` to `READ`."""
    alternatives: I32
    """Per message."""


@kernel
def runs(values: I64) -> tuple[I64, I64]:
    """Find the runs of equal values in a column that does not decrease.

    Parameters
    ----------
    values
        The column.

    Returns
    -------
    distinct
        The values that occur, ascending.
    count
        How often each occurs. O(values).

    Examples
    --------
    >>> runs(np.array([4, 4, 7]))
    (array([4, 7]), array([2, 1]))
    """
    count = 0
    for i in range(values.shape[0]):
        count += i == 0 or values[i] != values[i - 1]
    distinct, rows = np.empty(count, np.int64), np.zeros(count, np.int64)
    run = -1
    for i in range(values.shape[0]):
        if i == 0 or values[i] != values[i - 1]:
            run += 1
            distinct[run] = values[i]
        rows[run] += 1
    return distinct, rows


@kernel
def edges_in(edge: I8, rows: I64) -> I64:
    """Count the vertices of each run that an edge leads to from the one before.

    Parameters
    ----------
    edge
        Per vertex, as from `pag_graph.kernels.assembly.local_graph`.
    rows
        How many vertices each run has.

    Returns
    -------
    array of int64
        Per run. O(vertices).

    Examples
    --------
    >>> edges_in(np.array([NO_EDGE, 0, 0], np.int8), np.array([2, 1]))
    array([1, 1])
    """
    counts = np.zeros(rows.shape[0], np.int64)
    vertex = 0
    for run in range(rows.shape[0]):
        for _ in range(rows[run]):
            counts[run] += edge[vertex] != NO_EDGE
            vertex += 1
    return counts


@kernel
def epochs_at(pos: I64, epoch: I64, first_order: int, before: int, after: int) -> I64:
    """Return the epochs of vertices.

    Parameters
    ----------
    pos
        Their positions; an inserted vertex has the epoch of the event that it precedes.
    epoch, first_order
        Rows of the worker in log order, and the order of the first of them.
    before, after
        Epochs of vertices before these rows, and after the last.

    Returns
    -------
    array of int64
        Per position. O(positions).

    Examples
    --------
    >>> epochs_at(np.array([1, 2, 4, 5]), np.array([0, 3]), 1, -1, 9)
    array([0, 0, 3, 9])
    """
    rows = epoch.shape[0]
    epochs = np.empty(pos.shape[0], np.int64)
    for i in range(pos.shape[0]):
        row = (pos[i] + 1) // 2 - first_order
        epochs[i] = before if row < 0 else epoch[row] if row < rows else after
    return epochs


@kernel
def place_vertices(vertices: VertexColumns, rows: Rows, base: int, places: Places, table: VertexTable) -> None:
    """Write the vertices of a worker where they belong.

    Parameters
    ----------
    vertices, rows
        Those of the worker.
    base
        Id of the worker's position 0.
    places
        Of the vertices.
    table
        Written here.

    Examples
    --------
    >>> table = VertexTable(np.zeros((VERTEX_NUMBERS, 2), np.int64), np.zeros(2, np.int8), 17)
    >>> rows = Rows(np.array([70]), np.array([4], np.int8), np.array([9]))
    >>> vertices = VertexColumns(np.array([0], np.int32), *np.array([[2], [50], [2]]))
    >>> place_vertices(vertices, rows, 1 << 32, Places(np.array([1]), np.array([1])), table)
    >>> table.numbers[TIME], table.kind
    (array([ 0, 50]), array([0, 4], dtype=int8))
    """
    numbers, kind, inserted = table
    run = 0
    for vertex in range(vertices.pos.shape[0]):
        while vertex >= places.ends[run]:
            run += 1
        target = vertex + places.shift[run]
        row = vertices.row[vertex]
        numbers[ID, target], numbers[TIME, target] = base | vertices.pos[vertex], vertices.t[vertex]
        numbers[SEGMENT, target] = base | vertices.segment[vertex]
        if row >= 0:
            numbers[SEQ, target], numbers[OPERATOR, target], kind[target] = (
                rows.seq[row],
                rows.operator[row],
                rows.label[row],
            )
        else:
            numbers[SEQ, target], numbers[OPERATOR, target], kind[target] = ABSENT, ABSENT, inserted - 1 - row


@kernel
def place_edges(
    local: LocalColumns, before: Before, messages: MessageColumns, places: Places, table: EdgeTable
) -> None:
    """Write the edges that end on a worker where they belong: by the vertex that they end at, local edges first.

    Parameters
    ----------
    local, before
        The worker's vertices and local edges.
    messages
        What else ends there.
    places
        Of all these edges.
    table
        Written here.

    Examples
    --------
    An edge leads to the only vertex, from one before.

    >>> nothing, byte = np.empty(0, np.int64), np.zeros(1, np.int8)
    >>> local = LocalColumns(*np.array([[4], [9], [0]]), byte, *np.full((3, 1), -1), byte)
    >>> flags, alternatives = np.empty((0, 2), np.int32), np.empty(0, np.int32)
    >>> messages = MessageColumns(nothing, np.empty((0, ALL_NUMBERS), np.int64), byte[:0], flags, nothing, nothing)
    >>> table = EdgeTable(
    ...     np.zeros((EDGE_NUMBERS, 1), np.int64), byte, byte, nothing, np.empty((4, 0), np.int64), alternatives
    ... )
    >>> place_edges(local, Before(2, 5, 0, 0), messages, Places(np.array([1]), np.array([0])), table)
    >>> table.numbers[[SRC, DST, START, DURATION], 0]
    array([2, 4, 5, 4])
    """
    pos, t, base = local.pos, local.t, before.base
    previous_pos, previous_t, previous_epoch = before.pos, before.t, before.epoch
    numbers, kind, flags = table.numbers, table.kind, table.flags
    run, message_run, messages_done, placed = 0, 0, 0, 0
    vertices = pos.shape[0]
    for vertex in range(vertices + 1):
        while messages_done < messages.order.shape[0]:
            message = messages.order[messages_done]
            if vertex < vertices and messages.numbers[message, DST] >= base | pos[vertex]:
                break
            while placed >= places.ends[run]:
                run += 1
            target = placed + places.shift[run]
            for column in range(EDGE_NUMBERS):
                numbers[column, target] = messages.numbers[message, column]
            kind[target], flags[target] = messages.kind[message], messages.flags[message, 0]
            while messages_done >= messages.ends[message_run]:
                message_run += 1
            among = messages_done + messages.shift[message_run]
            table.place[among], table.alternatives[among] = target, messages.flags[message, 1]
            for column in range(EDGE_NUMBERS, MESSAGE_NUMBERS):
                table.of_messages[column - EDGE_NUMBERS, among] = messages.numbers[message, column]
            placed += 1
            messages_done += 1
        if vertex == vertices:
            break
        if local.edge[vertex] != NO_EDGE:
            while placed >= places.ends[run]:
                run += 1
            target = placed + places.shift[run]
            numbers[SRC, target], numbers[DST, target] = base | previous_pos, base | pos[vertex]
            numbers[SRC_EPOCH, target] = previous_epoch
            numbers[START, target], numbers[DURATION, target] = previous_t, t[vertex] - previous_t
            numbers[WHO, target], numbers[RECORDS, target] = local.operator[vertex], local.records[vertex]
            activation = local.activation[vertex]
            numbers[ACTIVATION, target] = base | activation if activation >= 0 else ABSENT
            kind[target], flags[target] = local.edge[vertex], local.flags[vertex]
            placed += 1
        previous_pos, previous_t, previous_epoch = pos[vertex], t[vertex], local.epoch[vertex]


@kernel
def mixed_with(mixed: Any, value: int) -> Any:
    """Mix a number into a hash of 64 bits.

    Parameters
    ----------
    mixed
        The hash.
    value
        Any integer; its lowest 64 bits count.

    Returns
    -------
    uint64
        The new hash. A difference in either argument changes all bits of it, half of them on average.

    Examples
    --------
    >>> hex(mixed_with(1, 0))
    '0xbf584768e626ded1'
    """
    # Multiplication carries differences up and the shift brings them down again (splitmix64).
    x = (np.uint64(mixed) ^ np.uint64(value)) * np.uint64(0xBF58476D1CE4E5B9)
    return x ^ (x >> np.uint64(29))


@kernel
def mix(mixed: U64, values: I64, null: int) -> None:
    """Mix a column into one number per row.

    Parameters
    ----------
    mixed
        Per row, changed here.
    values, null
        The column, and what stands in it for `ABSENT`.

    Examples
    --------
    >>> mixed = np.ones(2, np.uint64)
    >>> mix(mixed, np.array([0, ABSENT]), 0)
    >>> mixed[0] == mixed[1] == mixed_with(1, 0)
    np.True_
    """
    for i in range(mixed.shape[0]):
        mixed[i] = mixed_with(mixed[i], values[i] if values[i] != ABSENT else null)


@kernel
def mix_codes(mixed: U64, values: I8, meaning: I64) -> None:
    """Mix a column of codes into one number per row, as `mix` does.

    Parameters
    ----------
    mixed
        Per row, changed here.
    values
        The codes, from 0.
    meaning
        What is mixed in, per code.

    Examples
    --------
    >>> mixed = np.ones(1, np.uint64)
    >>> mix_codes(mixed, np.array([1], np.int8), np.array([8, 0]))
    >>> mixed[0] == mixed_with(1, 0)
    np.True_
    """
    for i in range(mixed.shape[0]):
        mixed[i] = mixed_with(mixed[i], meaning[values[i]])
