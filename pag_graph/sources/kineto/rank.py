"""One rank: its workers, and which call launched which activity of its streams."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from pag_graph.sources.kineto.rank_log import ANNOTATION, CALL, COPY, FILL, KERNEL, OP, PYTHON, SLICE, SYNC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.sources.kineto.rank_log import RankLog

__all__ = ["Activity", "Calls", "Rank", "Stream", "make_rank"]

STEP: Final = re.compile(r"^ProfilerStep\s*#(\d{1,15})$")
"""What PyTorch's profiler calls its steps."""
CLOCK_SLOP_NS: Final = 1_000
"""By so much may the clocks of a device and its host disagree."""


@dataclass(slots=True)
class Activity:
    """A kernel, a copy or a fill on a stream; times are nanoseconds."""

    row: int
    """In the rank's log."""
    begin: int
    end: int
    kind: int
    name: int
    stream: Stream
    call: int = -1
    """Row of the call that launched it; -1 without one."""
    called: int = 0
    """When that call began."""
    sent: int = 0
    """When the launch left."""
    follows_in_graph: bool = False
    """Whether an earlier activity of its stream has the launch of both: of a CUDA graph."""
    sources: list[tuple[Activity, bool]] = field(default_factory=list)
    """What its stream was told to wait for before it, and whether that is inferred."""


@dataclass(slots=True, eq=False)
class Stream:
    """A stream of a device, and the worker that it is in the graph."""

    device: int
    number: int
    worker: int
    activities: list[Activity] = field(default_factory=list)
    """By begin."""


@dataclass(slots=True)
class Calls:
    """Activities by when they were called."""

    called: list[int] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    latest: list[Activity] = field(default_factory=list)
    """Of those up to each: the one that ends last."""

    def add(self, activity: Activity) -> None:
        """Add an activity; it was called no earlier than those that were added before."""
        self.called.append(activity.called)
        self.activities.append(activity)
        before = self.latest[-1] if self.latest else activity
        self.latest.append(activity if activity.end >= before.end else before)

    def last_before(self, t: int) -> Activity | None:
        """Return the last one that was called before an instant, in nanoseconds; None without one."""
        place = bisect_left(self.called, t)
        return self.activities[place - 1] if place else None

    def latest_before(self, t: int) -> Activity | None:
        """Return the one that ends last of those called before an instant; None without one. Takes a binary search."""
        place = bisect_left(self.called, t)
        return self.latest[place - 1] if place else None

    def next_after(self, t: int) -> Activity | None:
        """Return the next one that was called after an instant; None without one."""
        place = bisect_right(self.called, t)
        return self.activities[place] if place < len(self.activities) else None

    def between(self, low: int, high: int) -> Sequence[Activity]:
        """Return the activities that were called in a stretch of time.

        Parameters
        ----------
        low, high
            Nanoseconds: from one instant until before the other.

        Returns
        -------
        sequence of Activity
            In the order of their calls. Found by binary search.
        """
        return self.activities[bisect_left(self.called, low) : bisect_left(self.called, high)]


