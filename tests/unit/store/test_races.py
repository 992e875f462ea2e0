"""Builds and readers at the same time: whoever opens a store sees all of one build."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pag_graph import api
from pag_graph.errors import StoreConflictError
from pag_graph.model.tables import STORE_TABLES
from pag_graph.store import commit as store_commit
from pag_graph.store import delta
from pag_graph.store.parts import write_part
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROVE = os.environ.get("PAG_PROVE") == "1"
SECONDS = 60 if PROVE else 3
"""How long builds and readers race."""
# As many epochs as the number of the trace says: rows of the tables tell which build they are of.
NAMES = ("first", "second", "third")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("traces")
    made = {}
    for number, name in enumerate(NAMES, 1):
        line = " | ".join(f"{20 * e} start 1 | {20 * e + 5} stop 1 | {20 * e + 9} end" for e in range(2 * number))
        made[name] = draw(line).write(folder / name, trace_id=name)
    return made


def build(trace: Path, store: Path, mode: Any = "replace") -> str:
    """Build, and return the id of the run, or nothing where another build was faster."""
    try:
        return str(api.build(trace, store, engine="local", mode=mode).store.run["run_id"])
    except StoreConflictError:
        return ""


def is_whole(store: Path) -> str:
    """Return the id of the run that a store holds, if all of it is of one build."""
    info = delta.open_store(store)
    epochs = info.scan("epochs").collect()
    for name in ("vertices", "edges"):
        rows = info.scan(name).select("epoch").collect()
        assert rows.height == epochs[name].sum(), f"{name} are of another build than epochs"
    assert info.events == epochs["events"].sum()
    return str(info.run["run_id"])


@pytest.mark.parametrize("read", [1, 2])
def test_a_build_that_ends_while_a_store_is_opened(
    traces: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    """What is known of the newest version, and what it says, are of one commit, whatever comes between."""
    store = tmp_path / "store"
    build(traces["first"], store, "error")
    real, calls = delta.read_commit, []

    def overtaken(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == read:
            build(traces["third"], store)
        return real(*arguments)

    monkeypatch.setattr(delta, "read_commit", overtaken)
    is_whole(store)
    is_whole(store)
    assert len(calls) > read
    monkeypatch.undo()
    assert is_whole(store) == api.open(store).run.info.run["run_id"]


def test_a_build_that_ends_while_another_looks_at_its_own_version(
    traces: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions are known before they are written: what others write afterwards is not looked at."""
    store = tmp_path / "store"
    build(traces["first"], store, "error")
    real, done = store_commit.write_version, []

    def followed(directory: Path, *arguments: Any, **more: Any) -> int:
        version = real(directory, *arguments, **more)
        if directory.name == "edges" and not done:
            done.append(version)
            assert build(traces["third"], store)
        return version

    monkeypatch.setattr(store_commit, "write_version", followed)
    # Both had the tables to themselves, one after the other; the one that publishes first wins.
    assert not build(traces["second"], store)
    monkeypatch.undo()
    assert done
    assert len(api.open(store).epochs) == len(api.open(store).run.windows())
    is_whole(store)


def commit(store: Path, mark: int) -> bool:
    """Commit tables all of whose rows have a number of their own; tell whether nobody was faster."""
    try:
        previous = store_commit.check_target(store, "replace")
        parts = {}
        for name in ("vertices", "edges", "epochs"):
            columns = {
                column.name: pa.array([mark if pa.types.is_integer(column.type) else str(mark)]).cast(column.type)
                for column in STORE_TABLES[name]
            }
            part = write_part(store, name, pa.table(columns))
            parts[name] = [part] if part else []
        run = {"run_id": str(mark)}
        store_commit.commit(store, parts, run=run, closed_epochs=1, dropped={}, events=mark, previous=previous)
    except StoreConflictError:
        return False
    return True


def mark_of(store: Path) -> int:
    """Return the number of the commit that a store holds, if all of it is of one."""
    info = delta.open_store(store)
    found = {name: info.scan(name).select("epoch").collect().item() for name in ("vertices", "edges", "epochs")}
    assert set(found.values()) == {info.events}, f"tables of {found} beside a commit of {info.events}"
    return info.events


def test_commits_and_readers_race(tmp_path: Path) -> None:
    store = tmp_path / "store"
    commit(store, 0)
    end = time.monotonic() + SECONDS
    done, opened, wrong = [], [], []

    def repeat(action: Callable[[int], None], first: int) -> None:
        mark = first
        while time.monotonic() < end and not wrong:
            try:
                action(mark)
            except Exception as error:  # noqa: BLE001  (told by the test)
                wrong.append(error)
            mark += 2

    def commits(mark: int) -> None:
        if commit(store, mark):
            done.append(mark)

    def reads(_: int) -> None:
        opened.append(mark_of(store))

    threads = [threading.Thread(target=repeat, args=(action, first)) for action in (commits, reads) for first in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert len({mark % 2 for mark in done}) == 2
    assert opened
    assert set(opened) <= {0, *done}
    assert mark_of(store) in done
