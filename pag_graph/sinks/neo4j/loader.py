"""Epochs of a committed run, loaded into Neo4j.

An event is loaded once per run, whatever windows show it. An epoch is hidden (``published: false``) until everything
its window shows is there; whoever starts at ``(:Epoch {published: true})`` never sees half of one. Loading can be
killed and done again at any time: what is there already is found by its key and not doubled.

All values are parameters. The one thing put into the text of a query is the type of a relationship, and that is a
member of `ActivityType`; types as parameters are slower by far in Neo4j 5.26.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from pag_graph.analyses.critical_path import critical_path
from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import ActivityType, RuleSet
from pag_graph.model.tables import PAG_EDGES
from pag_graph.pag.build import silent
from pag_graph.sinks.neo4j.query import plain_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import neo4j

    from pag_graph.pag.build import Progress
    from pag_graph.pag.snapshot import Run, Snapshot

_TYPE_PLACE = "ACTIVITY_TYPE"
"""Stands for the type of the relationships in ``load/relationships``."""


class _Work(NamedTuple):
    """One run of a query."""

    text: str
    parameters: Mapping[str, Any]
    rows: int
    """How many rows it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What was loaded."""

    run: str
    """Id of the run in the database."""
    epochs: tuple[int, ...]
    """Epochs that were loaded and published."""
    skipped: tuple[int, ...]
    """Epochs that were there already, complete and of the same state of the store."""
    unpublished: tuple[int, ...]
    """Epochs that were loaded once from an earlier state of the store, have changed since and are hidden now."""
    events: int
    """Events that were written; those that two windows show count for both."""
    relationships: int
    """Activities and messages that were written, counted in the same way."""
    critical: int
    """Those of them on the critical path of their epoch; 0 for rules that have none."""
    seconds: float


def load_epoch(
    run: Run,
    driver: neo4j.Driver,
    *,
    epoch: int,
    batch_rows: int = 10_000,
    progress: Progress | None = None,
) -> LoadReport:
    """Load the window of one epoch and publish it; if it is there already, write it anew.

    Parameters
    ----------
    run
        A committed run.
    driver
        From `pag_graph.sinks.neo4j.server.driver`, or one's own.
    epoch
        Number of the epoch.
    batch_rows
        Rows written by one transaction.
    progress
        Called with (label, done, all), in rows.

    Returns
    -------
    LoadReport
        What was written: everything the window shows, including what crosses its borders, and the messages that ended
        the waits in it.

    Raises
    ------
    InvalidParameterError
        If there is no such epoch.
    Neo4jError
        If the server cannot be reached, refuses the login or refuses to write.
    """
    return load_run(run, driver, epochs=[epoch], again=True, batch_rows=batch_rows, progress=progress)


def load_run(
    run: Run,
    driver: neo4j.Driver,
    *,
    epochs: Sequence[int] | None = None,
    again: bool = False,
    batch_rows: int = 10_000,
    progress: Progress | None = None,
) -> LoadReport:
    """Load the windows of several epochs; those that are published are left alone.

    Parameters
    ----------
    run, driver, batch_rows
        As for `load_epoch`.
    epochs
        Their numbers; all where absent.
    again
        Whether to write epochs anew that are published.
    progress
        Called with (label, done, all); in rows for one epoch, in epochs for several.

    Returns
    -------
    LoadReport
        What was written. To load a run of which a part is there, whether the rest was never asked for or the load was
        killed, call this again.

    Raises
    ------
    InvalidParameterError
        If there is no such epoch, or `batch_rows` is not positive.
    Neo4jError
        If the server cannot be reached, refuses the login or refuses to write.
    """
    if batch_rows < 1:
        message = f"batch_rows is {batch_rows}; it has to be at least 1."
        raise InvalidParameterError(message, None, {"batch_rows": batch_rows})
    began = time.monotonic()
    report = progress or silent
    wanted = run.epochs["epoch"].to_list() if epochs is None else sorted(set(epochs))
    windows = {epoch: run.window(epoch=epoch) for epoch in wanted}
    run_id = str(run.info.run["run_id"])
    with plain_errors(f"load run {run_id}"):
        published, hidden = _prepare(run, driver, batch_rows)
        skipped = tuple(epoch for epoch in wanted if epoch in published and not again)
        loaded = tuple(epoch for epoch in wanted if epoch not in skipped)
        events = relationships = critical = 0
        for done, epoch in enumerate(loaded, 1):
            in_rows = report if len(loaded) == 1 else silent
            rows = _load_window(driver, run.snapshot(windows[epoch]), batch_rows, in_rows)
            events, relationships, critical = events + rows[0], relationships + rows[1], critical + rows[2]
            if len(loaded) > 1:
                report("load epochs", done, len(loaded))
    return LoadReport(
        run=run_id,
        epochs=loaded,
        skipped=skipped,
        unpublished=tuple(sorted(hidden.difference(loaded))),
        events=events,
        relationships=relationships,
        critical=critical,
        seconds=time.monotonic() - began,
    )


def _prepare(run: Run, driver: neo4j.Driver, batch_rows: int) -> tuple[set[int], set[int]]:
    """Bring schema and run up to date; return the epochs that are published, and those that no longer are."""
    for statement in load_query("schema/constraints").statements:
        _execute(driver, statement)
    run_id = run.info.run["run_id"]
    known = _state(driver, run_id)
    published = set(known["published"]) if known else set()
    hidden: set[int] = set()
    if known and (known["last_closed_epoch"], known["events"]) != (run.info.run["last_closed_epoch"], run.info.events):
        _retract(driver, run, int(known["last_closed_epoch"]), batch_rows)
        left = set(_state(driver, run_id)["published"])
        published, hidden = left, published - left
    source = run.info.run["source"]
    described = load_query("load/run")
    values = {name: run.info.run.get(name) for name in described.params} | {
        "run": run_id,
        "parameters": json.dumps(run.info.run["parameters"], sort_keys=True),
        "events": run.info.events,
        **{f"source_{name}": source[name] for name in ("system", "version", "format")},
    }
    _execute(driver, described.text, values)
    connected = run.channels.drop_nulls(["source_operator", "target_operator"])
    work = [
        *_work("load/workers", run_id, run.scan("workers").sort("worker").collect(), batch_rows),
        *_work("load/operators", run_id, run.operators.sort("operator"), batch_rows),
        *_work("load/channels", run_id, connected.sort("channel"), batch_rows),
    ]
    _write(driver, work, batch_rows)
    return published, hidden


def _state(driver: neo4j.Driver, run_id: str) -> dict[str, Any]:
    """Return the row of ``load/state``; empty where the run is not known."""
    rows = _execute(driver, load_query("load/state").text, {"run": run_id})
    return rows[0] if rows else {}


def _retract(driver: neo4j.Driver, run: Run, last_closed: int, batch_rows: int) -> None:
    """Take back what may have changed since the run was loaded from another state of its store.

    Epochs that every worker had left stay as they are. What is remembered of the run changes only after this, so that
    it is done to its end even if it is killed.
    """
    open_epoch = min(last_closed, int(run.info.run["last_closed_epoch"])) + 1
    values = {"run": run.info.run["run_id"], "open_epoch": open_epoch}
    _execute(driver, load_query("load/unpublish").text, values)
    text = load_query("load/retract_events").text
    while _execute(driver, text, {**values, "batch_rows": batch_rows})[0]["removed"]:
        pass
    _execute(driver, load_query("load/retract_epochs").text, values)


def _load_window(driver: neo4j.Driver, snapshot: Snapshot, batch_rows: int, progress: Progress) -> tuple[int, int, int]:
    """Load what a window shows; return the numbers of events, relationships and critical ones."""
    run, window = snapshot.run, snapshot.window
    run_id = run.info.run["run_id"]
    end_vertex, edges = _edges(snapshot)
    vertices = pl.DataFrame(pl.from_arrow(replace(snapshot, edges=edges).vertices()))
    (row,) = run.epochs.filter(pl.col("epoch") == window.epoch).to_dicts()
    highest = vertices["epoch"].max() if vertices.height else window.epoch
    begin = {**row, "run": run_id, "end_vertex": end_vertex, "highest_epoch": highest}
    _execute(driver, load_query("load/begin_epoch").text, begin)
    work = [
        *_work("load/events", run_id, vertices, batch_rows),
        # Sorted, so that two loads at once lock the same events in the same order.
        *(
            _Work(part.text.replace(_TYPE_PLACE, kind.upper()), part.parameters, part.rows)
            for kind in ActivityType
            for part in _work("load/relationships", run_id, edges.filter(pl.col("type") == str(kind)), batch_rows)
        ),
    ]
    _write(driver, work, batch_rows, progress, f"load {window.name}")
    publish = {"run": run_id, "epoch": window.epoch, **_first_and_last(snapshot, vertices)}
    _execute(driver, load_query("load/publish").text, publish)
    return vertices.height, edges.height, int(edges["critical"].sum())


def _edges(snapshot: Snapshot) -> tuple[int | None, pl.DataFrame]:
    """Return the vertex that the critical path ends with, and the window's edges with a column ``critical``.

    With them come the messages that ended waits of the window after it: whom a wait was for is part of the wait.
    """
    edges = snapshot.edges.select(PAG_EDGES.names)
    late = snapshot.enders.select(PAG_EDGES.names).join(edges, on=["src", "dst", "type"], how="anti")
    edges = pl.concat([edges, late]).sort("src", "dst")
    end_vertex = snapshot.window.end_vertex
    if snapshot.run.rules is RuleSet.ST2:
        return end_vertex, edges.with_columns(critical=pl.lit(None, pl.Boolean))
    path = critical_path(snapshot)
    steps = pl.DataFrame(pl.from_arrow(path.steps)).select(
        src="edge_src", dst="edge_dst", type="type", critical=pl.lit(value=True)
    )
    # Without a vertex of its own, a window ends where the path does, unless everybody waits there.
    if end_vertex is None and steps.height and not path.all_waiting:
        end_vertex = int(steps["dst"][-1])
    return end_vertex, edges.join(steps, on=["src", "dst", "type"], how="left").sort("src", "dst")


def _first_and_last(snapshot: Snapshot, vertices: pl.DataFrame) -> dict[str, list[int]]:
    """Return columns: each worker with its first and its last event in the window."""
    window = snapshot.window
    inside = pl.col("t_ns").is_between(window.start_ns, window.end_ns, closed="right")
    if snapshot.run.rules is RuleSet.ST2:
        inside = pl.col("epoch") == window.epoch
    ends = vertices.filter(inside).group_by("worker").agg(first=pl.col("id").min(), last=pl.col("id").max())
    return ends.sort("worker").to_dict(as_series=False)


def _work(name: str, run_id: str, rows: pl.DataFrame, batch_rows: int) -> Iterator[_Work]:
    """Cut a table into runs of a query that takes its columns as parameters."""
    query = load_query(name)
    columns = [column for column in query.params if column != "run"]
    for part in rows.select(columns).iter_slices(batch_rows):
        yield _Work(query.text, {"run": run_id, **part.to_dict(as_series=False)}, part.height)


def _write(
    driver: neo4j.Driver, work: Sequence[_Work], batch_rows: int, progress: Progress = silent, label: str = ""
) -> None:
    """Do the work in order, as much in a transaction as `batch_rows` allows.

    The driver tries a transaction again that fails for the moment, because of a deadlock for instance.
    """
    done, total = 0, sum(part.rows for part in work)
    with driver.session() as session:
        waiting: list[_Work] = []
        for part in [*work, None]:
            rows = sum(each.rows for each in waiting)
            if waiting and (part is None or rows + part.rows > batch_rows):
                session.execute_write(_run_all, waiting)
                done += rows
                progress(label, done, total)
                waiting = []
            if part is not None:
                waiting.append(part)


def _run_all(transaction: neo4j.ManagedTransaction, work: Sequence[_Work]) -> None:
    for part in work:
        transaction.run(part.text, dict(part.parameters)).consume()


def _execute(driver: neo4j.Driver, text: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Run one query in a transaction of its own, again if it fails for the moment, and return its rows."""
    rows, _, _ = driver.execute_query(text, dict(parameters or {}))
    return [row.data() for row in rows]
