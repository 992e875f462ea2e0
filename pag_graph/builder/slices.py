"""The three steps of a build on one slice: scan, carry, assemble.

``scan`` matches what lies inside the slice and summarises the rest; after the leftovers of all slices are stitched,
``carry`` says which segment is open where the slice ends, and ``assemble`` makes its vertices and edges. Each step
reads the slice anew, so that memory is bounded by the slice and any task can do any slice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.builder.match import apply_stitched, match
from pag_graph.builder.plan import check_memory
from pag_graph.builder.reading import check_order, nothing, read_columns
from pag_graph.kernels import ABSENT, layout
from pag_graph.kernels.activations import (
    CLOSES_NOTHING,
    CLOSES_OUTER,
    EPOCH_END,
    OPEN,
    PROGRESS_RECEIVE,
    PUSH_PROGRESS,
    RECEIVE,
    SEND,
    START,
    STOP,
)
from pag_graph.kernels.applications import applications, unbalanced
from pag_graph.kernels.assembly import NO_EDGE
from pag_graph.kernels.decoding import decode
from pag_graph.kernels.epochs import epochs_of_rows, mark_numbers
from pag_graph.kernels.reads import edges_of_reads
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType, EdgeFlags, Severity
from pag_graph.model.ids import POSITION_BITS
from pag_graph.rules.graph_columns import GraphColumns, LocalEdges, Messages, WorkerGraph, lay_out
from pag_graph.rules.protocol import Before, Setting
from pag_graph.rules.protocol import Life as Lifetime
from pag_graph.rules.registry import of, wait_rules
from pag_graph.rules.rows import (
    APPLICATION_START,
    APPLICATION_STOP,
    CODE_OF_LABEL,
    DROPPED,
    EDGE_CODES,
    EXIT,
    LABELS,
    NEVER,
    SPAWN,
    Graph,
    Judged,
    Open,
    Stack,
    Survey,
    WorkerRows,
    opened,
)
from pag_graph.runtime.threads import each
from pag_graph.store.findings import findings, no_findings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.builder.plan import RunPlan, Slice

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]

_COLUMNS = (
    "seq",
    "epoch",
    "t_ns",
    "kind",
    "operator",
    "channel",
    "peer",
    "message_seq",
)
_DETAILS = ("records", "bytes", "timeout_ns")
"""Columns that no scan looks at."""

_WORDS = {"kind": (LABELS, 0), "activity": (EDGE_CODES, -1)}
_SMALL = 1 << 16
_KIND_CODES = 1 + max(CODE_OF_LABEL.tolist())
_MESSAGES = [EDGE_CODES[kind] for kind in MESSAGE_TYPES]
_WAITING, _DATA, _PROGRESS, _APPLICATION, _SPAWNED = (
    EDGE_CODES[kind]
    for kind in (
        ActivityType.WAITING,
        ActivityType.DATA_MESSAGE,
        ActivityType.PROGRESS_MESSAGE,
        ActivityType.APPLICATION,
        ActivityType.SPAWN,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """How a slice leaves a worker behind."""

    pos: int
    """Position of its last vertex."""
    t: int
    epoch: int
    depth: int
    """What is still open, activations or a park that was cut off: the next slice cannot be understood without this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How a worker's log begins."""

    pos: int
    """Position of its first vertex."""
    t: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """A row that starts another worker."""

    worker: int
    """Who logged it."""
    child: int
    pos: int
    t: int
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How a worker comes and goes, where its log says so."""

    birth: Spawn | None = None
    """What started it; without it the worker exists from the run's origin on."""
    begin_ns: int = 0
    """When it began to exist."""
    exit_ns: int | None = None
    """When it ended; without it the worker exists until the run's end."""


