"""What killed, failed and replaced builds leave of a store goes, and nothing that anybody needs goes with it."""

from __future__ import annotations

import gc
import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pag_graph import api
from pag_graph.builder import commit as commits
from pag_graph.errors import InvalidParameterError, StoreError, StoreNotFoundError
from pag_graph.model.tables import STORE_TABLES
from pag_graph.store import held, leftovers
from pag_graph.store.delta import open_store
from pag_graph.store.leftovers import staging, vacuum
from pag_graph.store.parts import write_part
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.builder.build import BuildReport

    KillAt = Callable[[int, Callable[[], object]], bool]

# Epoch 0 is closed, and then epoch 1 as well.
WHOLE = draw(
    "0 start 1 | 3 send 3>1 #0 | 5 stop 1 | 8 end | 20 start 1 | 25 stop 1 | 28 end", "6 recv 3<0 #0 | 9 end | 29 end"
)
# A build takes about 25 steps.
STEPS = range(0, 200, 1 if os.environ.get("PAG_PROVE") == "1" else 5)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("leftovers")
    return [WHOLE.until_epoch(0).write(folder / "first"), WHOLE.write(folder / "whole")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


def build(trace: Path, place: Path, mode: Any = "replace") -> BuildReport:
    return api.build(trace, place, engine="local", mode=mode)


def needed(place: Path) -> set[Path]:
    info = open_store(place)
    assert info.state is not None
    rows = {place / table / Path(file).name for table in info.versions for file in info.files(table)}
    return rows | {place / "epochs" / info.state["file"]}


def present(place: Path) -> set[Path]:
    """Return all that is in a store but for its folders and what Delta has committed."""
    logged = {path for path in place.glob("*/_delta_log/*") if path.suffix != ".tmp" and "#" not in path.name}
    return {path for path in place.rglob("*") if path.is_file() or path.name.startswith("_staging")} - logged


def some_rows(place: Path) -> Path:
    """Write a file of rows, as a build does before it commits."""
    table = "operators"
    part = write_part(place, table, pa.table({"operator": [1], "address": ["0.1"], "name": ["a"]}, STORE_TABLES[table]))
    assert part is not None
    return place / table / part.path


def fail(place: Path) -> Path:
    """Begin a build that writes a file and fails."""
    with pytest.raises(KeyboardInterrupt), staging(place):  # noqa: PT012  (the block is the build)
        rows = some_rows(place)
        raise KeyboardInterrupt
    return rows


# --- Builds -----------------------------------------------------------------------------------------------------------


def test_the_next_build_removes_what_killed_ones_left(traces: list[Path], place: Path, kill_at: KillAt) -> None:
    # The first one finds no store.
    for mode in ("replace", "replace", "append"):
        for step in STEPS:
            if not kill_at(step, lambda mode=mode: build(traces[mode == "append"], place, mode)):
                break
        assert step > 10
        assert open_store(place).closed_epochs == 1 + (mode == "append")
        files = {Path(file).name for file in present(place)}
        odd = {name for name in files if not name.startswith(("part-", "open-", "state-"))}
        assert not odd
    # What was committed is there as long as nobody asks.
    assert len(present(place)) > len(needed(place))
    vacuum(place)
    assert present(place) == needed(place)


@pytest.mark.parametrize("at", [0, 5])
def test_a_build_that_fails_removes_what_it_wrote(
    traces: list[Path], place: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    build(traces[0], place)
    before = present(place)
    with monkeypatch.context() as patch:
        patch.setattr(commits, "commit" if at else "write_part", full)
        with pytest.raises(StoreError, match="No space left"):
            build(traces[1], place)
    assert present(place) == before


def test_files_of_a_build_that_lives_stay(traces: list[Path], place: Path) -> None:
    build(traces[0], place)
    lives = ExitStack()
    with lives:
        folder = lives.enter_context(staging(place))
        folder.mkdir()
        (folder / "rows").touch()
        mine = some_rows(place)
        build(traces[1], place)
        other = fail(place)
        found = vacuum(place)
        assert found.building
        assert found.replaced
        assert mine.exists()
        assert other.exists()
        assert (folder / "rows").exists()
    # The one that failed left word that there is something to look for.
    build(traces[1], place)
    assert not mine.exists()
    assert not other.exists()
    vacuum(place)
    assert present(place) == needed(place)


def test_what_tasks_write_after_their_build_has_failed_goes_with_the_next_one(traces: list[Path], place: Path) -> None:
    with pytest.raises(KeyboardInterrupt), staging(place, alone=False):
        raise KeyboardInterrupt
    late = some_rows(place)
    build(traces[0], place)
    assert not late.exists()
    assert present(place) == needed(place)


def test_what_a_build_on_another_machine_may_commit_stays_until_it_is_old(traces: list[Path], place: Path) -> None:
    build(traces[0], place)
    (place / "_staging-1").mkdir()
    (place / "_staging-1" / "lock").write_text(json.dumps({"boot": "other", "host": "other"}), encoding="utf-8")
    rows = some_rows(place)
    build(traces[1], place)
    for age in (None, 3600):
        assert vacuum(place, older_than_s=age).unknown == [place / "_staging-1"]
        assert rows.exists()
    found = vacuum(place, older_than_s=0)
    assert not found.unknown
    assert {rows, place / "_staging-1"} <= found.unfinished.keys()
    assert present(place) == needed(place)


def test_a_store_in_a_place_that_is_none(traces: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in (tmp_path / "file" / "s", tmp_path / "link", tmp_path / "link" / "s", Path("/proc/s")):
        with pytest.raises(StoreError) as caught:
            build(traces[0], place)
        assert str(place) in caught.value.message
        assert caught.value.hint
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


# --- Versions ---------------------------------------------------------------------------------------------------------


def test_versions_that_were_replaced_go_when_somebody_asks(traces: list[Path], place: Path) -> None:
    for trace in (*traces, *traces):
        build(trace, place)
    everything = present(place)
    assert vacuum(place, keep_versions=4).bytes == 0
    kept = vacuum(place, older_than_s=3600)
    assert kept.bytes == 0
    assert sorted(kept.kept) == [0, 1, 2]
    asked = vacuum(place, dry_run=True)
    assert present(place) == everything
    found = vacuum(place)
    assert found == asked
    assert found.bytes == sum(found.replaced.values()) > 0
    assert found.replaced.keys() == everything - needed(place)
    assert present(place) == needed(place)
    assert api.open(place).epochs.height == open_store(place).closed_epochs + 1
    assert vacuum(place).bytes == 0
    # Appends and replacements go on as before.
    build(traces[1], place, "append")
    build(traces[0], place)
    assert open_store(place).closed_epochs == 1


def test_an_append_shares_files_with_the_version_before(traces: list[Path], place: Path) -> None:
    build(traces[0], place)
    shared = needed(place)
    build(traces[1], place, "append")
    shared &= needed(place)
    assert shared
    vacuum(place)
    assert shared <= present(place)
    assert present(place) == needed(place)


def test_a_reader_keeps_the_version_that_it_opened(traces: list[Path], place: Path) -> None:
    build(traces[0], place)
    reader = api.open(place)
    build(traces[1], place)
    build(traces[1], place)
    found = vacuum(place)
    assert list(found.kept) == [0]
    assert "open in a process" in found.kept[0]
    assert reader.edges().collect().height == sum(reader.epochs["edges"])
    del reader
    gc.collect()
    assert not vacuum(place).kept
    assert present(place) == needed(place)


def test_a_state_that_is_replaced_while_it_is_opened_is_opened_anew(
    traces: list[Path], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pag_graph.store import readers

    build(traces[0], place)
    late = [lambda: build(traces[1], place)]

    class Slow(readers.Hold):
        def __init__(self, file: Path) -> None:
            if late:
                late.pop()()
            super().__init__(file)

    monkeypatch.setattr(readers, "Hold", Slow)
    info, hold = readers.open_held(place)
    assert info.versions["epochs"] == 1
    assert hold is not None


def test_other_peoples_files_stay(traces: list[Path], place: Path, tmp_path: Path) -> None:
    build(traces[0], place)
    mine = [place / "edges" / "mine.parquet", place / "edges" / "part-1.parquet", place / "thesis.tex"]
    for file in mine:
        file.touch()
    vacuum(place)
    assert all(file.exists() for file in mine)
    # Without a store, and without a build that was killed, nothing says that files of rows are ours.
    rows = some_rows(tmp_path / "elsewhere")
    for folder in (tmp_path / "elsewhere", tmp_path / "nowhere"):
        with pytest.raises(StoreNotFoundError, match="nothing is left of one"):
            vacuum(folder)
    assert rows.exists()
    (tmp_path / "elsewhere" / "_staging-1").mkdir()
    vacuum(tmp_path / "elsewhere")
    assert not present(tmp_path / "elsewhere")


def test_of_a_trace_goes_what_stands_beside_it(tmp_path: Path) -> None:
    WHOLE.write(tmp_path / "t")
    (tmp_path / f".t.{'0' * 32}.tmp").mkdir()
    assert len(vacuum(tmp_path / "t", dry_run=True).unfinished) == 1
    assert len(vacuum(tmp_path / "t").unfinished) == 1
    assert not vacuum(tmp_path / "t").unfinished
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_of_a_damaged_store_nothing_goes(traces: list[Path], place: Path) -> None:
    build(traces[0], place)
    build(traces[1], place)
    log = place / "edges" / "_delta_log" / f"{0:020}.json"
    log.write_bytes(log.read_bytes()[:-20])
    before = present(place)
    with pytest.raises(StoreError):
        vacuum(place)
    assert present(place) == before


@pytest.mark.parametrize("wrong", [{"keep_versions": 0}, {"older_than_s": -1}])
def test_numbers_out_of_range(traces: list[Path], place: Path, wrong: dict[str, Any]) -> None:
    build(traces[0], place)
    with pytest.raises(InvalidParameterError, match="must"):
        vacuum(place, **wrong)


@pytest.mark.parametrize("expired", [False, True])
def test_lives_of_files_are_those_of_delta(tmp_path: Path, *, expired: bool) -> None:
    for number in range(4):
        write_deltalake(tmp_path, pa.table({"a": [number]}), mode="append" if number % 2 else "overwrite")
    table = DeltaTable(tmp_path)
    table.restore(1)
    first = 0
    if expired:
        first = 2
        DeltaTable(tmp_path, version=2).create_checkpoint()
        for version in range(first):
            (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    lives = leftovers._lives_of_table(tmp_path)
    for version in range(first, 5):
        names = {Path(file).name for file in DeltaTable(tmp_path, version=version).file_uris()}
        assert {n for n, spans in lives.items() if any(a <= version < b for a, b in spans)} == names


def test_a_folder_without_a_lock_is_nobodys(place: Path) -> None:
    (place / "a-1").mkdir(parents=True)
    with held.claimed(place / "a-1") as use:
        assert use is held.Use.DEAD
        with held.claimed(place / "a-1") as other:
            assert other is held.Use.LIVING
