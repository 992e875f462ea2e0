"""What is printed for programs is that format, whatever the command."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api
from pag_graph.analyses import all_entries
from pag_graph.samples import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable

    Pag = Callable[..., tuple[int, str, str]]

CLI = Path(__file__).parents[3] / "docs" / "cli.md"
TRACE = FOLDER / "skewed"
MEASURED = {"achieved_per_s", "duration_s", "late_p50_ns", "late_p99_ns", "late_max_ns", "valid", "commits", "store"}
"""What is not the same each time."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("formats") / "skewed.pag"
    api.build(TRACE, place, engine="local")
    return place


@pytest.mark.parametrize(
    "words",
    [
        ["doctor"],
        ["build", TRACE, "{new}", "--engine", "local"],
        ["follow", TRACE, "{new}"],
        ["replay", TRACE, "--to", "{new}", "--speed", "max"],
        ["neo4j", "status", "--home", "{new}"],
        ["motif", "late_sender", "{store}", "--explain"],
        ["info", "{store}"],
    ],
    ids=lambda words: " ".join(map(str, words[:2])) if words[0] == "neo4j" else words[0],
)
def test_csv_has_the_values_of_json(words: list[Any], store: Path, tmp_path: Path, run_pag: Pag) -> None:
    """Some commands printed words for people where CSV was asked for."""

    def told(form: str) -> str:
        named = [str(word).format(store=store, new=tmp_path / form) for word in words]
        code, out, said = run_pag(*named, "--format", form)
        assert code == 0, said
        return out

    facts = json.loads(told("json"))
    rows = list(csv.DictReader(io.StringIO(told("csv"))))
    expected = facts.get("epochs", facts.get("plan", [facts])) if isinstance(facts, dict) else facts
    assert len(rows) == len(expected)
    for row, fact in zip(rows, expected, strict=True):
        known = fact if isinstance(fact, dict) else {"plan": fact}
        assert row.keys() == known.keys()
        for name, value in known.items():
            if name not in MEASURED and str(tmp_path) not in str(value):
                assert row[name].removeprefix("'") == ("" if value is None else str(value)), name


def test_the_documentation_says_under_which_names_rows_are() -> None:
    """It lacked three of them."""
    (sentence,) = re.findall(r"The rows are under `rows`, except for (.*?)\.\s", CLI.read_text(), re.DOTALL)
    names = {entry.name: entry.load().rows for entry in all_entries()}
    assert dict(re.findall(r"`([\w-]+)`\s\(`(\w+)`\)", sentence)) == {
        name: rows for name, rows in names.items() if rows != "rows"
    }
