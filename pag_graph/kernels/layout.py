"""Rows of several workers, each in the order of its log, laid out in the order of epochs."""

from __future__ import annotations

from typing import Any

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


@kernel
def runs(values: I64) -> tuple[I64, I64]:
    """Return the distinct values of a column that does not decrease, and how often each occurs."""
    count = 0
    for i in range(values.shape[0]):
        count += i == 0 or values[i] != values[i - 1]
    distinct, rows = np.empty(count, np.int64), np.zeros(count, np.int64)
    at = -1
    for i in range(values.shape[0]):
        if i == 0 or values[i] != values[i - 1]:
            at += 1
            distinct[at] = values[i]
        rows[at] += 1
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
    """
    rows = epoch.shape[0]
    found = np.empty(pos.shape[0], np.int64)
    for i in range(pos.shape[0]):
        row = (pos[i] + 1) // 2 - first_order
        found[i] = before if row < 0 else epoch[row] if row < rows else after
    return found


@kernel
def place_vertices(
    row: I32,
    pos: I64,
    t: I64,
    segment: I64,
    seq: I64,
    label: I8,
    operator: I64,
    inserted: int,
    base: int,
    ends: I64,
    shift: I64,
    numbers: I64,
    kind: I8,
) -> None:
    """Write the vertices of a worker where they belong.

    Parameters
    ----------
    row, pos, t, segment
        As from `pag_graph.kernels.assembly.local_graph`.
    seq, label, operator
        Rows of the worker.
    inserted
        Label of the vertices whose row is -1; one more for -2, two more for -3.
    base
        Id of the worker's position 0.
    ends, shift
        Per run of one epoch: the vertex after its last, and how far its place lies behind.
    numbers, kind
        Written here: columns `ID` to `SEGMENT`, and the label.
    """
    run = 0
    for i in range(pos.shape[0]):
        while i >= ends[run]:
            run += 1
        at = i + shift[run]
        source = row[i]
        numbers[ID, at], numbers[TIME, at], numbers[SEGMENT, at] = base | pos[i], t[i], base | segment[i]
        if source >= 0:
            numbers[SEQ, at], numbers[OPERATOR, at], kind[at] = seq[source], operator[source], label[source]
        else:
            numbers[SEQ, at], numbers[OPERATOR, at], kind[at] = ABSENT, ABSENT, inserted - 1 - source


@kernel
def place_edges(
    pos: I64,
    t: I64,
    epoch: I64,
    edge: I8,
    operator: I64,
    activation: I64,
    records: I64,
    edge_flags: I8,
    previous_pos: int,
    previous_t: int,
    previous_epoch: int,
    base: int,
    order: I64,
    messages: I64,
    message_kind: I8,
    message_flags: I32,
    ends: I64,
    shift: I64,
    message_ends: I64,
    message_shift: I64,
    numbers: I64,
    kind: I8,
    flags: I8,
    place: I64,
    of_messages: I64,
    alternatives: I32,
) -> None:
    """Write the edges that end on a worker where they belong: by the vertex that they end at, local edges first.

    Parameters
    ----------
    pos, t, epoch
        Vertices of the worker.
    edge, operator, activation, records, edge_flags
        Per vertex, of the edge that leads to it from the one before: as from `local_graph`.
    previous_pos, previous_t, previous_epoch
        The vertex before the first one.
    base
        Id of the worker's position 0.
    order
        Places of the messages in the order of their ends.
    messages
        Numbers of the messages, a row of columns `SRC` to `DST_EPOCH` each.
    message_kind, message_flags
        Per message: its type; and its flags and alternatives.
    ends, shift
        As for `place_vertices`.
    message_ends, message_shift
        The same of messages, among messages alone.
    numbers, kind, flags
        Written here, per edge: columns `SRC` to `RECORDS`, the type, and flags.
    place, of_messages, alternatives
        Written here, per message: the place of its edge, columns `CHANNEL` to `READ`, and alternatives.
    """
    run, message_run, done, placed = 0, 0, 0, 0
    vertices = pos.shape[0]
    for vertex in range(vertices + 1):
        while done < order.shape[0]:
            message = order[done]
            if vertex < vertices and messages[message, DST] >= base | pos[vertex]:
                break
            while placed >= ends[run]:
                run += 1
            at = placed + shift[run]
            for column in range(EDGE_NUMBERS):
                numbers[column, at] = messages[message, column]
            kind[at], flags[at] = message_kind[message], message_flags[message, 0]
            while done >= message_ends[message_run]:
                message_run += 1
            mine = done + message_shift[message_run]
            place[mine], alternatives[mine] = at, message_flags[message, 1]
            for column in range(EDGE_NUMBERS, MESSAGE_NUMBERS):
                of_messages[column - EDGE_NUMBERS, mine] = messages[message, column]
            placed += 1
            done += 1
        if vertex == vertices:
            break
        if edge[vertex] != NO_EDGE:
            while placed >= ends[run]:
                run += 1
            at = placed + shift[run]
            numbers[SRC, at], numbers[DST, at] = base | previous_pos, base | pos[vertex]
            numbers[SRC_EPOCH, at] = previous_epoch
            numbers[START, at], numbers[DURATION, at] = previous_t, t[vertex] - previous_t
            numbers[WHO, at], numbers[RECORDS, at] = operator[vertex], records[vertex]
            numbers[ACTIVATION, at] = base | activation[vertex] if activation[vertex] >= 0 else ABSENT
            kind[at], flags[at] = edge[vertex], edge_flags[vertex]
            placed += 1
        previous_pos, previous_t, previous_epoch = pos[vertex], t[vertex], epoch[vertex]


@kernel
def mixed_with(mixed: Any, value: int) -> Any:
    """Return a number of 64 bits with another one mixed in; differences go into all bits of it."""
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
    """
    for i in range(mixed.shape[0]):
        mixed[i] = mixed_with(mixed[i], values[i] if values[i] != ABSENT else null)


@kernel
def mix_codes(mixed: U64, values: I8, meaning: I64) -> None:
    """Mix a column of codes into one number per row, as `mix` does; `meaning` has a number per code."""
    for i in range(mixed.shape[0]):
        mixed[i] = mixed_with(mixed[i], meaning[values[i]])
