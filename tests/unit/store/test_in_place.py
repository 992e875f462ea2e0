"""Files and folders come to their place whole or not at all, and what killed writers left goes with the next one."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph.errors import SinkError, StoreError, StoreExistsError
from pag_graph.store import held, in_place
from pag_graph.store.in_place import clean_beside, whole_file, whole_folder, write_whole
from pag_graph.store.trace import Trace, check_trace_place
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    KillAt = Callable[[int, Callable[[], object]], bool]

OLD, NEW = draw("0 start 1 | 5 stop 1 | 9 end"), draw("0 start 1 | 5 stop 1 | 7 start 2 | 9 end")
STEPS = range(100)


@contextmanager
def full_after(size: int) -> Iterator[None]:
    """Let no file become larger than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def replace(target: Path, *, exist: bool = True) -> None:
    NEW.write(target, replace=exist)


@pytest.fixture(params=["exchange", "two renames"])
def renames(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "two renames":
        monkeypatch.setattr(in_place, "_renameat2", lambda: None)


# --- Folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("renames")
def test_a_trace_that_is_replaced_is_there_whenever_the_writer_is_killed(tmp_path: Path, kill_at: KillAt) -> None:
    target = tmp_path / "run.trace"
    for step in STEPS:
        OLD.write(target, replace=True)
        if not kill_at(step, lambda: replace(target)):
            break
        assert Trace.open(target).rows in {OLD.rows, NEW.rows}
        replace(target)
        assert Trace.open(target).rows == NEW.rows
        assert [path.name for path in tmp_path.iterdir()] == ["run.trace"]
    assert 10 < step < STEPS[-1]


def test_where_names_can_be_exchanged_there_is_a_trace_at_every_moment(tmp_path: Path, kill_at: KillAt) -> None:
    target = tmp_path / "run.trace"
    for step in STEPS:
        OLD.write(target, replace=True)
        if not kill_at(step, lambda: replace(target)):
            break
        # Not even opened, which would put it back.
        assert (target / "meta.json").is_file()
        assert not list(tmp_path.glob(".*.old"))


def test_a_first_trace_is_there_whole_or_not_at_all(tmp_path: Path, kill_at: KillAt) -> None:
    for step in STEPS:
        folder = tmp_path / str(step)
        if not kill_at(step, partial(replace, folder / "trace", exist=False)):
            break
        if (folder / "trace").exists():
            assert Trace.open(folder / "trace").rows == NEW.rows
        replace(folder / "trace")
        assert [path.name for path in folder.iterdir()] == ["trace"]


KILLED = """
import os, signal, sys
from pathlib import Path
from pag_graph.store import in_place
from pag_graph.store.in_place import whole_folder

target, before = Path(sys.argv[1]), sys.argv[2] == "before"
real = os.rename
in_place._renameat2 = lambda: None

def killed(*names, **more):
    if before:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*names, **more)
    os.kill(os.getpid(), signal.SIGKILL)

with whole_folder(target) as folder:
    (folder / "file").write_text("new")
    os.rename = killed
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_lets_go_of_what_it_held(tmp_path: Path, when: str) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "file").write_text("old", encoding="utf-8")
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "place"), when]
    ended = subprocess.run(arguments, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert (tmp_path / "place").exists() == (when == "before")
    assert len(clean_beside(tmp_path / "place")) == 1
    assert (tmp_path / "place" / "file").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_what_a_living_writer_has_beside_a_place_stays(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "place") as one:
        (one / "file").write_text("one", encoding="utf-8")
        assert not clean_beside(tmp_path / "place")
        with whole_folder(tmp_path / "place") as other:
            (other / "file").write_text("other", encoding="utf-8")
        assert (tmp_path / "place" / "file").read_text(encoding="utf-8") == "other"
    assert (tmp_path / "place" / "file").read_text(encoding="utf-8") == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


@pytest.mark.parametrize("still_there", [True, False])
def test_what_earlier_releases_left_is_put_back_or_removed(tmp_path: Path, *, still_there: bool) -> None:
    OLD.write(tmp_path / f".t.{'0' * 32}.old")
    OLD.write(tmp_path / f".t.{'1' * 32}.tmp")
    if still_there:
        NEW.write(tmp_path / "new").rename(tmp_path / "t")
    else:
        assert Trace.open(tmp_path / "t").rows == OLD.rows
        with pytest.raises(StoreExistsError):
            NEW.write(tmp_path / "t")
    replace(tmp_path / "t")
    assert Trace.open(tmp_path / "t").rows == NEW.rows
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_other_files_are_nobodys_leftovers(tmp_path: Path) -> None:
    names = [".t.tmp", f".t.{'0' * 31}.tmp", f".tt.{'0' * 32}.tmp", f"t.{'0' * 32}.old", f".t.{'g' * 32}.tmp"]
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / f".t.{'0' * 32}.tmp").symlink_to(tmp_path / names[0])
    OLD.write(tmp_path / "t")
    assert len([*tmp_path.iterdir()]) == len(names) + 2


def test_parts_of_a_folder_that_holds_more_come_in_together(tmp_path: Path, kill_at: KillAt) -> None:
    """The last part is absent as long as another one is new."""

    def write(text: str) -> None:
        with whole_folder(place, parts=("a", "b")) as folder:
            for name in ("a", "b"):
                (folder / name).mkdir()
                (folder / name / "file").write_text(text, encoding="utf-8")

    def found() -> list[str]:
        return [(place / name / "file").read_text(encoding="utf-8") for name in ("a", "b") if (place / name).exists()]

    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis.tex").touch()
    for step in STEPS:
        write("old")
        if not kill_at(step, lambda: write("new")):
            break
        assert found() in [[text] * count for count in (1, 2) for text in ("old", "new")] + [[]]
        clean_beside(place)
        assert found() in (["old", "old"], ["new", "new"])
        assert {path.name for path in place.iterdir()} == {"a", "b", "thesis.tex"}
    assert found() == ["new", "new"]
    assert step > 10


def test_the_current_folder_keeps_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    number = tmp_path.stat().st_ino
    with whole_folder(tmp_path, parts=("a",)) as folder:
        (folder / "a").touch()
    assert tmp_path.stat().st_ino == number
    assert [path.name for path in Path.cwd().iterdir()] == ["a"]


def test_what_came_first_is_seen_before_anything_changes(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "file").touch()
    check = partial(check_trace_place, tmp_path / "place", replace=False)
    with pytest.raises(StoreExistsError, match="exists already"), whole_folder(tmp_path / "place", check=check):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["place", "file"]


# --- Other machines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("maker", "dead"),
    [
        ({"boot": "other", "host": "other"}, False),
        # The same machine before it was started again, and another container on it.
        ({"boot": "other"}, True),
        ({"host": "other"}, True),
    ],
)
def test_what_another_machine_holds_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, maker: dict[str, str], dead: bool
) -> None:
    here = held._machine()
    with held.held_folder(tmp_path, "a-") as folder:
        copy = tmp_path / "copy"
        copy.mkdir()
        (copy / "lock").write_bytes((folder / "lock").read_bytes())
    monkeypatch.setattr(held, "_machine", lambda: {**here, **maker})
    with held.claimed(copy) as use:
        assert (use is held.Use.DEAD) == dead
        assert use is not held.Use.LIVING


def test_without_locks_nobody_is_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    with held.held_folder(tmp_path, "a-") as folder, held.claimed(folder) as use:
        assert use is held.Use.UNKNOWN
    assert not list(tmp_path.iterdir())


# --- Files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_there_whole_or_as_it_was(tmp_path: Path, kill_at: KillAt) -> None:
    target = tmp_path / "answer.csv"
    for step in STEPS:
        write_whole(target, "old")
        if not kill_at(step, lambda: write_whole(target, "new")):
            break
        assert target.read_text(encoding="utf-8") in {"old", "new"}
        write_whole(target, "newer")
        assert target.read_text(encoding="utf-8") == "newer"
        assert [path.name for path in tmp_path.iterdir()] == ["answer.csv"]
    assert step >= 1


def test_a_full_disk_leaves_the_old_file_or_none(tmp_path: Path) -> None:
    for before in (None, "old"):
        if before:
            write_whole(tmp_path / "a", before)
        with full_after(100), pytest.raises(SinkError, match="cannot be written") as caught:
            write_whole(tmp_path / "a", "x" * 1_000)
        assert "Make room" in str(caught.value.hint)
        assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ([before] if before else [])


def test_a_trace_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    OLD.write(tmp_path / "t")
    with full_after(500), pytest.raises(StoreError, match="cannot be written"):
        replace(tmp_path / "t")
    assert Trace.open(tmp_path / "t").rows == OLD.rows
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_places_that_are_no_places(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path, tmp_path / "file" / "x", Path("/proc/x"), tmp_path / "loop", tmp_path / ("x" * 300)):
        with pytest.raises(SinkError) as caught:
            write_whole(place, "text")
        assert str(place) in caught.value.message
        assert ".tmp" not in caught.value.message
        assert caught.value.hint
    with pytest.raises(StoreError, match=r"The trace /proc/x cannot be written: No such file or directory\.") as caught:
        OLD.write(Path("/proc/x"))
    assert {path.name for path in tmp_path.iterdir()} == {"file", "loop"}
    write_whole(tmp_path / "new" / "folder" / "x", "text")
    assert (tmp_path / "new" / "folder" / "x").read_text(encoding="utf-8") == "text"


@pytest.mark.parametrize("name", ["x" * 250, "ü" * 120])
def test_names_as_long_as_can_be(tmp_path: Path, name: str) -> None:
    write_whole(tmp_path / name, "text")
    with whole_folder(tmp_path / "folder" / name) as folder:
        (folder / "a").touch()
    assert (tmp_path / name).is_file()
    assert (tmp_path / "folder" / name / "a").is_file()


def test_links_are_followed_and_permissions_kept(tmp_path: Path) -> None:
    for name in ("there", "not yet"):
        (tmp_path / f"link to {name}").symlink_to(tmp_path / name)
    (tmp_path / "there").touch(mode=0o640)
    for name in ("there", "not yet"):
        write_whole(tmp_path / f"link to {name}", "text")
        assert (tmp_path / name).read_text(encoding="utf-8") == "text"
        assert (tmp_path / f"link to {name}").is_symlink()
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o640


def test_devices_and_pipes_are_written_to_as_they_are(tmp_path: Path) -> None:
    write_whole(Path(os.devnull), "text")
    with pytest.raises(SinkError, match="No space left"):
        write_whole(Path("/dev/full"), "text")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    reader, writer = os.pipe()
    write_whole(Path(f"/dev/fd/{writer}"), "more")
    assert os.read(reader, 100) == b"more"
    os.close(reader)
    os.close(writer)


def test_an_error_of_the_writer_passes(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "a") as file:  # noqa: PT012  (the block is the writer)
        file.write_text("half", encoding="utf-8")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