_EVER = Life()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What the build needs to know of a slice before it can assemble any."""

    slice_number: int
    epochs: pl.DataFrame
    """One row per worker and epoch: `worker, epoch, events, entry_ns, exit_ns, end_ns, end_pos, last_pos`."""
    tails: Mapping[int, Tail]
    sends: pl.DataFrame
    """Sends without all their receives, columns `pag.match.SENDS`."""
    receives: pl.DataFrame
    """Receives without their send, columns `pag.match.RECEIVES`."""
    applications: Mapping[int, Stack] = field(default_factory=dict)
    """Per worker: marks of application activities that do not cancel each other inside the slice."""
    activities: Mapping[int, Stack] = field(default_factory=dict)
    """The same of activities, under rules that carry them from slice to slice."""
    heads: Mapping[int, Head] = field(default_factory=dict)
    """Per worker whose first vertex lies here."""
    spawns: tuple[Spawn, ...] = ()
    exits: Mapping[int, int] = field(default_factory=dict)
    """Per worker whose log ends here with its exit: when."""
    operators: frozenset[int] = frozenset()
    """Operators that start or stop here, or get progress."""
    channels: frozenset[int] = frozenset()
    """Channels of data messages here."""
    unsettled: Mapping[int, tuple[int | None, int | None]] = field(default_factory=dict)
    """Per worker: epoch of its last idle interval, and of the first activation that is open at the end, if any. What
    follows in the log may still change how they are typed."""
    waits: Mapping[int, int | None] = field(default_factory=dict)
    """Per worker: position of the vertex that ends its last wait here, -1 if there is none; null where that takes what
    other slices know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carry:
    """What is open where a slice begins, per worker."""

    tails: Mapping[int, Tail] = field(default_factory=dict)
    segments: Mapping[int, int] = field(default_factory=dict)
    """Position of the vertex that starts the open segment."""
    applications: Mapping[int, Stack] = field(default_factory=dict)
    """Application activities that are open."""
    activities: Mapping[int, Stack] = field(default_factory=dict)
    """Activities that are open, under rules that carry them."""
    lives: Mapping[int, Life] = field(default_factory=dict)
    """Workers that come or go while the run lasts."""
    stitched: pl.DataFrame | None = None
    """Sends of other slices for receives of this one, columns `pag.match.STITCHED`."""


@dataclass(frozen=True, slots=True)
class SliceRows:
    """The rows of a slice, their messages matched as far as both ends lie in it."""

    rows: list[WorkerRows]
    surveys: list[Survey]
    """The same workers."""
    sends: pl.DataFrame
    """As in `Scan`."""
    receives: pl.DataFrame


def _setting(plan: RunPlan) -> Setting:
    return Setting(plan.processes, plan.uncertainty, plan.parameters, plan.idle_inferred)


def read_slice(plan: RunPlan, part: Slice, *, whole: bool = True) -> SliceRows:
    """Read the rows of a slice, check that each worker's log does not contradict itself, and match its messages.

    Parameters
    ----------
    plan, part
        The build and the slice.
    whole
        Whether to read also what only `assemble` asks for; it is absent otherwise.

    Returns
    -------
    SliceRows
        Workers with rows in the slice, ascending.
    """
    check_memory(plan, part)
    rules = wait_rules(plan.rules)

    def read(worker: int) -> tuple[WorkerRows, Survey]:
        rows = read_rows(plan, worker, *part.rows[worker], whole=whole)
        return rows, rules.survey(rows)

    read_ones = each(read, sorted(part.rows))
    rows = [mine for mine, _ in read_ones]
    sends, receives = match(rows, slice_number=part.number, workers=len(plan.workers))
    surveys = [survey for _, survey in read_ones]
    setting = _setting(plan)

    def settle(item: tuple[WorkerRows, Survey]) -> Survey:
        settled: Survey = rules.settle(*item, setting)
        return settled

    surveys = each(settle, list(zip(rows, surveys, strict=True)))
    return SliceRows(rows, surveys, sends, receives)


