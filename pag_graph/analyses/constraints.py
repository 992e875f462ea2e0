"""The constraint graph of a window: what had to happen before what, and how long each took.

Slack, what-if replay and the causal profile are all questions to this one graph. Definition: `docs/model.md`, section
"Replay and slack".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from pag_graph.analyses.critical_path import last_edge
from pag_graph.errors import CycleError, PagError, UnsupportedPlanError
from pag_graph.kernels.replay import binding_arcs, earliest, group_arcs, topological_order
from pag_graph.model.enums import ActivityType, EdgeFlags, RuleSet
from pag_graph.model.ids import POSITION_BITS, position_of, worker_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.pag.snapshot import Snapshot, Window

    I64 = NDArray[np.int64]
    Bools = NDArray[np.bool_]

Loop = Literal["closed", "open"]
"""What input from outside does when the program gets faster: come earlier as well, or when it came."""
Arrival = Literal["shortest", "read"]
"""How long a message took whose arrival nobody logged."""

BEFORE, AFTER = 0, 1
"""The first vertices of every window graph: where edges begin that its start cuts, and where those end that its end
cuts."""

_UNKNOWN = str(ActivityType.UNKNOWN)
_ROW_COLUMNS = [
    "index",
    "src",
    "dst",
    "type",
    "start_ns",
    "end_ns",
    "operator",
    "activation",
    "channel",
    "records",
    "receive_buffer_ns",
    "read",
    "flags",
    "alternatives",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowGraph:
    """The projection of a run on a window (CPA Def. 3.4 and 3.5), with vertices numbered from 0."""

    window: Window
    rows: pl.DataFrame
    """The edges of the window, uncut, local ones first; ``index`` is their place in the snapshot's tables."""
    local: int
    """How many of the rows are local."""
    ids: I64
    """Per vertex: its id; -1 and -2 for the cut vertices `BEFORE` and `AFTER`."""
    t: I64
    """Per vertex: when it happened."""
    src: I64
    """Per row: the vertex where it starts; `BEFORE` where the window's start cuts it."""
    dst: I64
    """Per row: the vertex where it ends; `AFTER` where the window's end cuts it."""
    inside: I64
    """Per row: nanoseconds inside the window."""

    @property
    def is_local(self) -> Bools:
        """Per row: whether it stays on a worker."""
        return np.arange(self.rows.height) < self.local

    @property
    def negative(self) -> Bools:
        """Per row: whether it is a message that was read before it was sent."""
        return np.asarray((self.rows["flags"].to_numpy() & int(EdgeFlags.NEGATIVE)) != 0, dtype=np.bool_)

    def is_type(self, *kinds: ActivityType) -> Bools:
        """Say per row whether it is of one of the types."""
        wanted = self.rows["type"].is_in([str(kind) for kind in kinds])
        return np.asarray(wanted.to_numpy(), dtype=np.bool_)

    def number(self, column: str) -> I64:
        """Return a column of integers; -1 where it is null."""
        return np.asarray(self.rows[column].fill_null(-1).to_numpy(), dtype=np.int64)


def require_aligned(snapshot: Snapshot, what: str) -> None:
    """Refuse runs whose workers' clocks cannot be compared.

    Parameters
    ----------
    snapshot
        Of any run.
    what
        What was asked for, in the plural.

    Raises
    ------
    UnsupportedPlanError
        If the run was built with the rule set `st2`.
    """
    if snapshot.run.rules is RuleSet.ST2:
        message = f"{what} need aligned clocks, and runs of the rule set st2 keep every worker's own."
        raise UnsupportedPlanError(message, "Build the trace with `--rules timely`.")


def window_graph(snapshot: Snapshot) -> WindowGraph:
    """Cut the edges of a window at its borders, and number its vertices.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.

    Returns
    -------
    WindowGraph
        One row per edge that lies in the window or crosses its borders; O(edges log edges).

    Raises
    ------
    PagError
        If an edge starts where none ends; names the vertex.
    """
    window = snapshot.window
    begin, end = window.start_ns, window.end_ns
    low, high = pl.min_horizontal("start_ns", "end_ns"), pl.max_horizontal("start_ns", "end_ns")
    # What only touches a border has no part in the window, unless all of it happens at the instant of its end.
    keep = (high > begin if begin else high >= begin) & ((low < end) | (high <= end))
    local, messages = (
        table.with_row_index().filter(keep).select(_ROW_COLUMNS) for table in (snapshot.local, snapshot.messages)
    )
    rows = pl.concat([local, messages])
    src, dst = rows["src"].to_numpy(), rows["dst"].to_numpy()
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    # One local edge leads to every vertex, except to those at the window's start: theirs lie outside.
    inner = ends[: local.height] <= end
    known = dst[: local.height][inner]
    first = np.unique(np.concatenate([src[starts == begin], dst[ends == begin]]))
    first = first[~_places(known, first)[1]]
    ids = np.concatenate([known, first])
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    t = np.concatenate([ends[: local.height][inner], np.full(len(first), begin, np.int64)])[order]
    numbers = [
        _find(ids, wanted, times, window, cut) for wanted, times, cut in ((src, starts, BEFORE), (dst, ends, AFTER))
    ]
    graph = WindowGraph(
        window=window,
        rows=rows,
        local=local.height,
        ids=np.concatenate([[-1, -2], ids]),
        t=np.concatenate([[begin, end], t]),
        src=numbers[0],
        dst=numbers[1],
        inside=np.minimum(ends, end) - np.maximum(starts, begin),
    )
    for number, wanted in zip(numbers, (src, dst), strict=True):
        lost = np.flatnonzero((number < 0) & ~graph.negative)
        if len(lost):
            vertex = int(wanted[lost[0]])
            message = f"No edge leads to {_place(vertex)} in {window.name}."
            raise PagError(message, "Build the store again, and look at its findings.", {"vertex": vertex})
    return graph


