"""Reading a slice, and what of it reaches beyond it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pag_graph.builder.conflicts import another_story
from pag_graph.builder.epochs import EpochRows
from pag_graph.builder.match import apply_stitched, match
from pag_graph.builder.plan import check_memory
from pag_graph.builder.reading import check_order, nothing, read_columns, rows_after_breaks
from pag_graph.builder.state import RowAt, SliceScan, Spawn, VertexAt, WorkerScan, still_open
from pag_graph.errors import TraceFormatError
from pag_graph.kernels import NEVER, epochs
from pag_graph.kernels.activations import EPOCH_END, PARK, PUSH_PROGRESS, RECEIVE, SEND, START, STOP
from pag_graph.kernels.applications import EVERYTHING, unbalanced
from pag_graph.kernels.decoding import decode
from pag_graph.kernels.epochs import epochs_of_rows, mark_numbers
from pag_graph.rules.registry import of, wait_rules
from pag_graph.rules.rows import (
    CODE_OF_LABEL,
    EDGE_CODES,
    EXIT,
    LABELS,
    SPAWN,
    Open,
    Stack,
    Survey,
    WorkerRows,
    application_marks,
    application_types,
)
from pag_graph.runtime.threads import each
from pag_graph.store.trace_files import CONVERT_AGAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl
    from numpy.typing import NDArray

    from pag_graph.builder.plan import RunPlan, Slice
    from pag_graph.rules.rows import ApplicationMarks

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]

_COLUMNS = ("seq", "epoch", "t_ns", "kind", "operator", "channel", "peer", "message_seq")
_DETAILS = ("records", "bytes", "timeout_ns")
"""Columns that no scan looks at."""
_WORDS = {"kind": (LABELS, 0), "activity": (EDGE_CODES, -1)}
_SMALL = 1 << 16
_KIND_CODES = 1 + max(CODE_OF_LABEL.tolist())
_NONE = np.empty(0, np.int8)
_NO_TIMES = np.empty(0, np.int64)
_ALL_THERE = np.empty(0, np.uint8)


class SliceRows(NamedTuple):
    """The rows of a slice, their messages matched as far as both ends lie in it."""

    rows: list[WorkerRows]
    """Rows of each worker, ascending."""
    surveys: list[Survey]
    """The same workers."""
    sends: pl.DataFrame
    """As in `SliceScan`."""
    receives: pl.DataFrame
    """The same."""
    readers: pl.DataFrame
    """The same."""


def read_slice(plan: RunPlan, part: Slice, *, with_details: bool = True) -> SliceRows:
    """Read the rows of a slice, check that each worker's log does not contradict itself, and match its messages.

    What only sends in other slices can tell is added by `settled`.

    Parameters
    ----------
    plan, part
        The build and the slice.
    with_details
        Whether to read also what only `assemble` asks for; it is absent otherwise.

    Returns
    -------
    SliceRows
        Workers with rows in the slice, ascending.

    Raises
    ------
    TraceFormatError
        If a worker's log contradicts itself, or the slice does not fit in memory.
    StoreConflictError
        If the log is not the one that an earlier build has read.
    """
    check_memory(plan, part)
    rules = wait_rules(plan.rules)

    def read(worker: int) -> tuple[WorkerRows, Survey]:
        rows = read_rows(plan, worker, part, with_details=with_details)
        return rows, rules.survey(rows)

    surveyed = each(read, sorted(part.rows))
    rows = [worker_rows for worker_rows, _ in surveyed]
    horizon = plan.parameters.horizon_ns
    sends, receives, readers = match(rows, slice_number=part.number, workers=len(plan.workers), horizon_ns=horizon)
    return SliceRows(rows, [survey for _, survey in surveyed], sends, receives, readers)


def settled(plan: RunPlan, read: SliceRows, stitched: pl.DataFrame | None) -> SliceRows:
    """Add what other slices tell of the messages that a slice reads.

    Parameters
    ----------
    plan, read
        The build, and rows as from `read_slice`.
    stitched
        Sends of other slices for receives of this one, columns `pag_graph.builder.match.STITCHED`; None for none.

    Returns
    -------
    SliceRows
        The same rows, filled in, and what the rules now say of them: with the rules' `WaitRules.settle` a row can
        become a vertex, or none, so `scan` may tell something else of it than before.
    """
    if stitched is not None and stitched.height:
        apply_stitched(read.rows, stitched)
    rules = wait_rules(plan.rules)

    def settle(item: tuple[WorkerRows, Survey]) -> Survey:
        survey: Survey = rules.settle(*item, plan.setting)
        return survey

    return read._replace(surveys=each(settle, list(zip(read.rows, read.surveys, strict=True))))


def read_rows(plan: RunPlan, worker: int, part: Slice, *, with_details: bool = True) -> WorkerRows:
    """Read the rows of a worker in a slice, and check that they do not contradict each other.

    Parameters
    ----------
    plan
        The build.
    worker
        Whose rows.
    part
        The slice, which names the worker.
    with_details
        As for `read_slice`.

    Returns
    -------
    WorkerRows
        One element per event, on the common clock; messages are not matched yet.

    Raises
    ------
    TraceFormatError
        If they do.
    StoreConflictError
        If the row before them is not the last row of the earlier build.
    """  # noqa: DOC501  (what makes the error is taken for one)
    low, high = part.rows[worker]
    names = [*_COLUMNS, *(_DETAILS if with_details else ()), *of(plan.rules).columns]
    first = max(low - 1, 0)
    table: dict[str, Any] = read_columns(plan.log, worker, first, high, names, _WORDS)
    check_order(plan.trace, plan.log, worker, low, high, table)
    rows_done, last_row = plan.follows.get(worker, (-1, None))
    if rows_done == low and last_row is not None:
        before = (table["seq"][0], plan.clocks[worker].common(table["t_ns"])[0], table["epoch"][0])
        if before != last_row[:3]:
            # The log is not the one that was read before.
            raise another_story([last_row.epoch])
    columns = {name: values[low - first :] for name, values in table.items()}
    if not with_details:
        columns |= dict.fromkeys(_DETAILS, nothing(high - low))
    # With the row before.
    kind = np.empty(high - first, np.int8)
    decode(table["kind"], _ALL_THERE, 0, CODE_OF_LABEL, kind)
    ends_log = high == plan.log.rows_of(worker)
    return WorkerRows(
        worker=worker,
        first_order=low + 1,
        starts_run=low == 0,
        ends_log=ends_log,
        ends_run=ends_log and part.ends_run,
        before_t=int(plan.clocks[worker].common(table["t_ns"][:1])[0]) if low else NEVER,
        seq=columns["seq"],
        epoch=columns["epoch"],
        t=plan.clocks[worker].common(columns["t_ns"]),
        kind=kind[low - first :],
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
        gaps=rows_after_breaks(kind, table["seq"], gapless=plan.trace.meta.gapless) - (low - first),
        gap_follows=_gap_follows(plan, worker, high, columns["seq"]),
        arrived=_arrivals(plan, worker, columns),
    )


def _gap_follows(plan: RunPlan, worker: int, high: int, seq: I64) -> bool:
    """Say whether rows of a worker are missing between its row `high` and those before, whose numbers are given."""
    if not plan.trace.meta.gapless or not len(seq) or high >= plan.log.rows_of(worker):
        return False
    return bool(read_columns(plan.log, worker, high, high + 1, ["seq"], {})["seq"][0] != seq[-1] + 1)


def _arrivals(plan: RunPlan, worker: int, columns: Mapping[str, Any]) -> I64:
    """Return when the messages were there that rows read, on the common clock; nothing where no row says it.

    Raises
    ------
    TraceFormatError
        If a message was read before it arrived.
    """
    arrived = columns.get("arrived_ns", _NO_TIMES)
    stated = arrived != NEVER
    if not stated.any():
        return _NO_TIMES
    late_rows = np.flatnonzero(stated & (arrived > columns["t_ns"]))
    if len(late_rows):
        row = int(late_rows[0])
        seq = int(columns["seq"][row])
        message = (
            f"Worker {worker}, event {seq}: arrived_ns is {arrived[row]}, after the read at {columns['t_ns'][row]}."
        )
        raise TraceFormatError(message, CONVERT_AGAIN, {"worker": worker, "seq": seq, "column": "arrived_ns"})
    # Rows without an arrival stay NEVER; their times are not converted.
    return np.where(stated, plan.clocks[worker].common(np.where(stated, arrived, columns["t_ns"])), NEVER)


def scan(plan: RunPlan, part: Slice, read: SliceRows, *, waits: bool = True) -> SliceScan:
    """Summarise what other slices need to know of a slice.

    Parameters
    ----------
    plan, part, read
        The build, the slice and its rows.
    waits
        Whether to look for the last wait of each worker.

    Returns
    -------
    SliceScan
        O(rows).
    """
    rules, setting = wait_rules(plan.rules), plan.setting

    def look(item: tuple[WorkerRows, Survey]) -> tuple[I64, WorkerScan, list[Spawn], set[int], set[int]]:
        rows, survey = item
        operators = _numbers(rows.kind, rows.operator, (START, STOP, PUSH_PROGRESS))
        channels = _numbers(rows.kind, rows.channel, (SEND, RECEIVE))
        return _epoch_rows(rows, survey), _worker_scan(rows, survey, part), _spawns(rows), operators, channels

    looked = each(look, list(zip(read.rows, read.surveys, strict=True)))
    workers = {rows.worker: worker_scan for rows, (_, worker_scan, *_) in zip(read.rows, looked, strict=True)}
    if waits:
        for rows, survey in zip(read.rows, read.surveys, strict=True):
            wait = rules.last_wait(rows, survey, setting)
            workers[rows.worker] = replace(workers[rows.worker], wait=wait)
    return SliceScan(
        number=part.number,
        workers=workers,
        epochs=EpochRows.of([epoch_rows for epoch_rows, *_ in looked]),
        sends=read.sends,
        receives=read.receives,
        readers=read.readers,
        spawns=tuple(spawn for *_, spawns, _, _ in looked for spawn in spawns),
        operators=frozenset[int]().union(*(operators for *_, operators, _ in looked)),
        channels=frozenset[int]().union(*(channels for *_, channels in looked)),
    )


def _worker_scan(rows: WorkerRows, survey: Survey, part: Slice) -> WorkerScan:
    kept_rows = survey.dropped == 0
    first = last = last_row = None
    if kept_rows.any():
        head, tail = int(kept_rows.argmax()), rows.rows - 1 - int(kept_rows[::-1].argmax())
        first, last = (
            VertexAt(2 * (rows.first_order + row), int(rows.t[row]), int(rows.epoch[row])) for row in (head, tail)
        )
    if rows.rows:
        last_row = RowAt(int(rows.seq[-1]), int(rows.t[-1]), int(rows.epoch[-1]), int(rows.kind[-1] == EPOCH_END))
    ended = rows.ends_log and rows.rows > 0 and rows.kind[-1] == EXIT
    return WorkerScan(
        rows=part.rows[rows.worker],
        first=first,
        last=last,
        depth=survey.depth,
        activities=survey.marks,
        applications=application_stack(rows),
        last_row=last_row,
        exit_ns=int(rows.t[-1]) if ended else None,
        parks=bool((rows.kind == PARK).any()),
    )


def _numbers(kind: I8, values: I64, kinds: tuple[int, ...]) -> set[int]:
    """Say which numbers occur; small ones, as those of operators and channels are, are marked in one pass."""
    is_asked_kind = np.zeros(_KIND_CODES, np.bool_)
    is_asked_kind[list(kinds)] = True
    marked = np.zeros(_SMALL, np.bool_)
    numbers: set[int] = set()
    if mark_numbers(kind, values, is_asked_kind, marked):
        numbers_of_kinds = values[is_asked_kind[kind]]
        numbers.update(np.unique(numbers_of_kinds[numbers_of_kinds >= _SMALL]).tolist())
    numbers.update(np.flatnonzero(marked).tolist())
    return numbers


def _spawns(rows: WorkerRows) -> list[Spawn]:
    return [
        Spawn(
            worker=rows.worker,
            child=int(rows.peer[row]),
            pos=2 * (rows.first_order + int(row)),
            t=int(rows.t[row]),
            epoch=int(rows.epoch[row]),
            seq=int(rows.seq[row]),
        )
        for row in np.flatnonzero(rows.kind == SPAWN)
    ]


def application_stack(rows: WorkerRows) -> Stack:
    """Return the starts and stops of application activities that do not cancel each other.

    Parameters
    ----------
    rows
        Of one worker.

    Returns
    -------
    Stack
        In the order of the log; stops have no position. O(rows).
    """
    marks = application_marks(rows)
    return _stack(rows, marks, unbalanced(marks.starts, marks.number))


def cut_by_gaps(rows: WorkerRows, before: Stack) -> Stack:
    """Return the application activities that are open where rows are missing.

    Parameters
    ----------
    rows
        Of one worker.
    before
        Those that are open before all rows.

    Returns
    -------
    Stack
        They end there.
    """
    marks = application_marks(rows)
    gaps = np.flatnonzero(marks.number == EVERYTHING).tolist()
    cut: list[Open] = []
    open_before = before
    for first, gap in zip([0, *(gap + 1 for gap in gaps)], gaps, strict=False):
        cut += still_open(open_before, _stack(rows, marks, np.arange(first, gap)))
        open_before = ()
    return tuple(cut)


def _stack(rows: WorkerRows, marks: ApplicationMarks, chosen: I64) -> Stack:
    position = np.where(marks.starts, 2 * (rows.first_order + marks.row), -1)
    fields = (marks.number, position, rows.seq[marks.row], application_types(rows, marks)[0])
    return tuple(Open(*mark) for mark in zip(*(values[chosen].tolist() for values in fields), strict=True))


def _epoch_rows(rows: WorkerRows, survey: Survey) -> I64:
    rests = np.zeros(rows.rows, np.bool_)
    rests[survey.rests] = True
    columns = epochs_of_rows(epochs.Rows(rows.epoch, rows.t, rows.kind, survey.dropped, rests), rows.first_order)
    return np.vstack((np.full(columns.shape[1], rows.worker, np.int64), columns))
