"""Rule set `timely`: wait-state analysis for programs that run when they are activated and park when they are not.

Definitions: CPA (Sager 2016) ch. 5, translated to activations and parks; `docs/model.md`, section "Waits".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from pag_graph.kernels import activations as act
from pag_graph.kernels import waits
from pag_graph.kernels.assembly import local_graph
from pag_graph.model.enums import ActivityType, EventKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]

KIND_CODES: dict[str, int] = {
    EventKind.START: act.START,
    EventKind.STOP: act.STOP,
    EventKind.SEND: act.SEND,
    EventKind.RECEIVE: act.RECEIVE,
    EventKind.PROGRESS_SEND: act.PROGRESS_SEND,
    EventKind.PROGRESS_RECEIVE: act.PROGRESS_RECEIVE,
    EventKind.PARK: act.PARK,
    EventKind.UNPARK: act.UNPARK,
    EventKind.PUSH_PROGRESS: act.PUSH_PROGRESS,
    EventKind.EPOCH_END: act.EPOCH_END,
    EventKind.SPAWN: act.OTHER,
    EventKind.APPLICATION_START: act.OTHER + 1,
    EventKind.APPLICATION_STOP: act.OTHER + 2,
    EventKind.ARRIVAL: act.OTHER + 3,
    # A worker that spins is as idle as one that parks; it only does not say until when at most.
    EventKind.IDLE_START: act.PARK,
    EventKind.IDLE_STOP: act.UNPARK,
}
"""Codes of kinds of events for the kernels; to these those from `OTHER` on are all the same."""

APPLICATION_START, APPLICATION_STOP = KIND_CODES[EventKind.APPLICATION_START], KIND_CODES[EventKind.APPLICATION_STOP]

KINDS = tuple(KIND_CODES)
"""Kinds of events; `WorkerRows.label` counts them in this order."""

LABELS = {kind: label for label, kind in enumerate(KINDS)}
"""The place of each kind in `KINDS`."""

CODE_OF_LABEL = np.array([KIND_CODES[kind] for kind in KINDS], np.int8)
"""Kernel code of each of `KINDS`."""

LOCAL_EDGE_TYPES = (
    ActivityType.PROCESSING,
    ActivityType.SPINNING,
    ActivityType.BUSY,
    ActivityType.WAITING,
    ActivityType.WAKE_UP,
    ActivityType.INPUT_WAIT,
    ActivityType.IDLE,
    ActivityType.UNKNOWN,
)
"""Edge types by the codes of `pag_graph.kernels.assembly`."""

NEVER = np.iinfo(np.int64).min
"""Time of a send that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelyParameters:
    """Parameters of the rule set; they are part of the run's identity."""

    busy_below_ns: int = 5_000
    """Parks shorter than this that nothing explains are the runtime's own business (`busy`), longer ones `unknown`."""
    level: int = 0
    """Deepest level of nested activations to tell apart, from 1 for those inside no other; 0 for the innermost."""
    clocks: Literal["auto", "recorded", "messages"] = "auto"
    """Whether workers' clocks are aligned by the recorded offsets or by the messages between them (`pag.clocks`);
    ``auto`` takes the recorded ones unless the trace says that they lead to no common clock."""


