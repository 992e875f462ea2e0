"""`pag export` and `pag convert` of activities written down, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph import api, sources

if TYPE_CHECKING:
    from collections.abc import Callable

    Pag = Callable[..., tuple[int, str, str]]

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export-command")
    sources.convert(EXAMPLES / "tensorflow", folder / "trace")
    api.build(folder / "trace", folder / "store", engine="local")
    return folder / "store"


@pytest.mark.parametrize("name", ["run.json", "run.json.gz", "run.graphml", "tables", "run.svg"])
def test_the_format_follows_from_the_name(store: Path, tmp_path: Path, name: str, run_pag: Pag) -> None:
    code, out, _ = run_pag("export", store, tmp_path / name)
    assert code == 0
    assert out.startswith(f"Wrote {tmp_path / name} (")
    assert ("ui.perfetto.dev" in out) == ("json" in name)
    assert (tmp_path / name).exists()


def test_a_window_and_the_path_only(store: Path, tmp_path: Path, run_pag: Pag) -> None:
    assert run_pag("export", store, tmp_path / "p.json", "--epoch", 1, "--path-only", "--to", "chrome")[0] == 0
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
    run_pag: Pag,
) -> None:
    (tmp_path / "there.json").write_text("mine", encoding="utf-8")
    ended, _, err = run_pag("export", store, tmp_path / arguments[0], *arguments[1:])
    assert ended == code
    assert said in " ".join(err.split())
    assert (tmp_path / "there.json").read_text(encoding="utf-8") == "mine"


def test_convert_finds_out_that_these_are_activities(tmp_path: Path, run_pag: Pag) -> None:
    code, out, _ = run_pag("convert", EXAMPLES / "heron" / "heron.jsonl", tmp_path / "trace")
    assert code == 0
    assert "3 workers (activities)" in " ".join(out.split())
    broken = tmp_path / "activities.csv"
    broken.write_text("worker,start,end,activity\nw,0,soon,busy\n", encoding="utf-8")
    code, _, err = run_pag("convert", broken, tmp_path / "other")
    assert code == 3
    assert "activities.csv, line 2: end is 'soon'" in " ".join(err.split())