def _find(ids: I64, wanted: I64, times: I64, window: Window, cut: int) -> I64:
    """Return the numbers of vertices; `cut` for those before and after the window, -1 for those that are not there."""
    at, found = _places(ids, wanted)
    number = np.where(found, at + 2, -1)
    number[(times < window.start_ns) | (times > window.end_ns)] = cut
    return number


def _places(ids: I64, wanted: I64) -> tuple[I64, Bools]:
    """Return where `wanted` would be in `ids`, which are sorted, and whether it is there."""
    at = np.searchsorted(ids, wanted)
    found = at < len(ids)
    found[found] = ids[at[found]] == wanted[found]
    return at, found


def _place(vertex: int) -> str:
    return f"worker {worker_of(vertex)}, position {position_of(vertex)} (vertex {vertex})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintGraph:
    """Vertices in topological order, and arcs grouped by where they lead to: what `pag_graph.kernels.replay` reads."""

    base: WindowGraph
    """The edges; where everybody waits, the wait on which the critical path ends is `unknown`."""
    ids: I64
    """Per vertex: its id; negative for cut vertices. Vertex 0 is the window's start."""
    t: I64
    """Per vertex: when it happened."""
    first: I64
    """Shape (vertices + 1,): where the arcs into each vertex begin."""
    src: I64
    """Per arc: where it starts."""
    dst: I64
    """Per arc: where it ends."""
    weight: I64
    """Per arc: nanoseconds that must pass between the two."""
    edge: I64
    """Per arc: the row of `base.rows` that it belongs to, or -1."""
    element: I64
    """Per arc: the row whose duration is part of its weight, or -1."""
    duration: I64
    """Per row: how long it takes in a replay, inside the window; a message until it arrives."""
    elements: Bools
    """Per row: whether a replay knows its duration: not of `waiting`, of what the window's end cuts, and of messages
    with negative transfer."""
    end: int
    """The vertex that closes the window."""

    @property
    def window(self) -> Window:
        """The window."""
        return self.base.window

    @property
    def movable(self) -> Bools:
        """Per row: whether its duration can be changed; a message that was sent before the window has arrived."""
        return np.asarray(self.elements & (self.base.is_local | (self.base.src != BEFORE)), dtype=np.bool_)

    def weights(self, duration: I64) -> I64:
        """Return the arcs' weights for other durations of the rows.

        Parameters
        ----------
        duration
            Per row. Those of waits count nothing: they follow from what is waited for.

        Returns
        -------
        I64
            Per arc.
        """
        change = np.append(duration - self.duration, 0)
        return np.asarray(self.weight + change[self.element], dtype=np.int64)

    def replay(self, weight: I64) -> I64:
        """Return when every vertex happens."""
        return np.asarray(earliest(self.first, self.src, weight, self.window.start_ns))

    def path(self, weight: I64, time: I64) -> I64:
        """Return the arcs of the critical path of a replay, in time order."""
        return np.asarray(binding_arcs(self.first, self.src, weight, time, self.end))[::-1]


