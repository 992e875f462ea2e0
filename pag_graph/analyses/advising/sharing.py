"""Who was there to share the work of a window, and which operators were shared.

Definition: `docs/model.md`, section "Advice", Widen. Threads of which nothing is recorded count as none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.analyses.expressions import END, worker_of
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.analyses.advising.thread_work import ThreadWork
    from pag_graph.analyses.window_graphs import WindowGraph
    from pag_graph.graph.snapshot import Snapshot

    I64 = NDArray[np.int64]


class Lives(NamedTuple):
    """The lives of the threads of which anything is recorded in a window, inside of it. Times are nanoseconds."""

    lengths: I64
    """How long each is there, ascending."""
    begins: I64
    """When they begin, ascending."""
    ends: I64
    """When they end, ascending."""
    longest_ns: int
    """The life of a new thread: the longest one of all threads, recorded or not; at least 1."""

    @property
    def all_ns(self) -> int:
        """All of them together."""
        return int(self.lengths.sum())


def lives_of(snapshot: Snapshot, work: ThreadWork) -> Lives:
    """Return the lives of the threads of a window.

    Parameters
    ----------
    snapshot, work
        One window.

    Returns
    -------
    Lives
        O(edges).
    """
    local = snapshot.local.filter(worker_of("src").is_in(work.recorded)).group_by(worker_of("src"))
    lives = local.agg(begin=pl.col("start_ns").min(), end=END.max())
    window = snapshot.window
    begins, ends = (lives[name].to_numpy().clip(window.start_ns, window.end_ns) for name in ("begin", "end"))
    lengths = np.array([work.life[worker] for worker in work.recorded], np.int64)
    return Lives(np.sort(lengths), np.sort(begins), np.sort(ends), work.longest_ns)


def even_share(work_ns: float, lives: Lives, more: int) -> float:
    """Return the least that the busiest thread has to do, if none works for longer than it lives.

    Parameters
    ----------
    work_ns
        What all have to do together.
    lives
        Threads that were there.
    more
        How many new threads there are, at least one, which are there for as long as it takes.

    Returns
    -------
    float
        Nanoseconds.
    """
    left_ns, sharing = work_ns, len(lives.lengths) + more
    for life_ns in lives.lengths.tolist():
        if left_ns <= life_ns * sharing:
            break
        # It works all of its life, and the others have a larger share.
        left_ns, sharing = left_ns - life_ns, sharing - 1
    return left_ns / sharing


class OnOneWorker(NamedTuple):
    """Operators that one worker alone runs in a window, ascending."""

    alone: I64
    """While another one was there: more workers would not share them."""
    unwitnessed: I64
    """While no other was there, so that nobody can say."""


def operators_on_one_worker(base: WindowGraph, work: I64, lives: Lives) -> OnOneWorker:
    """Return which operators only one worker runs.

    Parameters
    ----------
    base
        Edges of a window.
    work
        Per edge: nanoseconds of work.
    lives
        Who is there.

    Returns
    -------
    OnOneWorker
        O(edges x log edges).
    """
    rows = np.flatnonzero((work > 0) & (base.number("operator") >= 0))
    operator, worker = base.number("operator")[rows], base.number("src")[rows] >> POSITION_BITS
    start_ns = base.number("start_ns")[rows]
    end_ns = start_ns + base.number("duration_ns")[rows]
    # Lives that it overlaps, its own worker's among them.
    there = np.searchsorted(lives.begins, end_ns) - np.searchsorted(lives.ends, start_ns, side="right")
    pairs = np.unique(np.stack([operator, worker]), axis=1)[0]
    operators, runners = np.unique(pairs, return_counts=True)
    on_one = operators[runners == 1]
    witnessed = np.isin(on_one, operator[there > 1])
    return OnOneWorker(alone=on_one[witnessed], unwitnessed=on_one[~witnessed])
