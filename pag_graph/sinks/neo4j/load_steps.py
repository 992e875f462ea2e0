"""What a load writes, in the order in which it does: each of these can be done again."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.cypher import load_query
from pag_graph.sinks.neo4j.creation import bring
from pag_graph.sinks.neo4j.findings import ALERT
from pag_graph.sinks.neo4j.model import (
    CONTAINS_FINDING,
    CONTAINS_STEP,
    CRITICAL,
    FEEDS,
    FINDING,
    MODEL,
    NAMELESS,
    OPERATOR,
    PROPERTIES,
    RELEASED,
    SEGMENT,
    SNAPSHOT,
    SPENT,
    STEP,
    THEN,
    TYPES,
    WORKER,
)
from pag_graph.sinks.neo4j.writer import Work, execute
from pag_graph.sinks.provenance import parameters_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import neo4j

    from pag_graph.sinks.neo4j.content import Content, Reader
    from pag_graph.sinks.neo4j.model import NodeTable, RelationshipTable
    from pag_graph.sinks.neo4j.writer import Writer

SCHEMA_S = 600.0
"""For how long a load waits for constraints and indexes."""
_LOOK_S = 0.1
_AT_ONCE = 4
"""Constraints that are made side by side: each is a wait for the server, and a pass over the nodes of its label."""
_OF_MANY = {f"CONSTRAINT {label}_key" for label in ("event", "segment", "step")}
"""Constraints of labels that have many nodes."""
# The index of a constraint has its name before the constraint is there, and goes again if there shall be none.
_SCHEMA = (
    "SHOW CONSTRAINTS YIELD name RETURN 'CONSTRAINT ' + name AS name",
    "SHOW INDEXES YIELD name, state WHERE state = 'ONLINE' RETURN 'INDEX ' + name AS name",
)
_BEING_MADE = {
    f"Neo.ClientError.Schema.{reason}"
    for reason in (
        *("IndexWithNameAlreadyExists", "IndexAlreadyExists", "EquivalentSchemaRuleAlreadyExists"),
        *("ConstraintAlreadyExists", "ConstraintWithNameAlreadyExists"),
    )
}
"""What the server answers where another client makes the same constraint or index."""


def prepare_schema(
    driver: neo4j.Driver, patience_s: float = SCHEMA_S, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Make the constraints and indexes that are not there, and names known that queries use.

    Parameters
    ----------
    driver
        Of the database.
    patience_s
        For how long to wait for what another client makes of the schema: the server goes on with it for a while even
        if that client has been killed.
    meanwhile
        Called when all constraints are there but those of events, segments and steps, which are filled meanwhile.

    Raises
    ------
    neo4j.exceptions.ClientError
        If something else has the name of one of them, or makes it for longer than that.
    """
    names_there = {row["name"] for text in _SCHEMA for row in execute(driver, text)}
    lacking = [text for text in load_query("schema/constraints").statements if _schema_name(text) not in names_there]
    deadline = time.monotonic() + patience_s
    indexes = [text for text in lacking if _schema_name(text).startswith("INDEX")]
    of_many = [text for text in lacking if _schema_name(text) in _OF_MANY]
    of_few = [text for text in lacking if text not in (*indexes, *of_many)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # The server fills few at once: those of few nodes would wait for those of many.
        list(pool.map(lambda text: _create(driver, [text], deadline), of_few))
        # Indexes made in one transaction are filled by one pass over the nodes; each constraint makes its own pass.
        _create(driver, indexes, deadline)
        filled = [pool.submit(_create, driver, [text], deadline) for text in of_many]
        meanwhile()
        for constraint in filled:
            constraint.result()
    if lacking:
        execute(driver, f"CALL db.awaitIndexes({SCHEMA_S:.0f})")
    for text, values in zip(
        load_query("schema/names").statements, ({"types": list(TYPES)}, {"properties": list(PROPERTIES)}), strict=True
    ):
        execute(driver, text, values)


def _create(driver: neo4j.Driver, texts: Sequence[str], deadline: float) -> None:
    """Make constraints or indexes in one transaction; where one is half made, wait until it is made, or given up."""
    from neo4j.exceptions import ClientError

    while True:
        try:
            with driver.session() as session:
                session.execute_write(lambda transaction: [transaction.run(text).consume() for text in texts])
        except ClientError as error:
            if error.code not in _BEING_MADE or time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)
        else:
            return


def _schema_name(text: str) -> str:
    name = re.search(r"^CREATE ((?:CONSTRAINT|INDEX) \w+)", text, re.MULTILINE)
    assert name  # noqa: S101  (every statement of the schema makes one)
    return name[1]