def constraint_graph(snapshot: Snapshot, *, loop: Loop, arrival: Arrival) -> ConstraintGraph:
    """Build the constraint graph of a window.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks; the window must not be empty.
    loop
        ``closed``: input comes as long after the worker asked for it as it did. ``open``: it comes when it came.
    arrival
        A message whose arrival nobody logged took as long as the shortest between the same processes in the window
        (``shortest``), or until it was read (``read``).

    Returns
    -------
    ConstraintGraph
        Replayed with its own weights it gives every vertex the time at which it happened.

    Raises
    ------
    PagError
        If the recording contradicts the constraints, as after a wait that no message ended; names the vertex.
    CycleError
        If events at one instant wait for each other; names the vertex.

    Notes
    -----
    O(edges log edges) for sorting by time; all else is linear.
    """
    base, end, last = _closed(snapshot, window_graph(snapshot))
    window, is_local = base.window, base.is_local
    begin = window.start_ns
    # What the window's end cuts leads nowhere, but for the edge on which the critical path ends.
    usable = (base.dst != AFTER) & ~base.negative
    duration = np.where(is_local, base.inside, _transfer(snapshot, base, arrival))
    led_to = np.zeros(len(base.ids), np.bool_)
    led_to[BEFORE] = True
    if last >= 0:
        usable[last], duration[last], led_to[AFTER] = True, base.inside[last], True
    waiting = base.is_type(ActivityType.WAITING)
    open_input = base.is_type(ActivityType.INPUT_WAIT) & (loop == "open")
    led_to[base.dst[is_local & usable]] = True
    step = np.flatnonzero(is_local & usable & ~waiting)
    message = np.flatnonzero(~is_local & usable)
    release = np.flatnonzero(open_input & usable)
    wait = np.flatnonzero(waiting & usable)
    anchored = np.flatnonzero(~led_to)
    nothing, no_row = (np.full(len(anchored), fill, np.int64) for fill in (BEFORE, -1))
    # Where several arcs bind, a walk back takes the first: the worker's own edge, but after a wait what ended it.
    # A message that ended a wait is read after it on the same worker: an arc to its read would never bind first.
    src = np.concatenate([base.src[step], base.src[message], np.zeros_like(release), base.src[wait], nothing])
    dst = np.concatenate([base.dst[step], base.dst[message], base.dst[release], base.dst[wait], anchored])
    weight = np.concatenate(
        [
            np.where(open_input[step], 0, duration[step]),
            duration[message],
            base.t[base.dst[release]] - begin,
            np.zeros_like(wait),
            base.t[anchored] - begin,
        ]
    )
    edge = np.concatenate([step, message, release, wait, no_row])
    element = np.concatenate([np.where(open_input[step], -1, step), message, release, np.full_like(wait, -1), no_row])
    order, stuck = topological_order(np.argsort(base.t, kind="stable"), base.t, src, dst)
    if stuck >= 0:
        vertex = int(base.ids[stuck])
        text = f"What happens in one instant at {_place(vertex)} in {window.name} waits for itself."
        raise CycleError(text, "The clocks are too coarse to tell what came first.", {"vertex": vertex})
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    dst = number[dst]
    first, position = group_arcs(dst, len(order))
    graph = ConstraintGraph(
        base=base,
        ids=base.ids[order],
        t=base.t[order],
        first=first,
        src=number[src][position],
        dst=dst[position],
        weight=weight[position],
        edge=edge[position],
        element=element[position],
        duration=duration,
        elements=usable & ~waiting,
        end=int(number[end]),
    )
    _check(graph)
    return graph


def _closed(snapshot: Snapshot, base: WindowGraph) -> tuple[WindowGraph, int, int]:
    """Return the graph, the vertex that closes the window, and the row that the window's end cuts before it, or -1."""
    local, message, _ = last_edge(snapshot)
    rows = slice(0, base.local) if message is None else slice(base.local, None)
    index = base.rows["index"].to_numpy()[rows]
    row = int(np.searchsorted(index, local if message is None else message)) + rows.start
    if base.dst[row] != AFTER:
        return base, int(base.dst[row]), -1
    if not base.is_type(ActivityType.WAITING)[row]:
        return base, AFTER, row
    # Where everybody waits, time that nobody used is all that there is to walk (see `critical_path`).
    here = pl.int_range(pl.len()) == row
    kinds = base.rows.with_columns(type=pl.when(here).then(pl.lit(_UNKNOWN)).otherwise("type"))
    return replace(base, rows=kinds), AFTER, row


def _transfer(snapshot: Snapshot, base: WindowGraph, arrival: Arrival) -> I64:
    """Return per row how long a message takes until it arrives, from the window's start if it was sent before."""
    start, end = base.number("start_ns"), base.number("end_ns")
    ended_wait = (base.number("read") != base.number("dst")) & (base.number("read") >= 0)
    logged = ended_wait | base.rows["receive_buffer_ns"].is_not_null().to_numpy()
    # The edge of a message that ended a wait ends at its arrival, that of any other one at its read.
    taken = end - start - np.where(ended_wait | ~logged, 0, base.number("receive_buffer_ns"))
    guessed = ~logged & ~base.is_local & ~base.negative
    if arrival == "shortest" and guessed.any():
        processes = snapshot.run.scan("workers").select("worker", "process").sort("worker").collect()
        process = np.unique(processes["process"].to_numpy(), return_inverse=True)[1]
        sender, receiver = (
            process[np.searchsorted(processes["worker"].to_numpy(), base.number(column) >> POSITION_BITS)]
            for column in ("src", "dst")
        )
        pair = sender * len(process) + receiver
        shortest = np.full(len(process) ** 2, np.iinfo(np.int64).max)
        known = ~base.is_local & ~base.negative
        np.minimum.at(shortest, pair[known], taken[known])
        taken = np.where(guessed, shortest[pair], taken)
    return taken - np.where(base.src == BEFORE, base.window.start_ns - start, 0)


def _check(graph: ConstraintGraph) -> None:
    wrong = np.flatnonzero(graph.replay(graph.weight) != graph.t)
    if len(wrong):
        vertex = int(graph.ids[wrong[0]])
        message = f"Nothing explains when {_place(vertex)} in {graph.window.name} happened."
        raise PagError(message, "Build the store again, and look at its findings.", {"vertex": vertex})
