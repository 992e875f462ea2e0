"""``--each``: every epoch in one pass, in every format."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.cli.demo import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("each") / "skewed.pag"
    api.build(SAMPLES / "skewed", path, engine="local")
    return path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["k-hops", "waits", "why"])
def test_each_epoch_says_what_it_says_alone(run_pag: Command, store: Path, name: str) -> None:
    opened = api.open(store)
    alone = [
        {**row, "epoch": window.epoch}
        for window in opened.run.windows()
        for row in _rows(opened.analyse(name, epoch=window.epoch))
    ]
    _, text, _ = run_pag(name, store, "--each", "--format", "json")
    answer = json.loads(text)
    rows = next(value for key, value in answer.items() if isinstance(value, list) and key != "words")
    assert rows == alone
    _, text, _ = run_pag(name, store, "--each", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(text)))) == len(alone)


def _rows(result: object) -> list[dict[str, object]]:
    return getattr(result, "table", result).to_pylist()  # type: ignore[no-any-return, attr-defined]


def test_parameters_are_named_beside_the_rows(run_pag: Command, store: Path) -> None:
    code, text, _ = run_pag("k-hops", store, "--each", "-k", "2", "--format", "json")
    answer = json.loads(text)
    assert code == 0
    assert answer["k"] == 2
    assert {row["hop"] for row in answer["hops"]} == {1, 2}


def test_tables_begin_with_the_epoch(run_pag: Command, store: Path) -> None:
    _, text, _ = run_pag("critical-path", store, "--each", "--top", "3")
    assert text.splitlines()[0].startswith("critical-path (3 of ")
    assert text.splitlines()[1].split()[:2] == ["epoch", "step"]
    _, text, _ = run_pag("waits", store, "--each", "--top", "3", "--format", "markdown")
    assert "| epoch | worker |" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("waits", "--each", "--epoch", "3"),
        ("waits", "--each", "--between", "1ms", "2ms"),
        ("waits", "--each", "--every", "1ms"),
        ("waits", "--each", "--format", "html"),
        ("waits", "--each", "--picture", "waits.svg"),
    ],
)
def test_each_stands_alone(run_pag: Command, store: Path, arguments: tuple[str, ...]) -> None:
    code, out, err = run_pag(arguments[0], store, *arguments[1:])
    assert code == 2
    assert not out
    assert "--each" in err


def test_what_looks_at_no_window_has_no_each(run_pag: Command, store: Path) -> None:
    code, _, err = run_pag("invariants", store, "--each")
    assert code == 2
    assert "--each" in err