def read_rows(plan: RunPlan, worker: int, low: int, high: int, *, whole: bool = True) -> WorkerRows:
    """Read rows `low` to `high` (exclusive) of a worker, and check that they do not contradict each other."""
    names = [*_COLUMNS, *(_DETAILS if whole else ()), *of(plan.rules).columns]
    first = max(low - 1, 0)
    table: dict[str, Any] = read_columns(plan.log, worker, first, high, names, _WORDS)
    check_order(plan.trace, plan.log, worker, low, high, table)
    columns = {name: values[low - first :] for name, values in table.items()}
    if not whole:
        columns |= dict.fromkeys(_DETAILS, nothing(high - low))
    kind = np.empty(high - low, np.int8)
    decode(columns["kind"], _ALL_THERE, 0, CODE_OF_LABEL, 0, kind)
    return WorkerRows(
        worker=worker,
        first_order=low + 1,
        starts_run=low == 0,
        ends_run=high == plan.log.rows_of(worker),
        seq=columns["seq"],
        epoch=columns["epoch"],
        t=plan.clocks[worker].common(columns["t_ns"]),
        kind=kind,
        label=columns["kind"],
        operator=columns["operator"],
        channel=columns["channel"],
        peer=columns["peer"],
        message_seq=columns["message_seq"],
        records=columns["records"],
        bytes=columns["bytes"],
        timeout=columns["timeout_ns"],
        activity=columns.get("activity", _NONE),
        inferred=columns.get("inferred", _NONE),
    )


_NONE = np.empty(0, np.int8)
_ALL_THERE = np.empty(0, np.uint8)


def scan(plan: RunPlan, part: Slice, read: SliceRows, *, waits: bool = True) -> Scan:
    """Summarise what of a slice reaches beyond it.

    Parameters
    ----------
    plan, part, read
        The build, the slice and its rows.
    waits
        Whether to look for the last wait of each worker.
    """
    rules, setting = wait_rules(plan.rules), _setting(plan)
    tails, marks, activities, heads, exits, unsettled, spawns = {}, {}, {}, {}, {}, {}, []
    ended = {}

    def look(item: tuple[WorkerRows, Survey]) -> tuple[I64, Stack, list[Spawn], set[int], set[int]]:
        mine, survey = item
        operators = _numbers(mine.kind, mine.operator, (START, STOP, PUSH_PROGRESS))
        channels = _numbers(mine.kind, mine.channel, (SEND, RECEIVE))
        return _epoch_rows(mine, survey), _marks(mine), _spawns(mine), operators, channels

    seen = each(look, list(zip(read.rows, read.surveys, strict=True)))
    for mine, survey, (_, left, spawned, *_) in zip(read.rows, read.surveys, seen, strict=True):
        if waits:
            ended[mine.worker] = rules.last_wait(mine, survey, setting)
        kept = survey.dropped == 0
        if kept.any():
            first, last = int(kept.argmax()), mine.rows - 1 - int(kept[::-1].argmax())
            tails[mine.worker] = Tail(
                pos=2 * (mine.first_order + last), t=int(mine.t[last]), epoch=int(mine.epoch[last]), depth=survey.depth
            )
            heads[mine.worker] = Head(
                pos=2 * (mine.first_order + first), t=int(mine.t[first]), epoch=int(mine.epoch[first])
            )
        if left:
            marks[mine.worker] = left
        if survey.marks:
            activities[mine.worker] = survey.marks
        unsettled[mine.worker] = (survey.idle, survey.active)
        spawns.extend(spawned)
        if mine.ends_run and mine.rows and mine.kind[-1] == EXIT:
            exits[mine.worker] = int(mine.t[-1])
    return Scan(
        slice_number=part.number,
        epochs=_epochs([epochs for epochs, *_ in seen]),
        tails=tails,
        sends=read.sends,
        receives=read.receives,
        applications=marks,
        activities=activities,
        heads=heads,
        spawns=tuple(spawns),
        exits=exits,
        operators=frozenset[int]().union(*(operators for *_, operators, _ in seen)),
        channels=frozenset[int]().union(*(channels for *_, channels in seen)),
        unsettled=unsettled,
        waits=ended,
    )


