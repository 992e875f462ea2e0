"""What the database has of a run: which epochs are published, and with which detail."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.model import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import neo4j

    from pag_graph.cypher import Query

EARLIER = "an earlier release"
"""Stands for the detail of an epoch that an earlier release has loaded."""
# Without a detail, an epoch is of a release that knew only one.
_LOADED = """\
MATCH (run:Run {id: $run})
CALL (run) {
  MATCH (run)-[:HAS_EPOCH]->(epoch:Epoch {published: true})
  WHERE $only IS NULL OR epoch.epoch = $only
  RETURN collect({number: epoch.epoch, role: epoch.role, start_ns: epoch.start_ns, end_ns: epoch.end_ns,
                  after_ns: coalesce(epoch.after_ns, epoch.start_ns),
                  detail: CASE WHEN epoch.model = $model THEN coalesce(epoch.detail, 'full') ELSE $earlier END,
                  highest: epoch.highest_epoch}) AS loaded
}
RETURN run.store AS store, run.end_ns AS end_ns, run.epoch_ranges AS epochs, run.round_ranges AS rounds, loaded
"""


class LoadedEpoch(NamedTuple):
    """A published epoch of a run."""

    number: int
    role: str
    start_ns: int
    end_ns: int
    detail: str
    """What it is loaded with; of what an earlier release has loaded nothing is known."""
    highest: int
    """Highest epoch that an event of its window carries."""
    after_ns: int
    """All instants of its window are later than this one."""

    def holds(self, at_ns: int) -> bool:
        """Return whether an instant lies in its window."""
        return self.after_ns < at_ns <= self.end_ns

    def is_enough(self, query: Query) -> bool:
        """Return whether it is loaded with a detail that a query can answer from."""
        if query.details:
            return self.detail in query.details
        return self.detail != EARLIER and (query.is_summary or self.detail != Detail.SUMMARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """What the database has of a run, and what it knows of the run's store."""

    run: str
    store: str | None = None
    """Path of the store that it was last loaded from."""
    end_ns: int = 0
    """Length of the run."""
    store_epochs: Sequence[int] = ()
    """Numbers of the epochs of the store, ascending, loaded or not."""
    store_rounds: Sequence[int] = ()
    """Those of them that are neither startup nor shutdown."""
    epochs: Mapping[int, LoadedEpoch] = field(default_factory=dict)
    """The published ones, by number."""

    def slowest_first(self) -> list[LoadedEpoch]:
        """Return the published epochs: rounds before startup and shutdown, the longest first."""
        return sorted(
            self.epochs.values(), key=lambda epoch: (epoch.role != "round", epoch.start_ns - epoch.end_ns, epoch.number)
        )


def read_loaded(transaction: neo4j.ManagedTransaction, run: str, only_epoch: int | None = None) -> LoadedRun:
    """Read what the database has of a run, or of one epoch of it.

    Parameters
    ----------
    transaction
        In which it is asked; the answer is as of that transaction.
    run
        Id of the run.
    only_epoch
        The only epoch to look at; all where absent. What is known of the store is of all epochs in either case.

    Returns
    -------
    LoadedRun
        Epochs that are hidden are not in it. Without a store, and with no epochs, if there is no such run.
    """
    row = transaction.run(_LOADED, {"run": run, "only": only_epoch, "model": MODEL, "earlier": EARLIER}).single()
    if row is None:
        return LoadedRun(run=run)
    loaded = sorted(row["loaded"], key=lambda entry: entry["number"])
    epochs = {entry["number"]: LoadedEpoch(**entry) for entry in loaded}
    return LoadedRun(
        run=run,
        store=row["store"],
        end_ns=row["end_ns"],
        store_epochs=_numbers(row["epochs"]),
        store_rounds=_numbers(row["rounds"]),
        epochs=epochs,
    )


def epoch_ranges(numbers: Iterable[int]) -> list[int]:
    """Write ascending numbers as bounds: first and last of each stretch without a gap.

    Examples
    --------
    >>> epoch_ranges([0, 1, 2, 5])
    [0, 2, 5, 5]
    """
    bounds: list[int] = []
    for number in numbers:
        if bounds and number == bounds[-1] + 1:
            bounds[-1] = number
        else:
            bounds += [number, number]
    return bounds


def _numbers(bounds: Sequence[int] | None) -> list[int]:
    """Return the numbers that `epoch_ranges` wrote as bounds."""
    pairs = zip(*[iter(bounds or ())] * 2, strict=True)
    return [number for first, last in pairs for number in range(first, last + 1)]
