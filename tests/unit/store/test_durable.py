"""With `fsync`, what a commit names is on the disk before the commit is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.store.delta_log import FOLDER, commit_file
from pag_graph.store.state_files import files_of_state

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE = Path(api.__file__).parents[1] / "samples" / "skewed"


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Return what reached the disk, and which names appeared in logs, in order."""
    events: list[tuple[str, Path]] = []
    fsync, link = os.fsync, os.link

    def noting_fsync(descriptor: int) -> None:
        fsync(descriptor)
        events.append(("disk", Path(f"/proc/self/fd/{descriptor}").readlink()))

    def noting_link(source: Path, target: Path) -> None:
        link(source, target)
        events.append(("name", Path(target)))

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "link", noting_link)
    return events


@pytest.mark.parametrize("build", [api.build, api.follow])
def test_everything_is_on_the_disk_before_it_is_visible(
    happened: list[tuple[str, Path]], tmp_path: Path, build: Callable[..., object]
) -> None:
    options = {"engine": "local"} if build is api.build else {}
    build(SAMPLE, tmp_path / "run.pag", fsync=True, **options)
    info = api.open(tmp_path / "run.pag").run.info
    published = ("name", commit_file(info.path / "epochs", info.versions["epochs"]))
    before = happened[: happened.index(published)]
    on_disk = {path for kind, path in before if kind == "disk"}
    for name, version in info.versions.items():
        files = {info.path / name / part.path for part in info.parts(name)}
        assert files <= on_disk
        if name != "epochs":
            # The log's entry was written under another name, which went; the folder came after the name.
            entry = ("name", commit_file(info.path / name, version))
            assert ("disk", info.path / name / FOLDER) in before[before.index(entry) :]
    for name in files_of_state(info.state):
        assert any(path.name == name for path in on_disk)
    assert info.path in on_disk
    assert ("disk", info.path / "epochs" / FOLDER) in happened[happened.index(published) :]


def test_nobody_waits_for_the_disk_unless_asked(happened: list[tuple[str, Path]], tmp_path: Path) -> None:
    api.build(SAMPLE, tmp_path / "run.pag", engine="local")
    assert [path for kind, path in happened if kind == "disk"] == []


def test_a_disk_that_refuses_is_an_error_and_nothing_is_visible(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pag_graph.errors import StoreError

    def refuse(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match="Input/output"):
        api.build(SAMPLE, tmp_path / "run.pag", engine="local", fsync=True)
    with pytest.raises(StoreError):
        api.open(tmp_path / "run.pag")
