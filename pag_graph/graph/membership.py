"""Which edges belong to which windows: said of files, of rows that are read, and of edges in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

    I64 = NDArray[np.int64]

Belongs = Literal["ends", "touches", "labels"]
"""Which edges belong to a window: those that end in it (each edge to one of windows that tile a run); all that it
shows a part of, or that begin where it ends; or those that carry its epoch, wherever they lie (each edge to one epoch),
where it is the window of an epoch, and those that end in it where it is not."""

_DENSE = 4
"""Numbers are looked up in a table as long as it is at most so many times longer than they are many."""


def places(members: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of numbers among different ones.

    Parameters
    ----------
    members
        Different integers, at least one, in any order.
    numbers
        What is looked for.

    Returns
    -------
    array of int
        Per number: its place among `members`, or -1. O(members + numbers), or with a logarithm where the members are
        far apart.
    """
    low = int(members.min())
    if int(members.max()) - low <= _DENSE * (len(members) + len(numbers)):
        # Epochs mostly count on by one: a table of all of them takes a quarter of the time of a search.
        table = np.full(int(members.max()) - low + 2, -1)
        table[members - low] = np.arange(len(members))
        return table[np.clip(numbers, low - 1, int(members.max()) + 1) - low]
    order = np.argsort(members)
    rows = np.minimum(np.searchsorted(members[order], numbers), len(members) - 1)
    return np.where(members[order[rows]] == numbers, order[rows], -1)


def epochs_between(low: int, high: int) -> pl.Expr:
    """Say of a file whether it can hold rows of some epochs.

    Parameters
    ----------
    low, high
        The first and the last of these epochs.

    Returns
    -------
    Expr
        A condition for `StoreInfo.parts`.
    """
    return (pl.col("max_epoch") >= low) & (pl.col("min_epoch") <= high)


def can_touch(lowest_epoch: int, end_ns: int, after_ns: int = -1) -> pl.Expr:
    """Say of a file of edges whether any of them can touch a stretch of time.

    Parameters
    ----------
    lowest_epoch
        No event in the stretch or after it has a lower epoch.
    end_ns
        Where it ends (ns since the run's origin).
    after_ns
        It begins right after this instant.

    Returns
    -------
    Expr
        A condition for `StoreInfo.parts`; true of more files than needed, never of fewer.
    """
    may_overlap = (pl.col("max_epoch") >= lowest_epoch) & (pl.col("min_start_ns") <= end_ns)
    lasts = pl.max_horizontal("max_duration_ns", 0)
    return (may_overlap | (pl.col("min_duration_ns") < 0)) & (pl.col("max_start_ns") + lasts > after_ns)


def near(run: Run, windows: Sequence[Window], belongs: Belongs) -> tuple[pl.Expr, pl.Expr]:
    """Say of files and of edges whether any of the windows may show them.

    Parameters
    ----------
    run, windows, belongs
        As for `pag_graph.graph.tiling.read_tiling`.

    Returns
    -------
    files
        A condition for `StoreInfo.parts`.
    rows
        A condition on columns of `PAG_EDGES`; true of more edges than needed, never of fewer.
    """
    if run.epochs_are_islands:
        epochs = [window.epoch or 0 for window in windows]
        return epochs_between(min(epochs), max(epochs)), pl.col("epoch").is_in(epochs)
    if belongs == "labels" and windows[0].epoch is not None:
        low, high = labels(run, epochs_of(windows))
        first, final = int(low.min()), int(high.max())
        return epochs_between(first, final), pl.col("epoch").is_between(first, final)
    lowest, last = min(window.lowest_epoch for window in windows), max(window.end_ns for window in windows)
    rows = ((pl.col("epoch") >= lowest) & (pl.col("start_ns") <= last)) | (pl.col("duration_ns") < 0)
    return can_touch(lowest, last, min(window.after_ns for window in windows)), rows


def epochs_of(windows: Sequence[Window]) -> I64:
    """Return the epochs of windows of epochs.

    Parameters
    ----------
    windows
        All of them have an epoch.

    Returns
    -------
    array of int64
        Per window.
    """
    return np.array([window.epoch for window in windows], np.int64)


