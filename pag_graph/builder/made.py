"""What became of slices: their files, and the counts that the windows of the run are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from pag_graph.builder.epochs import epochs_table
from pag_graph.kernels import layout
from pag_graph.kernels.assembly import window_sums
from pag_graph.model.enums import ActivityType, EventKind, VertexKind
from pag_graph.rules.rows import EDGE_CODES
from pag_graph.runtime.threads import each
from pag_graph.store.contents import SLICED
from pag_graph.store.findings import no_findings
from pag_graph.store.parts import PartFile, as_provisional, discard, write_part
from pag_graph.store.state_files import read_sends, write_sends

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pag_graph.builder.epochs import Closed, Windows
    from pag_graph.builder.plan import RunPlan
    from pag_graph.builder.state import Life
    from pag_graph.rules.graph_columns import Edges, GraphColumns, Traffic, Vertices

    I64 = NDArray[np.int64]
    U64 = NDArray[np.uint64]

_FILE_ROWS = 1_000_000
"""Rows of a file, about; those of a slice are written at the same time."""
_WORDS = {str(word): code for code, word in enumerate((*ActivityType, *EventKind, *VertexKind))}


class Written(NamedTuple):
    """What a sink made of a slice."""

    parts: dict[str, list[PartFile]]
    """Files per table."""
    prints: U64
    """A number per epoch of the vertices, and then of the edges, that depends on all their rows; empty where nobody
    asks later what was written."""


class Sink(Protocol):
    """Where the rows of slices go."""

    def write(self, graph: GraphColumns, *, provisional: bool, prints: bool = True) -> Written:
        """Take the rows of a slice; `provisional` ones an append replaces, and asks for the `prints` of all."""
        ...

    def discard(self, parts: Mapping[str, Sequence[PartFile]]) -> None:
        """Take back what was written."""
        ...

    def reopen(self, parts: Mapping[str, Sequence[PartFile]]) -> dict[str, list[PartFile]]:
        """Make what was written provisional after all; return its files."""
        ...

    def write_sends(self, sends: pa.Table) -> str:
        """Take sends that nobody has read for long; return what to ask for them by."""
        ...

    def read_sends(self, name: str) -> pa.Table:
        """Return them."""
        ...


class StoreSink:
    """Writes rows to the tables of a store; nobody sees them before they are committed.

    Parameters
    ----------
    store
        Directory.
    """

    def __init__(self, store: Path) -> None:
        self.store = store

    def write_sends(self, sends: pa.Table) -> str:
        """Write sends into a file of their own (`Sink.write_sends`)."""
        return write_sends(self.store, sends)

    def read_sends(self, name: str) -> pa.Table:
        """Read such a file (`Sink.read_sends`)."""
        return read_sends(self.store, name)

    def write(self, graph: GraphColumns, *, provisional: bool, prints: bool = True) -> Written:
        """Write the rows of a slice, sorted by epoch and id, in files of about the same size."""
        files: list[tuple[str, Vertices | Edges | Traffic, int, int]] = []
        tables: tuple[Vertices | Edges | Traffic, ...] = (graph.vertices, graph.edges, graph.traffic)
        for name, table in zip(SLICED, tables, strict=True):
            bounds = [0, *range(_FILE_ROWS, table.rows - _FILE_ROWS // 2, _FILE_ROWS), table.rows]
            files += [(name, table, low, high) for low, high in pairwise(bounds) if low < high]

        def write(file: tuple[str, Vertices | Edges | Traffic, int, int]) -> PartFile | None:
            name, table, low, high = file
            return write_part(self.store, name, table.table(low, high), provisional=provisional)

        parts: dict[str, list[PartFile]] = {name: [] for name in SLICED}
        # The largest first, so that all cores are done at about the same time.
        files.sort(key=lambda file: file[2] - file[3])
        for (name, *_), part in zip(files, each(write, files), strict=True):
            if part is not None:
                parts[name].append(part)
        if not prints:
            return Written(parts, np.empty(0, np.uint64))
        return Written(parts, np.concatenate([table.fingerprints(_WORDS) for table in (graph.vertices, graph.edges)]))

    def discard(self, parts: Mapping[str, Sequence[PartFile]]) -> None:
        """Delete files."""
        for name, files in parts.items():
            discard(self.store, name, files)

    def reopen(self, parts: Mapping[str, Sequence[PartFile]]) -> dict[str, list[PartFile]]:
        """Rename files (`Sink.reopen`)."""
        return {name: [as_provisional(self.store, name, part) for part in files] for name, files in parts.items()}


class Counts(NamedTuple):
    """Rows per epoch that they carry, epochs ascending."""

    epoch: I64
    vertices: I64
    edges: I64
    prints: U64

    @classmethod
    def of(cls, graph: GraphColumns, prints: U64) -> Counts:
        """Count the rows of a slice."""
        tables = graph.vertices.epochs, graph.edges.epochs
        epoch = np.concatenate([table.epoch for table in tables])
        rows = np.zeros((2, len(epoch)), np.int64)
        rows[0, : len(tables[0].epoch)], rows[1, len(tables[0].epoch) :] = (table.rows for table in tables)
        return cls(epoch, rows[0], rows[1], prints if len(prints) else np.zeros(len(epoch), np.uint64)).merged()

    @classmethod
    def sum(cls, parts: Sequence[Counts]) -> Counts:
        """Add up the counts of slices."""
        return cls(
            epoch=np.concatenate([part.epoch for part in parts]),
            vertices=np.concatenate([part.vertices for part in parts]),
            edges=np.concatenate([part.edges for part in parts]),
            prints=np.concatenate([part.prints for part in parts]),
        ).merged()

    def merged(self) -> Counts:
        """Return one element per epoch."""
        epoch, place = np.unique(self.epoch, return_inverse=True)
        vertices, edges = (np.zeros(len(epoch), np.int64) for _ in range(2))
        prints = np.zeros(len(epoch), np.uint64)
        np.add.at(vertices, place, self.vertices)
        np.add.at(edges, place, self.edges)
        np.add.at(prints, place, self.prints)
        return Counts(epoch, vertices, edges, prints)

    def after(self, last: int) -> Counts:
        """Return those of later epochs than `last`."""
        first = int(np.searchsorted(self.epoch, last, side="right"))
        return Counts(self.epoch[first:], self.vertices[first:], self.edges[first:], self.prints[first:])

    def fingerprint(self, last: int) -> int:
        """Return a number that depends on all rows of epochs up to `last`."""
        return int(self.prints[: np.searchsorted(self.epoch, last, side="right")].sum(dtype=np.uint64))


_EMPTY = np.empty(0, np.int64)
NOTHING_COUNTED = Counts(_EMPTY, _EMPTY, _EMPTY, np.empty(0, np.uint64))


class Times(NamedTuple):
    """Stretches of time."""

    start: I64
    duration: I64

    @classmethod
    def of(cls, graph: GraphColumns, kind: ActivityType) -> Times:
        """Return the edges of one type in a slice."""
        edges = np.flatnonzero(graph.edges.kind == EDGE_CODES[kind])
        return cls(graph.edges.numbers[layout.START, edges], graph.edges.numbers[layout.DURATION, edges])

    @classmethod
    def sum(cls, parts: Sequence[Times]) -> Times:
        """Put those of slices together."""
        return cls(*(np.concatenate([part[place] for part in parts]) for place in range(2)))

    def inside(self, bounds: I64) -> I64:
        """Return how much of them lies in each window."""
        return np.asarray(window_sums(self.start, self.start + self.duration, bounds))

    def after(self, t: int) -> Times:
        """Return those that end later than `t`."""
        later = self.start + self.duration > t
        return Times(self.start[later], self.duration[later])


NO_TIMES = Times(_EMPTY, _EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """What became of one slice, or of several."""

    counts: Counts = NOTHING_COUNTED
    waiting: Times = NO_TIMES
    unknown: Times = NO_TIMES
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Events that became no vertex, by reason."""
    parts: Mapping[str, Sequence[PartFile]] = field(default_factory=dict)
    """Files per table."""
    findings: pa.Table = field(default_factory=no_findings)
    lost: pa.Table = field(default_factory=no_findings)
    """Findings about reads without a send."""
    stitched: int = 0
    """Reads of messages from other slices."""

    @classmethod
    def of(cls, graph: GraphColumns, written: Written, *, stitched: int = 0) -> SliceResult:
        """Say what became of a slice."""
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
        """Add up what became of slices, in their order."""
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
        """Return what of the counts the windows behind closed epochs need."""
        return SliceResult(
            counts=self.counts.after(closed.last),
            waiting=self.waiting.after(closed.end_ns),
            unknown=self.unknown.after(closed.end_ns),
            dropped=self.dropped,
        )

    def epochs(self, plan: RunPlan, span: Windows, lives: Mapping[int, Life]) -> pa.Table:
        """Return the rows of `PAG_EPOCHS` that windows make of it."""
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
