"""What an append has changed of a run that is loaded: taken back, or exchanged for what it is now.

Epochs that every worker had left stay as they are. Of the others, those that are visible are exchanged in one
transaction, so that readers see them either as they were or as they are, and a load that is killed changes
nothing. Where they are too many for one transaction, they are hidden first and loaded as new ones are.

Epochs that the store no longer has cannot be loaded again: they stay visible, with all that they show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pag_graph.cypher import load_query
from pag_graph.sinks.neo4j.events import EventSync, Gone
from pag_graph.sinks.neo4j.load_steps import begin, describe, publish, write_summary
from pag_graph.sinks.neo4j.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pag_graph.sinks.neo4j.content import Content, Reader
    from pag_graph.sinks.neo4j.writer import Work
    from pag_graph.store.delta import StoreInfo

_TAKE_BACK = ("load/retract_events", "load/retract_segments", "load/retract_steps")
_ALL = 2**62


class OneTransaction(Writer):
    """Keeps what is to be written until `commit` does all of it in one transaction.

    Parameters
    ----------
    writer
        Writes it in the end.
    """

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer.driver, writer.lease, writer.lane)
        self._writer = writer
        self.beside = writer.beside
        self._statements: list[tuple[str, Mapping[str, Any]]] = []

    def write_all(
        self, statements: Sequence[tuple[str, Mapping[str, Any]]], lane: int | None = None
    ) -> list[dict[str, Any]]:
        """Keep queries until `commit`.

        Parameters
        ----------
        statements
            Texts and parameters, in the order in which they are to run after what was kept before.
        lane
            Not looked at: the one transaction goes over the lane of the writer.

        Returns
        -------
        list
            Empty, as there are no rows yet: a query whose answer is needed cannot be kept.
        """
        del lane
        self._statements.extend(statements)
        return []

    def write_side_by_side(self, work: Iterable[Work], advance: Callable[[int], None]) -> None:
        """Keep work, in its order, until `commit`.

        Parameters
        ----------
        work
            Made at once, so all of it is in memory.
        advance
            Called with the rows of each piece, though none of it is done yet.
        """
        for item in work:
            self._statements.append((item.text, item.parameters))
            advance(item.rows)

    def commit(self) -> None:
        """Write everything that was kept."""
        self._writer.write_all(self._statements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction:
    """What of a run may have changed, and what of that stays all the same."""

    open_epoch: int
    """The first epoch that was open when the run was last loaded."""
    first_epoch: int
    """Epochs before this one were removed from the store."""
    kept_events: tuple[int, ...]
    """Events of open epochs that removed epochs show."""
    kept_segments: tuple[int, ...]
    """Segments that begin in open epochs and that removed epochs show."""

    @classmethod
    def of(cls, writer: Writer, info: StoreInfo, open_epoch: int) -> Retraction:
        """Ask the database what stays.

        Parameters
        ----------
        writer
            Writes the run.
        info
            The store as it is now.
        open_epoch
            The first epoch that was open when the run was last loaded.
        """
        first_epoch = -1 if info.removed is None else info.removed.last_epoch + 1
        values = {"run": writer.run_id, "open_epoch": open_epoch, "first_epoch": first_epoch}
        (row,) = writer.read(load_query("load/kept").text, values)
        return cls(
            open_epoch=open_epoch,
            first_epoch=first_epoch,
            kept_events=tuple(row["events"]),
            kept_segments=tuple(row["segments"]),
        )

    def statement(self, name: str, run_id: str, batch_rows: int) -> tuple[str, dict[str, Any]]:
        """Return the text and the parameters of one of the queries that retract.

        Parameters
        ----------
        name
            Of the query, such as ``load/retract_events``.
        run_id
            Id of the run.
        batch_rows
            Nodes that one call removes at most; the query is to be repeated until it removes none.

        Returns
        -------
        text : str
            The query.
        values : dict
            Those of these parameters that it has.
        """
        query = load_query(name)
        values = {
            "run": run_id,
            "open_epoch": self.open_epoch,
            "first_epoch": self.first_epoch,
            "kept_events": list(self.kept_events),
            "kept_segments": list(self.kept_segments),
            "batch_rows": batch_rows,
        }
        return query.text, {parameter: values[parameter] for parameter in query.params}


def take_back(writer: Writer, retraction: Retraction, batch_rows: int) -> None:
    """Hide what may have changed, and remove it, in many transactions.

    What is remembered of the run changes only after this, so that it is done to its end even if it is killed.

    Parameters
    ----------
    writer
        Writes the run.
    retraction
        What may have changed.
    batch_rows
        How many nodes to remove in a transaction.
    """
    for name in ("load/unpublish", "load/retract_marks"):
        writer.write(*retraction.statement(name, writer.run_id, batch_rows))
    for name in _TAKE_BACK:
        text, values = retraction.statement(name, writer.run_id, batch_rows)
        while writer.write(text, values)[0]["removed"]:
            pass
    writer.write(*retraction.statement("load/retract_epochs", writer.run_id, batch_rows))


def exchange(writer: Writer, reader: Reader, content: Content, retraction: Retraction, batch_rows: int) -> None:
    """Exchange what may have changed for some epochs as they are now, in one transaction.

    Parameters
    ----------
    writer
        Writes the run.
    reader
        Of the run.
    content
        The epochs as they are now; others that may have changed are hidden, where the store has them.
    retraction
        What may have changed.
    batch_rows
        Rows of a query.
    """
    transaction = OneTransaction(writer)
    for name in ("load/unpublish", "load/retract_marks", *_TAKE_BACK, "load/retract_epochs"):
        transaction.write(*retraction.statement(name, writer.run_id, _ALL))
    describe(transaction, reader, batch_rows, logs=False)
    begin(transaction, content)
    gone = Gone(retraction.open_epoch, retraction.kept_events)
    sync = EventSync(reader.run, transaction, content, batch_rows, gone=gone)
    sync.write_nodes(_unseen)
    sync.write_rest(_unseen)
    sync.mark_critical()
    write_summary(transaction, content, batch_rows, _unseen)
    publish(transaction, content)
    transaction.commit()
    reader.told.arrived(reader.run)


def _unseen(rows: int) -> None:
    """Report nothing: none of it is done before all of it is."""
    del rows
