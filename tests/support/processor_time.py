"""Processor time of a command and of all that it starts, servers that outlive their parents included (on Linux).

``python -m tests.support.processor_time make test``: unlike the time on the wall, it hardly depends on what else runs.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time

_SUBREAPER = 36
"""Of Linux's ``prctl``: who has lost its parent becomes a child of this process."""


def main(words: list[str]) -> int:
    """Run a command, say what it took, and return how it ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    began = time.monotonic()
    command = os.posix_spawnp(words[0], words, os.environ)
    code = None
    while code is None:
        process, status = os.wait()
        if process == command:
            code = os.waitstatus_to_exitcode(status)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = usage.ru_utime + usage.ru_stime
    print(f"{processor_s:.0f} s of processor time in {time.monotonic() - began:.0f} s", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
