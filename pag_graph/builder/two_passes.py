"""A build by many tasks that reads each slice twice: first for what reaches beyond it, then to assemble it.

For runs whose slices cannot be understood from the slice before alone: activities that stay open for long, messages
that are read long after they were sent or long before, workers that never wait, logs that do not say when workers had
nothing to do: those are read three times, as messages tell it. Any task can do any slice.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pag_graph.builder.assemble import SliceContext, known_segments, last_segments
from pag_graph.builder.fold import Folded, RunSummary, goes_on_open, join
from pag_graph.builder.leftovers import Leftovers, make_folders, stitched_of, without_messages
from pag_graph.builder.scan import read_slice, scan, settled
from pag_graph.builder.state import RunState
from pag_graph.builder.stretches import finished

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pag_graph.builder.engine import Engine
    from pag_graph.builder.fold import Progress
    from pag_graph.builder.plan import RunPlan, Slice
    from pag_graph.builder.scan import SliceRows
    from pag_graph.builder.sink import Sink
    from pag_graph.builder.state import SliceScan


def build_in_two_passes(plan: RunPlan, sink: Sink, staging: Path, engine: Engine, progress: Progress) -> Folded:
    """Build all slices of a plan, from the beginning of the run.

    Parameters
    ----------
    plan, sink, engine, progress
        Of the build.
    staging
        A folder to be made.

    Returns
    -------
    Folded
        O(rows).
    """
    plan, scans = _scans(plan, staging, engine, progress)
    progress("stitch", 0, 1)
    engine.stitch(staging, plan.parameters.horizon_ns)
    progress("stitch", 1, 1)
    if plan.idle_inferred:
        scans = engine.map(partial(_scan_again, plan, staging), plan.slices, label="settle", progress=progress)
    state = RunState()
    for slice_scan in scans:
        state.add(slice_scan, {})
    run_summary = RunSummary.of(plan, state)
    items = _contexts(plan, scans, run_summary, staging, engine, progress)
    before = RunState()
    for slice_scan in scans[:-1]:
        before.add(slice_scan, {})
    before.workers = dict(items[-1][1].workers)
    return finished(plan, sink, staging, engine, progress, run_summary, items, [], scans, before)


def _scans(plan: RunPlan, staging: Path, engine: Engine, progress: Progress) -> tuple[RunPlan, list[SliceScan]]:
    """Scan all slices; where an activation is open at a cut, join the slices on both sides and scan again."""
    while True:
        make_folders(staging)
        scans = engine.map(partial(_scan, plan, staging), plan.slices, label="scan", progress=progress)
        begun_workers: set[int] = set()
        open_ = set()
        for slice_scan in scans[:-1]:
            if goes_on_open(plan, slice_scan, begun_workers):
                open_.add(slice_scan.number)
            begun_workers |= {
                worker for worker, worker_scan in slice_scan.workers.items() if worker_scan.last is not None
            }
        if not open_:
            return plan, scans
        shutil.rmtree(staging)
        plan = replace(plan, slices=_joined(plan.slices, open_))


def _scan(plan: RunPlan, staging: Path, part: Slice) -> SliceScan:
    leftovers = Leftovers(staging, part.number)
    slice_scan = leftovers.add(scan(plan, part, read_slice(plan, part, with_details=False)))
    leftovers.write()
    return slice_scan


def _scan_again(plan: RunPlan, staging: Path, part: Slice) -> SliceScan:
    """Scan a slice whose messages are matched; what it leaves over is written already."""
    return without_messages(scan(plan, part, _settled(plan, staging, part)))


def _settled(plan: RunPlan, staging: Path, part: Slice) -> SliceRows:
    return settled(plan, read_slice(plan, part, with_details=False), stitched_of(staging, part.number))


def _joined(slices: Sequence[Slice], open_: set[int]) -> tuple[Slice, ...]:
    """Join every slice that ends with something open with the one after it."""
    result: list[Slice] = []
    joins = False
    for part in slices:
        result.append(join(result.pop(), part) if joins else part)
        joins = part.number in open_
    return tuple(replace(part, number=number) for number, part in enumerate(result))


def _contexts(
    plan: RunPlan,
    scans: Sequence[SliceScan],
    run_summary: RunSummary,
    staging: Path,
    engine: Engine,
    progress: Progress,
) -> list[tuple[Slice, SliceContext]]:
    """Compose, in the order of the slices, what each is assembled from."""

    def composed(segments: Sequence[dict[int, int] | None]) -> list[tuple[Slice, SliceContext]]:
        state, items = RunState(), []
        open_epoch = run_summary.span.last_left + 1
        for part, slice_scan, open_ in zip(plan.slices, scans, segments, strict=True):
            items.append(
                (part, SliceContext(workers=dict(state.workers), lives=run_summary.lives, open_epoch=open_epoch))
            )
            state.add(slice_scan, open_ or {})
        return items

    births = run_summary.spawns.births
    segments = [known_segments(part, slice_scan, births) for part, slice_scan in zip(plan.slices, scans, strict=True)]
    # Open segments at the end of the last slice are not needed.
    unknown = [number for number, open_ in enumerate(segments[:-1]) if open_ is None]
    items = composed(segments)
    if unknown:
        task = partial(_segments, plan, staging)
        judged = engine.map(task, [items[number] for number in unknown], label="carry", progress=progress)
        for number, open_ in zip(unknown, judged, strict=True):
            segments[number] = open_
        items = composed(segments)
    return items


def _segments(plan: RunPlan, staging: Path, item: tuple[Slice, SliceContext]) -> dict[int, int]:
    """Read a slice, and say which segments are open where it ends."""
    part, context = item
    return last_segments(plan, context, _settled(plan, staging, part))