def labels(run: Run, epochs: I64) -> tuple[I64, I64]:
    """Say which epochs are counted with those that have a window.

    Parameters
    ----------
    run
        Any run.
    epochs
        Numbers of epochs with rows in the table `epochs`.

    Returns
    -------
    low, high
        Per epoch: the first and the last one that its row stands for. It stands for all after the row before it; where
        the run ends with it, also for later ones.
    """
    # A row stands for all epochs after the row before it; where the run ends with the last one, also for later ones. A
    # run that is being followed goes on: events of later epochs belong to windows that are not known yet.
    epoch_ids = run.epochs["epoch"].to_numpy()
    ended = run.epochs["end_ns"][-1] >= run.end_ns
    last = np.iinfo(np.int64).max if ended else epoch_ids[-1]
    rows = places(epoch_ids, epochs)
    low = np.append(_lowest_label(run), epoch_ids[:-1] + 1)
    high = np.append(epoch_ids[:-1], last)
    return low[rows], high[rows]


def first_label(run: Run, epoch: int) -> int:
    """Say from which epoch on events are counted with an epoch's row or a later one.

    Parameters
    ----------
    run
        Any run.
    epoch
        Any number.

    Returns
    -------
    int
        The first epoch after the row before it.
    """
    if run.epochs_are_islands:
        return epoch
    epoch_ids = run.epochs["epoch"].to_numpy()
    earlier = epoch_ids[epoch_ids < epoch]
    return min(epoch, int(earlier.max()) + 1 if len(earlier) else _lowest_label(run))


def _lowest_label(run: Run) -> int:
    """Return the first epoch that is counted with the first row."""
    removed = run.info.removed
    return int(np.iinfo(np.int64).min) if removed is None else removed.last_epoch + 1


def rows_of(run: Run, epochs: I64, of_events: I64) -> I64:
    """Say which of some epochs with a window the epochs of events are counted with.

    Parameters
    ----------
    run
        Any run.
    epochs
        Numbers of epochs with rows in the table `epochs`: at least one, ascending unless epochs are islands.
    of_events
        Epochs that events carry.

    Returns
    -------
    array of int
        Per event: the place among `epochs`, or -1 where it is counted with none of them.
    """
    if run.epochs_are_islands:
        return places(epochs, of_events)
    return _range_of(of_events, *labels(run, epochs))


def counted_epoch(run: Run) -> pl.Expr:
    """Return the epoch whose row stands for the one in the column ``epoch``.

    Parameters
    ----------
    run
        Any run.

    Returns
    -------
    Expr
        Int64; null where there is no such row.
    """
    known = run.epochs["epoch"].to_numpy()

    def with_row(column: pl.Series) -> pl.Series:
        row = rows_of(run, known, column.to_numpy())
        return pl.Series(known[row]).set(pl.Series(row < 0), None)

    return pl.col("epoch").map_batches(with_row, return_dtype=pl.Int64)


def members(run: Run, windows: Sequence[Window], edges: pl.DataFrame, belongs: Belongs) -> tuple[I64 | None, I64]:
    """Say which edges belong to which of some windows.

    Parameters
    ----------
    run, windows, belongs
        As for `read_tiling`.
    edges
        Rows of `PAG_EDGES`, with the columns that say where an edge lies.

    Returns
    -------
    edge
        Rows, in their order, each once per window that it belongs to; None for each row once.
    window
        The place of the window per entry; -1 where a row belongs to none.
    """
    # Just looking into a store needs no compiler.
    from pag_graph.kernels.arranging import spread

    if run.epochs_are_islands or (belongs == "labels" and windows[0].epoch is not None):
        return None, rows_of(run, epochs_of(windows), edges["epoch"].to_numpy())
    start = edges["start_ns"].to_numpy()
    end = start + edges["duration_ns"].to_numpy()
    after, ends = (np.array([getattr(w, name) for w in windows], np.int64) for name in ("after_ns", "end_ns"))
    if belongs == "touches":
        return spread(np.searchsorted(ends, np.minimum(start, end)), np.searchsorted(after, np.maximum(start, end)) - 1)
    if np.any(after[1:] < ends[:-1]):
        return spread(np.searchsorted(ends, end), np.searchsorted(after, end) - 1)
    return None, _range_of(end, after + 1, ends)


def _range_of(values: I64, low: I64, high: I64) -> I64:
    """Return per value the range, of several that follow each other, that it lies in, or -1."""
    ranges = np.searchsorted(high, values)
    beyond = ranges == len(high)
    ranges[beyond] = 0
    ranges[beyond | (values < low[ranges])] = -1
    return ranges
