"""A lock is seen by everyone else, is shared only with those who share it, and goes with its file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pag_graph.errors import Neo4jError
from pag_graph.neo4j_server.jars import file_lock
from pag_graph.runtime.folders import cache_folder, data_folder
from pag_graph.runtime.locks import Lock, is_still, lock

if TYPE_CHECKING:
    from pathlib import Path


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


@pytest.mark.parametrize(("first", "second"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_lock_is_one_process_s_or_shared_by_all(tmp_path: Path, *, first: bool, second: bool) -> None:
    ours, theirs = opened(tmp_path / "lock"), opened(tmp_path / "lock")
    assert lock(ours, shared=first) is Lock.OURS
    assert lock(theirs, shared=second) is (Lock.OURS if first and second else Lock.OTHERS)
    os.close(ours)
    assert lock(theirs) is Lock.OURS
    os.close(theirs)


def test_a_file_that_was_replaced_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    ours = opened(path)
    assert is_still(ours, path)
    path.unlink()
    assert not is_still(ours, path)
    os.close(opened(path))
    assert not is_still(ours, path)
    os.close(ours)


def test_a_server_is_not_started_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(Neo4jError, match="has no locks"), file_lock(tmp_path / "lock"):
        pass


def test_folders_of_the_user_are_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAG_CACHE", "PAG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "pag-graph"
    assert data_folder() == tmp_path / ".local" / "share" / "pag-graph"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "pag-graph"
    monkeypatch.setenv("PAG_CACHE", str(tmp_path / "a" / ".." / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.chdir(tmp_path)
    assert cache_folder(tmp_path / "given") == tmp_path / "given"
