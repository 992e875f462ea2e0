"""What the tasks of a build do, and the files by which they tell each other.

A task reads its slice and writes what it finds: what the slice leaves over, or its rows. Nobody sees those before the
build commits them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.builder import slices
from pag_graph.builder.match import STITCHED
from pag_graph.errors import StoreError
from pag_graph.kernels import layout
from pag_graph.kernels.assembly import window_sums
from pag_graph.model.enums import ActivityType, EventKind, VertexKind
from pag_graph.rules.rows import EDGE_CODES
from pag_graph.runtime.threads import each
from pag_graph.store.in_place import refused
from pag_graph.store.parts import PartFile, write_part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.builder.epochs import Windows
    from pag_graph.builder.plan import RunPlan, Slice
    from pag_graph.rules.graph_columns import Edges, Epochs, GraphColumns, Vertices
    from pag_graph.rules.rows import Stack

    I64 = NDArray[np.int64]

_FILE_ROWS = 1_000_000
"""Rows of a file, about; those of a slice are written at the same time."""
_WORDS = {str(word): code for code, word in enumerate((*ActivityType, *EventKind, *VertexKind))}
_HELD_ROWS = 500_000
"""Leftovers that are held in memory before they are written, about."""
_LEFT = ("sends", "receives", "stitched")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a task wrote and counted."""

    parts: dict[str, list[PartFile]]
    vertices: I64
    edges: I64
    waiting_ns: I64
    unknown_ns: I64
    findings: pa.Table
    dropped: dict[str, int]
    closed: int = 0
    """Fingerprint of its rows of closed epochs."""
    kept: int = 0
    """The same of the epochs that the store had before, for an append."""
    epochs: pl.DataFrame | None = None
    """For rule sets without windows: one row per epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a slice was made into, as far as it can be told without the windows of the run."""

    parts: dict[str, list[PartFile]]
    vertices: Epochs
    edges: Epochs
    waiting: tuple[I64, I64]
    """Start and duration of each wait."""
    unknown: tuple[I64, I64]
    findings: pa.Table
    dropped: dict[str, int]
    closed: int
    kept: int

    def output(self, span: Windows) -> Output:
        """Count rows and sum times window by window."""
        vertices, edges = (np.zeros(len(span.epoch), np.int64) for _ in range(2))
        for sums, carried in ((vertices, self.vertices), (edges, self.edges)):
            np.add.at(sums, span.index_of(carried.epoch), carried.rows)
        waiting, unknown = (
            np.asarray(window_sums(start, start + duration, span.bounds))
            for start, duration in (self.waiting, self.unknown)
        )
        return Output(
            parts=self.parts,
            vertices=vertices,
            edges=edges,
            waiting_ns=waiting,
            unknown_ns=unknown,
            findings=self.findings,
            dropped=self.dropped,
            closed=self.closed,
            kept=self.kept,
        )


class Open:
    """What is open where slices end, added up in their order."""

    def __init__(self) -> None:
        self.tails: dict[int, slices.Tail] = {}
        self.segments: dict[int, int] = {}
        self.applications: dict[int, Stack] = {}
        self.activities: dict[int, Stack] = {}

    def carry(self) -> slices.Carry:
        """Return what is open where the next slice begins."""
        return slices.Carry(
            tails=dict(self.tails),
            segments=dict(self.segments),
            applications=dict(self.applications),
            activities=dict(self.activities),
        )

    def add(self, found: slices.Scan, segments: Mapping[int, int]) -> None:
        """Add a slice, and which segments are open where it ends, if others than before."""
        self.tails.update(found.tails)
        self.segments.update(segments)
        slices.add_open(self.applications, found.applications)
        slices.add_open(self.activities, found.activities)


def make_folders(staging: Path) -> None:
    """Make the folders of what slices leave over and of what is found for it."""
    for name in _LEFT:
        (staging / name).mkdir(parents=True, exist_ok=True)


class Leftovers:
    """What slices leave over, for the join of all slices; the files hold many slices where those leave little."""

    def __init__(self, staging: Path, first: int) -> None:
        """Begin with slice `first`; nobody else begins with the same."""
        self._staging, self._first, self._written = staging, first, 0
        self._held: dict[str, list[pl.DataFrame]] = {"sends": [], "receives": []}

    def add(self, found: slices.Scan) -> slices.Scan:
        """Add a slice; only its counters are returned."""
        self._held["sends"].append(found.sends)
        self._held["receives"].append(found.receives)
        if sum(left.height for held in self._held.values() for left in held) > _HELD_ROWS:
            self.write()
        return replace(found, sends=found.sends.clear(), receives=found.receives.clear())

    def write(self) -> None:
        """Write what is held."""
        for name, held in self._held.items():
            left = pl.concat(held) if held else pl.DataFrame()
            if left.height:
                file = self._staging / name / f"slice-{self._first:06}-{self._written:06}.parquet"
                write_left(left, file)
            held.clear()
        self._written += 1


