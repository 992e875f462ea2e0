"""Why a server does not come up is read from its logs, and only from what they said since it was started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pag_graph.builder.engine import silent
from pag_graph.errors import InvalidParameterError, Neo4jError
from pag_graph.neo4j_server import server
from pag_graph.neo4j_server.process import ServerProcess
from pag_graph.neo4j_server.trouble import Trouble, disk_full, find_trouble, heaps, log_sizes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def say(home: Path, name: str, line: str) -> None:
    with (home / "logs" / name).open("a") as file:
        file.write(f"2026-01-01 INFO  before\n{line}\n2026-01-01 INFO  after\n")


@pytest.mark.parametrize(
    ("name", "line", "lacks"),
    [
        ("debug.log", "java.io.IOException: No space left on device", Trouble.DISK),
        ("neo4j.log", "Caused by: java.lang.OutOfMemoryError: Java heap space", Trouble.MEMORY),
        ("console.log", "Error occurred during initialization of VM: Too small maximum heap", Trouble.MEMORY),
    ],
)
def test_what_a_server_lacks_is_what_its_log_says(home: Path, name: str, line: str, lacks: Trouble) -> None:
    assert find_trouble(home, {}) is None
    say(home, name, line)
    assert find_trouble(home, {}) == (lacks, line)
    # What was said before the start is no news, until it is said again.
    before = log_sizes(home)
    assert find_trouble(home, before) is None
    say(home, name, line)
    assert find_trouble(home, before) == (lacks, line)
    # A log that was begun anew is read from its beginning.
    (home / "logs" / name).write_text(line)
    assert find_trouble(home, before) == (lacks, line)


def test_a_full_disk_is_called_so(home: Path) -> None:
    error = disk_full(home, "No space left on device")
    assert "disk" in error.message
    assert "full" in error.message
    assert "Free space" in str(error.hint)


def test_more_memory_is_tried_up_to_half_of_the_machines() -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    tried = list(heaps("16m"))
    assert tried == ["16m", "32m", "64m", "128m"]
    assert list(heaps("1G"))[:1] == ["1G"]
    assert list(heaps(f"{machine}")) == [f"{machine}"]
    with pytest.raises(InvalidParameterError, match="not an amount of memory"):
        list(heaps("much"))


class Machine:
    """Stands for Java: a server that comes up with enough memory, and says in its log what it lacks with less."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path, line: str, enough: str | None) -> None:
        self.home, self.line, self.enough = home, line, enough
        self.given: list[str] = []
        self.running = 0
        for name in ("launch", "end", "_trouble"):
            monkeypatch.setattr(server, name, getattr(self, name.removeprefix("_")))
        monkeypatch.setattr(server, "is_alive", lambda _: True)

    def launch(self, home: Path, jars: Path, planned: ServerProcess, heap: str) -> ServerProcess:
        del home, jars
        assert not self.running, "one at a time has a database"
        self.running += 1
        self.given.append(heap)
        if heap != self.enough:
            say(self.home, "debug.log", self.line)
        return planned

    def end(self, *_: object, **__: object) -> None:
        self.running -= 1

    def trouble(self, *_: object) -> Exception | None:
        return None if self.given[-1] == self.enough else OSError("refused")


def launch(home: Path, heap: str) -> None:
    server._launch_with_enough(home, home, ServerProcess(0, 0, 7687, 7474), heap, silent, 60.0)


def test_a_server_that_lacks_memory_is_started_with_more(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "Caused by: java.lang.OutOfMemoryError: Java heap space"
    # What stood in the log before the start is no reason to give it more.
    say(home, "debug.log", line)
    java = Machine(monkeypatch, home, line, enough="64m")
    launch(home, "16m")
    assert java.given == ["16m", "32m", "64m"]
    assert java.running == 1

    nothing_is_enough = Machine(monkeypatch, home, line, enough=None)
    with pytest.raises(Neo4jError, match=r"does not come up with 128m .*Java heap space") as caught:
        launch(home, "16m")
    assert nothing_is_enough.given == ["16m", "32m", "64m", "128m"]
    assert not nothing_is_enough.running
    assert "--heap" in str(caught.value.hint)


def test_a_server_whose_disk_is_full_is_not_started_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = Machine(monkeypatch, home, "java.io.IOException: No space left on device", enough=None)
    with pytest.raises(Neo4jError, match=r"The disk of the Neo4j server in .* is full"):
        launch(home, "16m")
    assert java.given == ["16m"]
    assert not java.running
