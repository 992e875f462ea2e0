"""Stores: all of a build is visible or nothing, whenever it is killed and whoever else builds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pag_graph import api, sources
from pag_graph.builder import commit as commits
from pag_graph.builder import scan, sink
from pag_graph.errors import (
    FormatVersionError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    TraceFormatError,
    UnsupportedPlanError,
)
from pag_graph.model.tables import STORE_TABLES
from pag_graph.store import commit, delta
from pag_graph.store.trace import Trace
from pag_graph.testing.reference import build_reference
from pag_graph.testing.traces import draw
from tests.support.compare import committed, differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from pag_graph.builder.report import BuildReport

# Three epochs: worker 0 works and tells worker 1, which waits for it. Worker 2 never logs anything.
WORK = " | ".join(
    f"{t} start 1 | {t + 3} send 3>1 #{e} | {t + 5} stop 1 | {t + 8} end" for e, t in enumerate((0, 20, 40))
)
WAIT = " | ".join(f"{t} park | {t + 6} unpark | {t + 7} recv 3<0 #{e} | {t + 9} end" for e, t in enumerate((0, 20, 40)))
WHOLE = draw(f"{WORK} | 60 start 1", WAIT, "")
OTHER = draw("0 start 5 | 4 stop 5 | 9 end")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("traces")
    grown = [WHOLE.until_epoch(epoch).write(folder / f"trace-{epoch}") for epoch in range(3)]
    return [*grown, WHOLE.write(folder / "whole"), OTHER.write(folder / "other", trace_id="other")]


def test_a_place_whose_name_is_no_text_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    trace, bad = WHOLE.write(tmp_path / "run.trace"), tmp_path / "l\udce4ufe"
    for use in (
        lambda: api.build(trace, bad, engine="local"),
        lambda: api.Pag(bad),
        lambda: Trace.open(bad),
        lambda: sources.convert(Path(__file__).parents[3] / "docs/examples/flink", bad),
    ):
        with pytest.raises((StoreError, TraceFormatError), match="not UTF-8"):
            use()
    assert [path.name for path in tmp_path.iterdir()] == [trace.name]


@pytest.fixture
def place(traces: list[Path], tmp_path: Path) -> Path:
    for trace in traces:
        (tmp_path / trace.name).symlink_to(trace)
    return tmp_path


def build(place: Path, trace: str, mode: Any = "error", **more: Any) -> BuildReport:
    return api.build(place / trace, place / "store", engine="local", mode=mode, **more)


def holds(place: Path, trace: Any) -> bool:
    return not differences(committed(place / "store"), build_reference(trace))


def leftovers(place: Path) -> list[str]:
    return [path.name for path in (place / "store").iterdir() if path.name not in STORE_TABLES]


# --- Modes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slice_events", [None, 3])
def test_epochs_are_appended_as_they_are_closed(place: Path, slice_events: int | None) -> None:
    for epoch in range(3):
        report = build(place, f"trace-{epoch}", "append", slice_events=slice_events)
        assert report.committed
        assert report.store.closed_epochs == epoch + 1
        assert holds(place, WHOLE.until_epoch(epoch))
        assert not leftovers(place)
    # No epoch has ended since, but there is more to know of the shutdown.
    report = build(place, "whole", "append", slice_events=slice_events)
    assert report.committed
    assert holds(place, WHOLE)


def test_decided_rows_keep_their_files(tmp_path: Path) -> None:
    rounds = [
        f"{t} park | {t + 6} unpark | {t + 7} recv 3<{{0}} #{e} | {t + 8} send 3>{{0}} #{e} | {t + 9} end"
        for e, t in enumerate(range(0, 80, 10))
    ]
    log = draw(*(" | ".join(rounds).format(other) for other in (1, 0)))
    for epoch in (3, 7):
        replace(log.until_epoch(epoch), complete=False).write(tmp_path / f"until-{epoch}")
    first = build(tmp_path, "until-3").store
    before = {name: set(first.files(name)) for name in ("vertices", "edges", "epochs")}
    second = build(tmp_path, "until-7", "append").store
    assert second.closed_epochs > first.closed_epochs > 0
    for name, files in before.items():
        kept = files & set(second.files(name))
        assert kept
        assert all(Path(file).name.startswith("part-") for file in kept)
        assert all(Path(file).name.startswith("open-") for file in files - kept)
    assert holds(tmp_path, replace(log, complete=False))


def test_the_same_append_again_does_nothing(place: Path) -> None:
    build(place, "trace-1", "append")
    versions = delta.open_store(place / "store").versions
    for trace in ("trace-1", "trace-0"):
        report = build(place, trace, "append")
        assert not report.committed
        assert report.rows["epochs"] == committed_rows(place, "epochs")
        assert delta.open_store(place / "store").versions == versions
    assert holds(place, WHOLE.until_epoch(1))


def committed_rows(place: Path, table: str) -> int:
    return int(delta.open_store(place / "store").scan(table).collect().height)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        # A message is read that, had it been read before, had ended a wait.
        ("0 park | 20 unpark | 21 end | 50 end", "0 park | 20 unpark | 21 end | 30 recv 3<1 | 50 end"),
        # An activation turns out to have worked: as many vertices and edges as before, but of other types.
        ("0 start 1 | 20 end | 40 end", "0 start 1 | 20 end | 40 end | 50 send 3>0 | 51 stop 1"),
        # Work follows a park.
        ("0 park | 20 unpark | 21 end", "0 park | 20 unpark | 21 end | 22 start 1 | 23 send 4>0 | 24 stop 1 | 50 end"),
        # An event of a closed epoch.
        ("0 start 1 | 20 end | 50 end", "0 start 1 | 10 stop 1 | 20 end | 50 end | 60 end"),
    ],
)
def test_an_append_does_not_change_what_is_committed(tmp_path: Path, first: str, then: str) -> None:
    peer = "0 start 9 | 5 send 3>0 | 6 stop 9 | 10 end | 60 end | 70 end"
    before, after = draw(first, peer), draw(then, peer)
    before.write(tmp_path / "before")
    after.write(tmp_path / "after")
    build(tmp_path, "before")
    with pytest.raises(StoreConflictError, match=r"contradicts what is committed about epochs \[0") as caught:
        build(tmp_path, "after", "append")
    assert caught.value.hint
    assert holds(tmp_path, before)
    assert not leftovers(tmp_path)
    build(tmp_path, "after", "replace")
    assert holds(tmp_path, after)


def test_ends_of_epochs_that_turn_up_later_are_another_story(tmp_path: Path) -> None:
    # One epoch is closed either way, but not the same one.
    draw("0 start 1 | 2 stop 1").write(tmp_path / "before")
    draw("0 start 1 | 2 stop 1 | ~1 9 end").write(tmp_path / "after")
    build(tmp_path, "before")
    with pytest.raises(StoreConflictError, match="contradicts what is committed"):
        build(tmp_path, "after", "append")


def test_only_the_same_run_can_be_appended(place: Path) -> None:
    build(place, "trace-0")
    with pytest.raises(StoreConflictError, match="holds run"):
        build(place, "other", "append")
    with pytest.raises(StoreConflictError, match="holds run"):
        build(place, "trace-1", "append", parameters=pag_build_parameters())
    assert holds(place, WHOLE.until_epoch(0))


def test_a_trace_of_more_workers_is_another_run(place: Path) -> None:
    build(place, "trace-0")
    draw(WORK, WAIT, "", "0 start 5 | 4 stop 5").write(place / "more")
    draw(WORK).write(place / "fewer")
    for trace, count in (("more", 4), ("fewer", 1)):
        with pytest.raises(StoreConflictError, match=f"of 3 workers; this trace has {count}, and is of another run"):
            build(place, trace, "append")
    assert holds(place, WHOLE.until_epoch(0))


def pag_build_parameters() -> Any:
    from pag_graph.rules.rows import RuleParameters

    return RuleParameters(busy_below_ns=1)


def test_the_rules_of_st2_cannot_append(place: Path) -> None:
    build(place, "trace-0", rules="st2")
    with pytest.raises(UnsupportedPlanError, match="cannot be appended"):
        build(place, "trace-1", "append", rules="st2")


def test_a_store_that_exists_is_refused(place: Path) -> None:
    build(place, "trace-0")
    with pytest.raises(StoreExistsError, match="already holds run") as caught:
        build(place, "other")
    assert "--append" in str(caught.value.hint)
    assert holds(place, WHOLE.until_epoch(0))


def test_replace(place: Path) -> None:
    build(place, "whole")
    build(place, "other", "replace")
    assert holds(place, OTHER)
    build(place, "whole", "replace")
    assert holds(place, WHOLE)
    assert not leftovers(place)


def test_other_peoples_folders_are_left_alone(place: Path) -> None:
    (place / "store").mkdir()
    (place / "store" / "thesis.tex").touch()
    for mode in ("error", "append", "replace"):
        with pytest.raises(StoreExistsError, match=r"is not a store: it holds thesis\.tex"):
            build(place, "trace-0", mode)
    assert [path.name for path in (place / "store").iterdir()] == ["thesis.tex"]


def test_a_file_is_no_place_for_a_store(place: Path) -> None:
    (place / "store").touch()
    with pytest.raises(StoreExistsError, match="is not a store"):
        build(place, "trace-0")


# --- Reading --------------------------------------------------------------------------------------------------------


def test_there_is_no_store(place: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no program activity graph") as caught:
        api.open(place / "nowhere")
    assert "pag build TRACE STORE" in str(caught.value.hint)
    with pytest.raises(StoreNotFoundError) as caught:
        api.open(place / "trace-0")
    assert "This is a trace" in str(caught.value.hint)


def test_another_version_of_the_store(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (commit, delta):
        monkeypatch.setattr(module, "STORE_FORMAT_VERSION", 7)
    build(place, "trace-0")
    monkeypatch.undo()
    with pytest.raises(FormatVersionError, match="version 7; this release reads version 2"):
        api.open(place / "store")


def test_a_foreign_table_of_epochs(place: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(place / "store" / "epochs", pa.table({"a": [1]}))
    with pytest.raises(StoreError, match="did not write"):
        build(place, "trace-0", "replace")


def test_a_reader_sees_one_state_while_another_is_written(place: Path) -> None:
    build(place, "trace-0")
    pag = api.open(place / "store")
    build(place, "trace-2", "append")
    assert pag.epochs.height == 1 + 1
    assert pag.vertices().collect().height == len(build_reference(WHOLE.until_epoch(0)).vertices)


def test_a_slice_may_fill_several_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "_FILE_ROWS", 7)
    info = build(place, "whole").store
    for name, key in (("vertices", "id"), ("edges", "dst")):
        files = [pq.read_table(file) for file in info.files(name)]
        assert len(files) > 1
        assert all(0 < file.num_rows < 2 * 7 for file in files)
        for file in files:
            rows = list(zip(*(file[column].to_pylist() for column in ("epoch", key)), strict=True))
            assert rows == sorted(rows)
    assert holds(place, WHOLE)
    build(place, "whole", "replace")
    assert holds(place, WHOLE)


def test_the_commit_says_where_it_came_from(place: Path) -> None:
    info = build(place, "whole").store
    assert info.run["trace_id"] == "small"
    assert info.run["rules"] == "timely"
    assert info.run["parameters"] == {
        "busy_below_ns": 5_000,
        "clocks": "auto",
        "horizon_ns": 5_000_000_000,
        "level": 0,
    }
    assert (info.events, info.closed_epochs, info.run["workers"]) == (WHOLE.rows, 3, 3)
    assert json.dumps(delta.describe(info))


# --- Builds that end early ------------------------------------------------------------------------------------------

# Where a build writes (or, at first, reads), and how often: it is interrupted before the write, or right after it.
INTERRUPTS = [
    (scan, "check_order", 0, False),
    # Files of vertices and edges, and those of the small tables.
    *((sink, "write_part", at, False) for at in (0, 1)),
    *((commits, "write_part", at, False) for at in (0, 2)),
    (commits, "write_state", 0, False),
    (commits, "write_state", 0, True),
    *((commit, "_commit_table", at, False) for at in range(3)),
    (commit, "_commit_table", 2, True),
    (commit, "_publish", 0, False),
    (commit, "_publish", 0, True),
]
# An append leaves tables alone that did not change; what was empty and stays so nobody writes.
ONLY_REPLACED = [
    (commits, "write_part", 4, False),
    (commit, "_commit_table", 3, False),
    (commit, "_commit_table", 3, True),
]


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("mode", "module", "name", "at", "after"),
    [
        *(("append", *place) for place in INTERRUPTS),
        *(("replace", *place) for place in (*INTERRUPTS, *ONLY_REPLACED)),
    ],
)
def test_a_build_that_fails_leaves_the_old_state_or_the_new_one(
    place: Path, monkeypatch: pytest.MonkeyPatch, *, mode: str, module: ModuleType, name: str, at: int, after: bool
) -> None:
    old, new = WHOLE.until_epoch(0), WHOLE
    build(place, "trace-0")
    reached = []
    real: Callable[..., Any] = getattr(module, name)

    def interrupted(*arguments: Any, **more: Any) -> Any:
        reached.append(name)
        last = len(reached) == at + 1
        if last and not after:
            raise KeyboardInterrupt
        result = real(*arguments, **more)
        if last:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(place, "whole", mode)
    monkeypatch.undo()
    assert holds(place, new if after and name == "_publish" else old)
    assert not leftovers(place)
    build(place, "whole", mode)
    assert holds(place, new)


KILLED = """
import os, signal, sys
from pag_graph import api
from pag_graph.store import commit
from pag_graph.builder import build

