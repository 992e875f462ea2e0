"""Nested activations of one worker: who was innermost when, and did it work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.search import among

I8 = NDArray[np.int8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

# Codes of the kinds that the kernels look at; `KIND_CODES` in `pag_graph.rules.timely` maps the names to them.
START, STOP, SEND, RECEIVE, PROGRESS_SEND, PROGRESS_RECEIVE = 0, 1, 2, 3, 4, 5
PARK, UNPARK, PUSH_PROGRESS, EPOCH_END, OTHER = 6, 7, 8, 9, 10
EXIT, PROGRAM = 14, 16

# What can be wrong with a row.
CLOSES_NOTHING, CLOSES_OUTER, OPEN, CUT_BY_GAP = 1, 2, 3, 4

# What an activation turned out to be.
SCOPE, SPINNING, PROCESSING, INFERRED = 0, 1, 2, 3


class Activations(NamedTuple):
    """What runs in the rows of one worker, as of `activations`; one element per row, in log order."""

    innermost: I32
    """Row of the `start` that is innermost and open after this row, or -1."""
    role: I8
    """At a `start`: `SCOPE` to `INFERRED`; elsewhere 0."""
    consumed: I64
    """At a `start`: records received inside, not counting nested activations, or -1; elsewhere undefined."""


class Intervals(NamedTuple):
    """Candidate idle intervals of one worker, one element per interval, in log order."""

    parks: I64
    """Row of its first `park`; -1 where the interval begins with the row before all of them."""
    unparks: I64
    """Row of its last `unpark`."""
    last_parks: I64
    """Row of its last `park`, which differs from `parks` where several are merged; -1 where there is none."""


class Reasons(NamedTuple):
    """Why rows become no vertices, as numbers other than 0."""

    local: int
    """An end of a message between operators of the worker."""
    pushed: int
    """Pushed progress."""
    merged: int
    """A park or unpark inside an interval."""


@kernel
def activations(kind: I8, operator: I64, records: I64, gaps: I64) -> tuple[I32, I8, I64, I8]:
    """Assign every row to the innermost activation that is open after it, and say what each activation did.

    Parameters
    ----------
    kind, operator, records
        Rows of one worker in log order; absent values are -1.
    gaps
        Rows right before which others are missing, or the worker had ended, ascending.

    Returns
    -------
    innermost
        Per row: the row of the `start` that is innermost and open after this row, or -1.
    role
        Per row; meaningful for `start` rows: `SCOPE` (other activations lie inside), `PROCESSING` (it sent or
        received data), `INFERRED` (only progress was pushed to it just before), or `SPINNING`.
    consumed
        Per row; meaningful for `start` rows: records received inside (not in nested activations), or -1.
    trouble
        Per row: `CLOSES_NOTHING` for a `stop` that closes nothing, `CLOSES_OUTER` for one that closes others than the
        innermost, `OPEN` for a `start` that is still open at the end, `CUT_BY_GAP` where rows are missing; else 0.

    Notes
    -----
    One pass, O(rows). A `stop` of an operator that is open further out closes everything inside it; one of an
    operator that is not open closes nothing. What is open where rows are missing ends there, as its stop may be among
    them.

    Examples
    --------
    >>> kind, no_gaps = np.array([START, RECEIVE, STOP], np.int8), np.empty(0, np.int64)
    >>> innermost, role, consumed, trouble = activations(kind, np.array([7, -1, 7]), np.array([-1, 4, -1]), no_gaps)
    >>> innermost, role[0] == PROCESSING, consumed[0], trouble.any()
    (array([ 0,  0, -1], dtype=int32), np.True_, np.int64(4), np.False_)
    """
    rows = kind.shape[0]
    innermost = np.empty(rows, np.int32)
    role = np.zeros(rows, np.int8)
    consumed = np.empty(rows, np.int64)
    trouble = np.zeros(rows, np.int8)
    # As `consumed`, this is set for rows that start an activation only.
    parent = np.empty(rows, np.int32)
    top = -1
    gap = 0
    for row in range(rows):
        code = kind[row]
        follows = row > 0
        if gap < gaps.shape[0] and gaps[gap] == row:
            gap += 1
            follows = False
            while top >= 0:
                trouble[top] = CUT_BY_GAP
                top = parent[top]
        if code == START:
            if top >= 0:
                role[top] = SCOPE
            parent[row], consumed[row] = top, -1
            pushed = follows and kind[row - 1] == PUSH_PROGRESS and operator[row - 1] == operator[row]
            role[row] = INFERRED if pushed else SPINNING
            top = row
        elif code == STOP:
            closed = top
            while closed >= 0 and operator[closed] != operator[row]:
                closed = parent[closed]
            if closed < 0:
                trouble[row] = CLOSES_NOTHING
            else:
                if closed != top:
                    trouble[row] = CLOSES_OUTER
                top = parent[closed]
        elif code in (SEND, RECEIVE) and top >= 0:
            if role[top] != SCOPE:
                role[top] = PROCESSING
            if code == RECEIVE and records[row] >= 0:
                consumed[top] = max(consumed[top], 0) + records[row]
        innermost[row] = top
    while top >= 0:
        trouble[top] = OPEN
        top = parent[top]
    return innermost, role, consumed, trouble


@kernel
def at_level(innermost: I32, role: I8, consumed: I64, level: int, gaps: I64) -> tuple[I32, I8, I64]:
    """Let activations nested deeper than a level count as part of the one at that level.

    Parameters
    ----------
    innermost, role, consumed
        From `activations`.
    level
        Deepest level that is kept, from 1 for activations inside no other.
    gaps
        As for `activations`.

    Returns
    -------
    innermost, role, consumed
        The same for the activations that are kept. One that others lay inside, and that no longer is a `SCOPE`, did
        what the busiest of them did: `PROCESSING` before `INFERRED` before `SPINNING`; records are summed.

    Notes
    -----
    One pass, O(rows).

    Examples
    --------
    What runs inside the activation that row 0 starts counts as part of it.

    >>> role, records = np.array([SCOPE, PROCESSING, 0, 0], np.int8), np.array([-1, 4, -1, -1])
    >>> innermost, no_gaps = np.array([0, 1, 0, -1], np.int32), np.empty(0, np.int64)
    >>> innermost, role, consumed = at_level(innermost, role, records, 1, no_gaps)
    >>> innermost, role[0] == PROCESSING, consumed[0]
    (array([ 0,  0,  0, -1], dtype=int32), np.True_, np.int64(4))
    """
    rows = innermost.shape[0]
    depth = np.zeros(rows, np.int32)
    ancestor = np.full(rows, -1, np.int32)
    new_innermost = np.full(rows, -1, np.int32)
    new_role, new_consumed = role.copy(), consumed.copy()
    for row in range(rows):
        if innermost[row] == row:
            parent = innermost[row - 1] if row > 0 and not among(gaps, row) else -1
            depth[row] = depth[parent] + 1 if parent >= 0 else 1
            if depth[row] <= level:
                ancestor[row] = row
                if depth[row] == level and role[row] == SCOPE:
                    new_role[row] = SPINNING
            else:
                top = ancestor[parent]
                ancestor[row] = top
                if role[row] != SCOPE:
                    new_role[top] = _busier(new_role[top], role[row])
                if consumed[row] >= 0:
                    new_consumed[top] = max(new_consumed[top], 0) + consumed[row]
        if innermost[row] >= 0:
            new_innermost[row] = ancestor[innermost[row]]
    return new_innermost, new_role, new_consumed


@kernel
def _busier(role: int, other_role: int) -> int:
    if PROCESSING in (role, other_role):
        return PROCESSING
    return INFERRED if INFERRED in (role, other_role) else SPINNING


@kernel
def idle_intervals(kind: I8, gaps: I64) -> Intervals:
    """Find the candidate idle intervals: parks, with parks that follow each other directly merged into one.

    Parameters
    ----------
    kind
        Kinds of one worker's rows in log order.
    gaps
        As for `activations`: what rows are missing between does not follow each other.

    Returns
    -------
    parks, unparks
        Per interval: row of its first `park` and of its last `unpark`.
    last_parks
        Per interval: row of its last `park`; differs from `parks` where several were merged.

    Notes
    -----
    O(rows). A `park` without `unpark` right after it (the log was cut) is no interval.

    Examples
    --------
    >>> idle_intervals(np.array([PARK, UNPARK, PARK, UNPARK, START], np.int8), np.empty(0, np.int64))
    Intervals(parks=array([0]), unparks=array([3]), last_parks=array([2]))
    """
    rows = kind.shape[0]
    parks = np.empty(rows // 2 + 1, np.int64)
    unparks = np.empty(rows // 2 + 1, np.int64)
    last_parks = np.empty(rows // 2 + 1, np.int64)
    count = 0
    row = 0
    while row + 1 < rows:
        if kind[row] == PARK and kind[row + 1] == UNPARK and not among(gaps, row + 1):
            parks[count] = row
            while row + 3 < rows and kind[row + 2] == PARK and kind[row + 3] == UNPARK:
                if among(gaps, row + 2) or among(gaps, row + 3):
                    break
                row += 2
            last_parks[count] = row
            unparks[count] = row + 1
            count += 1
            row += 2
        else:
            row += 1
    return Intervals(parks[:count].copy(), unparks[:count].copy(), last_parks[:count].copy())


@kernel
def leave_out(kind: I8, peer: I64, worker: int, intervals: Intervals, reasons: Reasons) -> I8:
    """Say for every row why it becomes no vertex, or 0.

    Parameters
    ----------
    kind, peer
        Rows of one worker in log order.
    worker
        Its number.
    intervals
        From `idle_intervals`.
    reasons
        What to say.

    Returns
    -------
    array of int8
        One of `reasons`, or 0, per row. O(rows).

    Examples
    --------
    >>> kind = np.array([SEND, PARK, UNPARK, PARK, UNPARK], np.int8)
    >>> intervals = idle_intervals(kind, np.empty(0, np.int64))
    >>> leave_out(kind, np.array([3, -1, -1, -1, -1]), 3, intervals, Reasons(1, 2, 3))
    array([1, 0, 3, 3, 0], dtype=int8)
    """
    rows = kind.shape[0]
    reason = np.zeros(rows, np.int8)
    for row in range(rows):
        code = kind[row]
        if peer[row] == worker and code in (SEND, RECEIVE, PROGRESS_RECEIVE):
            reason[row] = reasons.local
        elif code == PUSH_PROGRESS:
            reason[row] = reasons.pushed
    for interval in range(intervals.parks.shape[0]):
        for row in range(intervals.parks[interval] + 1, intervals.unparks[interval]):
            reason[row] = reasons.merged
    return reason
