"""The constraint graph of a window: what had to happen before what, and how long each took.

Slack, what-if replay and the causal profile are all questions to this one graph. Definition: `docs/model.md`, section
"Replay and slack".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
import polars as pl

from pag_graph.analyses.critical_path import no_end, roles
from pag_graph.analyses.expressions import UNKNOWN
from pag_graph.analyses.window_graphs import WindowGraph, place_of, window_graph
from pag_graph.errors import CycleError, PagError
from pag_graph.kernels.arranging import with_any
from pag_graph.kernels.compiling import read_only
from pag_graph.kernels.path import Edges, Windows, last_edges
from pag_graph.kernels.replay import Arcs, binding_arcs, earliest, group_arcs, topological_order
from pag_graph.model.enums import ActivityType
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.tiling import Tiling
    from pag_graph.graph.window import Window

    I64 = NDArray[np.int64]
    Bools = NDArray[np.bool_]

Loop = Literal["closed", "open"]
"""What input from outside does when the program gets faster: come earlier as well, or when it came."""
Arrival = Literal["shortest", "read"]
"""How long a message took whose arrival nobody logged."""
LoopParameter = Annotated[
    Loop, "Input comes as recorded after it is asked for (closed), or at its recorded time (open)."
]
"""The field `loop` of parameters."""
ArrivalParameter = Annotated[
    Arrival, "How long a message without a logged arrival took: as long as the shortest message, or until it was read."
]
"""The field `arrival` of parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintGraph:
    """Vertices in topological order, and arcs grouped by where they lead to: what `pag_graph.kernels.replay` reads."""

    base: WindowGraph
    """The edges; where everybody waits, the wait on which the critical path ends is `unknown`."""
    ids: I64
    """Per vertex: its id; negative for cut vertices. The first vertex of every window is its start; `base.before` says
    which it is."""
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
    ends: I64
    """Per window: the vertex that closes it."""

    @property
    def window(self) -> Window:
        """The first window."""
        return self.base.window

    @property
    def end(self) -> int:
        """The vertex that closes the first window."""
        return int(self.ends[0])

    @property
    def movable(self) -> Bools:
        """Per row: whether its duration can be changed; a message that was sent before the window has arrived."""
        return np.asarray(self.elements & (self.base.is_local | ~self.base.from_before), dtype=np.bool_)

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
        """Return when every vertex happens.

        Parameters
        ----------
        weight
            Per arc: nanoseconds.

        Returns
        -------
        array of int64
            Per vertex: when it happens (ns since the run's origin). O(vertices + arcs).
        """
        return np.asarray(earliest(Arcs(self.first, self.src, weight), self.window.start_ns))

    def path(self, weight: I64, time: I64) -> I64:
        """Return the critical path of a replay of the first window.

        Parameters
        ----------
        weight
            Per arc: nanoseconds.
        time
            Per vertex, from `replay` with these weights.

        Returns
        -------
        array of int64
            Arcs, in time order.
        """
        arcs = Arcs(self.first, self.src, weight)
        return np.asarray(binding_arcs(arcs, time, np.array([0]), self.ends[:1]))[::-1]

    def on_path(self) -> Bools:
        """Say per row whether it is on the critical path of its window."""
        arcs = binding_arcs(Arcs(self.first, self.src, self.weight), self.t, self.base.before, self.ends)
        # Arcs that belong to no row mark the one behind the last.
        marks = np.zeros(len(self.duration) + 1, np.bool_)
        marks[self.element[arcs]] = True
        return marks[:-1]


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
    return constraint_graph_of(snapshot.run, snapshot.tiling, loop=loop, arrival=arrival)


