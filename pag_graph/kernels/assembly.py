"""From judged rows of one worker to its vertices and local edges."""

from __future__ import annotations

import numpy as np

from pag_graph.kernels.activations import I8, I32, I64, INFERRED, PARK, SCOPE, SPINNING
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.search import above
from pag_graph.kernels.waits import BUSY as VERDICT_BUSY
from pag_graph.kernels.waits import IDLE as VERDICT_IDLE
from pag_graph.kernels.waits import INPUT_WAIT as VERDICT_INPUT_WAIT
from pag_graph.kernels.waits import WAITING as VERDICT_WAITING

# Codes of the local edge types that this kernel gives.
PROCESSING, SPINNING_EDGE, BUSY, WAITING, WAKE_UP, INPUT_WAIT, IDLE, UNKNOWN = 0, 1, 2, 3, 4, 5, 6, 7
NO_EDGE = -1
"""Stands for the type of an edge where no edge leads from one vertex to the next."""

# Stand for the row of a vertex that no event stands behind.
INSERTED_ARRIVAL, INSERTED_START, INSERTED_END = -1, -2, -3


@kernel
def local_graph(
    kind: I8,
    t: I64,
    operator: I64,
    dropped: I8,
    innermost: I32,
    role: I8,
    consumed: I64,
    parks: I64,
    unparks: I64,
    verdict: I8,
    arrival: I64,
    first_order: int,
    previous_pos: int,
    previous_t: int,
    segment: int,
    starts_run: bool,
    ends_run: bool,
    born: bool,
    exits: bool,
    run_end_ns: int,
) -> tuple[I32, I64, I64, I64, I8, I64, I64, I64, I8]:
    """Chain the rows of one worker to vertices and local edges that tile its time.

    Parameters
    ----------
    kind, t, operator, dropped
        Rows of the worker in log order, `t` on the common clock from the run's origin; `dropped` is 1 for rows that
        become no vertex.
    innermost, role, consumed
        From `activations`.
    parks, unparks, verdict, arrival
        From `idle_intervals` and `judge_intervals`.
    first_order
        Order of the first row on its worker, from 1.
    previous_pos, previous_t
        The last vertex of the worker before these rows; ignored where `starts_run`.
    segment
        Position of the vertex that starts the segment open before these rows; ignored where `starts_run`.
    starts_run, ends_run
        Whether the worker's log begins and ends with these rows.
    born, exits
        Whether its life begins with its first event, and ends with its last one.
    run_end_ns
        The run's end; the time of a worker that does not exit, from its last event up to it, is `UNKNOWN`.

    Returns
    -------
    row, pos, t, segment
        Per vertex, in order: its row (negative for inserted ones), position, time, and the position of the vertex that
        starts its segment.
    edge, operator, activation, records, flags
        Per vertex, of the local edge that leads to it from the vertex before: type code, `NO_EDGE` for the first
        vertex of the run; operator (-1: none), position of the `start` of its activation (-1: none), records read in
        the activation on its first edge (-1: none), and 1 where the type is inferred.

    Notes
    -----
    O(rows). Consecutive vertices are joined by exactly one edge, so the edges tile the worker's time from the run's
    origin (or the worker's birth) to the run's end (or the worker's exit).
    """
    rows = kind.shape[0]
    most = parks.shape[0] + 2
    for reason in dropped:
        most += reason == 0
    vertex_row, vertex_pos = np.empty(most, np.int32), np.empty(most, np.int64)
    vertex_t, vertex_segment = np.empty(most, np.int64), np.empty(most, np.int64)
    edge, edge_operator = np.empty(most, np.int8), np.empty(most, np.int64)
    edge_activation, edge_records = np.empty(most, np.int64), np.empty(most, np.int64)
    edge_flags = np.empty(most, np.int8)
    vertices = 0
    interval = 0
    previous_row = -1
    have_previous = not starts_run
    for row in range(rows):
        if dropped[row]:
            continue
        pos = 2 * (first_order + row)
        code, who, activation, size, inferred = UNKNOWN, -1, -1, -1, 0
        if not have_previous:
            segment = pos
            code = NO_EDGE
            if t[row] > 0 and not born:
                # The origin on this worker: what it did before its first event nobody knows.
                segment = pos - 1
                vertex_row[0], vertex_pos[0], vertex_t[0], vertex_segment[0] = INSERTED_START, segment, 0, segment
                edge[0], edge_operator[0], edge_activation[0], edge_records[0], edge_flags[0] = NO_EDGE, -1, -1, -1, 0
                vertices = 1
                code = UNKNOWN
            have_previous = True
        else:
            while interval < parks.shape[0] and unparks[interval] < row:
                interval += 1
            if interval < parks.shape[0] and unparks[interval] == row:
                found = verdict[interval]
                if found == VERDICT_WAITING:
                    # The wait ends when the message arrives; the system needs the rest to wake the worker.
                    segment = pos - 1
                    vertex_row[vertices], vertex_pos[vertices] = INSERTED_ARRIVAL, segment
                    vertex_t[vertices], vertex_segment[vertices] = arrival[interval], segment
                    edge[vertices], edge_operator[vertices], edge_activation[vertices] = WAITING, -1, -1
                    edge_records[vertices], edge_flags[vertices] = -1, 0
                    vertices += 1
                    code = WAKE_UP
                elif found == VERDICT_BUSY:
                    code = BUSY
                elif found == VERDICT_IDLE:
                    code = IDLE
                elif found == VERDICT_INPUT_WAIT:
                    code = INPUT_WAIT
            elif previous_row < 0 or kind[previous_row] != PARK:
                top = innermost[previous_row] if previous_row >= 0 else -1
                if top < 0 or role[top] == SCOPE:
                    code = BUSY
                elif role[top] == SPINNING:
                    code = SPINNING_EDGE
                else:
                    code = PROCESSING
                    inferred = 1 if role[top] == INFERRED else 0
                if top >= 0:
                    # The start of one in which the worker only polled until then may be no vertex.
                    who, activation = operator[top], -1 if dropped[top] else 2 * (first_order + top)
                    if top == previous_row:
                        size = consumed[top]
        vertex_row[vertices], vertex_pos[vertices] = row, pos
        vertex_t[vertices], vertex_segment[vertices] = t[row], segment
        edge[vertices], edge_operator[vertices], edge_activation[vertices] = code, who, activation
        edge_records[vertices], edge_flags[vertices] = size, inferred
        vertices += 1
        previous_row = row
    if ends_run and not have_previous:
        # A worker without events: nobody knows what it did, from the origin to the end.
        segment = 1
        vertex_row[0], vertex_pos[0], vertex_t[0], vertex_segment[0] = INSERTED_START, 1, 0, 1
        edge[0], edge_operator[0], edge_activation[0], edge_records[0], edge_flags[0] = NO_EDGE, -1, -1, -1, 0
        vertices = 1
    if vertices:
        previous_pos, previous_t = vertex_pos[vertices - 1], vertex_t[vertices - 1]
    if ends_run and not exits and previous_t < run_end_ns:
        pos = 2 * (first_order + rows) - 1
        if pos == previous_pos:
            pos += 2
        vertex_row[vertices], vertex_pos[vertices] = INSERTED_END, pos
        vertex_t[vertices], vertex_segment[vertices] = run_end_ns, segment
        edge[vertices], edge_operator[vertices], edge_activation[vertices] = UNKNOWN, -1, -1
        edge_records[vertices], edge_flags[vertices] = -1, 0
        vertices += 1
    return (
        vertex_row[:vertices],
        vertex_pos[:vertices],
        vertex_t[:vertices],
        vertex_segment[:vertices],
        edge[:vertices],
        edge_operator[:vertices],
        edge_activation[:vertices],
        edge_records[:vertices],
        edge_flags[:vertices],
    )


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