trace, store, mode, name, at = sys.argv[1:]
module = build if name == "write_part" else commit
real, reached = getattr(module, name), []

def killed(*arguments, **more):
    reached.append(name)
    if len(reached) == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **more)

setattr(module, name, killed)
api.build(trace, store, mode=mode, engine="local")
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("mode", "name", "at"),
    [
        ("error", "_publish", 1),
        ("append", "_commit_table", 2),
        ("replace", "_commit_table", 4),
    ],
)
def test_a_build_that_is_killed_leaves_the_old_state(place: Path, mode: str, name: str, at: int) -> None:
    old = WHOLE.until_epoch(0)
    if mode != "error":
        build(place, "trace-0")
    arguments = [sys.executable, "-c", KILLED, str(place / "whole"), str(place / "store"), mode, name, str(at)]
    ended = subprocess.run(arguments, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    if mode == "error":
        with pytest.raises(StoreNotFoundError):
            api.open(place / "store")
    else:
        assert holds(place, old)
    build(place, "whole", mode)
    assert holds(place, WHOLE)


def test_a_full_disk_is_a_typed_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(StoreError, match="No space left"):
        build(place, "trace-0")
    monkeypatch.undo()
    with pytest.raises(StoreNotFoundError):
        api.open(place / "store")
    build(place, "trace-0")
    assert holds(place, WHOLE.until_epoch(0))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written_is_a_typed_error(place: Path) -> None:
    (place / "store").mkdir(mode=0o500)
    with pytest.raises(StoreError):
        build(place, "trace-0")


# --- Two builds at once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["vertices", "edges", "epochs"])
@pytest.mark.parametrize("mode", ["error", "append", "replace"])
def test_of_two_builds_at_once_one_gets_an_error(
    place: Path, monkeypatch: pytest.MonkeyPatch, mode: str, table: str
) -> None:
    """A second build starts and ends when the first is about to commit `table`."""
    if mode != "error":
        build(place, "trace-0")
    step = "_publish" if table == "epochs" else "_commit_table"
    real = getattr(commit, step)
    came: list[str] = []

    def overtaken(directory: Path, *arguments: Any) -> Any:
        if directory.name == table and not came:
            came.append(table)
            build(place, "trace-1", mode)
        return real(directory, *arguments)

    monkeypatch.setattr(commit, step, overtaken)
    with pytest.raises(StoreConflictError, match="Another build committed") as caught:
        build(place, "whole", mode)
    assert caught.value.hint
    assert holds(place, WHOLE.until_epoch(1))
    assert not leftovers(place)
    build(place, "whole", "append" if mode == "error" else mode)
    assert holds(place, WHOLE)


def test_processes_that_build_at_once(place: Path) -> None:
    code = (
        "import sys\nfrom pag_graph import api\nfrom pag_graph.errors import StoreError\n"
        "try: api.build(sys.argv[1], sys.argv[2], engine='local', mode='replace')\n"
        "except StoreError as error: sys.exit(7)\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, place / name, place / "store"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for name in ("whole", "other")
    ]
    ended = [(process.communicate(timeout=120)[1], process.returncode) for process in running]
    codes = [code for _, code in ended]
    assert set(codes) <= {0, 7}, ended
    assert 0 in codes
    # Whoever committed last is there, whole.
    assert holds(place, WHOLE) or holds(place, OTHER)
    if 7 in codes:
        assert holds(place, (WHOLE, OTHER)[codes.index(0)])


def test_tables_are_pinned_to_the_versions_of_one_commit(place: Path) -> None:
    build(place, "trace-0")
    build(place, "whole", "append")
    info = delta.open_store(place / "store")
    assert set(info.versions) == set(STORE_TABLES)
    for name, version in info.versions.items():
        table = DeltaTable(place / "store" / name)
        assert table.version() == version
        assert sorted(Path(file).name for file in info.files(name)) == sorted(
            table.get_add_actions(flatten=True)["path"].to_pylist()
        )
        assert pl.scan_delta(table).collect().height == info.scan(name).collect().height
