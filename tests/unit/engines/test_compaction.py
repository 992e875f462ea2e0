"""Small files of a store that is followed become large ones, and nobody who asks can tell."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.api.standing import standings
from pag_graph.engines.following import Following
from pag_graph.errors import StoreError
from pag_graph.model.tables import PAG_EDGES
from pag_graph.store import compaction, parts
from pag_graph.store.check import check_store
from pag_graph.store.compaction import FILES, LARGE_BYTES, LARGE_ROWS, MOST_ROWS, TABLES, Compaction, due
from pag_graph.store.delta import open_store
from pag_graph.store.history import commits
from pag_graph.store.parts import PartFile
from tests.support.compare import committed, differences
from tests.support.growing import GrowingTrace, rounds
from tests.support.standing_sums import check_sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pag_graph.engines.following import Progress
    from pag_graph.graph.following import Committed

QUERIES = ("critical-path", "metrics", "totals", "invariants")
ROUNDS = 400 if os.environ.get("PAG_PROVE") == "1" else 20


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three files become one, and at once: the commit after the one that made the third swaps them."""
    monkeypatch.setattr(compaction, "FILES", 3)
    ready = Compaction.ready
    monkeypatch.setattr(Compaction, "ready", lambda self, *, wait=True: ready(self, wait=wait))


class Rounds(Event):
    """Writes an epoch whenever the follower has looked."""

    def __init__(self, growing: GrowingTrace, epochs: range, *, finish: bool) -> None:
        super().__init__()
        self._growing, self._epochs, self._finish = growing, iter(epochs), finish

    def wait(self, timeout: float | None = None) -> bool:
        """Write the next epoch; after the last one nothing more comes."""
        del timeout
        if (epoch := next(self._epochs, None)) is not None:
            self._growing.write_until(epoch)
        elif self._finish:
            self._growing.finish()
        else:
            self.set()
        return self.is_set()


def part(number: int, rows: int, size_bytes: int = 1) -> PartFile:
    return PartFile(path=f"part-{number}", size_bytes=size_bytes, rows=rows, statistics="{}")


def follow(growing: GrowingTrace, store: Path, epochs: range, *, finish: bool) -> Iterator[Committed]:
    stop = Rounds(growing, epochs, finish=finish)
    return Following(growing.path, store, commit_every_s=0, stop=stop, derive=standings(QUERIES, ())).commits()


@pytest.mark.usefixtures("few")
def test_a_store_of_few_files_is_the_same_store(tmp_path: Path) -> None:
    growing, store = GrowingTrace(rounds(ROUNDS), tmp_path / "trace"), tmp_path / "store"
    closed: dict[int, list[tuple[object, ...]]] = {}
    most: Counter[str] = Counter()
    half = ROUNDS // 2
    # One follower ends, and another one goes on.
    for epochs, finish in ((range(half), False), (range(half, ROUNDS), True)):
        for commit in follow(growing, store, epochs, finish=finish):
            info = commit.run.info
            most |= Counter({name: len(info.parts(name)) for name in TABLES})
            rows = info.scan("edges").filter(pl.col("epoch") <= max(commit.closed)).collect()
            for epoch, shown in closed.items():
                assert sorted(rows.filter(pl.col("epoch") == epoch).rows()) == shown
            closed |= {epoch: sorted(rows.filter(pl.col("epoch") == epoch).rows()) for epoch in commit.closed}
            if commit.version == half:
                check_sums(store, QUERIES)
    api.build(growing.path, tmp_path / "once", engine="local")
    assert differences(committed(store), committed(tmp_path / "once")) == ""
    check_sums(store, QUERIES)
    assert max(most[name] for name in TABLES) <= 16
    assert len(commits(open_store(store))) > ROUNDS - 4
    info = open_store(store)
    assert not check_store(info).damaged
    for name in TABLES:
        assert sorted(DeltaTable(store / name).file_uris()) == sorted(
            str(store / name / file.path) for file in info.parts(name)
        )
    check_log(store / "edges")


def check_log(table: Path) -> None:
    """Each file that is swapped says that no data changed, and each row is written four times at most."""
    swapped, rows, written = 0, {}, 0
    for file in sorted((table / "_delta_log").glob("*.json")):
        actions = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        adds = [action["add"] for action in actions if "add" in action]
        removes = [action["remove"] for action in actions if "remove" in action]
        came = [add for add in adds if not add["dataChange"]]
        gone = [remove for remove in removes if not remove["dataChange"]]
        assert bool(came) == bool(gone)
        count = {add["path"]: orjson.loads(add["stats"])["numRecords"] for add in adds}
        assert sum(count[add["path"]] for add in came) == sum(rows[remove["path"]] for remove in gone)
        rows |= count
        swapped += len(came)
        written += sum(count.values())
    assert swapped > 3
    assert written <= 8 * sum(row for path, row in rows.items() if path in live_files(table))


def live_files(table: Path) -> set[str]:
    return {Path(uri).name for uri in DeltaTable(table).file_uris()}


