"""Epochs of a committed run, loaded into Neo4j.

An event is loaded once per run, whatever windows show it. An epoch is hidden (``published: false``) until everything
its window shows is there; a query that starts at ``(:Epoch {published: true})`` never sees half of one. Loading can be
killed and repeated at any time: what is there already is read first, what is missing is added, and what differs is put
right. While a run is loaded nobody else can write it (`pag_graph.neo4j_server.lease`).

All values are parameters; the text of queries is made of names of this package (`pag_graph.sinks.neo4j.model`).
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from pag_graph.builder.engine import silent
from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.pinned import PinnedRun
from pag_graph.neo4j_server import lease as leases
from pag_graph.runtime.threads import CORES
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.detail import Detail, RunLabels
from pag_graph.sinks.neo4j.events import EventSync
from pag_graph.sinks.neo4j.groups import Group, grouped, read_ahead
from pag_graph.sinks.neo4j.load_steps import begin, describe, prepare_schema, publish, write_summary
from pag_graph.sinks.neo4j.load_tasks import Advance, Counts, Done, Task, run_task
from pag_graph.sinks.neo4j.model import EPOCH, MODEL, NODES
from pag_graph.sinks.neo4j.query import plain_errors
from pag_graph.sinks.neo4j.revisions import OneTransaction, Retraction, exchange, take_back
from pag_graph.sinks.neo4j.writer import Writer, execute, patiently

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import neo4j

    from pag_graph.builder.build import Progress
    from pag_graph.builder.engine import Engine
    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window
    from pag_graph.neo4j_server.lease import Lease
    from pag_graph.sinks.neo4j.connection import Connection
    from pag_graph.sinks.neo4j.content import Content

BATCH_ROWS = 5_000
"""Rows written by one transaction: measured in ``bench/neo4j_load.py``."""

GROUP_EDGES = 200_000
"""Edges that are loaded and published together; memory holds several copies of them."""

TOGETHER_ROWS = 20_000
"""Nodes and relationships that are written and shown in one transaction, where there are no events among them: a
transaction, and each statement of it, costs the server as much as some hundred of them."""

EXCHANGE_EDGES = 50_000
"""Edges that are exchanged in one transaction, which a server of 512 MB has room for."""

_ALL = -1
"""No epoch is before this one."""

PATIENCE_S = 120.0
"""For how long a load tries again when the server is away."""


def default_sessions() -> int:
    """Return how many sessions write at once unless told: what most servers on this machine could use."""
    return min(CORES, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What was loaded."""

    run: str
    """Id of the run in the database."""
    detail: Detail
    """How much of each epoch was asked for."""
    epochs: tuple[int, ...]
    """Epochs that were loaded and published."""
    skipped: tuple[int, ...]
    """Epochs that were there already, complete, in as much detail and of the same state of the store."""
    unpublished: tuple[int, ...]
    """Epochs that were loaded once from an earlier state of the store, have changed since and are hidden now."""
    events: int
    """Events in the windows of these epochs."""
    relationships: int
    """Activities and messages that end in these windows."""
    segments: int
    """Segments that begin in these windows."""
    critical: int
    """Activities and messages on the critical path of their epoch; 0 for rules that have none."""
    seconds: float


