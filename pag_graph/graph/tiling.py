"""Many windows at once: the edges of each in a block of its own, read and sorted together.

A snapshot of one window costs some milliseconds, however little it shows. Where all rounds of a run are looked at,
their edges are read once, in stretches that fit into memory, and kernels go from block to block.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.graph.columns import integers
from pag_graph.graph.membership import members, near
from pag_graph.graph.window import STRETCH
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pag_graph.graph.membership import Belongs
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window

    I64 = NDArray[np.int64]
    Bools = NDArray[np.bool_]

TYPES = pl.Enum([str(kind) for kind in ActivityType])
"""Types of edges, as numbers in the order of `ActivityType`."""

_KINDS = list(ActivityType)
_FEW = 8
"""Numbers are told apart by a table as long as it is at most so many times longer than their list."""
_NEEDED = ("src", "dst", "epoch", "start_ns", "duration_ns")


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Edges of several windows: a block for each, sorted by `dst`, local edges first, and `src`."""

    run: Run
    """The run that they are of."""
    windows: Sequence[Window]
    """One per block."""
    first: I64
    """Shape (windows + 1,): where each block begins."""
    edges: pl.DataFrame
    """The blocks, one after the other; `type` as `TYPES`."""

    @property
    def window(self) -> I64:
        """Per edge: the place of its window."""
        return np.repeat(np.arange(len(self.windows)), np.diff(self.first))

    def number(self, column: str) -> I64:
        """Return a column of integers.

        Parameters
        ----------
        column
            Name of the column.

        Returns
        -------
        array of int64
            Per edge; -1 where it is null.
        """
        return integers(self.edges[column])

    def is_type(self, *kinds: ActivityType) -> Bools:
        """Say per edge whether it is of one of the types.

        Parameters
        ----------
        *kinds
            Types of edges.

        Returns
        -------
        array of bool
            Per edge.
        """
        return is_type(self.edges, *kinds)

    def parts(self, edges: int) -> list[Tiling]:
        """Divide it into tilings of windows that follow each other.

        Parameters
        ----------
        edges
            About how many edges a part has; one window at least.

        Returns
        -------
        list of Tiling
            In their order. Edges are not copied.
        """
        first = self.first
        # A part ends with the window in which it becomes full, and no part has only windows without edges.
        full = np.searchsorted(first, np.arange(edges, first[-1], edges))
        cuts = np.unique(np.concatenate([[0], full[first[full] < first[-1]], [len(self.windows)]]))
        return [
            Tiling(
                run=self.run,
                windows=self.windows[low:high],
                first=first[low : high + 1] - first[low],
                edges=self.edges[int(first[low]) : int(first[high])],
            )
            for low, high in pairwise(cuts.tolist())
        ]


def is_type(edges: pl.DataFrame, *kinds: ActivityType) -> Bools:
    """Say per edge whether it is of one of the types.

    Parameters
    ----------
    edges
        Has the column `type` as `TYPES`.
    *kinds
        Types of edges.

    Returns
    -------
    array of bool
        Per edge. O(edges x kinds).
    """
    number, matches = edges["type"].to_physical().to_numpy(), np.zeros(edges.height, np.bool_)
    # A few comparisons of bytes take a tenth of the time of a look-up in a table.
    for kind in kinds:
        matches |= number == _KINDS.index(kind)
    return matches


def tile(snapshot: Snapshot, belongs: Belongs, windows: Sequence[Window] | None = None) -> Tiling:
    """Return the tiling of a snapshot's window, or of windows that it shows together.

    Parameters
    ----------
    snapshot
        Of any run.
    belongs
        Which of its edges to take.
    windows
        As for `read_tiling`; the snapshot's own where absent.

    Returns
    -------
    Tiling
        With all columns of the snapshot's edges.
    """
    edges = snapshot.edges.with_columns(pl.col("type").cast(TYPES))
    return _arranged(snapshot.run, windows or [snapshot.window], edges, belongs)


def read_tiling(run: Run, windows: Sequence[Window], columns: Sequence[str], belongs: Belongs) -> Tiling:
    """Read the edges of some windows together.

    Parameters
    ----------
    run
        Any run.
    windows
        At least one, in time order; they may overlap. Where epochs are islands, those of epochs.
    columns
        Columns of `PAG_EDGES` that are needed, beside those that say where an edge lies.
    belongs
        Which edges belong to a window.

    Returns
    -------
    Tiling
        All its edges are in memory.
    """
    return _arranged(run, windows, _read(run, windows, columns, belongs), belongs)


