"""What a commit adds for standing queries: the changes of their answers, and what alert rules make of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pyarrow as pa

from pag_graph.analyses.definition import Standing
from pag_graph.analyses.standing import ANSWERS, NEVER, Delta, Query, answers, difference, encoded, summed
from pag_graph.engines.alerting import Watch
from pag_graph.errors import UnsupportedPlanError
from pag_graph.graph.membership import epochs_between
from pag_graph.graph.run import Run
from pag_graph.model.live_tables import ALERTS, CHANGES, FROM, STANDING
from pag_graph.motif.alerts import BUILT_IN, FRONTIER, Rule
from pag_graph.runtime import threads
from pag_graph.store.contents import Live
from pag_graph.store.fresh import write_and_keep
from pag_graph.store.parts import write_part

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pag_graph.builder.commit import Held
    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.parts import PartFile

_PORTION = 200_000
"""Changes that are in memory before they are written."""
_NOTHING = pl.DataFrame(schema=ANSWERS)
_NO_CHANGES = pl.DataFrame(schema={**ANSWERS, "diff": pl.Int64})
_TEXTS = dict(pl.DataFrame(pl.from_arrow(STANDING.empty_table())).schema)


@dataclass(kw_only=True)
class _Written:
    """Changes of a commit on their way into files."""

    state: StoreInfo
    parts: list[PartFile] = field(default_factory=list)
    rows: list[pl.DataFrame] = field(default_factory=list)
    count: int = 0
    height: int = 0

    def add(self, query: str, changes: pl.DataFrame) -> None:
        """Add changes of a query: ``epoch``, ``row`` and ``diff``."""
        if not changes.height:
            return
        commit = self.state.versions["epochs"]
        change_rows = changes.with_columns(
            query=pl.lit(query),
            commit=pl.lit(commit, pl.Int64),
            ordinal=pl.int_range(self.count, self.count + changes.height, dtype=pl.Int64),
        )
        self.rows.append(change_rows.select(CHANGES.names))
        self.count, self.height = self.count + changes.height, self.height + changes.height
        if self.height >= _PORTION:
            self.flush()

    def flush(self) -> list[PartFile]:
        """Write what is there, and return all files so far."""
        if self.rows:
            rows = pl.concat(self.rows)
            part = write_part(self.state.path, "changes", rows.to_arrow())
            if self.state.fresh is not None:
                self.state.fresh.add("changes", part, rows)
            self.parts += [part] if part else []
            self.rows, self.height = [], 0
        return self.parts


@dataclass(frozen=True, kw_only=True)
class Standings:
    """Queries and rules to be registered with the next commit, beside those that the store has.

    It is called with a state before that is committed (`pag_graph.builder.commit.Derive`).
    """

    queries: Sequence[Query] = ()
    """Queries to be registered."""
    rules: Sequence[Rule] = ()
    """Alert rules to be registered; the queries that they watch come with them."""
    forgets: bool = False
    """Whether old epochs are removed."""
    warm: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict, compare=False, repr=False)
    """By the commit that it is of: what queries know from one commit of this process to the next."""

    def __call__(
        self, state: StoreInfo, base: StoreInfo | None, answered: int, *, only_new: bool = False, held: Held = None
    ) -> Live | None:
        """Derive what a commit adds.

        Parameters
        ----------
        state
            What is about to be committed.
        base
            The state that it adds to.
        answered
            The last epoch whose answers hold.
        only_new
            Whether the graph is that of `base`.
        held
            What holds the frontier now, a row of `HELD`.

        Returns
        -------
        Live or None
            None where there are no standing queries, or there is nothing new.

        Raises
        ------
        UnsupportedPlanError
            If an analysis cannot be a standing query.
        """
        live = (base and base.live) or {"queries": [], "rules": [], "answered": NEVER}
        queries_before = [Query.parse(text) for text in live["queries"]]
        if self.forgets or state.removed is not None:
            for query in (*queries_before, *self.queries):
                refuse_sums(query)
        rules, run = [Rule.of(entry) for entry in live["rules"]], Run.of(state)
        new_rules = [rule for rule in self.rules if rule not in rules and not _is_left_out(rule, run)]
        new_queries = [*self.queries, *(watched for rule in new_rules if (watched := _query_of(rule)) is not None)]
        added = [query for query in dict.fromkeys(new_queries) if query not in queries_before]
        if (only_new and not added and not new_rules and held is None) or not (
            queries_before or added or rules or new_rules
        ):
            return None
        for query in added:
            query.analysis.check_standing(run)
            refuse_removed(query, run, answered)
        memory = pl.DataFrame(schema=_TEXTS) if base is None else base.scan("standing").collect()
        watches = [Watch.of(rule, _query_of(rule), run, base, memory) for rule in [*rules, *new_rules]]
        for watch in watches:
            if watch.query is None:
                watch.let_go(answered)
                if held is not None:
                    watch.hold(held)
                    # Before the first commit it may have held what is answered now.
                    watch.let_go(answered)
        if only_new and not added and not new_rules and not any(watch.events for watch in watches):
            return None
        written_changes = _Written(state=state)
        # A commit that failed left what does not hold.
        warm = self.warm.pop(-1 if base is None else base.versions["epochs"], {})
        self.warm.clear()
        self.warm[state.versions["epochs"]] = warm
        commit = _Commit(base=base, written=written_changes, watches=watches, memory=memory, warm=warm)
        before = int(live["answered"])
        for watch in watches[len(rules) :]:
            # Its query may have been there before it.
            commit.look_back(watch, before)
        if queries_before:
            remembered = memory.filter(pl.col("part") == FROM)["epoch"].to_list()
            commit.follow(Delta.between(base, run, before, answered, remembered), queries_before)
        commit.follow(Delta.whole(run, answered), added)
        queries = [*queries_before, *added]
        content = {
            "queries": [query.id for query in queries],
            "rules": [rule.entry for rule in (*rules, *new_rules)],
            "answered": answered,
            # They read the edges of so many epochs when a process begins.
            "last": max(
                (query.parameters.last or 0 for query in queries if query.standing is Standing.JOIN), default=0
            ),
        }
        return Live(parts={"changes": written_changes.flush(), **commit.of_alerts()}, content=content, base=base)


def _query_of(rule: Rule) -> Query | None:
    """Return the query that a rule watches; None of one about the frontier."""
    return None if rule.query == FRONTIER else Query.parse(rule.query)


def _is_left_out(rule: Rule, run: Run) -> bool:
    """Say whether a rule that nobody wrote for this run watches what no standing query of it can say."""
    query = _query_of(rule) if rule in BUILT_IN else None
    if query is None:
        return False
    try:
        query.analysis.check_standing(run)
    except UnsupportedPlanError:
        return True
    return False


def refuse_sums(query: Query) -> None:
    """Refuse a query that adds up all epochs, where old ones are removed.

    Parameters
    ----------
    query
        A standing query.

    Raises
    ------
    UnsupportedPlanError
        If it does.
    """
    if query.standing is Standing.LINEAR:
        message = f"{query.id} adds up all epochs of a run, but old epochs are removed."
        raise UnsupportedPlanError(message, "Ask for a query about epochs, such as metrics, or follow with --keep all.")


def refuse_removed(query: Query, run: Run, answered: int) -> None:
    """Refuse a query that looks at more of the last epochs than a follower has left.

    Parameters
    ----------
    query
        A standing query that is new.
    run
        The state of the store for which it is asked.
    answered
        The last epoch whose answers hold.

    Raises
    ------
    UnsupportedPlanError
        If it does: matches with what was removed would be missing.
    """
    last = (query.parameters.last or 0) if query.standing is Standing.JOIN else 0
    left = int((run.epochs["epoch"] <= answered).sum())
    if run.info.removed is not None and last > left:
        message = f"{query.id} looks at {last} epochs, and {left} are left: a follower has removed others (`--keep`)."
        raise UnsupportedPlanError(
            message, f"Ask for at most last={left}, or follow the trace into a store of its own."
        )


class _Answer(NamedTuple):
    """What a query answers about some epochs, and what it answered before."""

    query: Query
    epochs: Sequence[int] = ()
    """Those that rules look at, ascending."""
    now: pl.DataFrame = _NOTHING
    """`ANSWERS`."""
    before: pl.DataFrame = _NO_CHANGES
    """`ANSWERS`, with how often each row was there (``diff``)."""
    remembered: pl.DataFrame | None = None
    """What the query remembers, rows of `STANDING`; None of one that remembers nothing."""
    changes: pl.DataFrame | None = None
    """What is to be written; None where that is how the two differ."""


@dataclass(frozen=True, kw_only=True)
class _Commit:
    """One commit: what queries answer differently, and who looks at it."""

    base: StoreInfo | None
    written: _Written
    watches: Sequence[Watch]
    memory: pl.DataFrame
    """What queries and rules remember: rows of `STANDING`."""
    warm: dict[str, dict[str, Any]]
    """Per query: what this process knows besides, and can do without."""
    remembered: list[pl.DataFrame] = field(default_factory=list)
    """What queries remember as of this commit."""

    def follow(self, delta: Delta, queries: Sequence[Query]) -> None:
        """Find the changes of some queries, and look at them."""
        of_windows = [query for query in queries if query.standing in {Standing.WINDOW, Standing.LABEL}]
        tasks: list[Callable[[], Iterator[_Answer]]] = []
        for query in queries:
            if query.standing is Standing.ORDERED:
                tasks.append(partial(self._resumed_answers, delta, query))
            if query.standing is Standing.LINEAR:
                tasks.append(partial(self._added, delta, query))
            if query.standing is Standing.JOIN:
                tasks.append(partial(self._joined, delta, query))
        if of_windows:
            tasks.append(partial(self._of_windows, delta, of_windows))
        if delta.before > NEVER:
            # Answers about one commit fit into memory; answers about many epochs are written one by one.
            for answers_of_task in threads.each(lambda task: list(task()), tasks):
                self._write_answers(answers_of_task)
        else:
            for task in tasks:
                self._write_answers(task())

    def _of_windows(self, delta: Delta, queries: Sequence[Query]) -> Iterator[_Answer]:
        """Answer queries about windows: those that are new, and those that may look different."""
        base = self.base if delta.before > NEVER else None
        revised = {query: delta.revised(query.standing) for query in queries}
        before = {query: history(base, query, epochs) for query, epochs in revised.items()}
        epochs_there = set(delta.state.epochs["epoch"])
        epochs_by_query = {
            query: [epoch for epoch in (*epochs, *delta.new) if epoch in epochs_there and epoch <= delta.answered]
            for query, epochs in revised.items()
        }
        for query, epochs, now in answers(delta.state, epochs_by_query):
            yield _Answer(query, epochs, now, before[query].filter(pl.col("epoch").is_in(epochs)))
        for query, epochs in revised.items():
            if removed_epochs := sorted(set(epochs) - set(epochs_by_query[query])):
                yield _Answer(
                    query, removed_epochs, _NOTHING, before[query].filter(pl.col("epoch").is_in(removed_epochs))
                )

    def _resumed_answers(self, delta: Delta, query: Query) -> Iterator[_Answer]:
        """Answer a query whose epochs are answered one after the other."""
        analysis: Any = query.analysis
        remembered = self.memory.filter(pl.col("owner") == query.id)
        epochs = [*delta.revised(query.standing), *delta.new]
        if not epochs:
            yield _Answer(query, remembered=remembered)
            return
        go_on = import_module(analysis.resume).resume
        warm = self.warm.setdefault(query.id, {})
        end = go_on(delta.state, delta.answered, query.parameters, min(epochs), remembered.drop("owner"), warm)
        before = history(self.base, query, range(end.since, max(delta.before, delta.answered) + 1))
        looked = sorted({*delta.epochs(end.since, delta.answered), *before["epoch"]})
        memory = end.memory.with_columns(owner=pl.lit(query.id)).select(remembered.columns)
        yield _Answer(query, looked, encoded(end.rows.select(query.schema.names)), before, memory)

    def _added(self, delta: Delta, query: Query) -> Iterator[_Answer]:
        """Answer with sums over epochs: only keys of new epochs have others."""
        analysis: Any = query.analysis
        remembered = self.memory.filter(pl.col("owner") == query.id)
        nothing = pl.DataFrame(pl.from_arrow(analysis.schema.empty_table()))
        values = remembered["value"].str.json_decode(pl.Struct(nothing.schema))
        before = values.struct.unnest() if remembered.height else nothing
        now = before
        if delta.new or delta.labelled:
            now = analysis.step(before, delta, query.parameters, self.warm.setdefault(query.id, {}))
        rows = [encoded(sums.to_arrow().cast(analysis.schema), delta.answered) for sums in (before, now)]
        memory = rows[1].select(owner=pl.lit(query.id), part=pl.lit("sum"), epoch="epoch", key=pl.lit(""), value="row")
        yield _Answer(query, (), rows[1], rows[0].with_columns(diff=pl.lit(1, pl.Int64)), memory)

    def _joined(self, delta: Delta, query: Query) -> Iterator[_Answer]:
        """Answer a query whose rows are found together: those that came or went with epochs."""
        analysis: Any = query.analysis
        if delta.rewritten or delta.answered < delta.before:
            yield self._joined_anew(delta, query)
            return
        watched = any(watch.query == query for watch in self.watches)
        warm, net = self.warm.setdefault(query.id, {}), _NO_CHANGES
        for step in analysis.steps(delta, query.parameters, warm, each=watched):
            rows = encoded(step.rows.select(query.schema.names).to_arrow().cast(query.schema))
            # In which order matches are found is chance.
            changes = rows.with_columns(step.rows["diff"]).sort("epoch", "row")
            if watched and (step.new or step.revised):
                known = [history(self.base, query, step.revised), net.filter(pl.col("epoch").is_in(step.revised))]
                before = summed(pl.concat([part.select(changes.columns) for part in known]))
                now = summed(pl.concat([before, changes]))
                yield _Answer(query, sorted({*step.revised, *step.new}), now, before, changes=_NO_CHANGES)
            net = summed(pl.concat([net, changes]))
        yield _Answer(query, changes=net.sort("epoch", "row"))

    def _joined_anew(self, delta: Delta, query: Query) -> _Answer:
        """Answer such a query where epochs are others that were answered before: rows need not follow from changes."""
        self.warm.pop(query.id, None)
        now = encoded(query.over(delta.state.whole, delta.answered)).sort("epoch", "row")
        before = history(self.base, query, range(NEVER, max(delta.before, delta.answered) + 1))
        epochs = sorted({epoch for epoch in (*delta.rewritten, *delta.new) if epoch <= delta.answered})
        return _Answer(query, epochs, now, before)

    def _write_answers(self, answers_made: Iterable[_Answer]) -> None:
        """Write what changed, and let rules look at it."""
        for query, epochs, now, before, remembered, changes in answers_made:
            if remembered is not None:
                self.remembered.append(remembered)
            self.written.add(query.id, difference(before, now) if changes is None else changes)
            for watch in self.watches:
                if watch.query == query and epochs:
                    watch.look(epochs, now, before)

    def look_back(self, watch: Watch, last: int) -> None:
        """Let a new rule look at what its query has answered so far."""
        if watch.query is None:
            return
        rows = history(self.base, watch.query, range(NEVER, last + 1))
        if rows.height:
            epochs = self.base.scan("epochs").filter(pl.col("epoch") <= last).select("epoch").collect()  # type: ignore[union-attr]
            watch.look(sorted(epochs["epoch"].to_list()), rows, _NOTHING)

    def of_alerts(self) -> dict[str, list[PartFile]]:
        """Write the alerts, and what rules remember."""
        state = self.written.state
        events = sorted((event for watch in self.watches for event in watch.events), key=itemgetter("epoch"))
        coverage: dict[int, float] = {}
        if events:
            low, high = events[0]["epoch"], events[-1]["epoch"]
            coverages = Run.of(state).between("epochs", low, high).select("epoch", "coverage").collect()
            coverage = dict(coverages.iter_rows())
        alerts = [
            {**event, "coverage": coverage.get(event["epoch"]), "commit": state.versions["epochs"], "ordinal": place}
            for place, event in enumerate(events)
        ]
        of_rules = pa.Table.from_pylist([row for watch in self.watches for row in watch.memory()], STANDING)
        memory = pa.concat_tables([of_rules, *(rows.to_arrow().cast(STANDING) for rows in self.remembered)])
        path = state.path
        parts = {
            "alerts": write_part(path, "alerts", pa.Table.from_pylist(alerts, ALERTS)),
            "standing": write_and_keep(path, "standing", memory, state.fresh, provisional=True),
        }
        return {name: [part] for name, part in parts.items() if part is not None}


def history(base: StoreInfo | None, query: Query, epochs: Collection[int]) -> pl.DataFrame:
    """Add up what a store says of a query.

    Parameters
    ----------
    base
        A state of the store; None where there is none.
    query
        A standing query of it.
    epochs
        Epochs to look at; a range, or some.

    Returns
    -------
    DataFrame
        `ANSWERS`, with how often each row is there (``diff``), in order of epochs. Only files that can hold changes of
        these epochs are read.
    """
    if base is None or not epochs:
        return _NO_CHANGES
    low, high = (epochs[0], epochs[-1]) if isinstance(epochs, range) else (min(epochs), max(epochs))
    rows = base.scan("changes", epochs_between(low, high)).filter(
        pl.col("query") == query.id, pl.col("epoch").is_between(low, high)
    )
    if not isinstance(epochs, range):
        rows = rows.filter(pl.col("epoch").is_in(list(epochs)))
    return summed(rows.sort("commit", "ordinal").select("epoch", "row", "diff").collect())
