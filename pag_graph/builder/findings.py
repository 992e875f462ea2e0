"""All findings of a build: what was odd about the trace, and what was made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from pag_graph.builder.rule_choice import INFERRED_WAITS
from pag_graph.builder.scan import application_stack, cut_by_gaps
from pag_graph.builder.state import still_open
from pag_graph.kernels.activations import CLOSES_NOTHING, CLOSES_OUTER, CUT_BY_GAP, OPEN
from pag_graph.kernels.messages import EVERYONE
from pag_graph.model.enums import Severity
from pag_graph.model.ids import MAX_POSITION, POSITION_BITS
from pag_graph.rules.protocol import Remark
from pag_graph.rules.registry import wait_rules
from pag_graph.rules.rows import EXIT, Stack, Survey, WorkerRows, application_marks, application_types
from pag_graph.store.findings import findings, no_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.builder.epochs import Windows
    from pag_graph.builder.plan import RunPlan
    from pag_graph.builder.state import Life, RunState, Spawn, WorkerState

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]


_COMES_BACK = "what was open at the exit ended there; the time up to the next event is unknown"

# --- Rows of one worker -----------------------------------------------------------------------------------------------


class WorkerRemarks(NamedTuple):
    """What was found out about the rows of one worker."""

    rows: WorkerRows
    """The rows."""
    survey: Survey
    """What the rules say of them."""
    judged: Any
    """What the rules made of their waits."""
    applied: I8
    """Per row: what is wrong with a start or stop of an application activity."""
    negative: I64
    """Rows that read a message before it was sent."""


def of_rows(plan: RunPlan, remarks: WorkerRemarks) -> list[pa.Table]:
    """Return findings about the rows of one worker, each with what the build made of it.

    Parameters
    ----------
    plan, remarks
        The build, and what was found out.

    Returns
    -------
    list of Table
        Rows of `PAG_FINDINGS`, a table per kind of finding that occurs.
    """
    rows, survey, judged, applied, negative = remarks
    warning = Severity.WARNING
    stray_stop, stop_of_outer = (np.flatnonzero(judged.trouble == code) for code in (CLOSES_NOTHING, CLOSES_OUTER))
    remarks_of_worker = [
        Remark("stop_without_start", warning, "ignored; the time before it has the type of what was open", stray_stop),
        Remark("stop_of_outer_activation", warning, "closed the activations inside it as well", stop_of_outer),
    ]
    # An activation that is open before missing rows, or at an exit, has no stop after them.
    # These are the greatest two of the codes.
    not_stopped = np.flatnonzero(judged.trouble >= (OPEN if rows.ends_log else CUT_BY_GAP))
    remarks_of_worker.append(
        Remark("activation_not_stopped", Severity.INFO, "typed by what the log shows of it", not_stopped)
    )
    stray_stop, stop_of_outer = (np.flatnonzero(applied == code) for code in (CLOSES_NOTHING, CLOSES_OUTER))
    remarks_of_worker += [
        Remark("application_stop_without_start", warning, "ignored", stray_stop),
        Remark(
            "application_stop_of_outer", warning, "closed the application activities inside it as well", stop_of_outer
        ),
        Remark("application_of_other_type", warning, "typed application", _of_other_type(rows)),
        *wait_rules(plan.rules).extra_findings(rows, survey, judged),
    ]
    early_exits = np.flatnonzero(rows.kind[: max(rows.rows - int(rows.ends_log), 0)] == EXIT)
    remarks_of_worker.append(Remark("exit_before_last_event", warning, _COMES_BACK, early_exits))
    tables = [_of_remark(plan, rows, remark) for remark in remarks_of_worker if len(remark.rows)]
    if len(negative):
        transfer = rows.t[negative] - rows.sent[np.searchsorted(rows.reads, negative)]
        remark = Remark("negative_transfer", warning, "kept and flagged; it ends no wait", negative)
        tables.append(_of_remark(plan, rows, remark, observed=transfer, limit=np.zeros_like(transfer), unit="ns"))
    return tables


def after_exit(plan: RunPlan, rows: WorkerRows, before: WorkerState) -> list[pa.Table]:
    """Return the finding that a worker had ended right before some rows, where that was not known to be its last row.

    Parameters
    ----------
    plan, rows
        The build, and rows of the worker in a slice.
    before
        Where the worker stands before the slice: at an exit, if its log ended there when that was read.

    Returns
    -------
    list of Table
        Rows of `PAG_FINDINGS`, at most one. Where the log was known to go on, `of_rows` has told it.
    """
    if before.exit_ns is None or before.last_row is None or not rows.rows:
        return []
    return [
        findings(
            "exit_before_last_event",
            Severity.WARNING,
            _COMES_BACK,
            rows=1,
            worker=rows.worker,
            vertex=[rows.worker << POSITION_BITS | 2 * before.rows],
            seq=[before.last_row.seq],
            file=plan.log.files_of(rows.worker, np.array([before.rows - 1])),
        )
    ]


def _of_other_type(rows: WorkerRows) -> NDArray[np.int64]:
    """Return the rows that start an activity of the program of a type that none has."""
    marks = application_marks(rows)
    return marks.row[marks.starts & application_types(rows, marks)[1]]


def _of_remark(plan: RunPlan, rows: WorkerRows, remark: Remark, **columns: Any) -> pa.Table:
    row_numbers = remark.rows
    return findings(
        remark.name,
        remark.severity,
        remark.action,
        rows=len(row_numbers),
        worker=rows.worker,
        vertex=np.int64(rows.worker) << POSITION_BITS | 2 * (row_numbers + rows.first_order),
        seq=rows.seq[row_numbers],
        file=plan.log.files_of(rows.worker, row_numbers + rows.first_order - 1),
        **columns,
    )


def never_stopped(plan: RunPlan, rows: WorkerRows, survey: Survey, before: WorkerState) -> list[pa.Table]:
    """Return findings about activities open where a worker's log ends or lacks rows.

    Parameters
    ----------
    plan
        The build.
    rows, survey
        Rows of the worker in a slice, and what the rules say of them.
    before
        Where the worker stands before the slice: they may have started in an earlier one.

    Returns
    -------
    list of Table
        Rows of `PAG_FINDINGS`, one per activity.
    """
    to_the_end = "goes on to the end of the worker's log"
    activity, application = "activation_not_stopped", "application_not_stopped"
    stacks: list[tuple[str, Stack, str]] = [
        (
            application,
            cut_by_gaps(rows, before.applications),
            "ends where rows of the worker's log are missing, or at its exit",
        )
    ]
    if rows.ends_run:
        stacks.append((activity, still_open(before.activities, survey.marks), to_the_end))
        stacks.append((application, still_open(before.applications, application_stack(rows)), to_the_end))
    result = []
    for name, open_activities, action in stacks:
        if open_activities:
            result.append(
                findings(
                    name,
                    Severity.INFO,
                    action,
                    rows=len(open_activities),
                    worker=rows.worker,
                    vertex=[rows.worker << POSITION_BITS | activity.pos for activity in open_activities],
                    seq=[activity.seq for activity in open_activities],
                    file=plan.log.files_of(
                        rows.worker, np.array([activity.pos // 2 - 1 for activity in open_activities])
                    ),
                )
            )
    return result


# --- Messages ---------------------------------------------------------------------------------------------------------


def without_send(plan: RunPlan, receives: pl.DataFrame) -> pa.Table:
    """Return a finding per read that nobody sent, as far as the logs tell.

    Parameters
    ----------
    plan, receives
        The build, and the reads, columns `RECEIVES`.

    Returns
    -------
    Table
        Rows of `PAG_FINDINGS`, by worker and order.
    """
    if not receives.height:
        return no_findings()
    lost = receives.sort("worker", "order")
    order, worker = lost["order"].to_numpy(), lost["worker"].to_numpy()
    return findings(
        "receive_without_send",
        Severity.WARNING,
        "kept as an event without an edge; it ends no wait",
        rows=lost.height,
        worker=worker,
        vertex=worker << POSITION_BITS | 2 * order,
        seq=lost["seq"].to_numpy(),
        file=plan.log.files_of(worker, order - 1),
    )


def without_receive(plan: RunPlan, sends: pl.DataFrame, lives: Mapping[int, Life]) -> list[pa.Table]:
    """Return a finding per send that not all its receivers have read.

    A broadcast is due at the workers that were alive when it was sent: those that joined later, or had left, need not
    have read it.

    Parameters
    ----------
    plan, sends
        The build, and the sends by vertex, columns `SENDS`.
    lives
        Workers that come or go while the run lasts.

    Returns
    -------
    list of Table
        Empty, or one table of `PAG_FINDINGS`, in the order of `sends`.
    """
    if lives:
        sends = sends.with_columns(missing=_missing_reads(sends, lives)).filter(pl.col("missing") > 0)
    if not sends.height:
        return []
    ids = sends["id"].to_numpy()
    worker, order = ids >> POSITION_BITS, (ids & MAX_POSITION) // 2
    finding = findings(
        "send_without_receive",
        Severity.WARNING,
        "kept as an event; receivers that did not log it have no edge",
        rows=sends.height,
        worker=worker,
        vertex=ids,
        seq=sends["seq"].to_numpy(),
        file=plan.log.files_of(worker, order - 1),
        observed=sends["missing"].to_numpy(),
        limit=0,
        unit="messages",
    )
    return [finding]


def _missing_reads(sends: pl.DataFrame, lives: Mapping[int, Life]) -> pl.Series:
    """Return how many reads of sends are missing, without those of workers that were not alive."""
    t, missing = sends["t"].to_numpy(), sends["missing"].to_numpy()
    absent = np.zeros(len(t), np.int64)
    for life in lives.values():
        absent += (t < life.begin_ns) | (t > (np.inf if life.exit_ns is None else life.exit_ns))
    absent[sends["receiver"].to_numpy() != EVERYONE] = 0
    return pl.Series("missing", np.where(missing > 0, np.maximum(missing - absent, 0), missing))


# --- Lives and names --------------------------------------------------------------------------------------------------

_ODD_SPAWNS = {
    "spawn_of_nobody": "kept as an event without an edge; the worker that it names logged nothing",
    "spawned_after_birth": "kept as an event without an edge; the worker logged something before",
    "spawned_twice": "kept as an event without an edge; the earliest spawn is the birth",
}


def of_lives(
    plan: RunPlan, state: RunState, births: Mapping[int, Spawn], odd: Mapping[str, list[Spawn]]
) -> list[pa.Table]:
    """Return findings about rows that spawn nobody, and workers that nobody spawned though others were.

    Parameters
    ----------
    plan, state
        The build, and where the run stands at its end.
    births, odd
        As of `births_of`.

    Returns
    -------
    list
        Rows of `PAG_FINDINGS`.
    """
    result = [
        findings(
            name,
            Severity.WARNING,
            _ODD_SPAWNS[name],
            rows=len(spawns),
            worker=[spawn.worker for spawn in spawns],
            vertex=[spawn.worker << POSITION_BITS | spawn.pos for spawn in spawns],
            seq=[spawn.seq for spawn in spawns],
            file=plan.log.files_of(
                np.array([spawn.worker for spawn in spawns]), np.array([spawn.pos // 2 - 1 for spawn in spawns])
            ),
            observed=[spawn.child for spawn in spawns],
            unit="worker",
        )
        for name, spawns in sorted(odd.items())
    ]
    # In a run without spawns all workers exist from the beginning.
    begins = {worker: first.t for worker in plan.workers if (first := state.worker(worker).first) is not None}
    orphans = [worker for worker in plan.workers if births and worker not in births and begins.get(worker, 0) > 0]
    if orphans:
        result.append(
            findings(
                "worker_without_spawn",
                Severity.INFO,
                "its time from the run's origin to its first event is unknown",
                rows=len(orphans),
                worker=orphans,
                observed=[begins[worker] for worker in orphans],
                unit="ns",
            )
        )
    return result


def unknown_names(plan: RunPlan, state: RunState) -> list[pa.Table]:
    """Return findings about operators and channels that events refer to and the trace's tables do not name.

    A source without a table of operators, or of channels, names none of them, and gets no findings.

    Parameters
    ----------
    plan, state
        The build, and where the run stands at its end.

    Returns
    -------
    list of Table
        Rows of `PAG_FINDINGS`, one per number.
    """
    result = []
    for kind, table, numbers in (
        ("operator", plan.trace.operators, state.operators),
        ("channel", plan.trace.channels, state.channels),
    ):
        missing = sorted(numbers.difference(table[kind].to_pylist())) if table.num_rows else []
        if missing:
            result.append(
                findings(
                    f"unknown_{kind}",
                    Severity.WARNING,
                    "shown by its number; the trace does not name it",
                    rows=len(missing),
                    file=f"{kind}s.parquet",
                    observed=missing,
                    unit=kind,
                )
            )
    return result


# --- The log as a whole -----------------------------------------------------------------------------------------------


def of_epochs(span: Windows) -> list[pa.Table]:
    """Say which epochs lack an end.

    Parameters
    ----------
    span
        The windows of the run.

    Returns
    -------
    list of Table
        Rows of `PAG_FINDINGS`: one if no end was logged, and one per epoch that only some workers ended.
    """
    result = []
    if span.inferred:
        action = "the last event of each epoch stands in for its end"
        result.append(findings("epoch_end_not_logged", Severity.WARNING, action))
    if span.unfinished:
        action = "counted as shutdown; it has no round"
        count = len(span.unfinished)
        result.append(
            findings("epoch_incomplete", Severity.WARNING, action, rows=count, observed=span.unfinished, unit="epoch")
        )
    return result


def of_log(plan: RunPlan) -> list[pa.Table]:
    """Say what the log as a whole lacks.

    Parameters
    ----------
    plan
        The build.

    Returns
    -------
    list of Table
        Rows of `PAG_FINDINGS`: those of the trace's reader first.
    """
    result = [plan.trace.findings, *of_clocks(plan)]
    if not plan.trace.meta.complete:
        action = "built as far as it goes; what is younger than its last event is not known"
        result.append(findings("log_cut_short", Severity.WARNING, action, file="meta.json"))
    if plan.idle_inferred:
        action = "the log does not say when the worker had nothing to do; its waits are inferred from what it did"
        workers = list(plan.workers)
        result.append(findings(INFERRED_WAITS, Severity.WARNING, action, rows=len(workers), worker=workers))
    for scope in plan.trace.meta.missing_progress:
        action = f"nobody listened to the progress of scope {scope}: waits for it are typed input_wait or unknown"
        result.append(findings("progress_not_registered", Severity.WARNING, action, file="meta.json"))
    return result


def of_clocks(plan: RunPlan) -> list[pa.Table]:
    """Say how the messages moved the clocks, and where they could not tell.

    Parameters
    ----------
    plan
        The build.

    Returns
    -------
    list of Table
        Rows of `PAG_FINDINGS`, one per worker, and one if no clocks fit all messages; empty if nobody asked them.
    """
    if plan.estimate is None:
        return []
    estimate = plan.estimate
    recorded = dict(
        zip(plan.trace.workers["worker"].to_pylist(), plan.trace.workers["offset_ns"].to_pylist(), strict=True)
    )
    bounds = {w: bound for w, bound in estimate.uncertainty_ns.items() if bound is not None}
    unbounded = [w for w in plan.workers if w not in bounds]

    def moved(workers: Iterable[int]) -> list[int]:
        return [estimate.clocks[w].offset_ns - recorded[w] for w in workers]

    action = "moved by `observed`; off by `limit` at most from the first worker's clock"
    result = [
        findings(
            "clock_estimated",
            Severity.INFO,
            action,
            rows=len(bounds),
            worker=list(bounds),
            observed=moved(bounds),
            limit=list(bounds.values()),
            unit="ns",
        )
    ]
    if unbounded:
        action = "moved by `observed`; messages do not bound it from both sides, so nobody knows how far off it is"
        result.append(
            findings(
                "clock_not_bounded",
                Severity.WARNING,
                action,
                rows=len(unbounded),
                worker=unbounded,
                observed=moved(unbounded),
                unit="ns",
            )
        )
    if estimate.margin_ns is not None and estimate.margin_ns < 0:
        action = "no clocks that run evenly satisfy all messages; those that do not fit are flagged negative"
        result.append(
            findings(
                "clocks_contradict_messages", Severity.ERROR, action, rows=1, observed=[estimate.margin_ns], unit="ns"
            )
        )
    return result
