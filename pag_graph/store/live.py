"""The folder ``_live`` of a store that is followed: who follows it, and what a follower keeps beside the tables."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pag_graph.errors import StoreConflictError, StoreError
from pag_graph.runtime.locks import Lock, lock
from pag_graph.store.delta import LIVE
from pag_graph.store.in_place import refusals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOCK = "lock"


@contextmanager
def followed(store: Path) -> Iterator[Path]:
    """Be the one who follows a trace into a store, as long as the block runs.

    Parameters
    ----------
    store
        Directory of the store; made.

    Yields
    ------
    Path
        The folder ``_live`` in it.

    Raises
    ------
    StoreConflictError
        If somebody else does.
    StoreError
        If the file system refuses.
    """
    folder = store / LIVE
    with refusals(store, "The store", StoreError):
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        if lock(held) is Lock.OTHERS:
            message = f"{store} is followed by another process."
            raise StoreConflictError(message, "Wait until it ends, or choose another place.", {"path": str(store)})
        yield folder
    finally:
        os.close(held)
        if not (store / "epochs").exists():
            # Nothing was committed: no trace of it stays. The lock of one who came meanwhile keeps the rest.
            with suppress(OSError):
                (folder / _LOCK).unlink()
                folder.rmdir()
                store.rmdir()
