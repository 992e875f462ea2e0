"""What an append has changed of a run that is loaded: taken back, or exchanged for what it is now.

Epochs that every worker had left stay as they are. Of the others, those that are visible are exchanged in one
transaction, so that readers see them either as they were or as they are, and a load that is killed changes
nothing. Where they are too many for one transaction, they are hidden first and loaded as new ones are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.cypher import load_query
from pag_graph.sinks.neo4j.events import EventSync
from pag_graph.sinks.neo4j.load_steps import begin, describe, publish, write_summary
from pag_graph.sinks.neo4j.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pag_graph.sinks.neo4j.content import Content, Reader
    from pag_graph.sinks.neo4j.writer import Work

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
        """Keep queries; there are no rows yet."""
        del lane
        self._statements.extend(statements)
        return []

    def write_side_by_side(self, work: Iterable[Work], advance: Callable[[int], None]) -> None:
        """Keep work, in its order."""
        for item in work:
            self._statements.append((item.text, item.parameters))
            advance(item.rows)

    def commit(self) -> None:
        """Write everything that was kept."""
        self._writer.write_all(self._statements)


def take_back(writer: Writer, open_epoch: int, batch_rows: int) -> None:
    """Hide what may have changed, and remove it, in many transactions.

    What is remembered of the run changes only after this, so that it is done to its end even if it is killed.

    Parameters
    ----------
    writer
        Writes the run.
    open_epoch
        The first epoch that was open when the run was last loaded.
    batch_rows
        How many nodes to remove in a transaction.
    """
    values = {"run": writer.run_id, "open_epoch": open_epoch}
    writer.write(load_query("load/unpublish").text, values)
    writer.write(load_query("load/retract_marks").text, values)
    for name in _TAKE_BACK:
        text = load_query(name).text
        while writer.write(text, {**values, "batch_rows": batch_rows})[0]["removed"]:
            pass
    writer.write(load_query("load/retract_epochs").text, values)


def exchange(writer: Writer, reader: Reader, content: Content, open_epoch: int, batch_rows: int) -> None:
    """Exchange what may have changed for some epochs as they are now, in one transaction.

    Parameters
    ----------
    writer
        Writes the run.
    reader
        Of the run.
    content
        The epochs as they are now; others that may have changed are hidden.
    open_epoch
        As for `take_back`.
    batch_rows
        Rows of a query.
    """
    transaction = OneTransaction(writer)
    values = {"run": writer.run_id, "open_epoch": open_epoch, "batch_rows": _ALL}
    for name in ("load/unpublish", "load/retract_marks", *_TAKE_BACK, "load/retract_epochs"):
        transaction.write(load_query(name).text, {key: values[key] for key in load_query(name).params})
    describe(transaction, reader, batch_rows)
    begin(transaction, content)
    sync = EventSync(reader.run, transaction, content, batch_rows, gone_from=open_epoch)
    sync.write_nodes(_unseen)
    sync.write_rest(_unseen)
    sync.mark_critical()
    write_summary(transaction, content, batch_rows, _unseen)
    publish(transaction, content)
    transaction.commit()


def _unseen(rows: int) -> None:
    """Report nothing: none of it is done before all of it is."""
    del rows
