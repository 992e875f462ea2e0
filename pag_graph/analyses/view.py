"""What an analysis looks at: some windows of a run, as blocks of edges or as frames.

A single window is a view of one. Kernels walk blocks; sums are written with Narwhals over frames. Both are of the edges
in memory, unless the view is spread: then its one window is too large for a task, its edges stay where they are, on
Spark across partitions, and only sums and what is left of them come here. `docs/analyses.md` says when that is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.graph.membership import can_touch, epochs_between, epochs_of, labels, members
from pag_graph.graph.snapshot import Snapshot, read_together
from pag_graph.graph.tiling import read_tiling, scan_near, tile
from pag_graph.model.enums import LOCAL_TYPES, ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.runtime import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.graph.membership import Belongs
    from pag_graph.graph.run import Run
    from pag_graph.graph.tiling import Tiling
    from pag_graph.graph.window import Window

    Frame = nw.LazyFrame[Any]
    I64 = NDArray[np.int64]

_LOCAL = [str(kind) for kind in LOCAL_TYPES]
WAITING = str(ActivityType.WAITING)
IS_LOCAL = nw.col("type").is_in(_LOCAL)
_BORDERS = ("start_ns", "end_ns", "after_ns")
_SPANS = ("window", "span_ns")
_LABELLED = ("src", "dst", "type", "epoch", "start_ns", "duration_ns")
_PART = 100_000
"""Edges for which another thread is worth its calls."""


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
class View:
    """Windows of a run that an analysis looks at together; nothing is read until something is asked of them.

    Every frame has the column ``window``: the place of an edge's window.
    """

    run: Run
    """The run that they are of."""
    windows: Sequence[Window]
    """In time order; they may overlap. Where epochs are islands, those of epochs, in any order."""
    spread: Engine | None = None
    """Who runs the frames of a window whose edges do not come into this process."""
    snapshot: Snapshot | None = None
    """What the windows show, where it is in memory already."""

    @property
    def window(self) -> Window:
        """The window of a view of one."""
        [window] = self.windows
        return window

    @cached_property
    def shown(self) -> Snapshot:
        """What the windows show together, in memory."""
        return self.snapshot or read_together(self.run, self.windows)

    @cached_property
    def engine(self) -> Engine:
        """Who runs the frames."""
        return self.spread or in_process(self.run)

    @property
    def spans(self) -> pl.DataFrame:
        """One row per window: the place of the ``window``, and its ``span_ns``, at least 1: a share of nothing is 0."""
        spans = [window.span_ns or 1 for window in self.windows]
        return pl.DataFrame({"window": range(len(spans)), "span_ns": spans}, schema=dict.fromkeys(_SPANS, pl.Int64))

    def borders(self, name: str) -> I64:
        """Return a border of each window.

        Parameters
        ----------
        name
            ``start_ns``, ``end_ns`` or ``after_ns``.

        Returns
        -------
        array of int64
            Per window: nanoseconds since the run's origin.
        """
        return np.array([getattr(window, name) for window in self.windows], np.int64)

    def blocks(self, belongs: Belongs, columns: Sequence[str], windows: Sequence[Window] | None = None) -> Tiling:
        """Return the edges as kernels walk them.

        Parameters
        ----------
        belongs
            Which edges belong to a window.
        columns
            Columns of `PAG_EDGES` that are needed; there may be more.
        windows
            Some of the windows; all where absent.

        Returns
        -------
        Tiling
            A block of edges for each window.
        """
        windows = self.windows if windows is None else windows
        loaded: Snapshot | None = self.snapshot or self.__dict__.get("shown")
        if loaded is None or belongs == "labels":
            # Edges with a window's label may lie outside of the snapshot.
            return read_tiling(self.run, windows, columns, belongs)
        alone = belongs == "touches" and list(windows) == [loaded.window]
        return loaded.tiling if alone else tile(loaded, belongs, windows)

    def over(
        self, belongs: Belongs, columns: Sequence[str], rows: Callable[[Tiling], pl.DataFrame], schema: pa.Schema
    ) -> pl.DataFrame:
        """Make rows of the edges in blocks, several threads at a time.

        Parameters
        ----------
        belongs, columns
            As for `blocks`. A window without length touches nothing.
        rows
            Makes rows of some of the windows, with the place of their ``window`` among these.
        schema
            What the rows have.

        Returns
        -------
        DataFrame
            The rows of all windows in their order, with the place of their ``window`` in this view.
        """
        shown = [place for place, window in enumerate(self.windows) if belongs != "touches" or window.span_ns > 0]
        if not shown:
            return pl.DataFrame(pl.from_arrow(schema.empty_table())).with_columns(window=pl.lit(0, pl.Int64))
        tiling = self.blocks(belongs, columns, [self.windows[place] for place in shown])
        parts = tiling.parts(max(_PART, -(-tiling.edges.height // threads.allowed())))
        frames, before = [], 0
        for part, part_rows in zip(parts, threads.each(rows, parts), strict=True):
            places = pl.Series(shown[before : before + len(part.windows)], dtype=pl.Int64)
            frames.append(part_rows.with_columns(window=places[part_rows["window"]]))
            before += len(part.windows)
        return pl.concat(frames)

    @cached_property
    def edges(self) -> Frame:
        """Edges that the windows show any part of, each once for every such window."""
        if self.spread is not None:
            return self._placed(self._touching(self.spread))
        edges = self.shown.edges
        if len(self.windows) == 1:
            return self._placed(nw.from_native(edges.lazy()))
        edge, place = members(self.run, self.windows, edges, "touches")
        borders = {f"window_{name}": pl.Series(self.borders(name)[place]) for name in _BORDERS}
        shown = edges if edge is None else edges[edge]
        return nw.from_native(shown.with_columns(window=pl.Series(place), **borders).lazy())

    def _placed(self, edges: Frame) -> Frame:
        """Add the place and the borders of the only window."""
        borders = {f"window_{name}": nw.lit(getattr(self.window, name)).cast(nw.Int64) for name in _BORDERS}
        return edges.with_columns(window=nw.lit(0).cast(nw.Int64), **borders)

    def _touching(self, engine: Engine) -> Frame:
        """Return the edges that the only window shows any part of, as `Run.snapshot` has them."""
        window, start, finish = self.window, nw.col("start_ns"), end_ns()
        if self.run.epochs_are_islands:
            epoch = window.epoch or 0
            return engine.edges(epochs_between(epoch, epoch)).filter(nw.col("epoch") == epoch)
        stored = engine.edges(can_touch(window.lowest_epoch, window.end_ns, window.after_ns))
        # Comparing plain columns first lets whole row groups be skipped.
        can_touch_window = (nw.col("epoch") >= window.lowest_epoch) & (start <= window.end_ns)
        ends = nw.min_horizontal(start, finish) <= window.end_ns
        touching = stored.filter(can_touch_window | (nw.col("duration_ns") < 0), ends)
        return touching.filter(nw.max_horizontal(start, finish) > window.after_ns) if window.after_ns >= 0 else touching

    @property
    def local(self) -> Frame:
        """Edges that stay on a worker, with ``worker`` and ``inside_ns``, cut at their window's borders."""
        inside = nw.col("duration_ns") if self.run.epochs_are_islands else inside_ns()
        return self.edges.filter(IS_LOCAL).with_columns(worker=worker_of("dst"), inside_ns=inside)

    @property
    def sent(self) -> Frame:
        """Messages sent in a window, with ``from_worker`` and ``to_worker``; at the run's origin with the first."""
        messages = self.edges.filter(~IS_LOCAL)
        if not self.run.epochs_are_islands:
            messages = messages.filter(_in_window(nw.col("start_ns")))
        return messages.with_columns(from_worker=worker_of("src"), to_worker=worker_of("dst"))

    @property
    def ends_inside(self) -> nw.Expr:
        """Whether an edge ends in its window, as every edge does in exactly one of windows that tile the run."""
        return nw.col("src") >= 0 if self.run.epochs_are_islands else _in_window(end_ns())

    @property
    def shows_worker(self) -> nw.Expr:
        """Whether a local edge shows that its worker is there: one that only begins where the window ends does not."""
        if self.run.epochs_are_islands:
            return nw.col("src") >= 0
        start, end = nw.col("window_start_ns"), nw.col("window_end_ns")
        # A window without length shows whoever is there at its instant.
        return (nw.col("start_ns") < end) | (end_ns() <= end) | (start == end)

    def labelled(self, *columns: str) -> Frame:
        """Return edges that are counted for a window: those that carry its epoch; of a free one those that end in it.

        Parameters
        ----------
        columns
            Of `PAG_EDGES`, that are needed beside ``src``, ``dst``, ``type``, ``epoch``, ``start_ns`` and
            ``duration_ns``.

        Returns
        -------
        LazyFrame
            Rows of `PAG_EDGES`, at least the columns that are needed, with ``window``; each edge once.
        """
        if self.windows[0].epoch is None:
            return self.edges.filter(self.ends_inside)
        if self.spread is not None:
            return self._placed(self._labelled(self.spread))
        tiling = scan_near(self.run, self.windows, "labels").select(*_LABELLED, *columns)
        if len(self.windows) == 1:
            return self._placed(nw.from_native(tiling))
        edges = tiling.collect()
        _, place = members(self.run, self.windows, edges, "labels")
        return nw.from_native(edges.with_columns(window=pl.Series(place)).lazy().filter(pl.col("window") >= 0))

    def _labelled(self, engine: Engine) -> Frame:
        """Return the edges that carry the epoch of the only window."""
        low, high = labels(self.run, epochs_of(self.windows))
        epoch, first, last = nw.col("epoch"), int(low[0]), int(high[0])
        return engine.edges(epochs_between(first, last)).filter(epoch >= first, epoch <= last)

    @property
    def enders(self) -> Frame:
        """Messages that end where one of the windows' waits does; also those read after the window. No ``window``."""
        if self.spread is None:
            return nw.from_native(self.shown.enders.lazy())
        waits = self.edges.filter(nw.col("type") == WAITING).select("dst")
        # No message that is read in the window has a lower epoch; between islands there are no messages.
        messages, lowest = self.edges, self.window.lowest_epoch
        if not self.run.epochs_are_islands:
            messages = self.spread.edges(pl.col("max_epoch") >= lowest).filter(nw.col("epoch") >= lowest)
        return messages.filter(~IS_LOCAL).join(waits, on="dst", how="semi")

    def until(self, end_ns: int) -> View:
        """Return the free window that goes on until another instant.

        Parameters
        ----------
        end_ns
            Nanoseconds since the run's origin.

        Returns
        -------
        View
            Of one window, which begins where this one does; nothing is read yet.
        """
        window = replace(self.window, end_ns=end_ns, end_vertex=None, epoch=None, role=None)
        return replace(self, windows=[window], snapshot=None)

    def collect(self, frame: Frame) -> pl.DataFrame:
        """Return the rows of a frame.

        Parameters
        ----------
        frame
            One of the view's own.

        Returns
        -------
        DataFrame
            Its rows, in no order unless the frame states one.
        """
        return self.engine.collect(frame)

    def within(self, stretches: pl.DataFrame) -> Frame:
        """Find the local edges on stretches of the workers' time.

        Parameters
        ----------
        stretches
            One row per stretch: ``src`` and ``dst``, the vertices at its ends, and whatever else is wanted beside its
            edges, under other names than theirs. A stretch that begins before the window loses nothing.

        Returns
        -------
        LazyFrame
            One row per stretch and edge on it. Stretches and edges meet in blocks of vertices of about a stretch's
            length, so that a join on equal blocks finds them.
        """
        # Imported here, so that reading a store does not load the compiler.
        from pag_graph.kernels.arranging import spread

        low, high = stretches["src"].to_numpy(), stretches["dst"].to_numpy()
        mean = int(np.mean(high - low)) if stretches.height else 1
        size = 1 << max(1, mean).bit_length()
        stretch, block = spread(low // size, high // size)
        stretch_blocks = stretches.rename({"src": "from_vertex", "dst": "to_vertex"})[stretch]
        stretch_blocks = stretch_blocks.with_columns(block=pl.Series(block * size, dtype=pl.Int64))
        edges = self.edges.filter(IS_LOCAL).with_columns(block=nw.col("dst") - nw.col("dst") % size)
        candidates = edges.join(self.engine.load(stretch_blocks), on="block", how="inner")
        inside = (nw.col("dst") > nw.col("from_vertex")) & (nw.col("dst") <= nw.col("to_vertex"))
        return candidates.filter(inside).drop("block", "from_vertex", "to_vertex")


def view_of(subject: Snapshot | View) -> View:
    """Return what an analysis looks at.

    Parameters
    ----------
    subject
        A snapshot, or a view.

    Returns
    -------
    View
        The view itself; of a snapshot that of its window, in memory already.
    """
    if isinstance(subject, View):
        return subject
    return View(run=subject.run, windows=[subject.window], snapshot=subject)


def in_process(run: Run) -> Engine:
    """Return the engine that runs frames with Polars in this process.

    Parameters
    ----------
    run
        The run that is read.

    Returns
    -------
    Engine
        Frames are Polars' lazy ones.
    """
    return Engine(
        edges=lambda files: nw.from_native(run.scan("edges", files)),
        collect=lambda frame: frame.to_native().collect(),
        settle=lambda frame: nw.from_native(frame.to_native().collect().lazy()),
        load=lambda rows: nw.from_native(rows.lazy()),
    )


def worker_of(vertex: str) -> nw.Expr:
    """Return the worker of the vertex in a column.

    Parameters
    ----------
    vertex
        Column of ids.

    Returns
    -------
    Expr
        Int32.
    """
    # Exact, also where engines divide integers as floats: a multiple of a power of two.
    step = 1 << POSITION_BITS
    return ((nw.col(vertex) - nw.col(vertex) % step) / step).cast(nw.Int32)


def end_ns() -> nw.Expr:
    """Return when an edge ends.

    Returns
    -------
    Expr
        Needs ``start_ns`` and ``duration_ns``.
    """
    return nw.col("start_ns") + nw.col("duration_ns")


def inside_ns() -> nw.Expr:
    """Return how long an edge of a view lasts inside its window.

    Returns
    -------
    Expr
        Nanoseconds; needs the columns of `View.edges`.
    """
    return nw.min_horizontal(end_ns(), "window_end_ns") - nw.max_horizontal("start_ns", "window_start_ns")


def _in_window(t_ns: nw.Expr) -> nw.Expr:
    """Say of edges of a view whether an instant lies in their window, as `Window.holds` does."""
    return (t_ns > nw.col("window_after_ns")) & (t_ns <= nw.col("window_end_ns"))


def delivered_ns(run: Run) -> nw.Expr:
    """Return what an edge took; for a message from its send to its read.

    Parameters
    ----------
    run
        The run that it is of.

    Returns
    -------
    Expr
        Nanoseconds. Where every worker keeps its own clock, negative times count as 0.
    """
    took = nw.col("duration_ns")
    if not run.aligned:
        return nw.max_horizontal(took, nw.lit(0))
    buffered = nw.when(nw.col("read") != nw.col("dst")).then(nw.col("receive_buffer_ns")).otherwise(nw.lit(0))
    return took + buffered.fill_null(0)


def count_rows() -> nw.Expr:
    """Count the rows of a group.

    Returns
    -------
    Expr
        Int64, on every engine.
    """
    return nw.len().cast(nw.Int64)


def records_told() -> tuple[nw.Expr, nw.Expr]:
    """Add up the records of a group.

    Returns
    -------
    tuple of Expr
        ``records``, the sum over the rows that tell, and ``telling``, how many these are: `known_records` needs both.
    """
    records = nw.col("records")
    return records.sum(), records.count().cast(nw.Int64).alias("telling")


def where(condition: nw.Expr, value: str) -> nw.Expr:
    """Return a column where a condition holds, and 0 elsewhere and for null.

    Parameters
    ----------
    condition
        Of a row.
    value
        Column of numbers.

    Returns
    -------
    Expr
        Never null.
    """
    return nw.when(condition).then(nw.col(value)).otherwise(nw.lit(0)).fill_null(0)
