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

from pag_graph.builder.assemble import Given, assemble, known_segments
from pag_graph.builder.epochs import NONE_CLOSED
from pag_graph.builder.findings import without_send
from pag_graph.builder.fold import Folded, Whole, fold, goes_on_open
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
from pag_graph.builder.made import Made
from pag_graph.builder.scan import SliceRows, read_slice, scan, settled
from pag_graph.builder.state import RunState, SliceScan, Spawn, VertexAt, births_of, lives_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pag_graph.builder.engine import Engine
    from pag_graph.builder.fold import Progress
    from pag_graph.builder.made import Sink
    from pag_graph.builder.plan import RunPlan, Slice

_LONGEST = 32
"""Slices of a stretch, at most: a task that fails does so much again, and two slices more are read for each."""


@dataclass(slots=True)
class Stretch:
    """Slices that are assembled and written; the last one of the run is scanned only."""

    scans: list[SliceScan] = field(default_factory=list)
    segments: list[Mapping[int, int]] = field(default_factory=list)
    """Per slice that was assembled: the open segments behind it."""
    made: list[Made] = field(default_factory=list)
    births: list[tuple[Slice, dict[int, Spawn]]] = field(default_factory=list)
    """Slices that were looked at, and who of those who begin in them was known to have been born."""


def stretches(count: int, tasks: int) -> list[range]:
    """Return the numbers of the slices that each task does, of so many tasks that all who run at a time have some.

    Parameters
    ----------
    count
        How many slices there are.
    tasks
        How many tasks run at the same time.
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
    task = partial(_do, plan, sink, staging)
    done = engine.map(task, stretches(len(plan.slices), engine.tasks), label="assemble", progress=progress)
    whole = [stretch for stretch in done if stretch is not None]
    made = [made for stretch in whole for made in stretch.made]
    folded = None
    if len(whole) == len(done):
        progress("stitch", 0, 1)
        engine.stitch(staging, plan.parameters.horizon_ns)
        progress("stitch", 1, 1)
        folded = _confirmed(plan, sink, staging, engine, progress, whole)
    if folded is None:
        for slice_made in made:
            sink.discard(slice_made.parts)
        shutil.rmtree(staging)
    return folded


def _do(plan: RunPlan, sink: Sink, staging: Path, numbers: range) -> Stretch | None:
    """Read the slices of a stretch, and assemble and write them; the last one of the run is only scanned."""
    plan = replace(plan, log=plan.log.forward())
    stretch, state, left = Stretch(), RunState(), Leftovers(staging, numbers.start)
    count = len(plan.slices)
    before: _Seen | None = None
    with ThreadPoolExecutor(1) as ahead:
        reading = ahead.submit(read_slice, plan, plan.slices[numbers.start])
        back = read_slice(plan, plan.slices[numbers.start - 1], whole=False) if numbers.start else None
        for number in numbers:
            part, read = plan.slices[number], reading.result()
            if number + 1 < count:
                reading = ahead.submit(read_slice, plan, plan.slices[number + 1], whole=number + 1 < numbers.stop)
            found = scan(plan, part, read, waits=False)
            state.sends.add(found.sends, found.readers)
            if back is not None:
                if not _look_back(plan, numbers.start, back, stretch, state):
                    return None
                back = None
            stretch.scans.append(left.add(found))
            begun = {w for seen in stretch.scans[:-1] for w, known in seen.workers.items() if known.last is not None}
            begun |= {worker for worker, known in state.workers.items() if known.last is not None}
            if number + 1 < count and goes_on_open(plan, found, begun):
                _discard(stretch, sink)
                return None
            if before is not None:
                _make(plan, sink, before, stretch, state)
            before = _Seen(part, found, read)
            del read
        if before is not None and numbers.stop < count:
            behind = reading.result()
            state.sends.add(behind.sends, behind.readers)
            _make(plan, sink, before, stretch, state)
            if state.is_open:
                _discard(stretch, sink)
                return None
    left.write()
    return stretch


class _Seen(NamedTuple):
    """A slice that has been read and not been made."""

    part: Slice
    found: SliceScan
    read: SliceRows


def _look_back(plan: RunPlan, number: int, read: SliceRows, stretch: Stretch, state: RunState) -> bool:
    """Take from the slice before one what is open where that begins; say whether it tells all that must be known."""
    part = plan.slices[number - 1]
    state.sends.add(read.sends, read.readers)
    read = settled(plan, read, state.sends.find(read.receives, plan.parameters.horizon_ns))
    found = scan(plan, part, read)
    births = _births(part, _births_in([found], plan))
    segments = known_segments(part, found, births)
    before = {worker for earlier in plan.slices[:number] for worker in earlier.rows}
    # Who begins here was spawned here, as far as one can tell; in the run's first slice they need not be.
    strangers = {worker for worker, (low, _) in part.rows.items() if low == 0} - births.keys() if number > 1 else ()
    known = found.workers
    ends = all(worker in known and known[worker].last is not None for worker in before)
    if segments is None or strangers or not ends or not all(worker in segments for worker in before):
        return False
    stretch.births.append((part, births))
    state.add(found, segments)
    return not state.is_open


def _births_in(scans: Sequence[SliceScan], plan: RunPlan) -> dict[int, Spawn]:
    spawns = [spawn for found in scans for spawn in found.spawns]
    first: dict[int, VertexAt] = {}
    for found in scans if spawns else ():
        for worker, known in found.workers.items():
            if known.first is not None:
                first.setdefault(worker, known.first)
    return births_of(spawns, first, plan.workers).births


def _births(part: Slice, births: Mapping[int, Spawn]) -> dict[int, Spawn]:
    """Return the births of those who begin in a slice."""
    return {worker: births[worker] for worker, (low, _) in part.rows.items() if low == 0 and worker in births}


def _make(plan: RunPlan, sink: Sink, seen: _Seen, stretch: Stretch, state: RunState) -> None:
    """Assemble and write a slice that others follow."""
    births = _births_in(stretch.scans, plan)
    stitched = state.sends.find(seen.found.receives, plan.parameters.horizon_ns)
    given = Given(workers=state.workers, lives=lives_of(births, state))
    graph = assemble(plan, given, settled(plan, seen.read, stitched))
    stretch.made.append(Made.of(graph, sink.write(graph, provisional=False), stitched=stitched.height))
    stretch.births.append((seen.part, _births(seen.part, births)))
    stretch.segments.append(graph.segments)
    state.add(seen.found, graph.segments)


def _discard(stretch: Stretch, sink: Sink) -> None:
    for made in stretch.made:
        sink.discard(made.parts)


def _confirmed(
    plan: RunPlan, sink: Sink, staging: Path, engine: Engine, progress: Progress, parts: Sequence[Stretch]
) -> Folded | None:
    """See, now that all slices are read, whether what was taken for granted is so; then finish the last slice."""
    scans = [found for stretch in parts for found in stretch.scans]
    segments = [open_ for stretch in parts for open_ in stretch.segments]
    made = [made for stretch in parts for made in stretch.made]
    last = plan.slices[-1]
    before = RunState()
    for found, open_ in zip(scans[:-1], segments, strict=True):
        before.add(found, open_)
    state = before.copy()
    state.add(scans[-1], {})
    whole = Whole.of(plan, state)
    earlier = stitched(staging).filter(pl.col("slice") < last.number).select(pl.len()).collect().item()
    births = [birth for stretch in parts for birth in stretch.births]
    granted = all(born == _births(part, whole.spawns.births) for part, born in births)
    if not granted or earlier != sum(slice_made.stitched for slice_made in made):
        return None
    given = Given(workers=before.workers, lives=whole.lives, open_epoch=whole.span.last_left + 1)
    return finished(plan, sink, staging, engine, progress, whole, [(last, given)], made, scans, before)


def finished(
    plan: RunPlan,
    sink: Sink,
    staging: Path,
    engine: Engine,
    progress: Progress,
    whole: Whole,
    items: Sequence[tuple[Slice, Given]],
    made: Sequence[Made],
    scans: Sequence[SliceScan],
    before: RunState,
) -> Folded:
    """Assemble slices in tasks, and say what became of all of them.

    Parameters
    ----------
    plan, sink, staging, engine, progress
        Of the build; the leftovers of all slices are stitched.
    whole
        What all slices tell.
    items
        Slices that are not made, the last one of the run among them, and what each is assembled from.
    made
        Those that are.
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
    label = "finish" if made else "assemble"
    lost, last = lost_reads(staging), plan.slices[-1].number
    fronts = Fronts(plan, RunState())
    for found in scans:
        fronts.scanned(found)
    resumable = all(fronts.decided(found, lost.filter(pl.col("slice") == found.number)) for found in scans[:-1])
    # Of a log that goes on part of the last slice may be decided: a fold finds that out.
    here = plan.tail and resumable
    todo = items[:-1] if here else items
    done = engine.map(partial(_finish, plan, sink, staging), todo, label=label, progress=progress)
    behind = [] if here else [done.pop()]
    decided = [*made, *done, Made(lost=without_send(plan, lost.filter(pl.col("slice") < last)))]
    frontier = before.copy()
    frontier.sends = sends_before(staging, last)
    if here:
        folded = fold(replace(plan, slices=plan.slices[-1:]), sink, frontier, NONE_CLOSED, progress)
        return folded._replace(decided=[*decided, *folded.decided])
    whole.state.sends = unread_sends(staging)
    undecided = [replace(part, lost=without_send(plan, lost.filter(pl.col("slice") >= last))) for part in behind]
    if plan.tail and not resumable:
        # The next append makes all of it anew.
        undecided = [replace(part, parts=sink.reopen(part.parts)) for part in (*decided, *undecided)]
        decided = []
    state = frontier if resumable else RunState()
    return Folded(decided, undecided, state, list(scans[-1:]), whole, resumable=resumable)


def _finish(plan: RunPlan, sink: Sink, staging: Path, item: tuple[Slice, Given]) -> Made:
    """Assemble and write a slice in a task."""
    part, given = item
    graph = assemble(plan, given, settled(plan, read_slice(plan, part), stitched_of(staging, part.number)))
    return Made.of(graph, sink.write(graph, provisional=part.ends_run))
