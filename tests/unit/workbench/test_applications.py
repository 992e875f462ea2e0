"""Spark applications are found among the places that are served, answered as `pag spark` does, and kept."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.diagnosis.spark.answer import answer
from pag_graph.errors import StoreNotFoundError
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.workbench import applications
from pag_graph.workbench.app import make_app
from pag_graph.workbench.applications import Applications
from pag_graph.workbench.library import Library
from tests.support.asgi import get

if TYPE_CHECKING:
    from typing import Any

LOG = Path(__file__).parents[2] / "data" / "spark" / "skewed-key.zstd"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an event log, and beside it the graph that was built of it."""
    shutil.copy(LOG, tmp_path / LOG.name)
    (log,) = find_logs(tmp_path / LOG.name)
    answer(log, folder=tmp_path / "results")
    return tmp_path


def test_an_application_is_answered_once_and_leads_to_its_graph(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library([folder])
    app = make_app(library)
    listed = json.loads(get(app, "/api/runs").body)
    (row,), (run,) = listed["applications"], listed["runs"]
    assert row["title"] == LOG.name
    said = json.loads(get(app, f"/api/application/{row['log']}").body)
    assert said["store"] == run["store"]
    assert said["facts"] == json.loads(json.dumps(answer(find_logs(LOG)[0]).facts(), default=str))
    assert said["svg"].startswith("<svg")
    assert len(said["savings"]) == len(said["facts"]["causes"]) > 0

    def never(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(applications, "answer", never)
    assert json.loads(get(app, f"/api/application/{row['log']}").body) == said


def test_the_graph_of_a_log_is_a_run_until_others_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [tmp_path / name for name in ("first.zstd", "second.zstd")]
    for copy in copies:
        shutil.copy(LOG, copy)
    library = Library(copies)
    app = make_app(library)
    first, second = (row["log"] for row in json.loads(get(app, "/api/runs").body)["applications"])
    # Its address is enough: nobody has to have asked for the application before.
    told = json.loads(get(app, f"/api/run/{first}").body)
    assert (told["title"], told["called"], told["made_of"]) == ("first.zstd", "first.zstd.graph/pag", "first.zstd")
    assert json.loads(get(app, f"/api/application/{first}").body)["store"] == first
    assert not json.loads(get(app, "/api/runs").body)["runs"]
    (log,) = find_logs(copies[0])
    answer(log, folder=tmp_path / "results")
    own = api.open(tmp_path / "results" / "pag")
    assert library.open(first).pag.edges().collect().equals(own.edges().collect())
    # As many are kept as there is room for, and one that was given up is made again.
    monkeypatch.setattr(applications, "KEPT", 1)
    folder = library.open(first).pag.run.info.path
    assert get(app, f"/api/run/{second}").status == 200
    assert not folder.exists()
    assert get(app, f"/api/run/{first}").status == 200
    scratch = folder.parent.parent
    assert [entry.name for entry in scratch.iterdir() if entry.is_dir()] == [first]
    del app, library
    gc.collect()
    assert not scratch.exists()


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "app-1").write_bytes(b"no log at all\n")
    library = Library([tmp_path / "app-1"])
    known = Applications(library)
    (name,) = known.logs()
    answered = get(make_app(library), f"/api/application/{name}")
    assert answered.status == 400
    assert json.loads(answered.body)["message"]
    with pytest.raises(StoreNotFoundError, match="no application"):
        known.told("../etc")
