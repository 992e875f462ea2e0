"""From judged rows of one worker to its vertices and local edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pag_graph.kernels.activations import I8, I32, I64, INFERRED, PARK, PROGRAM, SCOPE, SPINNING, Activations
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.search import above
from pag_graph.kernels.waits import BUSY as VERDICT_BUSY
from pag_graph.kernels.waits import IDLE as VERDICT_IDLE
from pag_graph.kernels.waits import INPUT_WAIT as VERDICT_INPUT_WAIT
from pag_graph.kernels.waits import WAITING as VERDICT_WAITING

# Codes of the local edge types that this kernel gives.
PROCESSING, SPINNING_EDGE, BUSY, WAITING, WAKE_UP, INPUT_WAIT, IDLE, UNKNOWN = 0, 1, 2, 3, 4, 5, 6, 7
PROGRAM_EDGE = 19
NO_EDGE = -1
"""Stands for the type of an edge where no edge leads from one vertex to the next."""

# Stand for the row of a vertex that no event stands behind.
INSERTED_ARRIVAL, INSERTED_START, INSERTED_END = -1, -2, -3


class Rows(NamedTuple):
    """Rows of one worker in log order, one element each."""

    kind: I8
    """Codes of `pag_graph.kernels.activations`."""
    t: I64
    """Nanoseconds since the run's origin, on the common clock."""
    operator: I64
    """-1 where there is none."""
    dropped: I8
    """Not 0 for rows that become no vertex."""
    gaps: I64
    """Rows right before which others are missing, or the worker had ended, ascending: what it did there is unknown."""


class Judged(NamedTuple):
    """Idle intervals of one worker, in log order, and what they were; one element each."""

    unparks: I64
    """Row that ends it, from `pag_graph.kernels.activations.idle_intervals`."""
    verdict: I8
    """`WAITING` to `UNKNOWN` of `pag_graph.kernels.waits.judge_intervals`."""
    arrival: I64
    """When the message arrived that ended it (ns); only read where it was a wait."""


class Stretch(NamedTuple):
    """Where rows of a worker lie in its life. Times are nanoseconds since the run's origin."""

    first_order: int
    """Order of the first row on its worker, from 1."""
    previous_pos: int
    """Position of the worker's last vertex before these rows; ignored where `starts_run`, as the next two."""
    previous_t: int
    """Its time."""
    segment: int
    """Position of the vertex that starts the segment open before these rows."""
    starts_run: bool
    """Whether the worker's log begins with these rows."""
    ends_run: bool
    """Whether the worker's log ends with these rows."""
    born: bool
    """Whether its life begins with its first event."""
    exits: bool
    """Whether it ends with its last one."""
    run_end_ns: int
    """The run's end; the time of a worker that does not exit, from its last event up to it, is `UNKNOWN`."""


class Graph(NamedTuple):
    """Vertices of one worker, in order, and the local edge that leads to each from the one before; one element each."""

    row: I32
    """Its row; negative for inserted ones."""
    pos: I64
    """Position on the worker: twice the row's order, or one less for an inserted vertex (`docs/model.md`, "Graph")."""
    t: I64
    """Nanoseconds since the run's origin."""
    segment: I64
    """Position of the vertex that starts its segment."""
    edge: I8
    """Type code; `NO_EDGE` for the first vertex of the run."""
    operator: I64
    """That of the edge's activation, or -1."""
    activation: I64
    """Position of the `start` of its activation, or -1."""
    records: I64
    """Records read in the activation, on its first edge; else -1."""
    flags: I8
    """1 where the type is inferred."""


def local_graph(rows: Rows, running: Activations, intervals: Judged, stretch: Stretch) -> Graph:
    """Chain the rows of one worker to vertices and local edges that tile its time.

    Parameters
    ----------
    rows
        Those of the worker.
    running
        What runs in them.
    intervals
        What its idle intervals were.
    stretch
        Where the rows lie in the worker's life.

    Returns
    -------
    Graph
        One element per vertex. Consecutive vertices are joined by exactly one edge, so the edges tile the worker's time
        from the run's origin (or the worker's birth) to the run's end (or the worker's exit).

    Notes
    -----
    O(rows). Definitions: `docs/model.md`, "Types of local edges" and "Segments"; CPA 5.
    """
    room = int(np.count_nonzero(rows.dropped == 0)) + len(intervals.unparks) + 2
    numbers = np.empty((6, room), np.int64)
    pos, t, segment, operator, activation, records = numbers
    kinds, flags = np.empty((2, room), np.int8)
    graph = Graph(np.empty(room, np.int32), pos, t, segment, kinds, operator, activation, records, flags)
    vertices = fill_graph(rows, running, intervals, stretch, graph)
    return Graph._make(column[:vertices] for column in graph)


