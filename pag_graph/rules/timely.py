"""Rule set `timely`: wait-state analysis for programs that run when they are activated and park when they are not.

Definitions: CPA (Sager 2016) ch. 5, translated to activations and parks; `docs/model.md`, section "Waits".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pag_graph.kernels import activations as act
from pag_graph.kernels import waits
from pag_graph.kernels.assembly import INPUT_WAIT, WAITING, local_graph
from pag_graph.model.enums import EdgeFlags
from pag_graph.rules.polling import polled_intervals
from pag_graph.rules.rows import LOCAL_MESSAGE, MERGED, POLLING, PUSHED, Judged, Survey

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.rules.rows import Graph, RuleParameters, Stack, WorkerRows

    I8 = NDArray[np.int8]
    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]

COLUMNS: tuple[str, ...] = ()
"""Columns of events that only these rules ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelySurvey(Survey):
    """What the rows of one worker say by themselves."""

    innermost: I32
    role: I8
    consumed: I64
    trouble: I8
    parks: I64
    unparks: I64
    last_parks: I64
    arrived: I64 | None = None
    """Per row that reads a message: when it arrived at the earliest, where idleness is inferred; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelyJudged(Judged):
    """What the rules say of the rows of one worker."""

    innermost: I32
    role: I8
    consumed: I64
    verdict: I8
    interval_arrival: I64


def survey(rows: WorkerRows) -> TimelySurvey:
    """Say what the rows of one worker tell by themselves.

    Messages between operators of one worker are no edges (they only count as buffered), pushed progress only says why
    the next activation runs, and of parks that follow each other directly only the outermost ends are kept. Slices are
    joined where activations are open, so there are no marks to carry.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    TimelySurvey
        O(rows) in time and memory.
    """
    innermost, role, consumed, trouble = act.activations(rows.kind, rows.operator, rows.records)
    parks, unparks, last_parks = act.idle_intervals(rows.kind)
    open_ = np.flatnonzero(trouble == act.OPEN)
    dropped = act.leave_out(rows.kind, rows.peer, rows.worker, parks, unparks, LOCAL_MESSAGE, PUSHED, MERGED)
    # What follows a park that was cut off has its type from it, however many rows that are no vertices lie between.
    kept = dropped[::-1] == 0
    after_park = bool(kept.any() and rows.kind[::-1][kept.argmax()] == act.PARK)
    return TimelySurvey(
        dropped=dropped,
        depth=len(open_) + after_park,
        idle=int(rows.epoch[unparks[-1]]) if len(unparks) else None,
        active=int(rows.epoch[open_[0]]) if len(open_) else None,
        marks=(),
        innermost=innermost,
        role=role,
        consumed=consumed,
        trouble=trouble,
        parks=parks,
        unparks=unparks,
        last_parks=last_parks,
    )


def infer_idle(rows: WorkerRows, seen: TimelySurvey, processes: I64, parameters: RuleParameters) -> TimelySurvey:
    """Find candidate idle intervals of a worker whose log says nothing about idleness.

    Parameters
    ----------
    rows
        All rows of one worker, with `sent` filled.
    seen
        Their survey.
    processes
        Per worker of the run: its process.
    parameters
        Of the rule set.

    Returns
    -------
    TimelySurvey
        With the stretches in which the worker had nothing to do in place of parks. What it did in them was polling, and
        becomes no vertex; O(rows log rows).
    """
    parks, unparks, arrived = polled_intervals(rows, seen.role, seen.innermost, processes, parameters.busy_below_ns)
    none = np.empty(0, np.int64)
    dropped = act.leave_out(rows.kind, rows.peer, rows.worker, parks, unparks, LOCAL_MESSAGE, PUSHED, POLLING)
    # An interval begins and ends at vertices, whatever they are of.
    dropped[parks] = dropped[unparks] = 0
    idle = int(rows.epoch[unparks[-1]]) if len(unparks) else None
    return replace(
        seen, dropped=dropped, idle=idle, parks=parks, unparks=unparks, last_parks=parks, arrived=arrived, rests=none
    )


def judge(
    rows: WorkerRows,
    seen: TimelySurvey,
    processes: I64,
    uncertainty: I64,
    parameters: RuleParameters,
    outer: Stack,
) -> TimelyJudged:
    """Judge activations and idle intervals of one worker, whose received messages are matched.

    Parameters
    ----------
    rows
        Rows of one worker, with `sent` filled.
    seen
        Their survey.
    processes, uncertainty
        Per worker of the run: its process, and how far its clock may be off.
    parameters
        Of the rule set.
    outer
        Nothing (see `survey`).

    Returns
    -------
    TimelyJudged
        O(rows) in time and memory.
    """
    del outer
    innermost, role, consumed = seen.innermost, seen.role, seen.consumed
    if parameters.level:
        innermost, role, consumed = act.at_level(innermost, role, consumed, parameters.level)
    verdict, ender, arrival, alternatives = waits.judge_intervals(
        rows.t,
        rows.kind,
        # Which interval work follows depends on what really ran, however coarsely it is shown.
        seen.role,
        rows.timeout,
        seen.parks,
        seen.unparks,
        seen.last_parks,
        rows.reads,
        rows.sent if seen.arrived is None else seen.arrived,
        rows.peer,
        rows.channel,
        rows.message_seq,
        rows.worker,
        processes,
        uncertainty,
        parameters.busy_below_ns,
    )
    ended = np.flatnonzero(ender >= 0)
    return TimelyJudged(
        trouble=seen.trouble,
        # The message arrives before the worker runs: a vertex is inserted before the unpark.
        wait_row=seen.unparks[ended],
        wait_pos=2 * (rows.first_order + seen.unparks[ended]) - 1,
        ender=ender[ended],
        arrival=arrival[ended],
        alternatives=alternatives[ended],
        innermost=innermost,
        role=role,
        consumed=consumed,
        verdict=verdict,
        interval_arrival=arrival,
    )


def last_wait(
    rows: WorkerRows, seen: TimelySurvey, processes: I64, uncertainty: I64, parameters: RuleParameters
) -> int | None:
    """Return the position of the vertex that ends the last wait of one worker.

    Parameters
    ----------
    rows, seen, processes, uncertainty, parameters
        As for `judge`; messages are matched as far as their sends are known.

    Returns
    -------
    int or None
        -1 if there is no wait; None if a message whose send is not known yet may tell otherwise.
    """
    judged = judge(rows, seen, processes, uncertainty, parameters, ())
    last = int(judged.wait_row[-1]) if len(judged.wait_row) else -1
    unknown = rows.reads[rows.send_id < 0]
    if len(unknown):
        # The interval before the last of them is the last one that it can matter to.
        interval = int(np.searchsorted(seen.unparks, unknown[-1])) - 1
        if interval >= 0 and seen.unparks[interval] >= last:
            return None
    return int(judged.wait_pos[-1]) if last >= 0 else -1


def worker_graph(
    rows: WorkerRows,
    seen: TimelySurvey,
    judged: TimelyJudged,
    *,
    previous: tuple[int, int],
    segment: int,
    outer: Stack,
    born: bool,
    exits: bool,
    run_end_ns: int,
) -> Graph:
    """Return the columns of `local_graph` for one worker.

    Parameters
    ----------
    rows, seen, judged
        The worker's rows and what the rules say of them.
    previous
        Position and time of the worker's last vertex before these rows.
    segment
        Position of the start of the segment that is open before these rows.
    outer
        Nothing (see `survey`).
    born, exits
        Whether the worker's life begins with its first event, and ends with its last one.
    run_end_ns
        The run's end.

    Returns
    -------
    tuple
        As `pag_graph.kernels.assembly.local_graph`.
    """
    del outer
    columns: Graph = local_graph(
        rows.kind,
        rows.t,
        rows.operator,
        seen.dropped,
        judged.innermost,
        judged.role,
        judged.consumed,
        seen.parks,
        seen.unparks,
        judged.verdict,
        judged.interval_arrival,
        rows.first_order,
        previous[0],
        previous[1],
        segment,
        rows.starts_run,
        rows.ends_run,
        born,
        exits,
        run_end_ns,
    )
    if seen.arrived is not None:
        kind, flags = columns[4], columns[8]
        flags[(kind == WAITING) | (kind == INPUT_WAIT)] |= np.int8(EdgeFlags.INFERRED)
    return columns
