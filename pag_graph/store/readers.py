"""Who reads a version of a store: a lock on the file of its commit says so, for as long as the reader has it open."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

from pag_graph.errors import StoreNotFoundError
from pag_graph.runtime.locks import Lock, lock
from pag_graph.store.delta import info_of, open_store, read_content
from pag_graph.store.delta_log import commit_file

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.store.delta import StoreInfo


class Hold:
    """A shared lock on a file, until nobody refers to it any more; a copy in another process holds on its own.

    Parameters
    ----------
    file
        The file, which need not be writable.

    Raises
    ------
    BlockingIOError
        If somebody is just asking whether it is held.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        # Where there are no locks, `pag vacuum` has to be told what readers need.
        if lock(opened, shared=True) is Lock.OTHERS:
            os.close(opened)
            raise BlockingIOError
        weakref.finalize(self, os.close, opened)

    def __reduce__(self) -> tuple[type[Hold], tuple[Path]]:
        return Hold, (self._file,)


def open_held(path: Path) -> tuple[StoreInfo, Hold | None]:
    """Read the latest committed state of a store, and hold it, so that `vacuum` on this machine leaves its files.

    Parameters
    ----------
    path
        Directory of the store.

    Returns
    -------
    StoreInfo
        As of `open_store`.
    Hold or None
        To be kept as long as the files are read; None where the file of the commit cannot be opened.

    Raises
    ------
    StoreNotFoundError
        If nothing is committed there.
    FormatVersionError
        If it was written in another version of contract 2.
    """
    while True:
        info = open_store(path)
        table, version = path / "epochs", info.versions["epochs"]
        try:
            hold = Hold(commit_file(table, version))
        except BlockingIOError:
            continue
        except OSError:
            return info, None
        # If it is still the latest, it was held before anybody could take it for replaced.
        if not commit_file(table, version + 1).exists():
            return info, hold


def open_held_version(path: Path, version: int) -> tuple[StoreInfo, Hold | None]:
    """Read a committed state of a store, the latest or an older one, and hold it as `open_held` does.

    Parameters
    ----------
    path
        Directory of the store.
    version
        Of the table `epochs`: names the state.

    Returns
    -------
    StoreInfo
        The state. If it was replaced, its list of files is read, and each is looked for.
    Hold or None
        As of `open_held`.

    Raises
    ------
    StoreNotFoundError
        If there is no such state, or its files were removed since it was replaced.
    FormatVersionError
        If it was written in another version of contract 2.
    StoreError
        If the log is damaged.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    directory = path / "epochs"
    hold = None
    while hold is None and commit_file(directory, version).exists():
        try:
            hold = Hold(commit_file(directory, version))
        except BlockingIOError:
            continue
        except OSError:
            break
    content = read_content(directory, version) if commit_file(directory, version).exists() else None
    if content is None:
        raise _gone(path, version)
    info = info_of(path, version, content)
    # What is replaced may be removed by anybody who looked before it was held.
    if commit_file(directory, version + 1).exists() and not all(
        (path / table / part.path).exists() for table in info.versions for part in info.parts(table)
    ):
        raise _gone(path, version)
    return info, hold


def _gone(path: Path, version: int) -> StoreNotFoundError:
    message = f"Version {version} of the store at {path} is not there any more: later ones took its place."
    hint = (
        "Open a version while it is the latest, and keep it open: what is open is not removed. Or read the latest one."
    )
    return StoreNotFoundError(message, hint, {"path": str(path)})


def is_read(path: Path, version: int) -> bool:
    """Tell whether a reader on this machine holds a version of the table `epochs` of a store.

    Parameters
    ----------
    path
        Directory of the store.
    version
        Of the table `epochs`.

    Returns
    -------
    bool
        False also where the file system has no locks, or the commit cannot be opened.
    """
    try:
        opened = os.open(commit_file(path / "epochs", version), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return lock(opened) is Lock.OTHERS
    finally:
        os.close(opened)