def _numbers(kind: I8, values: I64, kinds: tuple[int, ...]) -> set[int]:
    """Say which numbers occur; small ones, as those of operators and channels are, are marked in one pass."""
    wanted = np.zeros(_KIND_CODES, np.bool_)
    wanted[list(kinds)] = True
    marked = np.zeros(_SMALL, np.bool_)
    seen: set[int] = set()
    if mark_numbers(kind, values, wanted, marked):
        mine = values[wanted[kind]]
        seen.update(np.unique(mine[mine >= _SMALL]).tolist())
    seen.update(np.flatnonzero(marked).tolist())
    return seen


def unknown_names(plan: RunPlan, scans: Sequence[Scan]) -> list[pa.Table]:
    """Return findings about operators and channels that events refer to and the trace's tables do not name.

    Parameters
    ----------
    plan, scans
        The build and all its slices. A source without a table of operators, or of channels, names none of them.

    Returns
    -------
    list
        One row per number.
    """
    result = []
    for what, table in (("operator", plan.trace.operators), ("channel", plan.trace.channels)):
        seen = frozenset().union(*(getattr(scan_, f"{what}s") for scan_ in scans))
        missing = sorted(seen.difference(table[what].to_pylist())) if table.num_rows else []
        if missing:
            result.append(
                findings(
                    f"unknown_{what}",
                    Severity.WARNING,
                    "shown by its number; the trace does not name it",
                    rows=len(missing),
                    file=f"{what}s.parquet",
                    observed=missing,
                    unit=what,
                )
            )
    return result


def _spawns(rows: WorkerRows) -> list[Spawn]:
    return [
        Spawn(
            worker=rows.worker,
            child=int(rows.peer[at]),
            pos=2 * (rows.first_order + int(at)),
            t=int(rows.t[at]),
            epoch=int(rows.epoch[at]),
            seq=int(rows.seq[at]),
        )
        for at in np.flatnonzero(rows.kind == SPAWN)
    ]


def _marks(rows: WorkerRows) -> Stack:
    at, starts = _application_rows(rows)
    left = unbalanced(starts, rows.operator[at])
    position = np.where(starts, 2 * (rows.first_order + at), -1)
    fields = (rows.operator[at], position, rows.seq[at])
    return tuple(Open(*mark) for mark in zip(*(values[left].tolist() for values in fields), strict=True))


def _application_rows(rows: WorkerRows) -> tuple[I64, NDArray[np.bool_]]:
    at = np.flatnonzero((rows.kind == APPLICATION_START) | (rows.kind == APPLICATION_STOP))
    return at, rows.kind[at] == APPLICATION_START


def still_open(before: Stack, marks: Stack) -> Stack:
    """Return what is open after a slice.

    Parameters
    ----------
    before
        What is open before it.
    marks
        As in `Scan`.

    Returns
    -------
    tuple
        As `before`.
    """
    if not marks:
        return before
    number = np.array([mark.operator for mark in marks], np.int64)
    position = np.array([mark.pos for mark in marks], np.int64)
    outer = np.array([activity.operator for activity in before], np.int64)
    left = applications(position >= 0, number, outer)[3].tolist()
    return tuple(marks[at] if at >= 0 else before[-2 - at] for at in left)


def add_open(stacks: dict[int, Stack], marks: Mapping[int, Stack]) -> None:
    """Let what is open, per worker, be what is open after one more slice (`still_open`)."""
    for worker, stack in marks.items():
        stacks[worker] = still_open(stacks.get(worker, ()), stack)


def _epoch_rows(rows: WorkerRows, survey: Survey) -> I64:
    rests = np.zeros(rows.rows, np.bool_)
    rests[survey.rests] = True
    columns = epochs_of_rows(rows.epoch, rows.t, rows.kind, survey.dropped, rests, rows.first_order)
    return np.vstack((np.full(columns.shape[1], rows.worker, np.int64), columns))


