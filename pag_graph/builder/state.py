"""Where a build stands: what the rows so far leave open for those that follow.

State and new rows give decided rows and the next state: a build is a fold over slices, and an append goes on from the
state that the commit before it kept. States compose: `RunState.add` is all that happens at the border of two slices,
wherever they were read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.builder.sends import SendBook
from pag_graph.kernels.applications import applications

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pag_graph.builder.epochs import EpochRows
    from pag_graph.rules.rows import Stack


class VertexAt(NamedTuple):
    """A vertex of a worker, and where it lies."""

    pos: int
    """Position on the worker."""
    t: int
    """Nanoseconds since the run's origin."""
    epoch: int
    """The epoch that it carries."""


class RowAt(NamedTuple):
    """A row of a worker's log, as far as it tells the row from another one in its place."""

    seq: int
    """Its number in the log."""
    t: int
    """Nanoseconds since the run's origin."""
    epoch: int
    """The epoch that it carries."""
    ends_epoch: int
    """1 where it is the end of its epoch."""


class Spawn(NamedTuple):
    """A row that starts another worker."""

    worker: int
    """Who logged it."""
    child: int
    """The worker that it starts."""
    pos: int
    """Position of the row on the worker that logged it."""
    t: int
    """Nanoseconds since the run's origin."""
    epoch: int
    """The epoch that it carries."""
    seq: int
    """Its number in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerScan:
    """What of a worker's rows in a slice reaches beyond the slice."""

    rows: tuple[int, int]
    """The first row, and the one after the last."""
    first: VertexAt | None
    """Its first vertex here; None where there is none."""
    last: VertexAt | None
    """Its last vertex here."""
    depth: int
    """What is still open, activations or a park that was cut off: the next slice cannot be understood without this."""
    activities: Stack
    """Marks of activities that do not cancel each other inside the slice, under rules that carry them."""
    applications: Stack
    """The same of application activities."""
    last_row: RowAt | None
    """Its last row here."""
    exit_ns: int | None
    """When the worker ended, if its log ends here with its exit."""
    parks: bool
    """Whether it parks here."""
    wait: int | None = None
    """Position of the vertex that ends its last wait here, -1 if there is none; None where nobody asked, or where that
    takes what other slices know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceScan:
    """What the build needs to know of a slice before it can assemble any."""

    number: int
    """Number of the slice."""
    workers: Mapping[int, WorkerScan]
    """Those with rows in it; of the last slice all."""
    epochs: EpochRows
    """What its rows say of epochs."""
    sends: pl.DataFrame
    """Sends without all their receives, columns `pag_graph.builder.match.SENDS`."""
    receives: pl.DataFrame
    """Receives without their send, columns `pag_graph.builder.match.RECEIVES`."""
    readers: pl.DataFrame
    """Who read some of the sends, columns `pag_graph.builder.match.READERS`."""
    spawns: tuple[Spawn, ...]
    """Rows that start workers."""
    operators: frozenset[int]
    """Operators that start or stop here, or get progress."""
    channels: frozenset[int]
    """Channels of data messages here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """Where a worker stands."""

    rows: int = 0
    """How many of its rows are done."""
    first: VertexAt | None = None
    """Its very first vertex."""
    last: VertexAt | None = None
    """The last one so far."""
    segment: int = -1
    """Position of the vertex that starts the open segment."""
    activities: Stack = ()
    """What is open, outermost first, under rules that carry it."""
    applications: Stack = ()
    """Application activities that are open."""
    last_row: RowAt | None = None
    """The last row that is done."""
    exit_ns: int | None = None
    """When it ended, if its log says so (ns since the run's origin)."""
    parks: bool = False
    """Whether it ever parked."""

    def after(self, scan: WorkerScan, segment: int | None) -> WorkerState:
        """Return where the worker stands after more of its rows.

        Parameters
        ----------
        scan
            What of its next rows reaches beyond them.
        segment
            Position of the vertex that starts the open segment; None where that is the same as before.

        Returns
        -------
        WorkerState
            A new one.
        """
        return replace(
            self,
            rows=scan.rows[1],
            first=self.first or scan.first,
            last=scan.last or self.last,
            segment=self.segment if segment is None else segment,
            activities=still_open(self.activities, scan.activities),
            applications=still_open(self.applications, scan.applications),
            last_row=scan.last_row or self.last_row,
            exit_ns=self.exit_ns if scan.rows[0] == scan.rows[1] else scan.exit_ns,
            parks=self.parks or scan.parks,
        )


NOWHERE = WorkerState()
"""Where a worker stands of which nothing was read."""


