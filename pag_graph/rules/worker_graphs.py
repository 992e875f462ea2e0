"""The graph of a slice, worker by worker, and how the parts of all workers are laid out in the order of the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pag_graph.kernels import layout, traffic
from pag_graph.model.ids import POSITION_BITS
from pag_graph.rules.graph_columns import INSERTED, Edges, Epochs, GraphColumns, Traffic, Vertices
from pag_graph.runtime.threads import each

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.rules.rows import WorkerRows

    I8 = NDArray[np.int8]
    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEdges:
    """Edges of one worker between vertices that follow each other: per vertex the one that leads to it."""

    previous: tuple[int, int, int]
    """Position, time and epoch of the vertex before the first one."""
    kind: I8
    """Place in `EDGE_TYPES`; `pag_graph.kernels.assembly.NO_EDGE` where no edge leads to a vertex."""
    operator: I64
    """That of its activation, or -1; so are the following."""
    activation: I64
    """Position of the vertex that started it."""
    records: I64
    """Records read in the activation, on its first edge."""
    flags: I8
    """Bits of `EdgeFlags`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Edges from other workers to one, in any order; vertices as ids."""

    numbers: I64
    """A row per message: the columns of `Edges.numbers` and of `Edges.of_messages`, and its epoch."""
    kind: I8
    """Place in `EDGE_TYPES`."""
    flags: I32
    """A row per message: flags and alternatives."""

    def and_one(self, numbers: I64, kind: int) -> Messages:
        """Add one more edge, without flags, after all others.

        Parameters
        ----------
        numbers
            Its row of `numbers`.
        kind
            Place of its type in `EDGE_TYPES`.

        Returns
        -------
        Messages
            New columns.
        """
        return Messages(
            numbers=np.vstack((self.numbers, numbers)),
            kind=np.append(self.kind, np.int8(kind)),
            flags=np.vstack((self.flags, np.zeros((1, 2), np.int32))),
        )

    def in_order(self) -> I64:
        """Return the order of the vertices that they end at.

        Returns
        -------
        array of int64
            Their places; those of one vertex stay as they are. O(messages log messages).
        """
        # Nearly in order: only what ended a wait stands too late.
        order: I64 = np.argsort(self.numbers[:, layout.DST], kind="stable")
        return order


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGraph:
    """The part of one worker in the graph of a slice, in its own order."""

    rows: WorkerRows
    """Rows of the worker in the slice."""
    operator: I64
    """Per row of the worker: the operator that a vertex of it has."""
    row: I32
    """Per vertex: its row, negative for an inserted one (`pag_graph.kernels.assembly`)."""
    pos: I64
    """Per vertex: position on the worker, ascending."""
    t: I64
    """Per vertex: nanoseconds since the run's origin."""
    segment: I64
    """Position of the vertex that starts its segment."""
    epoch: I64
    """Per vertex: the epoch that it carries."""
    local: LocalEdges
    """Per vertex: the edge that leads to it."""
    messages: Messages
    """What ends on the worker."""
    traffic: I64 = field(default_factory=lambda: np.empty((0, traffic.COLUMNS), np.int64))
    """What it reads, as `pag_graph.kernels.traffic.sum_reads` returns it; rules of islands count nothing."""


def lay_out(parts: Sequence[WorkerGraph], *, findings: pa.Table, dropped: dict[str, int]) -> GraphColumns:
    """Lay out the parts of all workers in the order of the store.

    Parameters
    ----------
    parts
        Workers ascending.
    findings, dropped
        As in `GraphColumns`.

    Returns
    -------
    GraphColumns
        O(rows); only messages are sorted, which nearly are.
    """
    runs = [layout.runs(part.epoch) for part in parts]
    local = [(epochs, layout.edges_in(part.local.kind, rows)) for part, (epochs, rows) in zip(parts, runs, strict=True)]
    orders = each(lambda part: part.messages.in_order(), parts)
    read = [
        layout.runs(part.messages.numbers[order, layout.DST_EPOCH]) for part, order in zip(parts, orders, strict=True)
    ]
    of_vertices, of_messages = (
        _Layout.of([[runs_of_worker] for runs_of_worker in runs_of_workers]) for runs_of_workers in (runs, read)
    )
    of_edges = _Layout.of(list(zip(local, read, strict=True)))
    vertices = Vertices.empty(of_vertices.epochs)
    edges = Edges.empty(of_edges.epochs, int(of_messages.epochs.rows.sum()))

    def place(number: int) -> None:
        part, rows = parts[number], parts[number].rows
        local, messages = part.local, part.messages
        base = rows.worker << POSITION_BITS
        layout.place_vertices(
            layout.VertexColumns(part.row, part.pos, part.t, part.segment),
            layout.Rows(rows.seq, rows.label, part.operator),
            base,
            layout.Places(of_vertices.ends[number], of_vertices.shift[number]),
            layout.VertexTable(vertices.numbers, vertices.kind, INSERTED),
        )
        layout.place_edges(
            layout.LocalColumns(
                part.pos,
                part.t,
                part.epoch,
                local.kind,
                local.operator,
                local.activation,
                local.records,
                local.flags,
            ),
            layout.Before(*local.previous, base),
            layout.MessageColumns(
                orders[number],
                messages.numbers,
                messages.kind,
                messages.flags,
                of_messages.ends[number],
                of_messages.shift[number],
            ),
            layout.Places(of_edges.ends[number], of_edges.shift[number]),
            layout.EdgeTable(
                edges.numbers, edges.kind, edges.flags, edges.place, edges.of_messages, edges.alternatives
            ),
        )

    each(place, range(len(parts)))
    return GraphColumns(
        vertices=vertices,
        edges=edges,
        findings=findings,
        traffic=Traffic.of([part.traffic for part in parts]),
        dropped=dropped,
        segments={part.rows.worker: int(part.segment[-1]) for part in parts if len(part.segment)},
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the rows of several workers belong, when epochs are laid out one after the other."""

    epochs: Epochs
    ends: list[I64]
    """Per worker and epoch of its own: the row after the last, in the worker's order."""
    shift: list[I64]
    """The same: how far behind their place lies."""

    @classmethod
    def of(cls, runs: Sequence[Sequence[tuple[I64, I64]]]) -> _Layout:
        """Lay out rows; per worker its epochs and how many rows each has, several times over for rows to be merged."""
        epochs = np.unique(
            np.concatenate([values for of_worker in runs for values, _ in of_worker] or [np.empty(0, np.int64)])
        )
        counts = np.zeros((len(runs), len(epochs)), np.int64)
        for worker, of_worker in enumerate(runs):
            for values, rows in of_worker:
                counts[worker, np.searchsorted(epochs, values)] += rows
        has_rows = counts.any(axis=0)
        epochs, counts = epochs[has_rows], counts[:, has_rows]
        ends = np.cumsum(counts, axis=1)
        shift = np.cumsum(counts.T).reshape(len(epochs), len(runs)).T - ends
        present = [np.flatnonzero(of_worker) for of_worker in counts]
        return cls(
            epochs=Epochs(epochs, counts.sum(axis=0)),
            ends=[of_worker[epochs_present] for of_worker, epochs_present in zip(ends, present, strict=True)],
            shift=[of_worker[epochs_present] for of_worker, epochs_present in zip(shift, present, strict=True)],
        )
