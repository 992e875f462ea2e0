"""Which epochs an answer looked at, which it should have looked at as well, and how to load those.

A query says in its header what it looks over (`pag_graph.cypher.Over`); what of that is in the database is read in the
transaction that asks the query. So an answer over epochs never stands for epochs that are not there.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pag_graph.cypher import Over
from pag_graph.errors import InvalidParameterError
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.loaded import EARLIER, LoadedRun, epoch_ranges, read_loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import neo4j

    from pag_graph.cypher import Query
    from pag_graph.sinks.neo4j.loaded import LoadedEpoch

_EVENT = "MATCH (event:Event {run: $run, id: $event}) RETURN event.t_ns AS t_ns"
# The same choice as that of the query `runs/run_difference`.
_RUN_BEFORE = """\
MATCH (this:Run {id: $run})
MATCH (other:Run)
WHERE other.id IS NOT NULL AND other.origin_unix_ns < this.origin_unix_ns
RETURN other.id AS run
ORDER BY other.origin_unix_ns DESC, run
LIMIT 1
"""
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which epochs an answer looked at, of those that it should have looked at."""

    query: str
    run: str
    covered: tuple[int, ...]
    """Epochs that it looked at, ascending."""
    skipped: Mapping[int, str]
    """Epochs that it left out because they are loaded with less detail than the query needs, with that detail."""
    absent: tuple[int, ...]
    """Epochs of the store that it left out because they are not loaded, ascending."""
    details: tuple[str, ...]
    """Details of an epoch that the query can answer from; empty where any will do."""
    store: str | None
    """Path of the store that the run was loaded from; none where nothing of it is loaded."""
    refusal: tuple[str, str] | None = None
    """What to say, and what to do, where there is nothing that the query could look at."""
    against: Coverage | None = None
    """The same of the run that the query compares this one with; none where it compares no runs."""

    @property
    def complete(self) -> bool:
        """Whether it looked at all that it should have looked at."""
        return self.refusal is None and self.line() is None

    def line(self) -> str | None:
        """Return what was looked at and what was left out, with the command that loads the rest, as one line.

        Returns
        -------
        str or None
            None where nothing was left out.
        """
        if self.against is None:
            return _left_out(self)
        lines = {each.run: _left_out(each) for each in (self.against, self)}
        return " ".join(f"Of run {run}: {line}" for run, line in lines.items() if line) or None

    def load_command(self, missing: Sequence[int] = ()) -> str:
        """Return the command that loads epochs, or all where many are missing, with the detail that the query needs."""
        return load_command(self.store, missing, self.details)

    def within(self, other: Coverage) -> Coverage:
        """Return what this and another look at the same question both cover."""
        covered = set(self.covered) & set(other.covered)
        skipped = {**self.skipped, **other.skipped}
        absent = {*self.absent, *other.absent, *self.covered, *other.covered} - covered - skipped.keys()
        return replace(
            self,
            covered=tuple(sorted(covered)),
            skipped=skipped,
            absent=tuple(sorted(absent)),
            refusal=self.refusal or other.refusal,
            against=self.against.within(other.against) if self.against and other.against else self.against,
        )

    def check(self) -> None:
        """Raise an error where the query looked at nothing.

        Raises
        ------
        InvalidParameterError
            If nothing is loaded that it could have looked at; says what is, and how to load the rest.
        """
        if self.refusal is not None:
            message, hint = self.refusal
            raise InvalidParameterError(message, hint, {"run": self.run, "query": self.query})


def _left_out(coverage: Coverage) -> str | None:
    """Return what was looked at of one run, and what was left out."""
    if not coverage.absent and not coverage.skipped:
        return None
    left_out = [f"{_named(coverage.absent)} (not loaded)"] if coverage.absent else []
    for detail in dict.fromkeys(coverage.skipped.values()):
        numbers = [number for number, loaded_with in coverage.skipped.items() if loaded_with == detail]
        needs = f"needs {' or '.join(coverage.details)}" if coverage.details else "has to be loaded again"
        if not coverage.details and detail == Detail.SUMMARY:
            needs = f"needs {Detail.WAITS}"
        left_out.append(f"{_named(numbers)} (loaded with {detail}, {needs})")
    missing = sorted((*coverage.skipped, *coverage.absent))
    looked = f"Looked at {_named(coverage.covered)}" if coverage.covered else "Looked at no epoch"
    return f"{looked}; left out {', '.join(left_out)}. Load the rest: `{coverage.load_command(missing)}`."