@kernel
def fill_graph(rows: Rows, running: Activations, intervals: Judged, stretch: Stretch, graph: Graph) -> int:
    """Do as `local_graph`, into arrays that the caller provides.

    Parameters
    ----------
    rows, running, intervals, stretch
        As for `local_graph`.
    graph
        Written here: room for a vertex per row that is not dropped, one per interval, and two more.

    Returns
    -------
    int
        How many vertices there are.

    Examples
    --------
    A worker logs two rows, at 0 and 9, and exits.

    >>> nothing = np.empty(0, np.int64)
    >>> kinds = np.full(2, PARK + 4, np.int8)
    >>> rows = Rows(kinds, np.array([0, 9]), np.full(2, -1), np.zeros(2, np.int8), nothing)
    >>> running = Activations(np.full(2, -1, np.int32), np.zeros(2, np.int8), np.full(2, -1))
    >>> stretch = Stretch(1, -1, 0, -1, True, True, False, True, 9)
    >>> local_graph(rows, running, Judged(nothing, nothing.astype(np.int8), nothing), stretch).edge
    array([-1,  2], dtype=int8)
    """
    # Each column in a local of its own: to read it from a tuple takes longer than to write to it.
    kind, t, operator, dropped, gaps = rows
    innermost, role, consumed = running
    unparks, verdicts, arrivals = intervals
    row_of, pos_of, t_of, segment_of, edge, operator_of, activation_of, records, flags = graph
    first_order, born = stretch.first_order, stretch.born
    segment, vertices, interval, gap = stretch.segment, 0, 0, 0
    previous_row = -1
    have_previous = not stretch.starts_run
    for row in range(kind.shape[0]):
        if dropped[row]:
            continue
        pos = 2 * (first_order + row)
        code, owner, activation, size, inferred = UNKNOWN, -1, -1, -1, 0
        # A vertex that no event stands behind, right before this one.
        inserted, inserted_t, ends = 0, 0, NO_EDGE
        crosses_gap = False
        while gap < gaps.shape[0] and gaps[gap] <= row:
            crosses_gap = True
            gap += 1
        while interval < unparks.shape[0] and unparks[interval] < row:
            interval += 1
        if not have_previous:
            segment, code, have_previous = pos, NO_EDGE, True
            if t[row] > 0 and not born:
                # The origin on this worker: what it did before its first event is not known.
                segment, inserted, code = pos - 1, INSERTED_START, UNKNOWN
        elif interval < unparks.shape[0] and unparks[interval] == row:
            code = _edge_of_verdict(verdicts[interval])
            if code == WAKE_UP:
                # The wait ends when the message arrives; the system needs the rest to wake the worker.
                segment = pos - 1
                inserted, inserted_t, ends = INSERTED_ARRIVAL, arrivals[interval], WAITING
        elif not crosses_gap and (previous_row < 0 or kind[previous_row] != PARK):
            top = innermost[previous_row] if previous_row >= 0 else -1
            if top < 0:
                code = PROGRAM_EDGE if kind[row] == PROGRAM else BUSY
            else:
                code, inferred = _edge_inside(role[top])
                # The start of one in which the worker only polled until then may be no vertex.
                owner, activation = operator[top], -1 if dropped[top] else 2 * (first_order + top)
                size = consumed[top] if top == previous_row else -1
        if inserted < 0:
            row_of[vertices], pos_of[vertices], t_of[vertices], segment_of[vertices] = (
                inserted,
                segment,
                inserted_t,
                segment,
            )
            edge[vertices], operator_of[vertices], activation_of[vertices] = ends, -1, -1
            records[vertices], flags[vertices] = -1, 0
            vertices += 1
        row_of[vertices], pos_of[vertices], t_of[vertices], segment_of[vertices] = row, pos, t[row], segment
        edge[vertices], operator_of[vertices], activation_of[vertices] = code, owner, activation
        records[vertices], flags[vertices] = size, inferred
        vertices += 1
        previous_row = row
    if not stretch.ends_run:
        return vertices
    if not have_previous:
        # A worker without events: what it did is not known, from the origin to the end.
        segment = 1
        _insert(graph, 0, (INSERTED_START, segment, 0, segment), NO_EDGE)
        vertices = 1
    return _end(graph, vertices, 2 * (first_order + kind.shape[0]) - 1, segment, stretch)


