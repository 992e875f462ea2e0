"""Only the command that is called is made, and looks as if all were there."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from pag_graph.cli.app import app, only_called

# What Typer makes of several commands is a group of Click, which has them.
ALL = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ALL)
def test_help_is_the_same(name: str) -> None:
    words = [name, "--help"]
    alone, among_all = (CliRunner().invoke(one, words, prog_name="pag") for one in (only_called(app, [name]), app))
    assert alone.exit_code == among_all.exit_code == 0
    assert alone.output == among_all.output


@pytest.mark.parametrize("name", ["vacuum", "neo4j", "why"])
def test_others_are_not_made(name: str) -> None:
    called = only_called(app, [name])
    assert len(called.registered_commands) + len(called.registered_groups) == (name != "why")


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["no-such-command"]])
def test_all_are_there_where_none_is_called(words: list[str]) -> None:
    assert only_called(app, words) is app