def read_members(
    run: Run, windows: Sequence[Window], columns: Sequence[str], belongs: Belongs
) -> tuple[pl.DataFrame, I64]:
    """Read the edges of some windows as they come: for sums, which need no order.

    Parameters
    ----------
    run, windows, columns, belongs
        As for `read_tiling`.

    Returns
    -------
    edges : DataFrame
        One row per edge and window that it belongs to; `type` as `TYPES`.
    window : array of int64
        Per row: the place of that window.
    """
    edges = _read(run, windows, columns, belongs)
    edge, window = members(run, windows, edges, belongs)
    if edge is None:
        edge = np.flatnonzero(window >= 0)
        if len(edge) == edges.height:
            return edges, window
        window = window[edge]
    return edges[edge], window


def _read(run: Run, windows: Sequence[Window], columns: Sequence[str], belongs: Belongs) -> pl.DataFrame:
    """Read the edges that belong to windows, and maybe some near them."""
    needed = list(dict.fromkeys([*_NEEDED, "type", *columns]))
    return scan_near(run, windows, belongs).select(needed).with_columns(pl.col("type").cast(TYPES)).collect()


def tilings(
    run: Run, windows: Sequence[Window], columns: Sequence[str], belongs: Belongs, *, stretch: int = STRETCH
) -> Iterator[Tiling]:
    """Read the edges of many windows, some windows at a time.

    Parameters
    ----------
    run, windows, columns, belongs
        As for `read_tiling`.
    stretch
        About how many edges to have in memory at once.

    Yields
    ------
    Tiling
        Of windows that follow each other, all of `windows` in the end.
    """
    for part in run.stretches(windows, stretch):
        yield read_tiling(run, part, columns, belongs)


def scan_near(run: Run, windows: Sequence[Window], belongs: Belongs) -> pl.LazyFrame:
    """Return a lazy frame with the edges that belong to any of the windows, and maybe some near them.

    Parameters
    ----------
    run, windows, belongs
        As for `read_tiling`.

    Returns
    -------
    LazyFrame
        Rows of `PAG_EDGES`, chosen by plain comparisons, so that files and row groups are skipped.
    """
    files, rows = near(run, windows, belongs)
    return run.scan("edges", files).filter(rows)


def _arranged(run: Run, windows: Sequence[Window], edges: pl.DataFrame, belongs: Belongs) -> Tiling:
    # Just looking into a store needs no compiler.
    from pag_graph.kernels.arranging import arrange

    edge, window = members(run, windows, edges, belongs)
    keys = (edges["dst"].to_numpy(), is_type(edges, *MESSAGE_TYPES), edges["src"].to_numpy())
    blocks, order = arrange(window, len(windows), np.column_stack([key if edge is None else key[edge] for key in keys]))
    if edge is not None:
        order = edge[order]
    in_order = len(order) == edges.height and bool(np.all(order[:-1] + 1 == order[1:]))
    return Tiling(run=run, windows=windows, first=blocks, edges=edges if in_order else edges[order])


def ranks(values: I64) -> tuple[I64, I64]:
    """Return the rank of every number among those that occur.

    Parameters
    ----------
    values
        Integers.

    Returns
    -------
    rank
        Per value, from 0.
    distinct
        The values that occur, ascending. O(values), or O(values log values) where they are far apart.
    """
    if not len(values):
        return values, values
    low, high = int(values.min()), int(values.max())
    if high - low > _FEW * len(values):
        distinct, rank_of_value = np.unique(values, return_inverse=True)
        return rank_of_value, distinct
    present = np.bincount(values - low) > 0
    return (np.cumsum(present) - 1)[values - low], np.flatnonzero(present) + low


def ordered(window: I64, *keys: I64) -> I64:
    """Return the order of rows by window, of which they are in order already, and in each by keys.

    Parameters
    ----------
    window
        Per row: the place of its window.
    keys
        Per row, the most important one first; the smallest come first, and equal rows stay as they are.

    Returns
    -------
    I64
        Rows. O(rows log rows of a window).
    """
    # Just looking into a store needs no compiler.
    from pag_graph.kernels.arranging import sort_within

    order = np.arange(len(window))
    sort_within(np.flatnonzero(np.diff(window, prepend=-1, append=-1)), order, np.column_stack(keys))
    return order
