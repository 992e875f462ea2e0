"""Who makes a commit: the command, its user and its machine."""

from __future__ import annotations

import getpass
import platform
import shlex
import sys
from datetime import UTC, datetime
from functools import cache

_BEGAN = datetime.now(UTC)


@cache
def maker() -> dict[str, str | None]:
    """Say what this process is: ``command``, ``user``, ``host``, and since when it ``began``.

    Returns
    -------
    dict
        Plain values; `user` is None where the system has no name for it. `began` is when this package was imported, as
        ISO 8601.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container may run as a number that no file of users knows.
        user = None
    return {
        "command": shlex.join(sys.argv),
        "user": user,
        "host": platform.node(),
        "began": _BEGAN.isoformat(timespec="milliseconds"),
    }
