"""The three steps of a `timely` build on one slice: scan, carry, assemble.

``scan`` matches what lies inside the slice and summarises the rest; after the leftovers of all slices are stitched,
``carry`` says which segment is open where the slice ends, and ``assemble`` makes its vertices and edges. Each step
reads the slice anew, so that memory is bounded by the slice and any task can do any slice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.kernels.activations import (
    CLOSES_NOTHING,
    CLOSES_OUTER,
    EPOCH_END,
    OPEN,
    PARK,
    PROGRESS_RECEIVE,
    UNPARK,
    activations,
    idle_intervals,
)
from pag_graph.kernels.applications import applications, unbalanced
from pag_graph.kernels.assembly import INSERTED_ARRIVAL, INSERTED_END, INSERTED_START
from pag_graph.model.enums import ActivityType, EdgeFlags, Severity, VertexKind
from pag_graph.model.graph import GraphPart
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_EDGES, PAG_VERTICES
from pag_graph.pag.match import apply_stitched, match
from pag_graph.rules.timely import (
    APPLICATION_START,
    APPLICATION_STOP,
    CODE_OF_LABEL,
    DROPPED,
    KINDS,
    LABELS,
    LOCAL_EDGE_TYPES,
    NEVER,
    Judged,
    WorkerRows,
    dropped_rows,
    judge,
    worker_graph,
)
from pag_graph.store.findings import findings, no_findings
from pag_graph.store.log import codes, column
from pag_graph.store.trace import check_events

if TYPE_CHECKING:
    from collections.abc import Mapping

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

_EDGE_TYPES = [
    *LOCAL_EDGE_TYPES,
    ActivityType.DATA_MESSAGE,
    ActivityType.PROGRESS_MESSAGE,
    ActivityType.APPLICATION,
]
_WAITING = LOCAL_EDGE_TYPES.index(ActivityType.WAITING)
_DATA, _PROGRESS, _APPLICATION = range(len(LOCAL_EDGE_TYPES), len(_EDGE_TYPES))

Applications = tuple[tuple[int, int], ...]
"""Application activities that are open, outermost first: number of each, and position of the vertex that started it."""


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
    marks: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Per worker: number and position of starts of application activities, and number and -1 of stops, in order;
    those that cancel each other inside the slice are left out."""
    unsettled: Mapping[int, tuple[int | None, int | None]] = field(default_factory=dict)
    """Per worker: epoch of its last idle interval, and of the first activation that is open at the end, if any. What
    follows in the log may still change how they are typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carry:
    """What is open where a slice begins, per worker."""

    tails: Mapping[int, Tail] = field(default_factory=dict)
    segments: Mapping[int, int] = field(default_factory=dict)
    """Position of the vertex that starts the open segment."""
    applications: Mapping[int, Applications] = field(default_factory=dict)
    """Application activities that are open."""
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
    for worker, (low, high) in sorted(part.rows.items()):
        table = plan.log.read(worker, low, high, _COLUMNS)
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
            )
        )
    return result


def scan(plan: RunPlan, part: Slice) -> Scan:
    """Match what lies inside a slice, and summarise what reaches beyond it."""
    rows = read_rows(plan, part)
    sends, receives = match(rows, slice_number=part.number, workers=len(plan.workers))
    tails, marks, unsettled = {}, {}, {}
    epochs = []
    for mine in rows:
        parks, unparks, _ = idle_intervals(mine.kind)
        kept = np.flatnonzero(dropped_rows(mine, parks, unparks) == 0)
        trouble = activations(mine.kind, mine.operator, mine.records)[3]
        if len(kept):
            last = int(kept[-1])
            depth = int((trouble == OPEN).sum())
            tails[mine.worker] = Tail(
                pos=2 * (mine.first_order + last), t=int(mine.t[last]), epoch=int(mine.epoch[last]), depth=depth
            )
        epochs.append(_epoch_rows(mine, kept))
        if left := _marks(mine):
            marks[mine.worker] = left
        open_ = np.flatnonzero(trouble == OPEN)
        last_unpark = int(mine.epoch[unparks[-1]]) if len(unparks) else None
        unsettled[mine.worker] = (last_unpark, int(mine.epoch[open_[0]]) if len(open_) else None)
    return Scan(
        slice_number=part.number,
        epochs=pl.concat(epochs) if epochs else pl.DataFrame(),
        tails=tails,
        sends=sends,
        receives=receives,
        marks=marks,
        unsettled=unsettled,
    )


def _marks(rows: WorkerRows) -> tuple[tuple[int, int], ...]:
    at, starts = _application_rows(rows)
    left = unbalanced(starts, rows.operator[at])
    position = np.where(starts, 2 * (rows.first_order + at), -1)
    return tuple(zip(rows.operator[at][left].tolist(), position[left].tolist(), strict=True))


def _application_rows(rows: WorkerRows) -> tuple[I64, NDArray[np.bool_]]:
    at = np.flatnonzero((rows.kind == APPLICATION_START) | (rows.kind == APPLICATION_STOP))
    return at, rows.kind[at] == APPLICATION_START


def open_applications(before: Applications, marks: tuple[tuple[int, int], ...]) -> Applications:
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
    number, position = (np.array(values, np.int64) for values in zip(*marks, strict=True))
    outer = np.array([number for number, _ in before], np.int64)
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
        pl.col("pos").filter(pl.col("ends")).last().alias("end_pos"),
        pl.col("pos").filter(pl.col("kept")).last().alias("last_pos"),
        pl.col("t").filter(pl.col("kept")).last().alias("last_ns"),
    )


def _judged(plan: RunPlan, part: Slice, carry: Carry) -> list[tuple[WorkerRows, Judged]]:
    rows = read_rows(plan, part)
    match(rows, slice_number=part.number, workers=len(plan.workers))
    if carry.stitched is not None and carry.stitched.height:
        apply_stitched(rows, carry.stitched)
    return [(mine, judge(mine, plan.processes, plan.uncertainty, plan.parameters)) for mine in rows]


def last_segments(plan: RunPlan, part: Slice, carry: Carry) -> dict[int, int]:
    """Return, per worker, the position of the vertex that starts the last segment that begins in a slice.

    Parameters
    ----------
    plan, part
        The build and the slice.
    carry
        Its stitched messages.

    Returns
    -------
    dict
        Workers whose open segment stays the one from before are absent.
    """
    result = {}
    for rows, judged in _judged(plan, part, carry):
        segment = judged.last_segment(rows)
        if segment < 0 and rows.starts_run:
            segment = first_position(rows, judged.dropped)
        if segment >= 0:
            result[rows.worker] = segment
    return result


def first_position(rows: WorkerRows, dropped: NDArray[np.int8]) -> int:
    """Return the position of a worker's very first vertex: its first event, or the run's origin before it."""
    kept = np.flatnonzero(dropped == 0)
    if not len(kept):
        return 1
    first = int(kept[0])
    return 2 * (rows.first_order + first) - int(rows.t[first] > 0)


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
        tail = carry.tails.get(rows.worker)
        columns = worker_graph(
            rows,
            judged,
            previous=(tail.pos, tail.t) if tail else (-1, 0),
            segment=carry.segments.get(rows.worker, -1),
            run_end_ns=plan.end_ns,
        )
        previous_epoch = tail.epoch if tail else -1
        epochs = _epochs(rows, open_epoch)
        columns, trouble = _with_applications(rows, columns, carry.applications.get(rows.worker, ()))
        vertices.append(_vertices(rows, columns, epochs))
        edges.extend((_local_edges(rows, columns, epochs, previous_epoch), _messages(rows, judged)))
        found.extend(_findings(plan, rows, judged, trouble))
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
    rows: WorkerRows, columns: tuple[I64 | I8, ...], before: Applications
) -> tuple[tuple[I64 | I8, ...], I8]:
    """Lay application activities over everything but waiting; return also what is wrong with each row."""
    at, starts = _application_rows(rows)
    trouble = np.zeros(rows.rows, np.int8)
    if not len(at) and not before:
        return columns, trouble
    innermost, _, wrong, left = applications(starts, rows.operator[at], np.array([n for n, _ in before], np.int64))
    trouble[at] = wrong
    if rows.ends_run:
        trouble[at[left[left >= 0]]] = OPEN
    src, dst, kind, operator, activation, records, start, end, flags = columns[4:]
    # An edge is inside what was open before the row that it ends at, or leads up to.
    row = np.minimum((dst + 1) // 2 - rows.first_order, rows.rows)
    inside = innermost[np.searchsorted(at, row, side="left")]
    outer = np.array([*before, (-1, -1)], np.int64)
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
            _names(kind, [str(name) for name in _EDGE_TYPES]),
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


def _messages(rows: WorkerRows, judged: Judged) -> pa.Table:
    """One edge per message from another worker that is read here: to the end of the wait that it ended, or its read."""
    at = np.flatnonzero((rows.sent != NEVER) & (rows.peer != rows.worker))
    base = np.int64(rows.worker) << POSITION_BITS
    read = base | 2 * (at + rows.first_order)
    sent = rows.sent[at]
    end, dst, epoch = rows.t[at].copy(), read.copy(), rows.epoch[at].copy()
    alternatives = np.zeros(len(at), np.int32)
    ended = np.flatnonzero(judged.ender >= 0)
    position = np.searchsorted(at, judged.ender[ended])
    end[position] = judged.arrival[ended]
    dst[position] = base | (2 * (judged.unparks[ended] + rows.first_order) - 1)
    epoch[position] = rows.epoch[judged.unparks[ended]]
    alternatives[position] = judged.alternatives[ended]
    same = judged.same_process[at] == 1
    # In one process a message lies in the reader's memory from the moment it is sent. From another process nobody
    # logged the arrival: when the message ended a wait, the unpark bounds it; otherwise it is not known.
    negative = rows.t[at] < sent
    buffered = rows.t[at] - np.where(same, sent, end)
    unknown = negative | ~(same | np.isin(np.arange(len(at)), position))
    flags = np.full(len(at), int(EdgeFlags.INEXACT_ARRIVAL), np.int32)
    flags[negative] |= int(EdgeFlags.NEGATIVE)
    kind = np.where(rows.kind[at] == PROGRESS_RECEIVE, _PROGRESS, _DATA).astype(np.int8)
    nothing = pa.nulls(len(at), pa.int64())
    return pa.Table.from_arrays(
        [
            pa.array(rows.send_id[at]),
            pa.array(dst),
            _names(kind, [str(name) for name in _EDGE_TYPES]),
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


def _findings(plan: RunPlan, rows: WorkerRows, judged: Judged, applied: I8) -> list[pa.Table]:
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
    stop, other, open_ = (np.flatnonzero(applied == code) for code in (CLOSES_NOTHING, CLOSES_OUTER, OPEN))
    report("application_stop_without_start", Severity.WARNING, "ignored", stop)
    report("application_stop_of_outer", Severity.WARNING, "closed the application activities inside it as well", other)
    report("application_not_stopped", Severity.INFO, "goes on to the end of the worker's log", open_)
    paired = np.zeros(rows.rows, np.bool_)
    paired[judged.parks] = paired[judged.unparks] = True
    paired |= judged.dropped > 0
    report(
        "park_without_unpark",
        Severity.WARNING,
        "the time after it is unknown",
        np.flatnonzero((rows.kind == PARK) & ~paired),
    )
    report("unpark_without_park", Severity.WARNING, "ignored", np.flatnonzero((rows.kind == UNPARK) & ~paired))
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
