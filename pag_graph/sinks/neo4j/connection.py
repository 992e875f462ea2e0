"""How to reach a Neo4j server that is not the embedded one: address, login and TLS, all from the environment.

====================  ==================================================================================
``NEO4J_URI``         ``bolt://``, ``neo4j://`` (cluster), or with TLS ``bolt+s://``, ``neo4j+s://``
``NEO4J_USERNAME``    ``neo4j`` where absent
``NEO4J_PASSWORD``    the password; or
``NEO4J_PASSWORD_FILE``  a file that holds it; or
``NEO4J_AUTH_FILE``   a file that holds user and password, ``neo4j/...``, as Neo4j's own image reads it
``NEO4J_CA``          certificate of the authority that signed the server's; the system's where absent
====================  ==================================================================================
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.errors import InvalidParameterError, Neo4jError
from pag_graph.neo4j_server import server
from pag_graph.neo4j_server.home import own_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    import neo4j

_SCHEMES = ("bolt", "neo4j", "bolt+s", "neo4j+s", "bolt+ssc", "neo4j+ssc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An address with a login. It travels to Spark's tasks; the password is never printed."""

    uri: str
    user: str
    password: str
    ca: str | None = None
    """File with the certificate of the authority to trust; the system's authorities where absent."""

    def __repr__(self) -> str:
        return f"Connection(uri={self.uri!r}, user={self.user!r}, ca={self.ca!r})"

    def open(self) -> neo4j.Driver:
        """Open a driver; the caller closes it."""
        import neo4j

        uri = self.uri
        options: dict[str, Any] = {}
        if self.ca is not None:
            # The driver takes certificates only where the address itself says nothing of encryption.
            scheme, _, host_and_port = uri.partition("://")
            uri = f"{scheme.partition('+')[0]}://{host_and_port}"
            options = {"encrypted": True, "trusted_certificates": neo4j.TrustCustomCAs(self.ca)}
        return neo4j.GraphDatabase.driver(
            uri,
            auth=(self.user, self.password),
            connection_timeout=10.0,
            notifications_min_severity="OFF",
            telemetry_disabled=True,
            **options,
        )


def connection_from_environment(uri: str | None = None, environment: Mapping[str, str] = os.environ) -> Connection:
    """Return how to reach an external server.

    Parameters
    ----------
    uri
        Its address; ``NEO4J_URI`` where absent.
    environment
        What to read.

    Returns
    -------
    Connection
        Not tried yet.

    Raises
    ------
    InvalidParameterError
        If the address is none, or names a file that is not there.
    Neo4jError
        If there is no password.
    """
    address = uri or environment.get("NEO4J_URI", "")
    scheme, separator, _ = address.partition("://")
    if not separator or scheme not in _SCHEMES:
        message = f"{address!r} is not an address of a Neo4j server."
        raise InvalidParameterError(
            message, f"It begins with {', '.join(f'{known_scheme}://' for known_scheme in _SCHEMES)}."
        )
    password = environment.get("NEO4J_PASSWORD")
    file = environment.get("NEO4J_PASSWORD_FILE")
    if password is None and file is not None:
        password = _content(Path(file), "NEO4J_PASSWORD_FILE")
    auth_file = environment.get("NEO4J_AUTH_FILE")
    user = environment.get("NEO4J_USERNAME", server.USER)
    if password is None and auth_file is not None:
        user, separator, password = _content(Path(auth_file), "NEO4J_AUTH_FILE").partition("/")
        if not separator:
            message = f"NEO4J_AUTH_FILE names {auth_file}, which holds no user and password with a slash between."
            raise InvalidParameterError(message)
    if password is None:
        message = f"There is no password for {address}."
        raise Neo4jError(
            message,
            "Set NEO4J_PASSWORD, NEO4J_PASSWORD_FILE or NEO4J_AUTH_FILE (and NEO4J_USERNAME, unless it is neo4j).",
        )
    ca = environment.get("NEO4J_CA")
    if ca is not None and not Path(ca).is_file():
        message = f"NEO4J_CA names {ca}, and there is no such file."
        raise InvalidParameterError(message)
    return Connection(uri=address, user=user, password=password, ca=ca)


def connection_to_home(home: Path | None) -> Connection:
    """Return how to reach the embedded server of a home.

    Raises
    ------
    Neo4jError
        If it does not run.
    """
    status = server.status(home)
    if status.bolt_uri is None:
        message = f"No Neo4j server runs in {status.home}."
        raise Neo4jError(message, f"Start it: `{own_command('start', status.home)}`.", {"home": str(status.home)})
    password = status.password_file.read_text(encoding="utf-8").strip()
    return Connection(uri=status.bolt_uri, user=status.user, password=password)


def _content(file: Path, variable: str) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        message = f"{variable} names {file}, which cannot be read: {error.strerror}."
        raise InvalidParameterError(message) from error