def test_when_files_are_due() -> None:
    small = [part(number, 5) for number in range(FILES)]
    assert due(small[1:]) == []
    assert due(small) == small
    # Classes are apart, and the oldest come first.
    mixed = [*small[:20], part(90, 40), *small[20:]]
    assert due(mixed) == small
    # Large files are joined up to the limit, and stay then.
    fit = MOST_ROWS // (LARGE_ROWS - 1)
    large = [part(number, LARGE_ROWS - 1) for number in range(fit + 1)]
    assert due(large) == large[:fit]
    assert due([part(number, LARGE_ROWS) for number in range(100)]) == []
    # So do files of many bytes, whatever their rows.
    heavy = [part(100 + number, 5, LARGE_BYTES) for number in range(100)]
    assert due(heavy) == []
    assert due([*heavy, *small]) == small


@pytest.mark.parametrize("rows", [1, 7, 1000, 60_000])
def test_rows_are_written_four_times_at_most_and_files_stay_few(rows: int) -> None:
    files: list[PartFile] = []
    written, most = 0, 0
    for number in range(4000):
        files.append(part(number, rows))
        while chosen := due(files):
            total = sum(file.rows for file in chosen)
            files = [file for file in files if file not in chosen]
            files.append(part(10_000 + written, total))
            written += total
        most = max(most, len([file for file in files if file.rows < LARGE_ROWS]))
    assert written <= 4 * 4000 * rows
    assert most <= 4 * FILES


def nothing_left(store: Path) -> None:
    """See that no file is there that no commit has named."""
    for name in ("edges", "epochs"):
        logged = {
            orjson.loads(line)["add"]["path"]
            for file in (store / name / "_delta_log").glob("*.json")
            for line in file.read_bytes().splitlines()
            if b'"add"' in line[:8]
        }
        assert {path.name for path in (store / name).glob("*.parquet")} == logged


@pytest.mark.usefixtures("few")
def test_files_that_were_joined_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr(parts, "_known", checked)
    growing, store, seen = GrowingTrace(rounds(20), tmp_path / "trace"), tmp_path / "store", set[str]()
    for commit in follow(growing, store, range(20), finish=True):
        info = commit.run.info
        there = {str(store / name / file.path) for name in info.versions for file in info.parts(name)}
        # One that was written for this commit, and not by it, may have been looked at.
        assert len({path for path in checked if path.startswith(str(store))} - there) <= 1
        seen |= set(checked)
    assert len(seen - there) > 10


def edges_of(rows: list[tuple[int, int, str, int | None]]) -> pa.Table:
    """Edges of some epochs to some vertices; their other columns are 0 where they may not be null."""
    epoch, dst, kind, records = zip(*rows, strict=True)
    known = {"epoch": epoch, "dst": dst, "type": kind, "records": records}
    zeros = [0] * len(rows)
    columns = {
        field.name: known.get(field.name, [None] * len(rows) if field.nullable else zeros) for field in PAG_EDGES
    }
    return pa.table(columns, PAG_EDGES)


EDGES = st.tuples(
    st.integers(0, 3), st.integers(0, 5), st.sampled_from(["busy", "waiting", "program"]), st.none() | st.integers(0, 9)
)


