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
import pyarrow.compute as pc

from pag_graph.kernels.activations import (
    CLOSES_NOTHING,
    CLOSES_OUTER,
    EPOCH_END,
    OPEN,
    PARK,
    PROGRESS_RECEIVE,
    PUSH_PROGRESS,
    RECEIVE,
    SEND,
    START,
    STOP,
    UNPARK,
)
from pag_graph.kernels.applications import applications, unbalanced
from pag_graph.kernels.assembly import INSERTED_ARRIVAL, INSERTED_END, INSERTED_START
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType, EdgeFlags, RuleSet, Severity, VertexKind
from pag_graph.model.graph import GraphPart
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_EDGES, PAG_VERTICES
from pag_graph.pag.match import apply_stitched, match
from pag_graph.rules import stated, timely
from pag_graph.rules.rows import (
    APPLICATION_START,
    APPLICATION_STOP,
    CODE_OF_LABEL,
    DROPPED,
    EDGE_CODES,
    EDGE_TYPES,
    EXIT,
    KINDS,
    LABELS,
    NEVER,
    SPAWN,
    Judged,
    Stack,
    WorkerRows,
)
from pag_graph.store.findings import findings, no_findings
from pag_graph.store.log import codes, column
from pag_graph.store.trace import check_events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.pag.plan import RunPlan, Slice

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]

_COLUMNS = (
    "worker",
    "seq",
    "epoch",
    "t_ns",
    "kind",
    "operator",
    "channel",
    "peer",
    "message_seq",
    "records",
    "bytes",
    "timeout_ns",
)

_RULES: dict[RuleSet, Any] = {RuleSet.TIMELY: timely, RuleSet.STATED: stated}
"""Modules with the functions `dropped_rows`, `still_open`, `marks`, `judge` and `worker_graph`."""

