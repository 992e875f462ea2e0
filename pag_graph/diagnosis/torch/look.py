"""Where the time of training steps went: path by kind of work, skew of ranks, stalls and overlap.

Definitions stand in `docs/torch.md`, "The answers".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from pag_graph.diagnosis.path_steps import marked_steps, shares
from pag_graph.sources.kineto import operators as classes
from pag_graph.sources.kineto.spans import COLLECTIVE, LAUNCH
from pag_graph.sources.kineto.threads import LOADER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.analyses.critical_path import CriticalPath
    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window
    from pag_graph.sources.kineto.collectives import Part
    from pag_graph.sources.kineto.convert import Mapped
    from pag_graph.sources.kineto.rank import Activity, Rank

__all__ = ["Look", "look_at"]

KERNELS, OPERATORS, CALLS, PYTHON = "kernels", "CPU operators", "runtime calls", "Python"
LATENCY, COPIES, LOADING, WAKE_UP = "launch latency", "copies", "data loading", "wake-up"
TRANSFER, BETWEEN, SYNCHRONISATION, UNKNOWN = "collectives", "between kernels", "synchronisation", "unknown"
"""Kinds of time on a path."""
ON_CPU: Final = (OPERATORS, CALLS, PYTHON)
_OF_CLASS: Final = {
    classes.PYTHON: PYTHON,
    classes.OP: OPERATORS,
    classes.CALL: CALLS,
    classes.KERNEL: KERNELS,
    classes.COPY: COPIES,
    classes.COLLECTIVE: TRANSFER,
    classes.LOADING: LOADING,
}


@dataclass(slots=True)
class RankSkew:
    """How a rank came to collectives."""

    rank: int
    collectives: int = 0
    last: int = 0
    """Collectives to which it came last."""
    waited_ns: int = 0
    """What it waited for others."""
    blamed_ns: int = 0
    """What others waited for it at most, per collective, summed."""
    loading_ns: int = 0
    """How long its main thread got batches."""
    blamed_aside_ns: int = 0
    """Of `blamed_ns` what is left without the time that it got batches for longer than who waited."""

    def facts(self) -> dict[str, int]:
        """Return it as plain values."""
        return {
            "rank": self.rank,
            "collectives": self.collectives,
            "last": self.last,
            "waited_ns": self.waited_ns,
            "blamed_ns": self.blamed_ns,
            "loading_ns": self.loading_ns,
        }


@dataclass(slots=True)
class Stalls:
    """Rest of a rank's streams until a launch came, in nanoseconds."""

    rank: int
    syncs: int = 0
    """Rests whose launch came after its thread had waited for the device."""
    sync_ns: int = 0
    loading_ns: int = 0
    """Rests while the main thread got its next batch."""
    launch_ns: int = 0
    """All other rests that a launch ended."""

    def facts(self) -> dict[str, int]:
        """Return it as plain values."""
        return {
            "rank": self.rank,
            "stalls": self.syncs,
            "stalled_ns": self.sync_ns,
            "loading_ns": self.loading_ns,
            "launch_ns": self.launch_ns,
        }


@dataclass(slots=True, kw_only=True)
class Look:
    """A window of a training job under examination."""

    mapped: Mapped
    run: Run
    window: Window
    path: CriticalPath
    steps: pl.DataFrame
    """Rows of `CRITICAL_PATH` with `kind`, `rank`, `name` and `inferred`."""
    skews: list[RankSkew] = field(default_factory=list)
    stalls: list[Stalls] = field(default_factory=list)
    overlap: list[dict[str, int]] = field(default_factory=list)

    @property
    def span_ns(self) -> int:
        """Length of the window."""
        return self.window.span_ns

    def shares(self, column: str, *kinds: str) -> list[dict[str, Any]]:
        """Return the path's time by a column, longest first.

        Parameters
        ----------
        column
            A column of `steps`, such as ``kind``, ``rank``, ``name``, ``operator``.
        *kinds
            Only time of these kinds counts; all if none is given.

        Returns
        -------
        list of dict
            One row per value: ``key``, ``path_ns``, and ``share`` of the whole window.
        """
        steps = self.steps.filter(pl.col("kind").is_in(list(kinds))) if kinds else self.steps
        return shares(steps, column, max(self.span_ns, 1))

    def path_ns(self, *kinds: str) -> int:
        """Return the path's time of some kinds."""
        return int(self.steps.filter(pl.col("kind").is_in(list(kinds)))["duration_ns"].sum())

    @property
    def inferred(self) -> float:
        """Share of the path whose place in time is inferred."""
        return float(self.steps.filter("inferred")["duration_ns"].sum()) / max(self.span_ns, 1)


