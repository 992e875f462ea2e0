"""HTA's critical path, for comparison: the graph that Holistic Trace Analysis 0.6.0 makes of one rank.

An implementation of its own of HTA's rules, which `docs/torch.md` lists. Its graph does not tile time, so it is no rule
set: what lies between its edges, and what they weigh 0, its path does not explain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["HtaEdge", "HtaGraph", "HtaNode", "hta_graph"]

OPERATOR, LAUNCH, DEPENDENCY, KERNEL_GAP, SYNC = (
    "OPERATOR_KERNEL",
    "KERNEL_LAUNCH_DELAY",
    "DEPENDENCY",
    "KERNEL_KERNEL_DELAY",
    "SYNC_DEPENDENCY",
)
"""Types of edges, as HTA calls them."""

_LOCK = frozenset({"cudaHostAlloc", "cudaLaunchKernel", "cudaMemcpyAsync"})
_BLOCKING = frozenset(
    {
        "cudaDeviceSynchronize",
        "cudaStreamSynchronize",
        "cudaEventQuery",
        "cudaEventSynchronize",
        "cudaMemcpy",
        "cudaMemcpyAsync",
    }
)
_LAUNCHES = frozenset(
    {
        *("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"),
        *("hipLaunchKernel", "hipExtModuleLaunchKernel", "hipMemcpyAsync", "hipMemsetAsync", "hipMemcpyWithStream"),
        "runFunction - job_prep_and_submit_for_execution",
    }
)
_ON_CPU = frozenset({"cpu_op", "cuda_runtime", "cuda_driver"})
_STREAM_WAIT, _EVENT_SYNC, _CONTEXT_SYNC = "Stream Wait Event", "Event Sync", "Context Sync"
_LONGEST_GAP_US = 1_500


class HtaNode(NamedTuple):
    """Start or end of an event."""

    row: int
    """Place of the event in the file."""
    t: float
    """Microseconds, as in the file."""
    is_start: bool


class HtaEdge(NamedTuple):
    """What leads from one node to another one."""

    src: int
    """Place in the graph's nodes."""
    dst: int
    type: str
    weight: float
    """Microseconds; 0 for what only orders."""


@dataclass(frozen=True, slots=True)
class HtaGraph:
    """HTA's graph of a window of one rank, and the longest path through it."""

    nodes: list[HtaNode]
    """By time, then place in the file."""
    edges: list[HtaEdge]
    """In the order in which HTA inserts them."""
    path: list[int]
    """Places in `nodes`."""


@dataclass(slots=True)
class _Row:
    """An event with a duration."""

    place: int
    name: str
    cat: str
    t: float
    duration: float
    thread: tuple[Any, Any]
    stream: int
    correlation: int
    args: Mapping[str, Any]
    linked: int = -1
    """Place of the row of the same correlation on the other side; 0 for one that is not there, -1 without one."""

    @property
    def end(self) -> float:
        return self.t + self.duration


def hta_graph(
    events: Sequence[Mapping[str, Any]], annotation: str, *, instance: int = 0, launch_edges: bool = True
) -> HtaGraph:
    """Make HTA's graph of the events in one annotation.

    Parameters
    ----------
    events
        `traceEvents` of one rank, in the order of the file.
    annotation
        Part of the name of the events that bound the window.
    instance
        Which of these, from 0.
    launch_edges
        Whether every kernel gets an edge without weight from its launch, if it gets no other from there.

    Returns
    -------
    HtaGraph
        O(n log n).

    Raises
    ------
    InvalidParameterError
        If there is no such annotation.

    Examples
    --------
    >>> op = {"cat": "cpu_op", "pid": 1, "tid": 1, "args": {}}
    >>> events = [{**op, "name": "forward", "ts": 0, "dur": 9}, {**op, "name": "mm", "ts": 2, "dur": 5}]
    >>> graph = hta_graph(events, "forward")
    >>> graph.path, [edge.weight for edge in graph.edges]
    ([0, 1, 2, 3], [2, 5, 2])
    """
    rows = _linked(_rows(events))
    annotations = [row for row in rows.values() if annotation in row.name]
    if instance >= len(annotations):
        message = (
            f"There are {len(annotations)} events whose names contain {annotation!r}, and none is number {instance}."
        )
        raise InvalidParameterError(message, "Events are counted from 0.", {"annotation": annotation})
    maker = _Maker(rows, _window(rows, annotations[instance]), launch_edges=launch_edges)
    maker.lock()
    maker.stacks()
    maker.streams()
    edges = [HtaEdge(*ends, *maker.edges[ends]) for ends in maker.edges]
    return HtaGraph(maker.nodes, edges, _longest_path(edges))


