"""Rows of one worker's log as columns, and what rule sets say of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pag_graph.kernels import NEVER
from pag_graph.kernels import activations as act
from pag_graph.kernels.applications import EVERYTHING
from pag_graph.model.enums import LOCAL_TYPES, RESTING_TYPES, ActivityType, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    I8 = NDArray[np.int8]
    I32 = NDArray[np.int32]
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
    EventKind.EXIT: act.EXIT,
    # A worker that spins is as idle as one that parks; it only does not say until when at most.
    EventKind.IDLE_START: act.PARK,
    EventKind.IDLE_STOP: act.UNPARK,
    EventKind.STEP_STOP: act.OTHER + 5,
    EventKind.PROGRAM: act.PROGRAM,
}
"""Codes of kinds of events for kernels; to these those from `OTHER` on are all the same but `EXIT` and `PROGRAM`."""

SPAWN, EXIT = KIND_CODES[EventKind.SPAWN], KIND_CODES[EventKind.EXIT]
APPLICATION_START, APPLICATION_STOP = KIND_CODES[EventKind.APPLICATION_START], KIND_CODES[EventKind.APPLICATION_STOP]

KINDS = tuple(KIND_CODES)
"""Kinds of events; `WorkerRows.label` counts them in this order."""

LABELS = {kind: label for label, kind in enumerate(KINDS)}
"""The place of each kind in `KINDS`."""

CODE_OF_LABEL = np.array([KIND_CODES[kind] for kind in KINDS], np.int8)
"""Kernel code of each of `KINDS`."""

EDGE_TYPES = (
    ActivityType.PROCESSING,
    ActivityType.SPINNING,
    ActivityType.BUSY,
    ActivityType.WAITING,
    ActivityType.WAKE_UP,
    ActivityType.INPUT_WAIT,
    ActivityType.IDLE,
    ActivityType.UNKNOWN,
    ActivityType.DATA_MESSAGE,
    ActivityType.PROGRESS_MESSAGE,
    ActivityType.CONTROL_MESSAGE,
    ActivityType.SPAWN,
    ActivityType.APPLICATION,
    ActivityType.SERIALIZATION,
    ActivityType.DESERIALIZATION,
    ActivityType.BUFFER,
    ActivityType.IO,
    ActivityType.SCHEDULING,
    ActivityType.GC,
    ActivityType.PROGRAM,
)
"""Types of edges, by their codes; the first ones and `PROGRAM` are those of `pag_graph.kernels.assembly`."""

EDGE_CODES: dict[str, int] = {kind: code for code, kind in enumerate(EDGE_TYPES)}
"""The place of each type in `EDGE_TYPES`."""


def is_any_of(kinds: Iterable[str]) -> NDArray[np.bool_]:
    """Make a table that says whether types are any of some.

    Parameters
    ----------
    kinds
        Types of edges.

    Returns
    -------
    array of bool
        Per place in `EDGE_TYPES`; one element more, for -1, which is no type and none of them.
    """
    wanted = np.zeros(len(EDGE_TYPES) + 1, np.bool_)
    wanted[[EDGE_CODES[kind] for kind in kinds]] = True
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleParameters:
    """Parameters of the rule sets; they are part of the run's identity."""

    busy_below_ns: int = 5_000
    """Parks shorter than this that nothing explains are the runtime's own business (`busy`), longer ones `unknown`.
    The rule set `stated` has no use for it."""
    level: int = 0
    """Deepest level of nested activations to tell apart, from 1 for those inside no other; 0 for the innermost."""
    horizon_ns: int = 5_000_000_000
    """What is sent later than so long after a read is not what was read: so one need not wait for ever to know that
    nobody sent it. The rule set `st2` has no use for it."""
    clocks: Literal["auto", "recorded", "messages"] = "auto"
    """Whether workers' clocks are aligned by the recorded offsets or by the messages between them (`builder.clocks`);
    ``auto`` takes the recorded ones unless the trace says that they lead to no common clock."""