def look_at(mapped: Mapped, run: Run, window: Window, path: CriticalPath) -> Look:
    """Say where the time of a window went.

    Parameters
    ----------
    mapped
        The ranks.
    run, window
        The graph that was built of them, and the window to look at.
    path
        Its critical path.

    Returns
    -------
    Look
        O(steps of the path + activities of the ranks).
    """
    look = Look(mapped=mapped, run=run, window=window, path=path, steps=_labelled_steps(mapped, run, path))
    origin = min(rank.origin for rank in mapped.ranks)
    low, high = origin + window.start_ns, origin + window.end_ns
    look.skews = _skews(mapped, low, high)
    look.stalls = [_stalls(rank, low, high) for rank in mapped.ranks if rank.streams]
    look.overlap = [_overlap(rank, low, high) for rank in mapped.ranks if rank.streams]
    return look


def _labelled_steps(mapped: Mapped, run: Run, path: CriticalPath) -> pl.DataFrame:
    """Say of every step of a path what kind of time it is, and whose."""
    steps = marked_steps(run, pl.DataFrame(pl.from_arrow(path.steps)))
    names = classes.names_of(mapped.operators.rows())
    ranks = {worker: rank for rank in mapped.ranks for worker in [*rank.thread_workers.values(), *_streams(rank)]}
    loading = {rank.thread_workers.get(rank.main, -1): _loading(rank) for rank in mapped.ranks}
    kinds, labels, of_rank = [], [], []
    columns = ("type", "worker", "operator", "channel", "start_ns", "duration_ns")
    for kind, worker, operator, channel, start, duration in steps.select(columns).iter_rows():
        operator_class, name = names.get(operator, (0, ""))
        rank = ranks[worker]
        middle = rank.origin + start + duration // 2
        if kind == "control_message":
            label = LATENCY if channel == LAUNCH else TRANSFER if channel == COLLECTIVE else SYNCHRONISATION
        elif _inside(loading.get(worker, []), middle):
            label = LOADING
        else:
            label = {"wake_up": WAKE_UP, "unknown": UNKNOWN, "idle": UNKNOWN}.get(
                kind, _OF_CLASS.get(operator_class, BETWEEN)
            )
        kinds.append(label)
        labels.append(name)
        of_rank.append(rank.number)
    return steps.with_columns(
        kind=pl.Series(kinds, dtype=pl.String),
        name=pl.Series(labels, dtype=pl.String),
        rank=pl.Series(of_rank, dtype=pl.Int64),
    )


def _streams(rank: Rank) -> list[int]:
    return [stream.worker for stream in rank.streams.values()]


def _loading(rank: Rank) -> list[tuple[int, int]]:
    """Return when the main thread got its batches, by time."""
    log = rank.log
    loaders = [number for number, name in enumerate(log.names) if LOADER.match(name)]
    rows = [row for number in loaders for row in (log.name == number).nonzero()[0].tolist()]
    return sorted((int(log.t[row]), int(log.end[row])) for row in rows if int(log.thread[row]) == rank.main)


def _inside(intervals: list[tuple[int, int]], t: int) -> bool:
    place = bisect_right(intervals, (t, 1 << 62)) - 1
    return place >= 0 and intervals[place][0] <= t < intervals[place][1]


def _skews(mapped: Mapped, low: int, high: int) -> list[RankSkew]:
    skews = {rank.number: RankSkew(rank.number) for rank in mapped.ranks}
    loading = {rank.number: _Loading(rank) for rank in mapped.ranks}
    for collective in mapped.joins.collectives:
        waited: dict[int, int] = defaultdict(int)
        aside: dict[int, int] = defaultdict(int)
        for part in collective.parts:
            if not low <= part.begin < high:
                continue
            last_part = collective.last_before(part)
            skew = skews[part.rank]
            skew.collectives += 1
            if last_part.rank != part.rank:
                wait = last_part.begin - part.begin
                skew.waited_ns += wait
                waited[last_part.rank] = max(waited[last_part.rank], wait)
                # Who comes late because of its batches is not late by itself.
                longer = loading[last_part.rank].before(last_part) - loading[part.rank].before(part)
                aside[last_part.rank] = max(aside[last_part.rank], wait - max(longer, 0))
        for rank, longest in waited.items():
            skews[rank].last += 1
            skews[rank].blamed_ns += longest
            skews[rank].blamed_aside_ns += aside[rank]
    for number, of_rank in loading.items():
        skews[number].loading_ns = of_rank.between(low, high)
    return list(skews.values())


