"""`pag neo4j`: a server of one's own, and what to put into it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph.cli.output import Format, print_csv, print_json, print_rows, progress, stdout
from pag_graph.errors import InvalidParameterError, Neo4jError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import neo4j

    from pag_graph.sinks.neo4j.server import ServerStatus

app = typer.Typer(no_args_is_help=True, help="Run a Neo4j server on this machine, load graphs into it, query them.")

_Home = Annotated[
    Path | None, typer.Option("--home", help="The server's folder; one in the user's data folder where absent.")
]
_Uri = Annotated[
    str | None,
    typer.Option(
        "--uri",
        envvar="NEO4J_URI",
        help="Another server; NEO4J_USERNAME and NEO4J_PASSWORD are read from the environment.",
    ),
]
_Format = Annotated[Format, typer.Option("--format", "-f", help="table for people, json or csv for programs.")]


@app.command()
def start(
    home: _Home = None,
    bolt_port: Annotated[int, typer.Option(help="Port for drivers; the next free one if it is taken.")] = 7687,
    http_port: Annotated[int, typer.Option(help="Port for Neo4j Browser; likewise.")] = 7474,
    fixed_ports: Annotated[bool, typer.Option("--fixed-ports", help="Fail if a port is taken.")] = False,
    heap: Annotated[str, typer.Option(help="Memory for Java.")] = "512m",
    form: _Format = Format.TABLE,
) -> None:
    """Start a real Neo4j Community server on loopback; install it first if needed.

    Example: pag neo4j start
    """
    from pag_graph.sinks.neo4j import server

    with progress(quiet=form is not Format.TABLE) as report:
        now = server.start(
            home, bolt_port=bolt_port, http_port=http_port, fixed_ports=fixed_ports, heap=heap, progress=report
        )
    _show(now, form)


@app.command()
def stop(home: _Home = None) -> None:
    """Stop the server.

    Example: pag neo4j stop
    """
    from pag_graph.sinks.neo4j import server

    stopped = server.stop(home)
    stdout().print("Stopped." if stopped else "No server was running.")


@app.command()
def status(home: _Home = None, form: _Format = Format.TABLE) -> None:
    """Say whether the server runs, and where.

    Example: pag neo4j status --format json
    """
    from pag_graph.sinks.neo4j import server

    _show(server.status(home), form)


@app.command()
def load(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Directory of a built store.", show_default=False)],
    epoch: Annotated[int | None, typer.Option("--epoch", "-e", help="Epoch to load; the slowest where absent.")] = None,
    home: _Home = None,
    uri: _Uri = None,
    form: _Format = Format.TABLE,
) -> None:
    """Load an epoch into Neo4j; doing it twice changes nothing.

    Example: pag neo4j load run.pag --epoch 5
    """
    from pag_graph.api import Pag
    from pag_graph.sinks.neo4j.loader import load_epoch

    run = Pag(store).run
    chosen = run.slowest().epoch if epoch is None else epoch
    assert chosen is not None  # noqa: S101  (windows of epochs have a number)
    with connect(home, uri) as driver, progress(quiet=form is not Format.TABLE) as report:
        done = load_epoch(run, driver, epoch=chosen, progress=report)
    if form is Format.JSON:
        print_json(asdict(done))
        return
    out = stdout()
    out.print(f"Loaded epoch {chosen}: {done.events:,} events, {done.relationships:,} relationships.")
    out.print(
        f"Next: pag neo4j query analyses/critical_path --param run={run.info.run['run_id']} --param epoch={chosen}",
        style="dim",
    )


@app.command()
def query(
    name: Annotated[str | None, typer.Argument(help="Query of the library; lists them where absent.")] = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter.")] = None,
    home: _Home = None,
    uri: _Uri = None,
    form: _Format = Format.TABLE,
) -> None:
    """Run a query of the Cypher library, for reading only.

    Example: pag neo4j query analyses/critical_path -p run=RUN -p epoch=5
    """
    from pag_graph.cypher import list_queries, load_query
    from pag_graph.sinks.neo4j.query import run_query

    if name is None:
        known = [load_query(query) for query in list_queries()]
        print_rows([{"name": q.name, "purpose": q.purpose} for q in known if q.returns], ["name", "purpose"])
        return
    parameters = dict(_parameter(text) for text in param or [])
    with connect(home, uri) as driver:
        rows = run_query(driver, name, parameters)
    if form is Format.JSON:
        print_json(rows)
        return
    columns = list(rows[0]) if rows else []
    if form is Format.CSV:
        print_csv(rows, columns)
    elif rows:
        print_rows(rows, columns)
    else:
        stdout().print("No rows.")


def _parameter(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        message = f"--param {text!r} is not of the form NAME=VALUE."
        raise InvalidParameterError(message)
    try:
        return name, int(value)
    except ValueError:
        return name, value


@contextmanager
def connect(home: Path | None, uri: str | None) -> Iterator[neo4j.Driver]:
    """Open a driver to the server of `home`, or to the one at `uri`."""
    from pag_graph.sinks.neo4j import server

    if uri is None:
        with server.driver(server.status(home)) as driver:
            yield driver
        return
    import neo4j as neo4j_driver

    password = os.environ.get("NEO4J_PASSWORD")
    if password is None:
        message = f"There is no password for {uri}."
        raise Neo4jError(message, "Set NEO4J_PASSWORD (and NEO4J_USERNAME, unless it is neo4j).")
    user = os.environ.get("NEO4J_USERNAME", "neo4j")
    with neo4j_driver.GraphDatabase.driver(uri, auth=(user, password)) as driver:
        yield driver


def _show(now: ServerStatus, form: Format) -> None:
    facts = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(now).items()}
    if form is Format.JSON:
        print_json(facts)
        return
    if not now.running:
        stdout().print("No server is running. Start it: pag neo4j start")
        return
    answers = "answers" if now.responsive else "does not answer"
    out = stdout()
    out.print(f"Neo4j {now.version} runs (process {now.pid}) and {answers}.")
    out.print(f"  Browser: {now.http_uri}/browser/  (user {now.user}, password in {now.password_file})")
    out.print(f"  drivers: {now.bolt_uri}")
    out.print("  stop it: pag neo4j stop")