@dataclass(slots=True, kw_only=True)
class MessageRows:
    """Rows of one worker's log in their order, as far as messages are concerned; absent values are -1."""

    worker: int
    """Whose rows."""
    first_order: int
    """Order of the first row on its worker, from 1."""
    epoch: I64
    """The row's own label."""
    t: I64
    """Common clock minus the run's origin."""
    kind: I8
    """Kernel code of the kind."""
    channel: I64
    """Number of the channel."""
    peer: I64
    """The other worker: the receiver of a send, the sender of what is read."""
    message_seq: I64
    """Number of the message in its stream."""
    reads: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    """Rows that read a message, ascending. Filled by the matching, as what follows."""
    sender: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Per row that reads a message: its `peer`; to look through these alone is faster than to look at some rows."""
    sent: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    """The same: when it was sent, `NEVER` where that is not known."""
    send_id: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    """The same: the vertex that sent it, or -1."""
    send_epoch: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    """The same: the epoch of that, or -1."""


@dataclass(slots=True, kw_only=True)
class WorkerRows(MessageRows):
    """Consecutive rows of one worker's log as columns; absent values are -1."""

    starts_run: bool
    """Whether the worker's log begins with these rows."""
    ends_log: bool
    """Whether it ends with them."""
    ends_run: bool
    """Whether they are the worker's last ones to be built: the run's end comes behind them. There may be none then."""
    before_t: int = NEVER
    """Time of the row before these; `NEVER` where there is none."""
    seq: I64
    """Number of the row in the log."""
    label: I8
    """Place of the kind in `KINDS`."""
    operator: I64
    """Number of the operator."""
    records: I64
    """Records of the message or activity."""
    bytes: I64
    """Bytes of the message."""
    timeout: I64
    """Limit of a park (ns)."""
    activity: I8
    """Place in `EDGE_TYPES` of the type that the source states; -1 for none. Empty where the rules do not ask."""
    inferred: I8
    """1 where the place of a stated activity in time is a policy of the source. Empty where the rules do not ask."""
    arrived: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    """When the message that a row reads was there (common clock), `NEVER` where the log does not say. Empty where no
    row says so, or the rules do not ask."""
    gaps: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows right before which the source lost others, or the worker had ended, ascending: what is open there ends."""
    gap_follows: bool = False
    """Whether the source lost rows right behind these, as the next row of the worker's log tells."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.t)


class Open(NamedTuple):
    """An activity that is open, or a mark: a start or a stop that does not cancel another one."""

    operator: int
    """Number of its operator, or of the activity; -1 where it has none."""
    pos: int
    """Position of the vertex that starts it; -1 for the mark of a stop."""
    seq: int
    """Its number in the log."""
    kind: int = -1
    """Place of its type in `EDGE_TYPES`, where the source states one."""
    inferred: int = 0
    """1 where its place in time is a policy of the source."""


Stack = tuple[Open, ...]
"""What is open, outermost first; or marks, in the order of the log."""

Graph = tuple[Any, ...]
"""Columns of `pag_graph.kernels.assembly.local_graph`, types by `EDGE_TYPES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What every rule set says of the rows of one worker before their messages are matched."""

    dropped: I8
    """Why a row becomes no vertex: one of `DROPPED`, 0 where it becomes one."""
    depth: int
    """What is open at the end (activities, a park): where anything is, these rows tell what follows them."""
    idle: int | None
    """Epoch of the last idle interval, whose ender may be read later; None where there is none."""
    active: int | None
    """Epoch of the first activation that is open, which may yet do something; None where there is none."""
    marks: Stack
    """Starts and stops that do not cancel each other, in order, under rules that carry them from slice to slice."""
    rests: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rows that only end a rest, so that the worker did nothing then, where these rows tell so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What every rule set says of the rows of one worker."""

    trouble: I8
    """Per row: what is wrong with a start or stop (`pag_graph.kernels.activations`)."""
    wait_row: I64
    """Per wait that a message ended, in order: the row that its last vertex stands for, or right before."""
    wait_pos: I64
    """The same: position of that vertex."""
    ender: I64
    """The same: the row that reads the message."""
    arrival: I64
    """The same: when the message arrived, which is when the wait ends."""
    alternatives: I64
    """The same: how many other messages may have ended it, within the clocks' uncertainty."""


DROPPED = {
    1: "worker_local_message",
    2: "push_progress",
    3: "merged_park",
    4: "epoch_end_in_wait",
    5: "polling_activation",
}
"""Reasons why an event becomes no vertex, by code."""

LOCAL_MESSAGE, PUSHED, MERGED, ENDED_IN_WAIT, POLLING = DROPPED


def local_messages(rows: WorkerRows) -> NDArray[np.bool_]:
    """Say which rows are ends of messages between operators of one worker.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    array of bool
        Per row; such messages are no edges.
    """
    message = (rows.kind == act.SEND) | (rows.kind == act.RECEIVE) | (rows.kind == act.PROGRESS_RECEIVE)
    local: NDArray[np.bool_] = message & (rows.peer == rows.worker)
    return local


def sent_in_process(rows: WorkerRows, processes: I64) -> NDArray[np.bool_]:
    """Say, per row that reads a message, whether a worker of the reader's process sent it.

    Parameters
    ----------
    rows
        Rows of one worker.
    processes
        Per worker of the run: its process.

    Returns
    -------
    array
        Not so where the sender is not known, or is a worker that the run does not have.
    """
    # The last one is for those that are not known; a negative number is a huge one without a sign.
    in_process: NDArray[np.bool_] = np.append(processes == processes[rows.worker], False)
    sender = np.minimum(rows.sender.view(np.uint64), np.uint64(len(processes)))
    return in_process[sender.view(np.int64)]


