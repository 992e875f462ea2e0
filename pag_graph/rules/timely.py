"""Rule set `timely`: wait-state analysis for programs that run when they are activated and park when they are not.

Definitions: CPA (Sager 2016) ch. 5, translated to activations and parks; `docs/model.md`, section "Waits".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pag_graph.kernels import activations as act
from pag_graph.kernels import waits
from pag_graph.kernels.assembly import local_graph
from pag_graph.rules.rows import LOCAL_MESSAGE, MERGED, PUSHED, Judged, local_messages, senders

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.rules.rows import Graph, RuleParameters, Stack, WorkerRows

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]

COLUMNS: tuple[str, ...] = ()
"""Columns of events that only these rules ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelyJudged(Judged):
    """What the rules say of the rows of one worker."""

    innermost: I64
    role: I8
    consumed: I64
    parks: I64
    unparks: I64
    verdict: I8
    interval_arrival: I64


def dropped_rows(rows: WorkerRows) -> I8:
    """Say for every row why it becomes no vertex, or 0.

    Messages between operators of one worker are no edges (they only count as buffered), pushed progress only says why
    the next activation runs, and of parks that follow each other directly only the outermost ends are kept.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    I8
        Codes of `DROPPED`.
    """
    parks, unparks, _ = act.idle_intervals(rows.kind)
    return _dropped(rows, parks, unparks)


def _dropped(rows: WorkerRows, parks: I64, unparks: I64) -> I8:
    dropped = np.zeros(rows.rows, np.int8)
    dropped[local_messages(rows)] = LOCAL_MESSAGE
    dropped[rows.kind == act.PUSH_PROGRESS] = PUSHED
    merged = unparks - parks > 1
    for park, unpark in zip(parks[merged], unparks[merged], strict=True):
        dropped[park + 1 : unpark] = MERGED
    return dropped


def still_open(rows: WorkerRows) -> tuple[int, int | None, int | None]:
    """Say what these rows leave open.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    depth
        Activations still open: where any is, what follows cannot be understood without these rows.
    idle, active
        Epochs of the last idle interval, whose ender may be read later, and of the first activation that is open, which
        may yet do something; None where there is none.
    """
    open_ = np.flatnonzero(act.activations(rows.kind, rows.operator, rows.records)[3] == act.OPEN)
    unparks = act.idle_intervals(rows.kind)[1]
    idle = int(rows.epoch[unparks[-1]]) if len(unparks) else None
    return len(open_), idle, int(rows.epoch[open_[0]]) if len(open_) else None


def marks(rows: WorkerRows) -> Stack:
    """Return nothing: slices are joined where activations are open (see `still_open`)."""
    del rows
    return ()


def judge(rows: WorkerRows, processes: I64, uncertainty: I64, parameters: RuleParameters, outer: Stack) -> TimelyJudged:
    """Judge activations and idle intervals of one worker, whose received messages are matched.

    Parameters
    ----------
    rows
        Rows of one worker, with `sent` filled.
    processes, uncertainty
        Per worker of the run: its process, and how far its clock may be off.
    parameters
        Of the rule set.
    outer
        Nothing (see `marks`).

    Returns
    -------
    TimelyJudged
        O(rows) in time and memory.
    """
    del outer
    innermost, role, consumed, trouble = act.activations(rows.kind, rows.operator, rows.records)
    # Which interval work follows depends on what really ran, however coarsely it is shown.
    worked = role
    if parameters.level:
        innermost, role, consumed = act.at_level(innermost, role, consumed, parameters.level)
    parks, unparks, last_parks = act.idle_intervals(rows.kind)
    sender, same, slop = senders(rows, processes, uncertainty)
    verdict, ender, arrival, alternatives = waits.judge_intervals(
        rows.t,
        rows.kind,
        worked,
        rows.timeout,
        parks,
        unparks,
        last_parks,
        rows.sent,
        sender,
        rows.channel,
        rows.message_seq,
        (sender == rows.worker).astype(np.int8),
        same,
        slop,
        parameters.busy_below_ns,
    )
    ended = np.flatnonzero(ender >= 0)
    return TimelyJudged(
        dropped=_dropped(rows, parks, unparks),
        trouble=trouble,
        # The message arrives before the worker runs: a vertex is inserted before the unpark.
        wait_row=unparks[ended],
        wait_pos=2 * (rows.first_order + unparks[ended]) - 1,
        ender=ender[ended],
        arrival=arrival[ended],
        alternatives=alternatives[ended],
        same_process=same,
        innermost=innermost,
        role=role,
        consumed=consumed,
        parks=parks,
        unparks=unparks,
        verdict=verdict,
        interval_arrival=arrival,
    )


def worker_graph(
    rows: WorkerRows,
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
    rows, judged
        The worker's rows and what the rules say of them.
    previous
        Position and time of the worker's last vertex before these rows.
    segment
        Position of the start of the segment that is open before these rows.
    outer
        Nothing (see `marks`).
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
        judged.dropped,
        judged.innermost,
        judged.role,
        judged.consumed,
        judged.parks,
        judged.unparks,
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
    return columns
