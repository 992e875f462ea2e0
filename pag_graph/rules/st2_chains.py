"""The rules of SnailTrail 2: which events become vertices, in which order, and the edges between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels import ABSENT
from pag_graph.kernels.activations import PROGRESS_RECEIVE, PROGRESS_SEND, RECEIVE, SEND, START, STOP
from pag_graph.kernels.assembly import NO_EDGE
from pag_graph.model.enums import ActivityType
from pag_graph.rules.rows import EDGE_CODES, KINDS, WorkerRows
from pag_graph.rules.worker_graphs import LocalEdges

if TYPE_CHECKING:
    import pyarrow as pa

_I8 = NDArray[np.int8]
_I64 = NDArray[np.int64]
_Bool = NDArray[np.bool_]

_SPINNING, _PROCESSING, _BUSY, _WAITING = (
    EDGE_CODES[kind]
    for kind in (ActivityType.SPINNING, ActivityType.PROCESSING, ActivityType.BUSY, ActivityType.WAITING)
)
_OTHER = PROGRESS_RECEIVE + 1
"""Kinds from here on are none that SnailTrail 2 knows."""


class Order(NamedTuple):
    """Events of one worker that become vertices, in the order of their vertices."""

    source: _I64
    """Row of the event."""
    slot: _I64
    """Row whose place it takes; differs where a receive moved."""
    t_ns: _I64
    """Its time, which a receive that moved has from the row that it overtook."""
    records: _I64
    """Records; of a stop that states none, what its activation received."""


class Chain(NamedTuple):
    """Vertices of one worker by their positions, and per vertex the edge that leads to it from the one before."""

    pos: _I64
    """Position on the worker."""
    segment: _I64
    """Position of the vertex that starts its segment."""
    epoch: _I64
    """The epoch that it carries."""
    kind: _I8
    """Place of the edge's type in `EDGE_TYPES`, or `NO_EDGE`."""
    operator: _I64
    """Of the edge, or `ABSENT`; so are the following."""
    activation: _I64
    """Position of the start that it leads from, if it leads to the stop."""
    records: _I64
    """Records of the stop that it leads to."""

    def edges(self) -> LocalEdges:
        """Return the edges.

        Returns
        -------
        LocalEdges
            Per vertex, over the same memory.
        """
        return LocalEdges(
            previous=(ABSENT, ABSENT, ABSENT),
            kind=self.kind,
            operator=self.operator,
            activation=self.activation,
            records=self.records,
            flags=np.zeros(len(self.kind), np.int8),
        )


class Part(NamedTuple):
    """The part of one worker."""

    rows: WorkerRows
    """Rows of the worker."""
    order: Order
    """Which of them become vertices."""
    chain: Chain
    """The vertices."""


REASONS = (*(str(kind) for kind in KINDS), "local_message", "own_progress", "enclosing_scope")
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


def _keep_order(rows: WorkerRows, is_kept: _Bool) -> Order:
    rows_kept = np.flatnonzero(is_kept)
    return Order(source=rows_kept, slot=rows_kept, t_ns=rows.t[rows_kept], records=rows.records[rows_kept])


@numba.njit(cache=True, nogil=True)
def _prepare(epoch: _I64, t_ns: _I64, code: _I8, operator: _I64, records: _I64, is_kept: _Bool) -> Order:
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
    return Order(source[:count], slot[:count], time[:count], size[:count])


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
) -> Chain:
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
    return Chain(pos, segment, epochs, kind, operators, activation, size)


def scopes_of(operators: pa.Table) -> _I64:
    """Return the operators that contain others.

    Parameters
    ----------
    operators
        Rows of `TRACE_OPERATORS`.

    Returns
    -------
    array of int64
        Their numbers, ascending: those whose address is another one's without its last part.
    """
    return np.sort(_scopes(operators))


def chained(log: WorkerRows, scopes: _I64, *, prepared: bool) -> tuple[Part, _I64]:
    """Make the vertices of one worker, and the edges between them.

    Parameters
    ----------
    log
        Rows of the worker: all events of some epochs.
    scopes
        Operators that contain others, ascending.
    prepared
        Whether rows were removed and moved already.

    Returns
    -------
    part
        O(rows).
    counts
        How many rows become no vertex, per element of `REASONS`.
    """
    is_kept, counts = _keep(log.kind, log.label, log.peer, log.operator, log.worker, scopes, len(REASONS))
    order = (
        _keep_order(log, is_kept)
        if prepared
        else _prepare(log.epoch, log.t, log.kind, log.operator, log.records, is_kept)
    )
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
    return Part(log, order, chain), counts
