"""How the command ends before its answer is written: by a signal, or because nobody reads on."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextmanager
def ending_at_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that it cleans up; a second one ends it at once."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    ended = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        ended = True
        signal.signal(number, signal.SIG_DFL)
        at_ctrl_c = signal.getsignal(signal.SIGINT)
        if callable(at_ctrl_c):
            # Spark has its own, which ends its jobs first; that of an event loop returns, and lets its tasks end.
            at_ctrl_c(signal.SIGINT, frame)
            return
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except SystemExit:
        if ended:
            sys.exit(128 + signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def write_no_more() -> None:
    """Leave what is still to be written to standard output unwritten: the interpreter would try again at its end."""
    with suppress(OSError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
