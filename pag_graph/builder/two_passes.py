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

from pag_graph.builder.assemble import Given, known_segments, last_segments
from pag_graph.builder.fold import Folded, Whole, goes_on_open, join
from pag_graph.builder.leftovers import Leftovers, make_folders, stitched_of
from pag_graph.builder.scan import read_slice, scan, settled
from pag_graph.builder.state import RunState
from pag_graph.builder.stretches import finished

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pag_graph.builder.engine import Engine
    from pag_graph.builder.fold import Progress
    from pag_graph.builder.made import Sink
    from pag_graph.builder.plan import RunPlan, Slice
    from pag_graph.builder.scan import SliceRows
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
    for found in scans:
        state.add(found, {})
    whole = Whole.of(plan, state)
    items = _given(plan, scans, whole, staging, engine, progress)
    before = RunState()
    for found in scans[:-1]:
        before.add(found, {})
    before.workers = dict(items[-1][1].workers)
    return finished(plan, sink, staging, engine, progress, whole, items, [], scans, before)


def _scans(plan: RunPlan, staging: Path, engine: Engine, progress: Progress) -> tuple[RunPlan, list[SliceScan]]:
    """Scan all slices; where an activation is open at a cut, join the slices on both sides and scan again."""
    while True:
        make_folders(staging)
        scans = engine.map(partial(_scan, plan, staging), plan.slices, label="scan", progress=progress)
        begun: set[int] = set()
        open_ = set()
        for found in scans[:-1]:
            if goes_on_open(plan, found, begun):
                open_.add(found.number)
            begun |= {worker for worker, known in found.workers.items() if known.last is not None}
        if not open_:
            return plan, scans
        shutil.rmtree(staging)
        plan = replace(plan, slices=_joined(plan.slices, open_))


def _scan(plan: RunPlan, staging: Path, part: Slice) -> SliceScan:
    left = Leftovers(staging, part.number)
    found = left.add(scan(plan, part, read_slice(plan, part, whole=False)))
    left.write()
    return found


def _scan_again(plan: RunPlan, staging: Path, part: Slice) -> SliceScan:
    """Scan a slice whose messages are matched; what it leaves over is written already."""
    found = scan(plan, part, _settled(plan, staging, part))
    return replace(found, sends=found.sends.clear(), receives=found.receives.clear(), readers=found.readers.clear())


def _settled(plan: RunPlan, staging: Path, part: Slice) -> SliceRows:
    return settled(plan, read_slice(plan, part, whole=False), stitched_of(staging, part.number))


def _joined(slices: Sequence[Slice], open_: set[int]) -> tuple[Slice, ...]:
    """Join every slice that ends with something open with the one after it."""
    result: list[Slice] = []
    joins = False
    for part in slices:
        result.append(join(result.pop(), part) if joins else part)
        joins = part.number in open_
    return tuple(replace(part, number=number) for number, part in enumerate(result))


def _given(
    plan: RunPlan, scans: Sequence[SliceScan], whole: Whole, staging: Path, engine: Engine, progress: Progress
) -> list[tuple[Slice, Given]]:
    """Compose, in the order of the slices, what each is assembled from."""

    def composed(segments: Sequence[dict[int, int] | None]) -> list[tuple[Slice, Given]]:
        state, items = RunState(), []
        open_epoch = whole.span.last_left + 1
        for part, found, open_ in zip(plan.slices, scans, segments, strict=True):
            items.append((part, Given(workers=dict(state.workers), lives=whole.lives, open_epoch=open_epoch)))
            state.add(found, open_ or {})
        return items

    births = whole.spawns.births
    segments = [known_segments(part, found, births) for part, found in zip(plan.slices, scans, strict=True)]
    # Nobody asks how the last slice ends.
    unknown = [number for number, open_ in enumerate(segments[:-1]) if open_ is None]
    items = composed(segments)
    if unknown:
        task = partial(_segments, plan, staging)
        judged = engine.map(task, [items[number] for number in unknown], label="carry", progress=progress)
        for number, open_ in zip(unknown, judged, strict=True):
            segments[number] = open_
        items = composed(segments)
    return items


def _segments(plan: RunPlan, staging: Path, item: tuple[Slice, Given]) -> dict[int, int]:
    """Read a slice, and say which segments are open where it ends."""
    part, given = item
    return last_segments(plan, given, _settled(plan, staging, part))
