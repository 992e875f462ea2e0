"""`pag export` and `pag convert` of activities written down, from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pag_graph import api, sources
from pag_graph.cli import app as cli

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export-command")
    sources.convert(EXAMPLES / "tensorflow", folder / "trace")
    api.build(folder / "trace", folder / "store", engine="local")
    return folder / "store"


def pag(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["pag", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", ["run.json", "run.json.gz", "run.graphml", "tables", "run.svg"])
def test_the_format_follows_from_the_name(
    store: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pag(monkeypatch, "export", store, tmp_path / name) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Wrote {tmp_path / name} (")
    assert ("ui.perfetto.dev" in out) == ("json" in name)
    assert (tmp_path / name).exists()


def test_a_window_and_the_path_only(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pag(monkeypatch, "export", store, tmp_path / "p.json", "--epoch", 1, "--path-only", "--to", "chrome") == 0
    found = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert found["otherData"]["path_only"]
    epochs = {event["args"]["epoch"] for event in found["traceEvents"] if event["ph"] == "X"}
    assert epochs == {1}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["x.docx"], 2, "There is no export to docx"),
        (["x.json", "--to", "networkx"], 2, "Pag.to_networkx()"),
        (["x.json", "--epoch", "1", "--role", "startup"], 2, "Give only one of"),
        (["x.json", "--epoch", "7"], 2, "has no epoch 7"),
        (["there.json"], 6, "exists already"),
    ],
)
def test_misuse_says_what_to_do(
    store: Path,
    tmp_path: Path,
    arguments: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "there.json").write_text("mine", encoding="utf-8")
    assert pag(monkeypatch, "export", store, tmp_path / arguments[0], *arguments[1:]) == code
    assert said in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "there.json").read_text(encoding="utf-8") == "mine"


def test_convert_finds_out_that_these_are_activities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pag(monkeypatch, "convert", EXAMPLES / "heron" / "heron.jsonl", tmp_path / "trace") == 0
    assert "3 workers (activities)" in " ".join(capsys.readouterr().out.split())
    broken = tmp_path / "activities.csv"
    broken.write_text("worker,start,end,activity\nw,0,soon,busy\n", encoding="utf-8")
    assert pag(monkeypatch, "convert", broken, tmp_path / "other") == 3
    assert "activities.csv, line 2: end is 'soon'" in " ".join(capsys.readouterr().err.split())
