"""The workbench, served to a browser of a test by a thread of it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from pag_graph.workbench import server
from pag_graph.workbench.app import make_app
from pag_graph.workbench.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.workbench.library import Library

TOKEN = "token-of-the-browser-test"


@contextmanager
def serving(library: Library) -> Iterator[server.Place]:
    """Serve stores as `pag serve` does, and say where."""
    listening = server._listen("127.0.0.1", 0)
    place = server.Place(host="127.0.0.1", port=listening.getsockname()[1], token=TOKEN)
    app = Guard(make_app(library), hosts=[f"127.0.0.1:{place.port}"], token=TOKEN, cookie=f"pag-{place.port}")
    running = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, ws="none"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield place
    finally:
        running.should_exit = True
        thread.join()
        listening.close()
