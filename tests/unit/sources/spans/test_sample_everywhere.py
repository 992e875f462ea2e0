"""The bundled sample of spans as a graph: all analyses, motifs and exports work on it as on any trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api
from pag_graph.analyses import ANALYSES
from pag_graph.cli.demo import SAMPLES
from pag_graph.errors import UnsupportedPlanError

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = {"profile-rounds", "sample", "invariants"}
"""Analyses of all rounds, which take no window."""
MORE: dict[str, dict[str, Any]] = {"what-if": {"operator": [0], "factor": 0.5}}


@pytest.fixture(scope="module")
def pag(tmp_path_factory: pytest.TempPathFactory) -> api.Pag:
    folder = tmp_path_factory.mktemp("sample")
    api.convert(SAMPLES / "spans/traces.json", folder / "trace")
    api.build(folder / "trace", folder / "pag", engine="local")
    return api.open(folder / "pag")


@pytest.mark.parametrize("name", [analysis.name for analysis in ANALYSES])
def test_every_analysis_answers(pag: api.Pag, name: str) -> None:
    method = getattr(pag, name.replace("-", "_"))
    window = {} if name in ROUNDS else {"epoch": 4}
    if name == "k-hops-st2":
        with pytest.raises(UnsupportedPlanError):
            method(**window)
        return
    assert method(**window, **MORE.get(name, {})) is not None


@pytest.mark.parametrize("ending", ["svg", "graphml", "json"])
def test_a_request_can_be_exported(pag: api.Pag, ending: str, tmp_path: Path) -> None:
    exported = pag.export(str(tmp_path / f"request.{ending}"), epoch=4)
    assert exported.rows["edges"] > 50
    assert "service-2" in (tmp_path / f"request.{ending}").read_text()


def test_motifs_find_who_called(pag: api.Pag) -> None:
    calls = pag.motif("(a)-[call]->(b)", where="call.type = 'control_message'", epochs=[4])
    assert calls.table().num_rows > 0
