"""A sample of spans and one of PyTorch traces as graphs: every surface works on them as on any trace.

Neo4j and Spark: `tests/integration/test_foreign_samples.py`.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest

from pag_graph import api
from pag_graph.analyses import ANALYSES
from pag_graph.errors import UnsupportedPlanError
from pag_graph.workbench.app import make_app
from pag_graph.workbench.library import Library
from tests.support.asgi import get
from tests.support.foreign_samples import SOURCES, build_sample

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = {"profile-rounds", "sample", "invariants"}
"""Analyses of all rounds, which take no window."""
MORE: dict[str, dict[str, Any]] = {"what-if": {"operator": [0], "factor": 0.5}}


@pytest.fixture(scope="module", params=sorted(SOURCES))
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a sample beside nothing else: a folder that `pag serve` can look at."""
    return build_sample(request.param, tmp_path_factory.mktemp("sample"))


@pytest.fixture
def pag(store: Path) -> api.Pag:
    return api.open(store)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", [analysis.name for analysis in ANALYSES])
def test_every_analysis_answers(pag: api.Pag, name: str) -> None:
    method = getattr(pag, name.replace("-", "_"))
    window = {} if name in ROUNDS else {"epoch": 2}
    if name == "k-hops-st2":
        with pytest.raises(UnsupportedPlanError):
            method(**window)
        return
    assert method(**window, **MORE.get(name, {})) is not None


def test_exports_hold_every_activity_of_a_round(pag: api.Pag, tmp_path: Path) -> None:
    expected = pag.export(str(tmp_path / "round.graphml"), epoch=2).rows["edges"]
    assert expected > 50
    assert len(nx.read_graphml(tmp_path / "round.graphml", force_multigraph=True).edges) == expected
    names = {row["name"] for row in pag.run.operators.iter_rows(named=True)}
    chrome = pag.export(str(tmp_path / "round.json"), epoch=2)
    events = json.loads((tmp_path / "round.json").read_text())["traceEvents"]
    assert chrome.rows["edges"] == expected
    assert names & {str(event["name"]).partition(" [")[0] for event in events if event["ph"] == "X"}
    tables = pag.export(str(tmp_path / "tables"), epoch=2)
    with (tmp_path / "tables" / "edges.csv").open(encoding="utf-8") as lines:
        assert len(list(csv.DictReader(lines))) == expected == tables.rows["edges"]
    assert pag.export(str(tmp_path / "round.svg"), epoch=2).rows["edges"] == expected


def test_motifs_find_who_waited_for_whom(pag: api.Pag) -> None:
    ended = pag.motif("(a)-[message]->(b); (c)-[wait]->(b)", where="wait.type = 'waiting'", epochs=[2])
    assert ended.table().num_rows > 0


def test_the_workbench_shows_the_path_of_the_engine(pag: api.Pag, store: Path) -> None:
    library = Library([store.parent])
    (name,) = library.stores()
    answer = get(make_app(library), f"/api/run/{name}/analysis/critical-path.json?epoch=2")
    assert answer.status == 200
    shown = json.loads(answer.body)
    steps = pag.critical_path(epoch=2).steps.select(["src", "dst", "type", "duration_ns"]).to_pylist()
    assert shown["count"] == len(steps)
    # Pages show the first rows.
    rows = [{key: row[key] for key in steps[0]} for row in shown[shown["rows_name"]]]
    assert rows
    assert rows == steps[: len(rows)]
    assert sum(step["duration_ns"] for step in steps) == pag.run.window(epoch=2).span_ns
