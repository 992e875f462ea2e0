"""Notebooks show runs, windows, paths and reports; the tutorial runs from its first cell to its last."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph import api
from pag_graph.errors import MissingExtraError
from pag_graph.model.html import LONGEST, facts, rows_table
from pag_graph.workbench import notebook

if TYPE_CHECKING:
    from pag_graph.api import Pag

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def pag(runs: Path) -> Pag:
    return api.open(runs / "skewed.pag")


def test_a_notebook_shows_what_is_asked_for(pag: Pag) -> None:
    said = pag._repr_html_()
    for text in ("Run skewed.pag", "timely", "epoch 4 (3.89 ms)"):
        assert text in said
    window = pag.snapshot(epoch=4)
    assert f"epoch 4: 3.89 ms, {window.edges.height:,} edges" in window._repr_html_()
    path = pag.critical_path(epoch=4)
    rows = path.table.num_rows
    assert f"<p>{min(rows, 20)} of {rows:,} rows</p>" in path._repr_html_()
    why = pag.why()
    assert '<p class="cause alarm">Cause: the data is skewed.' in why._repr_html_()
    assert why.sections()[1][0] in why._repr_html_()
    assert pag.what_if(epoch=4, worker=(0,), factor=0.5)._repr_html_().startswith("<p>")


def test_texts_of_a_trace_are_text_there() -> None:
    hostile = "<script>alert(1)</script>\u202e" + "x" * 10_000_000
    said = rows_table([{"<b>": hostile, "n": 1}], ["<b>", "n"]) + facts(hostile, {"name": hostile, "none": None})
    assert "<script" not in said
    assert "<b>" not in said
    assert "\u202e" not in said
    assert "none" not in said
    assert len(said) < 5 * LONGEST


def test_a_view_is_the_page_in_a_widget(pag: Pag, whole_page: str) -> None:
    widget = pag.view(epoch=4, panels=["k-hops"], height=500)
    assert widget.page == whole_page
    assert widget.height == 500
    assert "sandbox" in widget._esm


def test_a_view_says_what_is_missing(pag: Pag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="notebook"):
        pag.view(epoch=4)


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(TUTORIAL.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    shown = [_run("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]
    assert all(value is not None for value in shown)
    assert "the data is skewed" in shown[1]._repr_html_()
    assert isinstance(shown[3], pl.DataFrame)
    assert shown[-1].page.startswith("<!DOCTYPE html>")
    # It is stored as it was before it ran.
    assert not any(cell.get("outputs") for cell in cells)


def _run(code: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last line, as a notebook shows it."""
    *lines, last = ast.parse(code).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(lines, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
