"""Waits of workers that poll, a second time: brute force over all pairs of rows, straight from `docs/model.md`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledRow:
    """One row of a worker's log, and what the definitions ask of it; times are nanoseconds."""

    t: int
    kind: str
    operator: int | None = None
    depth: int
    """How many activations are open after it."""
    works: bool = False
    """Whether an activation starts here that sends or reads data, or to which progress was pushed just before."""
    of_scope: bool = False
    """Whether an activation that others lie inside sends data here."""
    sent: int | None = None
    """When the message that it reads was sent, if that is known and the clocks do not contradict it."""
    same_process: bool = True
    """Whether it was sent by a worker of the same process."""
    after_gap: bool = False
    """Whether rows that stood right before it are missing."""
    logged: bool = False
    """Whether its arrival was logged: `sent` is when it arrived then."""


def polled_stretches(rows: Sequence[PolledRow], pause_ns: int) -> list[tuple[int, int]]:
    """Find the stretches in which a worker that logs no parks had nothing to do.

    Parameters
    ----------
    rows
        Of one worker in log order; their times do not decrease.
    pause_ns
        A stretch in which the worker did not poll once counts only if it takes so much time, and nothing is looked
        ahead over so much time between two steps.

    Returns
    -------
    list
        Per stretch: places of the last row before it and of the first one after it. O(rows^2).
    """
    steps = _steps(rows)
    missing = {(before.t, polled_row.t) for before, polled_row in pairwise(rows) if polled_row.after_gap}
    causes = sorted({*_own_causes(rows, steps, pause_ns), *_buffered(rows, steps), *_applications(rows), *missing})
    instants = sorted({instant for cause in causes for instant in cause})
    free = [
        (low, high)
        for low, high in pairwise(instants)
        if not any(begin <= low and high <= end for begin, end in causes)
    ]
    stretches = []
    for low, high in _merged(free, causes):
        before = max(place for place, polled_row in enumerate(rows) if polled_row.t <= low)
        after = min(place for place, polled_row in enumerate(rows) if polled_row.t >= high)
        polled = any(before < first_row < last_row < after for first_row, last_row in steps)
        if polled or high - low >= pause_ns:
            stretches.append((before, after))
    return stretches


def looked_in_vain(rows: Sequence[PolledRow]) -> dict[int, int]:
    """Return, per row that reads a message, when a step last began that did not find it.

    Parameters
    ----------
    rows
        A worker's log.

    Returns
    -------
    dict
        Nanoseconds by the place of the row; rows are absent before which no step looked.
    """
    steps = _steps(rows)
    began_at = {}
    for place, polled_row in enumerate(rows):
        own_step = next((first_row for first_row, last_row in steps if first_row <= place <= last_row), place)
        earlier = [rows[first_row].t for first_row, last_row in steps if first_row < own_step and first_row < last_row]
        if polled_row.sent is not None and earlier:
            began_at[place] = max(earlier)
    return began_at


def _merged(free: list[tuple[int, int]], causes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join stretches that touch, unless something happens in the instant between them."""
    stretches: list[tuple[int, int]] = []
    for low, high in free:
        if stretches and stretches[-1][1] == low and not any(begin <= low <= end for begin, end in causes):
            stretches[-1] = (stretches[-1][0], high)
        else:
            stretches.append((low, high))
    return stretches


def _steps(rows: Sequence[PolledRow]) -> list[tuple[int, int]]:
    """First and last row of each activation inside no other; the end and missing rows end one that has not stopped."""
    steps, first_row = [], None
    for place, polled_row in enumerate(rows):
        if first_row is not None and polled_row.after_gap:
            steps.append((first_row, place - 1))
            first_row = None
        if first_row is None and polled_row.depth:
            first_row = place
        elif first_row is not None and not polled_row.depth:
            steps.append((first_row, place))
            first_row = None
    return [*steps, (first_row, len(rows) - 1)] if first_row is not None else steps


def _own_causes(rows: Sequence[PolledRow], steps: list[tuple[int, int]], pause_ns: int) -> list[tuple[int, int]]:
    def number(place: int) -> int:
        return sum(first_row <= place for first_row, _ in steps)

    def reaches(cause: int, effect: int) -> bool:
        low, high = number(cause), number(effect)
        if cause > effect or high - low > 1 or any(polled_row.after_gap for polled_row in rows[cause + 1 : effect + 1]):
            return False
        return low in (high, 0) or rows[steps[high - 1][0]].t - rows[steps[low - 1][1]].t < pause_ns

    def latest(effect: int, kinds: set[str], *, works: bool = False) -> list[int]:
        candidates = [
            earlier for earlier in range(effect) if rows[earlier].kind in kinds and (not works or rows[earlier].works)
        ]
        return candidates[-1:]

    progress = {"progress_receive", "push_progress"}
    causes = []
    for place, polled_row in enumerate(rows):
        origins: list[int] = []
        if polled_row.kind == "start":
            if not polled_row.works:
                continue
            starts_before = [
                earlier
                for earlier in range(place)
                if rows[earlier].kind == "start" and rows[earlier].operator == polled_row.operator
            ]
            last_start = starts_before[-1] if starts_before else -1
            origins = [
                earlier
                for earlier in range(last_start + 1, place)
                if rows[earlier].kind in progress and reaches(earlier, place)
            ][:1]
        elif polled_row.kind == "push_progress":
            origins = latest(place, progress)
        elif polled_row.kind == "progress_send":
            origins = latest(place, {"start"}, works=True)
        elif polled_row.kind not in {*progress, "epoch_end", "spawn", "exit"} and (
            (polled_row.depth and not polled_row.of_scope) or polled_row.kind in {"stop", "receive", "arrival"}
        ):
            continue
        alone = place
        if polled_row.kind == "progress_send":
            # The progress tells of work in its step that was not logged.
            alone = next((first_row for first_row, last_row in steps if first_row <= place <= last_row), place)
        begin = next((earlier for earlier in origins if reaches(earlier, place)), alone)
        end = next((last_row for first_row, last_row in steps if first_row <= place <= last_row), place)
        causes.append((rows[begin].t, rows[end].t))
    return causes


def _buffered(rows: Sequence[PolledRow], steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    looked = looked_in_vain(rows)
    causes = []
    for place, polled_row in enumerate(rows):
        if polled_row.kind not in {"receive", "progress_receive"}:
            continue
        begin = polled_row.t
        if polled_row.sent is not None and not polled_row.same_process and not polled_row.logged:
            own_step = next((first_row for first_row, last_row in steps if first_row <= place <= last_row), place)
            begin = max(polled_row.sent, rows[own_step].t)
        elif polled_row.sent is not None:
            begin = max(polled_row.sent, looked.get(place, polled_row.sent))
        causes.append((min(begin, polled_row.t), polled_row.t))
    return causes


def _applications(rows: Sequence[PolledRow]) -> list[tuple[int, int]]:
    """Stretches in which any is open; a stop closes its own activity and what is inside it, and nothing else."""
    stretches: list[tuple[int, int]] = []
    open_: list[int | None] = []
    begin = 0
    for place, polled_row in enumerate(rows):
        if polled_row.after_gap and open_:
            stretches.append((begin, rows[place - 1].t))
            open_ = []
        if polled_row.kind == "application_start":
            begin = begin if open_ else polled_row.t
            open_.append(polled_row.operator)
        elif polled_row.kind == "application_stop" and polled_row.operator in open_:
            while open_.pop() != polled_row.operator:
                pass
            if not open_:
                stretches.append((begin, polled_row.t))
    return [*stretches, (begin, rows[-1].t)] if open_ else stretches