@kernel
def _edge_of_verdict(verdict: int) -> int:
    """Return the type of the edge to the end of an idle interval.

    Examples
    --------
    >>> _edge_of_verdict(VERDICT_IDLE) == IDLE
    True
    """
    if verdict == VERDICT_WAITING:
        return WAKE_UP
    if verdict == VERDICT_BUSY:
        return BUSY
    if verdict == VERDICT_IDLE:
        return IDLE
    return INPUT_WAIT if verdict == VERDICT_INPUT_WAIT else UNKNOWN


@kernel
def _edge_inside(role: int) -> tuple[int, int]:
    """Return the type of an edge inside an activation of some role, and whether the type is inferred.

    Examples
    --------
    >>> _edge_inside(INFERRED) == (PROCESSING, 1)
    True
    """
    if role == SCOPE:
        return BUSY, 0
    if role == SPINNING:
        return SPINNING_EDGE, 0
    return PROCESSING, 1 if role == INFERRED else 0


@kernel
def _insert(graph: Graph, place: int, vertex: tuple[int, int, int, int], edge: int) -> None:
    """Write a vertex that no event stands behind (row, position, time, segment), and the type of the edge to it.

    Examples
    --------
    >>> graph = Graph._make(np.empty(1, np.int64) for _ in Graph._fields)
    >>> _insert(graph, 0, (INSERTED_START, 1, 0, 1), NO_EDGE)
    >>> graph.row, graph.edge
    (array([-2]), array([-1]))
    """
    graph.row[place], graph.pos[place], graph.t[place], graph.segment[place] = vertex
    graph.edge[place], graph.operator[place], graph.activation[place] = edge, -1, -1
    graph.records[place], graph.flags[place] = -1, 0


@kernel
def _end(graph: Graph, vertices: int, pos: int, segment: int, stretch: Stretch) -> int:
    """Write the vertex at the run's end, where a worker does not exit before, and return how many there are then.

    Examples
    --------
    >>> graph = Graph._make(np.empty(1, np.int64) for _ in Graph._fields)
    >>> _end(graph, 0, 1, 1, Stretch(1, -1, 0, -1, True, True, False, False, 9)), graph.t
    (1, array([9]))
    """
    previous_pos, previous_t = stretch.previous_pos, stretch.previous_t
    if vertices:
        previous_pos, previous_t = graph.pos[vertices - 1], graph.t[vertices - 1]
    if stretch.exits or previous_t >= stretch.run_end_ns:
        return vertices
    if pos == previous_pos:
        pos += 2
    _insert(graph, vertices, (INSERTED_END, pos, stretch.run_end_ns, segment), UNKNOWN)
    return vertices + 1


@kernel
def window_sums(start: I64, end: I64, bounds: I64) -> I64:
    """Sum the parts of intervals that fall into consecutive windows.

    Parameters
    ----------
    start, end
        Ends of the intervals.
    bounds
        Strictly or weakly increasing bounds; window i lies between bounds i and i + 1.

    Returns
    -------
    sums
        Per window: the summed length of the intervals' parts inside it.

    Notes
    -----
    O(intervals x (log windows + windows touched)).

    Examples
    --------
    >>> window_sums(np.array([2]), np.array([12]), np.array([0, 10, 20]))
    array([8, 2])
    """
    sums = np.zeros(bounds.shape[0] - 1, np.int64)
    for i in range(start.shape[0]):
        window = max(above(bounds, start[i]) - 1, 0)
        while window < sums.shape[0] and bounds[window] < end[i]:
            low, high = max(start[i], bounds[window]), min(end[i], bounds[window + 1])
            if high > low:
                sums[window] += high - low
            window += 1
    return sums
