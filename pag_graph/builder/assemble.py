"""From the rows of a slice, and what is open before them, to vertices, edges and findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pag_graph.builder.findings import WorkerRemarks, after_exit, never_stopped, of_rows
from pag_graph.builder.state import EVER, NOWHERE, Life, Spawn, VertexAt, WorkerState
from pag_graph.kernels import ABSENT, layout, reads
from pag_graph.kernels.activations import EPOCH_END, PROGRESS_RECEIVE
from pag_graph.kernels.applications import applications
from pag_graph.kernels.assembly import NO_EDGE
from pag_graph.kernels.reads import edges_of_reads
from pag_graph.kernels.traffic import sum_reads
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType, EdgeFlags
from pag_graph.model.ids import POSITION_BITS
from pag_graph.rules.protocol import Before
from pag_graph.rules.protocol import Life as Lifetime
from pag_graph.rules.registry import of, wait_rules
from pag_graph.rules.rows import (
    DROPPED,
    EDGE_CODES,
    Graph,
    Judged,
    Stack,
    Survey,
    WorkerRows,
    application_marks,
    application_types,
    is_any_of,
    opened,
)
from pag_graph.rules.worker_graphs import LocalEdges, Messages, WorkerGraph, lay_out
from pag_graph.runtime.threads import each
from pag_graph.store.findings import no_findings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pag_graph.builder.plan import RunPlan, Slice
    from pag_graph.builder.scan import SliceRows
    from pag_graph.builder.state import SliceScan
    from pag_graph.rules.graph_columns import GraphColumns

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]

_IS_MESSAGE = is_any_of(MESSAGE_TYPES)
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

_TYPE_OF_READ = np.full(PROGRESS_RECEIVE + 1, _DATA, np.int8)
"""Per kind of a row that reads a message: the type that the message has if the source states none."""
_TYPE_OF_READ[PROGRESS_RECEIVE] = _PROGRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceContext:
    """What a slice is assembled from besides its rows."""

    workers: Mapping[int, WorkerState] = field(default_factory=dict)
    """Where the workers stand before it."""
    lives: Mapping[int, Life] = field(default_factory=dict)
    """Workers that come or go while the run lasts."""
    open_epoch: int = 0
    """The first epoch that some worker has not left; asked for where the run's end is built."""


def assemble(plan: RunPlan, context: SliceContext, read: SliceRows) -> GraphColumns:
    """Make the vertices and edges of a slice.

    Parameters
    ----------
    plan, read
        The build and the slice, as `settled` returns it.
    context
        What is known besides.

    Returns
    -------
    GraphColumns
        Vertices of the slice's events, edges that end at them, and findings about them.
    """
    judged = _judged(plan, context, read)
    parts = each(
        lambda item: _worker_graph(plan, context, *item), list(zip(read.rows, read.surveys, judged, strict=True))
    )
    dropped = {
        reason: count
        for code, reason in DROPPED.items()
        if (count := sum(int(np.count_nonzero(survey.dropped == code)) for survey in read.surveys))
    }
    return lay_out(
        [graph for graph, _ in parts],
        findings=pa.concat_tables([no_findings(), *(table for _, tables in parts for table in tables)]),
        dropped=dropped,
    )


def _judged(plan: RunPlan, context: SliceContext, read: SliceRows) -> list[Any]:
    rules, setting = wait_rules(plan.rules), plan.setting

    def judge(item: tuple[WorkerRows, Survey]) -> Judged:
        rows, survey = item
        judged: Judged = rules.judge(rows, survey, setting, context.workers.get(rows.worker, NOWHERE).activities)
        return judged

    return each(judge, list(zip(read.rows, read.surveys, strict=True)))


