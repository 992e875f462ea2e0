"""What Neo4j Browser is given: a guide of real queries, colours for every type, saved queries; served without a net."""

from __future__ import annotations

import io
import re
import urllib.request
import zipfile
from html import escape, unescape
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pytest

from pag_graph.cypher import cypher_library, load_query, queries_for_people
from pag_graph.model.enums import ActivityType
from pag_graph.neo4j_server import browser
from pag_graph.sinks.timeline import COLOURS

if TYPE_CHECKING:
    from pathlib import Path


def boxes() -> list[str]:
    guide = browser.pages()["guide.html"].decode()
    return [unescape(box) for box in re.findall(r'<pre class="[^"]*runnable">(.*?)</pre>', guide, re.DOTALL)]


def test_every_box_of_the_guide_is_a_query_of_the_library() -> None:
    guide = browser.pages()["guide.html"].decode()
    assert "QUERY" not in re.sub(r"<!--.*?-->", "", guide)
    known = {" ".join(browser.for_browser(query, query.code).split()) for query in queries_for_people()}
    commands = [box for box in boxes() if box.startswith(":")]
    asked = [box for box in boxes() if not box.startswith(":")]
    assert len(asked) > 20
    for box in asked:
        code = "\n".join(line for line in box.splitlines() if not line.strip().startswith("//"))
        assert " ".join(re.sub(r"\s+// .*", "", code).split()) in known
    # What the queries of the guide take is set by its commands.
    given = set(re.findall(r"\w+", " ".join(command.partition("=>")[0] for command in commands)))
    assert {name for box in asked for name in re.findall(r"\$(\w+)", box)} <= given


def test_the_first_box_sets_whatever_a_query_leaves_open() -> None:
    """Those of the guide, and the saved ones: Browser refuses a query with a parameter that nobody has set."""
    start = next(box for box in boxes() if box.startswith(":param ["))
    given = set(re.findall(r"\w+", start.partition("=>")[0])) - {"param"}
    with zipfile.ZipFile(io.BytesIO(browser.saved_queries())) as archive:
        saved = {name: archive.read(name).decode() for name in archive.namelist()}
    for name, text in [*saved.items(), *((box, box) for box in boxes() if not box.startswith(":"))]:
        code = "\n".join(line for line in text.splitlines() if not line.startswith("//"))
        assert set(re.findall(r"\$(\w+)", code)) <= given, name


def test_each_query_keeps_its_own_defaults() -> None:
    """The share above which a worker stands out is not that above which an epoch is bound by its input."""
    guide = "\n".join(boxes())
    assert "each.work_ns > 1.5 * work_median" in guide
    assert "path_input_ns > 0.5 * span_ns" in guide
    for query in queries_for_people():
        left = set(re.findall(r"\$(\w+)", browser.for_browser(query, query.code)))
        assert left == {name for name, each in query.params.items() if each.required}, query.name


def test_the_guide_says_what_a_query_needs() -> None:
    guide = browser.pages()["guide.html"].decode()
    for name in re.findall(
        r"QUERY (\w+/\w+)", (cypher_library() / "browser" / "guide.html").read_text(encoding="utf-8")
    ):
        query = load_query(name)
        said = guide[guide.index(escape(query.purpose)) + len(escape(query.purpose)) :].split("</p>")[0]
        assert said == (f" <em>Needs the detail {' or '.join(query.details)}.</em>" if query.details else ""), name


def test_every_type_has_its_colour() -> None:
    style = browser.pages()["style.grass"].decode()
    # Browser takes comments for parts of names.
    assert "/*" not in style
    colours = dict(re.findall(r"relationship\.(\w+) \{\s+color: (#\w{6});", style))
    for kind in ActivityType:
        assert kind.upper() in colours
        if kind in COLOURS:
            assert colours[kind.upper()] == COLOURS[kind]
    for label in (
        "Run",
        "Epoch",
        "Worker",
        "Operator",
        "Event",
        "Segment",
        "Snapshot",
        "CriticalStep",
        "Finding",
        "Job",
    ):
        assert re.search(rf"node\.{label} \{{[^}}]*caption: ", style), label


def test_saved_queries_are_the_library() -> None:
    with zipfile.ZipFile(io.BytesIO(browser.saved_queries())) as archive:
        names = archive.namelist()
        assert names == [f"{query.name}.cypher" for query in queries_for_people()]
        text = archive.read("root_cause/held_up_by.cypher").decode()
    assert text == "// held up by\n" + load_query("root_cause/held_up_by").text
    assert browser.saved_queries() == browser.saved_queries()


def test_pages_are_put_into_a_copy_of_the_jar(tmp_path: Path) -> None:
    jars, home = tmp_path / "jars", tmp_path / "home"
    jars.mkdir()
    (home / "plugins").mkdir(parents=True)
    with zipfile.ZipFile(jars / "neo4j-browser-1.0.jar", "w") as original:
        original.writestr("browser/index.html", "<html><head lang='en'><title>the page</title></head></html>")
        original.writestr("browser/app.js", "code")
    browser.install(home, jars)
    made = home / "plugins" / "pag-browser.jar"
    with zipfile.ZipFile(made) as copy:
        # Each name once: of two, Java and Python may take different ones.
        assert len(copy.namelist()) == len(set(copy.namelist()))
        assert copy.read("browser/app.js") == b"code"
        page = copy.read("browser/index.html").decode()
        for name, content in browser.pages().items():
            assert copy.read(f"browser/pag/{name}") == content
    before = made.stat().st_mtime_ns
    browser.install(home, jars)
    assert made.stat().st_mtime_ns == before, "nothing changed, so nothing is written"
    assert page.startswith("<html><head lang='en'><meta http-equiv=\"Content-Security-Policy\"")
    assert page.endswith("<title>the page</title></head></html>")
    browser.install(home, jars, "db.example")
    with zipfile.ZipFile(made) as copy:
        assert "http://db.example:*" in copy.read("browser/index.html").decode()
    made.write_bytes((jars / "neo4j-browser-1.0.jar").read_bytes())
    browser.install(home, jars)
    with zipfile.ZipFile(made) as copy:
        assert "browser/pag/guide.html" in copy.namelist()
    (jars / "neo4j-browser-1.0.jar").unlink()
    browser.install(home, jars)
    assert not made.exists()


def test_settings_name_the_real_port_and_host() -> None:
    lines = dict(line.split("=", 1) for line in browser.settings(7475).splitlines())
    assert "play http://127.0.0.1:7475/browser/pag/guide.html" in lines["browser.post_connect_cmd"]
    assert "127.0.0.1" in lines["browser.remote_content_hostname_whitelist"].split(",")
    assert "http://[::1]:7475/" in browser.settings(7475, "::1")


def test_pages_can_be_served_for_another_server() -> None:
    with browser.served() as address:
        assert address.startswith("http://127.0.0.1:")
        for name, content in browser.pages().items():
            with urllib.request.urlopen(f"{address}/{name}", timeout=10) as answer:
                assert answer.read() == content
                assert answer.headers["Access-Control-Allow-Origin"] == "*"
        for path in ("", "../pyproject.toml", "%2e%2e/pyproject.toml", "nothing"):
            with pytest.raises(HTTPError) as refused:
                urllib.request.urlopen(f"{address}/{path}", timeout=10)
            assert refused.value.code == 404
            refused.value.close()
