"""`pag neo4j`: a server of one's own, and what to put into it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pag_graph.cli import neo4j_answers
from pag_graph.cli.neo4j_load import export, follow, load, remove
from pag_graph.cli.neo4j_queries import add_commands
from pag_graph.cli.neo4j_reach import Home  # noqa: TC001  (read by Typer when a command is called)
from pag_graph.cli.output import Format, print_facts, progress, stdout, tell_next
from pag_graph.model.units import printable

if TYPE_CHECKING:
    from pag_graph.neo4j_server.server import ServerStatus

app = typer.Typer(no_args_is_help=True, help="Run a Neo4j server on this machine, load graphs into it, and query them.")

_Format = Annotated[Format, typer.Option("--format", "-f", help="table for people, json or csv for programs.")]


@app.command()
def start(
    home: Home = None,
    bolt_port: Annotated[
        int, typer.Option(help="Port for drivers. If it is taken, the next free port is used.")
    ] = 7687,
    http_port: Annotated[
        int, typer.Option(help="Port for Neo4j Browser. If it is taken, the next free port is used.")
    ] = 7474,
    fixed_ports: Annotated[bool, typer.Option("--fixed-ports", help="Fail if a port is taken.")] = False,
    heap: Annotated[str, typer.Option(help="Memory for Java.")] = "512m",
    listen: Annotated[
        str, typer.Option(help="Address to listen on. Only a loopback address keeps the network out.")
    ] = "127.0.0.1",
    form: _Format = Format.TABLE,
) -> None:
    """Start a real Neo4j Community server on this machine; it is installed first if needed.

    Example: pag neo4j start
    """
    from pag_graph.neo4j_server import server

    with progress(quiet=form is not Format.TABLE) as report:
        now = server.start(
            home,
            bolt_port=bolt_port,
            http_port=http_port,
            fixed_ports=fixed_ports,
            heap=heap,
            listen=listen,
            progress=report,
        )
    _show(now, form)


@app.command()
def stop(home: Home = None) -> None:
    """Stop the server.

    Example: pag neo4j stop
    """
    from pag_graph.neo4j_server import server

    stopped = server.stop(home)
    stdout().print("Stopped." if stopped else "No server was running.")


@app.command()
def status(home: Home = None, form: _Format = Format.TABLE) -> None:
    """Say whether the server is running, and where.

    Example: pag neo4j status --format json
    """
    from pag_graph.neo4j_server import server

    _show(server.status(home), form)


app.command()(load)
app.command()(export)
app.command()(follow)
app.command()(remove)
app.command()(neo4j_answers.advise)
app.command()(neo4j_answers.rescale)


@app.command()
def copy(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Home of the copy; must be a new folder.", show_default=False)
    ],
    home: Home = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an earlier copy.")] = False,
) -> None:
    """Copy the data of a stopped server to a read-only server with its own password, for people who only query.

    Neo4j Community has no roles, so everybody who has a server's password may write to it. Nobody can write to a copy.

    Example: pag neo4j copy /srv/pag-readers
    """
    from pag_graph.neo4j_server.copying import copy as make

    with progress() as report:
        copied = make(target, home, replace=replace, progress=report)
    console = stdout()
    console.print(f"Copied to {copied}; it is read-only.", markup=False)
    tell_next("pag", "neo4j", "start", "--home", copied)


@app.command()
def logs(
    home: Home = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many lines.")] = 40,
) -> None:
    """Print the last lines of the server's log.

    Example: pag neo4j logs -n 100
    """
    from pag_graph.neo4j_server import server

    for line in server.log_lines(home, lines):
        typer.echo(printable(line))


@app.command()
def reset(
    home: Home = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Stop the server and remove all its data. The next start makes a new password and configuration.

    Example: pag neo4j reset --yes
    """
    from pag_graph.neo4j_server import server
    from pag_graph.neo4j_server.home import home_folder

    folder = home_folder(home)
    if not yes:
        typer.confirm(f"Remove everything in the database of {folder}?", abort=True)
    removed = server.reset(home)
    stdout().print("Removed." if removed else "There was nothing to remove.")


def _show(now: ServerStatus, form: Format) -> None:
    from pag_graph.neo4j_server.home import own_command

    facts = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(now).items()}
    if print_facts(facts, form):
        return
    if not now.running:
        stdout().print(
            f"No server is running. Start it: {own_command('start', now.home)}", markup=False, soft_wrap=True
        )
        return
    answers = "answers" if now.responsive else "does not answer"
    console = stdout()
    console.print(f"Neo4j {now.version} runs (process {now.pid}) and {answers}.")
    console.print(f"  Browser: {now.http_uri}/browser/  (user {now.user}, password in {now.password_file})")
    console.print(f"  drivers: {now.bolt_uri}")
    console.print(f"  stop it: {own_command('stop', now.home)}", markup=False, soft_wrap=True)


add_commands(app)
