"""Neo4j Browser in a real Chromium: log in, read the guide, run queries of the library, see nodes drawn in our colours.

Chromium is driven over its DevTools pipe. With ``PAG_PICTURES=docs/pictures`` the screenshots of the documentation are
made anew.
"""

from __future__ import annotations

import os
import re
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.cypher import load_query
from pag_graph.neo4j_server import browser
from pag_graph.neo4j_server.process import running_in
from pag_graph.sinks.neo4j import loader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.workbench import facts
from pag_graph.workbench.library import Library
from tests.support.chromium import PATIENCE_S
from tests.support.serving import serving

if TYPE_CHECKING:
    from pag_graph.graph.run import Run
    from pag_graph.neo4j_server.server import ServerStatus
    from tests.integration.conftest import Database
    from tests.support.chromium import Chromium

pytestmark = pytest.mark.neo4j


@pytest.fixture(scope="module")
def loaded(
    neo4j_server: ServerStatus, neo4j_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> ServerStatus:
    """Load the bundled skewed trace into a server that holds nothing else."""
    store = tmp_path_factory.mktemp("browser") / "skewed"
    api.build(SAMPLES / "skewed", store, engine="local")
    neo4j_database.wipe()
    loader.load_run(api.open(store).run, neo4j_database.driver, options=loader.LoadOptions(detail=Detail.FULL))
    return neo4j_server


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return bytes(answer.read())


FRAME = "document.querySelector('[data-testid=frame]')"
EDITOR = "document.querySelector('[data-testid=activeEditor] textarea')"


def log_in(page: Chromium, server_of: ServerStatus) -> None:
    """Fill in the form that Browser begins with, and send it."""
    asked = "document.querySelector('[data-testid=password]') !== null"
    outside = f"({asked} || document.body.innerText.includes('Database access not available'))"
    page.until(f"{asked} || {EDITOR} !== null", "field for the password, nor an editor")
    given = {"username": server_of.user, "password": server_of.password_file.read_text().strip()}
    deadline = time.monotonic() + PATIENCE_S
    # The form is drawn anew once Browser has asked the server what it is, and forgets what was typed before: look, and
    # type again. There is no form where Browser remembers who logged in before.
    while page.evaluate(outside):
        assert time.monotonic() < deadline, f"Browser keeps asking for the password; {page.problems}"
        for field, text in given.items():
            box = f"document.querySelector('[data-testid={field}]')"
            page.evaluate(f"{box}?.focus()")
            # Where the form has just gone, the editor has the focus, and would take what is typed.
            if page.evaluate(f"{box} !== null && document.activeElement === {box}"):
                page.press("a", 65, control=True)
                page.type(text)
        typed = {field: page.evaluate(f"document.querySelector('[data-testid={field}]')?.value") for field in given}
        if typed == given:
            page.evaluate("document.querySelector('[data-testid=connect]')?.click()")
        closing = time.monotonic() + 5
        while page.evaluate(outside) and time.monotonic() < closing:
            time.sleep(0.2)


def opened(page: Chromium) -> None:
    """Wait until what Browser does by itself after the login is done: it opens the guide, and sets the colours."""
    page.until("document.body.innerText.includes('Choose a run and an epoch')", "guide")
    page.until("document.body.innerText.includes('style.grass')", "style")


def run(page: Chromium, text: str) -> None:
    """Type something into the editor and run it; wait until its frame is the first."""
    page.until(f"{EDITOR} !== null", "editor")
    page.evaluate(f"{EDITOR}.focus()")
    page.press("a", 65, control=True)
    page.type(text)
    run_editor(page)


def run_editor(page: Chromium) -> None:
    before = "document.querySelectorAll('[data-testid=frame]').length"
    count = page.evaluate(before)
    page.evaluate("document.querySelector('[data-testid=editor-Run]').click()")
    page.until(f"{before} > {count}", "answer")


def drawn(page: Chromium) -> str:
    """Wait until the first frame shows a graph, and return it as SVG."""
    page.until(f"{FRAME}.querySelectorAll('svg g.node').length > 0", "node")
    return str(page.evaluate(f"{FRAME}.querySelector('svg g.node').closest('svg').outerHTML"))


def rest(page: Chromium, picture: Path) -> None:
    """Take a picture of a graph; where it is kept, when the layout has come to rest."""
    if "PAG_PICTURES" in os.environ:
        time.sleep(3)
    page.picture(picture)


def test_the_server_serves_guide_colours_and_saved_queries(neo4j_server: ServerStatus) -> None:
    assert neo4j_server.http_uri
    for name, content in browser.pages().items():
        assert get(f"{neo4j_server.http_uri}/browser/pag/{name}") == content
    assert b"Neo4j Browser" in get(f"{neo4j_server.http_uri}/browser/")


def test_analysts_see_graphs_in_browser(loaded: ServerStatus, chromium: Chromium, tmp_path: Path) -> None:
    pictures = Path(os.environ.get("PAG_PICTURES", tmp_path))
    page = chromium
    page.call("Page.navigate", url=f"{loaded.http_uri}/browser/")
    log_in(page, loaded)

    opened(page)
    # A click on its first box puts it into the editor; that sets the parameters of all queries.
    page.evaluate("document.querySelector('pre.runnable').click()")
    page.until("document.querySelector('[data-testid=activeEditor]').innerText.includes('latest')", "command")
    page.picture(pictures / "browser-guide.png")
    run_editor(page)
    page.until(f"{FRAME}.innerText.includes('Successfully set your parameters')", "parameters")

    run(page, code("browser/draw_waits"))
    svg = drawn(page)
    # Events have the colour of our style, and waits theirs.
    style = load_colours()
    assert style["Event"] in svg
    assert style["WAITING"] in svg
    assert svg.count('<g class="node') >= 4
    # How long they took is written as people read it.
    assert re.search(r"\d\.\d+ [mu]s<", svg)
    assert not re.search(r"\d{4,} ns<", svg)
    rest(page, pictures / "browser-waits.png")

    run(page, code("browser/draw_critical_path"))
    svg = drawn(page)
    # Who is told from the others by colour, what is critical is red and thick, captions name operator and duration.
    page.until(f"{FRAME}.querySelectorAll('svg g.node').length >= 2", "path")
    svg = drawn(page)
    assert style["CRITICAL"] in svg
    assert {style["Lane0"], style["Lane3"]} <= set(re.findall(r"#\w{6}", svg))
    captions = page.evaluate(f"{FRAME}.querySelector('svg g.node').closest('svg').textContent")
    assert "FlatMap" in captions
    assert "progress 2.67 ms" in captions
    rest(page, pictures / "browser-path.png")

    run(page, code("browser/draw_path_events"))
    svg = drawn(page)
    assert style["PROCESSING"] in svg
    rest(page, pictures / "browser-path-events.png")

    run(page, code("browser/draw_dataflow"))
    svg = drawn(page)
    assert all(name in svg for name in ("Filter", "Exchange", "FlatMap"))

    run(page, code("root_cause/held_up_by"))
    page.until(f"{FRAME}.innerText.includes('others_waited_ns')", "table")
    page.picture(pictures / "browser-held-up-by.png")
    for name in ("browser-guide", "browser-waits", "browser-path", "browser-path-events", "browser-held-up-by"):
        assert (pictures / f"{name}.png").stat().st_size > 10_000
    # Browser would fetch a font from elsewhere, and more: its page does not let it.
    assert not [problem for problem in page.problems if problem.startswith("asks for")]
    assert any("//fonts.googleapis.com/" in each for each in page.refused), "nothing would have been noticed"


def code(name: str) -> str:
    """Return a query on one line, as the editor would otherwise indent and close brackets of its own."""
    query = load_query(name)
    lines = browser.for_browser(query, query.code).splitlines()
    return " ".join(line.strip() for line in lines if not line.strip().startswith("//"))


def load_colours() -> dict[str, str]:
    text = browser.pages()["style.grass"].decode()
    return dict(re.findall(r"(?:node|relationship)\.(\w+) \{\s+color: (#\w{6});", text))


def test_a_link_of_the_workbench_brings_query_and_parameters(
    loaded: ServerStatus, chromium: Chromium, skewed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, place = chromium, running_in(loaded.home)
    monkeypatch.setattr(facts, "running_in", lambda _: place)
    library = Library([skewed.info.path])
    with serving(library) as served:
        page.call("Page.navigate", url=served.link)
        page.until("document.getElementById('main')?.dataset.page === 'runs'", "list of runs")
        page.evaluate(f"location.hash = '#/window?store={next(iter(library.stores()))}&epoch=4'")
        link = page.until("document.querySelector('#neo4j')?.href", "link into Browser")
        page.call("Page.navigate", url="about:blank")
    # As on a first visit: Browser asks for the password, and keeps what the link brought.
    page.call("Storage.clearDataForOrigin", origin=loaded.http_uri, storageTypes="all")
    page.call("Page.navigate", url=link)
    editor = "(document.querySelector('[data-testid=activeEditor] .view-lines')?.innerText ?? '')"
    page.until(f"{editor}.includes('Epoch')", "query in the editor")
    shown = page.evaluate(editor).replace("\xa0", " ")
    assert shown.startswith(f'MATCH (window:Epoch {{run: "{skewed.info.run["run_id"]}", epoch: 4, published: true}})')
    assert "$" not in shown
    log_in(page, loaded)
    opened(page)
    run_editor(page)
    page.until(f"{FRAME}.innerText.includes('duration_ns')", "table")
    steps = api.open(skewed.info.path).critical_path(epoch=4).table.num_rows
    page.until(f"{FRAME}.innerText.includes('{steps} records')", "all steps of the path")
