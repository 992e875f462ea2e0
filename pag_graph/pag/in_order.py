"""A build in one pass, where one process does the slices one after the other.

Each slice is read once: what the slices before it leave open is at hand when its turn comes, and the one after it has
been read as well, because workers are cut at about the same instant only. What later slices could tell is taken for
granted and checked at the end: that no message is read two slices before it is sent, that who is spawned is spawned in
time, that no earlier slice holds both closed epochs and open ones. Real logs are like that; those that are not are
built in two passes, with the same rows.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.pag import slices, steps
from pag_graph.pag.match import STITCHED, stitch
from pag_graph.store.delta import as_provisional, discard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pag_graph.pag.epochs import Windows
    from pag_graph.pag.plan import RunPlan, Slice

__all__ = ["Begun", "applies", "begin", "finish"]

_NO_BORDER = 1 << 62
"""An epoch that is later than all."""


@dataclass(slots=True)
class Begun:
    """All slices but the last, assembled and written, and the last, read."""

    scans: list[slices.Scan] = field(default_factory=list)
    made: list[steps.Made] = field(default_factory=list)
    births: list[dict[int, slices.Spawn]] = field(default_factory=list)
    """Per slice that is made: who was known to have been born."""
    stitched: int = 0
    """How many messages the slices that are made have read from other slices."""
    read: slices.SliceRows | None = None
    """The last slice."""
    carry: slices.Carry = field(default_factory=slices.Carry)
    """What is open where it begins."""


def applies(plan: RunPlan, *, append: bool) -> bool:
    """Say whether a run can be built in one pass: all workers go on into the last slice, and nothing is appended to."""
    return len(plan.slices) == 1 or (not append and all(worker in plan.slices[-1].rows for worker in plan.workers))


def begin(plan: RunPlan, target: Path | None, staging: Path, progress: Callable[[str, int, int], None]) -> Begun | None:
    """Read all slices, and assemble and write all but the last.

    Parameters
    ----------
    plan, target, staging, progress
        Of the build.

    Returns
    -------
    Begun or None
        None, and nothing is left behind, if a slice ends where something is open.
    """
    steps.make_folders(staging)
    plan = replace(plan, log=plan.log.forward())
    begun, state = Begun(), _State()
    count = len(plan.slices)
    ends = dict.fromkeys(plan.workers, count - 1)
    before: _Seen | None = None
    progress("assemble", 0, count)
    with ThreadPoolExecutor(1) as ahead:
        reading = ahead.submit(slices.read_slice, plan, plan.slices[0])
        for part in plan.slices:
            read = reading.result()
            if part.number + 1 < count:
                reading = ahead.submit(slices.read_slice, plan, plan.slices[part.number + 1])
            found = slices.scan(plan, part, read, waits=False)
            state.sends.append(found.sends)
            begun.scans.append(steps.leave_over(staging, part, found))
            if steps.undecided(found, part, ends):
                _give_up(begun, target, staging)
                return None
            if before is not None:
                _make(plan, before, begun, state, target)
                progress("assemble", part.number, count)
            before = _Seen(part, found, read)
            del read
    begun.carry, begun.read = state.carry(), before.read if before else None
    return begun


class _Seen(NamedTuple):
    """A slice that has been read and not been made."""

    part: Slice
    found: slices.Scan
    read: slices.SliceRows


class _State(steps.Open):
    """What is open after the slices so far, and the messages under way."""

    def __init__(self) -> None:
        super().__init__()
        self.sends: list[pl.DataFrame] = []

    def arrived(self, found: slices.Scan) -> pl.DataFrame:
        """Return which receives of a slice belong to sends of other slices."""
        sends = pl.concat(self.sends)
        if not (sends.height and found.receives.height):
            return pl.DataFrame(schema=dict.fromkeys(STITCHED, pl.Int64))
        joined = stitch(nw.from_native(sends.lazy()), nw.from_native(found.receives.lazy()))
        frame: pl.DataFrame = joined.to_native().collect()
        return frame


def _make(plan: RunPlan, one: _Seen, begun: Begun, state: _State, target: Path | None) -> None:
    """Assemble and write a slice that others follow."""
    part, found, read = one
    # Exits are seen in the last slice only.
    lives = slices.lives(plan, begun.scans)[0] if any(scan.spawns for scan in begun.scans) else {}
    stitched = state.arrived(found)
    carry = replace(state.carry(), lives=lives, stitched=stitched)
    graph = slices.assemble(plan, carry, read, open_epoch=0)
    begun.made.append(steps.write_graph(graph, target, last_closed=_NO_BORDER, after=None))
    begun.births.append(_births(lives, part))
    begun.stitched += stitched.height
    state.add(found, graph.segments)


def _births(lives: Mapping[int, slices.Life], part: Slice) -> dict[int, slices.Spawn]:
    return {worker: birth for worker in part.rows if worker in lives and (birth := lives[worker].birth) is not None}


def finish(
    plan: RunPlan,
    target: Path | None,
    staging: Path,
    begun: Begun,
    lives: Mapping[int, slices.Life],
    span: Windows,
    after: int | None,
) -> list[steps.Output] | None:
    """Assemble the last slice, now that the windows are known, and see whether what was taken for granted is so.

    Parameters
    ----------
    plan, target, staging
        Of the build; the leftovers of all slices are stitched.
    begun
        What `begin` returned.
    lives, span
        As all slices tell.
    after
        As for `pag.steps.write_graph`.

    Returns
    -------
    list of Output or None
        None, and nothing is left behind, if it is not.
    """
    last = plan.slices[-1]
    earlier = steps.stitched(staging).filter(pl.col("slice") < last.number).select(pl.len()).collect().item()
    borns = (_births(lives, part) for part in plan.slices)
    known = earlier == begun.stitched and all(a == b for a, b in zip(begun.births, borns, strict=False))
    closed = [_is_closed(made, span.last_closed) for made in begun.made]
    if not known or None in closed:
        _give_up(begun, target, staging)
        return None
    made = [one if is_closed else _opened(one, target) for one, is_closed in zip(begun.made, closed, strict=True)]
    carry = replace(begun.carry, lives=lives)
    output = steps.assemble(plan, target, staging, span, after, begun.read, (last, carry))
    return [*(one.output(span) for one in made), output]


def _is_closed(made: steps.Made, last_closed: int) -> bool | None:
    """Say whether all epochs of a slice are closed, or none (False); None if neither is so."""
    epochs = np.concatenate([made.vertices[0], made.edges[0]])
    if not epochs.size or epochs.max() <= last_closed:
        return True
    return None if epochs.min() <= last_closed else False


def _opened(made: steps.Made, target: Path | None) -> steps.Made:
    """Make the rows of a slice, which were written as if their epochs were closed, those of open ones."""
    parts = {
        name: [as_provisional(target, name, part) for part in files]
        for name, files in made.parts.items()
        if target is not None
    }
    return replace(made, parts=parts, closed=0)


def _give_up(begun: Begun, target: Path | None, staging: Path) -> None:
    """Remove what has been written."""
    for made in begun.made:
        for name, parts in made.parts.items():
            if target is not None:
                discard(target, name, parts)
    shutil.rmtree(staging)
