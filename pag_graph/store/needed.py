"""Epochs of a followed store that another process still has to read: removing old ones waits for it, up to a bound.

Who reads the epochs one after the other says from which one on it needs them, in a folder that it holds for as long as
it lives (`pag_graph.store.held`).
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

from pag_graph.store.delta import LIVE
from pag_graph.store.held import Use, claimed, held_folder, remove_claimed

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_FOLDER = f"{LIVE}/needed"
_SINCE = "since"
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
        self._held = ExitStack()
        self._file: int | None = None

    def __enter__(self) -> Self:
        """Need all epochs."""
        if self._folder.parent.is_dir():
            with suppress(OSError):
                own = self._held.enter_context(held_folder(self._folder, ""))
                self._file = os.open(own / _SINCE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
                self._held.callback(os.close, self._file)
        return self

    def since(self, epoch: int) -> None:
        """Say that only this epoch and later ones are needed.

        Parameters
        ----------
        epoch
            Number of the epoch.
        """
        if self._file is not None:
            os.pwrite(self._file, f"{epoch:0{_DIGITS}}".encode(), 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Need nothing any more."""
        self._file = None
        self._held.close()


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
        for folder in (store / _FOLDER).iterdir():
            with claimed(folder) as use:
                if use is Use.LIVING:
                    epochs.append(_read_since(folder))
                elif use is Use.DEAD:
                    remove_claimed(folder)
    return min(epochs, default=None)


def _read_since(folder: Path) -> int:
    """Return what a process needs; all, where it has just begun and has not said anything yet."""
    with suppress(OSError):
        return int((folder / _SINCE).read_bytes() or 0)
    return 0
