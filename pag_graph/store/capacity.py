"""How much memory this process may still take, asked before something is read that can only be read whole."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.errors import PagGraphError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import resource
except ImportError:  # pragma: no cover - not a POSIX system
    resource = None  # type: ignore[assignment]

_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")
_CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Per version of control groups: folder, files of the limit and of what is used, and the entry of the statistics that
says how much of the latter are files that were read, which go when somebody needs the room."""
GIB = 1 << 30
"""Bytes of a GiB."""


def available_bytes() -> int | None:
    """Return how many bytes of memory this process may still take, about.

    Returns
    -------
    int or None
        The least of what the machine has free, what the process's group may take, and what the limit of the process's
        address space leaves; none where the system tells nothing. Never negative.
    """
    amounts = [amount for amount in (_machine(), _group(), _address_space()) if amount is not None]
    return max(min(amounts), 0) if amounts else None


def _machine() -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    fields = next((line.split() for line in lines if line.startswith("MemAvailable:")), None)
    return int(fields[1]) * 1024 if fields is not None else None


def _group() -> int | None:
    for folder, limit, used, read_files in _CGROUPS:
        try:
            entries = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
            most, taken = (int((folder / name).read_text(encoding="ascii")) for name in (limit, used))
            return most - taken + int(entries.get(read_files, 0))
        except (OSError, ValueError):
            # Another version of groups, or no limit, which is the word "max".
            continue
    return None


def _address_space() -> int | None:
    if resource is None:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        used = int(_STATM.read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return limit
    return limit - used


def lacking(needed: int) -> str | None:
    """Say in words that `needed` bytes are more than this process may take; None where they are there.

    Parameters
    ----------
    needed
        An estimate, in bytes.

    Returns
    -------
    str or None
        Such as "about 24.0 GiB of memory, and 5.2 are free".
    """
    free = available_bytes()
    if free is None or needed <= free:
        return None
    return f"about {needed / GIB:.1f} GiB of memory, and {free / GIB:.1f} are free"


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Say of something that it takes more memory than there is, if memory runs out.

    Parameters
    ----------
    what
        The subject of a sentence.

    Raises
    ------
    StoreError
        Instead of `MemoryError`, and of an error of this package that came of one.
    """  # noqa: DOC501  (what passes as it is, is taken for raised here)
    try:
        yield
    except (MemoryError, PagGraphError) as error:
        if not isinstance(error, MemoryError) and not isinstance(error.__cause__, MemoryError):
            raise
        message = f"{what} takes more memory than there is."
        raise StoreError(message, "Give the process more memory.") from error
