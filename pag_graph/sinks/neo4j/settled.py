"""Reads that never see half of a load: the state that was looked at is the same before and after.

Neo4j shows a transaction while it is being applied: others can see some of its changes before the rest. No lock helps,
as reading takes none. But a transaction that begins with a bookmark waits until all that was committed up to it is
applied, and at its end the server hands out a bookmark of the latest commit, applied or not (Neo4j, *Operations
Manual*, "Causal consistency"). Hence three transactions, each with the bookmark of the one before: look at the state,
do the work, look again. What the first look saw any part of is applied before the work begins; what was committed until
the work ended is applied before the second look. So if both looks see the same state, then nothing that changes the
state was being applied while the work was done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import neo4j

_T = TypeVar("_T")

_TRIES = 5
_STATE = """\
{match}
RETURN run.id AS run, run.last_closed_epoch AS last_closed_epoch, run.events AS events,
       COLLECT {{
         MATCH (run)-[:HAS_EPOCH]->(epoch:Epoch {{published: true}})
         RETURN toString(epoch.epoch) + coalesce(epoch.detail, '') AS shown ORDER BY epoch.epoch
       }} AS epochs
ORDER BY run"""
_OF_ONE = _STATE.format(match="MATCH (run:Run {id: $run})")
_OF_ALL = _STATE.format(match="MATCH (run:Run)")


class Settled(NamedTuple, Generic[_T]):
    """A value that was read, and what the looks before and after it saw."""

    value: _T
    before: Any
    after: Any

    @property
    def is_whole(self) -> bool:
        """Whether nothing changed meanwhile."""
        return bool(self.before == self.after)


def run_states(transaction: neo4j.ManagedTransaction, run: str | None = None) -> tuple[tuple[Any, ...], ...]:
    """Return what a load changes of one run, or of all: the state of its store, and which epochs are shown.

    Parameters
    ----------
    transaction
        To read in.
    run
        Id of the run; all where absent.

    Returns
    -------
    tuple of tuple
        One per run; equal for equal states. An append changes ``events`` or ``last_closed_epoch``, in the transaction
        that exchanges what it has changed.
    """
    result = transaction.run(_OF_ALL) if run is None else transaction.run(_OF_ONE, {"run": run})
    return tuple(tuple(tuple(part) if isinstance(part, list) else part for part in row.values()) for row in result)


def read_settled(
    driver: neo4j.Driver,
    work: Callable[[neo4j.ManagedTransaction], _T],
    look: Callable[[neo4j.ManagedTransaction], Any] = run_states,
) -> Settled[_T]:
    """Read something of one state of the database; again where that has changed meanwhile.

    Parameters
    ----------
    driver
        Of the database.
    work
        Reads, in a transaction in which the server refuses to write; may be called several times.
    look
        Reads what must not change meanwhile; `run_states` of all runs unless given.

    Returns
    -------
    Settled
        What `work` returned last. Where the state has changed at every one of five tries, as it may when the work takes
        longer than the pauses of a load, the looks differ.
    """
    with driver.session(default_access_mode="READ", bookmark_manager=driver.execute_query_bookmark_manager) as session:
        after = session.execute_read(look)
        for _ in range(_TRIES):
            before = after
            value = session.execute_read(work)
            after = session.execute_read(look)
            if before == after:
                break
    return Settled(value, before, after)
