"""The edges of a window as frames: of Polars in one process, or of Spark across partitions.

Sums over edges are written once, with Narwhals, and run on both. What is left after them is small, and Polars does the
rest in this process, so that both plans end in the same numbers. `docs/analyses.md` says when that is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.graph.snapshot import can_touch, epochs_between
from pag_graph.kernels.arranging import spread
from pag_graph.model.enums import LOCAL_TYPES, ActivityType, RuleSet
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.graph.snapshot import Run, Snapshot, Window

    Frame = nw.LazyFrame[Any]

_LOCAL = [str(kind) for kind in LOCAL_TYPES]
WAITING = str(ActivityType.WAITING)
IS_LOCAL = nw.col("type").is_in(_LOCAL)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What frames of one kind need from whoever runs them."""

    edges: Callable[[pl.Expr], Frame]
    """Rows of `PAG_EDGES` out of files that can hold certain ones (`StoreInfo.parts`): at least these, at most all."""
    collect: Callable[[Frame], pl.DataFrame]
    """Run what a frame says, and bring its rows here."""
    settle: Callable[[Frame], Frame]
    """Run what a frame says, and keep its rows where they are, so that what follows does not run it again."""
    load: Callable[[pl.DataFrame], Frame]
    """Make a frame of rows that are here."""


