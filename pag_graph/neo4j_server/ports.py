"""Where a server of one's own can listen."""

from __future__ import annotations

import errno
import socket
import time

from pag_graph.errors import InvalidParameterError, Neo4jError
from pag_graph.neo4j_server.home import HOST

__all__ = ["free_port"]

_LAST_PORT = 65535
_PORTS_TRIED = 100
_FIXED_TRIES, _FIXED_PAUSE_S = 25, 0.2


def free_port(port_wanted: int, *, fixed: bool = False, besides: int | None = None, host: str = HOST) -> int:
    """Return a port that is free at this moment: the one that is wanted or, unless it is fixed, the next one.

    Parameters
    ----------
    port_wanted
        0 to 65535; 0 stands for any that the system gives.
    fixed
        Take no other one. A server that was killed may still hold it, so it is waited for up to 5 s.
    besides
        A port that is promised already, and counts as taken.
    host
        Address to listen on, without brackets.

    Returns
    -------
    int
        `port_wanted` or one of the 99 after it. Nothing holds it: somebody else may take it.

    Raises
    ------
    InvalidParameterError
        When `port_wanted` is no port, or `host` no address of this machine.
    Neo4jError
        When there is none.
    """
    if not 0 <= port_wanted <= _LAST_PORT:
        message = f"{port_wanted} is no port: there are 0 to {_LAST_PORT}."
        raise InvalidParameterError(message, None, {"port": port_wanted})
    _check_address(host)
    # A server that was killed holds its port until the system has taken it apart.
    tried = (
        [port_wanted] * _FIXED_TRIES if fixed else range(port_wanted, min(port_wanted + _PORTS_TRIED, _LAST_PORT + 1))
    )
    refusal = None
    for number, candidate in enumerate(tried):
        if fixed and number:
            time.sleep(_FIXED_PAUSE_S)
        with _socket(host) as probe:
            # As Java does: a port that only waits for the last packets of a closed connection counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    refusal = error.strerror
                    if fixed:
                        break
                continue
            port = int(probe.getsockname()[1])
            if port != besides:
                return port
    if refusal is None:
        message = f"Port {port_wanted} is taken." if fixed else f"No port from {port_wanted} to {tried[-1]} is free."
    else:
        ports = f"Port {port_wanted} cannot" if fixed else f"No port from {port_wanted} to {tried[-1]} can"
        message = f"{ports} be used: {refusal}."
    raise Neo4jError(
        message, "Name other ports: `pag neo4j start --bolt-port ... --http-port ...`.", {"port": port_wanted}
    )


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)


def _check_address(host: str) -> None:
    """Check that this machine can listen on a host, whatever the port.

    Raises
    ------
    InvalidParameterError
        When it cannot: the host is another machine, or there is none of that name.
    """
    try:
        with _socket(host) as probe:
            probe.bind((host, 0))
    except OSError as error:
        reason = error.strerror
    except (TypeError, ValueError) as error:  # nobody can be asked about such a name
        reason = str(error)
    else:
        if host:
            return
        # It stands for all addresses here, and for none in the configuration of Neo4j.
        reason = "the name is empty"
    message = f"This machine cannot listen on {host!r}: {reason}."
    hint = "Name an address of this machine, without brackets; `--listen 0.0.0.0` stands for all of them."
    raise InvalidParameterError(message, hint, {"listen": host})
