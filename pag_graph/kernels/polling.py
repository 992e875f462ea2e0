"""When a worker that polls had nothing to do: for logs that say nothing about idleness."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.kernels.activations import (
    EPOCH_END,
    I8,
    I32,
    I64,
    INFERRED,
    PROCESSING,
    PROGRESS_RECEIVE,
    PROGRESS_SEND,
    PUSH_PROGRESS,
    RECEIVE,
    START,
    STOP,
)
from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.search import not_below

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEVER = np.iinfo(np.int64).min


class LoggedRows(NamedTuple):
    """Rows of one worker in log order; one element per row."""

    kind: I8
    """Codes of `pag_graph.kernels.activations`."""
    t: I64
    """Nanoseconds since the run's origin."""
    operator: I64
    """-1 where there is none; `own_causes` reads numbers from 0 instead."""
    role: I8
    """From `activations.activations`."""
    innermost: I32
    """The same."""
    by_itself: NDArray[np.bool_]
    """Rows by which the worker does something of its own accord: outside of activations, or a scope sends data."""
    gaps: I64
    """Rows right before which others are missing, or the worker had ended, ascending."""


class Steps(NamedTuple):
    """What a worker went through, one activation inside no other after the other."""

    begin: I64
    """Per row: row at which its step began; the row itself outside of steps."""
    end: I64
    """Per row: row at which its step ended; the row itself outside of steps."""
    number: I64
    """Per row: number of the last step that began up to it. Between two steps with a pause of their own, or with rows
    missing, lies a number that no step has: what happened before that reaches no further than it."""


class Causes(NamedTuple):
    """Stretches of time in which a worker was not waiting; one element each."""

    begin: I64
    """Nanoseconds since the run's origin, as `end`."""
    end: I64


@kernel
def steps(rows: LoggedRows, pause_ns: int) -> Steps:
    """Divide a worker's rows into steps.

    Parameters
    ----------
    rows
        Of one worker.
    pause_ns
        Where so much time lies between two steps, the worker did not poll meanwhile.

    Returns
    -------
    Steps
        O(rows).

    Examples
    --------
    A scope starts at 0 and stops at 4; at 9 the worker logs something outside of it.

    >>> kind, t, none = np.array([0, 1, 9], np.int8), np.array([0, 4, 9]), np.full(3, -1)
    >>> innermost, no_gaps = np.array([0, -1, -1], np.int32), np.empty(0, np.int64)
    >>> log = LoggedRows(kind, t, none, np.zeros(3, np.int8), innermost, none > 0, no_gaps)
    >>> steps(log, 100).begin, steps(log, 100).end
    (array([0, 0, 2]), array([1, 1, 2]))
    """
    count = rows.kind.shape[0]
    begin, end, number = np.arange(count), np.arange(count), np.zeros(count, np.int64)
    current, first, stopped, gap = 0, -1, _NEVER, 0
    for row in range(count):
        if gap < rows.gaps.shape[0] and rows.gaps[gap] == row:
            gap += 1
            current += 2
            if first >= 0:
                end[first:row] = row - 1
                first, stopped = -1, rows.t[row - 1]
        if first < 0 and rows.innermost[row] >= 0:
            current += 1 if stopped == _NEVER or rows.t[row] - stopped < pause_ns else 2
            first = row
        number[row] = current
        if first >= 0:
            begin[row] = first
            if rows.innermost[row] < 0:
                end[first : row + 1] = row
                first, stopped = -1, rows.t[row]
    if first >= 0:
        end[first:] = count - 1
    return Steps(begin, end, number)