@dataclass(slots=True, kw_only=True)
class WorkerRows:
    """Consecutive rows of one worker's log as columns; absent values are -1."""

    worker: int
    first_order: int
    """Order of the first row on its worker, from 1."""
    starts_run: bool
    ends_run: bool
    seq: I64
    epoch: I64
    t: I64
    """Common clock minus the run's origin."""
    kind: I8
    """Kernel code of the kind."""
    label: I8
    """Place of the kind in `KINDS`."""
    operator: I64
    channel: I64
    peer: I64
    message_seq: I64
    records: I64
    bytes: I64
    timeout: I64
    sent: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Per row that reads a message with a known send: when it was sent; else `NEVER`. Filled by the matching."""
    send_id: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Per row that reads a message with a known send: vertex that sent it; else -1."""
    send_epoch: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.t)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the rules say of the rows of one worker."""

    innermost: I64
    role: I8
    consumed: I64
    trouble: I8
    parks: I64
    unparks: I64
    last_parks: I64
    verdict: I8
    ender: I64
    arrival: I64
    alternatives: I64
    same_process: I8
    """Per row that reads a message: whether its sender is a worker of the same process."""
    dropped: I8
    """Why a row becomes no vertex: one of `DROPPED`, 0 where it becomes one."""

    def last_segment(self, rows: WorkerRows) -> int:
        """Return the position of the vertex that starts the last segment in these rows, or -1 if none starts here."""
        ends = self.unparks[self.verdict == waits.WAITING]
        return int(2 * (rows.first_order + ends[-1]) - 1) if len(ends) else -1


DROPPED = {1: "worker_local_message", 2: "push_progress", 3: "merged_park"}
"""Reasons why an event becomes no vertex, by code."""


def dropped_rows(rows: WorkerRows, parks: I64, unparks: I64) -> I8:
    """Say for every row why it becomes no vertex, or 0.

    Messages between operators of one worker are no edges (they only count as buffered), pushed progress only says why
    the next activation runs, and of parks that follow each other directly only the outermost ends are kept.

    Parameters
    ----------
    rows
        Rows of one worker.
    parks, unparks
        Its idle intervals.

    Returns
    -------
    I8
        Codes of `DROPPED`.
    """
    dropped = np.zeros(rows.rows, np.int8)
    message = (rows.kind == act.SEND) | (rows.kind == act.RECEIVE) | (rows.kind == act.PROGRESS_RECEIVE)
    dropped[message & (rows.peer == rows.worker)] = 1
    dropped[rows.kind == act.PUSH_PROGRESS] = 2
    merged = unparks - parks > 1
    for park, unpark in zip(parks[merged], unparks[merged], strict=True):
        dropped[park + 1 : unpark] = 3
    return dropped


def judge(rows: WorkerRows, processes: I64, uncertainty: I64, parameters: TimelyParameters) -> Judged:
    """Judge activations and idle intervals of one worker, whose received messages are matched.

    Parameters
    ----------
    rows
        Rows of one worker, with `sent` filled.
    processes, uncertainty
        Per worker of the run: its process, and how far its clock may be off.
    parameters
        Of the rule set.

    Returns
    -------
    Judged
        O(rows) in time and memory.
    """
    innermost, role, consumed, trouble = act.activations(rows.kind, rows.operator, rows.records)
    # Which interval work follows depends on what really ran, however coarsely it is shown.
    worked = role
    if parameters.level:
        innermost, role, consumed = act.at_level(innermost, role, consumed, parameters.level)
    parks, unparks, last_parks = act.idle_intervals(rows.kind)
    known = rows.sent != NEVER
    # The sender of a matched message is in its vertex id, but `peer` says the same and needs no look-up.
    sender = np.where(known, rows.peer, rows.worker)
    same = (processes[sender] == processes[rows.worker]).astype(np.int8)
    slop = np.where(same == 1, 0, uncertainty[sender] + uncertainty[rows.worker])
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
    return Judged(
        innermost=innermost,
        role=role,
        consumed=consumed,
        trouble=trouble,
        parks=parks,
        unparks=unparks,
        last_parks=last_parks,
        verdict=verdict,
        ender=ender,
        arrival=arrival,
        alternatives=alternatives,
        same_process=same,
        dropped=dropped_rows(rows, parks, unparks),
    )


def worker_graph(
    rows: WorkerRows, judged: Judged, *, previous: tuple[int, int], segment: int, run_end_ns: int
) -> tuple[I64 | I8, ...]:
    """Return the columns of `local_graph` for one worker.

    Parameters
    ----------
    rows, judged
        The worker's rows and what the rules say of them.
    previous
        Position and time of the worker's last vertex before these rows.
    segment
        Position of the start of the segment that is open before these rows.
    run_end_ns
        The run's end.

    Returns
    -------
    tuple
        As `pag_graph.kernels.assembly.local_graph`.
    """
    columns: tuple[I64 | I8, ...] = local_graph(
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
        judged.arrival,
        rows.first_order,
        previous[0],
        previous[1],
        segment,
        rows.starts_run,
        rows.ends_run,
        run_end_ns,
    )
    return columns
