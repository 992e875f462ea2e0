"""What streams of devices did, and why they began each activity when they did (`docs/torch.md`)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pag_graph.model.enums import ActivityType
from pag_graph.sources.kineto import operators as classes
from pag_graph.sources.kineto.rank import CLOCK_SLOP_NS
from pag_graph.sources.kineto.rank_log import KERNEL
from pag_graph.sources.kineto.spans import DEPENDENCY, LAUNCH, STREAM_WAIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pag_graph.sources.kineto.collectives import Joined
    from pag_graph.sources.kineto.operators import Operators
    from pag_graph.sources.kineto.rank import Activity, Rank, Stream
    from pag_graph.sources.kineto.spans import Spans

__all__ = ["StreamFindings", "write_streams"]

GAP_NS: Final = 20_000
"""A longer gap than this between activities has a cause."""


class _Release(NamedTuple):
    """What had to happen before an activity."""

    sent: int
    worker: int
    channel: int
    arrived: int
    inferred: bool


@dataclass(slots=True)
class StreamFindings:
    """What was odd."""

    unlaunched: int = 0
    """Activities without a launch, behind ones that have one."""
    before_launch: int = 0
    """Activities that began before their call."""
    unexplained: int = 0
    """Gaps that nothing explains, and the time in them."""
    unexplained_ns: int = 0
    unexplained_graphs: int = 0
    """Those of them before or in a CUDA graph."""
    overlapping: int = 0
    """Activities that began before the one before them had ended."""
    inferred_gaps: int = 0
    """Gaps that end where something on another stream ended."""


def write_streams(
    rank: Rank, spans: Spans, operators: Operators, joined: Mapping[int, Joined], *, finish: int
) -> StreamFindings:
    """Write what the streams of a rank did.

    Parameters
    ----------
    rank
        With its streams.
    spans, operators
        Where to write it.
    joined
        Collectives that were joined with those of other ranks, by row.
    finish
        When the run ends.

    Returns
    -------
    StreamFindings
        O(activities log activities).
    """
    odd = StreamFindings()
    for device in {stream.device for stream in rank.streams.values()}:
        streams = [stream for stream in rank.streams.values() if stream.device == device]
        ends_of_device = _EndsOfDevice(streams)
        shortest = _shortest_launch(streams)
        for stream in streams:
            _write_stream(rank, stream, spans, operators, joined, odd, (ends_of_device, shortest))
            end = max((activity.end for activity in stream.activities), default=rank.origin)
            spans.span(stream.worker, end, finish, ActivityType.IDLE)
    return odd


class _EndsOfDevice:
    """Activities of a device by their ends."""

    def __init__(self, streams: list[Stream]) -> None:
        self._activities = sorted(
            (activity for stream in streams for activity in stream.activities), key=lambda activity: activity.end
        )
        self._ends = [activity.end for activity in self._activities]

    def last_elsewhere(self, stream: Stream, low: int, high: int) -> Activity | None:
        """Return what ended last on another stream, after `low` and up to `high`."""
        place = bisect_right(self._ends, high) - 1
        while place >= 0 and self._ends[place] > low:
            if self._activities[place].stream is not stream:
                return self._activities[place]
            place -= 1
        return None


def _write_stream(
    rank: Rank,
    stream: Stream,
    spans: Spans,
    operators: Operators,
    joined: Mapping[int, Joined],
    odd: StreamFindings,
    of_device: tuple[_EndsOfDevice, int],
) -> None:
    log = rank.log
    ends_of_device, shortest = of_device
    free, launches_known = rank.origin, False
    for activity in stream.activities:
        begin = max(activity.begin, free)
        odd.overlapping += free - activity.begin > CLOCK_SLOP_NS and free > rank.origin
        if activity.call >= 0:
            launches_known = True
            odd.before_launch += activity.begin + CLOCK_SLOP_NS < activity.called
        releases = _releases(rank, activity, begin, shortest)
        _write_gap(rank, activity, (free, begin), releases, spans, odd, ends_of_device, launches_known=launches_known)
        if activity.end > begin:
            name = log.names[activity.name]
            if activity.row in joined:
                joined[activity.row].write(spans, operators, stream.worker, begin, activity.end)
            else:
                _write_activity(activity, name, spans, operators, begin)
            free = activity.end
        free = max(free, begin)


def _shortest_launch(streams: list[Stream]) -> int:
    """Return the shortest time from a launch to its activity: of a device, as some streams are launched far ahead."""
    return min(
        (
            activity.begin - activity.sent
            for stream in streams
            for activity in stream.activities
            if activity.call >= 0 and activity.sent < activity.begin
        ),
        default=0,
    )


def _write_activity(activity: Activity, name: str, spans: Spans, operators: Operators, begin: int) -> None:
    worker = activity.stream.worker
    if name.startswith("nccl"):
        kind, number = ActivityType.IO, operators.of(classes.COLLECTIVE, name)
    elif activity.kind == KERNEL:
        kind, number = ActivityType.PROCESSING, operators.of(classes.KERNEL, name)
    else:
        kind, number = ActivityType.IO, operators.of(classes.COPY, name)
    spans.span(worker, begin, activity.end, kind, number)


def _releases(rank: Rank, activity: Activity, begin: int, shortest: int) -> list[_Release]:
    releases = []
    if activity.call >= 0:
        worker = rank.thread_workers[int(rank.log.thread[activity.call])]
        arrived = min(begin, activity.sent + shortest)
        releases.append(_Release(activity.sent, worker, LAUNCH, arrived, inferred=False))
    for source, inferred in activity.sources:
        if source.end <= begin + CLOCK_SLOP_NS:
            sent = min(source.end, begin)
            releases.append(_Release(sent, source.stream.worker, STREAM_WAIT, sent, inferred))
    return releases


def _write_gap(
    rank: Rank,
    activity: Activity,
    gap: tuple[int, int],
    releases: list[_Release],
    spans: Spans,
    odd: StreamFindings,
    ends_of_device: _EndsOfDevice,
    *,
    launches_known: bool,
) -> None:
    """Write what a stream did before an activity, and what it read at its begin (rules 1 to 5)."""
    free, begin = gap
    worker = activity.stream.worker
    latest = max((release.sent for release in releases), default=free)
    if begin - max(free, latest) > GAP_NS:
        before = ends_of_device.last_elsewhere(activity.stream, max(free, latest, begin - GAP_NS - 1), begin)
        if before is not None:
            releases.append(_Release(before.end, before.stream.worker, DEPENDENCY, before.end, inferred=True))
            odd.inferred_gaps += 1
    ender = max(releases, key=lambda release: release.sent, default=None)
    if begin == free or ender is None or ender.sent <= free:
        ender = None
    size = int(rank.log.bytes[activity.row])
    for release in releases:
        arrived = begin if release is ender else release.arrived
        carried = size if release.channel == LAUNCH else -1
        spans.message(
            release.channel, release.worker, release.sent, worker, begin, arrived=min(arrived, begin), size=carried
        )
    if ender is not None:
        spans.span(worker, free, begin, ActivityType.WAITING, inferred=ender.inferred)
        return
    missing = activity.call < 0 and not activity.follows_in_graph
    odd.unlaunched += missing and launches_known
    if begin == free:
        return
    if missing and launches_known:
        spans.span(worker, free, begin, ActivityType.UNKNOWN)
    elif begin - free <= GAP_NS:
        spans.span(worker, free, begin, ActivityType.SCHEDULING, inferred=missing)
    else:
        spans.span(worker, free, begin, ActivityType.UNKNOWN)
        odd.unexplained += 1
        odd.unexplained_ns += begin - free
        odd.unexplained_graphs += _of_graph(rank, activity)


def _of_graph(rank: Rank, activity: Activity) -> bool:
    """Say whether a CUDA graph launched an activity."""
    log = rank.log
    return activity.follows_in_graph or (activity.call >= 0 and "GraphLaunch" in log.names[log.name[activity.call]])
