"""The workbench, served to a browser of a test by a thread of it, and how such a test gets around in it."""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from pag_graph.workbench import server
from pag_graph.workbench.app import make_app
from pag_graph.workbench.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.workbench.library import Library
    from tests.support.chromium import Chromium

TOKEN = "token-of-the-browser-test"
PAGE = "document.getElementById('main').dataset.page"


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


def show(page: Chromium, address: str) -> None:
    """Go to a page, and wait until it is drawn."""
    name, fragment = address.partition("?")[0], json.dumps(f"#/{address}")
    # A browser says nothing of a new place where it is there already, after another test: it is told to draw it anew.
    redraw = "dispatchEvent(new HashChangeEvent('hashchange'))"
    go = f"if (location.hash === {fragment}) {redraw}; else location.hash = {fragment}"
    page.evaluate(f"{PAGE} = ''; {go}")
    page.until(f"{PAGE} === {json.dumps(name)}", f"page {address}")


def picture(page: Chromium, name: str, folder: Path) -> None:
    """Write what the page shows to a folder, or to the one of the documentation's pictures (``PAG_PICTURES``)."""
    page.picture(Path(os.environ.get("PAG_PICTURES", folder)) / f"workbench-{name}.png")
