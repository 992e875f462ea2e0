"""Logs of tables: what is written is plain Delta, and what Delta's own library or an older release wrote is read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pag_graph import api
from pag_graph.errors import StoreConflictError, StoreError
from pag_graph.model.tables import STORE_TABLES
from pag_graph.store import check, commit, delta, delta_actions, delta_writing
from pag_graph.store.delta_log import latest, read_state
from pag_graph.store.delta_writing import write_version
from pag_graph.store.parts import PartFile, write_part
from pag_graph.testing.reference import build_reference
from pag_graph.testing.traces import draw
from tests.support.compare import committed, differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINE = " | ".join(f"{t} start 1 | {t + 5} stop 1 | {t + 9} end" for t in (0, 20, 40))
WHOLE = draw(LINE)


def operators(store: Path) -> PartFile:
    """Write a file of one row."""
    row = {"operator": [1], "address": ["0.1"], "name": ["Map"]}
    written = write_part(store, "operators", pa.table(row, STORE_TABLES["operators"]))
    assert written is not None
    return written


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PartFile]:
    folder = tmp_path_factory.mktemp("part")
    return folder / "operators", operators(folder)


def grow(directory: Path, parts: list[PartFile], *, alone: bool = False) -> int:
    """Add a version with one file more, or with it alone."""
    before = read_state(directory, latest(directory))
    files = {} if alone else dict(before.files)
    files |= {part.path: part for part in parts}
    schema = STORE_TABLES["operators"]
    return write_version(directory, schema, before, files, info={}, transaction=("pag-graph/x", before.version))


def copies(directory: Path, part: tuple[Path, PartFile], count: int) -> list[PartFile]:
    directory.mkdir(parents=True, exist_ok=True)
    found = []
    for number in range(count):
        path = f"part-{number}.parquet"
        (directory / path).write_bytes((part[0] / part[1].path).read_bytes())
        found.append(replace(part[1], path=path))
    return found


def test_long_logs_are_read_from_checkpoints_here_and_elsewhere(
    part: tuple[Path, PartFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_writing, "CHECKPOINT_EVERY", 4)
    parts = copies(tmp_path, part, 11)
    for one in parts:
        grow(tmp_path, [one])
    assert latest(tmp_path) == 10
    state = read_state(tmp_path, 10)
    assert state.files == {one.path: one for one in parts}
    assert state.transactions == {"pag-graph/x": 9}
    assert state.base.version == 8
    assert state.base.checkpoint is not None
    for version in range(11):
        assert list(read_state(tmp_path, version).files) == [one.path for one in parts[: version + 1]]
        table = DeltaTable(tmp_path, version=version)
        assert sorted(table.get_add_actions(flatten=True)["path"].to_pylist()) == sorted(
            one.path for one in parts[: version + 1]
        )
    # Neither needs what is before the checkpoint.
    for version in range(8):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    assert read_state(tmp_path, 10) == state
    table = DeltaTable(tmp_path)
    assert table.version() == 10
    assert len(table.file_uris()) == 11
    assert pl.scan_delta(table).collect().height == 11 * part[1].rows
    # A version that replaces all needs none of the others.
    grow(tmp_path, parts[:1], alone=True)
    grow(tmp_path, parts[2:3], alone=True)
    for file in (tmp_path / "_delta_log").iterdir():
        if file.name < f"{12:020}":
            file.unlink()
    assert list(read_state(tmp_path, 12).files) == ["part-2.parquet"]


def test_a_damaged_checkpoint_is_not_parsed(
    part: tuple[Path, PartFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_writing, "CHECKPOINT_EVERY", 2)
    for one in copies(tmp_path / "operators", part, 4):
        grow(tmp_path / "operators", [one])
    (file,) = (tmp_path / "operators" / "_delta_log").glob("*.checkpoint.parquet")
    content = file.read_bytes()
    # The length of the footer: asking for so much would end the process.
    file.write_bytes(content[:-8] + b"\xff\xff\xff\x7f" + content[-4:])
    with pytest.raises(StoreError, match="its bytes are not those"):
        read_state(tmp_path / "operators", 3)
    file.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        read_state(tmp_path / "operators", 3)


def test_a_version_is_added_once(part: tuple[Path, PartFile], tmp_path: Path) -> None:
    one, other = copies(tmp_path, part, 2)
    before = read_state(tmp_path, -1)
    schema = STORE_TABLES["operators"]
    write_version(tmp_path, schema, before, {one.path: one}, info={}, transaction=("a", 0))
    with pytest.raises(FileExistsError):
        write_version(tmp_path, schema, before, {other.path: other}, info={}, transaction=("b", 0))
    assert list(read_state(tmp_path, 0).files) == [one.path]
    assert [file.name for file in (tmp_path / "_delta_log").iterdir()] == [f"{0:020}.json"]


def test_schemas_are_deltas(tmp_path: Path) -> None:
    WHOLE.write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    for name, schema in STORE_TABLES.items():
        said = json.loads(DeltaTable(tmp_path / "store" / name).schema().to_json())["fields"]
        ours = json.loads(delta_actions.metadata_action(schema, "", 0)["schemaString"])["fields"]
        assert said == ours
        assert DeltaTable(tmp_path / "store" / name).history(1)[0]["operation"] == "WRITE"


@pytest.mark.parametrize(
    "change",
    [
        {"add": {"path": "../../elsewhere.parquet", "size": 1, "stats": '{"numRecords": 1}'}},
        {"add": {"path": "part-1.parquet", "size": 1, "stats": None}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}},
    ],
)
def test_what_is_not_known_is_refused(part: tuple[Path, PartFile], tmp_path: Path, change: Any) -> None:
    grow(tmp_path, copies(tmp_path, part, 1))
    file = tmp_path / "_delta_log" / f"{0:020}.json"
    file.write_bytes(file.read_bytes() + json.dumps(change).encode() + b"\n")
    with pytest.raises(StoreError, match="no commit of this package"):
        read_state(tmp_path, 0)


# --- Older releases -------------------------------------------------------------------------------------------------


def as_before(store: Path) -> None:
    """Take away what the release before did not write: checksums, digests, and where reading begins."""
    names = {}
    for file in store.glob("*/*.parquet"):
        names[file.name] = f"{file.name.rpartition('-')[0]}.parquet"
        file.rename(file.with_name(names[file.name]))
    for file in store.glob("*/_delta_log/*.json"):
        text = file.read_text()
        for now, before in names.items():
            text = text.replace(now, before)
        lines = [json.loads(line) for line in text.splitlines()]
        for info in (line["commitInfo"] for line in lines if "commitInfo" in line):
            info.pop("pag_graph_base")
            if info.pop("pag_graph_checksum", None):
                said = json.loads(info["pag_graph"])
                del said["digests"]
                info["pag_graph"] = json.dumps(said)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (store / "epochs" / "_delta_log" / "_pag_graph_newest").unlink()


def test_stores_of_the_release_before_are_read_and_grow(
    tmp_path: Path, run_pag: Callable[..., tuple[int, str, str]]
) -> None:
    store = tmp_path / "store"
    for epoch in range(3):
        trace = WHOLE.until_epoch(epoch).write(tmp_path / f"trace-{epoch}")
        if epoch < 2:
            api.build(trace, store, engine="local", mode="append")
    as_before(store)
    info = delta.open_store(store)
    assert info.digests is None
    assert not check.keeps_checksums(info)
    assert not differences(committed(store), build_reference(WHOLE.until_epoch(1)))
    code, _, told = run_pag("check", store, "--deep")
    assert code == 0
    assert "kept no checksums" in told.replace("\n", " ")
    api.build(tmp_path / "trace-2", store, engine="local", mode="append")
    assert not differences(committed(store), build_reference(WHOLE))
    info = delta.open_store(store)
    # Nothing says where that build stood, so the append has built all of it again.
    assert info.digests is not None
    assert check.keeps_checksums(info)
    api.build(tmp_path / "trace-2", store, engine="local", mode="replace")
    assert check.keeps_checksums(delta.open_store(store))
    code, _, told = run_pag("check", store)
    assert "kept no checksums" not in told.replace("\n", " ")


def test_other_programs_may_add_versions(tmp_path: Path) -> None:
    """Readers keep to what is pinned, and the next build puts it back."""
    store = tmp_path / "store"
    for epoch in range(3):
        WHOLE.until_epoch(epoch).write(tmp_path / f"trace-{epoch}")
    for epoch in range(2):
        api.build(tmp_path / f"trace-{epoch}", store, engine="local", mode="append")
    DeltaTable(store / "vertices").optimize.compact()
    DeltaTable(store / "edges").delete()
    DeltaTable(store / "epochs").alter.set_table_properties({"delta.checkpointInterval": "7"})
    assert not differences(committed(store), build_reference(WHOLE.until_epoch(1)))
    api.build(tmp_path / "trace-2", store, engine="local", mode="append")
    assert not differences(committed(store), build_reference(WHOLE))
    for name in STORE_TABLES:
        info = delta.open_store(store)
        assert pl.scan_delta(str(store / name), version=info.versions[name]).collect().height == sum(
            one.rows for one in info.parts(name)
        )


def test_files_must_be_there_when_they_are_committed(tmp_path: Path) -> None:
    WHOLE.write(tmp_path / "trace")
    info = api.build(tmp_path / "trace", tmp_path / "store", engine="local").store
    one = operators(tmp_path / "store")
    (tmp_path / "store" / "operators" / one.path).unlink()
    more: dict[str, Any] = {"run": info.run, "closed_epochs": 1, "dropped": {}, "events": 1, "previous": info}
    with pytest.raises(StoreError, match="it is missing"):
        commit.commit(tmp_path / "store", {"operators": [one]}, **more)
    assert delta.open_store(tmp_path / "store") == info
    with pytest.raises(StoreConflictError):
        commit.commit(tmp_path / "store", {}, **{**more, "previous": None})