@dataclass(frozen=True, kw_only=True)
class Frames:
    """A window whose edges stay where they are until something is asked of them."""

    run: Run
    window: Window
    engine: Engine
    snapshot: Snapshot | None = None
    """The same window, where its edges are in memory already."""

    @cached_property
    def edges(self) -> Frame:
        """Edges that the window shows any part of, as `Run.snapshot` has them."""
        if self.snapshot is not None:
            return nw.from_native(self.snapshot.edges.lazy())
        if self.run.rules is RuleSet.ST2:
            epoch = self.window.epoch or 0
            return self.engine.edges(epochs_between(epoch, epoch)).filter(nw.col("epoch") == epoch)
        window, start, finish = self.window, nw.col("start_ns"), end_ns()
        stored = self.engine.edges(can_touch(window.lowest_epoch, window.end_ns, window.after_ns))
        # Comparing plain columns first lets whole row groups be skipped.
        near = (nw.col("epoch") >= window.lowest_epoch) & (start <= window.end_ns)
        ends = nw.min_horizontal(start, finish) <= window.end_ns
        touching = stored.filter(near | (nw.col("duration_ns") < 0), ends)
        after = window.after_ns
        return touching.filter(nw.max_horizontal(start, finish) > after) if after >= 0 else touching

    @property
    def local(self) -> Frame:
        """Edges that stay on a worker, with ``worker`` and ``inside_ns``, cut at the window's borders."""
        inside = nw.col("duration_ns") if self.run.rules is RuleSet.ST2 else inside_ns(self.window)
        return self.edges.filter(IS_LOCAL).with_columns(worker=worker_of("dst"), inside_ns=inside)

    @property
    def sent(self) -> Frame:
        """Messages sent in the window, with ``from_worker`` and ``to_worker``; at the run's origin with the first."""
        messages = self.edges.filter(~IS_LOCAL)
        if self.run.rules is not RuleSet.ST2:
            messages = messages.filter(self.window.holds(nw.col("start_ns")))
        return messages.with_columns(from_worker=worker_of("src"), to_worker=worker_of("dst"))

    @property
    def ends_inside(self) -> nw.Expr:
        """Whether an edge ends in the window, as every edge does in exactly one of windows that tile the run."""
        if self.run.rules is RuleSet.ST2:
            return nw.col("src") >= 0
        inside: nw.Expr = self.window.holds(end_ns())
        return inside

    @property
    def labelled(self) -> Frame:
        """Edges that are counted for the window: those that carry its epoch; of a free window those that end in it."""
        window, run = self.window, self.run
        if window.epoch is None:
            return self.edges.filter(self.ends_inside)
        if run.rules is RuleSet.ST2:
            return self.edges
        # A row of `epochs` stands for all epochs after the row before it, the last row also for all later ones.
        known = run.epochs["epoch"].to_list()
        at = known.index(window.epoch)
        low = known[at - 1] + 1 if at else np.iinfo(np.int64).min
        high = window.epoch if at + 1 < len(known) else np.iinfo(np.int64).max
        chosen = self.engine.edges(epochs_between(low, high))
        if at:
            chosen = chosen.filter(nw.col("epoch") >= low)
        return chosen.filter(nw.col("epoch") <= high) if at + 1 < len(known) else chosen

    @property
    def enders(self) -> Frame:
        """Messages that end where one of the window's waits does; also those read after the window."""
        if self.snapshot is not None:
            return nw.from_native(self.snapshot.enders.lazy())
        waits = self.edges.filter(nw.col("type") == WAITING).select("dst")
        # Under `st2` epochs share no edge. Else no message that is read in the window has a lower epoch.
        messages = self.edges
        if self.run.rules is not RuleSet.ST2:
            lowest = self.window.lowest_epoch
            messages = self.engine.edges(pl.col("max_epoch") >= lowest).filter(nw.col("epoch") >= lowest)
        return messages.filter(~IS_LOCAL).join(waits, on="dst", how="semi")

    def until(self, end_ns: int) -> Frames:
        """Return the free window that goes on until another instant."""
        window = replace(self.window, end_ns=end_ns, end_vertex=None, epoch=None, role=None)
        return replace(self, window=window, snapshot=None)

    def collect(self, frame: Frame) -> pl.DataFrame:
        """Return the rows of a frame."""
        return self.engine.collect(frame)

    def within(self, pieces: pl.DataFrame) -> Frame:
        """Find the local edges on stretches of the workers' time.

        Parameters
        ----------
        pieces
            One row per stretch: ``src`` and ``dst``, the vertices at its ends, and whatever else is wanted beside its
            edges, under other names than theirs. A stretch that begins before the window loses nothing.

        Returns
        -------
        LazyFrame
            One row per stretch and edge on it. Stretches and edges meet in blocks of vertices of about a stretch's
            length, so that a join on equal blocks finds them.
        """
        low, high = pieces["src"].to_numpy(), pieces["dst"].to_numpy()
        mean = int(np.mean(high - low)) if pieces.height else 1
        size = 1 << max(1, mean).bit_length()
        piece, block = spread(low // size, high // size)
        stretches = pieces.rename({"src": "from_vertex", "dst": "to_vertex"})[piece]
        stretches = stretches.with_columns(block=pl.Series(block * size, dtype=pl.Int64))
        edges = self.edges.filter(IS_LOCAL).with_columns(block=nw.col("dst") - nw.col("dst") % size)
        met = edges.join(self.engine.load(stretches), on="block", how="inner")
        inside = (nw.col("dst") > nw.col("from_vertex")) & (nw.col("dst") <= nw.col("to_vertex"))
        return met.filter(inside).drop("block", "from_vertex", "to_vertex")


def frames_of(subject: Snapshot | Frames) -> Frames:
    """Return what an analysis looks at as frames; a snapshot becomes frames of Polars."""
    if isinstance(subject, Frames):
        return subject
    return Frames(run=subject.run, window=subject.window, engine=in_process(subject.run), snapshot=subject)


def polars_frames(run: Run, window: Window) -> Frames:
    """Return a window as frames of Polars, nothing read yet."""
    return Frames(run=run, window=window, engine=in_process(run))


def in_process(run: Run) -> Engine:
    """Return the engine that runs frames with Polars in this process."""
    return Engine(
        edges=lambda near: nw.from_native(run.scan("edges", near)),
        collect=lambda frame: frame.to_native().collect(),
        settle=lambda frame: nw.from_native(frame.to_native().collect().lazy()),
        load=lambda rows: nw.from_native(rows.lazy()),
    )


def worker_of(vertex: str) -> nw.Expr:
    """Return the worker of the vertex in a column."""
    # Exact, also where engines divide integers as floats: a multiple of a power of two.
    step = 1 << POSITION_BITS
    return ((nw.col(vertex) - nw.col(vertex) % step) / step).cast(nw.Int32)


def end_ns() -> nw.Expr:
    """Return when an edge ends."""
    return nw.col("start_ns") + nw.col("duration_ns")


def inside_ns(window: Window) -> nw.Expr:
    """Return how long an edge lasts inside a window."""
    return nw.min_horizontal(end_ns(), nw.lit(window.end_ns)) - nw.max_horizontal("start_ns", nw.lit(window.start_ns))


def delivered_ns(rules: RuleSet) -> nw.Expr:
    """Return what an edge took; for a message from send to read. Under `st2` negative times count nothing."""
    took = nw.col("duration_ns")
    if rules is RuleSet.ST2:
        return nw.max_horizontal(took, nw.lit(0))
    buffered = nw.when(nw.col("read") != nw.col("dst")).then(nw.col("receive_buffer_ns")).otherwise(nw.lit(0))
    return took + buffered.fill_null(0)


def rows() -> nw.Expr:
    """Count the rows of a group."""
    return nw.len().cast(nw.Int64)


def where(condition: nw.Expr, value: str) -> nw.Expr:
    """Return a column where a condition holds, and 0 elsewhere and for null."""
    return nw.when(condition).then(nw.col(value)).otherwise(nw.lit(0)).fill_null(0)
