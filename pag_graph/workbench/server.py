"""The process that serves the workbench."""

from __future__ import annotations

import re
import secrets
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import polars as pl
import uvicorn

from pag_graph.errors import InvalidParameterError, PagGraphError, SinkError
from pag_graph.store.access import is_loopback
from pag_graph.workbench.answers import path
from pag_graph.workbench.app import make_app
from pag_graph.workbench.facts import run_facts
from pag_graph.workbench.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pag_graph.workbench.library import Library

PORT = 8765
"""Where it is served unless told otherwise, or at the next free one."""
_TRIES = 20
_HOST = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?")
_USUAL_PORT = 80
"""Of addresses that name none."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the workbench is served."""

    host: str
    port: int
    token: str
    aliases: tuple[str, ...] = ()
    """What else it is called: names of this machine that others use, or what a proxy passes on."""

    @property
    def address(self) -> str:
        """Without the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    @property
    def names(self) -> set[str]:
        """What browsers that reach it call it: values of the header ``Host``."""
        hosts = {"127.0.0.1", "localhost", "[::1]", self.address[7:-1].removesuffix(f":{self.port}")}
        # The port that they take where none is given is one that they leave out; a proxy has a port of its own.
        plain = {*self.aliases, *(hosts if self.port == _USUAL_PORT else ())}
        return {f"{host}:{self.port}" for host in {*hosts, *self.aliases}} | plain

    @property
    def link(self) -> str:
        """What to open: the token in it becomes a cookie."""
        return f"{self.address}?token={quote(self.token, safe='')}"


def serve(
    library: Library,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    aliases: Sequence[str] = (),
    ready: Callable[[Place], None],
) -> None:
    """Serve the workbench until it is interrupted.

    Parameters
    ----------
    library
        The stores that it shows.
    host
        Where it listens; another place than this machine needs a token.
    port
        A free one from `PORT` on where absent; 0 takes any.
    token
        A secret; a new one where absent.
    aliases
        What browsers call it besides its address: a host's name, with a port or without. Requests that name anything
        else are refused, as a page elsewhere may have led to them.
    ready
        Called when it listens.

    Raises
    ------
    InvalidParameterError
        If others shall reach it, and no token is given; or an alias is no name of a host.
    SinkError
        If the port is taken.
    """
    if not is_loopback(host) and token is None:
        message = f"Everybody who can reach {host} could read these runs."
        raise InvalidParameterError(message, "Give --token-file, and serve it behind TLS.")
    for alias in aliases:
        if not _HOST.fullmatch(alias):
            message = f"{alias!r} is no name of a host."
            raise InvalidParameterError(message, "Give it as browsers do, such as runs.example.org or box:8765.")
    listening = _listen(host, port)
    secret = token or secrets.token_urlsafe(24)
    place = Place(host=host, port=listening.getsockname()[1], token=secret, aliases=tuple(aliases))
    app = Guard(make_app(library), hosts=place.names, token=place.token, cookie=f"pag-{place.port}")
    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        limit_concurrency=256,
        h11_max_incomplete_event_size=1 << 16,
        ws="none",
    )
    ready(place)
    threading.Thread(target=warm_up, args=(library,), daemon=True).start()
    uvicorn.Server(config).run(sockets=[listening])


def warm_up(library: Library) -> None:
    """Load the code that the first lanes need, while somebody still looks at the list of runs.

    Parameters
    ----------
    library
        The smallest epoch of its first run is drawn: half of what a first answer takes is loading modules and compiled
        kernels.
    """
    for name in list(library.stores())[:1]:
        with suppress(PagGraphError, OSError):
            opened = library.open(name)
            run_facts(opened)
            smallest = opened.pag.run.epochs.filter(pl.col("edges") > 0).sort("edges").head(1)
            for epoch in smallest["epoch"]:
                window = path(opened, {"epoch": epoch}, None, 1)
                opened.lanes.draw(window["start_ns"], window["end_ns"], 1)


def _listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens.

    Raises
    ------
    SinkError
        If the port, or each of those that are tried, is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    error: OSError | None = None
    for candidate in [port] if port is not None else range(PORT, PORT + _TRIES):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(64)
        except OSError as refused:
            listener.close()
            error = refused
            continue
        return listener
    message = f"{host} has no free port{'' if port is None else f' {port}'}: {error}."
    raise SinkError(message, "Choose another one with --port.")