def load_command(store: str | None, epochs: Sequence[int] = (), details: Sequence[str] = ()) -> str:
    """Return the command that loads epochs of a store.

    Parameters
    ----------
    store
        Path of the store; ``STORE`` stands in the command where it is not known.
    epochs
        What to load; the command loads all epochs where none or more than five are named.
    details
        Details that would do, of which the command names the first; where empty, it leaves the detail to its default.

    Returns
    -------
    str
        For a shell: ``pag neo4j load run.pag --epoch 4 --detail critical``.
    """
    words = ["pag neo4j load", shlex.quote(store) if store else "STORE"]
    if len(epochs) <= _MOST_NAMED:
        words.extend(f"--epoch {number}" for number in epochs)
    if details:
        words.append(f"--detail {details[0]}")
    return " ".join(words)


def read_coverage(transaction: neo4j.ManagedTransaction, query: Query, values: Mapping[str, Any]) -> Coverage:
    """Read which epochs a query can look at.

    Parameters
    ----------
    transaction
        The one that the query is asked in.
    query
        A query with the parameter `run`.
    values
        A value for each of its parameters.

    Returns
    -------
    Coverage
        Of an answer that is made now.
    """
    only = values["epoch"] if query.over is Over.EPOCH else None
    return covers(query, values, read_loaded(transaction, values["run"], only), transaction)


def covers(
    query: Query, values: Mapping[str, Any], known: LoadedRun, transaction: neo4j.ManagedTransaction
) -> Coverage:
    """Return which epochs a query can look at, where it is known already what the database has of the run.

    Parameters
    ----------
    query
        A query with the parameter `run`.
    values
        A value for each of its parameters.
    known
        From `read_loaded`, in the same transaction.
    transaction
        Asked for what `known` does not say: when the event of the parameter `event` happened, and what is there of the
        run that is compared with.

    Returns
    -------
    Coverage
        As from `coverage`. A run with which nothing can be compared is a refusal of it, not an error.
    """
    event_ns = None
    if values.get("event") is not None:
        row = transaction.run(_EVENT, {"run": values["run"], "event": values["event"]}).single()
        event_ns = None if row is None else int(row["t_ns"])
    other = None
    if query.over is Over.ROUNDS_OF_BOTH:
        other = _other_run(transaction, values["run"], values.get("against"))
    return coverage(query, values, known, event_ns, other)


def _other_run(transaction: neo4j.ManagedTransaction, run: str, against: str | None) -> LoadedRun | None:
    """Return what the database has of the run to compare with: the one asked for, or the one that started before."""
    if against is None:
        row = transaction.run(_RUN_BEFORE, {"run": run}).single()
        return None if row is None else read_loaded(transaction, row["run"])
    return read_loaded(transaction, against)


def coverage(
    query: Query,
    values: Mapping[str, Any],
    known: LoadedRun,
    event_ns: int | None = None,
    other: LoadedRun | None = None,
) -> Coverage:
    """Return which epochs a query looks at, of those that it should look at.

    Parameters
    ----------
    query
        A query with the parameter `run`.
    values
        A value for each of its parameters.
    known
        What the database has of the run.
    event_ns
        Instant of the event that the parameter `event` names, if that is loaded.
    other
        What the database has of the run that the query compares with; none where there is no such run.

    Returns
    -------
    Coverage
        The same choice of epochs as the query's own.
    """
    detailed = [epoch for epoch in known.epochs.values() if epoch.is_enough(query)]
    look = _Look(query, values, known, {epoch.number: epoch for epoch in detailed}, event_ns)
    against = None
    if query.over is Over.ROUNDS_OF_BOTH:
        against = _against(query, values, look, other)
    if not known.epochs and query.over is not Over.EPOCH:
        look.refuse(f"No epoch of run {known.run} is loaded.")
    elif query.over is not None:
        _LOOKS[query.over](look)
    not_covered = sorted(set(look.wanted) - set(look.covered))
    return Coverage(
        query=query.name,
        run=known.run,
        covered=tuple(sorted(look.covered)),
        skipped={number: known.epochs[number].detail for number in not_covered if number in known.epochs},
        absent=tuple(number for number in not_covered if number not in known.epochs),
        details=query.details,
        store=known.store,
        refusal=look.refusal,
        against=against,
    )


def _against(query: Query, values: Mapping[str, Any], look: _Look, other: LoadedRun | None) -> Coverage | None:
    """Return what a query looks at of the run that it compares with; that it needs one, where there is none."""
    if other is None:
        message = f"No run that started before run {look.known.run} is loaded to compare it with."
        look.refuse(message, hint="Name another run: against. `pag neo4j runs` lists those that are loaded.")
        return None
    if other.store is None:
        message = f"Run {other.run} is not loaded."
        look.refuse(message, hint="`pag neo4j runs` lists those that are loaded; or load it: `pag neo4j load STORE`.")
        return None
    covered = coverage(replace(query, over=Over.ROUNDS), values, other)
    look.refusal = look.refusal or covered.refusal
    return covered


