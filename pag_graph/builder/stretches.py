"""A build by many tasks, each of which folds a stretch of slices and reads each once.

A stretch that is not the first begins with a look at the slice before it, for what is open there, the last waits and
the messages under way. What only other slices could tell is taken for granted and checked at the end: that no message
is read two slices before it is sent, or in another stretch than the next, and that who is spawned is spawned in time.
Real logs are like that; for those that are not, and where activities are open between stretches, there is another way
(`pag_graph.builder.two_passes`), with the same rows.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from pag_graph.builder.assemble import SliceContext, assemble, known_segments
from pag_graph.builder.epochs import NONE_CLOSED
from pag_graph.builder.findings import without_send
from pag_graph.builder.fold import Folded, RunSummary, fold, goes_on_open
from pag_graph.builder.frontier import Fronts
from pag_graph.builder.leftovers import (
    Leftovers,
    lost_reads,
    make_folders,
    sends_before,
    stitched,
    stitched_of,
    unread_sends,
)
from pag_graph.builder.made import SliceResult
from pag_graph.builder.scan import SliceRows, read_slice, scan, settled
from pag_graph.builder.state import RunState, SliceScan, Spawn, VertexAt, births_of, lives_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pag_graph.builder.engine import Engine
    from pag_graph.builder.fold import Progress
    from pag_graph.builder.plan import RunPlan, Slice
    from pag_graph.builder.sink import Sink

_LONGEST = 32
"""Slices of a stretch, at most: a task that fails does so much again, and two slices more are read for each."""


@dataclass(slots=True)
class Stretch:
    """Slices that are assembled and written; the last one of the run is scanned only."""

    scans: list[SliceScan] = field(default_factory=list)
    """One per slice."""
    segments: list[Mapping[int, int]] = field(default_factory=list)
    """Per slice that was assembled: the open segments behind it."""
    results: list[SliceResult] = field(default_factory=list)
    """One per slice that was assembled."""
    births: list[tuple[Slice, dict[int, Spawn]]] = field(default_factory=list)
    """Slices that were looked at, and who of those who begin in them was known to have been born."""


def stretches(count: int, tasks: int) -> list[range]:
    """Divide slices among tasks: enough stretches that all tasks that run at a time have some.

    Parameters
    ----------
    count
        How many slices there are.
    tasks
        How many tasks run at the same time.

    Returns
    -------
    list of range
        Numbers of the slices of each stretch, in order; at most 32 of each.
    """
    parts = min(count, tasks * -(-count // (tasks * _LONGEST)))
    borders = [count * number // parts for number in range(parts + 1)]
    return [range(low, high) for low, high in pairwise(borders)]


def build_stretches(plan: RunPlan, sink: Sink, staging: Path, engine: Engine, progress: Progress) -> Folded | None:
    """Build all slices of a plan, from the beginning of the run.

    Parameters
    ----------
    plan, sink, engine, progress
        Of the build.
    staging
        A folder to be made.

    Returns
    -------
    Folded or None
        None, and nothing is left behind, if a stretch cannot know what it needs, as where idleness is inferred.
    """
    if plan.idle_inferred:
        # Which rows become vertices is known only when all messages are.
        return None
    make_folders(staging)
    task = partial(_build_stretch, plan, sink, staging)
    stretches_or_none = engine.map(task, stretches(len(plan.slices), engine.tasks), label="assemble", progress=progress)
    built_stretches = [stretch for stretch in stretches_or_none if stretch is not None]
    slice_results = [slice_result for stretch in built_stretches for slice_result in stretch.results]
    folded = None
    if len(built_stretches) == len(stretches_or_none):
        progress("stitch", 0, 1)
        engine.stitch(staging, plan.parameters.horizon_ns)
        progress("stitch", 1, 1)
        folded = _confirmed(plan, sink, staging, engine, progress, built_stretches)
    if folded is None:
        for slice_result in slice_results:
            sink.discard(slice_result.parts)
        shutil.rmtree(staging)
    return folded


def _build_stretch(plan: RunPlan, sink: Sink, staging: Path, numbers: range) -> Stretch | None:
    """Read the slices of a stretch, and assemble and write them; the last one of the run is only scanned."""
    plan = replace(plan, log=plan.log.forward())
    stretch, state, leftovers = Stretch(), RunState(), Leftovers(staging, numbers.start)
    count = len(plan.slices)
    before: _ReadSlice | None = None
    with ThreadPoolExecutor(1) as ahead:
        reading = ahead.submit(read_slice, plan, plan.slices[numbers.start])
        back = read_slice(plan, plan.slices[numbers.start - 1], with_details=False) if numbers.start else None
        for number in numbers:
            part, read = plan.slices[number], reading.result()
            if number + 1 < count:
                reading = ahead.submit(
                    read_slice, plan, plan.slices[number + 1], with_details=number + 1 < numbers.stop
                )
            slice_scan = scan(plan, part, read, waits=False)
            state.sends.add(slice_scan.sends, slice_scan.readers)
            if back is not None:
                if not _look_back(plan, numbers.start, back, stretch, state):
                    return None
                back = None
            stretch.scans.append(leftovers.add(slice_scan))
            begun_workers = {
                w
                for earlier_scan in stretch.scans[:-1]
                for w, worker_scan in earlier_scan.workers.items()
                if worker_scan.last is not None
            }
            begun_workers |= {worker for worker, worker_scan in state.workers.items() if worker_scan.last is not None}
            if number + 1 < count and goes_on_open(plan, slice_scan, begun_workers):
                _discard(stretch, sink)
                return None
            if before is not None:
                _make(plan, sink, before, stretch, state)
            before = _ReadSlice(part, slice_scan, read)
            del read
        if before is not None and numbers.stop < count:
            next_rows = reading.result()
            state.sends.add(next_rows.sends, next_rows.readers)
            _make(plan, sink, before, stretch, state)
            if state.is_open:
                _discard(stretch, sink)
                return None
    leftovers.write()
    return stretch


class _ReadSlice(NamedTuple):
    """A slice that has been read and not been made."""

    part: Slice
    scan: SliceScan
    read: SliceRows


def _look_back(plan: RunPlan, number: int, read: SliceRows, stretch: Stretch, state: RunState) -> bool:
    """Take from the slice before one what is open where that begins; say whether it tells all that must be known."""
    part = plan.slices[number - 1]
    state.sends.add(read.sends, read.readers)
    read = settled(plan, read, state.sends.find(read.receives, plan.parameters.horizon_ns))
    slice_scan = scan(plan, part, read)
    births = _births(part, _births_in([slice_scan], plan))
    segments = known_segments(part, slice_scan, births)
    before = {worker for earlier in plan.slices[:number] for worker in earlier.rows}
    # A worker that begins in this slice was spawned here, unless it is the run's first slice.
    strangers = {worker for worker, (low, _) in part.rows.items() if low == 0} - births.keys() if number > 1 else ()
    worker_scans = slice_scan.workers
    ends = all(worker in worker_scans and worker_scans[worker].last is not None for worker in before)
    if segments is None or strangers or not ends or not all(worker in segments for worker in before):
        return False
    stretch.births.append((part, births))
    state.add(slice_scan, segments)
    return not state.is_open


def _births_in(scans: Sequence[SliceScan], plan: RunPlan) -> dict[int, Spawn]:
    spawns = [spawn for slice_scan in scans for spawn in slice_scan.spawns]
    first: dict[int, VertexAt] = {}
    for slice_scan in scans if spawns else ():
        for worker, worker_scan in slice_scan.workers.items():
            if worker_scan.first is not None:
                first.setdefault(worker, worker_scan.first)
    return births_of(spawns, first, plan.workers).births


def _births(part: Slice, births: Mapping[int, Spawn]) -> dict[int, Spawn]:
    """Return the births of those who begin in a slice."""
    return {worker: births[worker] for worker, (low, _) in part.rows.items() if low == 0 and worker in births}


def _make(plan: RunPlan, sink: Sink, read_part: _ReadSlice, stretch: Stretch, state: RunState) -> None:
    """Assemble and write a slice that others follow."""
    births = _births_in(stretch.scans, plan)
    stitched = state.sends.find(read_part.scan.receives, plan.parameters.horizon_ns)
    context = SliceContext(workers=state.workers, lives=lives_of(births, state))
    graph = assemble(plan, context, settled(plan, read_part.read, stitched))
    stretch.results.append(SliceResult.of(graph, sink.write(graph, provisional=False), stitched=stitched.height))
    stretch.births.append((read_part.part, _births(read_part.part, births)))
    stretch.segments.append(graph.segments)
    state.add(read_part.scan, graph.segments)


def _discard(stretch: Stretch, sink: Sink) -> None:
    for slice_result in stretch.results:
        sink.discard(slice_result.parts)


def _confirmed(
    plan: RunPlan, sink: Sink, staging: Path, engine: Engine, progress: Progress, parts: Sequence[Stretch]
) -> Folded | None:
    """Check, once all slices are read, that what the stretches assumed is true; then finish the last slice."""
    scans = [slice_scan for stretch in parts for slice_scan in stretch.scans]
    segments = [open_ for stretch in parts for open_ in stretch.segments]
    slice_results = [slice_result for stretch in parts for slice_result in stretch.results]
    last = plan.slices[-1]
    before = RunState()
    for slice_scan, open_ in zip(scans[:-1], segments, strict=True):
        before.add(slice_scan, open_)
    state = before.copy()
    state.add(scans[-1], {})
    run_summary = RunSummary.of(plan, state)
    earlier = stitched(staging).filter(pl.col("slice") < last.number).select(pl.len()).collect().item()
    births = [birth for stretch in parts for birth in stretch.births]
    granted = all(born == _births(part, run_summary.spawns.births) for part, born in births)
    if not granted or earlier != sum(slice_result.stitched for slice_result in slice_results):
        return None
    context = SliceContext(workers=before.workers, lives=run_summary.lives, open_epoch=run_summary.span.last_left + 1)
    return finished(plan, sink, staging, engine, progress, run_summary, [(last, context)], slice_results, scans, before)


def finished(
    plan: RunPlan,
    sink: Sink,
    staging: Path,
    engine: Engine,
    progress: Progress,
    run_summary: RunSummary,
    items: Sequence[tuple[Slice, SliceContext]],
    slice_results: Sequence[SliceResult],
    scans: Sequence[SliceScan],
    before: RunState,
) -> Folded:
    """Assemble slices in tasks, and say what became of all of them.

    Parameters
    ----------
    plan, sink, staging, engine, progress
        Of the build; the leftovers of all slices are stitched.
    run_summary
        What all slices tell.
    items
        Slices that are not made, the last one of the run among them, and what each is assembled from.
    slice_results
        Results of the slices that are made.
    scans
        Of all slices.
    before
        Where the run stands before the last slice, but for its sends.

    Returns
    -------
    Folded
        An append goes on before the last slice. Where more of the log can change a slice before that, there is no state
        to go on from, and nothing counts as closed.
    """
    label = "finish" if slice_results else "assemble"
    lost, last = lost_reads(staging), plan.slices[-1].number
    fronts = Fronts(plan, RunState())
    for slice_scan in scans:
        fronts.scanned(slice_scan)
    resumable = all(
        fronts.decided(slice_scan, lost.filter(pl.col("slice") == slice_scan.number)) for slice_scan in scans[:-1]
    )
    # Of a log that goes on part of the last slice may be decided: a fold finds that out.
    folds_last = plan.tail and resumable
    todo = items[:-1] if folds_last else items
    finished_results = engine.map(partial(_finish, plan, sink, staging), todo, label=label, progress=progress)
    undecided_results = [] if folds_last else [finished_results.pop()]
    decided = [
        *slice_results,
        *finished_results,
        SliceResult(lost=without_send(plan, lost.filter(pl.col("slice") < last))),
    ]
    frontier = before.copy()
    frontier.sends = sends_before(staging, last)
    if folds_last:
        folded = fold(replace(plan, slices=plan.slices[-1:]), sink, frontier, NONE_CLOSED, progress)
        return folded._replace(decided=[*decided, *folded.decided])
    run_summary.state.sends = unread_sends(staging)
    undecided = [
        replace(slice_result, lost=without_send(plan, lost.filter(pl.col("slice") >= last)))
        for slice_result in undecided_results
    ]
    if plan.tail and not resumable:
        # The next append makes all of it anew.
        undecided = [
            replace(slice_result, parts=sink.reopen(slice_result.parts)) for slice_result in (*decided, *undecided)
        ]
        decided = []
    state = frontier if resumable else RunState()
    return Folded(decided, undecided, state, list(scans[-1:]), run_summary, resumable=resumable)


def _finish(plan: RunPlan, sink: Sink, staging: Path, item: tuple[Slice, SliceContext]) -> SliceResult:
    """Assemble and write a slice in a task."""
    part, context = item
    graph = assemble(plan, context, settled(plan, read_slice(plan, part), stitched_of(staging, part.number)))
    return SliceResult.of(graph, sink.write(graph, provisional=part.ends_run))
