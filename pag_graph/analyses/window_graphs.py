"""The projection of a run on windows (CPA Def. 3.4 and 3.5) as a graph for kernels: vertices numbered from 0."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.errors import PagError
from pag_graph.graph.columns import integers
from pag_graph.graph.tiling import is_type
from pag_graph.kernels import arranging
from pag_graph.kernels.arranging import project
from pag_graph.kernels.compiling import read_only
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType, EdgeFlags
from pag_graph.model.ids import position_of, worker_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.graph.tiling import Tiling
    from pag_graph.graph.window import Window

    I64 = NDArray[np.int64]
    Bools = NDArray[np.bool_]

COLUMNS = (
    "operator",
    "activation",
    "channel",
    "records",
    "receive_buffer_ns",
    "read",
    "flags",
    "alternatives",
)
"""Columns of edges that constraint graphs and what is made of them need, beside those that say where an edge lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowGraph:
    """The projection of a run on windows (CPA Def. 3.4 and 3.5), with vertices numbered from 0.

    Most graphs are of one window. Those of several lie side by side, and share nothing.
    """

    windows: Sequence[Window]
    """The windows, in time order."""
    rows: pl.DataFrame
    """The edges of each window, uncut, sorted by window, `dst`, local ones first, and `src`; `type` as `TYPES`."""
    of: I64
    """Per row: the place of its window."""
    vertex_first: I64
    """Shape (windows + 1,): where the vertices of each window begin. Its first two are cuts: where edges begin that its
    start cuts, and where those end that its end cuts."""
    ids: I64
    """Per vertex: its id; -1 and -2 for cuts."""
    t: I64
    """Per vertex: when it happened. Windows after the first are moved to where the one before ended, and one on."""
    src: I64
    """Per row: the vertex where it starts."""
    dst: I64
    """Per row: the vertex where it ends."""
    inside: I64
    """Per row: nanoseconds inside the window."""

    @property
    def window(self) -> Window:
        """The first window."""
        return self.windows[0]

    @property
    def before(self) -> I64:
        """Per window: the vertex where edges begin that its start cuts."""
        return self.vertex_first[:-1]

    @property
    def from_before(self) -> Bools:
        """Per row: whether the window's start cuts it."""
        return np.asarray(self.src == self.before[self.of], dtype=np.bool_)

    @property
    def to_after(self) -> Bools:
        """Per row: whether the window's end cuts it."""
        return np.asarray(self.dst == self.before[self.of] + 1, dtype=np.bool_)

    @property
    def begins(self) -> I64:
        """Per window: its start."""
        return np.array([window.start_ns for window in self.windows], np.int64)

    @property
    def ends(self) -> I64:
        """Per window: its end."""
        return np.array([window.end_ns for window in self.windows], np.int64)

    @property
    def is_local(self) -> Bools:
        """Per row: whether it stays on a worker."""
        return ~self.is_type(*MESSAGE_TYPES)

    @property
    def negative(self) -> Bools:
        """Per row: whether it is a message that was read before it was sent."""
        return np.asarray((self.rows["flags"].to_numpy() & int(EdgeFlags.NEGATIVE)) != 0, dtype=np.bool_)

    def is_type(self, *kinds: ActivityType) -> Bools:
        """Say per row whether it is of one of the types.

        Parameters
        ----------
        *kinds
            Types of edges.

        Returns
        -------
        array of bool
            Per row.
        """
        return is_type(self.rows, *kinds)

    def number(self, column: str) -> I64:
        """Return a column of integers.

        Parameters
        ----------
        column
            Name of the column.

        Returns
        -------
        array of int64
            Per row; -1 where it is null.
        """
        return integers(self.rows[column])


def window_graph(tiling: Tiling) -> WindowGraph:
    """Cut the edges of windows at their borders, and number their vertices.

    Parameters
    ----------
    tiling
        Edges that touch the windows, of a run with aligned clocks.

    Returns
    -------
    WindowGraph
        One row per window and edge that lies in it or crosses its borders; O(edges log edges).

    Raises
    ------
    PagError
        If an edge starts where none ends; names the vertex.
    """
    window_of_row, windows = tiling.window, tiling.windows
    edges = tiling.edges.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    begins, finishes = (np.array([getattr(w, name) for w in windows], np.int64) for name in ("start_ns", "end_ns"))
    begin, finish = begins[window_of_row], finishes[window_of_row]
    start, end = (edges[name].to_numpy() for name in ("start_ns", "end_ns"))
    low, high = np.minimum(start, end), np.maximum(start, end)
    # An edge that only touches a border is outside of the window, unless all of it happens at the instant of its end.
    after = np.array([w.after_ns for w in windows], np.int64)[window_of_row]
    keep = (high > after) & ((low < finish) | (high <= finish))
    if not keep.all():
        edges, window_of_row, start, end = edges.filter(keep), window_of_row[keep], start[keep], end[keep]
        begin, finish = begin[keep], finish[keep]
    graph = WindowGraph(
        windows=windows,
        rows=edges,
        of=window_of_row,
        vertex_first=tiling.first,
        ids=window_of_row,
        t=window_of_row,
        src=window_of_row,
        dst=window_of_row,
        inside=np.minimum(end, finish) - np.maximum(start, begin),
    )
    # One local edge leads to every vertex, except to those at the window's start: theirs lie outside. To the vertex
    # with which a worker is born leads the spawn.
    src, dst = (edges[name].to_numpy() for name in ("src", "dst"))
    first = np.searchsorted(window_of_row, np.arange(len(windows) + 1))
    arrives = graph.is_local | graph.is_type(ActivityType.SPAWN)
    src, dst, start, end = read_only(src, dst, start, end)
    placed = arranging.Edges(first, src, dst, start, end, arrives)
    vertex_first, ids, t, source, target = project(placed, begins, finishes)
    # Windows one after the other on one line, so that times tell them apart.
    line = begins[0] + np.append(0, np.cumsum(finishes - begins + 1)[:-1])
    t += np.repeat(line - begins, np.diff(vertex_first))
    for number, vertices in ((source, src), (target, dst)):
        lost = np.flatnonzero((number < 0) & ~graph.negative)
        if len(lost):
            vertex = int(vertices[lost[0]])
            message = f"No edge leads to {place_of(vertex)} in {windows[int(window_of_row[lost[0]])].name}."
            raise PagError(message, "Build the store again, and look at its findings.", {"vertex": vertex})
    return replace(graph, vertex_first=vertex_first, ids=ids, t=t, src=source, dst=target)


def place_of(vertex: int) -> str:
    """Return how a message speaks of a vertex.

    Parameters
    ----------
    vertex
        Its id.

    Returns
    -------
    str
        Its worker and position.
    """
    return f"worker {worker_of(vertex)}, position {position_of(vertex)} (vertex {vertex})"