def _epochs(parts: Sequence[I64]) -> pl.DataFrame:
    columns = np.concatenate([np.empty((len(_OF_EPOCH), 0), np.int64), *parts], axis=1)
    named = zip(_OF_EPOCH, columns, strict=True)
    return pl.DataFrame(pa.table({name: pa.array(values, mask=values == NEVER) for name, values in named}))


_OF_EPOCH = ("worker", "epoch", "events", "entry_ns", "exit_ns", "end_ns", "end_pos", "last_pos", "last_ns", "work_ns")


def _judged(plan: RunPlan, carry: Carry, read: SliceRows) -> list[Any]:
    if carry.stitched is not None and carry.stitched.height:
        apply_stitched(read.rows, carry.stitched)
    rules, setting = wait_rules(plan.rules), _setting(plan)

    def judged(item: tuple[WorkerRows, Survey]) -> Judged:
        rows, survey = item
        outer = carry.activities.get(rows.worker, ())
        result: Judged = rules.judge(rows, survey, setting, outer)
        return result

    return each(judged, list(zip(read.rows, read.surveys, strict=True)))


def last_segments(plan: RunPlan, carry: Carry, read: SliceRows) -> dict[int, int]:
    """Return, per worker, the position of the vertex that starts the last segment that begins in a slice.

    Parameters
    ----------
    plan, read
        The build and the slice.
    carry
        What is open where it begins, but for the segments.

    Returns
    -------
    dict
        Workers whose open segment stays the one from before are absent.
    """
    result = {}
    for rows, survey, judged in zip(read.rows, read.surveys, _judged(plan, carry, read), strict=True):
        segment = int(judged.wait_pos[-1]) if len(judged.wait_pos) else -1
        if segment < 0 and rows.starts_run:
            kept = np.flatnonzero(survey.dropped == 0)
            head = (
                Head(pos=2 * (rows.first_order + int(kept[0])), t=int(rows.t[kept[0]]), epoch=0) if len(kept) else None
            )
            segment = first_position(head, born=carry.lives.get(rows.worker, _EVER).birth is not None)
        if segment >= 0:
            result[rows.worker] = segment
    return result


def known_segments(part: Slice, found: Scan, lives: Mapping[int, Life]) -> dict[int, int] | None:
    """Return what `last_segments` returns, if the scan of the slice is enough to tell, else None."""
    if any(wait is None for wait in found.waits.values()):
        return None
    result = {worker: wait for worker, wait in found.waits.items() if wait is not None and wait >= 0}
    for worker, (low, _) in part.rows.items():
        if low == 0 and worker not in result:
            result[worker] = first_position(found.heads.get(worker), born=lives.get(worker, _EVER).birth is not None)
    return result


def first_position(head: Head | None, *, born: bool) -> int:
    """Return the position of a worker's very first vertex.

    That is its first event, or, unless it was born with that, the run's origin before it.
    """
    return 1 if head is None else head.pos - int(head.t > 0 and not born)


def assemble(plan: RunPlan, carry: Carry, read: SliceRows, *, open_epoch: int) -> GraphColumns:
    """Make the vertices and edges of a slice.

    Parameters
    ----------
    plan, read
        The build and the slice.
    carry
        What is open where it begins.
    open_epoch
        The first epoch that some worker has not left.

    Returns
    -------
    GraphColumns
        Vertices of the slice's events, edges that end at them, and findings about them.
    """
    judged = _judged(plan, carry, read)

    def graph(item: tuple[WorkerRows, Survey, Any]) -> tuple[WorkerGraph, list[pa.Table]]:
        return _worker_graph(plan, carry, *item, open_epoch=open_epoch)

    parts = each(graph, list(zip(read.rows, read.surveys, judged, strict=True)))
    dropped = {
        reason: count
        for code, reason in DROPPED.items()
        if (count := sum(int(np.count_nonzero(survey.dropped == code)) for survey in read.surveys))
    }
    return lay_out(
        [mine for mine, _ in parts],
        findings=pa.concat_tables([no_findings(), *(found for _, mine in parts for found in mine)]),
        dropped=dropped,
    )