def describe(writer: Writer, reader: Reader, batch_rows: int, *, logs: bool = True) -> None:
    """Write what is known of the run beside its epochs: what it was made of, workers, operators, channels, findings.

    Parameters
    ----------
    writer
        Writes the run, which is made if it is not there.
    reader
        Of the run. Findings that its store no longer has are removed from the database. What the database has according
        to `Reader.told` is not written again; whoever commits what is written says so with `Told.arrived`.
    batch_rows
        Most rows of a transaction; small tables share one.
    logs
        Whether workers have to know who runs the same, and where the trace's files hold their events: lists that grow
        with the trace. Where a worker is new, they do in any case.

    Raises
    ------
    Neo4jError
        If another load of the run has taken over.
    """
    run, told = reader.run, reader.told
    described = run.info.run
    parameters = json.dumps(described["parameters"], sort_keys=True)
    origin = {
        "trace_id": described["trace_id"],
        "rules": described["rules"],
        "parameters_id": parameters_id(described["parameters"]),
    }
    query = load_query("load/run")
    values = {name: described.get(name) for name in query.params} | {
        **origin,
        "run": reader.run_id,
        "parameters": parameters,
        "parameter_names": sorted(described["parameters"]),
        "parameter_values": [json.dumps(described["parameters"][name]) for name in sorted(described["parameters"])],
        "events": run.info.events,
        **reader.extent(),
        **{f"source_{name}": described["source"][name] for name in ("system", "version", "format")},
    }
    work = [Work(query.text, values, 1)]
    if jobs := told.new_jobs(run):
        # A run that has been followed for long has many.
        for part in pl.DataFrame(jobs, infer_schema_length=None).iter_slices(batch_rows):
            of_jobs = {"run": reader.run_id, **origin, **part.to_dict(as_series=False)}
            work.append(Work(load_query("load/jobs").text, of_jobs, part.height))
    writer.write_in_order(work, batch_rows, lambda _: None)
    findings, knows_findings = reader.findings, told.knows("findings")
    gone = told.gone("findings", findings, "id")
    new_findings = told.news("findings", findings)
    tables: list[tuple[NodeTable | RelationshipTable, pl.DataFrame]] = [
        (OPERATOR, told.news("operators", run.operators)),
        (FEEDS, told.news("channels", run.channels.drop_nulls(["source_operator", "target_operator"]))),
        (FINDING, new_findings),
    ]
    if logs or told.lacks("workers", "worker", run.workers):
        tables.insert(0, (WORKER, told.news("workers", reader.workers())))
    writer.merge_all(tables, batch_rows)
    of_run = {"run": reader.run_id, "id": new_findings["id"].to_list()}
    if not knows_findings:
        writer.write(load_query("load/findings_of_run").text, of_run)
    elif gone or of_run["id"]:
        writer.write(load_query("load/findings_changed").text, {**of_run, "gone": gone})
    alerts = new_findings.filter(pl.col("finding") == ALERT)["id"].to_list()
    if alerts:
        writer.write(load_query("load/alerts").text, {"run": reader.run_id, "id": alerts})


def begin(writer: Writer, content: Content) -> None:
    """Add the epochs of a content, hidden until `publish`; those that are there already are hidden as well.

    Parameters
    ----------
    writer
        Writes the run, which is there already (`describe`).
    content
        Only its table `epochs` is read. An epoch is joined with those whose numbers are one less and one more.

    Raises
    ------
    Neo4jError
        If another load of the run has taken over.
    """
    query = load_query("load/begin_epochs")
    writer.write(query.text, {"run": writer.run_id, **columns(content.epochs, query.params)})


def write_summary(
    writer: Writer, content: Content, batch_rows: int, advance: Callable[[int], None], *, alone: bool = False
) -> None:
    """Write segments, what released them, and results.

    Parameters
    ----------
    writer
        Writes the run.
    content
        What shall be there.
    batch_rows
        Rows of a transaction.
    advance
        Called with the rows of each transaction that is done.
    alone
        Whether nothing else writes the run meanwhile, and what is written is so at once: what lacks is created then,
        which is faster.
    """
    critical = content.released.filter(pl.col("critical"))
    between = [(THEN, content.then), (RELEASED, content.released), (CRITICAL, critical)]
    parts: list[tuple[NodeTable, pl.DataFrame, list[tuple[RelationshipTable, pl.DataFrame]]]] = [
        # In the order of time, so that what follows each other is created together.
        (SEGMENT, content.segments.sort("start_ns", "id"), between),
        (SNAPSHOT, content.snapshots, [(SPENT, content.spent)]),
        (STEP, content.steps, [(CONTAINS_STEP, content.steps)]),
    ]
    work = [bring(writer, nodes, rows, ends, batch_rows, ask=alone) for nodes, rows, ends in parts]
    # Nearly all are there, so that to ask for them first is one statement more.
    work.insert(1, writer.merges([(NAMELESS, content.spent.select("operator").unique())], batch_rows))
    findings = writer.merges([(CONTAINS_FINDING, content.findings)], batch_rows)
    writer.write_in_order(chain(*work, findings), batch_rows, advance)


def publish(writer: Writer, content: Content) -> None:
    """Show the epochs of a content, all in one transaction, with the queries of `Writer.beside`.

    Parameters
    ----------
    writer
        Writes the run.
    content
        All of whose rows have been written. Only `detail`, `snapshots` and `ends` are read, so that `Content.small`
        will do.

    Raises
    ------
    Neo4jError
        If another load of the run has taken over; nothing is shown then.
    """
    shown = {
        "run": writer.run_id,
        "detail": str(content.detail),
        "model": MODEL,
        "epoch": content.snapshots["epoch"].to_list(),
        "snapshot": content.snapshots["id"].to_list(),
        "commit": content.snapshots["commit"].to_list(),
    }
    statements: list[tuple[str, Mapping[str, Any]]] = [(load_query("load/publish").text, shown)]
    if content.ends.height:
        ends = {"run": writer.run_id, **content.ends.to_dict(as_series=False)}
        statements.insert(0, (load_query("load/publish_ends").text, ends))
    writer.write_all([*statements, *writer.beside])


def columns(frame: pl.DataFrame, names: Iterable[str]) -> dict[str, list[Any]]:
    """Return columns of a frame as lists that a query takes as parameters.

    Parameters
    ----------
    frame
        Any.
    names
        Parameters of the query; those that are no columns, such as ``run``, are left out.

    Returns
    -------
    dict
        By name: one value per row.
    """
    return frame.select([name for name in names if name in frame.columns]).to_dict(as_series=False)
