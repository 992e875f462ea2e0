"""A build that goes on while its trace is written: what is new is folded into the state, and committed now and then.

It is the build of `pag_graph.builder.build`, with its state kept between the steps. No clock is read here: when to look
and when to commit is for the caller to say.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pag_graph.builder import saved
from pag_graph.builder.append import check_joined, check_same_run
from pag_graph.builder.commit import commit_derived, commit_removal, last_to_answer, nothing_more, prepare
from pag_graph.builder.engine import silent
from pag_graph.builder.finish import finish
from pag_graph.builder.fold import fold
from pag_graph.builder.frontier import SETTLE_NS, answered, closed_for_good
from pag_graph.builder.nesting import nesting
from pag_graph.builder.ongoing import ongoing
from pag_graph.builder.pending import ClosedEpoch, PendingCommit
from pag_graph.builder.plan import DEFAULT_SLICE_EVENTS, clocks_by_messages, plan_run
from pag_graph.builder.rule_choice import choose_rules
from pag_graph.builder.saved import Saved
from pag_graph.builder.sends import SendBook
from pag_graph.builder.sink import StoreSink
from pag_graph.errors import UnsupportedPlanError
from pag_graph.model.enums import RuleSet
from pag_graph.rules.registry import of
from pag_graph.rules.rows import RuleParameters
from pag_graph.store.compaction import Compaction
from pag_graph.store.fresh import Fresh
from pag_graph.store.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    import polars as pl

    from pag_graph.builder.commit import Derive
    from pag_graph.builder.fold import Folded
    from pag_graph.builder.made import SliceResult
    from pag_graph.builder.ongoing import Ongoing
    from pag_graph.builder.pending import Published
    from pag_graph.builder.plan import RunPlan
    from pag_graph.builder.sink import Sink
    from pag_graph.builder.state import RunState
    from pag_graph.store.compaction import Done
    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.log import TraceLog
    from pag_graph.store.retention import Keep
    from pag_graph.store.trace import Trace

CLOCKS_AFTER_NS = 10_000_000_000
"""Length of a log after which messages are taken to tell how its clocks differ, where its source does not say."""


def followable_rules(trace: Trace, wanted: RuleSet | None) -> RuleSet:
    """Return the rule set to follow a trace by.

    Parameters
    ----------
    trace
        The trace, as far as it is there.
    wanted
        A rule set; None for the one that the trace asks for.

    Returns
    -------
    RuleSet
        The one to follow it by.

    Raises
    ------
    UnsupportedPlanError
        If the rules cannot go on from a state, or the trace contradicts them.
    """
    rules, _ = choose_rules(trace, wanted)
    if of(rules).epochs_are_islands:
        message = f"A trace cannot be followed under the rule set {rules}."
        raise UnsupportedPlanError(message, "Build it when it is complete: `pag build`.")
    return rules


def clocks_are_unknown(trace: Trace, rules: RuleSet, parameters: RuleParameters | None, log: TraceLog) -> bool:
    """Say whether messages align the clocks, and too few are there to tell how they differ.

    Parameters
    ----------
    trace, log
        As far as they were written.
    rules, parameters
        Those of the build.

    Returns
    -------
    bool
        True while no worker's log is `CLOCKS_AFTER_NS` long. Clocks are estimated once: later messages change nothing.
    """
    if not clocks_by_messages(trace, rules, parameters or RuleParameters()):
        return False
    return all(known[-1].t_max - known[0].t_min < CLOCKS_AFTER_NS for known in log.chunks.values())


class Follower:
    """A run that is built while it goes on.

    Parameters
    ----------
    target
        Directory of the store.
    kept
        The state of the store to go on from; None to begin.
    replaced
        The state that it is in, if it is to be replaced.
    rules, parameters
        As for a build.
    slice_events
        About how many events are worked on at a time; the result does not depend on it.
    derive
        Makes what is committed beside the graph.
    settle_ns
        As for `pag_graph.builder.frontier.answered`.
    sink
        Where rows go; into the store where absent.

    Raises
    ------
    StoreError
        If the state that `kept` names is missing or damaged.
    """

    def __init__(
        self,
        target: Path,
        kept: StoreInfo | None = None,
        *,
        replaced: StoreInfo | None = None,
        rules: RuleSet | None = None,
        parameters: RuleParameters | None = None,
        slice_events: int = DEFAULT_SLICE_EVENTS,
        derive: Derive = nothing_more,
        settle_ns: int = SETTLE_NS,
        sink: Sink | None = None,
    ) -> None:
        self._settle_ns = settle_ns
        self._fresh = Fresh()
        self._target, self._sink, self._slice_events = target, sink or StoreSink(target, self._fresh), slice_events
        self._rules, self._parameters = rules, parameters or RuleParameters()
        self._derive = derive
        self._compaction = Compaction(target)
        self._retention = Retention(self._compaction, nesting, self._unread)
        self._kept: StoreInfo | None = None
        self._previous = replaced
        self._run: Mapping[str, Any] | None = None
        if kept is not None:
            self._take(kept)
            self._run = kept.run
        self._begin = None if kept is None else saved.load(kept)
        self._state: RunState = (self._begin or Saved()).state.copy()
        self._made: list[SliceResult] = []
        self._folded: tuple[RunPlan, Folded] | None = None
        self._checked = kept is None
        self._held: Mapping[str, Any] | None = None
        self.ongoing: Ongoing | None = None
        """What the run is doing, as of the last step."""
        self.answers = False
        """Whether the last step found epochs to be answered that no commit holds as such."""
        self.scanned = 0
        """Rows that were read to look at them, those that were looked at again included."""
        self.decided = sum(self._state.rows.values())
        """Rows that no more of the log can change; each was assembled once."""

    @classmethod
    def behind(cls, kept: StoreInfo, sink: Sink) -> Follower:
        """Return a follower of what comes behind a committed state, which commits nothing itself.

        Parameters
        ----------
        kept
            The state; its rules and parameters are used again.
        sink
            Where rows go.

        Returns
        -------
        Follower
            To look at rows that are not committed yet.
        """
        rules, parameters = RuleSet(kept.run["rules"]), RuleParameters(**kept.run["parameters"])
        return cls(kept.path, kept, rules=rules, parameters=parameters, sink=sink)

    @property
    def done(self) -> dict[int, int]:
        """Per worker: how many of its rows are decided."""
        return self._state.rows

    @property
    def closed(self) -> int:
        """Number of epochs that the last commit holds as closed."""
        return 0 if self._kept is None else self._kept.closed_epochs

    @property
    def store(self) -> StoreInfo | None:
        """The last committed state; None before there is one."""
        return self._kept

    @property
    def pending(self) -> bool:
        """Whether rows are decided that no commit holds."""
        return bool(self._made)

    def holds(self, trace: Trace) -> bool:
        """Say whether the last commit holds all of a run that has ended.

        Parameters
        ----------
        trace
            The trace as it is now.

        Returns
        -------
        bool
            True only if the trace has ended.
        """
        return self.complete and trace.meta.complete and self._kept is not None and self._kept.events == trace.rows

    @property
    def complete(self) -> bool:
        """Whether the last commit holds all of a run that has ended."""
        return self._begin is not None and self._begin.complete

    def advance(self, trace: Trace, log: TraceLog, *, show: bool = False) -> int:
        """Fold what is new into the state.

        Parameters
        ----------
        trace, log
            As far as they were written.
        show
            Whether the next commit is the last one of this process: then rows that are not decided are shown as well.

        Returns
        -------
        int
            How many epochs are closed that no commit holds.

        Raises
        ------
        UnsupportedPlanError
            If the rules cannot go on from a state.
        StoreConflictError
            If the store holds another run, or the trace tells another story of what is committed.
        TraceFormatError
            If the trace contradicts itself.
        """
        rules = followable_rules(trace, self._rules)
        if not self._checked and self._kept is not None:
            check_same_run(self._kept, trace, rules, self._parameters, followed=True)
            self._checked = True
        last = show or trace.meta.complete
        if not last and self._run is None and clocks_are_unknown(trace, rules, self._parameters, log):
            return 0
        begin = self._begin or Saved()
        before = replace(begin, state=self._state).known(self._run) if self._run is not None else None
        plan = plan_run(trace, rules, self._parameters, slice_events=self._slice_events, known=before, log=log)
        if self._run is not None:
            check_joined(plan, self._run, self._target)
        self.scanned += sum(part.events for part in plan.slices)
        folded = fold(plan, self._sink, self._state.copy(), begin.closed, silent, show=last)
        self.scanned += folded.scanned_again
        self._made += folded.decided
        self._folded = plan, folded
        if folded.decided:
            self._run, self._state = plan.metadata(), folded.frontier
            self.decided = sum(self._state.rows.values())
        closed = closed_for_good(plan, folded.summary.span, folded.frontier, folded.undecided_scans)
        known = answered(
            plan, folded.summary.span, closed, folded.frontier, folded.undecided_scans, begin.answered, self._settle_ns
        )
        self.answers = known.last > begin.answered.last
        self.ongoing = ongoing(plan, folded, closed)
        return closed.epochs - begin.closed.epochs

    def commit(self) -> tuple[StoreInfo, Sequence[ClosedEpoch]]:
        """Commit what the last steps decided.

        Returns
        -------
        info
            The new state of the store.
        closed
            Epochs that are closed since, ascending.

        Raises
        ------
        StoreConflictError
            If somebody else committed in between.
        StoreError
            If the file system refuses; nothing is visible then.
        """
        pending = self.prepare()
        return self.take(pending, pending.publish()), pending.closed

    def prepare(self) -> PendingCommit:
        """Write what the last steps decided, so that it can be committed beside the next steps.

        Returns
        -------
        PendingCommit
            To be published, and then to be taken; until then nothing else may be committed.

        Raises
        ------
        StoreConflictError
            If an epoch that is committed would look different.
        StoreError
            If the file system refuses.
        """
        plan, folded = self._steps()
        begin = self._begin
        folded = folded._replace(decided=self._made)
        built = finish(plan, begin or Saved(), self._kept, folded, self._settle_ns)
        closed = ClosedEpoch.of(built)
        _, forced = choose_rules(plan.trace, plan.rules)
        last = last_to_answer(built, plan.trace)
        pending = (epoch for epoch, _ in (begin or Saved()).answered.pending)
        swaps = {} if begin is None else self._compaction.ready()
        prepared = prepare(
            self._target,
            plan,
            built,
            begin,
            forced,
            self._previous,
            work={"engine": "follow"},
            followed=True,
            swaps=swaps,
        )
        pending_commit = PendingCommit(
            prepared=prepared,
            derive=partial(self._derive, base=self._kept, answered=last, held=self._held),
            closed=closed,
            answered=tuple(epoch for epoch in (*pending, *(row.epoch for row in closed)) if epoch <= last),
            anew=begin is None,
            fresh=self._fresh.files,
        )
        # From here on as after a restart: what is not in the file is not in the state.
        self._begin = saved.read(self._target, prepared.state)
        self._state = (self._begin or Saved()).state.copy()
        self._run = prepared.about["run"]
        self._made, self._folded, self._held = [], None, None
        return pending_commit

    def take(self, pending: PendingCommit, published: Published) -> StoreInfo:
        """Go on from a commit that was published.

        Parameters
        ----------
        pending, published
            The commit, and what became of it.

        Returns
        -------
        StoreInfo
            The new state of the store.
        """
        info, parts = published
        swaps = pending.prepared.swaps
        self._compaction.committed(info, parts, swaps, anew=pending.anew, last=self.complete)
        self._take(info)
        self._fresh.let_go(pending.fresh)
        return info

    def remove(self, keep: Keep, *, exactly: bool = False) -> StoreInfo | None:
        """Remove what is older than what is kept, with a commit of its own.

        Parameters
        ----------
        keep
            What stays.
        exactly
            Whether also where that is little, and before this returns. Otherwise a thread writes what is left of files,
            and one of the next calls commits.

        Returns
        -------
        StoreInfo or None
            The new state of the store; None where nothing was to go, or is not ready.

        Raises
        ------
        StoreConflictError
            If somebody else committed in between.
        StoreError
            If a file is damaged, or the file system refuses; nothing is removed then.
        """
        if self._kept is None or (gone := self._retention.ready(self._kept, keep, exactly=exactly)) is None:
            return None
        info = commit_removal(self._kept, gone)
        self._compaction.committed(info, {}, gone.swaps, anew=False)
        self._take(info)
        return info

    def hold(self, held: Mapping[str, Any]) -> StoreInfo | None:
        """Let rules look at what holds the frontier, with a commit of its own if that is news.

        Parameters
        ----------
        held
            A row of `HELD`.

        Returns
        -------
        StoreInfo or None
            The new state of the store; None where there is nothing to say. Before the first commit there is no store
            that could hold an alert; then the first commit says it.

        Raises
        ------
        StoreConflictError
            If somebody else committed in between.
        StoreError
            If the file system refuses; nothing is visible then.
        """
        if self._kept is None:
            self._held = held
            return None
        if (info := commit_derived(self._kept, self._derive, held)) is None:
            return None
        self._compaction.committed(info, {}, {}, anew=False)
        self._take(info)
        return info

    @property
    def unjoined(self) -> str | None:
        """Why small files of the store could not become large ones the last time, if so; it is tried again."""
        trouble = self._compaction.trouble
        return None if trouble is None else trouble.message

    def beside(self, work: Callable[[], Done]) -> Future[Done]:
        """Do something that no commit needs in the thread that also joins and removes files, one after the other."""
        return self._compaction.beside(work)

    def close(self) -> None:
        """End what is done beside the commits."""
        self._retention.give_up()
        self._compaction.close()

    def _unread(self) -> pl.DataFrame:
        """Return the sends of the last commit that may still be read: an edge that comes later begins there."""
        sends = SendBook() if self._begin is None or self.complete else self._begin.state.sends.copy()
        sends.place = self._sink
        return sends.unread().select("id", "epoch")

    def _take(self, info: StoreInfo) -> None:
        """Go on from a state of the store, whose queries want to see what is written from now on."""
        self._kept = self._previous = replace(info, fresh=self._fresh)
        self._fresh.wanted = bool(info.live and info.live["queries"])

    def _steps(self) -> tuple[RunPlan, Folded]:
        if self._folded is None:
            message = "Nothing was read since the last commit."
            raise RuntimeError(message)
        return self._folded