@given(st.lists(st.lists(EDGES, min_size=1, max_size=12), min_size=1, max_size=5), st.integers(1, 9))
def test_rows_of_a_joined_file_are_sorted_and_those_that_tie_stay_in_order(
    files: list[list[tuple[int, int, str, int | None]]], group: int
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for module in (compaction, parts):
            patch.setattr(module, "ROW_GROUP", group)
        store = Path(folder)
        written = [parts.write_part(store, "edges", edges_of(rows)) for rows in files]
        swap = compaction.join(store, "edges", [file for file in written if file is not None])
        (joined,) = swap.added
        all_rows = edges_of([row for rows in files for row in rows])
        expected = pl.DataFrame(pl.from_arrow(all_rows)).sort("epoch", "dst", maintain_order=True)
        assert pl.read_parquet(store / "edges" / joined.path).equals(expected)
        whole = parts.write_part(store, "edges", all_rows)
        assert whole is not None
        assert (joined.rows, json.loads(joined.statistics)) == (whole.rows, json.loads(whole.statistics))
        rows_of_groups = pq.ParquetFile(store / "edges" / joined.path).metadata
        assert rows_of_groups.num_row_groups == -(-joined.rows // group)


def test_files_of_earlier_releases_may_lack_an_optional_column(tmp_path: Path) -> None:
    rows = edges_of([(0, 1, "busy", 3)])
    (tmp_path / "edges").mkdir()
    pq.write_table(rows.drop_columns(["records"]), tmp_path / "edges" / "part-0")
    old = part(0, 1, (tmp_path / "edges" / "part-0").stat().st_size)
    new = parts.write_part(tmp_path, "edges", edges_of([(1, 2, "waiting", 4)]))
    assert new is not None
    (joined,) = compaction.join(tmp_path, "edges", [old, new]).added
    expected = edges_of([(0, 1, "busy", None), (1, 2, "waiting", 4)])
    assert pl.read_parquet(tmp_path / "edges" / joined.path).equals(pl.DataFrame(pl.from_arrow(expected)))


def test_files_that_follow_each_other_are_not_all_in_memory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 2_000
    for module in (compaction, parts):
        monkeypatch.setattr(module, "ROW_GROUP", rows)
    # Each begins in the last epoch of the one before.
    tables = [edges_of([(number + (row > rows // 2), row, "busy", row) for row in range(rows)]) for number in range(32)]
    files = [file for table in tables if (file := parts.write_part(tmp_path, "edges", table)) is not None]
    one_file, held, before = tables[0].nbytes, list[int](), pa.total_allocated_bytes()
    write = compaction.write_portions

    def watched(store: Path, table: str, portions: Iterable[pa.Table]) -> PartFile | None:
        return write(store, table, (held.append(pa.total_allocated_bytes() - before) or each for each in portions))

    monkeypatch.setattr(compaction, "write_portions", watched)
    compaction.join(tmp_path, "edges", files)
    assert len(held) == 32
    assert max(held) < 8 * one_file


@pytest.mark.usefixtures("few")
def test_what_cannot_be_joined_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing, store = GrowingTrace(rounds(9), tmp_path / "trace"), tmp_path / "store"
    write, refusals = compaction.write_portions, [True, False]

    def sometimes(*arguments: object) -> object:
        if refusals and refusals.pop(0):
            message = "There is no room."
            raise StoreError(message)
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction, "write_portions", sometimes)
    list(follow(growing, store, range(9), finish=True))
    assert not refusals
    api.build(growing.path, tmp_path / "once", engine="local")
    assert differences(committed(store), committed(tmp_path / "once")) == ""
    assert len(open_store(store).parts("edges")) < 8
    nothing_left(store)


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError])
@pytest.mark.parametrize("step", ["write_portions", "_row_groups"])
def test_a_follower_goes_on_without_the_memory_to_join_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[MemoryError]
) -> None:
    growing, store = GrowingTrace(rounds(9), tmp_path / "trace"), tmp_path / "store"
    work, refusals = getattr(compaction, step), [False, True, True]

    def sometimes(*arguments: object, **options: object) -> object:
        if refusals and refusals.pop(0):
            raise error
        return work(*arguments, **options)

    monkeypatch.setattr(compaction, step, sometimes)
    told: list[Progress] = []
    following = Following(
        growing.path, store, commit_every_s=0, stop=Rounds(growing, range(9), finish=True), tell=told.append
    )
    report = following.run()
    assert not refusals
    assert (report.complete, report.unjoined) == (True, None)
    said = {now.unjoined for now in told}
    assert None in said
    assert any(text is not None and "more memory than there is" in text for text in said)
    assert len(open_store(store).parts("edges")) < 8
    assert check_store(open_store(store)).damaged == []
    nothing_left(store)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("count", [7, 8])
def test_nothing_is_joined_that_no_commit_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    growing, store, joined = GrowingTrace(rounds(count), tmp_path / "trace"), tmp_path / "store", set[str]()
    join = compaction.join

    def noted(store: Path, table: str, parts: list[PartFile]) -> compaction.Swap:
        swap = join(store, table, parts)
        joined.add(swap.added[0].path)
        return swap

    monkeypatch.setattr(compaction, "join", noted)
    list(follow(growing, store, range(count), finish=True))
    logged = {
        orjson.loads(line)["add"]["path"]
        for file in store.glob("*/_delta_log/*.json")
        for line in file.read_bytes().splitlines()
        if b'"add"' in line[:8]
    }
    assert joined
    assert joined <= logged


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.engines.test_compaction import *
from pag_graph.store import commit

point, count, place = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
compaction.FILES = 3
ready = Compaction.ready
Compaction.ready = lambda self, *, wait=True: ready(self, wait=wait)
owner = commit if point == "write_version" else compaction
original, left = getattr(owner, point), [count]

def act(*arguments, **options):
    result = original(*arguments, **options)
    # Only what comes with files that are swapped counts.
    left[0] -= owner is compaction or bool(options["moved"])
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owner, point, act)
growing = GrowingTrace(rounds(8), place / "trace")
list(follow(growing, place / "store", range(8), finish=True))
"""


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("count", [2] if ROUNDS < 100 else range(1, 11))
@pytest.mark.parametrize("point", ["join", "write_version"])
def test_who_is_killed_while_files_are_joined_loses_nothing(tmp_path: Path, point: str, count: int) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, point, str(count), str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    store = tmp_path / "store"
    shutil.rmtree(tmp_path / "trace")
    growing = GrowingTrace(rounds(8), tmp_path / "trace")
    growing.finish()
    list(follow(growing, store, range(0), finish=True))
    api.build(growing.path, tmp_path / "once", engine="local")
    assert differences(committed(store), committed(tmp_path / "once")) == ""
    check_sums(store, QUERIES)
    assert not check_store(open_store(store)).damaged
