"""What is open on a thread at every instant, where the source states when activities start and stop.

Downstream of an operator is what nests in it, as on the stacks that Tang and Gedik (2013) sample in 6. Definitions:
`docs/model.md`, section "Advice".
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.analyses.advising.port_search import Threads
from pag_graph.kernels.applications import applications
from pag_graph.model.enums import EventKind
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from pag_graph.analyses.advising.thread_work import ThreadWork
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot

    I64 = NDArray[np.int64]

NOTHING = -1
"""Where nothing is open, or nothing lies around it."""


@dataclass(frozen=True, kw_only=True)
class Openings:
    """Activities that were started up to some instant, each inside the one that was open before it."""

    operator: I64
    """Per start, sorted by vertex: what it starts."""
    parent: I64
    """Per start: the one in which it nests, or `NOTHING`."""
    levels: tuple[I64, ...]
    """Starts by how many others they nest in."""
    marks: I64
    """Vertices at which anything starts or stops, sorted."""
    after: I64
    """Per mark: the start that is open innermost after it, or `NOTHING`."""

    def at(self, src: I64) -> I64:
        """Return the starts that are open innermost on edges that begin at vertices, or `NOTHING`."""
        mark = np.searchsorted(self.marks, src, side="right") - 1
        with_mark = np.flatnonzero(mark >= 0)
        with_mark = with_mark[self.marks[mark[with_mark]] >> POSITION_BITS == src[with_mark] >> POSITION_BITS]
        start = np.full(len(src), NOTHING)
        start[with_mark] = self.after[mark[with_mark]]
        return start

    def occurrences(self, ports: Collection[int]) -> I64:
        """Say where the thread of a port takes over.

        Parameters
        ----------
        ports
            Operators that have a port.

        Returns
        -------
        I64
            Per start: that of the innermost activity with a port on the stack, or `NOTHING`. What nests in itself is
            not handed over again.
        """
        has_port = np.isin(self.operator, list(ports))
        result = np.full(len(self.operator), NOTHING)
        for starts in self.levels:
            parent = self.parent[starts]
            outer = np.where(parent >= 0, result[parent], NOTHING)
            nested_in_itself = (outer >= 0) & (self.operator[outer] == self.operator[starts])
            result[starts] = np.where(has_port[starts] & ~nested_in_itself, starts, outer)
        return result


def openings(run: Run, end_ns: int) -> Openings:
    """Read what starts and stops until an instant.

    Parameters
    ----------
    run
        Of a source that states its activities.
    end_ns
        The end of a window, or of the run, in nanoseconds since its origin.

    Returns
    -------
    Openings
        O(vertices up to there): what is open in a window may have started long before.
    """
    kinds = [str(EventKind.START), str(EventKind.STOP)]
    known = (
        run.scan("vertices")
        .filter(pl.col("kind").is_in(kinds), pl.col("t_ns") <= end_ns)
        .select("id", pl.col("operator").fill_null(NOTHING), start=pl.col("kind") == kinds[0])
        .sort("id")
        .collect()
    )
    vertex, number, starts = (known[name].to_numpy(writable=True) for name in ("id", "operator", "start"))
    row = np.cumsum(starts) - 1
    after, parent, depth = np.full((3, len(vertex)), NOTHING)
    cuts = np.flatnonzero(np.diff(vertex >> POSITION_BITS, prepend=-1, append=-1))
    for first, last in pairwise(cuts.tolist()):
        part = slice(first, last)
        innermost, open_before, _, _ = applications(starts[part], number[part], np.empty(0, np.int64), 0)
        # Starts are numbered over all threads.
        open_start = np.where(innermost >= 0, row[part][innermost], NOTHING)
        after[part], parent[part], depth[part] = open_start[1:], open_start[:-1], open_before[:-1]
    depth = depth[starts]
    return Openings(
        operator=number[starts],
        parent=parent[starts],
        levels=tuple(np.flatnonzero(depth == level) for level in range(int(depth.max(initial=-1)) + 1)),
        marks=vertex,
        after=after,
    )


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """The different stacks of a run's threads, and how long a window's threads worked with each.

    A stack is a number: that of its innermost operator on top of the stack below it.
    """

    work: ThreadWork
    openings: Openings
    open_at: I64
    """Per row of `work`: the start that is open innermost, or `NOTHING`."""
    operator: list[int]
    """Per stack: its innermost operator. What lies below a stack has a lower number."""
    parent: list[int]
    """Per stack: the one below, or `NOTHING`."""
    stack_of: I64
    """Per start: the stack that it makes."""
    outermost_before: frozenset[int]
    """Operators that were open with nothing around them in epochs that were removed."""

    @cached_property
    def outermost(self) -> frozenset[int]:
        """Operators that are ever open with nothing around them: sources."""
        pairs = zip(self.operator, self.parent, strict=True)
        return self.outermost_before.union(operator for operator, parent in pairs if parent == NOTHING)

    @cached_property
    def spent(self) -> list[tuple[int, int, int]]:
        """Thread, stack (or `NOTHING`) and nanoseconds in which the thread is utilised."""
        rows = self.work.rows
        stack = np.where(self.open_at >= 0, np.append(self.stack_of, NOTHING)[self.open_at], NOTHING)
        columns = {"worker": rows.worker, "stack": stack, "ns": np.where(rows.counted, rows.inside, 0)}
        summed = pl.DataFrame(columns).group_by("worker", "stack").sum().sort("worker", "stack")
        return summed.rows()

    def threads(self, ports: Collection[int] = ()) -> Threads:
        """Return who does what if operators get a port; what a trace tells is exact.

        Parameters
        ----------
        ports
            Operators. An instant belongs to the innermost one on the stack, whose thread has the number after those
            of all workers and of the ports before it, in ascending order.

        Returns
        -------
        Threads
            With mu(o, t) of every operator that is downstream of nothing that has no port.
        """
        number = self.thread_of(ports)
        busy: dict[int, dict[int, int]] = {thread: {} for thread in (*self.work.life, *number.values())}
        shares_below: dict[int, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        for worker, innermost, spent in self.spent:
            stack, operators_above, thread = innermost, set(), worker
            while stack != NOTHING:
                if self.operator[stack] in number:
                    thread = number[self.operator[stack]]
                    break
                operators_above.add(self.operator[stack])
                stack = self.parent[stack]
            for ns_by_worker in (busy[thread], *(shares_below[operator][thread] for operator in operators_above)):
                ns_by_worker[worker] = ns_by_worker.get(worker, 0) + spent
        utilisations = {
            operator: {
                thread: self._share(thread, ns_by_worker)
                for thread, ns_by_worker in shares.items()
                if any(ns_by_worker.values())
            }
            for operator, shares in sorted(shares_below.items())
        }
        return Threads(
            busy={thread: self._share(thread, ns_by_worker) for thread, ns_by_worker in busy.items()},
            below={operator: shares for operator, shares in utilisations.items() if shares},
            life=self.work.life_shares,
        )

    def _share(self, thread: int, spent: Mapping[int, int]) -> float:
        """Return what a thread does, taken from some workers, as a share of its life; a new one has the longest."""
        life_ns = self.work.life.get(thread, self.work.longest_ns)
        return math.fsum(nanoseconds / life_ns for nanoseconds in spent.values())

    def thread_of(self, ports: Collection[int]) -> dict[int, int]:
        """Return the number of each port's thread."""
        first = max(self.work.life, default=-1) + 1
        return {operator: first + place for place, operator in enumerate(sorted(ports))}


def stacks(snapshot: Snapshot, work: ThreadWork) -> Stacks:
    """Tell the stacks of a window's threads apart.

    Parameters
    ----------
    snapshot, work
        Of one window of a run whose source states its activities.
    """
    starts = openings(snapshot.run, snapshot.window.end_ns)
    stack_of = np.full(len(starts.operator), NOTHING)
    operator: list[int] = []
    parent: list[int] = []
    names, rank = np.unique(starts.operator, return_inverse=True)
    for level in starts.levels:
        outer = np.append(stack_of, NOTHING)[starts.parent[level]]
        keys, place = np.unique((outer + 1) * (len(names) + 1) + rank[level], return_inverse=True)
        stack_of[level] = len(operator) + place
        operator += names[keys % (len(names) + 1)].tolist()
        parent += (keys // (len(names) + 1) - 1).tolist()
    return Stacks(
        work=work,
        openings=starts,
        open_at=starts.at(work.rows.src),
        operator=operator,
        parent=parent,
        stack_of=stack_of,
        outermost_before=snapshot.run.outermost_before,
    )