class _Look:
    """What one question looks at, as it is found out."""

    def __init__(
        self,
        query: Query,
        values: Mapping[str, Any],
        known: LoadedRun,
        enough: Mapping[int, LoadedEpoch],
        event_ns: int | None,
    ) -> None:
        self.query, self.values, self.known, self.enough, self.event_ns = query, values, known, enough, event_ns
        self.wanted: set[int] = set()
        self.covered: set[int] = set()
        self.refusal: tuple[str, str] | None = None

    def refuse(self, message: str, missing: Sequence[int] = (), hint: str | None = None) -> None:
        """Say that there is nothing to look at; the first reason counts."""
        command = load_command(self.known.store, missing, self.query.details)
        self.refusal = self.refusal or (message, hint or f"Load it: `{command}`.")

    def need(self, number: int) -> None:
        """Look at an epoch without which there is no answer."""
        self.wanted.add(number)
        if number in self.enough:
            self.covered.add(number)
        elif number in self.known.epochs:
            needs = " or ".join(self.query.details)
            problem = f"is loaded with less detail than {self.query.name} needs: {needs}."
            if self.known.epochs[number].detail == EARLIER:
                problem = f"is loaded with {EARLIER}."
            self.refuse(f"Epoch {number} of run {self.known.run} {problem}", [number])
        elif self.known.epochs:
            loaded = _ranges(self.known.epochs)
            self.refuse(f"Epoch {number} of run {self.known.run} is not loaded; loaded are {loaded}.", [number])
        else:
            self.refuse(f"No epoch of run {self.known.run} is loaded.", [number])

    def want(self, numbers: Iterable[int], covered: Iterable[int] | None = None) -> None:
        """Look at those of some epochs that are loaded with enough detail, or at others; one at least has to be."""
        asked_for = list(numbers)
        looked_at = set(self.enough).intersection(asked_for) if covered is None else set(covered)
        self.wanted |= {*asked_for, *looked_at}
        self.covered |= looked_at
        if asked_for and not looked_at:
            loaded = [number for number in asked_for if number in self.known.epochs]
            needs = " or ".join(self.query.details) or "this release's"
            requirement = f"is loaded with the detail that {self.query.name} needs: {needs}" if loaded else "is loaded"
            self.refuse(f"Of run {self.known.run}, none of {_named(asked_for)} {requirement}.", asked_for)

    def before(self, number: int) -> int | None:
        """Return the epoch of the store before another one."""
        return max((earlier for earlier in self.known.store_epochs if earlier < number), default=None)


def _look_over_run(look: _Look) -> None:
    look.want(look.known.epochs)


def _look_over_epoch(look: _Look) -> None:
    look.need(look.values["epoch"])


def _look_over_epochs(look: _Look) -> None:
    """Events are chosen by the epoch that they carry: a worker that is ahead makes some in earlier windows."""
    first, last = look.values.get("first_epoch"), look.values.get("last_epoch")
    numbers = [
        number
        for number in look.known.store_epochs
        if (first is None or number >= first) and (last is None or number <= last)
    ]
    if not numbers:
        asked = f"{first} on" if last is None else f"{first or 0} to {last}"
        message = f"Run {look.known.run} has no epoch from {asked}; it has {_ranges(look.known.store_epochs)}."
        look.refuse(message, hint="Correct first_epoch and last_epoch.")
        return
    look.want(numbers)
    earlier = look.before(numbers[0])
    while earlier is not None:
        if earlier not in look.enough:
            look.wanted.add(earlier)
            return
        if look.enough[earlier].highest < numbers[0]:
            return
        look.covered.add(earlier)
        earlier = look.before(earlier)


def _look_over_rounds(look: _Look) -> None:
    look.want(look.known.store_rounds)


def _look_over_rounds_before(look: _Look) -> None:
    number, rounds = look.values["epoch"], look.values["rounds"]
    look.need(number)
    if number not in look.covered:
        return
    opens_ns = look.enough[number].start_ns
    earlier = [epoch for epoch in look.enough.values() if epoch.role == "round" and epoch.end_ns <= opens_ns]
    nearest = sorted(earlier, key=lambda epoch: -epoch.end_ns)[: max(rounds, 0)]
    earlier_rounds = [epoch for epoch in look.known.store_rounds if epoch < number]
    look.want(earlier_rounds[max(len(earlier_rounds) - rounds, 0) :], [epoch.number for epoch in nearest])


def _look_over_two(look: _Look) -> None:
    number, against = look.values["epoch"], look.values["against"]
    look.need(number)
    compared = look.before(number) if against is None else against
    if compared is None:
        message = f"Epoch {number} is the first of run {look.known.run}: none is before it to compare with."
        look.refuse(message, hint="Name another epoch: against.")
    else:
        look.need(compared)


