"""Where stores come from: every name in a document of PROV-JSON is declared, and says what the store says."""

from __future__ import annotations

import getpass
import json
import shutil
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api, samples
from pag_graph.sinks.provenance import history, parameters_id, prov_json
from pag_graph.store.history import commits
from pag_graph.store.trace_files import CHECKSUMS, seal_trace
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.graph.run import Run

ENDS = {
    "wasGeneratedBy": {"entity": "entity", "activity": "activity"},
    "used": {"activity": "activity", "entity": "entity"},
    "wasDerivedFrom": {"generatedEntity": "entity", "usedEntity": "entity"},
    "specializationOf": {"specificEntity": "entity", "generalEntity": "entity"},
    "wasAssociatedWith": {"activity": "activity", "agent": "agent"},
    "actedOnBehalfOf": {"delegate": "agent", "responsible": "agent"},
    "wasInformedBy": {"informed": "activity", "informant": "activity"},
    "hadMember": {"collection": "entity", "entity": "entity"},
}
"""Relations of PROV-JSON that may occur: which elements they connect."""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build a run by two commits, of a trace whose files have checksums."""
    folder = tmp_path_factory.mktemp("provenance")
    trace, store = folder / "trace", folder / "run.pag"
    shutil.copytree(samples.path("skewed"), trace)
    seal_trace(trace)
    meta = trace / "meta.json"
    complete = meta.read_text()
    meta.write_text(complete.replace('"complete": true', '"complete": false'))
    seal_trace(trace)
    api.build(trace, store, engine="local")
    meta.write_text(complete)
    seal_trace(trace)
    api.build(trace, store, engine="local", mode="append")
    return api.open(store).run


def test_every_end_of_a_relation_is_declared_as_what_it_is(grown: Run) -> None:
    document = prov_json(grown)
    assert json.loads(json.dumps(document)) == document
    assert set(document) == {"prefix", "entity", "activity", "agent", *ENDS}
    for kind, ends in ENDS.items():
        for relation in document[kind].values():
            assert relation.keys() == {f"prov:{role}" for role in ends}
            for role, element in ends.items():
                assert relation[f"prov:{role}"] in document[element], (kind, relation)
    for activity in document["activity"].values():
        assert datetime.fromisoformat(activity["prov:startTime"]) <= datetime.fromisoformat(activity["prov:endTime"])


def test_a_command_that_is_no_text_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves of characters stood for bytes that are not UTF-8; readers of JSON refuse them, and so did Neo4j."""
    monkeypatch.setattr("pag_graph.store.commit.maker", lambda: {"command": "pag build a\udcff", "user": "\udcff"})
    draw("0 start 1 | 4 stop 1 | 5 end").write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "run.pag", engine="local")
    (row,) = history(api.open(tmp_path / "run.pag").run)
    assert (row["command"], row["user"]) == (r"pag build a\udcff", r"\udcff")


def test_a_document_says_what_the_store_says(grown: Run) -> None:
    document = prov_json(grown)
    made = commits(grown.info)
    assert len(made) == 2
    assert document["activity"].keys() == {f"pag:job/{commit.id}" for commit in made}
    for job, row in zip(document["activity"].values(), history(grown), strict=True):
        assert (job["pag:engine"], job["pag:seconds"]) == (row["engine"], row["seconds"])
        assert row["engine"] == "local"
        # What a build took is part of what its process took.
        assert row["seconds"] > 0
        lasted = datetime.fromisoformat(row["committed"]) - datetime.fromisoformat(row["began"])
        assert row["seconds"] <= lasted.total_seconds() + 0.01
    assert [row["prov:informant"] for row in document["wasInformedBy"].values()] == [f"pag:job/{made[0].id}"]
    sums = json.loads((next(iter(_locations(document))) / CHECKSUMS).read_text())
    files = {
        entity["prov:location"]: (entity["pag:bytes"], int(entity["pag:crc32"], 16))
        for name, entity in document["entity"].items()
        if name.startswith("pag:file/") and f"{sums[entity['prov:location']]['crc32']:08x}" in name
    }
    assert files == {name: (each["bytes"], each["crc32"]) for name, each in sums.items()}
    # What the first commit read of the file that has changed since is told as well.
    assert sum(entity.get("prov:location") == "meta.json" for entity in document["entity"].values()) == 2
    epochs = [name for name in document["entity"] if name.startswith("pag:epoch/")]
    assert len(epochs) == grown.epochs.height
    by_epoch = {
        row["prov:entity"]: row["prov:activity"]
        for row in document["wasGeneratedBy"].values()
        if row["prov:entity"] in epochs
    }
    run_id = grown.info.run["run_id"]
    assert by_epoch[f"pag:epoch/{run_id}/0"] == f"pag:job/{made[0].id}"
    assert by_epoch[f"pag:epoch/{run_id}/{grown.epochs['epoch'].max()}"] == f"pag:job/{made[1].id}"


def _locations(document: dict[str, Any]) -> set[Path]:
    from pathlib import Path

    return {
        Path(entity["prov:location"])
        for entity in document["entity"].values()
        if entity.get("prov:type") == {"$": "prov:Collection", "type": "prov:QUALIFIED_NAME"}
    }


def test_commits_know_who_made_them(grown: Run, run_pag: Callable[..., tuple[int, str, str]]) -> None:
    rows = history(grown)
    assert [row["version"] for row in rows] == [0, 1]
    assert {row["user"] for row in rows} == {getpass.getuser()}
    assert all(row["command"] and row["host"] and row["files"] for row in rows)
    code, out, _ = run_pag("provenance", grown.info.path, "--format", "json")
    assert code == 0
    assert json.loads(out) == rows
    code, out, _ = run_pag("provenance", grown.info.path, "--format", "prov-json")
    assert json.loads(out) == prov_json(grown)
    code, out, _ = run_pag("provenance", grown.info.path)
    assert code == 0
    assert "2 commits" in out


def test_parameters_are_the_same_in_any_order() -> None:
    assert parameters_id({"a": 1, "b": 2}) == parameters_id({"b": 2, "a": 1})
    assert parameters_id({"a": 1}) != parameters_id({"a": 2})