@dataclass(slots=True)
class Rank:
    """A rank with its workers: first those of its threads, then those of its streams; times are nanoseconds."""

    log: RankLog
    number: int
    first_worker: int
    thread_workers: dict[int, int]
    """Worker of each thread that does something."""
    main: int
    """The thread that runs the program."""
    streams: dict[tuple[int, int], Stream]
    steps: list[tuple[int, int, int]]
    """Number, start and end of each, by start."""
    of_stream: dict[tuple[int, int], Calls]
    of_device: dict[int, Calls]
    of_thread: dict[int, Calls]
    of_thread_stream: dict[tuple[int, int, int], Calls]
    """Activities by the thread that called them, and their stream."""
    call_rows: dict[int, list[int]]
    """Rows of calls by correlation."""
    launched: dict[int, list[Activity]]
    """Activities by the row of their call."""
    reused: int = 0
    """Activities whose correlation more than one call has."""
    early: int = 0
    """Activities that begin before their call."""
    records: dict[int, int] | None = None
    """Rows of synchronisations by the correlation of their call, when they are asked for."""
    origin: int = 0
    """When the run begins."""
    sync_waits: list[tuple[int, int, int]] = field(default_factory=list)
    """Thread, begin and end of each wait for a device, by thread."""

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.thread_workers) + len(self.streams)

    def worker_of(self, row: int) -> int:
        """Return the worker of an event: its stream, or its thread; `row` is the event's in the log."""
        log = self.log
        if log.kind[row] in (KERNEL, COPY, FILL):
            return self.streams[int(log.device[row]), int(log.stream[row])].worker
        return self.thread_workers[int(log.thread[row])]

    def call_of(self, correlation: int, before: int) -> int:
        """Return the nearest call with a correlation that had begun at an instant.

        Parameters
        ----------
        correlation
            Number that Kineto gives to a call and to what it launched; others may have it again.
        before
            The instant, in nanoseconds.

        Returns
        -------
        int
            The call's row in the log: of several the one that began last; -1 without one.
        """
        best = -1
        for row in self.call_rows.get(correlation, ()):
            t = self.log.t[row]
            if t <= before and (best < 0 or t >= self.log.t[best]):
                best = row
        return best


def make_rank(log: RankLog, number: int, first_worker: int) -> Rank:
    """Find the workers of a rank and what launched their activities.

    Parameters
    ----------
    log
        The rank's log, times on the common clock.
    number
        Of the rank.
    first_worker
        Number of its first worker; threads come before streams.

    Returns
    -------
    Rank
        O(n log n).
    """
    kind = log.kind
    on_cpu = np.isin(kind, [OP, CALL, PYTHON, ANNOTATION, SLICE])
    threads = [int(thread) for thread in np.unique(log.thread[on_cpu])]
    steps = sorted(
        (int(log.t[row]), int(log.end[row]), int(match[1]), int(log.thread[row]))
        for row in log.rows_of(ANNOTATION, OP).tolist()
        if (match := STEP.match(log.names[log.name[row]]))
    )
    main = _main_thread(log, threads, [thread for *_, thread in steps])
    threads.sort(key=lambda thread: thread != main)
    workers = {thread: first_worker + place for place, thread in enumerate(threads)}
    rank = Rank(
        log=log,
        number=number,
        first_worker=first_worker,
        thread_workers=workers,
        main=main,
        streams={},
        steps=[(step, start, end) for start, end, step, thread in steps if thread == main],
        of_stream=defaultdict(Calls),
        of_device=defaultdict(Calls),
        of_thread=defaultdict(Calls),
        of_thread_stream=defaultdict(Calls),
        call_rows=defaultdict(list),
        launched=defaultdict(list),
    )
    for row in log.rows_of(CALL).tolist():
        if log.correlation[row] >= 0:
            rank.call_rows[int(log.correlation[row])].append(row)
    _find_activities(rank)
    _find_sources(rank)
    return rank


def _main_thread(log: RankLog, threads: Sequence[int], of_steps: Sequence[int]) -> int:
    if of_steps:
        return max(set(of_steps), key=lambda thread: (of_steps.count(thread), -thread))
    if not threads:
        return -1
    ops = log.rows_of(OP)
    rows = ops if len(ops) else log.rows_of(CALL, PYTHON, ANNOTATION, SLICE)
    busy = np.zeros(len(log.threads), np.int64)
    np.add.at(busy, log.thread[rows], log.end[rows] - log.t[rows])
    return max(threads, key=lambda thread: (busy[thread], -thread))


