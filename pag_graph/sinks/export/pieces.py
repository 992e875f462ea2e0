"""What is exported, piece by piece: rows of a store's tables, and its critical paths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses.critical_path import critical_path
from pag_graph.model.enums import LOCAL_TYPES
from pag_graph.model.tables import CRITICAL_PATH, PAG_EDGES, PAG_VERTICES, STORE_TABLES
from pag_graph.store.contents import SLICED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

PIECE_EDGES = 500_000
"""Edges in memory at a time; a piece takes some 600 bytes per edge while it is written."""

SMALL_TABLES = [name for name in STORE_TABLES if name not in SLICED]
"""Tables of a store that a graph takes along whole."""

LOCAL = [str(kind) for kind in LOCAL_TYPES]
_END = pl.col("start_ns") + pl.col("duration_ns")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The rows of one stretch of time."""

    edges: pl.DataFrame
    """Edges that end in it, rows of `PAG_EDGES`; of a window all that touch it."""
    vertices: pl.DataFrame
    """Vertices in it, rows of `PAG_VERTICES`; of a window all that the edges touch."""
    sent: pl.DataFrame
    """Messages that begin in it, rows of `PAG_EDGES`."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """What is exported."""

    run: Run
    window: Window | None
    path_only: bool
    piece_edges: int
    progress: Callable[[str, int, int], None]

    @cached_property
    def windows(self) -> list[Window]:
        """The windows whose critical paths are shown: they tile what is exported."""
        if not self.run.aligned:
            return []
        return [self.window] if self.window is not None else self.run.windows()

    def about(self) -> dict[str, Any]:
        """Return the identity of the run, and the rows of the small tables by name."""
        tables = {name: self.run.scan(name).collect().to_dicts() for name in SMALL_TABLES}
        return {"run": dict(self.run.info.run), **tables}

    def paths(self) -> Iterator[tuple[Window, pl.DataFrame]]:
        """Yield the critical path of each window, rows of `CRITICAL_PATH`; windows without length have none."""
        paths_done = 0
        for group in self._groups():
            for snapshot in self.run.snapshots(group):
                steps = critical_path(snapshot).steps
                yield snapshot.window, pl.DataFrame(pl.from_arrow(steps)).select(CRITICAL_PATH.names)
                paths_done += 1
                self.progress("paths", paths_done, len(self.windows))

    def _groups(self) -> Iterator[list[Window]]:
        """Yield windows that have a length, as many at a time as may be read together."""
        counts = dict(self.run.epochs.select("epoch", "edges").iter_rows())
        group: list[Window] = []
        edges_in_group = 0
        for window in self.windows:
            if window.span_ns > 0:
                edges = counts.get(window.epoch, 0)
                if group and edges_in_group + edges > self.piece_edges:
                    yield group
                    group, edges_in_group = [], 0
                group.append(window)
                edges_in_group += edges
        if group:
            yield group

    @cached_property
    def path(self) -> pl.DataFrame:
        """All paths, rows of `CRITICAL_PATH` with the window's `epoch` (null for a free one)."""
        frames = [
            steps.with_columns(epoch=pl.lit(window.epoch, pl.Int64), window=pl.lit(window.name))
            for window, steps in self.paths()
        ]
        empty = pl.DataFrame(pl.from_arrow(CRITICAL_PATH.empty_table())).with_columns(
            epoch=pl.lit(None, pl.Int64), window=pl.lit(None, pl.String)
        )
        return pl.concat([empty, *frames])

    @cached_property
    def _on_path(self) -> pl.DataFrame:
        """Edges on a path: `src`, `dst`, `type` and `channel`, without duplicates."""
        return self.path.select(src="edge_src", dst="edge_dst", type="type", channel="channel").unique()

    def mark(self, edges: pl.DataFrame) -> pl.DataFrame:
        """Add the column `critical`: whether an edge lies on a critical path."""
        marks = self._on_path.with_columns(critical=pl.lit(value=True))
        joined = edges.join(
            marks, on=["src", "dst", "type", "channel"], how="left", nulls_equal=True, maintain_order="left"
        )
        return joined.with_columns(pl.col("critical").fill_null(value=False))

    def edges(self) -> Iterator[pl.DataFrame]:
        """Yield edges with the column `critical`, in no particular order."""
        for frame in self._batches("edges"):
            marked = self.mark(frame.select(PAG_EDGES.names))
            yield marked.filter("critical") if self.path_only else marked

    def vertices(self) -> Iterator[pl.DataFrame]:
        """Yield the vertices that the edges touch; of a whole run all."""
        ids = pl.concat([self._on_path["src"], self._on_path["dst"]]).unique()
        if self.window is not None:
            vertices = pl.DataFrame(pl.from_arrow(self.run.snapshot(self.window).vertices()))
            yield vertices.filter(pl.col("id").is_in(ids.implode())) if self.path_only else vertices
            return
        for frame in self._batches("vertices"):
            rows = frame.select(PAG_VERTICES.names)
            yield rows.filter(pl.col("id").is_in(ids.implode())) if self.path_only else rows

    def _batches(self, table: str) -> Iterator[pl.DataFrame]:
        if table == "edges" and self.window is not None:
            yield self.run.snapshot(self.window).edges
            return
        rows = self.run.scan(table).select(pl.len()).collect().item()
        rows_done = 0
        for frame in self.run.scan(table).collect_batches(chunk_size=self.piece_edges, maintain_order=True):
            rows_done += frame.height
            yield frame
            self.progress(table, rows_done, rows)

    def pieces(self) -> Iterator[Piece]:
        """Yield what is exported in order of time, each edge and vertex once."""
        if self.window is not None:
            snapshot = self.run.snapshot(self.window)
            vertices = pl.DataFrame(pl.from_arrow(snapshot.vertices()))
            messages = snapshot.edges.filter(~pl.col("type").is_in(LOCAL))
            yield Piece(edges=snapshot.edges.select(PAG_EDGES.names), vertices=vertices, sent=messages)
            return
        bounds = self._bounds()
        for pieces_done, (low, high) in enumerate(pairwise(bounds)):
            stored = self.run.scan("edges")
            message = ~pl.col("type").is_in(LOCAL)
            # A message with negative transfer ends before it starts; comparing plain columns skips row groups.
            can_touch = (pl.col("start_ns") <= high) | (pl.col("duration_ns") < 0)
            yield Piece(
                edges=stored.filter(can_touch, low < _END, high >= _END).select(PAG_EDGES.names).collect(),
                vertices=self.run.scan("vertices")
                .filter(pl.col("t_ns") > low, pl.col("t_ns") <= high)
                .select(PAG_VERTICES.names)
                .collect(),
                sent=stored.filter(message, pl.col("start_ns") > low, pl.col("start_ns") <= high)
                .select(PAG_EDGES.names)
                .collect(),
            )
            self.progress("timeline", pieces_done + 1, len(bounds) - 1)

    def _bounds(self) -> list[int]:
        """Cut the run's time where about `piece_edges` edges have ended: ``(low, high]`` are the pieces."""
        scan = self.run.scan("edges")
        ends = scan.select(low=_END.min(), high=_END.max(), rows=pl.len()).collect().row(0)
        first = self.run.scan("vertices").select(low=pl.col("t_ns").min(), high=pl.col("t_ns").max()).collect().row(0)
        starts = scan.select(low=pl.col("start_ns").min(), high=pl.col("start_ns").max()).collect().row(0)
        values = [value for pair in (ends[:2], first, starts) for value in pair if value is not None]
        low, high, rows = min(values) - 1, max(values), int(ends[2])

        def cut(low: int, high: int, rows: int) -> list[int]:
            if rows <= self.piece_edges or high - low <= 1:
                return [high]
            middle = (low + high) // 2
            before = int(scan.filter(low < _END, middle >= _END).select(pl.len()).collect().item())
            return cut(low, middle, before) + cut(middle, high, rows - before)

        return [low, *cut(low, high, rows)]
