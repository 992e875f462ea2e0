"""Why a server does not come up is read from its logs, and only from what they said since it was started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pag_graph.errors import InvalidParameterError
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
    with pytest.raises(InvalidParameterError, match="no amount of memory"):
        list(heaps("much"))
