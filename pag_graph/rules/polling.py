"""Waits of workers that poll: candidate idle intervals where a log says nothing about idleness (CPA 5.1 to 5.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.kernels import NEVER, polling
from pag_graph.kernels import activations as act
from pag_graph.kernels.applications import applications
from pag_graph.model.enums import EventKind
from pag_graph.rules.rows import EXIT, KIND_CODES, SPAWN, application_marks, arrivals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.rules.rows import PolledRows, WorkerRows

    I8 = NDArray[np.int8]
    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]

_ARRIVAL = KIND_CODES[EventKind.ARRIVAL]
_CERTAIN_STEPS = 3
"""So many steps, the last of them included, tell whether the worker rests after the first of them."""


class Polled(NamedTuple):
    """Stretches in which a worker that logs no parks had nothing to do, and when its messages came."""

    begin: I64
    """Per stretch: the row before it, as a park would be; -1 for the row before all of them."""
    end: I64
    """Per stretch: the row after it, as an unpark would be."""
    arrived: I64
    """Per row that reads a message: as `pag_graph.rules.rows.arrivals` says; where it is known when the message
    arrived, not before the worker looked in vain."""
    looked: I64
    """Per row that reads a message: when the worker last looked for it in vain; the smallest integer for never."""


def polled_intervals(rows: WorkerRows, role: I8, innermost: I32, processes: I64, pause_ns: int) -> Polled:
    """Find the stretches in which a worker that logs no parks had nothing to do (`docs/model.md`, "Workers that poll").

    Parameters
    ----------
    rows
        Rows of one worker, with `sent` filled.
    role, innermost
        From `pag_graph.kernels.activations.activations`.
    processes
        Per worker of the run: its process.
    pause_ns
        A stretch in which the worker did not poll once counts only if it takes so much time.

    Returns
    -------
    Polled
        O(rows log rows).
    """
    logged = _logged(rows, role, innermost)
    steps = polling.steps(logged, pause_ns)
    own_causes = polling.own_causes(*_numbered(logged, steps))
    arrived, is_arrival_known = arrivals(rows, processes)
    looked = _looked(rows, steps)
    arrived = np.where(is_arrival_known & (arrived != NEVER), np.maximum(arrived, looked), arrived)
    parts = [own_causes, _buffered(rows, steps, arrived, is_arrival_known), _applications(rows), _missing(rows)]
    if not rows.starts_run:
        # A log is cut only where something to do has just ended (`pauses_of`).
        ended = np.array([rows.before_t])
        parts.append(polling.Causes(ended, ended))
    begin, end = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    order = np.argsort(begin, kind="stable")
    return Polled(*polling.pauses(polling.Causes(begin[order], end[order]), logged, steps, pause_ns), arrived, looked)


def pauses_of(rows: PolledRows, pause_ns: int) -> tuple[I64, int]:
    """Find where a worker that logs no parks had nothing to do for certain, as far as its own log tells.

    Parameters
    ----------
    rows
        Rows of the worker, which begin where no activation is open.
    pause_ns
        As for `polled_intervals`.

    Returns
    -------
    begins
        Rows with which such stretches begin, if no activity of the program is open there. The rows on either side need
        nothing of the other, except the time of the row before (`WaitRules.safe_cut`).
    done
        More rows change nothing in those `begins` that are not above this one; to find others it is enough to begin
        with it.
    """
    kind = rows.kind
    innermost, role, _, _ = act.activations(kind, rows.operator, np.full(len(kind), -1, np.int64), rows.gaps)
    logged = _logged(rows, role, innermost)
    steps = polling.steps(logged, pause_ns)
    begins: I64 = polling.certain_pauses(logged, steps, pause_ns)
    # A stretch is certain when the two steps behind its beginning have ended.
    ends = np.flatnonzero((steps.begin < np.arange(len(kind))) & (steps.end == np.arange(len(kind))) & (innermost < 0))
    return begins, int(ends[-_CERTAIN_STEPS]) + 1 if len(ends) >= _CERTAIN_STEPS else 0


def _logged(rows: PolledRows | WorkerRows, role: I8, innermost: I32) -> polling.LoggedRows:
    kind = rows.kind
    ends_step = (kind == act.STOP) | (kind == act.START)
    by_itself = (innermost < 0) & ~ends_step & (kind != _ARRIVAL) & (kind != act.RECEIVE)
    # The program itself does these, whichever activation is open.
    by_itself |= (kind == act.EPOCH_END) | (kind == SPAWN) | (kind == EXIT)
    # A scope does not count as work, but what it sends itself is no polling.
    by_itself |= (kind == act.SEND) & (innermost >= 0) & (role[innermost.clip(0)] == act.SCOPE)
    return polling.LoggedRows(kind, rows.t, rows.operator, role, innermost, by_itself, rows.gaps)


def _numbered(logged: polling.LoggedRows, steps: polling.Steps) -> tuple[polling.LoggedRows, polling.Steps, int]:
    """Give the operators that start numbers from 0: a log may leave them out, or have any.

    Returns what `own_causes` takes.
    """
    started = logged.kind == act.START
    numbers, place = np.unique(logged.operator[started], return_inverse=True)
    operator = np.zeros(len(logged.kind), np.int64)
    operator[started] = place
    return logged._replace(operator=operator), steps, len(numbers)


def _looked(rows: WorkerRows, steps: polling.Steps) -> I64:
    """Return per read when the last step began that did not find the message.

    A step reads all messages that are there when it begins. So each of them arrived after the step before had begun.
    """
    step_begins = np.flatnonzero((steps.begin == np.arange(len(rows.t))) & (steps.end > steps.begin))
    before = np.searchsorted(step_begins, steps.begin[rows.reads]) - 1
    looked = np.full(len(before), NEVER)
    looked[before >= 0] = rows.t[step_begins[before[before >= 0]]]
    return looked


def _buffered(
    rows: WorkerRows, steps: polling.Steps, arrived: I64, is_arrival_known: NDArray[np.bool_]
) -> polling.Causes:
    """Return when messages lay in the worker's buffers: from their arrival to their read.

    Where nobody logged when a message of another process came in, it is as late as the step that read it began.
    """
    read = rows.t[rows.reads]
    matched = (arrived != NEVER) & (arrived <= read)
    latest = np.where(is_arrival_known, arrived, np.maximum(arrived, rows.t[steps.begin[rows.reads]]))
    return polling.Causes(np.where(matched, latest, read), read)


def _applications(rows: WorkerRows) -> polling.Causes:
    """Return when the worker was in any activity that the program names."""
    marks = application_marks(rows)
    is_inside = applications(marks.starts, marks.number, np.empty(0, np.int64))[0] != -1
    # A row may have two marks: where rows are missing before it, all ends, and something may start.
    opens, closes = np.flatnonzero(is_inside[1:] & ~is_inside[:-1]), np.flatnonzero(is_inside[:-1] & ~is_inside[1:])
    ends = np.append(marks.row[closes], len(rows.t) - 1)[np.searchsorted(closes, opens)]
    return polling.Causes(rows.t[marks.row[opens]], rows.t[ends])


def _missing(rows: WorkerRows) -> polling.Causes:
    """Return when the worker did what is missing in its log: that is no stretch in which it had nothing to do."""
    before = np.where(rows.gaps > 0, rows.t[rows.gaps - 1], rows.before_t)
    return polling.Causes(before, rows.t[rows.gaps])
