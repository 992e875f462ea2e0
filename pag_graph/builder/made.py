"""What became of slices: their files, and the counts that the windows of the run are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pag_graph.builder.epochs import epochs_table
from pag_graph.kernels import layout
from pag_graph.kernels.assembly import window_sums
from pag_graph.model.enums import ActivityType
from pag_graph.rules.rows import EDGE_CODES
from pag_graph.store.contents import SLICED
from pag_graph.store.findings import no_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.builder.epochs import Closed, Windows
    from pag_graph.builder.plan import RunPlan
    from pag_graph.builder.sink import Written
    from pag_graph.builder.state import Life
    from pag_graph.rules.graph_columns import GraphColumns
    from pag_graph.store.parts import PartFile

    I64 = NDArray[np.int64]
    U64 = NDArray[np.uint64]


class Counts(NamedTuple):
    """Rows per epoch that they carry: one element per epoch, ascending."""

    epoch: I64
    """The epoch."""
    vertices: I64
    """Its rows of the table of vertices."""
    edges: I64
    """Its rows of the table of edges."""
    prints: U64
    """A sum of numbers, modulo 2^64, that each depend on one of these rows."""

    @classmethod
    def of(cls, graph: GraphColumns, prints: U64) -> Counts:
        """Count the rows of a slice.

        Parameters
        ----------
        graph
            Rows of a slice.
        prints
            As of `Written`; empty where nobody made them.

        Returns
        -------
        Counts
            One element per epoch.
        """
        tables = graph.vertices.epochs, graph.edges.epochs
        epoch = np.concatenate([table.epoch for table in tables])
        rows = np.zeros((2, len(epoch)), np.int64)
        rows[0, : len(tables[0].epoch)], rows[1, len(tables[0].epoch) :] = (table.rows for table in tables)
        return cls(epoch, rows[0], rows[1], prints if len(prints) else np.zeros(len(epoch), np.uint64)).merged()

    @classmethod
    def sum(cls, parts: Sequence[Counts]) -> Counts:
        """Add up the counts of slices.

        Parameters
        ----------
        parts
            At least one.

        Returns
        -------
        Counts
            One element per epoch. O(n log n).
        """
        return cls(
            epoch=np.concatenate([part.epoch for part in parts]),
            vertices=np.concatenate([part.vertices for part in parts]),
            edges=np.concatenate([part.edges for part in parts]),
            prints=np.concatenate([part.prints for part in parts]),
        ).merged()

    def merged(self) -> Counts:
        """Return one element per epoch.

        Returns
        -------
        Counts
            Those of equal epochs added up, ascending.
        """
        epoch, place = np.unique(self.epoch, return_inverse=True)
        vertices, edges = (np.zeros(len(epoch), np.int64) for _ in range(2))
        prints = np.zeros(len(epoch), np.uint64)
        np.add.at(vertices, place, self.vertices)
        np.add.at(edges, place, self.edges)
        np.add.at(prints, place, self.prints)
        return Counts(epoch, vertices, edges, prints)

    def after(self, last: int) -> Counts:
        """Return those of later epochs than `last`.

        Parameters
        ----------
        last
            An epoch.

        Returns
        -------
        Counts
            Those of later epochs.
        """
        first = int(np.searchsorted(self.epoch, last, side="right"))
        return Counts(self.epoch[first:], self.vertices[first:], self.edges[first:], self.prints[first:])

    def fingerprint(self, last: int) -> int:
        """Return a number that depends on all rows of epochs up to `last`.

        Parameters
        ----------
        last
            An epoch.

        Returns
        -------
        int
            Below 2^64; it does not depend on the order of rows.
        """
        return int(self.prints[: np.searchsorted(self.epoch, last, side="right")].sum(dtype=np.uint64))


_EMPTY = np.empty(0, np.int64)
NOTHING_COUNTED = Counts(_EMPTY, _EMPTY, _EMPTY, np.empty(0, np.uint64))


class Times(NamedTuple):
    """Stretches of time, one element each, in nanoseconds."""

    start: I64
    """Since the run's origin."""
    duration: I64
    """How long it is."""

    @classmethod
    def of(cls, graph: GraphColumns, kind: ActivityType) -> Times:
        """Return the edges of one type in a slice.

        Parameters
        ----------
        graph
            Rows of a slice.
        kind
            A type of local edges.

        Returns
        -------
        Times
            One element per edge.
        """
        edges = np.flatnonzero(graph.edges.kind == EDGE_CODES[kind])
        return cls(graph.edges.numbers[layout.START, edges], graph.edges.numbers[layout.DURATION, edges])

    @classmethod
    def sum(cls, parts: Sequence[Times]) -> Times:
        """Put those of slices together.

        Parameters
        ----------
        parts
            At least one.

        Returns
        -------
        Times
            All of them.
        """
        return cls(*(np.concatenate([part[place] for part in parts]) for place in range(2)))

    def inside(self, bounds: I64) -> I64:
        """Return how much of them lies in each window.

        Parameters
        ----------
        bounds
            Window i lies between bounds i and i + 1 (ns).

        Returns
        -------
        array of int64
            Per window: nanoseconds, summed.
        """
        return np.asarray(window_sums(self.start, self.start + self.duration, bounds))

    def after(self, t: int) -> Times:
        """Return those that end later than `t`.

        Parameters
        ----------
        t
            Nanoseconds since the run's origin.

        Returns
        -------
        Times
            Those that end later.
        """
        later = self.start + self.duration > t
        return Times(self.start[later], self.duration[later])