def constraint_graph_of(run: Run, tiling: Tiling, *, loop: Loop, arrival: Arrival) -> ConstraintGraph:
    """Build the constraint graphs of several windows at once (see `constraint_graph`).

    Parameters
    ----------
    run, tiling
        Edges that touch the windows, with the columns of `COLUMNS`.
    loop, arrival
        As for `constraint_graph`.

    Returns
    -------
    ConstraintGraph
        Those of all windows side by side.

    Raises
    ------
    PagError
        If the recording contradicts the constraints; names the vertex.
    CycleError
        If events at one instant wait for each other; names the vertex.
    """
    base, ends, last = _closed(window_graph(tiling))
    # Edges that the window's end cuts lead nowhere, except the edge on which the critical path ends.
    usable = ~base.to_after & ~base.negative
    duration = np.where(base.is_local, base.inside, _transfer(run, base, arrival))
    cut = last[last >= 0]
    usable[cut], duration[cut] = True, base.inside[cut]
    arcs = _arcs(base, usable, duration, cut, loop)
    order, stuck = topological_order(np.argsort(base.t, kind="stable"), base.t, arcs.src, arcs.dst)
    if stuck >= 0:
        vertex = int(base.ids[stuck])
        name = base.windows[int(_window_of(base, np.array([stuck]))[0])].name
        text = f"What happens in one instant at {place_of(vertex)} in {name} waits for itself."
        raise CycleError(text, "The clocks are too coarse to tell what came first.", {"vertex": vertex})
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    dst = number[arcs.dst]
    first, position = group_arcs(dst, len(order))
    graph = ConstraintGraph(
        base=base,
        ids=base.ids[order],
        t=base.t[order],
        first=first,
        src=number[arcs.src][position],
        dst=dst[position],
        weight=arcs.weight[position],
        edge=arcs.edge[position],
        element=arcs.element[position],
        duration=duration,
        elements=usable & ~base.is_type(ActivityType.WAITING),
        ends=number[ends],
    )
    _check(graph)
    return graph


class _Arcs(NamedTuple):
    """What must pass between which vertices, as `ConstraintGraph` has it, in no order."""

    src: I64
    dst: I64
    weight: I64
    edge: I64
    element: I64


def _arcs(base: WindowGraph, usable: Bools, duration: I64, cut: I64, loop: Loop) -> _Arcs:
    """Return the arcs of edges, of releases at the clock's time, and of what nothing in the window leads to.

    `usable` says which rows lead anywhere, `cut` which of these the window's end cuts.
    """
    is_local, window_of_row, before, waiting = base.is_local, base.of, base.before, base.is_type(ActivityType.WAITING)
    # A worker that sleeps by the clock until input is due wakes up then, whatever happened before.
    open_input = base.is_type(ActivityType.INPUT_WAIT, ActivityType.IDLE) & (loop == "open")
    led_to = np.zeros(len(base.ids), np.bool_)
    led_to[before] = True
    led_to[base.dst[cut]] = True
    led_to[base.dst[(is_local | base.is_type(ActivityType.SPAWN)) & usable]] = True
    step = np.flatnonzero(is_local & usable & ~waiting)
    message = np.flatnonzero(~is_local & usable)
    release = np.flatnonzero(open_input & usable)
    wait = np.flatnonzero(waiting & usable)
    anchored = np.flatnonzero(~led_to)
    # A window begins at its place on the line, and not at the end of the activities before it.
    released_from, anchored_from = before[window_of_row[release]], before[_window_of(base, anchored)]
    # Where several arcs bind, a walk back takes the first: the worker's own edge, but after a wait what ended it.
    # A message that ended a wait is read after it on the same worker: an arc to its read would never bind first.
    origins = before[1:]
    no_row = np.full(len(anchored) + len(origins), -1)
    return _Arcs(
        src=np.concatenate(
            [base.src[step], base.src[message], released_from, base.src[wait], anchored_from, np.zeros_like(origins)]
        ),
        dst=np.concatenate([base.dst[step], base.dst[message], base.dst[release], base.dst[wait], anchored, origins]),
        weight=np.concatenate(
            [
                np.where(open_input[step], 0, duration[step]),
                duration[message],
                base.t[base.dst[release]] - base.t[released_from],
                np.zeros_like(wait),
                base.t[anchored] - base.t[anchored_from],
                base.t[origins] - base.t[0],
            ]
        ),
        edge=np.concatenate([step, message, release, wait, no_row]),
        element=np.concatenate(
            [np.where(open_input[step], -1, step), message, release, np.full_like(wait, -1), no_row]
        ),
    )


