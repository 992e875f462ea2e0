"""Rule set `stated`: the source says what its workers did and when they waited; what ended the waits is found here.

For systems that log activities themselves: Spark's event logs, and activities written down by hand. Definitions:
CPA (Sager 2016) ch. 3; `docs/model.md`, section "Rule set stated".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pag_graph.kernels.activations import EPOCH_END, START, STOP
from pag_graph.kernels.applications import applications, unbalanced
from pag_graph.kernels.assembly import INSERTED_END, INSERTED_START
from pag_graph.kernels.stated import ENDED, NOTHING_CAME, judge_waits
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType, EdgeFlags
from pag_graph.rules.rows import EDGE_CODES, ENDED_IN_WAIT, LOCAL_MESSAGE, Judged, local_messages, senders

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.rules.rows import Graph, RuleParameters, Stack, WorkerRows

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]

COLUMNS = ("activity", "inferred")
"""Columns of events that only these rules ask for."""

_WAITING, _UNKNOWN, _BUSY, _PROCESSING = (
    EDGE_CODES[kind]
    for kind in (ActivityType.WAITING, ActivityType.UNKNOWN, ActivityType.BUSY, ActivityType.PROCESSING)
)
_NOT_LOCAL = [EDGE_CODES[kind] for kind in MESSAGE_TYPES]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedJudged(Judged):
    """What the rules say of the rows of one worker."""

    marks: I64
    """Rows that start or stop an activity."""
    innermost: I64
    """Before each mark and after the last: what is open innermost, or at the chosen level, as `applications` has it."""
    waits_at: I64
    """The same, always innermost: 1 where that is a wait."""
    dismissed: I64
    """Rows that end a stretch of waiting in which time passed and that no message ended."""
    ended: I64
    """Rows that end a stretch of waiting that a message ended."""


def dropped_rows(rows: WorkerRows) -> I8:
    """Say for every row why it becomes no vertex, or 0.

    Messages between operators of one worker are no edges, and an epoch that ends while a worker waits does not end its
    wait. No wait is open where a slice begins (see `still_open`), so the rows of a slice tell.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    I8
        Codes of `DROPPED`.
    """
    dropped = np.zeros(rows.rows, np.int8)
    dropped[local_messages(rows)] = LOCAL_MESSAGE
    at, starts = _marks(rows)
    innermost = applications(starts, rows.operator[at], np.zeros(0, np.int64), 0)[0]
    ends = np.flatnonzero(rows.kind == EPOCH_END)
    opened = innermost[np.searchsorted(at, ends)]
    waits = np.zeros(len(ends), np.bool_)
    inside = opened >= 0
    waits[inside] = rows.activity[at[opened[inside]]] == _WAITING
    dropped[ends[waits]] = ENDED_IN_WAIT
    return dropped


def _marks(rows: WorkerRows) -> tuple[I64, NDArray[np.bool_]]:
    at = np.flatnonzero((rows.kind == START) | (rows.kind == STOP))
    return at, rows.kind[at] == START


def still_open(rows: WorkerRows) -> tuple[int, int | None, int | None]:
    """Say what these rows leave open.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    depth
        Waits still open: where any is, what follows cannot be understood without these rows.
    idle, active
        None: rows to come change nothing that was stated.
    """
    left = marks(rows)
    return sum(1 for mark in left if mark[1] >= 0 and mark[2] == _WAITING), None, None


def marks(rows: WorkerRows) -> Stack:
    """Return the starts and stops that do not cancel each other, in order.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    tuple
        Per mark: operator, position of the vertex that starts the activity (-1 for a stop), type, whether its place is
        inferred, and number in the log.
    """
    at, starts = _marks(rows)
    left = unbalanced(starts, rows.operator[at])
    position = np.where(starts, 2 * (rows.first_order + at), -1)
    columns = (rows.operator[at], position, _types(rows)[at], rows.inferred[at], rows.seq[at])
    return tuple(zip(*(values[left].tolist() for values in columns), strict=True))


def _types(rows: WorkerRows) -> I64:
    """Per row: the type that a start states; work if it states none, unknown if that is no type of an activity."""
    kind = np.where(rows.activity < 0, _PROCESSING, rows.activity).astype(np.int64)
    return np.where(np.isin(kind, _NOT_LOCAL), _UNKNOWN, kind)


def judge(rows: WorkerRows, processes: I64, uncertainty: I64, parameters: RuleParameters, outer: Stack) -> StatedJudged:
    """Judge the waits of one worker, whose received messages are matched.

    Parameters
    ----------
    rows
        Rows of one worker, with `sent` filled.
    processes, uncertainty
        Per worker of the run: its process, and how far its clock may be off.
    parameters
        Of the rule set.
    outer
        Activities that are open before these rows, as `marks`.

    Returns
    -------
    StatedJudged
        O(rows) in time and memory.
    """
    dropped = dropped_rows(rows)
    at, starts = _marks(rows)
    number = np.array([mark[0] for mark in outer], np.int64)
    innermost, _, wrong, _ = applications(starts, rows.operator[at], number, 0)
    trouble = np.zeros(rows.rows, np.int8)
    trouble[at] = wrong
    waits_at = (_state(rows, at, innermost, outer)[0] == _WAITING).astype(np.int64)
    if parameters.level:
        innermost = applications(starts, rows.operator[at], number, parameters.level)[0]
    kept = np.flatnonzero(dropped == 0)
    # Each stretch of waiting goes from one vertex to the next; the first row here follows one that no wait is open at.
    wait = kept[1:][waits_at[np.searchsorted(at, kept[1:])] == 1]
    begin = rows.t[kept[np.searchsorted(kept, wait) - 1]]
    sender, same, slop = senders(rows, processes, uncertainty)
    verdict, ender, alternatives = judge_waits(
        wait,
        begin,
        rows.t,
        rows.kind,
        rows.sent,
        rows.send_id,
        (sender == rows.worker).astype(np.int8),
        slop,
    )
    ended = verdict == ENDED
    return StatedJudged(
        dropped=dropped,
        trouble=trouble,
        wait_row=wait[ended],
        wait_pos=2 * (rows.first_order + wait[ended]),
        ender=ender[ended],
        arrival=rows.t[wait[ended]],
        alternatives=alternatives[ended],
        same_process=same,
        marks=at,
        innermost=innermost,
        waits_at=waits_at,
        dismissed=wait[verdict == NOTHING_CAME],
        ended=wait[ended],
    )


def _state(rows: WorkerRows, at: I64, innermost: I64, outer: Stack) -> tuple[I64, I64, I64, I64]:
    """Return type, operator, position of the start, and whether it is inferred, of what `innermost` refers to."""
    # In one table: the starts in these rows, the activities open before them, and nothing.
    table = (
        np.concatenate((_types(rows)[at], [mark[2] for mark in outer], [_UNKNOWN])),
        np.concatenate((rows.operator[at], [mark[0] for mark in outer], [-1])),
        np.concatenate((2 * (rows.first_order + at), [mark[1] for mark in outer], [-1])),
        np.concatenate((rows.inferred[at], [mark[3] for mark in outer], [0])),
    )
    where = np.where(innermost >= 0, innermost, np.where(innermost < -1, len(at) - 2 - innermost, -1))
    kind, operator, position, inferred = (values.astype(np.int64)[where] for values in table)
    return kind, operator, position, inferred


def worker_graph(
    rows: WorkerRows,
    judged: StatedJudged,
    *,
    previous: tuple[int, int],
    segment: int,
    outer: Stack,
    born: bool,
    exits: bool,
    run_end_ns: int,
) -> Graph:
    """Chain the rows of one worker to vertices and local edges that tile its life.

    Parameters
    ----------
    rows, judged
        The worker's rows and what the rules say of them.
    previous
        Position and time of the worker's last vertex before these rows.
    segment
        Position of the start of the segment that is open before these rows.
    outer
        Activities that are open before them.
    born, exits
        Whether the worker's life begins with its first event, and ends with its last one.
    run_end_ns
        The run's end.

    Returns
    -------
    tuple
        As `pag_graph.kernels.assembly.local_graph`.

    Notes
    -----
    O(rows).
    """
    row = np.flatnonzero(judged.dropped == 0)
    pos, t = 2 * (rows.first_order + row), rows.t[row]
    before = np.searchsorted(judged.marks, row)
    kind, operator, activation, inferred = (
        values[before] for values in _state(rows, judged.marks, judged.innermost, outer)
    )
    # Whatever level is shown, a wait is a wait where a message ended it, and nothing else is one.
    kind[kind == _WAITING] = _BUSY
    kind[judged.waits_at[before] == 1] = _BUSY
    kind[np.searchsorted(row, judged.dismissed)] = _UNKNOWN
    kind[np.searchsorted(row, judged.ended)] = _WAITING
    records = np.full(len(row), -1, np.int64)
    if len(row):
        starts = np.append(rows.kind, -1)[np.append(-1, row[:-1])] == START
        records[starts] = rows.records[row[:-1]][starts[1:]]
    if rows.starts_run and (not len(row) or (t[0] > 0 and not born)):
        # The origin on this worker: what it did before its first event nobody knows.
        first = int(pos[0]) - 1 if len(row) else 1
        row, pos, t = (np.append(value, values) for value, values in ((INSERTED_START, row), (first, pos), (0, t)))
        kind, operator, activation, inferred, records = (
            np.append(value, values)
            for value, values in ((_UNKNOWN, kind), (-1, operator), (-1, activation), (0, inferred), (-1, records))
        )
    # No edge leads to the first vertex of all.
    edge = slice(1 if rows.starts_run else 0, None)
    src_pos, src_t = (
        np.append(first, values)[: len(values)][edge] for first, values in zip(previous, (pos, t), strict=True)
    )
    last_t = int(t[-1]) if len(t) else previous[1]
    # Between activities that follow each other at once there is no time that could be unknown.
    kind = np.where((kind == _UNKNOWN) & (np.diff(np.append(previous[1], t)) == 0) & (row >= 0), _BUSY, kind)
    ends = rows.ends_run and not exits and last_t < run_end_ns
    columns = [src_pos, pos[edge], kind[edge], operator[edge], activation[edge], records[edge], src_t, t[edge]]
    columns.append(inferred[edge])
    if ends:
        last_pos = int(pos[-1]) if len(pos) else previous[0]
        end = 2 * (rows.first_order + rows.rows) - 1
        end += 2 * (end == last_pos)
        tail = (last_pos, end, _UNKNOWN, -1, -1, -1, last_t, run_end_ns, 0)
        columns = [np.append(values, value) for values, value in zip(columns, tail, strict=True)]
        row, pos, t = (np.append(*pair) for pair in ((row, INSERTED_END), (pos, end), (t, run_end_ns)))
    starts_segment = np.isin(pos, judged.wait_pos)
    if rows.starts_run and len(pos):
        starts_segment[0] = True
    begun = np.maximum.accumulate(np.where(starts_segment, pos, -1))
    src, dst, kind, operator, activation, records, start, end_t, inferred = columns
    return (
        row,
        pos,
        t,
        np.where(begun < 0, segment, begun),
        src,
        dst,
        kind.astype(np.int8),
        operator,
        activation,
        records,
        start,
        end_t,
        (inferred * int(EdgeFlags.INFERRED)).astype(np.int8),
    )
