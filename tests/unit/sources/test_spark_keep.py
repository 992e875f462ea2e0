"""`pag spark --out`: trace and store of a log come together, whenever the command is killed, and a repetition works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.diagnosis.spark import answer as why
from pag_graph.diagnosis.spark.answer import answer
from pag_graph.errors import StoreConflictError, StoreError, StoreExistsError
from pag_graph.sources.spark import keep
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles
from pag_graph.sources.spark.reader import read_log
from pag_graph.store.delta import open_store
from pag_graph.store.leftovers import vacuum
from pag_graph.store.trace import Trace
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

    KillAt = Callable[[int, Callable[[], object]], bool]

# A command takes 50 steps, and half as many more where it replaces something.
STEPS = range(0, 400, 1 if os.environ.get("PAG_PROVE") == "1" else 19)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[LogFiles]:
    """Two logs of different applications."""
    folder = tmp_path_factory.mktemp("logs")
    found = []
    for name, end in (("old", 1900), ("new", 1800)):
        log = EventLog(cores=[1]).job(0, 1000, [0]).stage(0, 1000, tasks=1).task(0, 0, "0", 1010, end, run=700)
        found.append(LogFiles(name=name, files=(log.job_done(0, 1910).end(2000).write(folder / name),)))
    return found


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def ids(folder: Path) -> tuple[str, str]:
    """Return the trace's identity as trace and store tell it."""
    return Trace.open(folder / "trace").meta.trace_id, open_store(folder / "pag").run["trace_id"]


def present(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("before", ["nothing", "old", "old and more"])
def test_trace_and_store_come_together(
    logs: list[LogFiles], tmp_path: Path, temporary: Path, kill_at: KillAt, before: str
) -> None:
    old, new = logs
    expected = {"trace", "pag"}
    for step in STEPS:
        place = tmp_path / str(step) / "out"
        if before != "nothing":
            answer(old, folder=place)
            before_ids = ids(place)
        if before == "old and more":
            (place / "thesis.tex").touch()
            expected = {"trace", "pag", "thesis.tex"}
        replace = before != "nothing"
        if not kill_at(step, lambda place=place, replace=replace: answer(new, folder=place, replace=replace)):
            break
        if before == "nothing":
            assert not place.exists() or set(present(place)) == expected
        elif before == "old":
            assert ids(place) in {before_ids, (ids(place)[0],) * 2}
        elif {"trace", "pag"} <= set(present(place)):
            assert len(set(ids(place))) == 1
        # What was asked for is asked for again.
        told = answer(new, folder=place, replace=replace)
        assert told.diagnosis.span_ns
        assert len(set(ids(place))) == 1
        assert replace is False or ids(place) != before_ids
        assert set(present(place)) == expected
        assert present(place.parent) == ["out"]
    assert step > 40
    assert not present(temporary)


def test_a_log_that_is_done_is_not_done_again(logs: list[LogFiles], tmp_path: Path) -> None:
    first = answer(logs[0], folder=tmp_path / "out")
    file = tmp_path / "out" / "trace" / "meta.json"
    number = file.stat().st_ino
    assert answer(logs[0], folder=tmp_path / "out").facts() == first.facts()
    assert file.stat().st_ino == number
    with pytest.raises(StoreExistsError, match="exists already"):
        answer(logs[1], folder=tmp_path / "out")
    assert answer(logs[1], folder=tmp_path / "out", replace=True).facts() != first.facts()
    # A store of the same trace that was built otherwise is somebody's own.
    out = tmp_path / "out"
    api.build(out / "trace", out / "pag", engine="local", rules="timely", mode="replace", force_rules=True)
    with pytest.raises(StoreExistsError):
        answer(logs[1], folder=tmp_path / "out")


def test_what_earlier_releases_left_when_they_were_killed_gives_way(logs: list[LogFiles], tmp_path: Path) -> None:
    mapped = map_log(read_log(logs[0]))
    keep.write_mapped(mapped, tmp_path / "out" / "trace")
    with pytest.raises(StoreExistsError):
        answer(logs[1], folder=tmp_path / "out")
    answer(logs[0], folder=tmp_path / "out")
    assert len(set(ids(tmp_path / "out"))) == 1


def test_readers_of_what_is_replaced_go_on(logs: list[LogFiles], tmp_path: Path) -> None:
    answer(logs[0], folder=tmp_path / "out")
    reader = api.open(tmp_path / "out" / "pag")
    answer(logs[1], folder=tmp_path / "out", replace=True)
    assert list(vacuum(tmp_path / "out" / "pag").kept) == [0]
    assert reader.edges().collect().height == sum(reader.epochs["edges"])
    assert len(set(ids(tmp_path / "out"))) == 1


def test_a_build_meanwhile_is_not_lost(logs: list[LogFiles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "out"
    answer(logs[0], folder=place)
    real = keep.write_mapped

    def slow(*arguments: object, **more: object) -> None:
        api.build(place / "trace", place / "pag", engine="local", mode="replace")
        real(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(why, "write_mapped", slow)
    with pytest.raises(StoreConflictError):
        answer(logs[1], folder=place, replace=True)
    assert open_store(place / "pag").versions["epochs"] == 1
    assert present(tmp_path) == ["out"]


def test_places_that_are_none(logs: list[LogFiles], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "mine" / "pag").mkdir(parents=True)
    (tmp_path / "mine" / "pag" / "thesis.tex").touch()
    for place in ("file", "file/out", "mine", "/proc/out"):
        with pytest.raises(StoreError):
            answer(logs[0], folder=tmp_path / place, replace=True)
    assert present(tmp_path) == ["file", "mine"]
    assert present(tmp_path / "mine") == ["pag"]


def test_the_current_folder(logs: list[LogFiles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for log in logs:
        answer(log, folder=Path(), replace=True)
        assert present(Path.cwd()) == ["pag", "trace"]
        assert len(set(ids(Path.cwd()))) == 1