class Held(NamedTuple):
    """What a caller has that loads again and again."""

    lease: Lease
    """The right to write the run; the database has been prepared for it (`prepare_schema`)."""
    reader: Reader
    """Of the run."""
    beside: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Queries that belong into the transaction which shows epochs."""
    known: Sequence[Mapping[str, Any]] | None = None
    """What `state` says of the epochs that are loaded; None: not asked for yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load."""

    detail: Detail = Detail.FULL
    batch_rows: int = BATCH_ROWS
    sessions: int = 0
    """Sessions that write at once; as many as `default_sessions` says for 0."""
    group_edges: int = GROUP_EDGES
    exchange_edges: int = EXCHANGE_EDGES
    """Edges of the epochs that an append has changed, up to which they stay visible until all are exchanged."""
    patience_s: float = PATIENCE_S
    lease_s: float = leases.LEASE_S
    labels: RunLabels = field(default_factory=RunLabels)
    """What the run is to be called."""

    def __post_init__(self) -> None:
        for name, least in (("batch_rows", 1), ("group_edges", 1), ("exchange_edges", 0)):
            value = getattr(self, name)
            if value < least:
                message = f"{name} is {value}; it has to be at least {least}."
                raise InvalidParameterError(message, None, {name: value})


def load_run(
    run: Run,
    driver: neo4j.Driver,
    *,
    epochs: Sequence[int] | None = None,
    again: bool = False,
    options: LoadOptions | None = None,
    progress: Progress | None = None,
    held: Held | None = None,
) -> LoadReport:
    """Load the windows of several epochs; those that are published are left alone.

    Parameters
    ----------
    run
        A committed run.
    driver
        From `pag_graph.neo4j_server.server.driver`, or one's own.
    epochs
        Their numbers; all where absent.
    again
        Whether to look at epochs that are published, too, and to put right what differs from the store.
    options
        How to load; all events where absent.
    progress
        Called with (label, done, all), in rows.
    held
        The right to write the run, where the caller has it. Then the run is described where the database may lack
        something of that; the caller has to do so in the end (`describe`).

    Returns
    -------
    LoadReport
        What was written: everything the windows show, including what crosses their borders, and the messages that ended
        the waits in them. To load a run of which a part is there, whether the rest was never asked for or the load was
        killed, call this again.

    Raises
    ------
    InvalidParameterError
        If there is no such epoch, or an option is out of its range.
    Neo4jError
        If the server cannot be reached, refuses the login or refuses to write; or if another load of the run took over.
    """
    reader = None if held is None else held.reader
    return _Load(run, driver, options or LoadOptions(), progress or silent, reader).load(epochs, again=again, held=held)


def load_on_engine(
    run: Run,
    connection: Connection,
    engine: Engine,
    *,
    epochs: Sequence[int] | None = None,
    again: bool = False,
    options: LoadOptions | None = None,
    progress: Progress | None = None,
) -> LoadReport:
    """Load the windows of several epochs from the tasks of an engine, such as Spark's partitions.

    Each task reads its epochs from the store and writes what lies in their windows; what lies between two tasks' epochs
    is written by one of them. Epochs are published together when all tasks are done.

    Parameters
    ----------
    run, epochs, again, options, progress
        As for `load_run`; each task writes with one session.
    connection
        How every task reaches the database.
    engine
        Runs the tasks.

    Returns
    -------
    LoadReport
        As `load_run`.

    Raises
    ------
    InvalidParameterError
        If there is no such epoch.
    Neo4jError
        If the server cannot be reached, refuses the login or refuses to write.
    """
    with connection.open() as driver:
        load = _Load(run, driver, options or LoadOptions(), progress or silent)
        return load.load(epochs, again=again, on=(engine, connection))


def remove_run(driver: neo4j.Driver, run_id: str) -> int:
    """Remove all that was loaded of a run.

    Parameters
    ----------
    driver
        Of the database.
    run_id
        Id of the run.

    Returns
    -------
    int
        How many nodes were removed, beside those that describe the run itself. Its epochs are hidden first.

    Raises
    ------
    Neo4jError
        If the server cannot be reached, refuses the login or refuses to write.
    """
    removed = 0
    with plain_errors(f"remove run {run_id}"):
        prepare_schema(driver)
        with leases.held(driver, run_id, lanes=1) as lease:
            writer = Writer(driver, lease)
            writer.write(load_query("load/unpublish").text, {"run": run_id, "open_epoch": -1, "first_epoch": -1})
            # What leads to few nodes goes with the many that it comes from.
            for table in (*reversed(NODES), EPOCH):
                removed += writer.remove(table.label, table.key, BATCH_ROWS)
            writer.remove("Job", ("id",), BATCH_ROWS)
            writer.write(load_query("load/remove_run").text, {"run": run_id})
    return removed


def state(driver: neo4j.Driver, run: Run, since: int = _ALL) -> list[dict[str, Any]]:
    """Ask the database what it knows of a run.

    Parameters
    ----------
    driver
        Of the database.
    run
        As its store is now.
    since
        The first epoch to tell of; all unless given. Epochs that may have changed are told of in any case.

    Returns
    -------
    list of dict
        One row where the run is known, as ``cypher/load/state.cypher`` says. O(epochs that are told of).
    """
    values = {
        "run": str(run.info.run["run_id"]),
        "model": MODEL,
        "since": since,
        "last_closed_epoch": int(run.info.run["last_closed_epoch"]),
    }
    return execute(driver, load_query("load/state").text, values)


class _Load:
    """One load of a run."""

    def __init__(
        self, run: Run, driver: neo4j.Driver, options: LoadOptions, progress: Progress, reader: Reader | None = None
    ) -> None:
        self.run = run
        self.driver = driver
        self.options = options
        self.progress = progress
        self.run_id = str(run.info.run["run_id"])
        self.reader = reader or Reader(run, options.labels)
        self._exchanged: Content | None = None
        self._known: Sequence[Mapping[str, Any]] | None = None
        """What `state` says, until something is written."""

    def load(
        self,
        epochs: Sequence[int] | None,
        *,
        again: bool,
        on: tuple[Engine, Connection] | None = None,
        held: Held | None = None,
    ) -> LoadReport:
        began = time.monotonic()
        store_epochs = self.run.epochs["epoch"].to_list()
        epoch_ids = store_epochs if epochs is None else sorted(set(epochs))
        windows = self._windows(epoch_ids)
        sessions = self.options.sessions or default_sessions()
        # The first lane is this process' own; every task has one.
        lanes = sessions if on is None else len(epoch_ids) + 1
        with plain_errors(f"load run {self.run_id}"):
            # A wrong address is told at once; later on, a server that is away may come back, and is waited for.
            if held is None:
                self.driver.verify_connectivity()
                prepare_schema(self.driver)
            lease_context = leases.held(
                self.driver, self.run_id, lanes=lanes, lease_s=self.options.lease_s, on_wait=self._waiting
            )
            with lease_context if held is None else nullcontext(held.lease) as lease:
                writer = Writer(self.driver, lease)
                writer.beside = () if held is None else held.beside
                # A follower loads often, and needs only the epochs from the first one to load on.
                since = _ALL if held is None else min(epoch_ids, default=_ALL)
                self._known = None if held is None else held.known
                prepare = partial(self._prepare, writer, windows, since, logs=held is None)
                details, hidden = patiently(prepare, self.options.patience_s, writer)
                exchanged = {window.epoch for window in self._exchanged.windows} if self._exchanged else set()
                skipped = {
                    epoch
                    for epoch in epoch_ids
                    if not again
                    and epoch not in exchanged
                    and epoch in details
                    and epoch not in hidden
                    and details[epoch].covers(self.options.detail)
                }
                loaded = [epoch for epoch in epoch_ids if epoch not in skipped]
                missing = [epoch for epoch in loaded if epoch not in exchanged]
                groups = self._groups([windows[epoch] for epoch in missing], details, self.options.group_edges)
                for epoch in details.keys() & set(missing):
                    text, values = load_query("load/undouble").text, {"run": self.run_id, "epoch": epoch}
                    patiently(partial(writer.write, text, values), self.options.patience_s, writer)
                counts = Counts()
                if self._exchanged is not None:
                    counts.add(self._exchanged)
                if on is None:
                    self._load_in_process(writer, groups, counts)
                else:
                    self._load_in_tasks(writer, groups, *on, counts)
        return LoadReport(
            run=self.run_id,
            detail=self.options.detail,
            epochs=tuple(loaded),
            skipped=tuple(sorted(skipped)),
            unpublished=tuple(sorted(hidden.difference(loaded))),
            **counts.values,
            seconds=time.monotonic() - began,
        )

    def _waiting(self, left_s: float) -> None:
        self.progress("wait for another load of this run", 0, max(round(left_s), 1))

    def _windows(self, epochs: Sequence[int]) -> dict[int, Window]:
        """Return the windows of epochs, by number."""
        windows = {window.epoch: window for window in self.run.windows(epochs)}
        # Where there is no such epoch, this says which there are.
        return {epoch: windows.get(epoch) or self.run.window(epoch=epoch) for epoch in epochs}

    def _prepare(
        self, writer: Writer, windows: Mapping[int, Window], since: int, *, logs: bool
    ) -> tuple[dict[int, Detail], set[int]]:
        """Bring the run up to date; return the details of epochs that are there, and those of them that are hidden."""
        rows = state(self.driver, self.run, since) if self._known is None else self._known
        # Whoever comes here again may have written something.
        self._known = None
        before = {epoch for epoch, shown in listed(rows, "epochs", "published") if shown}
        if rows and (rows[0]["last_closed_epoch"], rows[0]["events"]) != (
            self.run.info.run["last_closed_epoch"],
            self.run.info.events,
        ):
            self._revise(writer, rows, windows)
            rows = state(self.driver, self.run, since)
        if logs or not self.reader.told.has(self.run):
            describe(writer, self.reader, self.options.batch_rows, logs=logs)
            self.reader.told.arrived(self.run)
        details = {epoch: Detail(detail) for epoch, detail in listed(rows, "epochs", "details") if detail}
        shown = {epoch for epoch, published in listed(rows, "epochs", "published") if published}
        return details, (before | details.keys()) - shown

    def _revise(self, writer: Writer, rows: Sequence[Mapping[str, Any]], windows: Mapping[int, Window]) -> None:
        """Exchange or take back what may have changed since the run was loaded from another state of its store."""
        open_epoch = min(int(rows[0]["last_closed_epoch"]), int(self.run.info.run["last_closed_epoch"])) + 1
        changed = {
            epoch: Detail(detail)
            for epoch, detail, published, highest in listed(rows, "epochs", "details", "published", "highest")
            if published and detail and epoch in windows and highest >= open_epoch
        }
        retraction = Retraction.of(writer, self.run.info, open_epoch)
        limit = self.options.exchange_edges
        groups = self._groups([windows[epoch] for epoch in changed], changed, limit)
        edges = self.run.epochs.filter(pl.col("epoch").is_in(list(changed)))["edges"].sum()
        if len(groups) == 1 and edges <= limit:
            self._exchanged = self.reader.read(groups[0].windows, groups[0].detail)
            exchange(writer, self.reader, self._exchanged, retraction, self.options.batch_rows)
        else:
            take_back(writer, retraction, self.options.batch_rows)

    def _groups(self, windows: Sequence[Window], details: Mapping[int, Detail], group_edges: int) -> list[Group]:
        return grouped(self.run, windows, details, self.options.detail, group_edges)

    def _load_in_process(self, writer: Writer, groups: Sequence[Group], counts: Counts) -> None:
        """Load group after group with several sessions; each is published when it is complete."""
        total = sum(self._size(group) for group in groups)
        base = 0
        for group, content in read_ahead(self.reader, groups):
            # The size of a group is an estimate until it is read.
            total += content.rows - self._size(group)

            def load(content: Content = content, base: int = base, total: int = total) -> None:
                advance = Advance(self.progress, _label(content), base, total)
                is_little = content.events.is_empty() and content.rows + content.spent.height <= TOGETHER_ROWS
                transaction = OneTransaction(writer) if is_little else None
                target = transaction or writer
                begin(target, content)
                sync = EventSync(self.run, target, content, self.options.batch_rows)
                sync.write_nodes(advance)
                sync.write_rest(advance)
                write_summary(target, content, self.options.batch_rows, advance, alone=True)
                publish(target, content)
                if transaction is not None:
                    transaction.commit()

            patiently(load, self.options.patience_s, writer)
            counts.add(content)
            base += content.rows
            self.progress(_label(content), base, total)

    def _load_in_tasks(
        self, writer: Writer, groups: Sequence[Group], engine: Engine, connection: Connection, counts: Counts
    ) -> None:
        """Load all groups at once as tasks of an engine; all are published in the end."""
        tasks = [
            Task(
                state=PinnedRun.of(self.run),
                connection=connection,
                lease=writer.lease,
                group=group,
                batch_rows=self.options.batch_rows,
                patience_s=self.options.patience_s,
                lane=lane,
                others=tuple(other.windows for other in groups if other is not group and other.detail is Detail.FULL),
            )
            for lane, group in enumerate(groups, 1)
        ]
        results: list[Done] = engine.map(partial(run_task, "nodes"), tasks, label="load events", progress=self.progress)
        for result in results:
            # Here and one after the other, or two neighbours would not see each other.
            patiently(partial(begin, writer, result.content), self.options.patience_s, writer)
            for name, count in result.counts.items():
                counts.values[name] += count
        for step, label in (("relationships", "load activities"), ("summary", "load segments")):
            engine.map(partial(run_task, step), tasks, label=label, progress=self.progress)
        for result in results:
            patiently(partial(publish, writer, result.content), self.options.patience_s, writer)

    def _size(self, group: Group) -> int:
        epochs = [window.epoch for window in group.windows]
        rows = self.run.epochs.filter(pl.col("epoch").is_in(epochs))
        return (
            sum(int(rows[name].sum()) for name in ("edges", "vertices")) if group.detail is Detail.FULL else len(epochs)
        )


def _label(content: Content) -> str:
    first, last = content.windows[0], content.windows[-1]
    return f"load {first.name}" if first is last else f"load epochs {first.epoch} to {last.epoch}"


def listed(rows: Sequence[Mapping[str, Any]], *names: str) -> Iterator[tuple[Any, ...]]:
    """Return some columns of `state`, epoch by epoch."""
    return zip(*(rows[0][name] for name in names), strict=True) if rows else iter(())
