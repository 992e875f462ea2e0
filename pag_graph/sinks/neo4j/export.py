"""Keep a database current: load what was committed to a store since the last export; record what was loaded.

What there is to do follows from the store's own history and from the database alone, so exports can be killed,
repeated, and run at once: one waits for the other, and then finds nothing to do.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pag_graph.cypher import load_query
from pag_graph.model.enums import EpochRole
from pag_graph.sinks.neo4j import loader
from pag_graph.sinks.neo4j.bulk import BulkReport
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.load_steps import prepare_schema
from pag_graph.sinks.neo4j.query import plain_errors
from pag_graph.sinks.neo4j.writer import execute
from pag_graph.store.history import commits

if TYPE_CHECKING:
    import neo4j

    from pag_graph.builder.build import Progress
    from pag_graph.builder.engine import Engine
    from pag_graph.graph.run import Run
    from pag_graph.sinks.neo4j.connection import Connection
    from pag_graph.sinks.neo4j.loader import LoadReport

_RECORD = "load/export_record"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export did."""

    run: str
    store: str
    detail: Detail
    commits: int
    """Commits of the store since the last export."""
    from_version: int | None
    """Version of the store's table `epochs` up to which it was exported before; null for never."""
    to_version: int
    """Version that is in the database now."""
    epochs: tuple[int, ...]
    """Epochs that were loaded."""
    skipped: int
    """Epochs that were there already."""
    events: int
    relationships: int
    segments: int
    seconds: float

    @property
    def changed(self) -> bool:
        """Whether anything was loaded."""
        return bool(self.epochs)

    def summary(self) -> dict[str, Any]:
        """Return it as plain values, for schedulers."""
        return {**asdict(self), "detail": str(self.detail), "epochs": list(self.epochs), "changed": self.changed}


def export_store(
    run: Run,
    connection: Connection,
    *,
    options: loader.LoadOptions | None = None,
    final_only: bool = False,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Load the epochs that were committed since the last export of the run.

    Parameters
    ----------
    run
        A committed run.
    connection
        The database.
    options
        How to load; the detail `waits` where absent.
    final_only
        Whether to leave out epochs that a later append may still change.
    engine
        Where the tasks run that load; this process where absent.
    progress
        Called with (label, done, all).

    Returns
    -------
    ExportReport
        What was done; also recorded in the database, as a node `Export`.

    Raises
    ------
    Neo4jError
        If the server cannot be reached, refuses the login or refuses to write.
    """
    began = time.monotonic()
    options = options or replace(loader.LoadOptions(), detail=Detail.WAITS)
    run_id = str(run.info.run["run_id"])
    commits_of_run = [commit for commit in commits(run.info) if commit.run["run_id"] == run_id]
    epochs = None
    if final_only:
        last = int(run.info.run["last_closed_epoch"])
        rows = run.epochs.filter((run.epochs["epoch"] <= last) & (run.epochs["role"] != str(EpochRole.SHUTDOWN)))
        epochs = rows["epoch"].to_list()
    with connection.open() as driver, plain_errors(f"export run {run_id}"):
        prepare_schema(driver)
        rows_before = execute(driver, load_query("load/export_state").text, {"run": run_id})
        before = int(rows_before[0]["version"]) if rows_before else None
        if engine is None:
            load_report = loader.load_run(run, driver, epochs=epochs, options=options, progress=progress)
        else:
            load_report = loader.load_on_engine(
                run, connection, engine, epochs=epochs, options=options, progress=progress
            )
        report = ExportReport(
            run=run_id,
            store=str(run.info.path.absolute()),
            detail=options.detail,
            commits=sum(before is None or commit.version > before for commit in commits_of_run),
            from_version=before,
            to_version=commits_of_run[-1].version,
            epochs=load_report.epochs,
            skipped=len(load_report.skipped),
            events=load_report.events,
            relationships=load_report.relationships,
            segments=load_report.segments,
            seconds=time.monotonic() - began,
        )
        if report.changed or before != report.to_version:
            _record(driver, {**report.summary(), "to_commit": commits_of_run[-1].id}, "export")
    return report


def record_load(driver: neo4j.Driver, run: Run, load_report: LoadReport | BulkReport) -> None:
    """Record a load as a node `Export`, where it loaded anything.

    Parameters
    ----------
    driver
        Of the database.
    run
        The run that was loaded.
    load_report
        What the load did.

    Raises
    ------
    Neo4jError
        If the server cannot be reached or refuses to write.
    """
    if not load_report.epochs:
        return
    latest = [commit for commit in commits(run.info) if commit.run["run_id"] == load_report.run][-1]
    values = {
        **asdict(load_report),
        "relationships": load_report.activities if isinstance(load_report, BulkReport) else load_report.relationships,
        "detail": str(load_report.detail),
        "epochs": list(load_report.epochs),
        "store": str(run.info.path.absolute()),
        "from_version": None,
        "to_version": latest.version,
        "to_commit": latest.id,
    }
    with plain_errors(f"record the load of run {load_report.run}"):
        _record(driver, values, "load")


def _record(driver: neo4j.Driver, values: dict[str, Any], command: str) -> None:
    query = load_query(_RECORD)
    record_values = {"id": uuid.uuid4().hex, "command": command, "product_version": version("pag-graph")}
    execute(
        driver, query.text, {name: value for name, value in {**values, **record_values}.items() if name in query.params}
    )
