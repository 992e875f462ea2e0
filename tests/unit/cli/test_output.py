"""What comes from a trace is shown as it is: no markup, no escape sequences, no end of a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.cli.output import print_markdown, print_rows

if TYPE_CHECKING:
    import pytest

ROWS = [{"name": "[/red]a|b\x1b[31m<i>", "ns": 1_000}]


def test_names_are_no_markup_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, ["name", "ns"], "rows")
    out = capsys.readouterr().out
    assert "[/red]a|b?[31m<i>" in out
    assert "1,000" in out
    assert "\x1b" not in out


def test_names_are_no_markdown_in_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    print_markdown(ROWS, ["name", "ns"], "rows")
    assert capsys.readouterr().out.splitlines()[-1] == "| \\[/red\\]a\\|b?\\[31m\\<i\\> | 1,000 |"
