"""From a trace to a committed store: scan, stitch, carry, assemble, commit.

The same functions run in this process and in Spark tasks; an `Engine` says where. Nothing is visible before the last
commit, so a build can be killed at any moment and run again.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pag_graph.builder import in_order, slices, steps
from pag_graph.builder.engine import silent
from pag_graph.builder.epochs import Windows, epochs_table, windows
from pag_graph.builder.match import RECEIVES, SENDS
from pag_graph.builder.plan import DEFAULT_SLICE_EVENTS, RunPlan, Slice, check_memory, plan_run
from pag_graph.builder.rule_choice import choose_rules
from pag_graph.errors import StoreConflictError, StoreError, UnsupportedPlanError
from pag_graph.kernels import layout
from pag_graph.kernels.assembly import window_sums
from pag_graph.kernels.epochs import epochs_of_rows
from pag_graph.model.enums import ActivityType, EpochRole, Severity
from pag_graph.model.tables import PAG_EPOCHS, PAG_FINDINGS
from pag_graph.rules import st2
from pag_graph.rules.registry import of
from pag_graph.rules.rows import EDGE_CODES
from pag_graph.runtime import memory
from pag_graph.runtime.threads import each
from pag_graph.store.delta import StoreInfo, check_target, commit, is_committed
from pag_graph.store.findings import findings, no_findings
from pag_graph.store.in_place import refusals
from pag_graph.store.leftovers import staging as staging_of
from pag_graph.store.parts import write_part
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.builder.engine import Engine
    from pag_graph.model.enums import RuleSet
    from pag_graph.rules.graph_columns import GraphColumns
    from pag_graph.rules.rows import RuleParameters, WorkerRows
    from pag_graph.store.delta import Mode

    I64 = NDArray[np.int64]
    Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What a build did."""

    store: StoreInfo
    rows: dict[str, int]
    """Rows of every table."""
    findings: pa.Table
    """Rows of `PAG_FINDINGS`."""
    committed: bool
    """False where this very state was committed before, so that there was nothing to do."""


@memory.kept()
def build(
    trace: str | Path,
    store: str | Path,
    *,
    engine: Engine,
    rules: RuleSet | None = None,
    parameters: RuleParameters | None = None,
    force_rules: bool = False,
    mode: Mode = "error",
    slice_events: int | None = None,
    progress: Progress = silent,
) -> BuildReport:
    """Build the program activity graph of a trace and commit it to a store.

    Parameters
    ----------
    trace, store
        Directories.
    engine
        Where the tasks run.
    rules, parameters
        The rule set, the one that the trace asks for where absent, and its parameters.
    force_rules
        Build by `rules` even if the trace contradicts them (see `choose_rules`), which is then a finding.
    mode
        ``error`` refuses a store that exists, ``replace`` takes its place, ``append`` adds the epochs that every
        worker has left since.
    slice_events
        About how many events are worked on at a time; the result does not depend on it.
    progress
        Called with (label, done, all).

    Returns
    -------
    BuildReport
        The committed state and what was found.

    Raises
    ------
    TraceFormatError
        If the trace contradicts itself; nothing is written.
    StoreExistsError
        If there is a store and `mode` is ``error``.
    StoreConflictError
        If another build was faster, or an append would change epochs that are committed.
    UnsupportedPlanError
        If the trace contradicts the rules, or lacks events that they need.
    """
    opened = Trace.open(trace)
    target = Path(store).absolute()
    previous = check_target(target, mode)
    rules, forced = choose_rules(opened, rules, force=force_rules)
    kept = previous if mode == "append" else None
    if kept is not None:
        _check_workers(kept, opened)
    known = kept.run if kept is not None and "clocks" in kept.run else None
    plan = plan_run(opened, rules, parameters, slice_events=slice_events or DEFAULT_SLICE_EVENTS, known=known)
    if kept is not None and kept.run["run_id"] != plan.run_id:
        message = f"{target} holds run {kept.run['run_id']}; this trace with these rules is run {plan.run_id}."
        raise StoreConflictError(message, "Only more of the same run can be appended; use `--replace`.")
    with staging_of(target, alone=engine.in_process) as staging:
        steps = _build_islands if of(rules).epochs_are_islands else _build_sliced
        built = steps(plan, target, staging, engine, kept, progress)
        if built is None:
            return _nothing_to_do(kept)
        opened.check_same()
        found = pa.concat_tables([forced, built.findings, *(output.findings for output in built.outputs)])
        parts = {
            name: [part for output in built.outputs for part in output.parts.get(name, [])]
            for name in ("vertices", "edges")
        }
        small = {
            "operators": opened.operators,
            "channels": opened.channels,
            "workers": opened.workers,
            "findings": found,
            "epochs": built.epochs,
        }
        for name, content in small.items():
            part = write_part(target, name, content)
            parts[name] = [part] if part else []
        info = commit(
            target,
            parts,
            run={
                **plan.metadata(),
                "last_closed_epoch": built.last_closed_epoch,
                "closed_fingerprint": _fingerprints(built.outputs, "closed"),
            },
            closed_epochs=built.closed_epochs,
            dropped=_sum(output.dropped for output in built.outputs),
            events=opened.rows,
            previous=previous,
            append=kept is not None,
        )
    rows = {
        **{name: int(pc.sum(built.epochs[name]).as_py() or 0) for name in ("vertices", "edges")},
        **{name: content.num_rows for name, content in small.items()},
    }
    return BuildReport(store=info, rows=rows, findings=found, committed=True)


