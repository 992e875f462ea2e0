"""What an append asks of the store that it adds to: that it is the same run, and that nothing committed changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.builder.conflicts import another_story
from pag_graph.builder.plan import run_id_of
from pag_graph.errors import StoreConflictError
from pag_graph.rules.rows import RuleParameters

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from pag_graph.builder.plan import RunPlan
    from pag_graph.builder.saved import Saved
    from pag_graph.model.enums import RuleSet
    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.trace import Trace


FOLLOWED = "followed"
"""Entry of a commit's run that says that a follower made it."""


def check_same_run(
    base: StoreInfo, trace: Trace, rules: RuleSet, parameters: RuleParameters | None, *, followed: bool = False
) -> None:
    """Refuse to append another run, or a trace of other workers: their clocks are not those that were committed.

    Of a run that is followed, others may join the workers that were committed; see `check_joined`.

    Parameters
    ----------
    base
        The state of the store.
    trace
        What is to be appended: the trace as it is now.
    rules, parameters
        Those of the build.
    followed
        Whether a follower appends.

    Raises
    ------
    StoreConflictError
        If the run, or the number of workers, or a worker is another one; or if only one of the two commits is a
        follower's, for they begin and end in different places.
    """
    if bool(base.run.get(FOLLOWED)) != followed:
        was, hint = ("followed", "`pag follow`") if not followed else ("built", "`pag build --append`")
        message = f"{base.path} holds a run that was {was}, and cannot be {'followed' if followed else 'appended to'}."
        raise StoreConflictError(message, f"Go on with {hint}, or use `--replace`.", {"path": str(base.path)})
    now = {str(worker) for worker in trace.workers["worker"].to_pylist()}
    before = set(base.run["clocks"]["offset_ns"]) if "clocks" in base.run else now
    if not before <= now if followed else now != before:
        message = f"{base.path} holds run {base.run['run_id']} of {len(before)} workers; this trace has {len(now)}"
        message += ", and is of another run." if len(now) != len(before) else " others, and is of another run."
        raise StoreConflictError(message, "Only more of the same run can be appended; use `--replace`.")
    run_id = run_id_of(trace.meta.trace_id, rules, parameters or RuleParameters())
    if base.run["run_id"] != run_id:
        message = f"{base.path} holds run {base.run['run_id']}; this trace with these rules is run {run_id}."
        raise StoreConflictError(message, "Only more of the same run can be appended; use `--replace`.")


def check_joined(plan: RunPlan, run: Mapping[str, Any], where: Path) -> None:
    """Refuse workers that joined a run that is followed, if what was decided without them might look different.

    Parameters
    ----------
    plan
        What is to be done next.
    run
        What a commit, or the last step, said of the run.
    where
        The store.

    Raises
    ------
    StoreConflictError
        If one began before a row that is decided, or messages told how the clocks differ, and nothing of its clock.
    """
    joined = [worker for worker in plan.workers if str(worker) not in run["clocks"]["offset_ns"]]
    decided_ns = max((row.t for _, row in plan.follows.values()), default=0)
    for worker in joined:
        begins = (plan.clocks[worker].common(part.t_min) for part in plan.log.chunks.get(worker, ()))
        if plan.estimate is not None or any(begin_ns < decided_ns for begin_ns in begins):
            message = f"Worker {worker} joined run {plan.run_id} too late: {where} holds what was decided without it."
            raise StoreConflictError(message, "Follow it into another store, or use `--replace`.", {"path": str(where)})


def nothing_new(base: StoreInfo, begin: Saved | None, trace: Trace) -> bool:
    """Say whether a trace holds nothing that is not committed, so that a retry may stop here.

    Parameters
    ----------
    base
        The state of the store.
    begin
        What it kept for the next append; None where it kept nothing.
    trace
        The trace as it is now.

    Returns
    -------
    bool
        Also true of a trace that has fewer events than were committed: the commit before saw more of it.
    """
    if trace.rows == base.events and begin is not None:
        return begin.complete == trace.meta.complete
    return trace.rows < base.events


def check_unchanged(base: StoreInfo, begin: Saved, epochs: pa.Table, fingerprint: int) -> None:
    """Refuse an append to which committed epochs would look different.

    Rows of `epochs` say which; what came later can also change the type of an edge in them and leave all counts alone.

    Parameters
    ----------
    base
        The state of the store.
    begin
        Where the append began: what lies before did not change.
    epochs
        Rows of `PAG_EPOCHS` behind that, as they would be now.
    fingerprint
        Of all rows of committed epochs, as they would be now.

    Raises
    ------
    StoreConflictError
        If one would.
    """  # noqa: DOC501  (what makes the error is taken for one)
    last = base.run["last_closed_epoch"]
    if last == begin.closed.last:
        return
    rows = base.scan("epochs").sort("epoch").collect().to_dicts()
    before = [row for row in rows if begin.closed.last < row["epoch"] <= last]
    # Where the run ended with an epoch there was no shutdown: the last row counted what carries a later epoch as well.
    ended = bool(before) and before[-1] is rows[-1]
    counts = {"entry_ns", "exit_ns", "events", "vertices", "edges"} if ended else set()
    now = {row["epoch"]: row for row in epochs.to_pylist()}
    changed = []
    for row in before:
        compared = set(row) - (counts if row is rows[-1] else set())
        row_now = now.get(row["epoch"], {})
        if any(row_now.get(name) != row[name] for name in compared):
            changed.append(row["epoch"])
    if not changed and fingerprint != base.run.get("closed_fingerprint"):
        changed = [row["epoch"] for row in before]
    if changed:
        raise another_story(changed)
