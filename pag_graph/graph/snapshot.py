"""The part of a run's graph that a window shows.

A snapshot is the projection of the run's graph on a window (CPA Def. 3.4 and 3.5): what lies inside is kept, what
crosses a border is cut there, the rest is dropped. Analyses work on snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.graph.membership import can_touch, members
from pag_graph.graph.tiling import tile
from pag_graph.model.enums import LOCAL_TYPES, ActivityType
from pag_graph.model.html import rows_table
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.units import duration, in_html

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pag_graph.graph.run import Run
    from pag_graph.graph.tiling import Tiling
    from pag_graph.graph.window import Window

_LOCAL = [str(kind) for kind in LOCAL_TYPES]


def read_snapshot(run: Run, window: Window) -> Snapshot:
    """Read the part of the graph that a window shows.

    Parameters
    ----------
    run
        Any run.
    window
        One of its windows.

    Returns
    -------
    Snapshot
        Reads only files and row groups that can hold edges of the window.
    """
    if run.epochs_are_islands:
        epoch = window.epoch or 0
        edges = run.between("edges", epoch, epoch)
    else:
        edges = run.scan("edges", can_touch(window.lowest_epoch, window.end_ns, window.after_ns))
        edges = edges.filter(_touches(window))
    return Snapshot(run=run, window=window, edges=edges.collect())


def read_together(run: Run, windows: Sequence[Window]) -> Snapshot:
    """Read what several windows show together.

    Parameters
    ----------
    run
        Any run.
    windows
        At least one, the earliest first.

    Returns
    -------
    Snapshot
        Of the one window; or of a wide one, from the first window's start to the last one's end. Where epochs are
        islands it has the edges of these epochs, and no others.
    """
    if len(windows) == 1:
        return read_snapshot(run, windows[0])
    wide = run.stretch(windows[0].start_ns, max(window.end_ns for window in windows))
    if not run.epochs_are_islands:
        return read_snapshot(run, wide)
    epochs = [window.epoch or 0 for window in windows]
    edges = run.between("edges", min(epochs), max(epochs)).filter(pl.col("epoch").is_in(epochs))
    return Snapshot(run=run, window=wide, edges=edges.collect())


def read_snapshots(run: Run, windows: Sequence[Window]) -> Iterator[Snapshot]:
    """Read once what many windows show together, and yield the snapshot of each.

    Parameters
    ----------
    run
        Any run.
    windows
        From `Run.series`, or any others.

    Yields
    ------
    Snapshot
        One per window, in their order; the same as `read_snapshot` gives. Memory holds some windows at a time.
    """
    from pag_graph.kernels.replay import group_arcs

    for part in run.stretches(windows):
        if len(part) == 1:
            yield read_snapshot(run, part[0])
            continue
        wide = read_together(run, part)
        edge, place = members(run, part, wide.edges, "touches")
        begins, order = group_arcs(place, len(part))
        rows = order if edge is None else edge[order]
        within = None if run.epochs_are_islands else wide
        for number, window in enumerate(part):
            edges = wide.edges[rows[begins[number] : begins[number + 1]]]
            yield Snapshot(run=run, window=window, edges=edges, within=within)


def enders_of(shown: Snapshot, waits: pl.DataFrame, lowest_epoch: int) -> pl.DataFrame:
    """Return the messages that ended some waits; also those that are not in memory, as they were read later.

    Parameters
    ----------
    shown
        What is in memory.
    waits
        Edges of it that are waits, with ``end_ns``.
    lowest_epoch
        No event since the waits began has a lower epoch.

    Returns
    -------
    DataFrame
        Rows of `Snapshot.messages`, and more like them, each once. Where a wait has no ender in memory, or may have
        others, files are read that can hold edges of the stretch in which such waits end, and no others: none where
        epochs are islands, as no message leaves them.
    """
    run = shown.run
    found = shown.messages.join(waits.select("dst"), on="dst", how="semi", maintain_order="left")
    if run.one_dataflow:
        # No wait ends with more than one message.
        missing = waits.join(found, on="dst", how="anti")
    else:
        # Of several messages those are not shown that are sent and read after the window.
        missing = waits.filter(pl.col("end_ns") > shown.window.end_ns)
    if not missing.height or run.epochs_are_islands:
        return found
    # A message ends where the wait does that it ends.
    first, last = (int(getattr(missing["end_ns"], name)()) for name in ("min", "max"))
    later = (
        run.scan("edges", can_touch(lowest_epoch, last, first - 1))
        .filter(pl.col("epoch") >= lowest_epoch, pl.col("dst").is_in(missing["dst"].implode()))
        .filter(~pl.col("type").is_in(_LOCAL))
        .with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    )
    return pl.concat([found.join(missing, on="dst", how="anti", maintain_order="left"), later.collect()])


def _touches(window: Window) -> pl.Expr:
    """Say of edges whether a window of a run with aligned clocks shows any of them."""
    # A message with negative transfer ends before it starts; it is in the window if either end is. Comparing plain
    # columns first lets whole row groups be skipped.
    may_touch = (pl.col("epoch") >= window.lowest_epoch) & (pl.col("start_ns") <= window.end_ns)
    end = pl.col("start_ns") + pl.col("duration_ns")
    begins = pl.max_horizontal("start_ns", end) > window.after_ns if window.after_ns >= 0 else pl.lit(value=True)
    ends = pl.min_horizontal("start_ns", end) <= window.end_ns
    return (may_touch | (pl.col("duration_ns") < 0)) & begins & ends


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The edges that a window shows, as stored; analyses cut them at its borders."""

    run: Run
    """The run that it is of."""
    window: Window
    """What it shows."""
    edges: pl.DataFrame
    """Rows of `PAG_EDGES` that touch the window."""
    within: Snapshot | None = None
    """A snapshot of a wider window that is in memory already."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the window, and what is in it by type."""
        by_type = self.edges.group_by("type").agg(edges=pl.len(), duration_ns=pl.col("duration_ns").sum())
        rows = by_type.sort("duration_ns", "type", descending=[True, False]).to_dicts()
        title = f"{self.window.name}: {duration(self.window.span_ns)}, {self.edges.height:,} edges"
        return f"<p><strong>{in_html(title)}</strong></p>\n{rows_table(rows, ('type', 'edges', 'duration_ns'))}"

    @cached_property
    def tiling(self) -> Tiling:
        """The edges as kernels walk them."""
        return tile(self, "touches")

    @cached_property
    def local(self) -> pl.DataFrame:
        """Edges that stay on a worker, sorted by `dst`, with ``end_ns``."""
        return (
            self.edges.filter(pl.col("type").is_in(_LOCAL))
            .with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
            .sort("dst")
        )

    @cached_property
    def messages(self) -> pl.DataFrame:
        """Edges between workers, sorted by `dst`, with ``end_ns``."""
        return (
            self.edges.filter(~pl.col("type").is_in(_LOCAL))
            .with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
            .sort("dst", "src")
        )

    @cached_property
    def enders(self) -> pl.DataFrame:
        """Messages that ended the window's waits, sorted by `dst`; also those read after the window."""
        waits = self.local.filter(pl.col("type") == str(ActivityType.WAITING))
        return enders_of(self.within or self, waits, self.window.lowest_epoch).sort("dst", "src")

    def projection(self) -> pl.DataFrame:
        """Cut the edges at the window's borders (CPA Def. 3.4).

        Returns
        -------
        DataFrame
            One row per edge of which the window shows anything, sorted by `dst` and `src`: the columns of `PAG_EDGES`,
            and ``edge_src`` and ``edge_dst``, the edge's own ends. Where a border cuts it, `src` is ``-1 - 2 * worker``
            and `dst` ``-2 - 2 * worker``: one vertex per worker at the window's start and one at its end. A cut that
            leaves nothing leaves no edge; what has no length at the window's start belongs to the window before. A
            message that was read before it was sent is kept only where no border cuts it.

        Raises
        ------
        UnsupportedPlanError
            If the run's clocks are not aligned.
        """
        self.run.require_aligned("Edges are cut at instants of one clock")
        low, high = pl.lit(self.window.start_ns), pl.lit(self.window.end_ns)
        end = pl.col("start_ns") + pl.col("duration_ns")
        before, after = pl.min_horizontal("start_ns", end) < low, pl.max_horizontal("start_ns", end) > high
        from_, to = pl.max_horizontal("start_ns", low), pl.min_horizontal(end, high)
        worker = 1 << POSITION_BITS
        cut = self.edges.with_columns(
            edge_src="src",
            edge_dst="dst",
            src=pl.when(before).then(-1 - 2 * (pl.col("src") // worker)).otherwise("src"),
            dst=pl.when(after).then(-2 - 2 * (pl.col("dst") // worker)).otherwise("dst"),
            start_ns=pl.when(pl.col("duration_ns") < 0).then("start_ns").otherwise(from_),
            duration_ns=pl.when(pl.col("duration_ns") < 0).then("duration_ns").otherwise(to - from_),
        )
        # Against the borders the uncut columns are compared: all expressions above read them too.
        is_kept = self.edges.select((~before & ~after) | ((pl.col("duration_ns") >= 0) & (to > from_))).to_series()
        return cut.filter(is_kept).sort("dst", "src", "edge_dst", "edge_src")

    def vertices(self) -> pa.Table:
        """Return the vertices that the edges touch.

        Returns
        -------
        Table
            One row of `PAG_VERTICES` per vertex, sorted by `id`. Reads the files of the epochs that the edges carry.
        """
        ids = pl.concat([self.edges["src"], self.edges["dst"]]).unique()
        # A message can lead into a lower epoch: workers are not in step.
        epochs = pl.concat([self.edges["src_epoch"], self.edges["epoch"]]).to_numpy()
        if not len(epochs):
            return self.run.scan("vertices").head(0).collect().to_arrow()
        nearby = self.run.between("vertices", int(epochs.min()), int(epochs.max()))
        return nearby.join(pl.LazyFrame({"id": ids}), on="id", how="semi").sort("id").collect().to_arrow()
