"""The library of Cypher queries: found, read, complete, and closed to names from outside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pag_graph import cypher
from pag_graph.cypher import cypher_library, list_queries, load_query
from pag_graph.errors import InvalidParameterError, PagGraphError

if TYPE_CHECKING:
    from pathlib import Path


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def test_the_repository_has_a_library() -> None:
    assert (cypher_library() / "analyses" / "critical_path.cypher").is_file()
    assert {name.split("/")[0] for name in list_queries()} == {"analyses", "load", "patterns", "schema"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "site-packages" / "pag_graph"
    package.mkdir(parents=True)
    monkeypatch.setattr(cypher, "_PACKAGE", package)
    return package


def test_an_installed_package_brings_its_own_library(package: Path) -> None:
    for folder, purpose in ((package / "_cypher", "mine"), (package.parent / "cypher", "somebody else's")):
        (folder / "a").mkdir(parents=True)
        (folder / "a" / "b.cypher").write_text(f"// purpose: {purpose}\nRETURN 1;\n", encoding="utf-8")
    assert cypher_library() == package / "_cypher"
    assert load_query("a/b").purpose == "mine"


def test_a_package_without_library_says_so(package: Path) -> None:
    with pytest.raises(PagGraphError, match=re.escape(f"{package / '_cypher'} does not exist")):
        cypher_library()


@pytest.mark.parametrize("name", list_queries())
def test_headers_are_complete_and_true(name: str) -> None:
    query = load_query(name)
    assert query.name == name
    assert query.purpose.endswith("."), "the purpose is a sentence"
    assert all(query.params.values())
    used = set(re.findall(r"\$(\w+)", without_comments(query.text)))
    assert used == set(query.params)
    assert all(not without_comments(part).strip().endswith(";") for part in query.statements)


@pytest.mark.parametrize("name", [name for name in list_queries() if name.startswith(("analyses/", "patterns/"))])
def test_queries_for_people_only_read_and_say_what_they_return(name: str) -> None:
    query = load_query(name)
    code = without_comments(query.text)
    assert not re.search(r"\b(CREATE|MERGE|SET|DELETE|REMOVE|DROP|LOAD|FOREACH)\b", code)
    assert "published: true" in code, "hidden epochs are incomplete"
    assert query.returns
    returned = re.split(r"\bRETURN\b", code)[-1].split("ORDER BY")[0]
    for column in re.findall(r"\bAS (\w+)", returned):
        assert re.search(rf"\b{column}\b", query.returns), f"{column} is not described"


@pytest.mark.parametrize("name", [name for name in list_queries() if name.startswith("load/")])
def test_no_loading_query_takes_whole_maps(name: str) -> None:
    assert not re.search(r"SET \w+ \+?= \$|SET \w+ \+?= row\b", load_query(name).text)


def test_a_header_may_go_on_over_lines(package: Path) -> None:
    text = (
        "// purpose: Find it,\n//   wherever it is.\n// param run: id of\n//   the run\n// param n: how many\n"
        "// returns: rows,\n//   sorted\n//\n// A remark: not of the header.\n//   Nor is this.\nRETURN $run, $n;\n"
    )
    (package / "_cypher").mkdir()
    (package / "_cypher" / "q.cypher").write_text(text, encoding="utf-8")
    query = load_query("q")
    assert query.purpose == "Find it, wherever it is."
    assert dict(query.params) == {"run": "id of the run", "n": "how many"}
    assert query.returns == "rows, sorted"
    assert query.text == text


def test_a_file_may_hold_several_statements(package: Path) -> None:
    (package / "_cypher").mkdir()
    text = "// purpose: Two.\nCREATE (a {x: 'a;b'});\n\n// Then\nCREATE (b);\n"
    (package / "_cypher" / "q.cypher").write_text(text, encoding="utf-8")
    first, second = load_query("q").statements
    assert without_comments(first).strip() == "CREATE (a {x: 'a;b'})"
    assert without_comments(second).strip() == "CREATE (b)"


@pytest.mark.parametrize(
    "name",
    [
        "analyses/critical_paths",
        "",
        "analyses",
        "analyses/critical_path.cypher",
        "analyses/../analyses/critical_path",
        "/etc/passwd",
        "../pyproject",
        "..\\pyproject",
        "analyses/critical_path\0",
    ],
)
def test_other_names_are_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(
        InvalidParameterError, match=r"There is no query .*; there are .*analyses/critical_path"
    ) as info:
        load_query(name)
    assert info.value.context["known"] == list(list_queries())


def test_what_a_query_says_cannot_be_changed() -> None:
    query = load_query("analyses/critical_path")
    with pytest.raises(AttributeError):
        query.text = "MATCH (n) DETACH DELETE n"  # type: ignore[misc]
    with pytest.raises(TypeError):
        query.params["more"] = "x"  # type: ignore[index]
