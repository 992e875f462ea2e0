"""Many windows, some at a time: what analyses of all epochs of a run have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.pag.tiling import tilings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from pag_graph.pag.snapshot import Run, Window
    from pag_graph.pag.tiling import Belongs, Tiling


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
        As for `pag_graph.pag.tiling.tilings`; at least one window has a length. Those without one touch nothing.
    rows
        Makes rows of a tiling, with the place of their ``window`` in it.

    Returns
    -------
    pa.Table
        The rows of all windows, each with the place of its ``window`` in the list.
    """
    shown = [place for place, window in enumerate(windows) if belongs != "touches" or window.span_ns > 0]
    parts, before = [], 0
    for tiling in tilings(run, [windows[place] for place in shown], columns, belongs):
        places = pl.Series(shown[before : before + len(tiling.windows)], dtype=pl.Int64)
        part = rows(tiling)
        parts.append(part.with_columns(window=places[part["window"]]))
        before += len(tiling.windows)
    return pl.concat(parts).to_arrow()