def write_left(left: pl.DataFrame, file: Path) -> None:
    """Write rows to the staging folder.

    Raises
    ------
    StoreError
        If the file system refuses.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    try:
        # Read once and thrown away: to pack it takes longer than to write it.
        left.write_parquet(file, compression="uncompressed")
    except (OSError, pl.exceptions.ComputeError) as error:
        raise refused(file, "", error, StoreError) from error


def undecided(found: slices.Scan, part: Slice, last: Mapping[int, int]) -> bool:
    """Say whether a slice ends where the next one of a worker cannot be understood without it.

    `last` has the number of each worker's last slice. A worker without a tail has no vertex in the slice: the next one
    would not know where its time begins.
    """
    return any(
        part.number < last[worker] and (worker not in found.tails or found.tails[worker].depth > 0)
        for worker in part.rows
    )


def scan_slice(plan: RunPlan, staging: Path, part: Slice) -> slices.Scan:
    """Read a slice, and summarise what of it reaches beyond it."""
    read = slices.read_slice(plan, part, whole=False)
    left = Leftovers(staging, part.number)
    found = left.add(slices.scan(plan, part, read))
    left.write()
    return found


def left_files(staging: Path, name: str) -> list[Path]:
    """Return the files of what slices left over, ``sends`` or ``receives``, or what was ``stitched``."""
    return sorted((staging / name).glob("*.parquet"))


def leftovers(staging: Path, name: str, schema: Any) -> pl.LazyFrame:
    """Return the rows of `left_files`."""
    files = left_files(staging, name)
    return pl.scan_parquet(files, glob=False, hive_partitioning=False) if files else pl.LazyFrame(schema=schema)


def stitched(staging: Path) -> pl.LazyFrame:
    """Return the rows of `builder.match.stitch` of all slices."""
    return leftovers(staging, "stitched", dict.fromkeys(STITCHED, pl.Int64))


def _with_stitched(staging: Path, part: Slice, carry: slices.Carry) -> slices.Carry:
    mine = stitched(staging).filter(pl.col("slice") == part.number).collect()
    return replace(carry, stitched=mine)


def segments(plan: RunPlan, staging: Path, item: tuple[Slice, slices.Carry]) -> dict[int, int]:
    """Read a slice, and say which segment is open where it ends (`builder.slices.last_segments`)."""
    part, carry = item
    return slices.last_segments(plan, _with_stitched(staging, part, carry), slices.read_slice(plan, part, whole=False))


def assemble(
    plan: RunPlan,
    target: Path | None,
    staging: Path,
    span: Windows,
    after: int | None,
    read: slices.SliceRows | None,
    item: tuple[Slice, slices.Carry],
) -> Output:
    """Make the vertices and edges of a slice, and write them; it is read where that has not been done."""
    part, carry = item
    rows = slices.read_slice(plan, part) if read is None else read
    graph = slices.assemble(plan, _with_stitched(staging, part, carry), rows, open_epoch=span.last_left + 1)
    del rows
    return write_graph(graph, target, last_closed=span.last_closed, after=after).output(span)


def write_graph(graph: GraphColumns, target: Path | None, *, last_closed: int, after: int | None) -> Made:
    """Write a slice's rows.

    Parameters
    ----------
    graph
        The rows.
    target
        The store; None writes nothing.
    last_closed
        The last epoch that is closed; rows of open ones are written apart, for an append to take their place.
    after
        The last epoch whose rows the store has.

    Returns
    -------
    Made
        O(rows).
    """
    # Only what is committed is ever compared with what comes later.
    ends = (last_closed, -1 if after is None else after)
    closed, kept = (_fingerprint(graph, epoch) if target is not None else 0 for epoch in ends)
    return Made(
        parts=write_rows(graph, target, last_closed=last_closed, after=after),
        vertices=graph.vertices.epochs,
        edges=graph.edges.epochs,
        waiting=_times(graph, ActivityType.WAITING),
        unknown=_times(graph, ActivityType.UNKNOWN),
        findings=graph.findings,
        dropped=graph.dropped,
        closed=closed,
        kept=kept,
    )


def _fingerprint(graph: GraphColumns, last_epoch: int) -> int:
    """Return a number that depends on all rows up to an epoch and not on their order; those of slices add up."""
    return sum(table.fingerprint(table.epochs.before(last_epoch), _WORDS) for table in (graph.vertices, graph.edges))


def _times(graph: GraphColumns, kind: ActivityType) -> tuple[I64, I64]:
    at = np.flatnonzero(graph.edges.kind == EDGE_CODES[kind])
    return graph.edges.numbers[layout.START, at], graph.edges.numbers[layout.DURATION, at]


def write_rows(
    graph: GraphColumns, target: Path | None, *, last_closed: int, after: int | None
) -> dict[str, list[PartFile]]:
    """Write the rows of `write_graph`, and return their files."""
    if target is None:
        return {}
    files: list[tuple[str, Vertices | Edges, int, int, bool]] = []
    for name, table in (("vertices", graph.vertices), ("edges", graph.edges)):
        closed = table.epochs.before(last_closed)
        first = 0 if after is None else table.epochs.before(after)
        for low, high, provisional in ((first, closed, False), (max(first, closed), table.rows, True)):
            bounds = [low, *range(low + _FILE_ROWS, high - _FILE_ROWS // 2, _FILE_ROWS), max(low, high)]
            files += [(name, table, a, b, provisional) for a, b in pairwise(bounds)]

    def write(file: tuple[str, Vertices | Edges, int, int, bool]) -> PartFile | None:
        name, table, low, high, provisional = file
        return write_part(target, name, table.table(low, high), provisional=provisional) if low < high else None

    parts: dict[str, list[PartFile]] = {"vertices": [], "edges": []}
    # The largest first, so that all cores are done at about the same time.
    files.sort(key=lambda file: file[2] - file[3])
    for (name, *_), part in zip(files, each(write, files), strict=True):
        if part is not None:
            parts[name].append(part)
    return parts
