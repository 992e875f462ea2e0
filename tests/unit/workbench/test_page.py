"""A page in one file holds what the workbench answers, in one script of the same modules, and is never too large."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api, samples
from pag_graph.errors import InvalidParameterError
from pag_graph.model.ids import POSITION_BITS
from pag_graph.testing.traces import draw
from pag_graph.workbench.app import make_app
from pag_graph.workbench.bundle import EXCHANGED, script
from pag_graph.workbench.page import page
from tests.support.asgi import get

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.api import Pag
    from pag_graph.workbench.library import Library


@pytest.fixture(scope="module")
def pag(runs: Path) -> Pag:
    return api.open(runs / "skewed.pag")


def held_in(text: str) -> dict[str, Any]:
    """Return the answers in a page."""
    (packed,) = re.findall(r'<script type="application/gzip" id="answers">([^<]*)</script>', text)
    return dict(json.loads(gzip.decompress(base64.b64decode(packed))))


def test_every_module_of_the_page_is_in_its_script() -> None:
    served = {file.name for file in resources.files("pag_graph.workbench").joinpath("static").iterdir()}
    modules = {name for name in served if name.endswith(".js")} - {*EXCHANGED.values(), "widget.js"}
    assert set(re.findall(r'^"([\w-]+\.js)": \(\) => \{$', script(), re.MULTILINE)) == modules
    assert "</script" not in script()


def test_its_answers_are_those_of_the_server(pag: Pag, library: Library, store: str) -> None:
    held = held_in(page(pag, [4, 6], ["k-hops", "profile-rounds"]))["answers"]
    app = make_app(library)

    def served(place: str) -> Any:
        answer = get(app, f"/api/run/{store}{place}")
        assert answer.status == 200, answer.body
        return answer.body.decode()

    for place in ("/why?epoch=6", "/analysis/k-hops.json?epoch=4", "/analysis/profile-rounds.json"):
        key = f"/api/run/run{place}" + ("" if "?" in place else "?")
        assert held[key] == json.loads(served(place))
    assert held["/api/run/run/analysis/k-hops.csv?epoch=6"] == served("/analysis/k-hops.csv?epoch=6")
    clicks = [key for key in held if "/activity?" in key]
    assert len(clicks) > 100
    assert held[clicks[0]] == json.loads(served(clicks[0].removeprefix("/api/run/run")))


def test_lanes_are_those_of_the_server_at_several_widths(
    pag: Pag, library: Library, store: str, whole_page: str
) -> None:
    (window,) = held_in(whole_page)["lanes"]
    at = f"from={window['from']}&to={window['to']}"
    drawn = json.loads(get(make_app(library), f"/api/run/{store}/lanes?{at}&pixels=2000").body)
    assert window["levels"][0]["boxes"] == drawn["boxes"]
    assert window["levels"][0]["messages"] == drawn["messages"]
    # The finest level shows every activity by itself.
    assert window["levels"][-1]["single"]
    boxes, span = window["levels"][-1]["boxes"], pag.run.window(epoch=4)
    ends = {
        (pag.run.workers[place], begin, end)
        for place, begin, end in zip(boxes["worker"], boxes["begin"], boxes["end"], strict=True)
    }
    cut = {
        (row["dst"] >> POSITION_BITS, max(row["start_ns"], span.start_ns), min(row["end_ns"], span.end_ns))
        for row in pag.snapshot(epoch=4).local.iter_rows(named=True)
    }
    assert ends == {(worker, begin, end) for worker, begin, end in cut if begin < end}


def test_a_page_has_the_size_that_it_may_have(pag: Pag, whole_page: str) -> None:
    small = page(pag, [4], ["k-hops"], most_bytes=len(whole_page) - 15_000)
    assert len(small) <= len(whole_page) - 15_000
    clicks, fewer = (sum("/activity?" in key for key in held_in(text)["answers"]) for text in (whole_page, small))
    assert fewer < clicks
    with pytest.raises(InvalidParameterError, match=r"more than the file may have"):
        page(pag, [4], most_bytes=80_000)


def test_it_may_load_nothing_and_run_one_script(whole_page: str) -> None:
    text = whole_page
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for word in ("unsafe", "http", "*", "data: 's"):
        assert word not in policy
    assert re.findall(r"<script[^>]*>", text) == [
        '<script type="application/gzip" id="answers">',
        '<script type="module">',
    ]
    assert not re.findall(r"\b(?:src|href)=\"(?!#)", text.partition("<script")[0])


@pytest.mark.parametrize(
    ("epochs", "panels", "said"),
    [
        ([99], [], "99"),
        (range(60), [], "60 epochs"),
        ([], ["diff"], "compares two windows"),
        ([], ["nothing"], "nothing"),
    ],
)
def test_what_a_page_cannot_show_is_said(pag: Pag, epochs: list[int], panels: list[str], said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        page(pag, epochs, panels)


def test_the_command_writes_it(runs: Path, tmp_path: Path, run_pag: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run_pag("page", runs / "skewed.pag", "-o", tmp_path / "slowest.html", "-e", 4, "--panel", "k-hops")
    assert code == 0
    written = (tmp_path / "slowest.html").read_text(encoding="utf-8")
    assert f"slowest.html ({len(written.encode()) / 1e6:.1f} MB)" in out.replace("\n", "")
    assert held_in(written)["home"]["given"]["epoch"] == "4"
    code, _, said = run_pag("page", runs / "skewed.pag", "-o", tmp_path / "slowest.pdf")
    assert code == 2
    assert "HTML would be written" in said.replace("\n", " ")


def test_a_run_without_common_clocks_has_no_page(tmp_path: Path, run_pag: Callable[..., tuple[int, str, str]]) -> None:
    api.build(samples.path("skewed"), tmp_path / "st2.pag", rules="st2", engine="local")
    code, _, said = run_pag("page", tmp_path / "st2.pag", "-o", tmp_path / "page.html")
    assert code != 0
    assert "aligned" in said


def test_names_of_a_trace_stay_text(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>\u202e'\"; rm -rf `script`</script><script>alert(1)</script>"
    drawn = draw("0 start 1 | 4 send 3>1 *2 | 5 stop 1 | 9 end", "5 recv 3<0 *2 | 9 end")
    trace = replace(drawn, operators=((1, hostile),), channels=((3, hostile),)).write(tmp_path / "trace")
    store = tmp_path / hostile.replace("/", "")
    api.build(trace, store, engine="local")
    text = page(api.open(store), [0], ["profile"])
    # What is packed is read as JSON, and shown as text as on the served pages.
    assert hostile in json.dumps(held_in(text), ensure_ascii=False).replace('\\"', '"')
    shown = re.sub(r">[A-Za-z0-9+/=]{200,}<", "><", text)
    assert "<img" not in shown.replace(script(), "")
    assert "&lt;img" in shown
    assert shown.count("<script") == shown.count("</script>")