@kernel
def own_causes(rows: LoggedRows, steps: Steps, operators: int) -> Causes:
    """Find the stretches in which a worker does something useful, or is bound to because of what it has read.

    Parameters
    ----------
    rows, steps
        Of one worker; its operators are numbered from 0, and rows without one have a number of their own.
    operators
        How many such numbers there are.

    Returns
    -------
    Causes
        In no order. What is done in a step lasts up to its end, for its scopes have yet to take in what was done.

    Notes
    -----
    O(rows log rows). Definitions: CPA 5.1.2; "in the same step or the next one" is its "until every operator has run
    once".

    Examples
    --------
    Operator 0 works from 0 to 4, and the worker does something of its own accord at 9.

    >>> kind, t, operator = np.array([0, 1, 9], np.int8), np.array([0, 4, 9]), np.array([0, 0, -1])
    >>> role, innermost = np.array([PROCESSING, 0, 0], np.int8), np.array([0, -1, -1], np.int32)
    >>> log = LoggedRows(kind, t, operator, role, innermost, np.array([False, False, True]), np.empty(0, np.int64))
    >>> own_causes(log, steps(log, 100), 1)
    Causes(begin=array([0, 9]), end=array([4, 9]))
    """
    count = rows.kind.shape[0]
    begin, end = np.empty(count, np.int64), np.empty(count, np.int64)
    causes = 0
    read, push, active = -1, -1, -1
    # The last place is that of starts that name no operator: their number is -1.
    ran = np.full(operators + 1, -1, np.int64)
    progress = np.empty(count, np.int64)
    progress_count = 0
    # First row of the step before the one that is gone through, if they follow each other without a pause.
    back, last = 0, 0
    for row in range(count):
        if row and steps.number[row] != steps.number[row - 1]:
            back = last if steps.number[row] == steps.number[row - 1] + 1 else row
            last = row
        code = rows.kind[row]
        origin, useful = -1, False
        if code == START:
            useful = rows.role[row] in (PROCESSING, INFERRED)
            if useful:
                # It may be about any progress since the operator last ran.
                first = not_below(progress[:progress_count], max(ran[rows.operator[row]] + 1, back))
                origin = progress[first] if first < progress_count else -1
                active = row
            ran[rows.operator[row]] = row
        elif code == PROGRESS_RECEIVE:
            useful, read = True, row
        elif code == PUSH_PROGRESS:
            useful, origin = True, max(read, push)
            push = row
        elif code == PROGRESS_SEND:
            useful, origin = True, active
        else:
            useful = rows.by_itself[row]
        if code in (PROGRESS_RECEIVE, PUSH_PROGRESS):
            progress[progress_count] = row
            progress_count += 1
        if useful:
            # Progress tells of work; where no work is known, of work in its step that was not logged.
            alone = steps.begin[row] if code == PROGRESS_SEND else row
            begin[causes] = rows.t[origin if origin >= back else alone]
            end[causes] = rows.t[steps.end[row]]
            causes += 1
    return Causes(begin[:causes].copy(), end[:causes].copy())