@dataclass(slots=True, kw_only=True)
class RunState:
    """Where a run stands."""

    workers: dict[int, WorkerState] = field(default_factory=dict)
    """Per worker of which rows are done."""
    spawns: tuple[Spawn, ...] = ()
    """Rows that start workers."""
    operators: frozenset[int] = frozenset()
    """Operators that occurred so far."""
    channels: frozenset[int] = frozenset()
    """Channels of data messages that occurred so far."""
    epochs: list[EpochRows] = field(default_factory=list)
    """As `SliceScan.epochs`, of epochs that are not closed."""
    sends: SendBook = field(default_factory=SendBook)
    """Sends that not all receivers have read. A fold adds those of a slice when it is scanned."""

    def worker(self, worker: int) -> WorkerState:
        """Return where a worker stands.

        Parameters
        ----------
        worker
            Any number.

        Returns
        -------
        WorkerState
            `NOWHERE` of a worker of which nothing was read.
        """
        return self.workers.get(worker, NOWHERE)

    @property
    def rows(self) -> dict[int, int]:
        """Per worker: how many of its rows are done."""
        return {worker: worker_state.rows for worker, worker_state in self.workers.items()}

    def add(self, scan: SliceScan, segments: Mapping[int, int]) -> None:
        """Go on behind a slice.

        Parameters
        ----------
        scan
            The slice. Its sends are in the book already.
        segments
            Per worker: position of the vertex that starts the segment that is open at its end; workers whose segment
            stays the same are absent.
        """
        for worker, part in scan.workers.items():
            self.workers[worker] = self.worker(worker).after(part, segments.get(worker))
        self.spawns += scan.spawns
        self.operators |= scan.operators
        self.channels |= scan.channels
        self.epochs.append(scan.epochs)

    def copy(self) -> RunState:
        """Return a state that stays as it is when this one goes on.

        Returns
        -------
        RunState
            A new one.
        """
        return replace(self, workers=dict(self.workers), epochs=list(self.epochs), sends=self.sends.copy())

    @property
    def is_open(self) -> bool:
        """Whether an activity goes on: it may have begun any number of slices ago."""
        return any(state.applications or state.activities for state in self.workers.values())


def still_open(before: Stack, marks: Stack) -> Stack:
    """Return what is open after some rows.

    Parameters
    ----------
    before
        What is open before them.
    marks
        Starts and stops in them that do not cancel each other, in order.

    Returns
    -------
    tuple
        Outermost first.
    """
    if not marks:
        return before
    number = np.array([mark.operator for mark in marks], np.int64)
    position = np.array([mark.pos for mark in marks], np.int64)
    outer = np.array([activity.operator for activity in before], np.int64)
    open_marks = applications(position >= 0, number, outer)[3].tolist()
    return tuple(marks[mark_number] if mark_number >= 0 else before[-2 - mark_number] for mark_number in open_marks)


class Life(NamedTuple):
    """How a worker comes and goes, where its log says so."""

    birth: Spawn | None = None
    """What started it; without it the worker exists from the run's origin on."""
    begin_ns: int = 0
    """When it began to exist."""
    exit_ns: int | None = None
    """When it ended; without it the worker exists until the run's end."""


EVER = Life()


class Spawns(NamedTuple):
    """What becomes of the rows that spawn workers."""

    births: dict[int, Spawn]
    """Per worker that was spawned: the row that did it."""
    odd: dict[str, list[Spawn]]
    """Per finding: rows that are nobody's birth."""


def births_of(spawns: Sequence[Spawn], first: Mapping[int, VertexAt], workers: Sequence[int]) -> Spawns:
    """Say whose birth each spawn is: the first one that names a worker, unless the worker was there before.

    Parameters
    ----------
    spawns
        In any order.
    first
        Per worker with vertices: the first of them.
    workers
        Of the run.

    Returns
    -------
    Spawns
        O(spawns).
    """
    births: dict[int, Spawn] = {}
    odd: dict[str, list[Spawn]] = {}
    for spawn in sorted(spawns, key=lambda spawn: (spawn.t, spawn.worker, spawn.pos)):
        begins = first.get(spawn.child)
        if spawn.child not in workers or begins is None or spawn.child == spawn.worker:
            odd.setdefault("spawn_of_nobody", []).append(spawn)
        elif spawn.child in births:
            odd.setdefault("spawned_twice", []).append(spawn)
        elif begins.t < spawn.t:
            odd.setdefault("spawned_after_birth", []).append(spawn)
        else:
            births[spawn.child] = spawn
    return Spawns(births, odd)


def lives_of(births: Mapping[int, Spawn], state: RunState) -> dict[int, Life]:
    """Return the lives of workers with a birth or an exit.

    Parameters
    ----------
    births
        Per worker that was spawned: the row that did it.
    state
        Where the run stands.

    Returns
    -------
    dict
        Per such worker, ascending.
    """
    exits = {
        worker: worker_state.exit_ns
        for worker, worker_state in state.workers.items()
        if worker_state.exit_ns is not None
    }
    result = {}
    for worker in sorted(births.keys() | exits.keys()):
        first = state.worker(worker).first
        begin = first.t if worker in births and first is not None else 0
        result[worker] = Life(births.get(worker), begin, exits.get(worker))
    return result
