"""Waits of workers that poll, a second time: brute force over all pairs of rows, straight from `docs/model.md`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledRow:
    """One row of a worker's log, and what the definitions ask of it."""

    t: int
    kind: str
    operator: int | None = None
    depth: int
    """How many activations are open after it."""
    works: bool = False
    """Whether an activation starts here that sends or reads data, or to which progress was pushed just before."""
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
    missing = {(before.t, row.t) for before, row in pairwise(rows) if row.after_gap}
    causes = sorted({*_own_causes(rows, steps, pause_ns), *_buffered(rows, steps), *_applications(rows), *missing})
    instants = sorted({instant for cause in causes for instant in cause})
    free = [
        (low, high)
        for low, high in pairwise(instants)
        if not any(begin <= low and high <= end for begin, end in causes)
    ]
    result = []
    for low, high in _merged(free, causes):
        before = max(place for place, row in enumerate(rows) if row.t <= low)
        after = min(place for place, row in enumerate(rows) if row.t >= high)
        polled = any(before < first < last < after for first, last in steps)
        if polled or high - low >= pause_ns:
            result.append((before, after))
    return result


def looked_in_vain(rows: Sequence[PolledRow]) -> dict[int, int]:
    """Return, per row that reads a message, when a step last began that did not find it; absent if none did."""
    steps = _steps(rows)
    result = {}
    for place, row in enumerate(rows):
        own_step = next((first for first, last in steps if first <= place <= last), place)
        earlier = [rows[first].t for first, last in steps if first < own_step and first < last]
        if row.sent is not None and earlier:
            result[place] = max(earlier)
    return result


def _merged(free: list[tuple[int, int]], causes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join stretches that touch, unless something happens in the instant between them."""
    result: list[tuple[int, int]] = []
    for low, high in free:
        if result and result[-1][1] == low and not any(begin <= low <= end for begin, end in causes):
            result[-1] = (result[-1][0], high)
        else:
            result.append((low, high))
    return result


def _steps(rows: Sequence[PolledRow]) -> list[tuple[int, int]]:
    """First and last row of each activation inside no other; the end and missing rows end one that has not stopped."""
    result, first = [], None
    for place, row in enumerate(rows):
        if first is not None and row.after_gap:
            result.append((first, place - 1))
            first = None
        if first is None and row.depth:
            first = place
        elif first is not None and not row.depth:
            result.append((first, place))
            first = None
    return [*result, (first, len(rows) - 1)] if first is not None else result


def _own_causes(rows: Sequence[PolledRow], steps: list[tuple[int, int]], pause_ns: int) -> list[tuple[int, int]]:
    def number(place: int) -> int:
        return sum(first <= place for first, _ in steps)

    def reaches(cause: int, effect: int) -> bool:
        low, high = number(cause), number(effect)
        if cause > effect or high - low > 1 or any(row.after_gap for row in rows[cause + 1 : effect + 1]):
            return False
        return low in (high, 0) or rows[steps[high - 1][0]].t - rows[steps[low - 1][1]].t < pause_ns

    def latest(effect: int, kinds: set[str], *, works: bool = False) -> list[int]:
        candidates = [p for p in range(effect) if rows[p].kind in kinds and (not works or rows[p].works)]
        return candidates[-1:]

    progress = {"progress_receive", "push_progress"}
    result = []
    for place, row in enumerate(rows):
        origins: list[int] = []
        if row.kind == "start":
            if not row.works:
                continue
            ran = [p for p in range(place) if rows[p].kind == "start" and rows[p].operator == row.operator]
            last_start = ran[-1] if ran else -1
            origins = [p for p in range(last_start + 1, place) if rows[p].kind in progress and reaches(p, place)][:1]
        elif row.kind == "push_progress":
            origins = latest(place, progress)
        elif row.kind == "progress_send":
            origins = latest(place, {"start"}, works=True)
        elif row.kind not in {*progress, "epoch_end", "spawn", "exit"} and (
            row.depth or row.kind in {"stop", "receive", "arrival"}
        ):
            continue
        alone = place
        if row.kind == "progress_send":
            # The progress tells of work in its step that was not logged.
            alone = next((first for first, last in steps if first <= place <= last), place)
        begin = next((p for p in origins if reaches(p, place)), alone)
        end = next((last for first, last in steps if first <= place <= last), place)
        result.append((rows[begin].t, rows[end].t))
    return result


def _buffered(rows: Sequence[PolledRow], steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    looked = looked_in_vain(rows)
    result = []
    for place, row in enumerate(rows):
        if row.kind not in {"receive", "progress_receive"}:
            continue
        begin = row.t
        if row.sent is not None and not row.same_process and not row.logged:
            own_step = next((first for first, last in steps if first <= place <= last), place)
            begin = max(row.sent, rows[own_step].t)
        elif row.sent is not None:
            begin = max(row.sent, looked.get(place, row.sent))
        result.append((min(begin, row.t), row.t))
    return result


def _applications(rows: Sequence[PolledRow]) -> list[tuple[int, int]]:
    """Stretches in which any is open; a stop closes its own activity and what is inside it, and nothing else."""
    result: list[tuple[int, int]] = []
    open_: list[int | None] = []
    begin = 0
    for place, row in enumerate(rows):
        if row.after_gap and open_:
            result.append((begin, rows[place - 1].t))
            open_ = []
        if row.kind == "application_start":
            begin = begin if open_ else row.t
            open_.append(row.operator)
        elif row.kind == "application_stop" and row.operator in open_:
            while open_.pop() != row.operator:
                pass
            if not open_:
                result.append((begin, row.t))
    return [*result, (begin, rows[-1].t)] if open_ else result
