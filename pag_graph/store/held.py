"""Folders that a process works in and holds, so that others can tell what is in use from what a killed one left.

A lock of the operating system on the file ``lock`` in the folder says that its maker lives: it ends with the process,
however that ends. The file also names the machine, for locks need not reach other machines; what was made on another
one counts as `Use.UNKNOWN`, unless its lock is seen to be held.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tempfile
import uuid
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.errors import StoreError
from pag_graph.runtime.locks import Lock, is_still, lock

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK = "lock"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Use(Enum):
    """Whether somebody works in a folder."""

    LIVING = auto()
    DEAD = auto()
    UNKNOWN = auto()
    """It was made on another machine, or the file system has no locks."""


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Hold a folder among the system's temporary ones that only this user may read, and remove it at the end.

    Parameters
    ----------
    prefix
        What its name begins with. Dead ones of the same prefix are removed first.

    Yields
    ------
    Path
        The folder.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    parent = Path(tempfile.gettempdir())
    pattern = re.compile(re.escape(prefix) + "[0-9a-f]{32}")
    with suppress(OSError):
        for entry in [*os.scandir(parent)]:
            if pattern.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                with claimed(Path(entry)) as use:
                    if use is Use.DEAD:
                        remove_claimed(Path(entry))
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(held_folder(parent, prefix, mode=0o700))
        except OSError as error:
            message = f"Nothing can be written to {parent}: {error}."
            hint = "Make room there, or name another folder in TMPDIR."
            raise StoreError(message, hint, {"path": str(parent)}) from error
        yield folder


@contextmanager
def held_folder(parent: Path, prefix: str, suffix: str = "", *, mode: int = 0o777) -> Iterator[Path]:
    """Make a folder, hold it while the block runs, and remove it with all that is in it.

    Parameters
    ----------
    parent
        Where to make it; made too.
    prefix, suffix
        What its name begins and ends with; between them stand 32 hexadecimal digits.
    mode
        Its permissions, before the process's mask.

    Yields
    ------
    Path
        The folder. It holds the file ``lock``.
    """
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = parent / f"{prefix}{uuid.uuid4().hex}{suffix}"
        folder.mkdir(mode)
        marker = _lock_new(folder)
        if marker is not None:
            break
    try:
        yield folder
    finally:
        try:
            _remove(folder)
        finally:
            os.close(marker)


def _lock_new(folder: Path) -> int | None:
    """Lock a folder that was made just now; None if somebody took it for a leftover in between."""
    try:
        marker = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        return None
    # Without locks other processes cannot tell whether this one lives, so its folder counts as unknown.
    if lock(marker) is Lock.OTHERS or not is_still(marker, folder / _LOCK):
        os.close(marker)
        return None
    try:
        os.write(marker, json.dumps(_machine()).encode())
    except OSError:
        os.close(marker)
        _remove(folder)
        raise
    return marker


@contextmanager
def claimed(folder: Path) -> Iterator[Use]:
    """Tell whether a folder is in use; where it is not, nobody else claims it while the block runs.

    Parameters
    ----------
    folder
        Made by `held_folder`, on this machine or another one.

    Yields
    ------
    Use
        `UNKNOWN` also of what is no folder, or not this user's.
    """
    if folder.is_symlink() or not folder.is_dir():
        yield Use.UNKNOWN
        return
    try:
        marker = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError:
        yield Use.UNKNOWN
        return
    try:
        yield _use(marker, folder)
    finally:
        os.close(marker)


def _use(marker: int, folder: Path) -> Use:
    locked = lock(marker)
    if locked is Lock.OTHERS:
        return Use.LIVING
    if locked is Lock.NONE or not is_still(marker, folder / _LOCK):
        # There are no locks here, or another process is removing the folder.
        return Use.UNKNOWN
    try:
        maker = json.loads(os.pread(marker, 4096, 0) or b"{}")
    except ValueError:
        maker = {}
    this_machine = _machine()
    # Without an entry: killed before it wrote one. After a restart of the machine no earlier process lives.
    is_this_machine = not maker or any(maker.get(key) == this_machine[key] for key in this_machine)
    return Use.DEAD if is_this_machine else Use.UNKNOWN


def remove_claimed(folder: Path) -> None:
    """Remove a folder that `claimed` says is dead; the lock goes last.

    Parameters
    ----------
    folder
        What cannot be removed stays.
    """
    _remove(folder)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name != _LOCK:
                remove(entry)
    with suppress(OSError):
        (folder / _LOCK).unlink()
    with suppress(OSError):
        folder.rmdir()


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it.

    Parameters
    ----------
    path
        What cannot be removed of it stays, without an error.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _machine() -> dict[str, str]:
    """Name the running kernel, which containers share, and the machine."""
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        boot = socket.gethostname()
    return {"boot": boot, "host": socket.gethostname()}