def _window_of(base: WindowGraph, vertices: I64) -> I64:
    """Return the windows of vertices, numbered as in the base."""
    return np.searchsorted(base.vertex_first, vertices, side="right") - 1


def _closed(base: WindowGraph) -> tuple[WindowGraph, I64, I64]:
    """Return the graph; per window the vertex that closes it, and the row that its end cuts before that, or -1."""
    rows, ends = base.rows, base.ends
    src, dst, start, end = (rows[name].to_numpy() for name in ("src", "dst", "start_ns", "end_ns"))
    src, dst, start, end = read_only(src, dst, start, end)
    first = np.searchsorted(base.of, np.arange(len(base.windows) + 1))
    row, _ = last_edges(
        Edges(first, src, dst, start, end, roles(base.is_type)),
        Windows(
            base.begins, ends, np.array([-1 if w.end_vertex is None else w.end_vertex for w in base.windows], np.int64)
        ),
    )
    if (row < 0).any():
        error = no_end(base.windows[int(np.argmax(row < 0))])
        raise error
    cut = base.to_after[row]
    idle = row[cut & base.is_type(ActivityType.WAITING)[row]]
    if len(idle):
        # Where all workers wait, the path walks over unused time, whose type is unknown (see `critical_path`).
        at_end = np.zeros(rows.height, np.bool_)
        at_end[idle] = True
        kind = pl.when(pl.Series(at_end)).then(pl.lit(UNKNOWN, rows.schema["type"])).otherwise("type")
        base = replace(base, rows=rows.with_columns(type=kind))
    return base, base.dst[row], np.where(cut, row, -1)


def _transfer(run: Run, base: WindowGraph, arrival: Arrival) -> I64:
    """Return per row how long a message takes until it arrives, from the window's start if it was sent before."""
    start, end = base.number("start_ns"), base.number("end_ns")
    is_local, window_of_row, dst = base.is_local, base.of, base.number("dst")
    ended_wait = ~is_local & (
        with_any(window_of_row, dst, base.is_type(ActivityType.WAITING)) | base.is_type(ActivityType.SPAWN)
    )
    logged = ended_wait | base.rows["receive_buffer_ns"].is_not_null().to_numpy()
    # An edge that ends at a read, not at an arrival before it, is longer than the transfer by the time in the buffer.
    # A message that is read where another one ended a wait may have been in the buffer, too.
    buffered = base.rows["receive_buffer_ns"].is_not_null().to_numpy() & (dst == base.number("read"))
    transfer_ns = end - start - np.where(buffered, base.number("receive_buffer_ns"), 0)
    guessed = ~logged & ~is_local & ~base.negative
    if arrival == "shortest" and guessed.any():
        processes = run.scan("workers").select("worker", "process").sort("worker").collect()
        process = np.unique(processes["process"].to_numpy(), return_inverse=True)[1]
        sender, receiver = (
            process[np.searchsorted(processes["worker"].to_numpy(), base.number(column) >> POSITION_BITS)]
            for column in ("src", "dst")
        )
        pair = (window_of_row * len(process) + sender) * len(process) + receiver
        shortest = np.full(len(base.windows) * len(process) ** 2, np.iinfo(np.int64).max)
        # To start a worker takes its own time, which says nothing about messages.
        is_message = ~is_local & ~base.negative & ~base.is_type(ActivityType.SPAWN)
        np.minimum.at(shortest, pair[is_message], transfer_ns[is_message])
        transfer_ns = np.where(guessed, shortest[pair], transfer_ns)
    return transfer_ns - np.where(base.from_before, base.begins[window_of_row] - start, 0)


def _check(graph: ConstraintGraph) -> None:
    wrong = np.flatnonzero(graph.replay(graph.weight) != graph.t)
    if len(wrong):
        vertex = int(graph.ids[wrong[0]])
        name = graph.base.windows[int(_window_of(graph.base, wrong[:1])[0])].name
        message = f"Nothing explains when {place_of(vertex)} in {name} happened."
        raise PagError(message, "Build the store again, and look at its findings.", {"vertex": vertex})
