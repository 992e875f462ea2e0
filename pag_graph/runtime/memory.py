"""Columns of one slice in the memory of the one before.

Slice after slice needs columns of the same sizes. The C library gives large blocks back to the system as soon as they
are freed and fetches new ones, page by page and zeroed: a third of the time of a build in memory, and more on virtual
machines, where a page that was given back takes the host to fetch.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
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

# Whether it was decided for the whole process, by `keep` or `spare`, and whether by `spare`.
_state = {"always": False, "sparing": False}


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
    _state.update(always=_set(_ALL, _ALL), sparing=False)
    if _state["always"]:
        # Arrow's own allocator would keep blocks of its own besides: 100 MB of a follower's 500.
        pa.set_memory_pool(pa.system_memory_pool())
    return _state["always"]


def spare() -> None:
    """Give back what is freed at once, from now on: for processes that answer one question about much data.

    Notes
    -----
    To be called before Polars is loaded: its allocator keeps what is freed for ten seconds unless the environment says
    otherwise by then. Costs some time: pages are fetched anew. Pandas is not loaded either.
    """
    _without_pandas()
    os.environ.setdefault(_POLARS, "dirty_decay_ms:0,muzzy_decay_ms:0")
    pa.set_memory_pool(pa.system_memory_pool())
    _state["always"] = _state["sparing"] = _set(_SMALL, _SMALL)


class _PandasAbsent(MetaPathFinder):
    """Finds no pandas."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002 (the protocol's)
        """Stop the search for pandas; leave all other modules to other finders."""
        if fullname == "pandas":
            message = "Left out."
            raise ModuleNotFoundError(message, name=fullname)


def _without_pandas() -> None:
    """Let Arrow make its first array without pandas, which it loads for that wherever pandas is installed.

    Arrow asks once. We hand it no objects of pandas, which take 45 MB and a while to load. Conversions to pandas still
    load it.
    """
    absent = _PandasAbsent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(absent)


@contextmanager
def kept() -> Iterator[None]:
    """Let what is freed stay with this process inside the block, and give it back at its end.

    After `keep` and `spare` it is as these say; after `spare`, what small blocks still hold is given back at its end.

    Yields
    ------
    None
        While the block runs.
    """
    if _state["always"]:
        yield
        if _state["sparing"]:
            give_back()
        return
    if not _set(_ALL, _ALL):
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