class _Loading:
    """Stretches in which the main thread of a rank got batches: how long together between two instants."""

    def __init__(self, rank: Rank) -> None:
        merged = _merged(_loading(rank))
        self._begins, self._ends = [begin for begin, _ in merged], [end for _, end in merged]
        self._before = [0, *accumulate(end - begin for begin, end in merged)]
        self._steps = [start for _, start, _ in rank.steps]
        self._called = {
            activity.row: activity.called
            for stream in rank.streams.values()
            for activity in stream.activities
            if activity.call >= 0
        }

    def before(self, collective_part: Part) -> int:
        """Return for how long it got batches in the step that a collective was called in, until then."""
        called = self._called.get(collective_part.row, collective_part.begin)
        place = bisect_right(self._steps, called)
        return self.between(self._steps[place - 1] if place else -1, called)

    def between(self, low: int, high: int) -> int:
        """Return for how long it got batches."""
        return max(self._until(high) - self._until(low), 0)

    def _until(self, t: int) -> int:
        place = bisect_right(self._begins, t)
        return self._before[place] - (max(self._ends[place - 1] - t, 0) if place else 0)


def _stalls(rank: Rank, low: int, high: int) -> Stalls:
    """Sum the rests of the stream that computes most."""
    stalls = Stalls(rank.number)
    waits: dict[int, list[int]] = defaultdict(list)
    for thread, _, end in sorted(rank.sync_waits):
        waits[thread].append(end)
    loading = _loading(rank)
    busiest = max(rank.streams.values(), key=lambda stream: _computing_ns(rank, stream.activities))
    free = max(rank.origin, low)
    for activity in busiest.activities:
        begin = min(activity.begin, high)
        if activity.begin >= low and activity.call >= 0 and activity.sent > free and begin > free:
            rest_ns = begin - free
            ends = waits[int(rank.log.thread[activity.call])]
            place = bisect_left(ends, free)
            if _meets(loading, free, activity.sent):
                stalls.loading_ns += rest_ns
            elif place < len(ends) and ends[place] <= activity.sent:
                stalls.syncs += 1
                stalls.sync_ns += rest_ns
            else:
                stalls.launch_ns += rest_ns
        free = max(free, activity.end)
    return stalls


def _computing_ns(rank: Rank, activities: Sequence[Activity]) -> int:
    return sum(activity.end - activity.begin for activity in activities if _computes(rank, activity))


def _computes(rank: Rank, activity: Activity) -> bool:
    return not rank.log.names[activity.name].startswith("nccl")


def _meets(intervals: list[tuple[int, int]], low: int, high: int) -> bool:
    """Say whether most of a stretch lies in intervals."""
    inside = 0
    place = max(bisect_right(intervals, (low, 0)) - 1, 0)
    while place < len(intervals) and intervals[place][0] < high:
        inside += max(0, min(high, intervals[place][1]) - max(low, intervals[place][0]))
        place += 1
    return 2 * inside >= high - low


def _overlap(rank: Rank, low: int, high: int) -> dict[str, int]:
    """Say how long a rank's collectives ran, and how much of that beside a kernel that computes."""
    spans: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for stream in rank.streams.values():
        for activity in stream.activities:
            span = (max(activity.begin, low), min(activity.end, high))
            if span[0] < span[1]:
                spans[_computes(rank, activity)].append(span)
    computes, collective = _merged(spans[True]), _merged(spans[False])
    overlapped = sum(_covered(computes, begin, end) for begin, end in collective)
    return {
        "rank": rank.number,
        "collective_ns": sum(end - begin for begin, end in collective),
        "overlapped_ns": overlapped,
    }


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _covered(merged: list[tuple[int, int]], low: int, high: int) -> int:
    place = max(bisect_right(merged, (low, 0)) - 1, 0)
    total = 0
    while place < len(merged) and merged[place][0] < high:
        total += max(0, min(high, merged[place][1]) - max(low, merged[place][0]))
        place += 1
    return total