def _look_at_instant(look: _Look) -> None:
    at_ns, known = look.values["at_ns"], look.known
    if not 0 <= at_ns <= known.end_ns:
        look.refuse(f"The instant {at_ns} lies outside run {known.run}: 0 to {known.end_ns} ns.", hint="Correct at_ns.")
        return
    epochs_at_instant = [epoch for epoch in known.epochs.values() if epoch.holds(at_ns)]
    if epochs_at_instant:
        look.need(min(epochs_at_instant, key=lambda epoch: epoch.start_ns).number)
        return
    low = max((epoch.number for epoch in known.epochs.values() if epoch.end_ns < at_ns), default=-1)
    high = min((epoch.number for epoch in known.epochs.values() if epoch.start_ns >= at_ns), default=None)
    missing = [epoch for epoch in known.store_epochs if epoch > low and (high is None or epoch < high)]
    look.wanted |= set(missing)
    message = f"The epoch at {at_ns} ns of run {known.run} is not loaded; it is one of {_ranges(missing)}."
    look.refuse(message, missing)


def _look_around_event(look: _Look) -> LoadedEpoch | None:
    """Look at the epoch that the walk begins in."""
    event, needs = look.values["event"], " or ".join(look.query.details)
    if event is None:
        start = next((epoch for epoch in look.known.slowest_first() if epoch.number in look.enough), None)
    else:
        at_ns = look.event_ns
        epochs_around = (epoch for epoch in look.enough.values() if at_ns is not None and epoch.holds(at_ns))
        start = next(epochs_around, None)
    if start is None:
        missing = f"No epoch of run {look.known.run} is loaded with the detail {needs}."
        elsewhere = f"Event {event} is in no epoch of run {look.known.run} that is loaded with the detail {needs}."
        look.refuse(missing if event is None else elsewhere)
        look.wanted |= set(look.known.store_epochs)
        return None
    look.need(start.number)
    return start


def _look_back(look: _Look) -> None:
    start, back_ns = _look_around_event(look), look.values["back_ns"]
    if start is None or back_ns is None:
        return
    from_ns = max((start.end_ns if look.event_ns is None else look.event_ns) - back_ns, 0)
    _walk(look, start, is_last=lambda epoch: epoch.start_ns <= from_ns, forward=False)


def _look_ahead(look: _Look) -> None:
    start, ahead_ns = _look_around_event(look), look.values["ahead_ns"]
    if start is None or ahead_ns is None:
        return
    to_ns = min((start.start_ns if look.event_ns is None else look.event_ns) + ahead_ns, look.known.end_ns)
    _walk(look, start, is_last=lambda epoch: epoch.end_ns >= to_ns, forward=True)


def _look_back_rounds(look: _Look) -> None:
    start, rounds = _look_around_event(look), look.values["rounds"]
    if start is not None:
        first = look.known.store_epochs.index(start.number) if start.number in look.known.store_epochs else 0
        before = look.known.store_epochs[max(first - rounds, 0) : first]
        _walk(look, start, is_last=lambda epoch: not before or epoch.number <= before[0], forward=False)


def _walk(look: _Look, start: LoadedEpoch, *, is_last: Callable[[LoadedEpoch], bool], forward: bool) -> None:
    """Go from window to window as a query about an event does; the first that is not there ends it."""
    epoch = start
    while not is_last(epoch):
        beyond = [n for n in look.known.store_epochs if (n > epoch.number if forward else n < epoch.number)]
        if not beyond:
            return
        number = min(beyond) if forward else max(beyond)
        look.wanted.add(number)
        if number not in look.enough:
            return
        look.covered.add(number)
        epoch = look.enough[number]


_LOOKS: dict[Over, Callable[[_Look], object]] = {
    Over.RUN: _look_over_run,
    Over.EPOCH: _look_over_epoch,
    Over.EPOCHS: _look_over_epochs,
    Over.ROUNDS: _look_over_rounds,
    Over.ROUNDS_OF_BOTH: _look_over_rounds,
    Over.ROUNDS_BEFORE: _look_over_rounds_before,
    Over.AGAINST: _look_over_two,
    Over.INSTANT: _look_at_instant,
    Over.EVENT_BACK: _look_back,
    Over.EVENT_AHEAD: _look_ahead,
    Over.EVENT_ROUNDS: _look_back_rounds,
}


def _named(numbers: Sequence[int]) -> str:
    return f"{'epoch' if len(numbers) == 1 else 'epochs'} {_ranges(numbers)}"


def _ranges(numbers: Iterable[int]) -> str:
    """Write ascending numbers in short: ``0 to 4, 7``."""
    pairs = zip(*[iter(epoch_ranges(numbers))] * 2, strict=True)
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in pairs)