def last_segments(plan: RunPlan, context: SliceContext, read: SliceRows) -> dict[int, int]:
    """Return, per worker, the position of the vertex that starts the last segment that begins in a slice.

    Parameters
    ----------
    plan, read
        The build and the slice, as `settled` returns it.
    context
        What is known besides, but for the segments.

    Returns
    -------
    dict
        Workers whose open segment stays the one from before are absent.
    """
    segments = {}
    for rows, survey, judged in zip(read.rows, read.surveys, _judged(plan, context, read), strict=True):
        segment = int(judged.wait_pos[-1]) if len(judged.wait_pos) else -1
        if segment < 0 and rows.starts_run:
            kept_rows = np.flatnonzero(survey.dropped == 0)
            first = (
                VertexAt(2 * (rows.first_order + int(kept_rows[0])), int(rows.t[kept_rows[0]]), 0)
                if len(kept_rows)
                else None
            )
            segment = first_position(first, born=context.lives.get(rows.worker, EVER).birth is not None)
        if segment >= 0:
            segments[rows.worker] = segment
    return segments


def known_segments(part: Slice, scan: SliceScan, births: Mapping[int, Spawn]) -> dict[int, int] | None:
    """Return what `last_segments` returns, if the scan of a slice is enough to tell.

    Parameters
    ----------
    part, scan
        The slice, and its scan.
    births
        Per worker that was spawned: the row that did it.

    Returns
    -------
    dict or None
        Per worker the position; None where the waits of one must be judged first.
    """
    waits = {worker: worker_scan.wait for worker, worker_scan in scan.workers.items()}
    if any(wait is None for wait in waits.values()):
        return None
    segments = {worker: wait for worker, wait in waits.items() if wait is not None and wait >= 0}
    for worker, (low, _) in part.rows.items():
        if low == 0 and worker not in segments:
            segments[worker] = first_position(scan.workers[worker].first, born=worker in births)
    return segments


def first_position(first: VertexAt | None, *, born: bool) -> int:
    """Return the position of a worker's very first vertex.

    Parameters
    ----------
    first
        The worker's first event; None where it has none.
    born
        Whether it was spawned.

    Returns
    -------
    int
        Position of its very first vertex: its first event, or, unless it was born with that, the run's origin before
        it.
    """
    return 1 if first is None else first.pos - int(first.t > 0 and not born)


def _worker_graph(
    plan: RunPlan, context: SliceContext, rows: WorkerRows, survey: Survey, judged: Any
) -> tuple[WorkerGraph, list[pa.Table]]:
    state, life = context.workers.get(rows.worker, NOWHERE), context.lives.get(rows.worker, EVER)
    last = state.last or VertexAt(-1, 0, -1)
    before = Before(last.pos, last.t, state.segment, state.activities)
    lifetime = Lifetime(life.birth is not None, life.exit_ns is not None, plan.end_ns)
    graph = wait_rules(plan.rules).worker_graph(rows, survey, judged, before, lifetime)
    graph, trouble = _with_applications(rows, graph, state.applications)
    # The run's end moves while the run goes on: its vertices never belong to an epoch that is closed, whatever the
    # worker logged last. After the end of an epoch it is in the next one, though it logged nothing of it.
    after = context.open_epoch
    if rows.rows:
        after = max(after, int(rows.epoch[-1]) + int(rows.kind[-1] == EPOCH_END))
    elif state.last_row is not None:
        after = max(after, state.last_row.epoch + state.last_row.ends_epoch)
    row, pos, t, segment, kind, operator, activation, records, flags = graph
    epoch = layout.epochs_at(pos, rows.epoch, rows.first_order, last.epoch, after)
    local = LocalEdges(previous=last, kind=kind, operator=operator, activation=activation, records=records, flags=flags)
    messages, negative, traffic = _messages(plan, rows, judged)
    if life.birth is not None and state.last is None and len(pos):
        birth = _birth(rows, life.birth, VertexAt(int(pos[0]), int(t[0]), int(epoch[0])))
        messages = messages.and_one(birth, _SPAWNED)
    remarks = WorkerRemarks(rows, survey, judged, trouble, negative)
    findings = [
        *of_rows(plan, remarks),
        *after_exit(plan, rows, state),
        *never_stopped(plan, rows, survey, state),
    ]
    return WorkerGraph(
        rows=rows,
        operator=rows.operator,
        row=row,
        pos=pos,
        t=t,
        segment=segment,
        epoch=epoch,
        local=local,
        messages=messages,
        traffic=traffic,
    ), findings


