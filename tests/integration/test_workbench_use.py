"""Nothing keeps anybody from using the workbench: by keyboard, with a screen reader, on paper, in either theme."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph.workbench.applications import Applications
from pag_graph.workbench.library import Library
from tests.support.access import obstacles, reached_by_tab
from tests.support.serving import PAGE, serving, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.graph.run import Run
    from tests.support.chromium import Chromium

SPARK_LOG = Path(__file__).parents[1] / "data" / "spark" / "skewed-key.zstd"
PAGES = {
    "runs": "",
    "run": "epoch=4",
    "window": "epoch=4",
    "panels": "name=k-hops&epoch=4",
    "what-if": "epoch=4",
    "compare": "epoch=4",
    "motif": "epoch=4&pattern=late_sender",
}


@pytest.fixture(scope="module")
def library(skewed: Run) -> Library:
    return Library([skewed.info.path, SPARK_LOG])


@pytest.fixture(scope="module")
def page(library: Library, chromium: Chromium) -> Iterator[Chromium]:
    """A browser that has opened the link."""
    with serving(library) as place:
        chromium.call("Page.navigate", url=place.link)
        chromium.until(f"document.getElementById('main') && {PAGE} === 'runs'", "list of runs")
        chromium.problems.clear()
        yield chromium
        assert not chromium.problems
        chromium.call("Page.navigate", url="about:blank")


def dress(page: Chromium, theme: str) -> None:
    """Change to a theme by the button."""
    if page.evaluate("document.documentElement.dataset.theme") != theme:
        page.evaluate("document.querySelector('#theme').click()")
    assert page.evaluate("document.documentElement.dataset.theme") == theme


@pytest.mark.parametrize("name", [*PAGES, "spark"])
def test_nothing_keeps_anybody_from_using_a_page(page: Chromium, library: Library, name: str) -> None:
    page.size(1280, 800)
    try:
        if name == "runs":
            show(page, name)
        elif name == "spark":
            show(page, f"spark?log={next(iter(Applications(library).logs()))}")
        else:
            show(page, f"{name}?store={next(iter(library.stores()))}&{PAGES[name]}")
        page.until("![...document.querySelectorAll('main p')].some((each) => each.innerText.endsWith('…'))", "answers")
        for theme in ("dark", "light"):
            dress(page, theme)
            assert obstacles(page) == [], theme
    finally:
        page.size(1280, 900)


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        ("heading.append(document.createElement('button'))", "a button without a name"),
        ("heading.style.setProperty('color', '#aaaaaa')", "170, 170, 170"),
        ("heading.style.setProperty('width', '2000px')", "wider than the screen"),
        ("heading.setAttribute('aria-live', 'polite')", "live regions"),
        ("heading.animate([{ opacity: 0.5 }, { opacity: 1 }], 60000)", "moving"),
    ],
    ids=["name", "contrast", "width", "chatter", "motion"],
)
def test_an_obstacle_is_noticed(page: Chromium, library: Library, spoiled: str, said: str) -> None:
    """The checks of the other tests can fail."""
    show(page, f"run?store={next(iter(library.stores()))}&epoch=4")
    dress(page, "light")
    page.evaluate(f"(() => {{ const heading = document.querySelector('h1'); {spoiled}; }})()")
    assert said in str(obstacles(page))
    show(page, "runs")


def test_every_control_is_reached_by_tab_and_seen_there(page: Chromium, library: Library) -> None:
    show(page, f"window?store={next(iter(library.stores()))}&epoch=4")
    page.until("document.querySelector('#why .cause') !== null", "cause")
    expected, reached = reached_by_tab(page)
    assert len(expected) > 25
    assert reached == expected
    # What a row does at a click, Enter does in it.
    before = page.evaluate("location.hash")
    page.evaluate("document.querySelector('#largest tr.pick button').focus()")
    page.press("Enter", 13, text="\r")
    page.until(f"location.hash !== {json.dumps(before)} && document.querySelector('#details dl') !== null", "activity")


def test_paper_is_light_and_has_no_controls(page: Chromium, library: Library) -> None:
    show(page, f"window?store={next(iter(library.stores()))}&epoch=4")
    dress(page, "dark")
    page.evaluate(
        "addEventListener('beforeprint', () => { window.printed = [document.documentElement.dataset.theme,"
        " ...document.querySelector('#lanes').getContext('2d').getImageData(2, 2, 1, 1).data]; }, { once: true })"
    )
    assert page.call("Page.printToPDF", printBackground=True)["data"]
    assert page.evaluate("window.printed") == ["light", 255, 255, 255, 255]
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.evaluate("document.querySelector('#theme').click()")
    page.call("Emulation.setEmulatedMedia", media="print")
    try:
        left = "[...document.querySelectorAll('button:not(.row), select, input, nav.ways')]"
        assert page.evaluate(f"{left}.filter((each) => each.getClientRects().length).length") == 0
        assert page.evaluate("document.querySelector('#why').getClientRects().length") == 1
    finally:
        page.call("Emulation.setEmulatedMedia", media="")
