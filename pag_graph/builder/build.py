"""From a trace to a committed store: plan, fold, commit.

Nothing is visible before the last commit, so a build can be killed at any moment and run again.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.builder import saved
from pag_graph.builder.append import check_same_run, nothing_new
from pag_graph.builder.commit import last_to_answer, nothing_more, prepare, small_tables
from pag_graph.builder.engine import silent
from pag_graph.builder.finish import Finished, finish, finish_islands
from pag_graph.builder.fold import fold
from pag_graph.builder.islands import build_islands
from pag_graph.builder.plan import DEFAULT_SLICE_EVENTS, plan_run
from pag_graph.builder.report import BuildReport, nothing_to_do
from pag_graph.builder.rule_choice import choose_rules
from pag_graph.builder.saved import Saved
from pag_graph.builder.sink import StoreSink
from pag_graph.builder.stretches import build_stretches
from pag_graph.builder.two_passes import build_in_two_passes
from pag_graph.errors import UnsupportedPlanError
from pag_graph.rules.registry import of
from pag_graph.runtime import memory
from pag_graph.store.commit import check_target
from pag_graph.store.leftovers import staging as staging_of
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.builder.commit import Derive
    from pag_graph.builder.engine import Engine
    from pag_graph.builder.fold import Folded
    from pag_graph.builder.plan import RunPlan
    from pag_graph.builder.sink import Sink
    from pag_graph.model.enums import RuleSet
    from pag_graph.rules.rows import RuleParameters
    from pag_graph.store.commit import Mode
    from pag_graph.store.delta import StoreInfo

    Progress = Callable[[str, int, int], None]


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
    derive: Derive = nothing_more,
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
    derive
        Makes what is committed beside the graph.

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
    began = time.monotonic()
    target = Path(store).absolute()
    previous = check_target(target, mode)
    base = previous if mode == "append" else None
    begin = saved.load(base) if base is not None else None
    opened = Trace.open(trace, known=begin.files if begin else ())
    rules, forced = choose_rules(opened, rules, force=force_rules)
    begin_facts = None
    if base is not None:
        check_same_run(base, opened, rules, parameters)
        begin_facts = (begin or Saved()).known(base.run)
    with staging_of(target, alone=engine.in_process) as staging:
        if base is not None and nothing_new(base, begin, opened):
            return nothing_to_do(base, derive)
        plan = plan_run(opened, rules, parameters, slice_events=slice_events or DEFAULT_SLICE_EVENTS, known=begin_facts)
        built = construct(plan, StoreSink(target), begin or Saved(), staging, engine, base, progress)
        opened.check_same()
        derived = partial(derive, base=base, answered=last_to_answer(built, opened))
        work = {"engine": engine.name, "seconds": round(time.monotonic() - began, 3)}
        info, parts = prepare(target, plan, built, begin, forced, previous, work=work).publish(derived)
    before = {} if begin is None else begin.rows
    rows = {name: before.get(name, 0) + sum(part.rows for part in parts[name]) for name in parts if name in info.tables}
    rows |= {name: table.num_rows for name, table in small_tables(plan.trace).items()}
    return BuildReport(store=info, rows=rows, committed=True)


def construct(
    plan: RunPlan,
    sink: Sink,
    begin: Saved,
    staging: Path,
    engine: Engine,
    base: StoreInfo | None,
    progress: Progress,
) -> Finished:
    """Build the slices of a plan, and find the windows of the run.

    Parameters
    ----------
    plan, engine, progress
        Of the build.
    sink
        Where the rows go.
    begin
        Where it begins.
    staging
        A folder to be made, for what tasks tell each other.
    base
        The state of the store that is appended to.

    Returns
    -------
    Finished
        What there is to commit.

    Raises
    ------
    UnsupportedPlanError
        If the rules cannot append.
    """
    if of(plan.rules).epochs_are_islands:
        if base is not None:
            message = f"Epochs cannot be appended under the rule set {plan.rules}."
            raise UnsupportedPlanError(message, "Build with `--replace`.")
        return finish_islands(build_islands(plan, sink, staging, engine, progress))
    return finish(plan, begin, base, _folded(plan, sink, begin, staging, engine, progress))


def _folded(plan: RunPlan, sink: Sink, begin: Saved, staging: Path, engine: Engine, progress: Progress) -> Folded:
    """Build all slices where the engine has them built."""
    if engine.in_process or begin.state.workers:
        return fold(plan, sink, begin.state.copy(), begin.closed, progress)
    folded = build_stretches(plan, sink, staging, engine, progress)
    return folded or build_in_two_passes(plan, sink, staging, engine, progress)
