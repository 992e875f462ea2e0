"""Commits that outlast a loss of power: files reach the disk before what names them (`--fsync`).

Without this a commit outlasts the end of any process, as what was written is then with the operating system.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_mutex = threading.Lock()
_askers = 0


@contextmanager
def durable(*, wanted: bool = True) -> Iterator[None]:
    """Let what is committed in this block reach the disk before the commit is done.

    Parameters
    ----------
    wanted
        Whether to do so. What other threads commit meanwhile reaches the disk as well.

    Yields
    ------
    None
        While the block runs.
    """
    global _askers  # noqa: PLW0603  (whoever commits does so in any thread)
    with _mutex:
        _askers += wanted
    try:
        yield
    finally:
        with _mutex:
            _askers -= wanted


def to_disk(*paths: Path) -> None:
    """Have files, or what folders say of their files, reach the disk in this order; only where that is asked for.

    Parameters
    ----------
    *paths
        Files and folders, in the order in which they must be there.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    if not _askers:
        return
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