def _rows(events: Sequence[Mapping[str, Any]]) -> dict[int, _Row]:
    rows: dict[int, _Row] = {}
    for place, event in enumerate(events):
        if "dur" not in event or event.get("cat") in {None, "Trace"}:
            continue
        args = event.get("args") or {}
        rows[place] = _Row(
            place,
            str(event.get("name", "")),
            event["cat"],
            event["ts"],
            event["dur"],
            (event.get("pid"), event.get("tid")),
            int(args.get("stream", -1)),
            int(args.get("correlation", -1)),
            args,
        )
    return rows


def _linked(rows: dict[int, _Row]) -> dict[int, _Row]:
    by_correlation: dict[tuple[bool, int], _Row] = {}
    for row in rows.values():
        if row.correlation >= 0:
            row.linked = 0
            by_correlation[_on_gpu(row), row.correlation] = row
    for row in rows.values():
        partner = by_correlation.get((not _on_gpu(row), row.correlation))
        if partner is not None:
            row.linked = partner.place
    return rows


def _on_gpu(row: _Row) -> bool:
    return row.stream >= 0 or row.name in {_EVENT_SYNC, _CONTEXT_SYNC}


def _window(rows: Mapping[int, _Row], bounds: _Row) -> dict[int, _Row]:
    def called(row: _Row) -> bool:
        return bounds.t <= row.t <= bounds.end and row.duration > 0

    return {
        place: row
        for place, row in rows.items()
        if (
            called(row)
            if row.stream == -1
            else row.name == _STREAM_WAIT or (row.linked > 0 and called(rows[row.linked]))
        )
    }


