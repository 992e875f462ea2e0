"""The library of Cypher queries: found, read, complete, and closed to names from outside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pag_graph import cypher, cypher_page
from pag_graph.cypher import cypher_library, list_queries, load_query
from pag_graph.errors import InvalidParameterError, PagGraphError


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def test_the_repository_has_a_library() -> None:
    assert (cypher_library() / "analyses" / "critical_path.cypher").is_file()
    folders = {
        "analyses",
        "browser",
        "epochs",
        "load",
        "patterns",
        "provenance",
        "root_cause",
        "runs",
        "schema",
        "segments",
    }
    assert {name.split("/")[0] for name in list_queries()} == folders


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
    assert all(each.meaning for each in query.params.values())
    used = set(re.findall(r"\$(\w+)", without_comments(query.text)))
    assert used == set(query.params)
    assert all(not without_comments(part).strip().endswith(";") for part in query.statements)


PEOPLE = [query.name for query in cypher.queries_for_people()]


@pytest.mark.parametrize("name", PEOPLE)
def test_queries_for_people_only_read_and_say_what_they_return(name: str) -> None:
    query = load_query(name)
    code = without_comments(query.text)
    assert not re.search(r"\b(CREATE|MERGE|SET|DELETE|REMOVE|DROP|LOAD|FOREACH)\b", code)
    assert "published: true" in code, "hidden epochs are incomplete"
    assert query.returns
    assert all(each.kind for each in query.params.values()), "people make mistakes: every parameter has a type"
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
    assert {each.name: each.meaning for each in query.params.values()} == {"run": "id of the run", "n": "how many"}
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


HEADER = """\
// purpose: Count.
// param run: id of the run
// param epoch: number of the epoch
// param worker integer: who
// param limit integer = 20: how many rows
// param share number = 0.5: of all
// param by type|worker = type: what to
//   divide by
// param against integer = null: another epoch
// param strictly boolean = false: or not
// returns: rows: n
// example: skewed --worker 3
//   n | name
//   1 |
//   2 | a
//   3 rows
MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
RETURN $worker, $limit, $share, $by, $against, $strictly; // nothing: 'here'
"""


def parsed(package: Path, text: str = HEADER) -> cypher.Query:
    (package / "_cypher" / "epochs").mkdir(parents=True)
    (package / "_cypher" / "epochs" / "q.cypher").write_text(text, encoding="utf-8")
    return load_query("epochs/q")


def test_parameters_have_types_and_defaults(package: Path) -> None:
    params = parsed(package).params
    assert {name: (each.kind, each.required) for name, each in params.items()} == {
        "run": ("string", True),
        "epoch": ("integer", True),
        "worker": ("integer", True),
        "limit": ("integer", False),
        "share": ("number", False),
        "by": ("type|worker", False),
        "against": ("integer", False),
        "strictly": ("boolean", False),
    }
    defaults = {name: each.default for name, each in params.items() if not each.required}
    assert defaults == {"limit": 20, "share": 0.5, "by": "type", "against": None, "strictly": False}
    assert params["by"].choices == ("type", "worker")
    assert params["by"].meaning == "what to divide by"


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("limit", "7", 7),
        ("limit", 7, 7),
        ("limit", "-7", -7),
        ("share", "1", 1.0),
        ("share", 1, 1.0),
        ("share", 0.25, 0.25),
        ("by", "worker", "worker"),
        ("against", None, None),
        ("against", "4", 4),
        ("strictly", "true", True),
        ("strictly", False, False),
        ("run", "'}) DELETE n //", "'}) DELETE n //"),
    ],
)
def test_values_get_the_type_that_is_declared(package: Path, name: str, given: object, value: object) -> None:
    converted = parsed(package).params[name].convert(given)
    assert converted == value
    assert type(converted) is type(value)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("limit", "seven"),
        ("limit", "1.5"),
        ("limit", 1.5),
        ("limit", True),
        ("limit", None),
        ("limit", [1]),
        ("share", "nan"),
        ("share", "much"),
        ("by", "operator"),
        ("by", 1),
        ("strictly", "yes"),
        ("strictly", 1),
        ("run", 5),
        ("epoch", None),
    ],
)
def test_values_of_other_types_are_refused(package: Path, name: str, given: object) -> None:
    with pytest.raises(InvalidParameterError, match=f"The parameter {name} is .* must be"):
        parsed(package).params[name].convert(given)


def test_an_unknown_type_is_refused(package: Path) -> None:
    with pytest.raises(PagGraphError, match="has the type whole; there are integer, number"):
        parsed(package, "// purpose: X.\n// param n whole: how many\nRETURN $n;\n")


def test_an_example_is_a_call_and_a_table(package: Path) -> None:
    example = parsed(package).example
    assert example is not None
    assert (example.sample, dict(example.parameters)) == ("skewed", {"worker": "3"})
    assert (example.columns, example.rows, example.count) == (("n", "name"), (("1", ""), ("2", "a")), 3)


def test_the_detail_that_a_query_needs_is_read_from_its_text(package: Path) -> None:
    assert parsed(package).details == ("full",)
    assert load_query("epochs/q").code.endswith("$strictly;\n")


def test_queries_are_found_by_their_last_part() -> None:
    assert cypher.find_query("held_up_by").name == "root_cause/held_up_by"
    assert cypher.find_query("held-up-by").name == "root_cause/held_up_by"
    assert cypher.find_query("root_cause/held_up_by").name == "root_cause/held_up_by"
    with pytest.raises(InvalidParameterError, match="did you mean root_cause/held_up_by"):
        cypher.find_query("held_up")
    with pytest.raises(InvalidParameterError, match=r"There is no query 'load/run'\."):
        cypher.find_query("load/run")


def test_last_parts_are_unique() -> None:
    short = [name.rpartition("/")[2] for name in PEOPLE]
    assert len(set(short)) == len(short) >= 30


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (12, "12"),
        (0.5, "0.5"),
        (1 / 3, "0.3333"),
        ("a|b\nc", "a¦b c"),
        ([1, None], "[1, null]"),
    ],
)
def test_cells_are_short_and_fit_a_table(value: object, text: str) -> None:
    assert cypher.cell(value) == text


def test_the_reference_is_current() -> None:
    written = Path(__file__).parents[2] / "docs" / "cypher.md"
    assert written.read_text(encoding="utf-8") == cypher_page.page(), "run: python -m pag_graph.cypher_page > docs/cypher.md"
