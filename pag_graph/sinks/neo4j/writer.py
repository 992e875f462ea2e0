"""Transactions that write a run: each checks that the run is still ours to write, and several go side by side."""

from __future__ import annotations

import random
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.cypher import load_query
from pag_graph.neo4j_server.lease import overtaken
from pag_graph.sinks.neo4j.model import NodeTable, merge_nodes, merge_relationships, remove_some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import neo4j
    import polars as pl

    from pag_graph.neo4j_server.lease import Lease
    from pag_graph.sinks.neo4j.model import RelationshipTable


_PAUSE_S = 0.2
REMOVED_TOGETHER = 20_000
"""Relationships that one transaction removes: a server of 512 MB has room for fifteen times as many."""


class Work(NamedTuple):
    """One run of a query in a transaction of its own."""

    text: str
    parameters: Mapping[str, Any]
    rows: int
    """How many rows it writes."""


class Writer:
    """Writes a run.

    Parameters
    ----------
    driver
        Of the database.
    lease
        The right to write the run.
    lane
        The only lane to use, for one of several processes; where absent, all lanes of the lease.
    """

    def __init__(self, driver: neo4j.Driver, lease: Lease, lane: int | None = None) -> None:
        self.driver = driver
        self.lease = lease
        self.lane = lane or 0
        self._lanes = 1 if lane is not None else lease.lanes
        self.beside: tuple[tuple[str, Mapping[str, Any]], ...] = ()
        """Queries that belong into the transaction which shows epochs."""
        self.heard = time.monotonic()
        """When the server has answered last."""

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.lease.run

    def claim(self) -> None:
        """Use the lane for this attempt at a task; an earlier attempt can write no more.

        Raises
        ------
        Neo4jError
            If another load of the run has taken over.
        """
        lease = self.lease
        values = {"run": lease.run, "lane": self.lane % lease.lanes, "holder": lease.holder, "attempt": lease.attempt}
        if not execute(self.driver, load_query("load/lease_attempt").text, values):
            error = overtaken(lease.run)
            raise error

    def write(self, text: str, parameters: Mapping[str, Any], lane: int | None = None) -> list[dict[str, Any]]:
        """Run one query in a transaction of its own, again if it fails for the moment, and return its rows.

        Parameters
        ----------
        text, parameters
            The query, and its values.
        lane
            See `write_all`.

        Returns
        -------
        list of dict
            One per row that the query returns.

        Raises
        ------
        Neo4jError
            If another load of the run has taken over.
        """
        return self.write_all([(text, parameters)], lane)

    def write_all(
        self, statements: Sequence[tuple[str, Mapping[str, Any]]], lane: int | None = None
    ) -> list[dict[str, Any]]:
        """Run queries in one transaction, again if it fails for the moment, and return the rows of the last.

        Parameters
        ----------
        statements
            Texts and parameters, in their order.
        lane
            Lane of the lease to go over; the writer's own, or the first, where absent. Transactions of one lane wait
            for each other.

        Returns
        -------
        list of dict
            One per row of the last query; none without queries.

        Raises
        ------
        Neo4jError
            If another load of the run has taken over; nothing is written then.
        neo4j.exceptions.Neo4jError
            If the server refuses.
        neo4j.exceptions.DriverError
            If it cannot be reached for longer than the driver tries (see `patiently`); all may have been written
            nevertheless.
        """
        place = self.lane if lane is None else lane
        with self.driver.session(bookmark_manager=self.driver.execute_query_bookmark_manager) as session:
            rows: list[dict[str, Any]] = session.execute_write(_run_all, self.lease, place, statements)
        self.heard = time.monotonic()
        return rows

    def write_side_by_side(self, work: Iterable[Work], advance: Callable[[int], None]) -> None:
        """Do work in any order, as much at once as there are lanes; it is made as it is needed.

        Parameters
        ----------
        work
            What to do; pieces that are done at once should not touch the same nodes, or they wait for each other.
        advance
            Called with the rows of each piece that is done.
        """
        if self._lanes == 1:
            for item in work:
                self.write(item.text, item.parameters)
                advance(item.rows)
            return
        free = list(range(self._lanes))
        running: dict[Future[Any], tuple[int, int]] = {}
        with ThreadPoolExecutor(self._lanes) as pool:
            try:
                for item in work:
                    lane = free.pop()
                    running[pool.submit(self.write, item.text, item.parameters, lane)] = (lane, item.rows)
                    if not free:
                        _collect(running, free, advance)
                while running:
                    _collect(running, free, advance)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def merge(self, table: NodeTable | RelationshipTable, rows: pl.DataFrame, batch_rows: int) -> None:
        """Add nodes or relationships, or bring them up to date.

        Parameters
        ----------
        table
            What they are.
        rows
            One row per node or relationship, with the columns of the table among others.
        batch_rows
            Most rows of a transaction.

        Raises
        ------
        Neo4jError
            If another load of the run has taken over.
        """
        self.merge_all([(table, rows)], batch_rows)

    def merge_all(
        self,
        tables: Sequence[tuple[NodeTable | RelationshipTable, pl.DataFrame]],
        batch_rows: int,
        advance: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Add nodes and relationships in this order, or bring them up to date; small tables share a transaction.

        Parameters
        ----------
        tables
            Each with its rows, as for `merge`. A relationship whose ends are not there then is left out without a word,
            so nodes come first.
        batch_rows
            Most rows of a transaction.
        advance
            Called with the rows of each transaction that is done.

        Raises
        ------
        Neo4jError
            If another load of the run has taken over.
        """
        self.write_in_order(self.merges(tables, batch_rows), batch_rows, advance)

    def write_in_order(self, work: Iterable[Work], batch_rows: int, advance: Callable[[int], None]) -> None:
        """Do work piece after piece; small pieces share a transaction.

        Parameters
        ----------
        work
            What to do; it is made as it is needed.
        batch_rows
            Most rows of a transaction, unless a single piece has more.
        advance
            Called with the rows of each transaction that is done.

        Raises
        ------
        Neo4jError
            If another load of the run has taken over; the transactions before stay.
        """
        statements: list[tuple[str, Mapping[str, Any]]] = []
        size = 0
        for text, values, rows in work:
            if statements and size + rows > batch_rows:
                self.write_all(statements)
                advance(size)
                statements, size = [], 0
            statements.append((text, values))
            size += rows
        if statements:
            self.write_all(statements)
            advance(size)

    def remove(self, label: str, key: tuple[str, ...], batch_rows: int) -> int:
        """Remove all nodes of the run that have a label, and what leads to them.

        Parameters
        ----------
        label
            Of this package.
        key
            Properties that all of these nodes have, and that an index knows.
        batch_rows
            Most nodes of a transaction.

        Returns
        -------
        int
            How many there were.

        Raises
        ------
        Neo4jError
            If another load of the run has taken over; what was removed before stays so.
        """
        values = {"run": self.run_id, "batch_rows": batch_rows, "relationships": REMOVED_TOGETHER}
        removed = 0
        while True:
            (row,) = self.write_all([(text, values) for text in remove_some(label, key)])
            removed += int(row["removed"])
            if not row["looked_at"]:
                return removed

    def read(self, text: str, parameters: Mapping[str, Any]) -> list[neo4j.Record]:
        """Ask where writes go: a follower of a cluster may not have the latest ones yet.

        Parameters
        ----------
        text, parameters
            The query, and its values. It should only read: whether the run is still ours to write is not looked at.

        Returns
        -------
        list of neo4j.Record
            One per row, which sees what this writer has written.
        """
        records = self.driver.execute_query(text, dict(parameters)).records
        self.heard = time.monotonic()
        return records

    def merges(
        self, tables: Sequence[tuple[NodeTable | RelationshipTable, pl.DataFrame]], batch_rows: int
    ) -> Iterator[Work]:
        """Give the work that adds nodes and relationships, or brings them up to date.

        Parameters
        ----------
        tables
            Each with its rows, as for `merge_all`.
        batch_rows
            Most rows of a piece.

        Yields
        ------
        Work
            In the order of `tables`. Rows of a table are sorted by their keys, so that two who write at once lock the
            same nodes in the same order. Each piece can be done again.
        """
        for table, rows in tables:
            if isinstance(table, NodeTable):
                text, names, order = merge_nodes(table), table.columns, table.key
            else:
                text, names = merge_relationships(table), table.all_columns
                order = (*table.source_columns, *table.target_columns)
            # Sorted, so that two loads at once lock the same nodes in the same order.
            for part in rows.select(names).sort(order).iter_slices(batch_rows):
                yield Work(text, {"run": self.run_id, **part.to_dict(as_series=False)}, part.height)


def _collect(running: dict[Future[Any], tuple[int, int]], free: list[int], advance: Callable[[int], None]) -> None:
    """Wait until a piece of work is done; errors are raised here."""
    finished, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in finished:
        lane, rows = running.pop(future)
        free.append(lane)
        future.result()
        advance(rows)


def _run_all(
    transaction: neo4j.ManagedTransaction, lease: Lease, lane: int, statements: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    lease.hold(transaction, lane)
    rows: list[dict[str, Any]] = []
    for text, parameters in statements:
        rows = transaction.run(text, dict(parameters)).data()
    return rows


def execute(driver: neo4j.Driver, text: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Run one query in a transaction of its own, again if it fails for the moment, and return its rows.

    Parameters
    ----------
    driver
        Of the database.
    text, parameters
        The query, and its values. It may write: no lease is looked at, so this is not for what belongs to a run.

    Returns
    -------
    list of dict
        One per row that the query returns.

    Raises
    ------
    neo4j.exceptions.Neo4jError
        If the server refuses.
    neo4j.exceptions.DriverError
        If it cannot be reached for longer than the driver tries.
    """
    rows, _, _ = driver.execute_query(text, dict(parameters or {}))
    return [row.data() for row in rows]


def patiently(action: Callable[[], Any], patience_s: float, writer: Writer) -> Any:
    """Do something that can be done again, until it succeeds or the server has been away for too long.

    The driver itself tries transactions again that fail for the moment: deadlocks, a leader that changes. What is left
    are a server that restarts, and commits whose outcome the driver does not know.

    Parameters
    ----------
    action
        What to do; all of it is done again.
    patience_s
        For how long after the server's last answer.
    writer
        Knows when that was.
    """
    import neo4j.exceptions as driver_errors

    passing = (driver_errors.ServiceUnavailable, driver_errors.SessionExpired, driver_errors.TransientError)
    pause_s = _PAUSE_S
    heard = writer.heard
    while True:
        try:
            return action()
        except passing:
            if writer.heard > heard:
                # It was there in between.
                heard, pause_s = writer.heard, _PAUSE_S
            if time.monotonic() + pause_s > heard + patience_s:
                raise
            time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311  (no secret)
            pause_s = min(pause_s * 2, 10.0)
