"""Where to insert threads: the search of Tang and Gedik (2013), "Auto-pipelining for Data Stream Processing".

A port at an operator hands what lies downstream of it to a thread of its own. Every busy thread gets one port
in its way, so that no bottleneck is left; of the sets of ports for which that holds, one is searched for that leaves
the busiest thread least to do. Definitions: `docs/model.md`, section "Advice".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

FULL = 1.0
"""Utilisation of a thread that never rests: nothing is won where one stays so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """What threads do, and which part of it lies downstream of which operator; shares of the threads' own time."""

    busy: Mapping[int, float]
    """Per thread: its utilisation, mu(t)."""
    below: Mapping[int, Mapping[int, float]]
    """Per operator that may get a port, and thread: the utilisation downstream of it, mu(o, t); absent where 0."""
    life: Mapping[int, float] = field(default_factory=dict)
    """Per thread: its life as a share of the longest, which is that of a new thread; 1 where absent, 0 where nothing is
    recorded of it."""

    def left(self, operator: int) -> dict[int, float]:
        """Return mu'(t) = mu(t) - mu(o, t) of all threads that run an operator, if a port takes it away from them."""
        return {thread: self.busy[thread] - share for thread, share in self.below[operator].items()}

    def taken(self, operator: int, new_threads: int = 1) -> list[float]:
        """Return mu'(t') of the new threads behind a port.

        Parameters
        ----------
        operator
            Gets the port; one of `below`.
        new_threads
            How many threads share the work. The n-th, from 0, takes it from the threads with the places n, n +
            `new_threads` and so on, of all in order.

        Returns
        -------
        list of float
            One element per new thread: its utilisation, which may be more than 1.
        """
        below = self.below[operator]
        shares = [below.get(thread, 0.0) * self.life.get(thread, 1.0) for thread in sorted(self.busy)]
        return [math.fsum(shares[first::new_threads]) for first in range(new_threads)]

    def even(self, new_threads: int) -> float:
        """Return what each thread would have to do if all, and some new ones, did as much.

        Parameters
        ----------
        new_threads
            How many threads there are more.

        Returns
        -------
        float
            A share of the time that each lives; 0 where nobody lives.
        """
        work = math.fsum(share * self.life.get(thread, 1.0) for thread, share in self.busy.items())
        return work / (self.lives + new_threads)

    @property
    def lives(self) -> float:
        """How many threads with the longest life live for as long as all threads together, W."""
        return math.fsum(self.life.get(thread, 1.0) for thread in self.busy)

    def utility(self, operator: int, new_threads: int = 1) -> float:
        """Return U(o): what the busiest of the threads concerned has to do behind a port, and before it.

        Parameters
        ----------
        operator
            Gets the port; one of `below`.
        new_threads
            How many threads there are behind it.
        """
        return max(*self.left(operator).values(), *self.taken(operator, new_threads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The answer on busy threads that share operators: they are helped together or not at all."""

    threads: tuple[int, ...]
    """Its threads, ascending."""
    ports: tuple[int | None, ...]
    """Per thread: the operator that gets a port; all None where no set of ports makes the busiest thread less busy."""
    utility: float
    """U(C): the most that any thread concerned has to do with these ports; that of the busiest where there are none."""
    before: float
    """Utilisation of the busiest of its threads."""
    nodes: int
    """Matrices that were made, the first one and those that were not pursued included."""
    pruned: int
    """Those of them that were not pursued because a thread would stay full."""
    limited: bool
    """Whether the search ended before it was complete: the answer is the best so far."""

    @property
    def operators(self) -> tuple[int, ...]:
        """The operators that get a port, ascending."""
        return tuple(sorted({port for port in self.ports if port is not None}))


class _Candidate(NamedTuple):
    """A set of ports, in the order in which one is preferred: by utility, then by the operators' ids."""

    utility: float
    ports: tuple[int, ...]


def search(
    threads: Threads, *, beta: float = 0.8, nodes: int = 1_000_000, prune: bool = True, sort: bool = True
) -> list[Group]:
    """Choose one port for each busy thread, so that the busiest has least to do.

    Parameters
    ----------
    threads
        What threads do.
    beta
        Threads of this utilisation and more are busy.
    nodes
        Matrices to make at most, in all groups together.
    prune
        Whether to leave alone what cannot help, because a thread stays full.
    sort
        Whether to decide first on operators that many threads share.

    Returns
    -------
    list of Group
        By their first thread. Threads that are not busy are in none.

    Notes
    -----
    PIPE 3.1, 3.2 and 4. A matrix has the operators that are left for each thread. The first shared operator that is
    undecided is taken as the port of its threads, or of none. In both cases it leaves all threads alike, and so do
    those that stand beside a port; so a set of operators says what a matrix holds. The number of matrices grows with
    two to the power of the number of shared operators at worst.
    """
    rows = {thread: _candidates(threads, thread) for thread, share in sorted(threads.busy.items()) if share >= beta}
    utility = {operator: threads.utility(operator) for operator in set[int]().union(*rows.values())}
    groups = []
    for members in _groups(rows):
        tree = _Tree({thread: rows[thread] for thread in members}, threads.busy, utility, prune=prune, sort=sort)
        group = tree.search(nodes)
        nodes -= group.nodes
        groups.append(group)
    return groups


def _candidates(threads: Threads, thread: int) -> list[int]:
    return sorted(operator for operator, shares in threads.below.items() if shares.get(thread, 0.0) > 0)


def _groups(rows: Mapping[int, Collection[int]]) -> Iterator[list[int]]:
    """Divide threads into those that share operators, directly or by way of others."""
    ungrouped = dict(rows)
    while ungrouped:
        first, operators = next(iter(ungrouped.items()))
        members, shared_operators = [first], set(operators)
        del ungrouped[first]
        while joining := [thread for thread, row in ungrouped.items() if not shared_operators.isdisjoint(row)]:
            for thread in joining:
                shared_operators.update(ungrouped.pop(thread))
            members += joining
        yield sorted(members)


class _Tree:
    """The search in one group. Sets of operators are numbers with a bit for each."""

    def __init__(
        self,
        rows: Mapping[int, Sequence[int]],
        busy: Mapping[int, float],
        utility: Mapping[int, float],
        *,
        prune: bool,
        sort: bool,
    ) -> None:
        self.threads = tuple(rows)
        self.busy = [busy[thread] for thread in self.threads]
        # Bits in the order in which operators are preferred as the port of a thread.
        self.operators = sorted(set[int]().union(*rows.values()), key=lambda operator: (utility[operator], operator))
        self.utility = [utility[operator] for operator in self.operators]
        self.prune = prune
        bit = {operator: 1 << place for place, operator in enumerate(self.operators)}
        self.rows = [sum(bit[operator] for operator in row) for row in rows.values()]
        times = {operator: sum(operator in row for row in rows.values()) for operator in bit}
        shared = sorted(operator for operator, count in times.items() if count > 1)
        if sort:
            shared.sort(key=lambda operator: (-times[operator], operator))
        self.shared = [bit[operator] for operator in shared]
        self.beside = []
        for chosen in self.shared:
            together = 0
            for row in self.rows:
                together |= row if row & chosen else 0
            self.beside.append(together & ~chosen)

    def search(self, nodes: int) -> Group:
        """Return the best set of ports that `nodes` matrices, or one, show."""
        best: _Candidate | None = None
        matrices_made = pruned = 0
        matrices = [((1 << len(self.operators)) - 1, 0)]
        while matrices and (matrices_made < nodes or matrices_made == 0):
            matrix, place = matrices.pop()
            matrices_made += 1
            if self.prune and self._stays_full(matrix):
                pruned += 1
                continue
            while place < len(self.shared) and not matrix & self.shared[place]:
                place += 1
            if place == len(self.shared):
                best = _better(best, self._candidate(matrix))
                continue
            matrices.append((matrix & ~self.shared[place], place + 1))
            matrices.append((matrix & ~self.beside[place], place + 1))
        before = max(self.busy)
        accepted = best is not None and best.utility < before
        return Group(
            threads=self.threads,
            ports=best.ports if best is not None and accepted else (None,) * len(self.threads),
            utility=best.utility if best is not None and accepted else before,
            before=before,
            nodes=matrices_made,
            pruned=pruned,
            limited=bool(matrices),
        )

    @staticmethod
    def _preferred_place(row: int) -> int:
        """Return the place of the preferred operator of a row that is not empty."""
        return (row & -row).bit_length() - 1

    def _stays_full(self, matrix: int) -> bool:
        """Say whether a thread is full whatever is chosen of what is left for it."""
        return any(
            (self.utility[self._preferred_place(row & matrix)] if row & matrix else busy) >= FULL
            for row, busy in zip(self.rows, self.busy, strict=True)
        )

    def _candidate(self, matrix: int) -> _Candidate | None:
        """Return the best that is left for every thread; None where some thread has no operator."""
        if not all(row & matrix for row in self.rows):
            # A thread without an operator stays as busy as it is, so such a choice gains nothing.
            return None
        places = [self._preferred_place(row & matrix) for row in self.rows]
        return _Candidate(
            max(self.utility[place] for place in places), tuple(self.operators[place] for place in places)
        )


def _better(best: _Candidate | None, candidate: _Candidate | None) -> _Candidate | None:
    if best is None or candidate is None:
        return best or candidate
    return min(best, candidate)