def _with_applications(rows: WorkerRows, graph: Graph, before: Stack) -> tuple[Graph, I8]:
    """Lay application activities over everything but waiting; return also what is wrong with each row."""
    marks = application_marks(rows)
    mark_rows, starts, marked = marks
    trouble = np.zeros(rows.rows, np.int8)
    if not len(mark_rows) and not before:
        return graph, trouble
    # States of earlier releases do not name the type.
    kinds = [activity.kind if activity.kind >= 0 else _APPLICATION for activity in before]
    outer = [activity.operator for activity in before], [activity.pos for activity in before], kinds
    innermost, _, wrong, _ = applications(starts, marked, np.array(outer[0], np.int64))
    trouble[mark_rows[wrong > 0]] = wrong[wrong > 0]
    pos, kind, operator, activation, records, flags = graph[1], *graph[4:]
    # An edge is inside what was open before the row that it ends at, or leads up to.
    row = np.minimum((pos + 1) // 2 - rows.first_order, rows.rows)
    open_activations = innermost[np.searchsorted(mark_rows, row, side="left")]
    marks_here = marked, 2 * (rows.first_order + mark_rows), application_types(rows, marks)[0]
    number, position, types = opened(open_activations, marks_here, outer, (-1, -1, -1))
    covered = (open_activations != -1) & (kind != _WAITING) & (kind != NO_EDGE)
    # Where rows are missing, what the worker did is unknown.
    crossing = np.searchsorted(row, rows.gaps)
    covered[crossing[crossing < len(row)]] = False
    return (
        *graph[:4],
        np.where(covered, types.astype(np.int8), kind),
        np.where(covered, number, operator),
        np.where(covered, position, activation),
        records,
        np.where(covered, np.int8(0), flags),
    ), trouble


def _messages(plan: RunPlan, rows: WorkerRows, judged: Judged) -> tuple[Messages, I64, I64]:
    """Make an edge per message that this worker reads from another: to the end of the wait it ended, or to its read.

    Returns
    -------
    messages
        In the order of their reads.
    negative
        Rows of messages that were read before they were sent.
    traffic
        What is read here, as `pag_graph.kernels.traffic.sum_reads` returns it; messages to itself are counted, too.
    """
    columns = reads.Rows(rows.epoch, rows.t, rows.peer, rows.channel, rows.records, rows.bytes, rows.arrived)
    read = reads.Reads(rows.reads, rows.sender, rows.send_id, rows.sent, rows.send_epoch, _types(plan, rows))
    numbers, message_rows, kind, flags = edges_of_reads(
        columns,
        read,
        reads.Waits(judged.ender, judged.arrival, judged.wait_pos, judged.wait_row, judged.alternatives),
        reads.Reader(
            rows.worker,
            rows.first_order,
            plan.processes,
            # A source that states its activities says itself when messages arrive.
            of(plan.rules).states_activities,
            int(EdgeFlags.INEXACT_ARRIVAL),
            int(EdgeFlags.NEGATIVE),
        ),
    )
    negative = (flags[:, 0] & int(EdgeFlags.NEGATIVE)) != 0
    messages = Messages(numbers=numbers, kind=kind, flags=flags)
    return messages, message_rows[negative], sum_reads(columns, read, rows.worker)


def _types(plan: RunPlan, rows: WorkerRows) -> I8:
    """Return, per row that reads a message, the type of that: its position in `EDGE_TYPES`."""
    kind: I8 = _TYPE_OF_READ[rows.kind[rows.reads]]
    if of(plan.rules).states_activities:
        stated_type = rows.activity[rows.reads]
        kind = np.where(_IS_MESSAGE[stated_type], stated_type, kind).astype(np.int8)
    return kind


def _birth(rows: WorkerRows, birth: Spawn, first: VertexAt) -> I64:
    """Return the numbers of the edge from the row that starts a worker to the worker's first vertex."""
    numbers = np.full(layout.ALL_NUMBERS, ABSENT, np.int64)
    born = rows.worker << POSITION_BITS | first.pos
    numbers[[layout.SRC, layout.DST, layout.READ]] = birth.worker << POSITION_BITS | birth.pos, born, born
    numbers[[layout.DST_EPOCH, layout.SRC_EPOCH]] = first.epoch, birth.epoch
    numbers[[layout.START, layout.DURATION]] = birth.t, first.t - birth.t
    return numbers
