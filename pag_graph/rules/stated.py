"""Rule set `stated`: the source says what its workers did and when they waited; what ended the waits is found here.

For systems that log activities themselves: Spark's event logs, and activities written down by hand. Definitions:
CPA (Sager 2016) ch. 3; `docs/model.md`, section "Rule set stated".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pag_graph.kernels import ends_of_waits
from pag_graph.kernels.activations import EPOCH_END, PARK, START, STOP, UNPARK
from pag_graph.kernels.applications import applications, unbalanced
from pag_graph.kernels.assembly import INSERTED_END, INSERTED_START, NO_EDGE
from pag_graph.kernels.ends_of_waits import ENDED, NOTHING_CAME, judge_waits
from pag_graph.kernels.waits import Clocks
from pag_graph.model.enums import MESSAGE_TYPES, RESTING_TYPES, ActivityType, EdgeFlags, Severity
from pag_graph.rules.protocol import Remark
from pag_graph.rules.rows import (
    EDGE_CODES,
    ENDED_IN_WAIT,
    LOCAL_MESSAGE,
    Judged,
    Open,
    Survey,
    is_any_of,
    local_messages,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pag_graph.rules.protocol import Before, Life, Logged, Setting, Wanted
    from pag_graph.rules.rows import Graph, WorkerRows

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]
    Flags = NDArray[np.bool_]

columns: Final[tuple[str, ...]] = ("activity", "inferred", "arrived_ns")
aligned: Final = True
epochs_are_islands: Final = False
states_activities: Final = True
reads_prepared: Final = False
reads_idleness: Final = False
no_place_to_cut: Final = "no activity starts there right after another one stopped"

_WAITING, _UNKNOWN, _BUSY, _PROCESSING = (
    EDGE_CODES[kind]
    for kind in (ActivityType.WAITING, ActivityType.UNKNOWN, ActivityType.BUSY, ActivityType.PROCESSING)
)
_IS_REST, _IS_MESSAGE = is_any_of(RESTING_TYPES), is_any_of(MESSAGE_TYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedSurvey(Survey):
    """What the rows of one worker say by themselves."""

    mark_rows: I64
    """Rows that start or stop an activity."""
    starts: Flags
    """The same: whether they start one."""
    types: I64
    """The same: the type that a start states; work if it states none, unknown if that is no type of an activity."""
    innermost: I64
    """Before each of them and after the last: what is open innermost, as `applications` has it, if nothing is so
    before."""
    trouble: I8
    """Per row: what is wrong with a start or stop, if nothing is open before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedJudged(Judged):
    """What the rules say of the rows of one worker; the messages that ended waits are read in the rows `wait_row`."""

    innermost: I64
    """As in `StatedSurvey`, at the chosen level, with what is open before."""
    waits_at: I64
    """The same, always innermost: 1 where that is a wait."""
    dismissed: I64
    """Rows that end a stretch of waiting in which time passed and that no message ended."""


def safe_cut(_parks: Callable[[], bool]) -> Wanted:
    """Say which rows of a worker may begin a slice (`WaitRules.safe_cut`).

    Parameters
    ----------
    _parks
        Not asked: parks mean nothing here.

    Returns
    -------
    Wanted
        Start right after a stop.
    """
    return _begins_activity


def _begins_activity(before: I8, kind: I8, _after: I8) -> NDArray[np.bool_]:
    # A wait ends with the reads of its last instant, before another activity starts, so no wait is cut in two.
    return np.equal(kind, START) & np.equal(before, STOP)


def survey(rows: WorkerRows) -> StatedSurvey:
    """Say what the rows of one worker tell by themselves.

    Messages between operators of one worker are no edges, and an epoch that ends while a worker waits does not end its
    wait. No wait is open where a slice begins (it would count into `depth`), so the rows of a slice tell. What was
    stated, rows to come do not change.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    StatedSurvey
        O(rows) in time and memory.
    """
    mark_rows = np.flatnonzero((rows.kind == START) | (rows.kind == STOP))
    starts, types = rows.kind[mark_rows] == START, _types(rows.activity[mark_rows])
    innermost, _, wrong, _ = applications(starts, rows.operator[mark_rows], np.zeros(0, np.int64), 0)
    trouble = np.zeros(rows.rows, np.int8)
    trouble[mark_rows] = wrong
    dropped = np.zeros(rows.rows, np.int8)
    dropped[local_messages(rows)] = LOCAL_MESSAGE
    ends = np.flatnonzero(rows.kind == EPOCH_END)
    opened_at = innermost[np.searchsorted(mark_rows, ends)]
    waits = np.zeros(len(ends), np.bool_)
    is_inside = opened_at >= 0
    waits[is_inside] = types[opened_at[is_inside]] == _WAITING
    dropped[ends[waits]] = ENDED_IN_WAIT
    # The stop of a rest, right after its start: no slice begins between the two.
    ends_rest = ~starts[1:] & starts[:-1] & _IS_REST[types[:-1]]
    open_marks = unbalanced(starts, rows.operator[mark_rows])
    position = np.where(starts, 2 * (rows.first_order + mark_rows), -1)
    fields = (rows.operator[mark_rows], position, rows.seq[mark_rows], types, rows.inferred[mark_rows])
    marks = tuple(Open(*mark) for mark in zip(*(values[open_marks].tolist() for values in fields), strict=True))
    return StatedSurvey(
        dropped=dropped,
        depth=sum(1 for mark in marks if mark.pos >= 0 and mark.kind == _WAITING),
        idle=None,
        active=None,
        marks=marks,
        rests=mark_rows[1:][ends_rest],
        mark_rows=mark_rows,
        starts=starts,
        types=types,
        innermost=innermost,
        trouble=trouble,
    )


