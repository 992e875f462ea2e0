"""No answer relies on an order that Polars does not promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import pag_graph
from pag_graph import api
from pag_graph.analyses import all_entries
from pag_graph.samples import FOLDER
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.detail import Detail
from tests.support.disorder import disorder

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph import Pag

WHOLE = {
    "sample": {"fraction": 0.4, "strata": 2},
    "profile-rounds": {},
    "invariants": {"epoch_max_ns": 1, "message_max_ns": 1},
}
"""Analyses that look at all rounds."""
CHANGED = {"what-if": {"worker": 0, "factor": 0.5}}
LEFT_OUT = {"k-hops-st2"}
"""Of another rule set than the samples."""


@pytest.fixture(scope="module")
def pag(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    folder = tmp_path_factory.mktemp("disorder") / "skewed.pag"
    api.build(FOLDER / "skewed", folder, engine="local")
    return pag_graph.open(folder)


def test_disorder_is_what_it_says() -> None:
    rows = pl.DataFrame({"key": range(50), "half": [number // 2 for number in range(50)]})
    ordered = rows["key"].to_list()
    with disorder():
        assert rows.join(rows, on="key", how="left")["key"].to_list() != ordered
        assert rows.join(rows, on="key", how="left", maintain_order="left")["key"].to_list() == ordered
        assert rows.group_by("key").agg(pl.len())["key"].to_list() != ordered
        assert rows.group_by("key", maintain_order=True).agg(pl.len())["key"].to_list() == ordered
        assert rows.unique("half")["key"].sort().to_list() != rows.unique("half")["key"].sort().to_list()
        assert rows.unique("half", keep="first", maintain_order=True)["key"].to_list() == ordered[::2]
        assert rows.sort("half")["key"].to_list() != ordered
        assert rows.sort("half", maintain_order=True)["key"].to_list() == ordered


def told(pag: Pag, name: str) -> tuple[Any, ...]:
    """Return what an analysis says of a round, or of all."""
    options: dict[str, Any] = WHOLE[name] if name in WHOLE else {"epoch": 3, **CHANGED.get(name, {})}
    answer = getattr(pag, name.replace("-", "_"))(**options)
    if isinstance(answer, pa.Table):
        return (answer.to_pylist(),)
    return answer.table.to_pylist(), answer.headline(), answer.text(), answer.markdown()


@pytest.mark.parametrize("name", [entry.name for entry in all_entries() if entry.name not in LEFT_OUT])
def test_an_analysis_says_the_same_in_disorder(pag: Pag, name: str) -> None:
    expected = told(pag, name)
    with disorder():
        assert told(pag, name) == expected


@pytest.mark.parametrize("detail", [Detail.CRITICAL, Detail.FULL])
def test_what_is_loaded_into_neo4j_is_the_same_in_disorder(pag: Pag, detail: Detail) -> None:
    windows = pag.run.windows()[2:5]
    expected = Reader(pag.run).read(windows, detail)
    with disorder():
        content = Reader(pag.run).read(windows, detail)
    for table in ("events", "segments", "steps", "epochs", "snapshots", "then", "released", "activities"):
        assert getattr(content, table).equals(getattr(expected, table)), table


@pytest.mark.parametrize("name", ["run.json", "run.graphml"])
def test_an_export_is_the_same_in_disorder(pag: Pag, name: str, tmp_path: Path) -> None:
    pag.export(tmp_path / name, epoch=3)
    with disorder():
        pag.export(tmp_path / f"disordered-{name}", epoch=3)
    assert (tmp_path / f"disordered-{name}").read_bytes() == (tmp_path / name).read_bytes()


def test_a_picture_is_the_same_in_disorder(pag: Pag, tmp_path: Path) -> None:
    pag.draw(tmp_path / "epoch.svg", epoch=3)
    with disorder():
        pag.draw(tmp_path / "disordered.svg", epoch=3)
    assert (tmp_path / "disordered.svg").read_bytes() == (tmp_path / "epoch.svg").read_bytes()
