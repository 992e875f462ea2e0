"""Columns of one slice in the memory of the one before.

Slice after slice needs columns of the same sizes. The C library gives large blocks back to the system as soon as they
are freed and fetches new ones, page by page and zeroed: a third of the time of a build in memory, and more on virtual
machines, where a page that was given back takes the host to fetch.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_ALL = (1 << 31) - 1
_USUAL_MMAP = 32 << 20
"""Where glibc's own adjustment arrives once blocks of this size have been freed."""


_SMALL = 1 << 20
_POLARS = "_RJEM_MALLOC_CONF"
"""Where the allocator inside of Polars reads its settings, when it is loaded."""

_state = {"always": False}  # Whether it was decided for the whole process, by `keep` or `spare`.


def keep() -> bool:
    """Let what is freed stay with this process, from now on, for whichever thread asks next.

    Returns
    -------
    bool
        Whether the C library can do so; it need not.

    Notes
    -----
    For processes that do our work only, before they start threads: threads that begin later share one pool of blocks,
    and a build needs half the memory. Kernels allocate a few large columns, so they do not wait for each other.
    """
    _state["always"] = _set(_ALL, _ALL)
    return _state["always"]


def spare() -> None:
    """Give back what is freed at once, from now on: for processes that answer one question about much data.

    Notes
    -----
    To be called before Polars is loaded: its allocator keeps what is freed for ten seconds unless the environment says
    otherwise by then. Costs some time: pages are fetched anew.
    """
    os.environ.setdefault(_POLARS, "dirty_decay_ms:0,muzzy_decay_ms:0")
    pa.set_memory_pool(pa.system_memory_pool())
    _state["always"] = _set(_SMALL, _SMALL)


@contextmanager
def kept() -> Iterator[None]:
    """Let what is freed stay with this process inside the block, and give it back at its end.

    After `keep` and `spare` it is as these say.

    Yields
    ------
    None
        While the block runs.
    """
    if _state["always"] or not _set(_ALL, _ALL):
        yield
        return
    try:
        yield
    finally:
        _set(_USUAL_MMAP, 2 * _USUAL_MMAP)
        give_back()


def give_back() -> None:
    """Give the system what is free: what Arrow keeps for later, and the C library if it can."""
    pa.default_memory_pool().release_unused()
    if trim := _function("malloc_trim"):
        trim(0)


def _library() -> Any:
    return ctypes.CDLL(None)


def _function(name: str) -> Any:
    """Return a function of the C library; None where there is none, or no such library."""
    try:
        return getattr(_library(), name)
    except (AttributeError, OSError, TypeError):
        return None


def _set(mmap: int, trim: int) -> bool:
    mallopt = _function("mallopt")
    if mallopt is None:
        return False
    mallopt(_ARENA_MAX, 1)
    return bool(mallopt(_MMAP_THRESHOLD, mmap) and mallopt(_TRIM_THRESHOLD, trim))