def _worker_graph(
    plan: RunPlan, carry: Carry, rows: WorkerRows, survey: Survey, judged: Any, *, open_epoch: int
) -> tuple[WorkerGraph, list[pa.Table]]:
    tail, life = carry.tails.get(rows.worker), carry.lives.get(rows.worker, _EVER)
    previous = (tail.pos, tail.t) if tail else (-1, 0)
    segment, open_ = carry.segments.get(rows.worker, -1), carry.activities.get(rows.worker, ())
    lifetime = Lifetime(life.birth is not None, life.exit_ns is not None, plan.end_ns)
    columns = wait_rules(plan.rules).worker_graph(rows, survey, judged, Before(*previous, segment, open_), lifetime)
    columns, trouble = _with_applications(rows, columns, carry.applications.get(rows.worker, ()))
    # The run's end moves while the run goes on: its vertices never belong to an epoch that is closed, whatever the
    # worker logged last. After the end of an epoch it is in the next one, though it logged nothing of it.
    after = open_epoch
    if rows.rows:
        after = max(after, int(rows.epoch[-1]) + int(rows.kind[-1] == EPOCH_END))
    row, pos, t, segment, kind, operator, activation, records, flags = columns
    before = tail.epoch if tail else -1
    epoch = layout.epochs_at(pos, rows.epoch, rows.first_order, before, after)
    local = LocalEdges(
        previous=(*previous, before),
        kind=kind,
        operator=operator,
        activation=activation,
        records=records,
        flags=flags,
    )
    messages, negative = _messages(plan, rows, judged)
    if life.birth is not None and tail is None and len(pos):
        birth = _birth(rows, life.birth, pos=int(pos[0]), t=int(t[0]), epoch=int(epoch[0]))
        messages = messages.and_one(birth, _SPAWNED)
    found = [*_findings(plan, rows, survey, judged, trouble, negative), *_never_stopped(plan, rows, survey, carry)]
    graph = WorkerGraph(
        rows=rows,
        operator=rows.operator,
        row=row,
        pos=pos,
        t=t,
        segment=segment,
        epoch=epoch,
        local=local,
        messages=messages,
    )
    return graph, found


