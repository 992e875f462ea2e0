"""The demonstration: from a real trace to an answer, on Spark and in Neo4j."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph import samples
from pag_graph.cli.output import print_rows, progress, stdout
from pag_graph.errors import SinkError

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = samples.FOLDER
"""Folder of the bundled traces."""


def run_demo(*, trace: str, folder: Path, keep: bool) -> None:
    """Build a bundled trace, explain its slowest epoch, load it into Neo4j, and ask the same question there.

    Parameters
    ----------
    trace
        Name of a bundled trace.
    folder
        Where the store goes.
    keep
        Whether to leave the server running.

    Raises
    ------
    SinkError
        If Neo4j gives another answer than the engine.
    """
    from pag_graph import api
    from pag_graph.neo4j_server import server
    from pag_graph.sinks.neo4j.loader import load_run
    from pag_graph.sinks.neo4j.query import run_query

    recorded = samples.path(trace)
    console = stdout()
    store = folder / f"{trace}.pag"
    console.rule(f"1. The activity graph of the bundled trace {trace!r}, built on Spark", align="left")
    with progress() as report:
        built = api.build(recorded, store, mode="replace", progress=report)
    rows = built.rows
    console.print(f"{store}: {built.store.events:,} events, {rows['vertices']:,} vertices, {rows['edges']:,} edges")
    pag = api.open(store)
    console.rule("2. Why was the slowest epoch slow?", align="left")
    answer = pag.why()
    console.print(answer.text(), markup=False)
    epoch = answer.window.epoch
    assert epoch is not None  # noqa: S101  (the slowest window is an epoch's)
    console.rule("3. The same epoch in Neo4j", align="left")
    with progress() as report:
        now = server.start(progress=report)
    try:
        with server.driver(now) as driver:
            with progress() as report:
                loaded = load_run(pag.run, driver, epochs=[epoch], again=True, progress=report)
            console.print(f"loaded {loaded.events:,} events and {loaded.relationships:,} relationships")
            parameters = {"run": pag.run.info.run["run_id"], "epoch": epoch}
            cypher_rows = run_query(driver, "analyses/critical_path", parameters)
    finally:
        if not keep:
            server.stop()
    _compare(cypher_rows, pag.critical_path(epoch=epoch).steps.to_pylist())
    longest = sorted(sorted(cypher_rows, key=lambda row: -row["duration_ns"])[:5], key=lambda row: row["step"])
    title = "cypher/analyses/critical_path.cypher: the five longest steps"
    print_rows(longest, ["step", "type", "worker", "start_ns", "duration_ns", "operator"], title)
    console.print(f"Cypher walked {len(cypher_rows)} steps: the same as the engine, row for row.")
    if keep:
        console.rule("Look around", align="left")
        console.print(f"Neo4j Browser: {now.http_uri}/browser/   user {now.user}, password in {now.password_file}")
        console.print(
            f'  try: MATCH p = (a:Event)-[:DATA_MESSAGE]->(b:Event) WHERE a.run = "{parameters["run"]}" RETURN p'
        )
        console.print("Stop the server: pag neo4j stop")
    else:
        console.print("The server has been stopped.")
    console.print(f"More answers: pag critical-path {store}, pag k-hops {store}, pag info {store}")


def _compare(cypher_rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    def key(row: dict[str, Any], src: str, dst: str) -> tuple[Any, ...]:
        return row[src], row[dst], row["type"], row["start_ns"], row["duration_ns"]

    if [key(row, "src", "dst") for row in cypher_rows] != [key(row, "edge_src", "edge_dst") for row in expected]:
        message = f"Cypher found another critical path ({len(cypher_rows)} steps) than the engine ({len(expected)})."
        raise SinkError(message, "Load the epoch again; if that does not help, report it with the trace.")