class _Maker:
    """A graph in the making."""

    def __init__(self, rows: dict[int, _Row], window: dict[int, _Row], *, launch_edges: bool) -> None:
        self._all = rows
        self._window = window
        self._launch_edges = launch_edges
        ends = [
            HtaNode(row.place, t, is_start)
            for is_start in (True, False)
            for row in window.values()
            for t in (row.t if is_start else row.end,)
            if row.cat in _ON_CPU or (row.stream != -1 and row.linked >= 0)
        ]
        self.nodes = sorted(ends, key=lambda node: (node.t, node.row))
        self._at = {(node.row, node.is_start): number for number, node in enumerate(self.nodes)}
        self.edges: dict[tuple[int, int], tuple[str, float]] = {}
        """By their ends: HTA keeps the last of several, in the place of the first."""

    def _add(self, src: int, dst: int, kind: str, *, free: bool = False) -> None:
        free |= kind in {DEPENDENCY, SYNC}
        self.edges[src, dst] = (kind, 0 if free else self.nodes[dst].t - self.nodes[src].t)

    def _locks(self, node: int) -> bool:
        return self._window[self.nodes[node].row].name in _LOCK

    def lock(self) -> None:
        """Order the ends of calls that hold the runtime's lock (rule 4)."""
        pending: list[int] = []
        previous = -1
        for number, node in enumerate(self.nodes):
            if not self._locks(number):
                continue
            if node.is_start:
                pending.append(number)
            else:
                while pending:
                    start = pending.pop()
                    self._add(start, number, OPERATOR if self.nodes[start].row == node.row else DEPENDENCY)
                if previous >= 0 and not self.nodes[previous].is_start:
                    self._add(previous, number, DEPENDENCY)
            previous = number

    def stacks(self) -> None:
        """Chain what each thread does (rule 5)."""
        for thread_rows in self._threads():
            previous, depth = -1, 0
            for row, is_start in _traversed(thread_rows):
                number = self._at.get((row.place, is_start), -1)
                if number < 0:
                    continue
                if previous >= 0 and not self._ordered_by_lock(previous, number):
                    kind = DEPENDENCY if is_start and depth == 0 else OPERATOR
                    self._add(previous, number, kind, free=not is_start and row.name in _BLOCKING)
                previous = number
                depth += 1 if is_start else -1

    def _ordered_by_lock(self, first: int, second: int) -> bool:
        both_lock = self._locks(first) and self._locks(second)
        return both_lock and (self.nodes[first].is_start or not self.nodes[second].is_start)

    def _threads(self) -> Iterator[list[_Row]]:
        """Yield the rows of each thread; those of the one backward thread count as the forward thread's."""
        forward, backward = (self._only_thread(word) for word in ("forward", "autograd"))
        threads: dict[tuple[Any, Any], list[_Row]] = defaultdict(list)
        for row in self._window.values():
            if row.stream == -1:
                merged = forward is not None and backward is not None and row.thread[1] == backward
                threads[(row.thread[0], forward) if merged else row.thread].append(row)
        yield from (threads[thread] for thread in sorted(threads, key=repr))

    def _only_thread(self, word: str) -> Any:
        cats = {"cpu_op", "user_annotation"}
        ids = {row.thread[1] for row in self._window.values() if row.cat in cats and word in row.name}
        return ids.pop() if len(ids) == 1 else None

    def streams(self) -> None:
        """Chain what each stream does, to its launches and to what it was synchronised with (rule 6)."""
        queue = _queue_lengths(self._all)
        before_record, after_wait = _recorded(self._all), _waited(self._all)
        last_end_of: dict[int, int] = {}
        source_of: dict[int, int] = {}
        on_gpu = [row for row in self._window.values() if _on_gpu(row) and row.linked >= 0]
        for row in sorted(on_gpu, key=lambda row: row.end if row.cat == "cuda_sync" else row.t):
            if row.cat == "cuda_sync":
                self._synchronise(row, last_end_of, source_of, (before_record, after_wait))
                continue
            start, end = self._at[row.place, True], self._at[row.place, False]
            self._add(start, end, OPERATOR)
            source = self._at.get((source_of.pop(row.place, -1), False), -1)
            if source >= 0:
                self._add(source, start, SYNC)
            self._begin(row, last_end_of.get(row.stream, -1), source, queue)
            last_end_of[row.stream] = end

    def _begin(self, row: _Row, before: int, source: int, queue: Mapping[int, int]) -> None:
        """Say what a kernel began after: its launch, or its predecessor."""
        start = self._at[row.place, True]
        launch = self._at.get((row.linked, True), -1)
        called = self._all[row.linked].t if row.linked in self._all else 0
        idle = queue.get(row.linked) == 1 and queue.get(row.place) == 0
        launched = (
            idle
            and (before < 0 or self.nodes[before].t < called)
            and (source < 0 or self.nodes[source].t < called)
            and launch >= 0
        )
        if launched:
            self._add(launch, start, LAUNCH)
        elif (
            before >= 0
            and self.nodes[start].t - self.nodes[before].t < _LONGEST_GAP_US
            and (source < 0 or self.nodes[source].t < self.nodes[before].t)
        ):
            self._add(before, start, KERNEL_GAP)
        if self._launch_edges and not launched and launch >= 0:
            self._add(launch, start, LAUNCH, free=True)

    def _synchronise(
        self,
        row: _Row,
        last_end_of: Mapping[int, int],
        source_of: dict[int, int],
        calls: tuple[Mapping[int, int], Mapping[int, int]],
    ) -> None:
        """Lead from what a synchronisation waited for to the call's end, or remember it for the next kernel."""
        before_record, after_wait = calls
        if row.name in {_STREAM_WAIT, _EVENT_SYNC}:
            launch = before_record.get(int(row.args.get("wait_on_cuda_event_record_corr_id", -1)), -1)
            if launch < 0:
                return
            source = self._all[launch].linked
            if row.name == _EVENT_SYNC:
                waited = [self._at.get((source, False), -1)]
            else:
                following = after_wait.get(row.linked, -1)
                if following >= 0:
                    source_of[self._all[following].linked] = source
                return
        else:
            waited = list(last_end_of.values()) if row.name == _CONTEXT_SYNC else [last_end_of.get(row.stream, -1)]
        returned = self._at.get((row.linked, False), -1)
        for end in waited:
            if end >= 0 and returned >= 0:
                self._add(end, returned, SYNC)


