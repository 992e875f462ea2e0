"""A page in one file, opened from a disk in a real Chromium: lanes, report and panels without a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.workbench.page import page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pag_graph.graph.run import Run
    from tests.support.chromium import Chromium

PAGE = "document.getElementById('main')?.dataset.page"
DRAWN = "Number(document.querySelector('#lanes')?.dataset.drawn ?? 0)"


@pytest.fixture(scope="module")
def file(skewed: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(page(api.open(skewed.info.path), [4, 6], ["k-hops", "profile-rounds"]), encoding="utf-8")
    return file


@pytest.fixture
def opened(file: Path, chromium: Chromium) -> Iterator[Chromium]:
    """A browser that shows the file."""
    chromium.problems.clear()
    chromium.call("Page.navigate", url=file.as_uri())
    chromium.until(f"{PAGE} === 'window' && {DRAWN} > 0", "drawn lanes")
    yield chromium
    chromium.call("Page.navigate", url="about:blank")


def show(opened: Chromium, address: str) -> None:
    """Go to another page of the file, and wait until it is drawn."""
    place = json.dumps(f"#/{address}")
    there = f"document.getElementById('main').dataset.page = ''; location.hash = {place};"
    opened.evaluate(f"if (location.hash !== {place}) {{ {there} }}")
    opened.until(f"{PAGE} === {json.dumps(address.partition('?')[0])}", f"page {address}")


def test_a_file_is_the_workbench_of_its_windows(opened: Chromium, skewed: Run) -> None:
    # It begins with the lanes of its first epoch, and says why.
    show(opened, "window?store=run&epoch=4")
    opened.until("document.querySelector('#why .cause')?.innerText.includes('the data is skewed')", "cause")
    before, drawn = opened.evaluate("document.querySelector('#status').innerText"), opened.evaluate(DRAWN)
    opened.evaluate("document.querySelector('#lanes').focus()")
    for _ in range(4):
        opened.press("+", 187)
    opened.until(f"{DRAWN} > {drawn} && document.querySelector('#status').innerText !== {json.dumps(before)}", "zoom")
    assert "view_from" in opened.evaluate("location.hash")
    # What can be clicked there says the same as a server would.
    opened.evaluate("document.querySelector('#largest tr.pick').click()")
    opened.until("document.querySelector('#details h2') !== null", "activity")
    assert "Within 5 hops" in opened.evaluate("document.querySelector('#details').innerText")
    assert [link["id"] for link in links(opened)] == ["open-run", "open-window", "open-panels"]

    show(opened, "panels?store=run&epoch=6&name=k-hops")
    opened.until("document.querySelector('#answer figure svg') !== null", "picture")
    table = api.open(skewed.info.path).analyse("k-hops", epoch=6)
    shown = opened.evaluate("[...document.querySelectorAll('[data-ns]')].map((cell) => Number(cell.dataset.ns))")
    columns = opened.evaluate("[...document.querySelectorAll('th')].map((cell) => cell.innerText)")
    assert shown == [row[name] for row in table.to_pylist() for name in columns if name.endswith("_ns")]
    saved = opened.evaluate("document.querySelector('#csv').href")
    assert saved.startswith("blob:")

    # Another epoch has its place among the epochs, and nothing else.
    show(opened, "run?store=run&epoch=7")
    opened.until("document.querySelector('#why .error')?.innerText.includes('This file does not hold that')", "limit")
    show(opened, "window?store=run&epoch=6")
    opened.until(f"{DRAWN} > 0 && document.querySelector('h1').innerText.includes('epoch 6')", "the other epoch")
    assert not opened.problems


def links(opened: Chromium) -> list[dict[str, str]]:
    found = opened.evaluate("JSON.stringify([...document.querySelectorAll('nav.ways a')].map(({ id }) => ({ id })))")
    return list(json.loads(found))


def test_its_address_is_a_link_from_the_beginning(opened: Chromium) -> None:
    opened.evaluate("location.hash = ''")
    opened.until("location.hash.startsWith('#/window?store=run&epoch=4')", "address")
    opened.until(f"{PAGE} === 'window' && {DRAWN} > 0", "drawn lanes")
    assert not opened.problems


def test_a_widget_is_the_page_in_a_frame_of_its_own(chromium: Chromium, skewed: Run, tmp_path: Path) -> None:
    """What a notebook does with the module of a widget: it imports it and calls ``render``."""
    blank = tmp_path / "notebook.html"
    blank.write_text("<!DOCTYPE html><title>notebook</title><body></body>", encoding="utf-8")
    chromium.problems.clear()
    chromium.call("Page.navigate", url=blank.as_uri())
    chromium.until("document.title === 'notebook'", "notebook")
    widget = api.open(skewed.info.path).view(epoch=4, panels=["k-hops"], height=600)
    code, facts = json.dumps(str(widget._esm)), json.dumps({"page": widget.page, "height": widget.height})
    chromium.evaluate(
        f"import(URL.createObjectURL(new Blob([{code}], {{ type: 'text/javascript' }}))).then((module) => {{"
        f" const facts = {facts}; const model = {{ get: (name) => facts[name] }};"
        " module.default.render({ model, el: document.body }); })"
    )
    with chromium.frame():
        chromium.until(f"{PAGE} === 'window' && {DRAWN} > 0", "drawn lanes")
        chromium.evaluate("document.querySelector('#largest tr.pick').click()")
        chromium.until("document.querySelector('#details h2') !== null", "activity")
        # It cannot reach the notebook.
        assert (
            chromium.evaluate("(() => { try { return parent.document.title } catch { return 'refused' } })()")
            == "refused"
        )
    assert chromium.evaluate("document.querySelector('iframe').style.height") == "600px"
    assert not chromium.problems


def test_a_file_runs_and_loads_nothing_else(opened: Chromium) -> None:
    opened.evaluate(
        "(() => { window.ran = 0; const script = document.createElement('script');"
        " script.textContent = 'window.ran = 1'; document.body.append(script);"
        " document.body.insertAdjacentHTML('beforeend', '<p onclick=\"window.ran = 2\">x</p>');"
        " document.body.lastElementChild.click(); })()"
    )
    assert opened.evaluate("window.ran") == 0
    assert opened.evaluate("fetch('http://127.0.0.1:9/').then(() => 'loaded', () => 'refused')") == "refused"
    assert all("Content Security Policy" in problem for problem in opened.problems)
    opened.problems.clear()
