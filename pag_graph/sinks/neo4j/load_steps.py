"""What a load writes, in the order in which it does: each of these can be done again."""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.cypher import load_query
from pag_graph.sinks.neo4j.creation import bring
from pag_graph.sinks.neo4j.model import (
    CONTAINS_FINDING,
    CONTAINS_STEP,
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
from pag_graph.sinks.neo4j.writer import execute
from pag_graph.sinks.provenance import parameters_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import neo4j

    from pag_graph.sinks.neo4j.content import Content, Reader
    from pag_graph.sinks.neo4j.model import NodeTable, RelationshipTable
    from pag_graph.sinks.neo4j.writer import Writer


def prepare_schema(driver: neo4j.Driver) -> None:
    """Make the constraints and indexes that are not there, and names known that queries use."""
    there = {
        row["name"] for row in execute(driver, "SHOW INDEXES YIELD name, state WHERE state = 'ONLINE' RETURN name")
    }
    lacking = [text for text in load_query("schema/constraints").statements if _schema_name(text) not in there]
    for text in lacking:
        execute(driver, text)
    if lacking:
        execute(driver, "CALL db.awaitIndexes(600)")
    for text, values in zip(
        load_query("schema/names").statements, ({"types": list(TYPES)}, {"properties": list(PROPERTIES)}), strict=True
    ):
        execute(driver, text, values)


def _schema_name(text: str) -> str:
    found = re.search(r"^CREATE (?:CONSTRAINT|INDEX) (\w+)", text, re.MULTILINE)
    assert found  # noqa: S101  (every statement of the schema makes one)
    return found[1]


def describe(writer: Writer, reader: Reader, batch_rows: int) -> None:
    """Write what is known of the run beside its epochs."""
    run = reader.run
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
        "events": run.info.events,
        **reader.extent(),
        **{f"source_{name}": described["source"][name] for name in ("system", "version", "format")},
    }
    jobs = {"run": reader.run_id, **origin, **reader.jobs().to_dict(as_series=False)}
    writer.write_all([(query.text, values), (load_query("load/jobs").text, jobs)])
    workers = run.scan("workers").collect()
    # A column that files may lack.
    absent = [pl.lit(None, pl.String).alias(name) for name in WORKER.columns if name not in workers.columns]
    connected = run.channels.drop_nulls(["source_operator", "target_operator"])
    findings = reader.findings
    tables: list[tuple[NodeTable | RelationshipTable, pl.DataFrame]] = [
        (WORKER, workers.with_columns(absent)),
        (OPERATOR, run.operators),
        (FEEDS, connected),
        (FINDING, findings),
    ]
    writer.merge_all(tables, batch_rows)
    writer.write(load_query("load/findings_of_run").text, {"run": reader.run_id, "id": findings["id"].to_list()})


def begin(writer: Writer, content: Content) -> None:
    """Add the epochs of a content, hidden."""
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
    parts: list[tuple[NodeTable, pl.DataFrame, list[tuple[RelationshipTable, pl.DataFrame]]]] = [
        # In the order of time, so that what follows each other is created together.
        (SEGMENT, content.segments.sort("start_ns", "id"), [(THEN, content.then), (RELEASED, content.released)]),
        (NAMELESS, content.spent.select("operator").unique(), []),
        (SNAPSHOT, content.snapshots, [(SPENT, content.spent)]),
        (STEP, content.steps, [(CONTAINS_STEP, content.steps)]),
    ]
    work = [bring(writer, nodes, rows, ends, batch_rows, ask=alone) for nodes, rows, ends in parts]
    findings = writer.merges([(CONTAINS_FINDING, content.findings)], batch_rows)
    writer.write_in_order(chain(*work, findings), batch_rows, advance)


def publish(writer: Writer, content: Content) -> None:
    """Show the epochs of a content, all in one transaction."""
    shown = {
        "run": writer.run_id,
        "detail": str(content.detail),
        "model": MODEL,
        "epoch": content.snapshots["epoch"].to_list(),
        "snapshot": content.snapshots["id"].to_list(),
        "commit": content.snapshots["commit"].to_list(),
    }
    ends = {"run": writer.run_id, **content.ends.to_dict(as_series=False)}
    statements: list[tuple[str, Mapping[str, Any]]] = [
        (load_query("load/publish_ends").text, ends),
        (load_query("load/publish").text, shown),
    ]
    writer.write_all([*statements, *writer.beside])


def columns(frame: pl.DataFrame, names: Iterable[str]) -> dict[str, list[Any]]:
    """Return those columns of a frame as lists that a query takes as parameters."""
    return frame.select([name for name in names if name in frame.columns]).to_dict(as_series=False)
