"""What only all spans together say: how clocks differ, and which threads coroutines share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.kernels.span_trees import Times, mixed_threads, numbers_below
from pag_graph.sources.spans.clocks import Calls, Clocks, Columns, calls_between, compare_clocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.sources.spans.parents import Family
    from pag_graph.sources.spans.table import SpanTable

    I64 = NDArray[np.int64]


class Threads(NamedTuple):
    """What some spans say of threads; times are nanoseconds since 1970."""

    mixed: NDArray[np.int64]
    """Those of which two spans overlap although neither is above the other."""
    thread: NDArray[np.int64]
    """Of the others the stretches of time in which spans follow or lie in each other: the thread of each."""
    start: NDArray[np.int64]
    end: NDArray[np.int64]


class Evidence(NamedTuple):
    """What the spans of some traces say."""

    calls: Calls
    threads: Threads


class Agreed(NamedTuple):
    """What holds for all spans."""

    clocks: Clocks
    mixed: NDArray[np.int64]
    """Threads that prove nothing, ascending: coroutines share them."""


def recorded_columns(table: SpanTable, kin: Family) -> Columns:
    """Return spans as recorded, before any clock is moved.

    Parameters
    ----------
    table
        The spans.
    kin
        Which of them stand, and whose children they are.

    Returns
    -------
    Columns
        One element per span of `kin`, in its order; times are nanoseconds since 1970.
    """
    columns = [table.spans[name].to_numpy()[kin.row].astype(np.int64) for name in ("start", "end", "kind", "process")]
    start, end, kind, process = columns
    return Columns(start, end, kind, process, kin.parent)


def stated_threads(table: SpanTable, kin: Family, process: I64) -> I64:
    """Return the thread that each span states, numbered across processes; -1 where it states none.

    Parameters
    ----------
    table, kin
        The spans.
    process
        Of each span of `kin`: threads of two processes may have one name.
    """
    stated = table.spans["thread"].to_numpy()[kin.row].astype(np.int64)
    return np.where(stated >= 0, process * (len(table.threads) + 1) + stated, -1)


def evidence(table: SpanTable, kin: Family, recorded: Columns) -> Evidence:
    """Return what the spans of whole traces say of clocks and threads.

    Parameters
    ----------
    table, kin
        The spans, and which of them stand.
    recorded
        Their times (`recorded_columns`).

    Returns
    -------
    Evidence
        To be put together with that of other traces (`agree`).

    Notes
    -----
    Spans of a thread have one clock, so that times are compared as they were recorded. O(n log n).
    """
    thread = stated_threads(table, kin, recorded.process)
    return Evidence(calls_between(table, recorded), _use_of_threads(thread, kin, recorded))


def agree(table: SpanTable, parts: Sequence[Evidence]) -> Agreed:
    """Return what holds for all spans, given what each part of them says.

    Parameters
    ----------
    table
        A part of the spans, for its codes, which are the same in all.
    parts
        What parts of whole traces say (`evidence`).

    Returns
    -------
    Agreed
        The same for every way of dividing the spans.
    """
    threads = Threads(*(np.concatenate(column) for column in zip(*(part.threads for part in parts), strict=True)))
    mixed = [threads.mixed]
    if len(parts) > 1:
        # Between traces nobody is above anybody.
        number = np.arange(len(threads.thread))
        mixed.append(_mixed(threads.thread, Times(threads.start, threads.end), number, number))
    return Agreed(compare_clocks(table, [part.calls for part in parts]), np.unique(np.concatenate(mixed)))


def _use_of_threads(thread: I64, kin: Family, recorded: Columns) -> Threads:
    stated = np.flatnonzero(thread >= 0)
    first_below, last_below = numbers_below(kin.parent, np.argsort(kin.depth, kind="stable"))
    thread, start, end = thread[stated], recorded.start[stated], recorded.end[stated]
    mixed = _mixed(thread, Times(start, end), first_below[stated], last_below[stated])
    sound = ~np.isin(thread, mixed)
    spans = pl.DataFrame({"thread": thread[sound], "start": start[sound], "end": end[sound]})
    # A stretch begins where all that began before has ended.
    ended_before = pl.col("end").cum_max().shift(1).over("thread")
    stretches = (
        spans.with_columns(length=pl.col("start") - pl.col("end"))
        .sort("thread", "start", "length")
        .with_columns(stretch=(ended_before.is_null() | (pl.col("start") >= ended_before)).cum_sum())
        .group_by("stretch", maintain_order=True)
        .agg(pl.col("thread").first(), pl.col("start").first(), pl.col("end").max())
    )
    return Threads(mixed, *(stretches[name].to_numpy() for name in ("thread", "start", "end")))


def _mixed(thread: I64, times: Times, first_below: I64, last_below: I64) -> I64:
    """Return the threads of which two spans overlap although neither is above the other."""
    distinct, number = np.unique(thread, return_inverse=True)
    order = np.lexsort((first_below, -times.end, times.start, number))
    mixed = mixed_threads(
        Times(times.start[order], times.end[order]), number[order], first_below[order], last_below[order]
    )
    return distinct[np.flatnonzero(mixed)]
