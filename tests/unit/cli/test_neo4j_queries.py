"""`pag neo4j queries`, `query` and `browser`, as far as no server is needed."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from pag_graph.cli.neo4j_reach import at_server, elsewhere, hints_name_server
from pag_graph.cypher import queries_for_people
from pag_graph.errors import PagGraphError
from pag_graph.neo4j_server.home import home_folder, own_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]


def test_queries_are_listed(run_pag: Command) -> None:
    code, text, _ = run_pag("neo4j", "queries")
    assert code == 0
    for query in queries_for_people():
        assert f"  {query.name.rpartition('/')[2]} " in text
    code, text, _ = run_pag("neo4j", "queries", "--format", "json")
    rows = json.loads(text)
    assert [row["query"] for row in rows] == [query.name for query in queries_for_people()]
    code, text, _ = run_pag("neo4j", "queries", "--format", "csv")
    assert text.splitlines()[0] == "query,takes,answers"
    assert len(text.splitlines()) == len(rows) + 1


def test_a_query_is_told_with_its_example(run_pag: Command) -> None:
    code, text, _ = run_pag("neo4j", "queries", "waited_for")
    assert code == 0
    assert "pag neo4j query root_cause/waited_for [--run STRING] --worker INTEGER --at_ns INTEGER" in text
    assert "of the bundled trace skewed --worker 2" in text
    facts = json.loads(run_pag("neo4j", "queries", "path_profile", "-f", "json")[1])
    by = next(each for each in facts["parameters"] if each["name"] == "by")
    assert (by["type"], by["default"], by["required"]) == ("type|operator|worker|pair", "operator", False)
    assert facts["text"].startswith("// purpose:")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["held_up"], "did you mean root_cause/held_up_by"),
        (["nothing"], "There is no query 'nothing'."),
        (["load/run"], "There is no query 'load/run'."),
        (
            ["waited_for", "--worker", "two", "--at_ns", "1"],
            "The parameter worker is 'two', and must be of type integer",
        ),
        (["waited_for", "--worker"], "The parameter worker of root_cause/waited_for has no value"),
        (["waited_for", "2"], "'2' belongs to no parameter of root_cause/waited_for"),
        (["held_up_by", "--wroker", "2"], "has no parameter wroker"),
        (["held_up_by", "-p", "epoch"], "The parameter epoch of root_cause/held_up_by has no value"),
        (["path_profile", "--by", "wrker"], "must be type or operator or worker or pair"),
        (["held_up_by", "--explain", "--profile"], "Give only one of --explain and --profile"),
    ],
)
def test_mistakes_are_told_before_a_server_is_asked(run_pag: Command, words: list[str], said: str) -> None:
    code, _, error = run_pag("neo4j", "query", *words)
    assert code == 2
    assert said in " ".join(error.split())


def test_no_server_is_said_in_plain_words(run_pag: Command, tmp_path: Path) -> None:
    for words in (["query", "held_up_by"], ["browser"]):
        code, _, error = run_pag("neo4j", *words, "--home", tmp_path / "none")
        assert code == 6
        assert f"`pag neo4j start --home {tmp_path / 'none'}`" in " ".join(error.split())


def test_hints_name_the_server_that_was_named(tmp_path: Path) -> None:
    """Or whoever follows one starts, empties or loads another server."""
    home = tmp_path / "two words"
    assert own_command("stop", home_folder()) == "pag neo4j stop"
    assert own_command("stop", home) == f"pag neo4j stop --home '{home}'"
    line = "Looked at epoch 4; left out epoch 5 (not loaded). Load the rest: `pag neo4j load /run.pag --epoch 5`."
    assert at_server(line, None, None) == line
    assert at_server(line, home, None).endswith(f"`pag neo4j load /run.pag --epoch 5 --home '{home}'`.")
    with pytest.raises(PagGraphError) as caught, hints_name_server(None, ELSEWHERE):
        raise PagGraphError(line, line)
    assert str(caught.value.hint).endswith(f"`pag neo4j load /run.pag --epoch 5 --uri {ELSEWHERE}`.")


@pytest.mark.parametrize("words", [["status"], ["copy", "target"], ["browser"]])
def test_a_home_of_ones_own_is_in_what_is_said_to_do_next(
    run_pag: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, said, error = run_pag("neo4j", *words, "--home", tmp_path / "none")
    assert f"pag neo4j start --home {tmp_path / 'none'}" in " ".join((said + error).split())


def test_saved_queries_are_written(run_pag: Command, tmp_path: Path) -> None:
    code, text, _ = run_pag("neo4j", "browser", "--saved", tmp_path / "queries.zip")
    assert code == 0
    assert "Favorites" in text
    with zipfile.ZipFile(tmp_path / "queries.zip") as archive:
        assert len(archive.namelist()) == len(queries_for_people())


ELSEWHERE = "bolt://elsewhere.example:7687"


def test_what_the_command_line_names_wins_over_the_environment(
    run_pag: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEO4J_URI", ELSEWHERE)
    assert elsewhere(None, None) == ELSEWHERE
    assert elsewhere(tmp_path, None) is None
    assert elsewhere(None, "bolt://b") == "bolt://b"
    # A folder that was named is looked into, whatever the environment says.
    for words in (["query", "held_up_by"], ["remove", "someone", "--yes"]):
        code, _, error = run_pag("neo4j", *words, "--home", tmp_path / "none")
        assert code == 6
        assert f"No Neo4j server runs in {tmp_path / 'none'}" in " ".join(error.split())
    code, _, error = run_pag("neo4j", "remove", "someone", "--yes", "--home", tmp_path, "--uri", ELSEWHERE)
    assert code == 2
    assert "name two servers" in " ".join(error.split())


def test_removing_says_from_where_and_asks(run_pag: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEO4J_URI", ELSEWHERE)
    monkeypatch.setenv("NEO4J_PASSWORD", "hush")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, said, error = run_pag("neo4j", "remove", "someone")
    assert code == 1
    assert f"Remove run someone from the Neo4j server at {ELSEWHERE}?" in said + error
