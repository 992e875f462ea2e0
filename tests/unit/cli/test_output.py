"""What comes from a trace is shown as it is: no markup, no escape sequences, no end of a cell."""

from __future__ import annotations

import json

import pytest

from pag_graph.cli.output import print_json, print_markdown, print_rows

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


def test_what_json_has_no_number_for_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    """A server's answer may hold such values (`RETURN 0.0 / 0.0`); they made text that is no JSON."""
    numbers = [float("nan"), float("inf"), float("-inf"), 0.5]
    print_json({"rows": [{"ratio": number} for number in numbers], "all": tuple(numbers)})
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert told == {"rows": [{"ratio": number} for number in (None, None, None, 0.5)], "all": [None, None, None, 0.5]}