def _traversed(rows: Iterable[_Row]) -> Iterator[tuple[_Row, bool]]:
    """Yield starts and ends of a thread's rows, depth first."""
    ends = [(row.t, 1, -row.duration, row) for row in rows] + [(row.end, 0, row.duration, row) for row in rows]
    children: dict[int, list[_Row]] = defaultdict(list)
    stack: list[_Row] = []
    for _, is_start, _, row in sorted(ends, key=lambda end_key: end_key[:3]):
        if is_start:
            children[stack[-1].place if stack else -1].append(row)
            stack.append(row)
        elif stack:
            # Where rows cross, HTA closes what is open innermost.
            stack.pop()
    todo = [(row, True) for row in reversed(children[-1])]
    while todo:
        row, is_start = todo.pop()
        yield row, is_start
        if is_start:
            todo.append((row, False))
            todo.extend((child, True) for child in reversed(children[row.place]))


def _launches(rows: Mapping[int, _Row]) -> list[_Row]:
    calls = [row for row in rows.values() if row.name in _LAUNCHES and row.linked > 0 and row.stream == -1]
    return sorted(calls, key=lambda row: row.t)


def _queue_lengths(rows: Mapping[int, _Row]) -> dict[int, int]:
    """Return how many activities are on a stream after each call, and after each of them began."""
    changes: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
    for call in _launches(rows):
        activity = rows[call.linked]
        changes[activity.stream].append((call.t, 1, call.place))
        changes[activity.stream].append((activity.t, -1, activity.place))
    lengths: dict[int, int] = {}
    for of_stream in changes.values():
        of_stream.sort(key=lambda change: (change[0], -change[1]))
        lengths |= dict(zip((c[2] for c in of_stream), accumulate(c[1] for c in of_stream), strict=True))
    return lengths


def _recorded(rows: Mapping[int, _Row]) -> dict[int, int]:
    """Return, by correlation of a call that records an event, the last launch on the event's stream before it."""
    streams = {
        int(row.args.get("wait_on_cuda_event_record_corr_id", -1)): (row.thread[0], int(row.args["wait_on_stream"]))
        for row in rows.values()
        if int(row.args.get("wait_on_stream", -1)) > -1
    }
    launches: dict[tuple[Any, int], _Calls] = defaultdict(_Calls)
    for call in _launches(rows):
        activity = rows[call.linked]
        launches[activity.thread[0], activity.stream].add(call)
    launch_before = {}
    for row in rows.values():
        if row.name == "cudaEventRecord" and row.correlation in streams:
            before = launches[streams[row.correlation]]
            place = bisect_right(before.times, row.t)
            if place:
                launch_before[row.correlation] = before.places[place - 1]
    return launch_before


def _waited(rows: Mapping[int, _Row]) -> dict[int, int]:
    """Return, by call that makes a stream wait, the next launch of its thread on that stream."""
    launches: dict[tuple[tuple[Any, Any], int], _Calls] = defaultdict(_Calls)
    for call in _launches(rows):
        launches[call.thread, rows[call.linked].stream].add(call)
    launch_after = {}
    for row in rows.values():
        if row.name == "cudaStreamWaitEvent" and row.linked > 0:
            after = launches[row.thread, rows[row.linked].stream]
            place = bisect_right(after.times, row.t)
            if place < len(after.times):
                launch_after[row.place] = after.places[place]
    return launch_after


@dataclass(slots=True)
class _Calls:
    """Calls in the order of time."""

    times: list[float] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def add(self, call: _Row) -> None:
        self.times.append(call.t)
        self.places.append(call.place)


def _longest_path(edges: Sequence[HtaEdge]) -> list[int]:
    """Return the nodes of the longest path; of equally long ways into a node the one that was inserted first."""
    after: dict[int, list[int]] = {}
    into: dict[int, list[HtaEdge]] = {}
    for edge in edges:
        for node in (edge.src, edge.dst):
            after.setdefault(node, [])
            into.setdefault(node, [])
        after[edge.src].append(edge.dst)
        into[edge.dst].append(edge)
    open_edges = {node: len(before) for node, before in into.items()}
    ready = [node for node, count in open_edges.items() if not count]
    best: dict[int, tuple[float, int]] = {}
    while ready:
        later = []
        for node in ready:
            candidates = [(best[edge.src][0] + edge.weight, edge.src) for edge in into[node]]
            longest = max(candidates, key=lambda candidate: candidate[0], default=(0, node))
            best[node] = longest if longest[0] >= 0 else (0, node)
            for child in after[node]:
                open_edges[child] -= 1
                if not open_edges[child]:
                    later.append(child)
        ready = later
    if not best:
        return []
    node = max(best, key=lambda number: best[number][0])
    path = [node]
    while best[node][1] != node:
        node = best[node][1]
        path.append(node)
    return path[::-1]