NO_TIMES = Times(_EMPTY, _EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """What became of one slice, or of several."""

    counts: Counts = NOTHING_COUNTED
    """Rows per epoch."""
    waiting: Times = NO_TIMES
    """Edges of the type `waiting`."""
    unknown: Times = NO_TIMES
    """Edges of the type `unknown`."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Events that became no vertex, by reason."""
    parts: Mapping[str, Sequence[PartFile]] = field(default_factory=dict)
    """Files per table."""
    findings: pa.Table = field(default_factory=no_findings)
    """Rows of `PAG_FINDINGS`."""
    lost: pa.Table = field(default_factory=no_findings)
    """Findings about reads without a send."""
    stitched: int = 0
    """Reads of messages from other slices."""

    @classmethod
    def of(cls, graph: GraphColumns, written: Written, *, stitched: int = 0) -> SliceResult:
        """Say what became of a slice.

        Parameters
        ----------
        graph
            Rows of the slice.
        written
            What a sink made of them.
        stitched
            Reads of messages from other slices.

        Returns
        -------
        SliceResult
            Without findings about reads that lack a send.
        """
        return cls(
            counts=Counts.of(graph, written.prints),
            waiting=Times.of(graph, ActivityType.WAITING),
            unknown=Times.of(graph, ActivityType.UNKNOWN),
            dropped=graph.dropped,
            parts=written.parts,
            findings=graph.findings,
            stitched=stitched,
        )

    @classmethod
    def sum(cls, parts: Iterable[SliceResult]) -> SliceResult:
        """Add up what became of slices, in their order.

        Parameters
        ----------
        parts
            In the order of slices.

        Returns
        -------
        SliceResult
            Also of none.
        """
        slice_results = [cls(), *parts]
        dropped: dict[str, int] = {}
        for slice_result in slice_results:
            for reason, count in slice_result.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + count
        return cls(
            counts=Counts.sum([slice_result.counts for slice_result in slice_results]),
            waiting=Times.sum([slice_result.waiting for slice_result in slice_results]),
            unknown=Times.sum([slice_result.unknown for slice_result in slice_results]),
            dropped=dropped,
            parts={
                name: [part for slice_result in slice_results for part in slice_result.parts.get(name, ())]
                for name in SLICED
            },
            findings=pa.concat_tables([slice_result.findings for slice_result in slice_results]),
            lost=pa.concat_tables([slice_result.lost for slice_result in slice_results]),
            stitched=sum(slice_result.stitched for slice_result in slice_results),
        )

    def after(self, closed: Closed) -> SliceResult:
        """Return what the windows behind closed epochs need.

        Parameters
        ----------
        closed
            Epochs that are closed for good.

        Returns
        -------
        SliceResult
            Counts and times alone.
        """
        return SliceResult(
            counts=self.counts.after(closed.last),
            waiting=self.waiting.after(closed.end_ns),
            unknown=self.unknown.after(closed.end_ns),
            dropped=self.dropped,
        )

    def epochs(self, plan: RunPlan, span: Windows, lives: Mapping[int, Life]) -> pa.Table:
        """Return what windows make of it.

        Parameters
        ----------
        plan
            The build.
        span
            The windows.
        lives
            Workers that come or go while the run lasts.

        Returns
        -------
        Table
            Rows of `PAG_EPOCHS`, one per window, in time order.
        """
        vertices, edges = (np.zeros(len(span.epoch), np.int64) for _ in range(2))
        for sums, rows in ((vertices, self.counts.vertices), (edges, self.counts.edges)):
            np.add.at(sums, span.index_of(self.counts.epoch), rows)
        worker_lives = [lives.get(worker) for worker in plan.workers]
        begin = np.array([life.begin_ns if life else 0 for life in worker_lives], np.int64)
        end = [plan.end_ns if life is None or life.exit_ns is None else life.exit_ns for life in worker_lives]
        return epochs_table(
            span,
            alive_ns=np.asarray(window_sums(begin, np.array(end, np.int64), span.bounds)),
            vertices=vertices,
            edges=edges,
            waiting_ns=self.waiting.inside(span.bounds),
            unknown_ns=self.unknown.inside(span.bounds),
        )