_ACTIVE = (START, STOP, PUSH_PROGRESS)
_DATA_ENDS = (SEND, RECEIVE)
_SMALL = 1 << 20
_MESSAGES = [EDGE_CODES[kind] for kind in MESSAGE_TYPES]
_TYPE_NAMES = [str(kind) for kind in EDGE_TYPES]
_WAITING, _DATA, _PROGRESS, _APPLICATION = (
    EDGE_CODES[kind]
    for kind in (
        ActivityType.WAITING,
        ActivityType.DATA_MESSAGE,
        ActivityType.PROGRESS_MESSAGE,
        ActivityType.APPLICATION,
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
    """Activations still open: where any is, the next slice cannot be understood without this one."""


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


def read_rows(plan: RunPlan, part: Slice) -> list[WorkerRows]:
    """Read the rows of a slice and check that each worker's log does not contradict itself.

    Parameters
    ----------
    plan, part
        The build and the slice.

    Returns
    -------
    list of WorkerRows
        Per worker with rows in the slice, ascending.
    """
    result = []
    more = _RULES[plan.rules].COLUMNS
    for worker, (low, high) in sorted(part.rows.items()):
        table = plan.log.read(worker, low, high, [*_COLUMNS, *more])
        before = plan.log.read(worker, low - 1, low, ["worker", "seq", "epoch", "t_ns"]) if low else None
        check_events(plan.trace, table, previous=before)
        label = codes(table, "kind", LABELS, 0)
        result.append(
            WorkerRows(
                worker=worker,
                first_order=low + 1,
                starts_run=low == 0,
                ends_run=high == plan.log.rows_of(worker),
                seq=column(table, "seq"),
                epoch=column(table, "epoch"),
                t=plan.clocks[worker].common(column(table, "t_ns")),
                kind=CODE_OF_LABEL[label],
                label=label,
                operator=column(table, "operator"),
                channel=column(table, "channel"),
                peer=column(table, "peer"),
                message_seq=column(table, "message_seq"),
                records=column(table, "records"),
                bytes=column(table, "bytes"),
                timeout=column(table, "timeout_ns"),
                activity=codes(table, "activity", EDGE_CODES, -1) if "activity" in more else _NONE,
                inferred=_flag(table, "inferred") if "inferred" in more else _NONE,
            )
        )
    return result


_NONE = np.empty(0, np.int8)


def _flag(table: pa.Table, name: str) -> I8:
    return np.ascontiguousarray(pc.fill_null(table[name], fill_value=False).to_numpy(), dtype=np.int8)


def scan(plan: RunPlan, part: Slice) -> Scan:
    """Match what lies inside a slice, and summarise what reaches beyond it."""
    rows = read_rows(plan, part)
    sends, receives = match(rows, slice_number=part.number, workers=len(plan.workers))
    rules = _RULES[plan.rules]
    tails, marks, activities, heads, exits, unsettled, spawns = {}, {}, {}, {}, {}, {}, []
    epochs = []
    for mine in rows:
        kept = np.flatnonzero(rules.dropped_rows(mine) == 0)
        depth, idle, active = rules.still_open(mine)
        if len(kept):
            first, last = int(kept[0]), int(kept[-1])
            tails[mine.worker] = Tail(
                pos=2 * (mine.first_order + last), t=int(mine.t[last]), epoch=int(mine.epoch[last]), depth=depth
            )
            heads[mine.worker] = Head(
                pos=2 * (mine.first_order + first), t=int(mine.t[first]), epoch=int(mine.epoch[first])
            )
        epochs.append(_epoch_rows(mine, kept))
        if left := _marks(mine):
            marks[mine.worker] = left
        if left := rules.marks(mine):
            activities[mine.worker] = left
        unsettled[mine.worker] = (idle, active)
        spawns.extend(_spawns(mine))
        if mine.ends_run and mine.rows and mine.kind[-1] == EXIT:
            exits[mine.worker] = int(mine.t[-1])
    return Scan(
        slice_number=part.number,
        epochs=pl.concat(epochs) if epochs else pl.DataFrame(),
        tails=tails,
        sends=sends,
        receives=receives,
        applications=marks,
        activities=activities,
        heads=heads,
        spawns=tuple(spawns),
        exits=exits,
        operators=frozenset().union(*(_distinct(mine.operator[np.isin(mine.kind, _ACTIVE)]) for mine in rows)),
        channels=frozenset().union(*(_distinct(mine.channel[np.isin(mine.kind, _DATA_ENDS)]) for mine in rows)),
        unsettled=unsettled,
    )


def _distinct(values: I64) -> frozenset[int]:
    """Return the distinct numbers from 0 on; small ones, as those of operators and channels are, in one pass."""
    values = values[values >= 0]
    small = len(values) and int(values.max()) < _SMALL
    return frozenset((np.flatnonzero(np.bincount(values)) if small else np.unique(values)).tolist())


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
    columns = (rows.operator[at], position, rows.seq[at])
    return tuple(zip(*(values[left].tolist() for values in columns), strict=True))


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
    number, position = (np.array([mark[i] for mark in marks], np.int64) for i in (0, 1))
    outer = np.array([mark[0] for mark in before], np.int64)
    left = applications(position >= 0, number, outer)[3].tolist()
    return tuple(marks[at] if at >= 0 else before[-2 - at] for at in left)


def _epoch_rows(rows: WorkerRows, kept: I64) -> pl.DataFrame:
    is_kept = np.zeros(rows.rows, np.bool_)
    is_kept[kept] = True
    frame = pl.DataFrame(
        {
            "epoch": rows.epoch,
            "t": rows.t,
            "pos": 2 * np.arange(rows.first_order, rows.first_order + rows.rows),
            "ends": rows.kind == EPOCH_END,
            "kept": is_kept,
        }
    )
    return frame.group_by("epoch", maintain_order=True).agg(
        pl.lit(rows.worker, pl.Int64).alias("worker"),
        pl.len().cast(pl.Int64).alias("events"),
        pl.col("t").min().alias("entry_ns"),
        pl.col("t").max().alias("exit_ns"),
        pl.col("t").filter(pl.col("ends")).last().alias("end_ns"),
        pl.col("pos").filter(pl.col("ends") & pl.col("kept")).last().alias("end_pos"),
        pl.col("pos").filter(pl.col("kept")).last().alias("last_pos"),
        pl.col("t").filter(pl.col("kept")).last().alias("last_ns"),
        pl.col("t").filter(~pl.col("ends")).max().alias("work_ns"),
    )


def _judged(plan: RunPlan, part: Slice, carry: Carry) -> list[tuple[WorkerRows, Any]]:
    rows = read_rows(plan, part)
    match(rows, slice_number=part.number, workers=len(plan.workers))
    if carry.stitched is not None and carry.stitched.height:
        apply_stitched(rows, carry.stitched)
    judge = _RULES[plan.rules].judge
    return [
        (mine, judge(mine, plan.processes, plan.uncertainty, plan.parameters, carry.activities.get(mine.worker, ())))
        for mine in rows
    ]


def last_segments(plan: RunPlan, part: Slice, carry: Carry) -> dict[int, int]:
    """Return, per worker, the position of the vertex that starts the last segment that begins in a slice.

    Parameters
    ----------
    plan, part
        The build and the slice.
    carry
        What is open where it begins, but for the segments.

    Returns
    -------
    dict
        Workers whose open segment stays the one from before are absent.
    """
    result = {}
    for rows, judged in _judged(plan, part, carry):
        segment = int(judged.wait_pos[-1]) if len(judged.wait_pos) else -1
        if segment < 0 and rows.starts_run:
            segment = first_position(rows, judged.dropped, born=carry.lives.get(rows.worker, _EVER).birth is not None)
        if segment >= 0:
            result[rows.worker] = segment
    return result


def first_position(rows: WorkerRows, dropped: NDArray[np.int8], *, born: bool) -> int:
    """Return the position of a worker's very first vertex.

    That is its first event, or, unless it was born with that, the run's origin before it.
    """
    kept = np.flatnonzero(dropped == 0)
    if not len(kept):
        return 1
    first = int(kept[0])
    return 2 * (rows.first_order + first) - int(rows.t[first] > 0 and not born)


def assemble(plan: RunPlan, part: Slice, carry: Carry, *, open_epoch: int) -> GraphPart:
    """Make the vertices and edges of a slice.

    Parameters
    ----------
    plan, part
        The build and the slice.
    carry
        What is open where it begins.
    open_epoch
        The first epoch that some worker has not left.

    Returns
    -------
    GraphPart
        Vertices of the slice's events, edges that end at them, and findings about them.
    """
    vertices: list[pa.Table] = []
    edges: list[pa.Table] = []
    found = [no_findings()]
    dropped: dict[str, int] = {}
    for rows, judged in _judged(plan, part, carry):
        tail, life = carry.tails.get(rows.worker), carry.lives.get(rows.worker, _EVER)
        columns = _RULES[plan.rules].worker_graph(
            rows,
            judged,
            previous=(tail.pos, tail.t) if tail else (-1, 0),
            segment=carry.segments.get(rows.worker, -1),
            outer=carry.activities.get(rows.worker, ()),
            born=life.birth is not None,
            exits=life.exit_ns is not None,
            run_end_ns=plan.end_ns,
        )
        previous_epoch = tail.epoch if tail else -1
        epochs = _epochs(rows, open_epoch)
        columns, trouble = _with_applications(rows, columns, carry.applications.get(rows.worker, ()))
        vertices.append(_vertices(rows, columns, epochs))
        edges.extend((_local_edges(rows, columns, epochs, previous_epoch), _messages(rows, judged, plan.rules)))
        if life.birth is not None and tail is None and len(columns[0]):
            edges.append(_birth(rows, columns, life.birth, epochs))
        found.extend(_findings(plan, rows, judged, trouble))
        found.extend(_never_stopped(plan, rows, carry))
        for code, reason in DROPPED.items():
            count = int((judged.dropped == code).sum())
            if count:
                dropped[reason] = dropped.get(reason, 0) + count
    return GraphPart(
        vertices=pa.concat_tables(vertices or [PAG_VERTICES.empty_table()]),
        edges=pa.concat_tables(edges or [PAG_EDGES.empty_table()]),
        findings=pa.concat_tables(found),
        dropped=dropped,
    )


def _with_applications(
    rows: WorkerRows, columns: tuple[I64 | I8, ...], before: Stack
) -> tuple[tuple[I64 | I8, ...], I8]:
    """Lay application activities over everything but waiting; return also what is wrong with each row."""
    at, starts = _application_rows(rows)
    trouble = np.zeros(rows.rows, np.int8)
    if not len(at) and not before:
        return columns, trouble
    innermost, _, wrong, _ = applications(starts, rows.operator[at], np.array([m[0] for m in before], np.int64))
    trouble[at] = wrong
    src, dst, kind, operator, activation, records, start, end, flags = columns[4:]
    # An edge is inside what was open before the row that it ends at, or leads up to.
    row = np.minimum((dst + 1) // 2 - rows.first_order, rows.rows)
    inside = innermost[np.searchsorted(at, row, side="left")]
    outer = np.array([*(mark[:2] for mark in before), (-1, -1)], np.int64)
    mark = np.append(at, 0)[np.maximum(inside, 0)]
    number = np.where(inside >= 0, np.append(rows.operator, -1)[mark], outer[np.clip(-2 - inside, 0, len(before)), 0])
    position = np.where(inside >= 0, 2 * (rows.first_order + mark), outer[np.clip(-2 - inside, 0, len(before)), 1])
    covered = (inside != -1) & (kind != _WAITING)
    return (
        *columns[:4],
        src,
        dst,
        np.where(covered, np.int8(_APPLICATION), kind),
        np.where(covered, number, operator),
        np.where(covered, position, activation),
        records,
        start,
        end,
        np.where(covered, 0, flags),
    ), trouble


def _nullable(values: I64 | I8) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values < 0)


def _names(values: I64 | I8, names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(values), pa.array(names)).cast(pa.string())


def _epochs(rows: WorkerRows, open_epoch: int) -> I64:
    """Epochs of the rows, and of the vertex after the last: inserted vertices carry that of the event they precede."""
    # The run's end moves while the run goes on: its vertices never belong to an epoch that is closed, whatever the
    # worker logged last. After the end of an epoch it is in the next one, though it logged nothing of it.
    end = max(open_epoch, int(rows.epoch[-1]) + int(rows.kind[-1] == EPOCH_END)) if rows.rows else open_epoch
    return np.append(rows.epoch, end)


def _vertices(rows: WorkerRows, columns: tuple[I64 | I8, ...], epochs: I64) -> pa.Table:
    row, pos, t, segment = columns[:4]
    real = row >= 0
    at = np.where(real, row, 0)
    epoch = epochs[np.minimum((pos + 1) // 2 - rows.first_order, rows.rows)]
    names = [*KINDS, VertexKind.ARRIVAL, VertexKind.RUN_START, VertexKind.RUN_END]
    inserted = len(KINDS)
    kind = np.where(real, rows.label[at] if rows.rows else 0, 0)
    for offset, code in enumerate((INSERTED_ARRIVAL, INSERTED_START, INSERTED_END)):
        kind[row == code] = inserted + offset
    base = np.int64(rows.worker) << POSITION_BITS
    nothing = np.full(len(pos), -1, np.int64)
    return pa.Table.from_arrays(
        [
            pa.array(pos + base),
            pa.array(np.full(len(pos), rows.worker, np.int32)),
            pa.array(pos),
            pa.array(rows.seq[at] if rows.rows else nothing, mask=~real),
            pa.array(epoch),
            pa.array(t),
            _names(kind.astype(np.int8), [str(name) for name in names]),
            _nullable(np.where(real, rows.operator[at] if rows.rows else nothing, -1)),
            pa.array(segment + base),
        ],
        schema=PAG_VERTICES,
    )


def _local_edges(rows: WorkerRows, columns: tuple[I64 | I8, ...], epochs: I64, previous_epoch: int) -> pa.Table:
    src, dst, kind, operator, activation, records, start, end, flags = columns[4:]
    base = np.int64(rows.worker) << POSITION_BITS
    at_src, at_dst = (np.minimum((p + 1) // 2 - rows.first_order, rows.rows) for p in (src, dst))
    count = len(src)
    nothing = pa.nulls(count, pa.int64())
    return pa.Table.from_arrays(
        [
            pa.array(src + base),
            pa.array(dst + base),
            _names(kind, _TYPE_NAMES),
            pa.array(epochs[at_dst]),
            pa.array(np.where(at_src < 0, previous_epoch, epochs[np.maximum(at_src, 0)])),
            pa.array(start),
            pa.array(end - start),
            _nullable(operator),
            pa.array(activation + base, mask=activation < 0),
            nothing,
            _nullable(records),
            nothing,
            nothing,
            nothing,
            nothing,
            pa.array(flags.astype(np.int32)),
            pa.array(np.zeros(count, np.int32)),
        ],
        schema=PAG_EDGES,
    )


def _messages(rows: WorkerRows, judged: Judged, rules_of_run: RuleSet) -> pa.Table:
    """One edge per message from another worker that is read here: to the end of the wait that it ended, or its read."""
    at = np.flatnonzero((rows.sent != NEVER) & (rows.peer != rows.worker))
    base = np.int64(rows.worker) << POSITION_BITS
    read = base | 2 * (at + rows.first_order)
    sent = rows.sent[at]
    end, dst, epoch = rows.t[at].copy(), read.copy(), rows.epoch[at].copy()
    alternatives = np.zeros(len(at), np.int32)
    position = np.searchsorted(at, judged.ender)
    end[position] = judged.arrival
    dst[position] = base | judged.wait_pos
    epoch[position] = rows.epoch[judged.wait_row]
    alternatives[position] = judged.alternatives
    same = judged.same_process[at] == 1
    # In one process a message lies in the reader's memory from the moment it is sent. From another process nobody
    # logged the arrival: when the message ended a wait, the unpark bounds it; otherwise it is not known.
    negative = rows.t[at] < sent
    # A source that states its activities says itself when messages arrive.
    says = rules_of_run is RuleSet.STATED
    buffered = np.zeros_like(sent) if says else rows.t[at] - np.where(same, sent, end)
    unknown = negative | ~(says | same | np.isin(np.arange(len(at)), position))
    flags = np.full(len(at), 0 if says else int(EdgeFlags.INEXACT_ARRIVAL), np.int32)
    flags[negative] |= int(EdgeFlags.NEGATIVE)
    kind = np.where(rows.kind[at] == PROGRESS_RECEIVE, _PROGRESS, _DATA).astype(np.int8)
    if len(rows.activity):
        stated_type = rows.activity[at]
        kind = np.where(np.isin(stated_type, _MESSAGES), stated_type, kind).astype(np.int8)
    nothing = pa.nulls(len(at), pa.int64())
    return pa.Table.from_arrays(
        [
            pa.array(rows.send_id[at]),
            pa.array(dst),
            _names(kind, _TYPE_NAMES),
            pa.array(epoch),
            pa.array(rows.send_epoch[at]),
            pa.array(sent),
            pa.array(end - sent),
            nothing,
            nothing,
            _nullable(rows.channel[at]),
            _nullable(rows.records[at]),
            _nullable(rows.bytes[at]),
            nothing,
            pa.array(buffered, mask=unknown),
            pa.array(read),
            pa.array(flags),
            pa.array(alternatives),
        ],
        schema=PAG_EDGES,
    )


def _never_stopped(plan: RunPlan, rows: WorkerRows, carry: Carry) -> list[pa.Table]:
    """Return findings about activities that are open where a worker's log ends, in whatever slice they started."""
    if not rows.ends_run:
        return []
    before = carry.activities.get(rows.worker, ()), carry.applications.get(rows.worker, ())
    here = _RULES[plan.rules].marks(rows), _marks(rows)
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
                    vertex=[rows.worker << POSITION_BITS | mark[1] for mark in left],
                    seq=[mark[-1] for mark in left],
                    file=[plan.log.file_of(rows.worker, mark[1] // 2 - 1) for mark in left],
                )
            )
    return result


def _birth(rows: WorkerRows, columns: tuple[I64 | I8, ...], birth: Spawn, epochs: I64) -> pa.Table:
    """Return the edge from the row that starts a worker to the worker's first vertex."""
    pos, t = int(columns[1][0]), int(columns[2][0])
    born = rows.worker << POSITION_BITS | pos
    return pa.Table.from_pylist(
        [
            {
                "src": birth.worker << POSITION_BITS | birth.pos,
                "dst": born,
                "type": str(ActivityType.SPAWN),
                "epoch": int(epochs[(pos + 1) // 2 - rows.first_order]),
                "src_epoch": birth.epoch,
                "start_ns": birth.t,
                "duration_ns": t - birth.t,
                "read": born,
                "flags": int(EdgeFlags.NONE),
                "alternatives": 0,
            }
        ],
        schema=PAG_EDGES,
    )


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
            file=[plan.log.file_of(s.worker, s.pos // 2 - 1) for s in which],
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
    plan: RunPlan, rows: WorkerRows, judged: timely.TimelyJudged | stated.StatedJudged, applied: I8
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
                    file=[plan.log.file_of(rows.worker, int(row) + rows.first_order - 1) for row in at],
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
    if isinstance(judged, timely.TimelyJudged):
        paired = judged.dropped > 0
        paired[judged.parks] = paired[judged.unparks] = True
        alone = np.flatnonzero((rows.kind == PARK) & ~paired)
        report("park_without_unpark", Severity.WARNING, "the time after it is unknown", alone)
        report("unpark_without_park", Severity.WARNING, "ignored", np.flatnonzero((rows.kind == UNPARK) & ~paired))
    else:
        lost = judged.dismissed
        report("wait_without_ender", Severity.WARNING, "no message ends it; typed unknown", lost)
        starts = rows.kind == START
        odd = np.flatnonzero(starts & np.isin(rows.activity, _MESSAGES))
        report("start_of_message_type", Severity.WARNING, "no activity of a worker is of this type; typed unknown", odd)
        parks = np.flatnonzero((rows.kind == PARK) | (rows.kind == UNPARK))
        report("park_in_stated_trace", Severity.WARNING, "ignored; waits are stated as activities", parks)
        late = np.flatnonzero((rows.kind == STOP) & (rows.records >= 0))
        report("records_on_stop", Severity.WARNING, "ignored; records are stated where an activity starts", late)
    alive = rows.rows if rows.ends_run else rows.rows + 1
    early = np.flatnonzero(rows.kind[: alive - 1] == EXIT)
    report("exit_before_last_event", Severity.WARNING, "ignored; the worker goes on", early)
    negative = np.flatnonzero((rows.sent != NEVER) & (rows.t < rows.sent) & (rows.peer != rows.worker))
    report(
        "negative_transfer",
        Severity.WARNING,
        "kept and flagged; it ends no wait",
        negative,
        rows.t[negative] - rows.sent[negative],
        np.zeros(len(negative), np.int64),
    )
    return result
