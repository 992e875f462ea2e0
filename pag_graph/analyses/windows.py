"""Many windows, some at a time: what analyses of all epochs of a run have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.graph.tiling import tilings
from pag_graph.kernels.arranging import sort_within
from pag_graph.runtime import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.graph.snapshot import Run, Window
    from pag_graph.graph.tiling import Belongs, Tiling

    I64 = NDArray[np.int64]

_PART = 100_000
"""Edges for which another thread is worth its calls."""


def over(
    run: Run,
    windows: Sequence[Window],
    columns: Sequence[str],
    belongs: Belongs,
    rows: Callable[[Tiling], pl.DataFrame],
) -> pa.Table:
    """Look at the edges of many windows, some windows at a time.

    Parameters
    ----------
    run, windows, columns, belongs
        As for `pag_graph.graph.tiling.tilings`; at least one window has a length. Those without one touch nothing.
    rows
        Makes rows of a tiling, with the place of their ``window`` in it; several threads call it at a time, each with
        windows of its own.

    Returns
    -------
    pa.Table
        The rows of all windows, each with the place of its ``window`` in the list.
    """
    shown = [place for place, window in enumerate(windows) if belongs != "touches" or window.span_ns > 0]
    found, before = [], 0
    for tiling in tilings(run, [windows[place] for place in shown], columns, belongs):
        parts = tiling.parts(max(_PART, -(-tiling.edges.height // threads.allowed())))
        for part, part_rows in zip(parts, threads.each(rows, parts), strict=True):
            places = pl.Series(shown[before : before + len(part.windows)], dtype=pl.Int64)
            found.append(part_rows.with_columns(window=places[part_rows["window"]]))
            before += len(part.windows)
    return pl.concat(found).to_arrow()


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
    order = np.arange(len(window))
    sort_within(np.flatnonzero(np.diff(window, prepend=-1, append=-1)), order, np.column_stack(keys))
    return order
