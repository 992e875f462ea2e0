"""Epochs of a followed store that another process still has to read: removing old ones waits for it, up to a bound.

Who reads the epochs one after the other says from which one on it needs them, in a file that it holds locked for as
long as it lives. A file that nobody holds is of a process that was killed.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from pag_graph.runtime.locks import Lock, is_still, lock
from pag_graph.store.delta import LIVE

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_FOLDER = f"{LIVE}/needed"
_DIGITS = 20
"""Of a number in a file, so that each replaces the one before, whole, in one write."""


class EpochsNeeded:
    """Says of this process which epochs of a store it still has to read, as long as the block runs.

    Parameters
    ----------
    store
        Directory of the store. Nothing is said where nobody has ever followed a trace into it, where it cannot be
        written to, or where its file system has no locks: then epochs can go before they are read.
    """

    def __init__(self, store: Path) -> None:
        self._folder = store / _FOLDER
        self._file: Path | None = None
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Need all epochs."""
        if self._folder.parent.is_dir():
            with suppress(OSError):
                self._folder.mkdir(exist_ok=True)
                self._open()
        return self

    def _open(self) -> None:
        while self._descriptor is None:
            file = self._folder / uuid.uuid4().hex
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            held = lock(descriptor, wait=True)
            if held is Lock.OURS and is_still(descriptor, file):
                self._file, self._descriptor = file, descriptor
                self.since(0)
                return
            os.close(descriptor)
            if held is Lock.NONE:
                file.unlink(missing_ok=True)
                return
            # It was taken for one that a killed process has left.

    def since(self, epoch: int) -> None:
        """Say that only this epoch and later ones are needed.

        Parameters
        ----------
        epoch
            Number of the epoch.
        """
        if self._descriptor is not None:
            os.pwrite(self._descriptor, f"{epoch:0{_DIGITS}}".encode(), 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Need nothing any more."""
        if self._file is not None and self._descriptor is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
            os.close(self._descriptor)


def first_needed(store: Path) -> int | None:
    """Return the first epoch that another process still has to read.

    Parameters
    ----------
    store
        Directory of the store.

    Returns
    -------
    int or None
        None where nobody waits for any. What killed processes have left is removed.
    """
    epochs = []
    with suppress(OSError):
        for file in (store / _FOLDER).iterdir():
            with suppress(OSError):
                descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    held = lock(descriptor)
                    if held is Lock.OTHERS:
                        # Nothing is written yet where it has just been opened.
                        epochs.append(int(os.pread(descriptor, _DIGITS, 0) or 0))
                    elif held is Lock.OURS:
                        file.unlink(missing_ok=True)
                finally:
                    os.close(descriptor)
    return min(epochs, default=None)
