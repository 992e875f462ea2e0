"""What comes in portions: from several processes, with gaps, and into the hands of one who is killed."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph.errors import StoreError, TraceFormatError
from pag_graph.store import lanes
from pag_graph.store import spool as spooling
from pag_graph.store.meta import read_meta
from pag_graph.store.spool import Spool
from pag_graph.store.trace import Trace
from tests.support.growing import rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Trace:
    """A trace of six rounds on two workers, whose format leaves no gaps."""
    path = rounds(6).write(tmp_path / "source")
    meta = json.loads((path / "meta.json").read_text())
    meta["source"]["format"] = "pag-timely"
    (path / "meta.json").write_text(json.dumps(meta))
    (path / "checksums.json").unlink()
    return Trace.open(path)


def described(source: Trace) -> dict[str, bytes]:
    names = ("meta.json", "operators.parquet", "channels.parquet", "workers.parquet")
    return {name: (source.path / name).read_bytes() for name in names}


def last_of(source: Trace, worker: int) -> int:
    return int(source.events(["seq"], [worker])["seq"][-1].as_py())


class Portion(NamedTuple):
    """A file of events."""

    first: int
    content: bytes


def part(source: Trace, folder: Path, worker: int, rows: slice) -> Portion:
    """Return a file of some rows of a worker."""
    table = source.events(workers=[worker])
    table = table.take(list(range(*rows.indices(table.num_rows))))
    pq.write_table(table, folder / "part.parquet")
    return Portion(table["seq"][0].as_py(), (folder / "part.parquet").read_bytes())


def hand_over(source: Trace, root: Path, folder: Path, workers: tuple[int, ...] = (0, 1)) -> None:
    """Do what a recorder does that was cut off and comes again: go on where the spool is."""
    spool = Spool(root)
    following = spool.join(source.meta.trace_id, 0, 1, workers)
    spool.describe(0, described(source))
    for begin in range(0, 48, 8):
        for worker in workers:
            rows = slice(begin, begin + 8)
            if begin <= last_of(source, worker):
                portion = part(source, folder, worker, rows)
                if portion.first + 8 > following[worker]:
                    spool.add(0, worker, portion.first, 1, portion.content)
    for worker in workers:
        spool.end(0, worker, last_of(source, worker), finished=True)
    spool.close()


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError])
@pytest.mark.parametrize("step", ["read_groups", "write_row_groups"])
def test_without_the_memory_to_join_files_there_are_more_of_them(
    tmp_path: Path, source: Trace, monkeypatch: pytest.MonkeyPatch, step: str, error: type[MemoryError]
) -> None:
    hand_over(source, tmp_path / "joined", tmp_path)
    work, refusals = getattr(spooling, step), [True]

    def sometimes(*arguments: Any, **options: Any) -> Any:
        if refusals and refusals.pop():
            if error is MemoryError:
                raise error
            # As where such a file is read.
            message = "There is not enough memory."
            raise TraceFormatError(message) from error()
        return work(*arguments, **options)

    monkeypatch.setattr(spooling, step, sometimes)
    hand_over(source, tmp_path / "spool", tmp_path)
    assert not refusals
    trace, joined = Trace.open(tmp_path / "spool"), Trace.open(tmp_path / "joined")
    assert trace.events().equals(source.events())
    assert len(trace.files) == len(joined.files) + 1
    assert not list((tmp_path / "spool/events").glob("*.incoming"))


def test_a_portion_for_which_memory_lacks_may_come_again(
    tmp_path: Path, source: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_arguments: Any, **_options: Any) -> NoReturn:
        raise MemoryError

    spool = Spool(tmp_path / "spool")
    spool.join(source.meta.trace_id, 0, 1, (0, 1))
    spool.describe(0, described(source))
    portion = part(source, tmp_path, 0, slice(8))
    with monkeypatch.context() as without:
        without.setattr(spooling, "read_events", never)
        with pytest.raises(StoreError, match="more memory than there is"):
            spool.add(0, 0, portion.first, 1, portion.content)
    assert spool.add(0, 0, portion.first, 1, portion.content) == 0
    spool.close()
    assert Trace.open(tmp_path / "spool").rows == 8


def test_two_processes_make_one_trace(tmp_path: Path, source: Trace) -> None:
    root = tmp_path / "spool"
    spool = Spool(root)
    for process in (0, 1):
        assert spool.join(source.meta.trace_id, process, 2, [process]) == {process: 0}
        spool.describe(process, described(source))
    for worker in (0, 1):
        spool.add(worker, worker, 0, 1, part(source, tmp_path, worker, slice(0, 99)).content)
        assert not read_meta(root / "meta.json").complete
        spool.end(worker, worker, last_of(source, worker), finished=True)
    spool.close()
    received = Trace.open(root)
    assert received.events().equals(source.events())
    assert received.meta == source.meta
    assert (received.operators, received.channels) == (source.operators, source.channels)


def test_small_portions_share_a_file_whose_row_groups_stay_where_they_are(
    tmp_path: Path, source: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "JOINED_ROWS", 10)
    root = tmp_path / "spool"
    spool = Spool(root)
    spool.join(source.meta.trace_id, 0, 1, [0, 1])
    spool.describe(0, described(source))
    known: list[tuple[str, int, list[object]]] = []
    for begin in range(0, 20, 4):
        portion = part(source, tmp_path, 0, slice(begin, begin + 4))
        spool.add(0, 0, portion.first, begin + 1, portion.content)
        now = [
            (file.name, group, pq.ParquetFile(file).read_row_group(group)["seq"].to_pylist())
            for file in sorted((root / "events").iterdir())
            for group in range(pq.ParquetFile(file).num_row_groups)
        ]
        assert now[: len(known)] == known
        assert len(now) == len(known) + 1
        known = now
    assert [(name[-10:], group) for name, group, _ in known] == [
        ("00.parquet", 0),
        ("00.parquet", 1),
        ("01.parquet", 0),
        ("01.parquet", 1),
        ("02.parquet", 0),
    ]
    assert [file.stat().st_mtime_ns for file in sorted((root / "events").iterdir())] == [5, 13, 17]
    spool.close()
    # Who goes on with a spool begins a new file.
    spool = Spool(root)
    portion = part(source, tmp_path, 0, slice(20, 24))
    spool.join(source.meta.trace_id, 0, 1, [0, 1])
    spool.add(0, 0, portion.first, 50, portion.content)
    assert len(list((root / "events").iterdir())) == 4
    spool.close()
    assert Trace.open(root).events(workers=[0]).equals(source.events(workers=[0]).slice(0, 24))


def test_a_trace_whose_program_was_cut_short_is_not_complete(tmp_path: Path, source: Trace) -> None:
    spool = Spool(tmp_path / "spool")
    spool.join(source.meta.trace_id, 0, 1, [0, 1])
    spool.describe(0, described(source))
    for worker in (0, 1):
        spool.add(0, worker, 0, 1, part(source, tmp_path, worker, slice(0, 99)).content)
        spool.end(0, worker, last_of(source, worker), finished=False)
    spool.close()
    assert not read_meta(tmp_path / "spool" / "meta.json").complete


def test_what_is_lost_is_listed_and_what_is_missing_is_refused(tmp_path: Path, source: Trace) -> None:
    spool = Spool(tmp_path / "spool")
    spool.join(source.meta.trace_id, 0, 1, [0, 1])
    spool.describe(0, described(source))
    spool.add(0, 0, 0, 1, part(source, tmp_path, 0, slice(0, 5)).content)
    first, content = part(source, tmp_path, 0, slice(8, 99, 2))
    with pytest.raises(TraceFormatError, match="Events 5 to 7 of worker 0 did not come"):
        spool.add(0, 0, first, 1, content)
    spool.lose(0, 0, [(5, 7)])
    assert spool.state(0)[0][0] == 8
    with pytest.raises(TraceFormatError, match="Events 9 to 9 of worker 0 did not come"):
        spool.add(0, 0, first, 1, content)
    last = last_of(source, 0)
    spool.lose(0, 0, [(seq, seq) for seq in range(9, last + 1, 2)])
    spool.add(0, 0, first, 1, content)
    assert spool.state(0)[0] == {0: last + 1, 1: 0}
    spool.close()
    # Another one knows the same.
    again = Spool(tmp_path / "spool")
    assert again.state(0)[0] == {0: last + 1, 1: 0}
    again.close()
    lost = json.loads((tmp_path / "spool" / "meta.json").read_text())["lost"]
    assert lost[:2] == [[0, 5, 7], [0, 9, 9]]
    there = set(Trace.open(tmp_path / "spool").events(["seq"])["seq"].to_pylist())
    missing = {seq for _, low, high in lost for seq in range(low, high + 1)}
    assert there | missing == set(range(last + 1))
    assert not there & missing


def test_a_folder_of_something_else_is_no_spool(source: Trace) -> None:
    with pytest.raises(StoreError, match="not a spool"):
        Spool(source.path)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _points() -> Iterator[tuple[str, Callable[[pytest.MonkeyPatch, int], None]]]:
    """Name what happens to files, so that somebody can be killed before or after the n-th time."""
    from pathlib import Path

    for name in ("replace", "rename", "write_bytes"):
        for before in (True, False):

            def prepare(patch: pytest.MonkeyPatch, count: int, name: str = name, before: bool = before) -> None:  # noqa: FBT001
                left, original = [count], getattr(Path, name)

                def act(self: Path, *arguments: object) -> object:
                    left[0] -= 1
                    if left[0] == 0 and before:
                        _kill()
                    result = original(self, *arguments)
                    if left[0] == 0:
                        _kill()
                    return result

                patch.setattr(Path, name, act)

            yield f"{'before' if before else 'after'} {name}", prepare


@pytest.mark.sampled(8)
@pytest.mark.parametrize("prepare", [pytest.param(prepare, id=name) for name, prepare in _points()])
@pytest.mark.parametrize("count", [1, 2, 5, 9] if not os.environ.get("PAG_PROVE") else range(1, 30))
def test_who_is_killed_has_lost_and_doubled_nothing(
    tmp_path: Path, source: Trace, prepare: Callable[[pytest.MonkeyPatch, int], None], count: int
) -> None:
    root = tmp_path / "spool"
    if not (child := os.fork()):
        with pytest.MonkeyPatch.context() as patch:
            prepare(patch, count)
            try:
                hand_over(source, root, tmp_path)
            finally:
                os._exit(0)
    os.waitpid(child, 0)
    hand_over(source, root, tmp_path)
    received = Trace.open(root)
    assert received.events().equals(source.events())
    assert received.meta == source.meta
    assert not [path for path in root.rglob("*") if path.suffix in {".incoming", ".old"}]


def test_what_does_not_fit_the_disk_is_not_there(
    tmp_path: Path, source: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool")
    spool.join(source.meta.trace_id, 0, 1, [0, 1])
    spool.describe(0, described(source))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    first, content = part(source, tmp_path, 0, slice(0, 5))
    with monkeypatch.context() as patch:
        patch.setattr(spooling.os, "utime", full)
        with pytest.raises(StoreError, match="No space left"):
            spool.add(0, 0, first, 1, content)
    assert not list((tmp_path / "spool" / "events").iterdir())
    assert spool.add(0, 0, first, 1, content) == 0
    spool.close()
