"""What an operation did: whether the workers were saturated before, what became of latencies, and when it paid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.analyses.expressions import END, IS_MESSAGE, UNKNOWN, WAITING, worker_of
from pag_graph.analyses.rescaling.latencies import AFTER, BEFORE
from pag_graph.analyses.rescaling.settled import WIDTH, margin
from pag_graph.model.enums import COUNTED_TYPES, ActivityType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.analyses.rescaling.latencies import Course, Epochs
    from pag_graph.graph.run import Run

YES, NO, UNSURE = "yes", "no", "unknown"
RELIEVED, STILL_SATURATED, CANNOT_TELL = "relieved", "saturated_not_relieved", "cannot_tell"
PAID, NOT_YET, NEVER = "paid", "not_yet", "never"
_BUSY, _KNOWN = 0.9, 0.95
"""Share of a phase from which a worker counts as saturated, and share of the lives that must be known to deny it."""
_RESTS = [WAITING, str(ActivityType.IDLE), str(ActivityType.INPUT_WAIT)]
_COUNTED = [str(kind) for kind in COUNTED_TYPES]


class Work(NamedTuple):
    """What workers did in a stretch of time."""

    busy_max: float | None
    """Largest share of the stretch that one of them worked; None where nobody lived."""
    waiting_share: float | None
    """Share of the lives of those who were there before that they waited or had nothing to do."""
    coverage: float | None
    """Share of all lives that is known."""


def work_in(run: Run, stretches: Sequence[tuple[int, int]], workers_before: Sequence[set[int]]) -> list[Work]:
    """Say what workers did in some stretches of time.

    Parameters
    ----------
    run
        Of aligned clocks.
    stretches
        Begin and end of each, which does not belong to it, in time order of their begins.
    workers_before
        Per stretch: workers that count for the waiting.

    Returns
    -------
    list of Work
        One per stretch. O(edges in them).
    """
    return [
        Work(None, None, None) if end <= start else _work(_local_in(run, start, end), end - start, present)
        for (start, end), present in zip(stretches, workers_before, strict=True)
    ]


def _local_in(run: Run, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Return how much of each type each worker did in a stretch of time."""
    inside_ns = pl.min_horizontal(END, pl.lit(end_ns)) - pl.max_horizontal("start_ns", pl.lit(start_ns))
    # Comparing plain columns first lets whole row groups be skipped.
    touching = run.scan("edges").filter(pl.col("start_ns") < end_ns, start_ns < END, ~IS_MESSAGE)
    local = touching.select("type", worker=worker_of("dst"), inside_ns=inside_ns)
    return local.group_by("worker", "type").agg(pl.col("inside_ns").sum()).collect()


def _work(local: pl.DataFrame, span_ns: int, workers_before: set[int]) -> Work:
    life = int(local["inside_ns"].sum())
    if not life:
        return Work(None, None, None)
    kind, inside_ns = pl.col("type"), pl.col("inside_ns")
    by_worker = local.group_by("worker").agg(
        life=inside_ns.sum(),
        busy=inside_ns.filter(kind.is_in(_COUNTED)).sum(),
        rests=inside_ns.filter(kind.is_in(_RESTS)).sum(),
        unknown=inside_ns.filter(kind == UNKNOWN).sum(),
    )
    by_old_worker = by_worker.filter(pl.col("worker").is_in(sorted(workers_before)))
    waited = int(by_old_worker["rests"].sum()) / int(by_old_worker["life"].sum()) if by_old_worker.height else None
    # What a worker did in a short life is not scaled up: a few microseconds of work fill no phase.
    return Work(
        int(by_worker.select(pl.col("busy").max()).item()) / span_ns, waited, 1 - int(by_worker["unknown"].sum()) / life
    )


def saturated(course: Course, epochs: Epochs, work: Work, *, cores_shared: bool) -> str:
    """Say whether the workers could keep up before an operation.

    Parameters
    ----------
    course, epochs
        The operation, and all rounds.
    work
        Of the phase before it.
    cores_shared
        Whether there were more workers than cores, so that lost cores look like work.

    Returns
    -------
    str
        ``yes`` if epochs began later and later after they were due, by more than a period from the first quarter of
        the phase to the last one, or if a worker worked nine tenths of it; ``unknown`` if cores were shared and
        nobody knows when epochs were due, or if more than a twentieth of the time is unknown; else ``no``.
    """
    places = course.places(epochs, BEFORE)
    if epochs.due_ns is not None and len(places) >= 2 * WIDTH:
        late_ns = epochs.begin_ns[places] - epochs.due_ns[places]
        quarter = max(1, len(places) // 4)
        period = float(np.median(np.diff(epochs.due_ns)))
        if float(np.median(late_ns[-quarter:]) - np.median(late_ns[:quarter])) > period:
            return YES
    if work.busy_max is None or work.coverage is None or (cores_shared and epochs.due_ns is None):
        return UNSURE
    if work.busy_max >= _BUSY and not cores_shared:
        return YES
    return NO if work.coverage >= _KNOWN else UNSURE


def verdict(course: Course, epochs: Epochs, was_saturated: str) -> str:
    """Say what became of latencies, given whether the workers were saturated before.

    Parameters
    ----------
    course
        The operation, and how latencies went on.
    epochs
        The rounds of the run.
    was_saturated
        What is known of the workers before.

    Returns
    -------
    str
        One of the verdicts of this module.
    """
    before, after = (course.latencies(epochs, phase) for phase in (BEFORE, AFTER))
    if was_saturated == UNSURE or course.settled_ns is None or len(before) < WIDTH or len(after) < WIDTH:
        return CANNOT_TELL
    change = float(np.median(after)) - float(np.median(before))
    is_same = abs(change) <= margin(before, after)
    if was_saturated == YES:
        return RELIEVED if change < 0 and not is_same else STILL_SATURATED
    return f"not_saturated_{'same' if is_same else 'slower' if change > 0 else 'faster'}"


def payback(course: Course, epochs: Epochs) -> tuple[int | None, str]:
    """Say by which epoch what an operation cost is won back.

    Parameters
    ----------
    course, epochs
        The operation, and the rounds of the run.

    Returns
    -------
    epoch
        The first settled epoch at which latencies since the request add up to no more than so many of before; where
        that is to come yet, when it would at the present rate. None where it never will, or nobody knows.
    status
        ``paid``, ``not_yet``, ``never`` or ``unknown``.

    Notes
    -----
    Before 10 ms, five epochs of 30, then 8: after 50 more. O(epochs).
    """
    before, after = (course.latencies(epochs, phase) for phase in (BEFORE, AFTER))
    if course.settled_ns is None or not len(before) or not len(after):
        return None, UNSURE
    usual = float(np.median(before))
    places = epochs.inside(course.operation.request_ns, course.until_ns)
    debt = np.cumsum(epochs.latency_ns[places] - usual)
    paid = np.flatnonzero((debt <= 0) & (epochs.end_ns[places] >= course.settled_ns))
    if len(paid):
        return int(epochs.epoch[places[paid[0]]]), PAID
    gain = usual - float(np.median(after))
    if gain <= 0:
        return None, NEVER
    return int(epochs.epoch[places[-1]]) + math.ceil(debt[-1] / gain), NOT_YET