@kernel
def certain_pauses(rows: LoggedRows, steps: Steps, pause_ns: int) -> I64:
    """Find rows with which a stretch without anything to do begins, whatever messages were sent when.

    Parameters
    ----------
    rows, steps
        Of one worker.
    pause_ns
        As for `steps`.

    Returns
    -------
    array
        Rows right after one at which something the worker did ended, where either two steps follow that do nothing, or
        a step that reads nothing follows after a pause. Nothing reaches back over that: no message arrived before the
        step before the one that reads it, and nothing is looked ahead for longer. O(rows).

    Notes
    -----
    What happens outside of steps is no place to begin at unless it is the end of an epoch: it may be no vertex. Nor is
    one where rows are missing within the two steps.

    Examples
    --------
    A step works from 0 to 4; the steps from 6 and from 9 find nothing to do.

    >>> from pag_graph.kernels.activations import SPINNING
    >>> kind, t = np.array([0, 1, 0, 1, 0, 1], np.int8), np.array([0, 4, 6, 7, 9, 10])
    >>> role = np.array([PROCESSING, 0, SPINNING, 0, SPINNING, 0], np.int8)
    >>> innermost, none = np.array([0, -1, 2, -1, 4, -1], np.int32), np.full(6, -1)
    >>> log = LoggedRows(kind, t, none, role, innermost, none > 0, np.empty(0, np.int64))
    >>> certain_pauses(log, steps(log, 100), 100)
    array([2])
    """
    count = rows.kind.shape[0]
    # Per step, at the row with which it ends: whether it did something, may have done something, or read something.
    useful, stirs, read = np.zeros(count, np.bool_), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for row in range(count):
        code, end = rows.kind[row], steps.end[row]
        works = code == START and rows.role[row] in (PROCESSING, INFERRED)
        inside = steps.begin[row] < end
        useful[end] |= code == EPOCH_END
        useful[end] |= inside and (works or code in (PROGRESS_RECEIVE, PROGRESS_SEND, PUSH_PROGRESS))
        stirs[end] |= works or code not in (START, STOP)
        read[end] |= code in (RECEIVE, PROGRESS_RECEIVE)
    pause_rows = np.empty(count, np.int64)
    places, gap = 0, 0
    for first in range(1, count):
        while gap < rows.gaps.shape[0] and rows.gaps[gap] < first:
            gap += 1
        end = steps.end[first]
        is_whole = steps.begin[first] == first and end > first and rows.innermost[end] < 0
        pause = rows.t[first] - rows.t[first - 1]
        if not is_whole or not useful[first - 1] or steps.end[first - 1] != first - 1 or pause <= 0:
            continue
        rests = pause >= pause_ns and not read[end]
        if not rests and not stirs[end] and end + 1 < count:
            following = steps.end[end + 1]
            rests = steps.begin[end + 1] == end + 1 and following > end + 1 and rows.innermost[following] < 0
            rests = rests and not stirs[following] and rows.t[end + 1] > rows.t[end]
        reach = steps.end[end + 1] if rests and end + 1 < count else end
        if rests and not (gap < rows.gaps.shape[0] and rows.gaps[gap] <= reach):
            pause_rows[places] = first
            places += 1
    return pause_rows[:places].copy()


@kernel
def pauses(causes: Causes, rows: LoggedRows, steps: Steps, pause_ns: int) -> tuple[I64, I64]:
    """Find the maximal stretches in which a worker had nothing to do.

    Parameters
    ----------
    causes
        Stretches in which it had, by their beginnings: own ones, and messages from their arrival to their read.
    rows, steps
        Of the worker.
    pause_ns
        A stretch in which no whole step lies counts only if it takes so much time.

    Returns
    -------
    begin, end
        Per stretch, in order: the last row before it, and the first one after it. What lies between is polling. The
        last row before the first stretch is -1 if a cause ends before all rows.

    Notes
    -----
    O(causes + rows). What lies before the first cause and after the last one is none: nothing ends it.

    Examples
    --------
    A worker has something to do until 4 and from 9 on, and 5 ns are long enough for a pause.

    >>> kind, t, none = np.array([0, 1, 9], np.int8), np.array([0, 4, 9]), np.full(3, -1)
    >>> innermost, no_gaps = np.array([0, -1, -1], np.int32), np.empty(0, np.int64)
    >>> log = LoggedRows(kind, t, none, np.zeros(3, np.int8), innermost, none > 0, no_gaps)
    >>> pauses(Causes(np.array([0, 9]), np.array([4, 9])), log, steps(log, 100), 5)
    (array([1]), array([2]))
    """
    count = causes.begin.shape[0]
    before, after = np.empty(count, np.int64), np.empty(count, np.int64)
    stretches = 0
    row, rows_ = 0, rows.t.shape[0]
    reach = causes.end[0] if count else 0
    for cause in range(1, count):
        opens = causes.begin[cause]
        if opens > reach:
            while row < rows_ and rows.t[row] <= reach:
                row += 1
            low = row - 1
            while row < rows_ and rows.t[row] < opens:
                row += 1
            has_step = False
            for inner in range(low + 1, row):
                has_step |= steps.begin[inner] > low and steps.begin[inner] < inner and steps.end[inner] == inner
            if has_step or opens - reach >= pause_ns:
                before[stretches], after[stretches] = low, row
                stretches += 1
        reach = max(reach, causes.end[cause])
    return before[:stretches].copy(), after[:stretches].copy()
