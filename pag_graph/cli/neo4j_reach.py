"""Which Neo4j server a command talks to: the options that say so, and what they mean together."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pag_graph.errors import InvalidParameterError, PagGraphError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pag_graph.sinks.neo4j.connection import Connection

Home = Annotated[
    Path | None, typer.Option("--home", help="Folder of the server. Default: a folder in the user's data folder.")
]
Uri = Annotated[
    str | None,
    typer.Option(
        "--uri",
        help="Address of another server. Default: NEO4J_URI, if --home is not given. NEO4J_USERNAME, NEO4J_PASSWORD (or"
        " NEO4J_PASSWORD_FILE) and NEO4J_CA are read from the environment.",
    ),
]


def elsewhere(home: Path | None, uri: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the address of the server to talk to, or none where that is the embedded one.

    Parameters
    ----------
    home, uri
        What the command line says; it counts for more than the environment.
    environment
        Where ``NEO4J_URI`` is looked up.

    Raises
    ------
    InvalidParameterError
        If the command line names two servers.
    """
    if home is not None and uri is not None:
        message = f"--home {home} and --uri {uri} name two servers."
        raise InvalidParameterError(message, "Give only one of them.")
    return uri if uri is not None or home is not None else environment.get("NEO4J_URI")


def at_server(text: str, home: Path | None, uri: str | None) -> str:
    """Add to the commands in a text that load something which server the command line has named, if it has."""
    named = {"--home": home, "--uri": uri}
    options = "".join(f" {option} {shlex.quote(str(value))}" for option, value in named.items() if value is not None)
    return re.sub("`pag neo4j load [^`]*", lambda command: command[0] + options, text)


@contextmanager
def hints_name_server(home: Path | None, uri: str | None) -> Iterator[None]:
    """Let hints of errors say which server to load into."""
    try:
        yield
    except PagGraphError as error:
        error.hint = error.hint and at_server(error.hint, home, uri)
        raise


def reach(home: Path | None, uri: str | None) -> Connection:
    """Return how to reach the server that the command line, or else the environment, names."""
    from pag_graph.sinks.neo4j.connection import connection_from_environment, connection_to_home

    address = elsewhere(home, uri)
    return connection_to_home(home) if address is None else connection_from_environment(address)