def _types(activity: I8) -> I64:
    kind = np.where(activity < 0, _PROCESSING, activity).astype(np.int64)
    return np.where(_IS_MESSAGE[kind], _UNKNOWN, kind)


def settle(_rows: WorkerRows, surveyed: StatedSurvey, _setting: Setting) -> StatedSurvey:
    """Return the survey as it is (`WaitRules.settle`).

    Parameters
    ----------
    _rows, surveyed, _setting
        As for `WaitRules.settle`.

    Returns
    -------
    StatedSurvey
        The same one: the source says itself when its workers waited.
    """
    return surveyed


def judge(rows: WorkerRows, surveyed: StatedSurvey, setting: Setting, before: Sequence[Open]) -> StatedJudged:
    """Judge the waits of one worker (`WaitRules.judge`).

    Parameters
    ----------
    rows, surveyed, setting, before
        As for `WaitRules.judge`.

    Returns
    -------
    StatedJudged
        O(rows) in time and memory.

    Notes
    -----
    A wait is ended by the message sent last of those that are read in the instant of its end
    (`pag_graph.kernels.ends_of_waits.judge_waits`; `docs/model.md`, "Rule set stated").
    """
    mark_rows, operator = surveyed.mark_rows, rows.operator[surveyed.mark_rows]
    number = np.array([activity.operator for activity in before], np.int64)
    innermost, trouble = surveyed.innermost, surveyed.trouble
    if before:
        innermost, _, wrong, _ = applications(surveyed.starts, operator, number, 0)
        trouble = np.zeros(rows.rows, np.int8)
        trouble[mark_rows] = wrong
    waits_at = (_state(rows, surveyed, innermost, before)[0] == _WAITING).astype(np.int64)
    if setting.parameters.level:
        innermost = applications(surveyed.starts, operator, number, setting.parameters.level)[0]
    vertex_rows = np.flatnonzero(surveyed.dropped == 0)
    # Each stretch of waiting goes from one vertex to the next; the first row here follows one that no wait is open at.
    wait = vertex_rows[1:][waits_at[np.searchsorted(mark_rows, vertex_rows[1:])] == 1]
    begin = rows.t[vertex_rows[np.searchsorted(vertex_rows, wait) - 1]]
    verdict, ender, alternatives = judge_waits(
        ends_of_waits.Stretches(wait, begin),
        ends_of_waits.Rows(rows.t, rows.kind, rows.peer),
        ends_of_waits.Reads(rows.reads, rows.sent, rows.send_id),
        Clocks(rows.worker, setting.processes, setting.uncertainty),
    )
    ended = verdict == ENDED
    return StatedJudged(
        trouble=trouble,
        wait_row=wait[ended],
        wait_pos=2 * (rows.first_order + wait[ended]),
        ender=ender[ended],
        arrival=rows.t[wait[ended]],
        alternatives=alternatives[ended],
        innermost=innermost,
        waits_at=waits_at,
        dismissed=wait[verdict == NOTHING_CAME],
    )


def _state(rows: WorkerRows, surveyed: StatedSurvey, innermost: I64, before: Sequence[Open]) -> list[I64]:
    """Return type, operator, position of the start, and whether it is inferred, of what `innermost` refers to."""
    mark_rows = surveyed.mark_rows
    marks_here = surveyed.types, rows.operator[mark_rows], 2 * (rows.first_order + mark_rows), rows.inferred[mark_rows]
    outer = [
        [activity.kind for activity in before],
        [activity.operator for activity in before],
        [activity.pos for activity in before],
        [activity.inferred for activity in before],
    ]
    return opened(innermost, marks_here, outer, (_UNKNOWN, -1, -1, 0))


def last_wait(_rows: WorkerRows, _surveyed: StatedSurvey, _setting: Setting) -> int | None:
    """Say that only other slices can tell (`WaitRules.last_wait`).

    Parameters
    ----------
    _rows, _surveyed, _setting
        As for `WaitRules.last_wait`.

    Returns
    -------
    None
        What waits there are depends on what is open before these rows.
    """


