"""Who makes a commit: the command, its user and its machine."""

from __future__ import annotations

import getpass
import platform
import shlex
import sys
from datetime import UTC, datetime
from functools import cache

_BEGAN = datetime.now(UTC)


def written_out(text: str) -> str:
    r"""Return a text in which what stands for bytes that are not UTF-8 is written out: nobody but Python reads that.

    Examples
    --------
    >>> print(written_out("Größe\udcff"))
    Größe\udcff
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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
        "command": written_out(shlex.join(sys.argv)),
        "user": user and written_out(user),
        "host": platform.node(),
        "began": _BEGAN.isoformat(timespec="milliseconds"),
    }
