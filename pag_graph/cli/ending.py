"""How the command ends before its answer is written: by a signal, by what the system refuses, or as nobody reads on."""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pag_graph.errors import InvalidParameterError, PagGraphError, SinkError
from pag_graph.store.in_place import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_OUT_OF_REACH = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors that a name that was given can cause, even where it is only asked whether there is something."""


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


def refusal(error: OSError) -> PagGraphError | None:
    """Say what the system refused of which no reader or writer of ours has spoken.

    Parameters
    ----------
    error
        What it raised.

    Returns
    -------
    PagGraphError or None
        None if it is no fault of a name that was given, nor of where the answer goes.
    """
    if error.errno in _OUT_OF_REACH and isinstance(error.filename, str | bytes):
        file = os.fsdecode(error.filename)
        message = f"{file} cannot be reached: {error.strerror}."
        return InvalidParameterError(message, "Check the name, and who may open its folders.", {"file": file})
    if error.filename is None and error.errno in NO_ROOM:
        write_no_more()
        message = f"The answer cannot be written to standard output: {error}."
        return SinkError(message, "Make room where it goes; what was written is not whole.")
    return None