def arrivals(rows: WorkerRows, processes: I64) -> tuple[I64, NDArray[np.bool_]]:
    """Say when messages arrived, as far as that is known.

    Parameters
    ----------
    rows
        Rows of one worker, with `sent` filled.
    processes
        Per worker of the run: its process.

    Returns
    -------
    came
        Per row that reads a message: when it arrived, and never before it was sent; else when it was sent.
    is_arrival_known
        The same: whether that is when it arrived. In one process a message arrives when it is sent.
    """
    is_arrival_known = sent_in_process(rows, processes)
    if not len(rows.arrived):
        return rows.sent, is_arrival_known
    stated = rows.arrived[rows.reads]
    # Without a send there is no message to speak of.
    logged = (stated != NEVER) & (rows.sent != NEVER)
    return np.where(logged, np.maximum(stated, rows.sent), rows.sent), is_arrival_known | logged


class PolledRows(NamedTuple):
    """Rows of one worker in log order, as far as its polling is concerned."""

    kind: I8
    """Kernel code of the kind."""
    t: I64
    """Nanoseconds since the run's origin."""
    operator: I64
    """-1 where there is none."""
    gaps: I64
    """As in `WorkerRows`."""


class ApplicationMarks(NamedTuple):
    """Where application activities of a worker start or stop, in the order of its log."""

    row: I64
    """A row can come twice: where others are missing right before it, and what was open ends."""
    starts: NDArray[np.bool_]
    """Whether an activity starts there."""
    number: I64
    """Which activity; `EVERYTHING` where rows are missing."""


def application_marks(rows: WorkerRows | PolledRows) -> ApplicationMarks:
    """Return where application activities start or stop, or end because rows are missing.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    ApplicationMarks
        O(rows).
    """
    row = np.flatnonzero((rows.kind == APPLICATION_START) | (rows.kind == APPLICATION_STOP))
    starts, number = rows.kind[row] == APPLICATION_START, rows.operator[row]
    if len(rows.gaps):
        place = np.searchsorted(row, rows.gaps)
        row, starts = np.insert(row, place, rows.gaps), np.insert(starts, place, values=False)
        number = np.insert(number, place, EVERYTHING)
    return ApplicationMarks(row, starts, number)


_FOUND_OUT = (
    ActivityType.WAITING,
    ActivityType.SPINNING,
    ActivityType.BUSY,
    ActivityType.PROGRAM,
    ActivityType.WAKE_UP,
    *RESTING_TYPES,
)
APPLICATION_TYPES = tuple(kind for kind in LOCAL_TYPES if kind not in _FOUND_OUT)
"""Types that an activity of the program may state (CPA Table 4.1): what a worker does, and no wait, rest or message."""

_IS_APPLICATION = is_any_of(APPLICATION_TYPES)


def application_types(rows: WorkerRows, marks: ApplicationMarks) -> tuple[I8, NDArray[np.bool_]]:
    """Return the types of application activities.

    Parameters
    ----------
    rows
        Rows of one worker.
    marks
        As from `application_marks`.

    Returns
    -------
    types
        Per mark: place in `EDGE_TYPES`; `application` where none is stated, or one that no activity of a program has.
    stray
        Per mark: whether it states such a type.
    """
    plain = np.int8(EDGE_CODES[ActivityType.APPLICATION])
    stated = rows.activity[marks.row] if len(rows.activity) else np.full(len(marks.row), -1, np.int8)
    fits = _IS_APPLICATION[stated]
    return np.where(fits, stated, plain), (stated >= 0) & ~fits


def opened(
    innermost: I64, inside: Sequence[I64 | I8], outer: Sequence[Sequence[int]], nothing: Sequence[int]
) -> list[I64]:
    """Look up what the activities are that `pag_graph.kernels.applications` refers to.

    Parameters
    ----------
    innermost
        As from there.
    inside
        Columns, per mark.
    outer
        The same, per activity that is open before the first mark.
    nothing
        The same, where none is open.

    Returns
    -------
    list
        Per column: an element per element of `innermost`.
    """
    marks = len(inside[0])
    sources = np.where(
        innermost >= 0, innermost, np.where(innermost < -1, marks - 2 - innermost, marks + len(outer[0]))
    )
    return [
        np.concatenate((marks_column, before, [absent])).astype(np.int64)[sources]
        for marks_column, before, absent in zip(inside, outer, nothing, strict=True)
    ]
