"""A build in one pass: tasks do stretches of slices, one slice after the other.

Each slice is read once: what the slices before it leave open is at hand when its turn comes, and the one after it has
been read as well, because workers are cut at about the same instant only. A stretch that is not the first begins with a
look at the slice before it. What other slices could tell is taken for granted and checked at the end: that no message
is read two slices before it is sent, or in another stretch than the next, that who is spawned is spawned in time, that
no earlier slice holds both closed epochs and open ones. Real logs are like that; those that are not are built in two
passes, with the same rows.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.builder import slices, steps
from pag_graph.builder.match import KEY, apply_stitched, stitch_few
from pag_graph.store.parts import as_provisional, discard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pag_graph.builder.epochs import Windows
    from pag_graph.builder.plan import RunPlan, Slice

__all__ = ["Begun", "applies", "begin", "confirmed", "gather", "stretches"]

_NO_BORDER = 1 << 62
"""An epoch that is later than all."""
_OF_SEND = ("id", "t", "epoch")
_LONGEST = 32
"""Slices of a stretch, at most: a task that fails does so much again, and two slices more are read for each."""


@dataclass(slots=True)
class Begun:
    """Slices that are assembled and written, and the last one of the run, if it is among them, as it was read."""

    scans: list[slices.Scan] = field(default_factory=list)
    made: list[steps.Made] = field(default_factory=list)
    births: list[tuple[Slice, dict[int, slices.Spawn]]] = field(default_factory=list)
    """Slices that were looked at, and who of those who begin in them was known to have been born."""
    stitched: int = 0
    """How many messages the slices that are made have read from other slices."""
    read: slices.SliceRows | None = None
    """The last slice."""
    carry: slices.Carry = field(default_factory=slices.Carry)
    """What is open behind the slices that are made."""


def applies(plan: RunPlan, *, append: bool) -> bool:
    """Say whether a run can be built in one pass: all workers go on into the last slice, and nothing is appended to."""
    return len(plan.slices) == 1 or (not append and all(worker in plan.slices[-1].rows for worker in plan.workers))


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


def begin(
    plan: RunPlan, target: Path | None, staging: Path, progress: Callable[[str, int, int], None], stretch: range
) -> Begun | None:
    """Read the slices of a stretch, and assemble and write them; the last one of the run is only read.

    Parameters
    ----------
    plan, target, staging, progress
        Of the build.
    stretch
        Numbers of the slices.

    Returns
    -------
    Begun or None
        None, and none of its rows is left behind, if a slice ends where something is open, or the slice before the
        stretch does not tell enough.
    """
    plan = replace(plan, log=plan.log.forward())
    begun, state, left = Begun(), _State(), steps.Leftovers(staging, stretch.start)
    count = len(plan.slices)
    ends = dict.fromkeys(plan.workers, count - 1)
    before: _Seen | None = None
    wanted = len(stretch) - (stretch.stop == count)
    with ThreadPoolExecutor(1) as ahead:
        reading = ahead.submit(slices.read_slice, plan, plan.slices[stretch.start])
        back = slices.read_slice(plan, plan.slices[stretch.start - 1], whole=False) if stretch.start else None
        for number in stretch:
            part, read = plan.slices[number], reading.result()
            if number + 1 < count:
                reading = ahead.submit(
                    slices.read_slice, plan, plan.slices[number + 1], whole=number + 1 < stretch.stop
                )
            found = slices.scan(plan, part, read, waits=False)
            state.send(found.sends)
            if back is not None:
                if not _look_back(plan, stretch.start, back, begun, state):
                    return None
                back = None
            begun.scans.append(left.add(found))
            if steps.undecided(found, part, ends):
                _discard(begun, target)
                return None
            if before is not None:
                _make(plan, before, begun, state, target)
                progress("assemble", len(begun.made), wanted)
            before = _Seen(part, found, read)
            del read
        if before is not None and stretch.stop < count:
            state.send(reading.result().sends)
            _make(plan, before, begun, state, target)
            before = None
            if state.is_open():
                _discard(begun, target)
                return None
    left.write()
    begun.carry, begun.read = state.carry(), before.read if before else None
    return begun


def _look_back(plan: RunPlan, number: int, read: slices.SliceRows, begun: Begun, state: _State) -> bool:
    """Take from the slice before one what is open where that begins; say whether it tells all that must be known."""
    part = plan.slices[number - 1]
    state.send(read.sends)
    apply_stitched(read.rows, state.arrived(read.receives))
    found = slices.scan(plan, part, read)
    lives = slices.lives(plan, [found])[0]
    births = _births(lives, part)
    segments = slices.known_segments(part, found, lives)
    before = {worker for earlier in plan.slices[:number] for worker in earlier.rows}
    # Who begins here was spawned here, as far as one can tell; in the run's first slice they need not be.
    strangers = {worker for worker, (low, _) in part.rows.items() if low == 0} - births.keys() if number > 1 else ()
    if segments is None or strangers or not all(worker in found.tails and worker in segments for worker in before):
        return False
    begun.births.append((part, births))
    state.add(found, segments)
    return not state.is_open()


class _Seen(NamedTuple):
    """A slice that has been read and not been made."""

    part: Slice
    found: slices.Scan
    read: slices.SliceRows


class _State(steps.Open):
    """What is open after the slices so far, and the messages under way."""

    def __init__(self) -> None:
        super().__init__()
        self._sends = {name: [np.empty(0, np.int64)] for name in (*KEY, *_OF_SEND)}

    def is_open(self) -> bool:
        """Say whether an activity goes on: it may have begun any number of slices ago."""
        return any(self.applications.values()) or any(self.activities.values())

    def send(self, sends: pl.DataFrame) -> None:
        """Add the sends that a slice could not match."""
        if sends.height:
            for name, parts in self._sends.items():
                parts.append(sends[name].to_numpy())

    def arrived(self, receives: pl.DataFrame) -> pl.DataFrame:
        """Return which receives of a slice belong to sends of other slices."""
        sends = {name: np.concatenate(parts) for name, parts in self._sends.items()}
        self._sends = {name: [values] for name, values in sends.items()}
        return stitch_few(sends, receives)


def _make(plan: RunPlan, one: _Seen, begun: Begun, state: _State, target: Path | None) -> None:
    """Assemble and write a slice that others follow."""
    part, found, read = one
    # Exits are seen in the last slice only.
    lives = slices.lives(plan, begun.scans)[0] if any(scan.spawns for scan in begun.scans) else {}
    stitched = state.arrived(found.receives)
    carry = replace(state.carry(), lives=lives, stitched=stitched)
    graph = slices.assemble(plan, carry, read, open_epoch=0)
    begun.made.append(steps.write_graph(graph, target, last_closed=_NO_BORDER, after=None))
    begun.births.append((part, _births(lives, part)))
    begun.stitched += stitched.height
    state.add(found, graph.segments)


def _births(lives: Mapping[int, slices.Life], part: Slice) -> dict[int, slices.Spawn]:
    return {
        worker: birth
        for worker, (low, _) in part.rows.items()
        if low == 0 and worker in lives and (birth := lives[worker].birth) is not None
    }


def gather(begun: Sequence[Begun | None], target: Path | None) -> Begun | None:
    """Put the stretches of a run together, in order; None, and nothing is left behind, if one of them is missing."""
    known = [one for one in begun if one is not None]
    if len(known) < len(begun):
        for one in known:
            _discard(one, target)
        return None
    return Begun(
        scans=[scan for one in known for scan in one.scans],
        made=[made for one in known for made in one.made],
        births=[birth for one in known for birth in one.births],
        stitched=sum(one.stitched for one in known),
        read=known[-1].read,
        carry=known[-1].carry,
    )


def confirmed(
    plan: RunPlan,
    target: Path | None,
    staging: Path,
    begun: Begun,
    lives: Mapping[int, slices.Life],
    span: Windows,
) -> list[steps.Output] | None:
    """See, now that all slices are read, whether what was taken for granted of those that are made is so.

    Parameters
    ----------
    plan, target, staging
        Of the build; the leftovers of all slices are stitched.
    begun
        What `gather` returned.
    lives, span
        As all slices tell.

    Returns
    -------
    list of Output or None
        Of all slices but the last; None, and none of their rows is left behind, if it is not.
    """
    last = plan.slices[-1]
    earlier = steps.stitched(staging).filter(pl.col("slice") < last.number).select(pl.len()).collect().item()
    known = earlier == begun.stitched and all(born == _births(lives, part) for part, born in begun.births)
    closed = [_is_closed(made, span.last_closed) for made in begun.made]
    if not known or None in closed:
        _discard(begun, target)
        return None
    made = (one if is_closed else _opened(one, target) for one, is_closed in zip(begun.made, closed, strict=True))
    return [one.output(span) for one in made]


def _is_closed(made: steps.Made, last_closed: int) -> bool | None:
    """Say whether all epochs of a slice are closed, or none (False); None if neither is so."""
    epochs = np.concatenate([made.vertices.epoch, made.edges.epoch])
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


def _discard(begun: Begun, target: Path | None) -> None:
    """Remove what has been written."""
    for made in begun.made:
        for name, parts in made.parts.items():
            if target is not None:
                discard(target, name, parts)