@memory.kept()
def construct(
    trace: str | Path,
    staging: str | Path,
    *,
    engine: Engine,
    rules: RuleSet | None = None,
    parameters: RuleParameters | None = None,
    slice_events: int | None = None,
) -> pa.Table:
    """Build the program activity graph of a trace in memory, slice by slice, and keep only what its epochs tell.

    Parameters
    ----------
    trace
        A directory.
    staging
        A directory for what slices leave to each other; it must not exist, and is gone afterwards.
    engine, rules, parameters, slice_events
        As for `build`.

    Returns
    -------
    pa.Table
        Rows of `PAG_EPOCHS`, as `build` commits them.
    """
    opened = Trace.open(trace)
    rules, _ = choose_rules(opened, rules)
    plan = plan_run(opened, rules, parameters, slice_events=slice_events or DEFAULT_SLICE_EVENTS)
    steps = _build_islands if of(rules).epochs_are_islands else _build_sliced
    try:
        built = steps(plan, None, Path(staging), engine, None, silent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    assert built is not None  # noqa: S101  (only an append can find its work done)
    return built.epochs


def _check_workers(kept: StoreInfo, trace: Trace) -> None:
    """Refuse to append a trace of other workers: the clocks of those that were there say nothing of the others.

    Raises
    ------
    StoreConflictError
        If they are others.
    """
    now = {str(worker) for worker in trace.workers["worker"].to_pylist()}
    before = set(kept.run["clocks"]["offset_ns"]) if "clocks" in kept.run else now
    if now != before:
        message = f"{kept.path} holds run {kept.run['run_id']} of {len(before)} workers; this trace has {len(now)}"
        message += ", and is of another run." if len(now) != len(before) else " others, and is of another run."
        raise StoreConflictError(message, "Only more of the same run can be appended; use `--replace`.")


def _nothing_to_do(kept: StoreInfo | None) -> BuildReport:
    assert kept is not None  # noqa: S101  (only an append can find its work done)
    rows = {name: sum(part.rows for part in kept.parts(name)) for name in kept.versions}
    found = kept.scan("findings").collect().to_arrow().cast(PAG_FINDINGS)
    return BuildReport(store=kept, rows=rows, findings=found, committed=False)


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for count in counts:
        for reason, number in count.items():
            total[reason] = total.get(reason, 0) + number
    return total


class Built(NamedTuple):
    """What the steps of a rule set give the commit."""

    outputs: list[steps.Output]
    epochs: pa.Table
    closed_epochs: int
    last_closed_epoch: int
    findings: pa.Table


def _build_sliced(
    plan: RunPlan,
    target: Path | None,
    staging: Path,
    engine: Engine,
    kept: StoreInfo | None,
    progress: Progress,
    *,
    passes: int = 1,
) -> Built | None:
    """Build slice by slice, in one pass where that can be."""
    begun = None
    if passes == 1 and in_order.applies(plan, append=kept is not None):
        begun = _begun(plan, target, staging, engine, progress)
    if begun is None:
        plan, scans = _scan(plan, staging, engine, progress)
    else:
        scans = begun.scans
    settled = None if plan.trace.meta.complete else _settled(scans)
    lives, odd = slices.lives(plan, scans)
    span = windows(
        pl.concat([scan.epochs for scan in scans]),
        end_ns=plan.end_ns,
        settled=settled,
        lives={worker: (life.begin_ns, life.exit_ns) for worker, life in lives.items()},
    )
    state = {"closed_epochs": span.closed_epochs, "last_closed_epoch": span.last_closed, "events": plan.trace.rows}
    if is_committed(kept, plan.run_id, **state):
        return None
    progress("stitch", 0, 1)
    engine.stitch(staging)
    progress("stitch", 1, 1)
    after = int(kept.run["last_closed_epoch"]) if kept is not None else None
    if begun is None:
        confirmed, label, read = [], "assemble", None
        items = list(zip(plan.slices, _carries(plan, scans, lives, staging, engine, progress), strict=True))
    else:
        made = in_order.confirmed(plan, target, staging, begun, lives, span)
        if made is None:
            shutil.rmtree(staging)
            return _build_sliced(plan, target, staging, engine, kept, progress, passes=2)
        confirmed, label, read = made, "finish", begun.read
        items = [(plan.slices[-1], replace(begun.carry, lives=lives))]
    assemble = partial(steps.assemble, plan, target, staging, span, after, read)
    outputs = [*confirmed, *engine.map(assemble, items, label=label, progress=progress)]
    table = epochs_table(
        span,
        alive_ns=_alive(plan, lives, span),
        vertices=_total(outputs, "vertices"),
        edges=_total(outputs, "edges"),
        waiting_ns=_total(outputs, "waiting_ns"),
        unknown_ns=_total(outputs, "unknown_ns"),
    )
    if kept is not None:
        _check_unchanged(kept, table, _fingerprints(outputs, "kept"))
    odd = [*odd, *slices.unknown_names(plan, scans)]
    found = pa.concat_tables([_unmatched(plan, staging), *odd, *_epoch_findings(span), *_log_findings(plan)])
    return Built(outputs, table, span.closed_epochs, span.last_closed, found)


def _begun(
    plan: RunPlan, target: Path | None, staging: Path, engine: Engine, progress: Progress
) -> in_order.Begun | None:
    """Begin a build in one pass; None, and nothing is left behind, if that cannot be."""
    steps.make_folders(staging)
    if engine.in_process:
        stretches: list[in_order.Begun | None] = [
            in_order.begin(plan, target, staging, progress, range(len(plan.slices)))
        ]
    else:
        begin = partial(_begin_there, plan, target, staging)
        parts = in_order.stretches(len(plan.slices), engine.tasks)
        stretches = engine.map(begin, parts, label="assemble", progress=progress)
    begun = in_order.gather(stretches, target)
    if begun is None:
        shutil.rmtree(staging)
    return begun


def _begin_there(plan: RunPlan, target: Path | None, staging: Path, stretch: range) -> in_order.Begun | None:
    """Begin a stretch in a task: rows stay where they were read."""
    begun = in_order.begin(plan, target, staging, silent, stretch)
    return begun and replace(begun, read=None)


def _alive(plan: RunPlan, lives: Mapping[int, slices.Life], span: Windows) -> I64:
    """Time that workers existed in each window, summed."""
    mine = [lives.get(worker, slices.Life()) for worker in plan.workers]
    begin = np.array([life.begin_ns for life in mine], np.int64)
    end = np.array([plan.end_ns if life.exit_ns is None else life.exit_ns for life in mine], np.int64)
    return np.asarray(window_sums(begin, end, span.bounds))


def _settled(scans: Sequence[slices.Scan]) -> int:
    """Return the last epoch that more of the same log cannot change, as far as idle intervals and activations tell.

    What ended a worker's last idle interval may be read later, and an activation that is open may yet do something.
    """
    first: dict[int, int] = {}
    for scan in scans:
        for worker, (idle, open_) in scan.unsettled.items():
            if idle is not None:
                first[worker] = idle
            if open_ is not None:
                first[worker] = min(first.get(worker, open_), open_)
    return min(first.values(), default=2**62) - 1


def _fingerprints(outputs: Sequence[steps.Output], name: str) -> int:
    total: int = sum(getattr(output, name) for output in outputs)
    return total % 2**63


def _total(outputs: Sequence[steps.Output], name: str) -> I64:
    return np.asarray(np.sum([getattr(output, name) for output in outputs], axis=0), dtype=np.int64)


def _scan(plan: RunPlan, staging: Path, engine: Engine, progress: Progress) -> tuple[RunPlan, list[slices.Scan]]:
    """Scan all slices; where an activation is open at a cut, join the slices on both sides and scan again.

    Returns
    -------
    plan
        With the slices as they are at last.
    scans
        In order.
    """
    while True:
        steps.make_folders(staging)
        scans = engine.map(partial(steps.scan_slice, plan, staging), plan.slices, label="scan", progress=progress)
        last = {w: max(s.number for s in plan.slices if w in s.rows) for w in plan.workers}
        dirty = {
            part.number for found, part in zip(scans, plan.slices, strict=True) if steps.undecided(found, part, last)
        }
        if not dirty:
            return plan, scans
        shutil.rmtree(staging)
        plan = replace(plan, slices=_joined(plan.slices, dirty))


def _joined(slices: Sequence[Slice], dirty: set[int]) -> tuple[Slice, ...]:
    """Join every dirty slice with the one after it."""
    result: list[dict[int, tuple[int, int]]] = []
    joins = False
    for part in slices:
        if joins:
            mine = result[-1]
            for worker, (low, high) in part.rows.items():
                mine[worker] = (mine[worker][0] if worker in mine else low, high)
        else:
            result.append(dict(part.rows))
        joins = part.number in dirty
    return tuple(Slice(number=number, rows=rows) for number, rows in enumerate(result))


def _carries(
    plan: RunPlan,
    scans: list[slices.Scan],
    lives: Mapping[int, slices.Life],
    staging: Path,
    engine: Engine,
    progress: Progress,
) -> list[slices.Carry]:
    """Compose, in the order of the slices, what is open where each begins."""
    carries, state = [], steps.Open()
    for scan in scans:
        carries.append(replace(state.carry(), lives=lives))
        state.add(scan, {})
    if len(plan.slices) == 1:
        return carries
    items = list(zip(plan.slices, carries, strict=True))
    begun = [slices.known_segments(part, scan, lives) for part, scan in zip(plan.slices, scans, strict=True)]
    # Nobody asks how the last slice ends.
    unknown = [number for number, found in enumerate(begun[:-1]) if found is None]
    judged = engine.map(
        partial(steps.segments, plan, staging), [items[number] for number in unknown], label="carry", progress=progress
    )
    for number, mine in zip(unknown, judged, strict=True):
        begun[number] = mine
    for number, ends in enumerate(begun):
        carries[number] = replace(carries[number], segments=dict(state.segments))
        state.segments.update(ends or {})
    return carries


def _check_unchanged(kept: StoreInfo, epochs: pa.Table, fingerprint: int) -> None:
    """Refuse an append to which committed epochs would look different.

    Rows of `epochs` say which; what came later can also change the type of an edge in them and leave all counts alone.

    Raises
    ------
    StoreConflictError
        If one would.
    """
    rows = kept.scan("epochs").sort("epoch").collect().to_dicts()
    before = [row for row in rows if row["epoch"] <= kept.run["last_closed_epoch"]]
    # Where the run ended with an epoch there was no shutdown: the last row counted what carries a later epoch as well.
    counts = {"entry_ns", "exit_ns", "events", "vertices", "edges"} if len(before) == len(rows) else set()
    now = {row["epoch"]: row for row in epochs.to_pylist()}
    changed = []
    for row in before:
        compared = set(row) - (counts if row is rows[-1] else set())
        other = now.get(row["epoch"], {})
        if any(other.get(name) != row[name] for name in compared):
            changed.append(row["epoch"])
    if not changed and fingerprint != kept.run.get("closed_fingerprint"):
        changed = [row["epoch"] for row in before]
    if changed:
        message = f"The trace now tells another story of epochs {changed[:5]} than the one committed to {kept.path}."
        raise StoreConflictError(
            message, "Late events cannot be appended; build with `--replace`.", {"epochs": changed[:100]}
        )


def _epoch_findings(span: Windows) -> list[pa.Table]:
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


def _log_findings(plan: RunPlan) -> list[pa.Table]:
    """Say what the log as a whole lacks."""
    result = [plan.trace.findings, *_clock_findings(plan)]
    if not plan.trace.meta.complete:
        action = "built as far as it goes; what is younger than its last event is not known"
        result.append(findings("log_cut_short", Severity.WARNING, action, file="meta.json"))
    if plan.idle_inferred:
        action = "the log does not say when the worker had nothing to do; its waits are inferred from what it did"
        workers = list(plan.workers)
        result.append(findings("no_idle_logged", Severity.WARNING, action, rows=len(workers), worker=workers))
    for scope in plan.trace.meta.missing_progress:
        action = f"nobody listened to the progress of scope {scope}: waits for it are typed input_wait or unknown"
        result.append(findings("progress_not_registered", Severity.WARNING, action, file="meta.json"))
    return result


def _clock_findings(plan: RunPlan) -> list[pa.Table]:
    """Say how the messages moved the clocks, and where they could not tell."""
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


def _unmatched(plan: RunPlan, staging: Path) -> pa.Table:
    """One finding per message end without its other end anywhere in the run."""
    if not any(steps.left_files(staging, name) for name in ("sends", "receives")):
        return no_findings()
    stitched = steps.stitched(staging)
    receives = steps.leftovers(staging, "receives", RECEIVES)
    lost = receives.join(stitched, on=["worker", "order"], how="anti").sort("worker", "order").collect()
    arrived = stitched.group_by("id").agg(pl.len().cast(pl.Int64).alias("arrived"))
    sends = (
        steps.leftovers(staging, "sends", SENDS)
        .join(arrived, on="id", how="left")
        .with_columns(missing=pl.col("missing") - pl.col("arrived").fill_null(0))
        .filter(pl.col("missing") != 0)
        .sort("id")
        .collect()
    )
    fewer, more = sends.filter(pl.col("missing") > 0), sends.filter(pl.col("missing") < 0)
    result = [no_findings()]
    if lost.height:
        order = lost["order"].to_numpy()
        worker = lost["worker"].to_numpy()
        result.append(
            findings(
                "receive_without_send",
                Severity.WARNING,
                "kept as an event without an edge; it ends no wait",
                rows=lost.height,
                worker=worker,
                vertex=worker << 40 | 2 * order,
                seq=lost["seq"].to_numpy(),
                file=plan.log.files_of(worker, order - 1),
            )
        )
    for name, rows, action in (
        ("send_without_receive", fewer, "kept as an event; receivers that did not log it have no edge"),
        ("message_received_twice", more, "every read got an edge"),
    ):
        if rows.height:
            ids = rows["id"].to_numpy()
            worker, order = ids >> 40, (ids & ((1 << 40) - 1)) // 2
            result.append(
                findings(
                    name,
                    Severity.WARNING,
                    action,
                    rows=rows.height,
                    worker=worker,
                    vertex=ids,
                    seq=rows["seq"].to_numpy(),
                    file=plan.log.files_of(worker, order - 1),
                    observed=np.abs(rows["missing"].to_numpy()).astype(np.int64),
                    limit=0,
                    unit="messages",
                )
            )
    return pa.concat_tables(result)


def _build_islands(
    plan: RunPlan, target: Path | None, staging: Path, engine: Engine, kept: StoreInfo | None, progress: Progress
) -> Built | None:
    if kept is not None:
        message = "Epochs cannot be appended under the rule set st2."
        raise UnsupportedPlanError(message, "Build with `--replace`.")
    staging.mkdir(parents=True)
    if engine.in_process:
        outputs, left = _ahead_st2(plan, target, progress)
    else:
        task = partial(_read_and_assemble_st2, plan, target, staging)
        outputs = engine.map(task, plan.slices, label="assemble", progress=progress)
        left = [pq.read_table(file) for file in sorted(staging.glob("ends-*.parquet"))]
    frames = [output.epochs for output in outputs if output.epochs is not None]
    table = pl.concat(frames).sort("epoch").to_arrow().cast(PAG_EPOCHS)
    found = pa.concat_tables([plan.trace.findings, st2.message_findings(pa.concat_tables(left))])
    return Built(outputs, table, table.num_rows, int(pc.max(table["epoch"]).as_py()), found)


def _ahead_st2(plan: RunPlan, target: Path | None, progress: Progress) -> tuple[list[steps.Output], list[pa.Table]]:
    """Do all slices in this process; while one is made, the next one is read. Return also their ends of messages."""
    plan = replace(plan, log=plan.log.forward())
    outputs: list[steps.Output] = []
    left: list[pa.Table] = []
    progress("assemble", 0, len(plan.slices))
    with ThreadPoolExecutor(1) as ahead:
        reading = ahead.submit(_read_st2, plan, plan.slices[0])
        for number in range(1, len(plan.slices) + 1):
            rows = reading.result()
            if number < len(plan.slices):
                reading = ahead.submit(_read_st2, plan, plan.slices[number])
            output, ends = _assemble_st2(plan, target, rows)
            outputs.append(output)
            left.append(ends)
            progress("assemble", number, len(plan.slices))
    return outputs, left


def _read_and_assemble_st2(plan: RunPlan, target: Path | None, staging: Path, part: Slice) -> steps.Output:
    output, ends = _assemble_st2(plan, target, _read_st2(plan, part))
    file = staging / f"ends-{part.number:06}.parquet"
    with refusals(file, "", StoreError):
        pq.write_table(ends, file)
    return output


def _read_st2(plan: RunPlan, part: Slice) -> list[WorkerRows]:
    check_memory(plan, part)
    return each(lambda worker: slices.read_rows(plan, worker, *part.rows[worker]), sorted(part.rows))


def _assemble_st2(plan: RunPlan, target: Path | None, rows: Sequence[WorkerRows]) -> tuple[steps.Output, pa.Table]:
    """Make and write a slice; return also the ends of messages of which it has not found all others.

    Whether an end lost its partner or has it in another epoch shows only when all slices are seen.
    """
    graph, ends = st2.build_columns(
        rows, workers=len(plan.workers), prepared=plan.trace.meta.prepared, operators=plan.trace.operators
    )
    epochs = _islands(rows, graph)
    nothing = np.zeros(0, np.int64)
    output = steps.Output(
        parts=steps.write_rows(graph, target, last_closed=int(epochs["epoch"].to_numpy()[-1]), after=None),
        vertices=nothing,
        edges=nothing,
        waiting_ns=nothing,
        unknown_ns=nothing,
        findings=graph.findings,
        dropped=graph.dropped,
        epochs=epochs,
    )
    return output, ends


def _islands(rows: Sequence[WorkerRows], graph: GraphColumns) -> pl.DataFrame:
    """One row of `PAG_EPOCHS` per epoch of its own; its window is its latency window on the workers' own clocks."""
    found = each(
        lambda mine: epochs_of_rows(
            mine.epoch, mine.t, mine.kind, np.zeros(mine.rows, np.int8), np.zeros(mine.rows, np.bool_), 0
        ),
        rows,
    )
    epoch, events, entry, exit_ = np.concatenate([mine[:4] for mine in found], axis=1)
    epochs, place = np.unique(epoch, return_inverse=True)
    sums = {name: np.zeros(len(epochs), np.int64) for name in ("events", "vertices", "edges", "waiting_ns")}
    np.add.at(sums["events"], place, events)
    for name, table in (("vertices", graph.vertices), ("edges", graph.edges)):
        sums[name][np.searchsorted(epochs, table.epochs.epoch)] = table.epochs.rows
    waits = np.flatnonzero(graph.edges.kind == EDGE_CODES[ActivityType.WAITING])
    # Edges stand epoch by epoch: what each waited is a difference of what all up to it waited.
    waited = np.append(0, np.cumsum(graph.edges.numbers[layout.DURATION, waits]))
    carried = graph.edges.epochs
    upto = waited[np.searchsorted(waits, np.cumsum(carried.rows))]
    sums["waiting_ns"][np.searchsorted(epochs, carried.epoch)] = np.diff(upto, prepend=0)
    first, last = np.full(len(epochs), np.iinfo(np.int64).max), np.full(len(epochs), np.iinfo(np.int64).min)
    np.minimum.at(first, place, entry)
    np.maximum.at(last, place, exit_)
    return (
        pl.DataFrame({"epoch": epochs, "entry_ns": first, "exit_ns": last, **sums})
        .with_columns(
            role=pl.lit(str(EpochRole.ROUND)),
            start_ns="entry_ns",
            end_ns="exit_ns",
            end_vertex=pl.lit(None, pl.Int64),
            unknown_ns=pl.lit(0, pl.Int64),
            coverage=pl.lit(1.0),
        )
        .select(PAG_EPOCHS.names)
    )
