"""Locks of the operating system on open files: a process that ends, however, has let go of its own.

They belong to the open file and not to the process, may be shared, and leave what is in the file alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
from enum import Enum, auto

_HELD = {errno.EWOULDBLOCK, errno.EACCES}


class Lock(Enum):
    """What came of asking for a lock."""

    OURS = auto()
    OTHERS = auto()
    """Somebody else holds it."""
    NONE = auto()
    """There are no locks on this file system."""


def lock(file: int, *, shared: bool = False, wait: bool = False) -> Lock:
    """Ask for the lock of an open file, which is held until the file is closed.

    Parameters
    ----------
    file
        Its descriptor.
    shared
        Whether others may hold it as well, who share it too.
    wait
        Whether to wait until nobody else holds it.

    Returns
    -------
    Lock
        Whose it is.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        return Lock.OTHERS if error.errno in _HELD else Lock.NONE
    return Lock.OURS


def is_still(file: int, path: str | os.PathLike[str]) -> bool:
    """Tell whether an open file is the one at a path: it may have been removed before it was locked.

    Parameters
    ----------
    file
        Its descriptor.
    path
        Where it was opened.

    Returns
    -------
    bool
        False also where nothing is at the path.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  (beside fstat)
    except OSError:
        return False
    return os.path.samestat(os.fstat(file), status)