def _with_applications(rows: WorkerRows, columns: Graph, before: Stack) -> tuple[Graph, I8]:
    """Lay application activities over everything but waiting; return also what is wrong with each row."""
    at, starts = _application_rows(rows)
    trouble = np.zeros(rows.rows, np.int8)
    if not len(at) and not before:
        return columns, trouble
    innermost, _, wrong, _ = applications(
        starts, rows.operator[at], np.array([activity.operator for activity in before], np.int64)
    )
    trouble[at] = wrong
    pos, kind, operator, activation, records, flags = columns[1], *columns[4:]
    # An edge is inside what was open before the row that it ends at, or leads up to.
    row = np.minimum((pos + 1) // 2 - rows.first_order, rows.rows)
    inside = innermost[np.searchsorted(at, row, side="left")]
    here = rows.operator[at], 2 * (rows.first_order + at)
    number, position = opened(inside, here, [[a.operator for a in before], [a.pos for a in before]], (-1, -1))
    covered = (inside != -1) & (kind != _WAITING) & (kind != NO_EDGE)
    return (
        *columns[:4],
        np.where(covered, np.int8(_APPLICATION), kind),
        np.where(covered, number, operator),
        np.where(covered, position, activation),
        records,
        np.where(covered, np.int8(0), flags),
    ), trouble


def _messages(plan: RunPlan, rows: WorkerRows, judged: Judged) -> tuple[Messages, I64]:
    """Make an edge per message from another worker that is read here: to the wait's end that it caused, or its read.

    Returns
    -------
    messages
        In the order of their reads.
    negative
        Rows of messages that were read before they were sent.
    """
    numbers, at, flags = edges_of_reads(
        rows.epoch,
        rows.t,
        rows.peer,
        rows.channel,
        rows.records,
        rows.bytes,
        rows.reads,
        rows.send_id,
        rows.sent,
        rows.send_epoch,
        judged.ender,
        judged.arrival,
        judged.wait_pos,
        judged.wait_row,
        judged.alternatives,
        plan.processes,
        rows.worker,
        rows.first_order,
        rows.worker << POSITION_BITS,
        # A source that states its activities says itself when messages arrive.
        of(plan.rules).states_activities,
        int(EdgeFlags.INEXACT_ARRIVAL),
        int(EdgeFlags.NEGATIVE),
    )
    kind = np.where(rows.kind[at] == PROGRESS_RECEIVE, _PROGRESS, _DATA).astype(np.int8)
    if len(rows.activity):
        stated_type = rows.activity[at]
        kind = np.where(np.isin(stated_type, _MESSAGES), stated_type, kind).astype(np.int8)
    negative = (flags[:, 0] & int(EdgeFlags.NEGATIVE)) != 0
    return Messages(numbers=numbers, kind=kind, flags=flags), at[negative]


def _never_stopped(plan: RunPlan, rows: WorkerRows, survey: Survey, carry: Carry) -> list[pa.Table]:
    """Return findings about activities that are open where a worker's log ends, in whatever slice they started."""
    if not rows.ends_run:
        return []
    before = carry.activities.get(rows.worker, ()), carry.applications.get(rows.worker, ())
    here = survey.marks, _marks(rows)
    result = []
    for name, outer, marks in zip(("activation_not_stopped", "application_not_stopped"), before, here, strict=True):
        left = still_open(outer, marks)
        if left:
            result.append(
                findings(
                    name,
                    Severity.INFO,
                    "goes on to the end of the worker's log",
                    rows=len(left),
                    worker=rows.worker,
                    vertex=[rows.worker << POSITION_BITS | mark.pos for mark in left],
                    seq=[mark.seq for mark in left],
                    file=plan.log.files_of(rows.worker, np.array([mark.pos // 2 - 1 for mark in left])),
                )
            )
    return result


def _birth(rows: WorkerRows, birth: Spawn, *, pos: int, t: int, epoch: int) -> I64:
    """Return the numbers of the edge from the row that starts a worker to the worker's first vertex."""
    numbers = np.full(layout.ALL_NUMBERS, ABSENT, np.int64)
    born = rows.worker << POSITION_BITS | pos
    numbers[[layout.SRC, layout.DST, layout.READ]] = birth.worker << POSITION_BITS | birth.pos, born, born
    numbers[[layout.DST_EPOCH, layout.SRC_EPOCH]] = epoch, birth.epoch
    numbers[[layout.START, layout.DURATION]] = birth.t, t - birth.t
    return numbers


def lives(plan: RunPlan, scans: Sequence[Scan]) -> tuple[dict[int, Life], list[pa.Table]]:
    """Say which workers come and go while the run lasts.

    Parameters
    ----------
    plan, scans
        The build and all its slices, in order.

    Returns
    -------
    lives
        Per worker with a birth or an exit. The first row that spawns a worker is its birth, unless the worker was
        there before.
    findings
        Rows that spawn nobody, and workers that nobody spawned though others were.
    """
    heads: dict[int, Head] = {}
    for scan_ in scans:
        heads = {**scan_.heads, **heads}
    exits = {worker: t for scan_ in scans for worker, t in scan_.exits.items()}
    spawns = sorted((s for scan_ in scans for s in scan_.spawns), key=lambda s: (s.t, s.worker, s.pos))
    births: dict[int, Spawn] = {}
    wrong: dict[str, list[Spawn]] = {}
    for spawn in spawns:
        head = heads.get(spawn.child)
        if spawn.child not in plan.workers or head is None or spawn.child == spawn.worker:
            wrong.setdefault("spawn_of_nobody", []).append(spawn)
        elif spawn.child in births:
            wrong.setdefault("spawned_twice", []).append(spawn)
        elif head.t < spawn.t:
            wrong.setdefault("spawned_after_birth", []).append(spawn)
        else:
            births[spawn.child] = spawn
    actions = {
        "spawn_of_nobody": "kept as an event without an edge; the worker that it names logged nothing",
        "spawned_twice": "kept as an event without an edge; the earliest spawn is the birth",
        "spawned_after_birth": "kept as an event without an edge; the worker logged something before",
    }
    found = [
        findings(
            name,
            Severity.WARNING,
            actions[name],
            rows=len(which),
            worker=[s.worker for s in which],
            vertex=[s.worker << POSITION_BITS | s.pos for s in which],
            seq=[s.seq for s in which],
            file=plan.log.files_of(np.array([s.worker for s in which]), np.array([s.pos // 2 - 1 for s in which])),
            observed=[s.child for s in which],
            unit="worker",
        )
        for name, which in sorted(wrong.items())
    ]
    # Where nobody is ever spawned, all workers are simply there from the beginning.
    orphans = [w for w in plan.workers if births and w not in births and w in heads and heads[w].t > 0]
    if orphans:
        found.append(
            findings(
                "worker_without_spawn",
                Severity.INFO,
                "its time from the run's origin to its first event is unknown",
                rows=len(orphans),
                worker=orphans,
                observed=[heads[w].t for w in orphans],
                unit="ns",
            )
        )
    result = {
        w: Life(birth=births.get(w), begin_ns=heads[w].t if w in births else 0, exit_ns=exits.get(w))
        for w in sorted(births.keys() | exits.keys())
    }
    return result, found


def _findings(
    plan: RunPlan, rows: WorkerRows, survey: Survey, judged: Any, applied: I8, negative: I64
) -> list[pa.Table]:
    """Return findings about the rows of one worker, each with what the build made of it."""
    result = []

    def report(
        name: str, severity: Severity, action: str, at: I64, observed: I64 | None = None, limit: I64 | None = None
    ) -> None:
        if len(at):
            result.append(
                findings(
                    name,
                    severity,
                    action,
                    rows=len(at),
                    worker=rows.worker,
                    vertex=np.int64(rows.worker) << POSITION_BITS | 2 * (at + rows.first_order),
                    seq=rows.seq[at],
                    file=plan.log.files_of(rows.worker, at + rows.first_order - 1),
                    observed=observed,
                    limit=limit,
                    unit=None if observed is None else "ns",
                )
            )

    stop, other, open_ = (np.flatnonzero(judged.trouble == code) for code in (CLOSES_NOTHING, CLOSES_OUTER, OPEN))
    report("stop_without_start", Severity.WARNING, "ignored; the time before it has the type of what was open", stop)
    report("stop_of_outer_activation", Severity.WARNING, "closed the activations inside it as well", other)
    if rows.ends_run:
        report("activation_not_stopped", Severity.INFO, "typed by what the log shows of it", open_)
    stop, other = (np.flatnonzero(applied == code) for code in (CLOSES_NOTHING, CLOSES_OUTER))
    report("application_stop_without_start", Severity.WARNING, "ignored", stop)
    report("application_stop_of_outer", Severity.WARNING, "closed the application activities inside it as well", other)
    for remark in wait_rules(plan.rules).extra_findings(rows, survey, judged):
        report(*remark)
    alive = rows.rows if rows.ends_run else rows.rows + 1
    early = np.flatnonzero(rows.kind[: alive - 1] == EXIT)
    report("exit_before_last_event", Severity.WARNING, "ignored; the worker goes on", early)
    report(
        "negative_transfer",
        Severity.WARNING,
        "kept and flagged; it ends no wait",
        negative,
        rows.t[negative] - rows.sent[np.searchsorted(rows.reads, negative)],
        np.zeros(len(negative), np.int64),
    )
    return result