def certain(_rows: WorkerRows, _surveyed: StatedSurvey, _setting: Setting, _logged: Logged) -> int:
    """Leave it to `safe_cut` (`WaitRules.certain`).

    Parameters
    ----------
    _rows, _surveyed, _setting, _logged
        As for `WaitRules.certain`.

    Returns
    -------
    int
        0: every wait is stated with its end, so a log is decided wherever it may be cut.
    """
    return 0


def worker_graph(rows: WorkerRows, surveyed: StatedSurvey, judged: StatedJudged, before: Before, life: Life) -> Graph:
    """Chain the rows of one worker to vertices and local edges that tile its life (`WaitRules.worker_graph`).

    Parameters
    ----------
    rows, surveyed, judged, before, life
        As for `WaitRules.worker_graph`.

    Returns
    -------
    tuple
        Columns of `pag_graph.kernels.assembly.local_graph`. O(rows).
    """
    row = np.flatnonzero(surveyed.dropped == 0)
    pos, t = 2 * (rows.first_order + row), rows.t[row]
    mark = np.searchsorted(surveyed.mark_rows, row)
    state = _state(rows, surveyed, judged.innermost, before.activities)
    kind, operator, activation, inferred = (values[mark] for values in state)
    # At every level an edge is a wait only where a message ended it.
    kind[kind == _WAITING] = _BUSY
    kind[judged.waits_at[mark] == 1] = _BUSY
    kind[np.searchsorted(row, judged.dismissed)] = _UNKNOWN
    kind[np.searchsorted(row, judged.wait_row)] = _WAITING
    records = np.full(len(row), -1, np.int64)
    if len(row):
        starts = np.append(rows.kind, -1)[np.append(-1, row[:-1])] == START
        records[starts] = rows.records[row[:-1]][starts[1:]]
    if rows.starts_run and (not len(row) or (t[0] > 0 and not life.born)):
        # The origin on this worker: what it did before its first event is not known.
        first = int(pos[0]) - 1 if len(row) else 1
        row, pos, t = (np.append(value, values) for value, values in ((INSERTED_START, row), (first, pos), (0, t)))
        kind, operator, activation, inferred, records = (
            np.append(value, values)
            for value, values in ((_UNKNOWN, kind), (-1, operator), (-1, activation), (0, inferred), (-1, records))
        )
    last_t = int(t[-1]) if len(t) else before.t
    # Between activities that follow each other at once there is no time that could be unknown.
    kind = np.where((kind == _UNKNOWN) & (np.diff(np.append(before.t, t)) == 0) & (row >= 0), _BUSY, kind)
    if rows.starts_run:
        # No edge leads to the first vertex of all.
        kind[:1], operator[:1], activation[:1], records[:1], inferred[:1] = NO_EDGE, -1, -1, -1, 0
    columns = [row, pos, t, kind, operator, activation, records, inferred]
    if rows.ends_run and not life.exits and last_t < life.run_end_ns:
        last_pos = int(pos[-1]) if len(pos) else before.pos
        end = 2 * (rows.first_order + rows.rows) - 1
        end += 2 * (end == last_pos)
        tail = (INSERTED_END, end, life.run_end_ns, _UNKNOWN, -1, -1, -1, 0)
        columns = [np.append(values, value) for values, value in zip(columns, tail, strict=True)]
    row, pos, t, kind, operator, activation, records, inferred = columns
    starts_segment = np.zeros(len(pos), np.bool_)
    starts_segment[np.searchsorted(pos, judged.wait_pos)] = True
    if rows.starts_run and len(pos):
        starts_segment[0] = True
    segment = np.maximum.accumulate(np.where(starts_segment, pos, -1))
    return (
        row.astype(np.int32),
        pos,
        t,
        np.where(segment < 0, before.segment, segment),
        kind.astype(np.int8),
        operator,
        activation,
        records,
        (inferred * int(EdgeFlags.INFERRED)).astype(np.int8),
    )


def extra_findings(rows: WorkerRows, _surveyed: StatedSurvey, judged: StatedJudged) -> list[Remark]:
    """Say which waits nothing ended, and what was stated that means nothing here (`WaitRules.extra_findings`).

    Parameters
    ----------
    rows, _surveyed, judged
        As for `WaitRules.extra_findings`.

    Returns
    -------
    list of Remark
        One per kind of finding, also where it has no rows.
    """
    starts = rows.kind == START
    remarks = (
        ("wait_without_ender", "no message ends it; typed unknown", judged.dismissed),
        (
            "start_of_message_type",
            "no activity of a worker is of this type; typed unknown",
            np.flatnonzero(starts & _IS_MESSAGE[rows.activity]),
        ),
        (
            "park_in_stated_trace",
            "ignored; waits are stated as activities",
            np.flatnonzero((rows.kind == PARK) | (rows.kind == UNPARK)),
        ),
        (
            "records_on_stop",
            "ignored; records are stated where an activity starts",
            np.flatnonzero((rows.kind == STOP) & (rows.records >= 0)),
        ),
    )
    return [Remark(name, Severity.WARNING, action, odd) for name, action, odd in remarks]
