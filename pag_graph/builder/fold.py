"""A build in one process: a fold over slices, each read once.

What the slices before one leave open is at hand when its turn comes; it is assembled when the slices behind it that
were scanned meanwhile decide its rows: mostly that is one, because all workers are cut at about the same instants. A
slice that must wait longer is read again when it is decided, so that three slices are in memory at most: one that is
assembled, the one behind it, and one that a thread reads ahead.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.builder.assemble import SliceContext, assemble
from pag_graph.builder.conflicts import another_story
from pag_graph.builder.cuts import FEW
from pag_graph.builder.epochs import NONE_CLOSED, Closed, EpochRows, Windows, windows
from pag_graph.builder.findings import without_send
from pag_graph.builder.frontier import Fronts, certain_rows, may_close
from pag_graph.builder.made import SliceResult
from pag_graph.builder.scan import SliceRows, read_slice, scan, settled
from pag_graph.builder.state import RunState, SliceScan, Spawn, Spawns, WorkerScan, births_of, lives_of
from pag_graph.runtime.threads import alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import polars as pl

    from pag_graph.builder.plan import RunPlan, Slice
    from pag_graph.builder.sink import Sink
    from pag_graph.builder.state import Life

    Progress = Callable[[str, int, int], None]

__all__ = ["Folded", "RunSummary", "fold", "goes_on_open", "join"]


@dataclass(slots=True)
class _PendingSlice:
    """A slice that was scanned and is not assembled."""

    part: Slice
    scan: SliceScan
    read: SliceRows | None
    """Its rows; None where they are read again."""


class RunSummary(NamedTuple):
    """What all slices tell together."""

    state: RunState
    """Where the run stands."""
    spawns: Spawns
    """Whose birth each row is that spawns a worker."""
    lives: Mapping[int, Life]
    """Workers that come or go while the run lasts."""
    span: Windows
    """The windows."""

    @classmethod
    def of(cls, plan: RunPlan, state: RunState, closed: Closed = NONE_CLOSED) -> RunSummary:
        """Summarise the state at the end of the log.

        Parameters
        ----------
        plan
            The build.
        state
            Where it stands after all slices.
        closed
            Epochs that are closed for good; windows are those after them.

        Returns
        -------
        RunSummary
            O(workers + epochs that are not closed).
        """
        first = {
            worker: worker_state.first
            for worker, worker_state in state.workers.items()
            if worker_state.first is not None
        }
        spawns = births_of(state.spawns, first, plan.workers)
        lives = lives_of(spawns.births, state)
        present = sum(worker_state.last_row is not None for worker_state in state.workers.values())
        merged = EpochRows.merged(state.epochs)
        span = windows(merged, end_ns=plan.end_ns, present=present, lives=lives, before=closed)
        return cls(state, spawns, lives, span)


class Folded(NamedTuple):
    """What a fold made."""

    decided: list[SliceResult]
    """Slices whose rows never change."""
    undecided: list[SliceResult]
    """The last slices, whose rows more of the log may change."""
    frontier: RunState
    """Where the decided rows end."""
    undecided_scans: list[SliceScan]
    """The undecided slices."""
    summary: RunSummary
    """What all slices tell, the undecided ones included."""
    resumable: bool = True
    """Whether an append can go on from `frontier`."""
    scanned_again: int = 0
    """Rows of slices that were divided when they had been scanned."""
    shown: bool = True
    """Whether there is anything to show of rows that are not decided."""


def fold(
    plan: RunPlan, sink: Sink, state: RunState, closed: Closed, progress: Progress, *, show: bool = True
) -> Folded:
    """Build the slices of a plan, from where a state stands.

    Parameters
    ----------
    plan
        Of the build; its slices begin where the state ends.
    sink
        Where the rows go.
    state
        Where the run stands; goes on.
    closed
        Epochs that are closed for good.
    progress
        Called with (label, done, all).
    show
        Whether to assemble also the last slices, which more of the log may change.

    Returns
    -------
    Folded
        O(rows of the slices).
    """
    folding = _Fold(plan, sink, state, closed, progress)
    with ThreadPoolExecutor(1) as ahead:
        for part, read, slice_scan in _scanned(replace(plan, log=plan.log.forward()), state, ahead):
            folding.take(_PendingSlice(part, slice_scan, read))
            del read
        with alone(when=plan.slices[-1].events < FEW):
            folding.split_last()
    if plan.tail:
        plan.log.keep_last()
    return folding.end(show=show)


class _Reading:
    """A slice that is read while others are worked on; a small one in its turn, as it is not worth a thread."""

    def __init__(self, plan: RunPlan, part: Slice, ahead: ThreadPoolExecutor | None = None) -> None:
        self._plan, self._part = plan, part
        self._begun = None if ahead is None or part.events < FEW else ahead.submit(read_slice, plan, part)

    def rows(self) -> SliceRows:
        """Return its rows."""
        return read_slice(self._plan, self._part) if self._begun is None else self._begun.result()

    def stop(self) -> None:
        """Wait until nothing is read any more."""
        if self._begun is not None:
            self._begun.result()


def _scanned(plan: RunPlan, state: RunState, ahead: ThreadPoolExecutor) -> Iterator[tuple[Slice, SliceRows, SliceScan]]:
    """Read and scan slice after slice, one ahead; slices with something open between them are joined."""
    todo = deque(plan.slices)
    begun_workers = {worker for worker, worker_state in state.workers.items() if worker_state.last is not None}
    # There is nothing to do while the first one is read.
    reading = _Reading(plan, todo[0])
    while todo:
        part = todo.popleft()
        with alone(when=part.events < FEW):
            read = reading.rows()
            if todo:
                reading = _Reading(plan, todo[0], ahead)
            slice_scan = scan(plan, part, read, waits=False)
        if todo and goes_on_open(plan, slice_scan, begun_workers):
            del read, slice_scan
            # The rows that are read ahead belong to another slice now.
            reading.stop()
            todo.appendleft(join(part, todo.popleft()))
            reading = _Reading(plan, todo[0])
            continue
        begun_workers |= {
            worker for worker, worker_state in slice_scan.workers.items() if worker_state.last is not None
        }
        yield part, read, slice_scan
        del read


def goes_on_open(plan: RunPlan, slice_scan: SliceScan, begun_workers: set[int]) -> bool:
    """Say whether the slices behind this one cannot be understood without it, so that they are joined.

    Parameters
    ----------
    plan
        The build.
    slice_scan
        The slice.
    begun_workers
        Workers with a vertex before the slice: one without would not know where its time begins.

    Returns
    -------
    bool
        True where an activation is open at the end of the slice, or a worker has rows in it and no vertex yet.
    """

    def goes_on(worker: int, worker_scan: WorkerScan) -> bool:
        return worker_scan.exit_ns is None and (plan.tail or worker_scan.rows[1] < plan.log.rows_of(worker))

    return any(
        (worker_scan.depth > 0 and goes_on(worker, worker_scan))
        or (worker_scan.last is None and worker not in begun_workers and worker_scan.rows[0] < worker_scan.rows[1])
        for worker, worker_scan in slice_scan.workers.items()
    )


def join(part: Slice, next_part: Slice) -> Slice:
    """Return one slice with the rows of two that follow each other.

    Parameters
    ----------
    part, next_part
        The slices.

    Returns
    -------
    Slice
        With the number of the latter.
    """
    rows = dict(part.rows)
    for worker, (low, high) in next_part.rows.items():
        rows[worker] = (rows[worker][0] if worker in rows else low, high)
    return replace(next_part, rows=rows)


class _Fold:
    """A fold as it goes on."""

    def __init__(self, plan: RunPlan, sink: Sink, state: RunState, closed: Closed, progress: Progress) -> None:
        self._plan, self._sink, self._state, self._closed, self._progress = plan, sink, state, closed, progress
        self._fronts = Fronts(plan, state)
        self._state.sends.place = sink
        self._pending: deque[_PendingSlice] = deque()
        self._results: list[SliceResult] = []
        self._scanned_again = 0
        # Spawns of all scanned rows: rows after a slice can tell which workers were born in it.
        self._spawns: list[Spawn] = list(state.spawns)
        self._first = {
            worker: worker_state.first
            for worker, worker_state in state.workers.items()
            if worker_state.first is not None
        }

    def take(self, pending: _PendingSlice) -> None:
        """Take the next slice that was scanned, and assemble those that are decided now."""
        epochs = pending.scan.epochs.epoch
        if (is_late := epochs <= self._closed.last).any():
            raise another_story(np.unique(epochs[is_late]).tolist())
        self._state.sends.add(pending.scan.sends, pending.scan.readers)
        self._fronts.scanned(pending.scan)
        self._spawns += pending.scan.spawns
        for worker, worker_scan in pending.scan.workers.items():
            if worker_scan.first is not None:
                self._first.setdefault(worker, worker_scan.first)
        if len(self._pending) > 1:
            self._pending[-1].read = None
        self._pending.append(pending)
        while len(self._pending) > 1:
            stitched, lost = self._reads(self._pending[0].scan)
            if not self._fronts.decided(self._pending[0].scan, lost):
                break
            pending, read = self._settled(self._pending.popleft(), stitched)
            self._results.append(self._make(pending, read, stitched, lost, self._births(), provisional=False))
            del read
            self._progress("assemble", len(self._results), len(self._plan.slices))

    def split_last(self) -> None:
        """Divide the last slice of a log that goes on, if its first rows are decided and the others are not."""
        if not self._plan.tail or len(self._pending) != 1:
            return
        pending = self._pending[-1]
        read = read_slice(self._plan, pending.part) if pending.read is None else pending.read
        if not may_close(self._state, read):
            return
        stitched, _ = self._reads(pending.scan)
        read = settled(self._plan, read, stitched)
        rows = certain_rows(self._plan, self._fronts, self._state, pending.part, read, stitched)
        if not rows:
            return
        part = replace(pending.part, rows=rows, ends_run=False)
        read = read_slice(self._plan, part)
        first = _PendingSlice(part, scan(self._plan, part, read, waits=False), read)
        begun_workers = {
            worker for worker, worker_state in self._state.workers.items() if worker_state.last is not None
        }
        if goes_on_open(self._plan, first.scan, begun_workers):
            return
        # As if the slice had never been scanned.
        self._state.sends = self._state.sends.decided(self._state.rows)
        self._spawns = list(self._state.spawns)
        self._pending.clear()
        self._scanned_again += pending.part.events
        self.take(first)
        later_rows = {
            worker: (rows.get(worker, (low, low))[1], high) for worker, (low, high) in pending.part.rows.items()
        }
        part = replace(pending.part, number=part.number + 1, rows=later_rows)
        read = read_slice(self._plan, part)
        self.take(_PendingSlice(part, scan(self._plan, part, read, waits=False), read))

    def end(self, *, show: bool) -> Folded:
        """Say where the decided rows end, and assemble the rest, if it is to be shown."""
        frontier = self._state.copy()
        frontier.sends = frontier.sends.decided(frontier.rows)
        if self._plan.idle_inferred:
            self._pending = deque(self._settled(pending, self._reads(pending.scan)[0])[0] for pending in self._pending)
        undecided_scans = [pending.scan for pending in self._pending]
        # Segments that are open at the end of the run are not needed.
        last = self._state.copy()
        for slice_scan in undecided_scans:
            last.add(slice_scan, {})
        run_summary = RunSummary.of(self._plan, last, self._closed)
        undecided = []
        for pending_slice in self._pending if show else ():
            stitched, lost = self._reads(pending_slice.scan)
            open_epoch = run_summary.span.last_left + 1
            pending, read = self._settled(pending_slice, stitched)
            undecided.append(
                self._make(
                    pending, read, stitched, lost, dict(run_summary.lives), open_epoch=open_epoch, provisional=True
                )
            )
            del read
        self._progress("assemble", len(self._plan.slices), len(self._plan.slices))
        return Folded(
            self._results,
            undecided,
            frontier,
            undecided_scans,
            run_summary._replace(state=self._state),
            scanned_again=self._scanned_again,
            shown=show,
        )

    def _births(self) -> dict[int, Life]:
        if not self._spawns:
            return {}
        return lives_of(births_of(self._spawns, self._first, self._plan.workers).births, self._state)

    def _reads(self, slice_scan: SliceScan) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return which receives of a slice belong to sends of others, and those that belong to none."""
        stitched = self._state.sends.find(slice_scan.receives, self._plan.parameters.horizon_ns)
        if stitched.height == slice_scan.receives.height:
            return stitched, slice_scan.receives.clear()
        return stitched, slice_scan.receives.join(stitched, on=["worker", "order"], how="anti")

    def _settled(self, pending: _PendingSlice, stitched: pl.DataFrame) -> tuple[_PendingSlice, SliceRows]:
        """Return a slice, and its rows with the sends of other slices filled in.

        Where idleness is inferred, the sends tell which rows become vertices, so the slice is scanned again.
        """
        read = read_slice(self._plan, pending.part) if pending.read is None else pending.read
        read = settled(self._plan, read, stitched)
        slice_scan = pending.scan
        if self._plan.idle_inferred:
            slice_scan = scan(self._plan, pending.part, read, waits=False)
            for worker, worker_scan in slice_scan.workers.items():
                if pending.part.rows[worker][0] == 0 and worker_scan.first is not None:
                    self._first[worker] = worker_scan.first
        return _PendingSlice(pending.part, slice_scan, None), read

    def _make(
        self,
        pending: _PendingSlice,
        read: SliceRows,
        stitched: pl.DataFrame,
        lost: pl.DataFrame,
        lives: Mapping[int, Life],
        *,
        open_epoch: int = 0,
        provisional: bool,
    ) -> SliceResult:
        """Assemble and write a slice, and go on behind it."""
        context = SliceContext(workers=self._state.workers, lives=lives, open_epoch=open_epoch)
        with alone(when=pending.part.events < FEW):
            graph = assemble(self._plan, context, read)
            self._state.sends.take(stitched)
            self._state.add(pending.scan, graph.segments)
            self._state.sends.forget(self._state.rows)
            self._state.sends.spill(self._fronts.reached() - self._plan.parameters.horizon_ns, self._state.rows)
            slice_result = SliceResult.of(
                graph, self._sink.write(graph, provisional=provisional), stitched=stitched.height
            )
        return replace(slice_result, lost=without_send(self._plan, lost))