def _find_activities(rank: Rank) -> None:
    log = rank.log
    rows = log.rows_of(KERNEL, COPY, FILL)
    for device, number in sorted({*zip(log.device[rows].tolist(), log.stream[rows].tolist(), strict=True)}):
        worker = rank.first_worker + len(rank.thread_workers) + len(rank.streams)
        rank.streams[device, number] = Stream(device, number, worker)
    keys_seen: set[tuple[int, int, int]] = set()
    by_begin = rows[np.lexsort((rows, log.end[rows], log.t[rows]))]
    columns = (log.device, log.stream, log.t, log.end, log.kind, log.name, log.correlation)
    # Numbers are read one by one, which lists do much faster than arrays.
    values = zip(by_begin.tolist(), *(column[by_begin].tolist() for column in columns), strict=True)
    for row, device, number, begin, end, kind, name, correlation in values:
        stream = rank.streams[device, number]
        activity = Activity(row, begin, end, kind, name, stream)
        stream.activities.append(activity)
        calls = rank.call_rows.get(correlation, []) if correlation >= 0 else []
        rank.reused += len(calls) > 1
        call = rank.call_of(correlation, begin + CLOCK_SLOP_NS) if calls else -1
        if call < 0 and calls:
            rank.early += 1
            call = calls[0]
        if call < 0:
            continue
        key = (call, device, number)
        if key in keys_seen:
            activity.follows_in_graph = True
            continue
        keys_seen.add(key)
        activity.call, activity.called = call, int(log.t[call])
        returned = int(log.end[call])
        activity.sent = min(returned, begin)
        if activity.kind in (COPY, FILL) and returned >= end:
            # Who copies and waits for it sends first.
            activity.sent = min(activity.called, begin)
        rank.launched[call].append(activity)
    launched = [activity for stream in rank.streams.values() for activity in stream.activities if activity.call >= 0]
    launched.sort(key=lambda activity: (activity.called, activity.begin))
    threads = log.thread[[activity.call for activity in launched]].tolist()
    for activity, thread in zip(launched, threads, strict=True):
        stream = activity.stream
        rank.of_stream[stream.device, stream.number].add(activity)
        rank.of_device[stream.device].add(activity)
        rank.of_thread[thread].add(activity)
        rank.of_thread_stream[thread, stream.device, stream.number].add(activity)


def _find_sources(rank: Rank) -> None:
    """Find what streams were told to wait for."""
    log = rank.log
    for row in log.rows_of(SYNC).tolist():
        if log.names[log.name[row]] != "Stream Wait Event" or log.stream[row] < 0:
            continue
        source, inferred = event_source(rank, row)
        call = rank.call_of(int(log.correlation[row]), int(log.end[row]))
        if source is None or call < 0:
            continue
        key = (int(log.thread[call]), int(log.device[row]), int(log.stream[row]))
        target = rank.of_thread_stream[key].next_after(int(log.t[call])) if key in rank.of_thread_stream else None
        if target is not None and target.stream is not source.stream:
            target.sources.append((source, inferred))


def event_source(rank: Rank, row: int) -> tuple[Activity | None, bool]:
    """Return the activity after which an event was recorded that a row waits for, and whether that is inferred.

    Parameters
    ----------
    rank
        The rank.
    row
        Of a synchronisation, in its log.

    Returns
    -------
    activity, inferred
        None where the log says nothing of the stream or the call. It is inferred where the log does not name the call
        that recorded the event: the last activity of the stream that was called before the wait.
    """
    log = rank.log
    detail = log.details.get(row, {})
    calls = rank.of_stream.get((int(log.device[row]), detail.get("wait_on_stream", -1)))
    if calls is None:
        return None, False
    recorded = rank.call_of(detail.get("wait_on_cuda_event_record_corr_id", -1), int(log.end[row]))
    if recorded >= 0:
        return calls.last_before(int(log.t[recorded])), False
    waited = rank.call_of(int(log.correlation[row]), int(log.end[row]))
    return (calls.last_before(int(log.t[waited])), True) if waited >= 0 else (None, False)
