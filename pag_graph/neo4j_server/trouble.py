"""Why a server does not come up: what its logs say of memory and of the disk, in words that tell what to do."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import TYPE_CHECKING

from pag_graph.errors import InvalidParameterError, Neo4jError
from pag_graph.neo4j_server.home import own_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_LOGS = ("neo4j.log", "debug.log", "console.log")
_MOST_READ = 4 * 1024 * 1024
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIMES_MORE = 8


class Trouble(StrEnum):
    """What a server can lack."""

    MEMORY = "memory"
    DISK = "disk"


_SIGNS = {
    Trouble.DISK: re.compile(rb"No space left on device|There is not enough space on the disk"),
    Trouble.MEMORY: re.compile(
        rb"java\.lang\.OutOfMemoryError|GC overhead limit exceeded|Java heap space|too small for initial heap|"
        rb"Too small maximum heap|dbms\.memory\.transaction\.total\.max threshold reached"
    ),
}


def log_sizes(home: Path) -> dict[str, int]:
    """Return how long each log of a server is; of one that is there no more, nothing."""
    return {name: (home / "logs" / name).stat().st_size for name in _LOGS if (home / "logs" / name).exists()}


def find_trouble(home: Path, log_sizes_before: Mapping[str, int]) -> tuple[Trouble, str] | None:
    """Find in a server's log what it ran out of.

    Parameters
    ----------
    home
        The server's folder.
    log_sizes_before
        From `log_sizes`: what stood in the logs before counts for nothing.

    Returns
    -------
    tuple or None
        What it ran out of, and the line that says so; None where no line does.
    """
    for name in _LOGS:
        try:
            with (home / "logs" / name).open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                before = log_sizes_before.get(name, 0)
                # A log that is shorter now was begun anew.
                file.seek(max(before if before <= end else 0, end - _MOST_READ))
                lines = file.read().splitlines()
        except FileNotFoundError:
            continue
        for trouble, sign in _SIGNS.items():
            for line in lines:
                if sign.search(line):
                    return trouble, line.decode("utf-8", "replace").strip()
    return None


def disk_full(home: Path, line: str) -> Neo4jError:
    """Return the error of a server that has no room left on its disk.

    Parameters
    ----------
    home
        The server's folder.
    line
        What its log says, from `find_trouble`.

    Returns
    -------
    Neo4jError
        To be raised by the caller; ``lacks`` of its context is ``disk``.
    """
    message = f"The disk of the Neo4j server in {home} is full. Its log says: {line}"
    commands = " && ".join(own_command(words, home) for words in ("stop", "start"))
    hint = f"Free space there and start it again: `{commands}`. What was committed is not lost."
    return Neo4jError(message, hint, {"home": str(home), "lacks": str(Trouble.DISK)})


def out_of_memory(home: Path, heap: str, line: str) -> Neo4jError:
    """Return the error of a server for which no heap that this machine has is enough.

    Parameters
    ----------
    home
        The server's folder.
    heap
        What it was last given, as the message names it: it says "with HEAP of memory".
    line
        What its log says, from `find_trouble`.

    Returns
    -------
    Neo4jError
        To be raised by the caller; ``lacks`` of its context is ``memory``.
    """
    message = f"The Neo4j server in {home} does not come up with {heap} of memory. Its log says: {line}"
    hint = f"Give it more memory, on a machine that has it: `{own_command('start --heap ...', home)}`."
    return Neo4jError(message, hint, {"home": str(home), "heap": heap, "lacks": str(Trouble.MEMORY)})


def heaps(heap: str) -> Iterator[str]:
    """Return how much memory to try: what is wanted, then twice as much each time, up to half of the machine's.

    Parameters
    ----------
    heap
        In Java's notation, such as ``512m``.

    Raises
    ------
    InvalidParameterError
        If it is in no such notation.
    """
    match = re.fullmatch(r"(\d+)([kmgKMG]?)", heap)
    if match is None:
        message = f"{heap!r} is not an amount of memory."
        raise InvalidParameterError(message, "Write it as Java does: 512m, 2g.")
    yield heap
    size = int(match[1]) * _UNITS[match[2].lower()]
    largest = min(size * _TIMES_MORE, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    while (size := size * 2) <= largest:
        yield f"{size >> 20}m"
