"""Folders and files that come to their place whole or not at all, and what a killed writer leaves beside them.

What is being written stands beside its place as ``.NAME.ID.tmp``, held by its writer (`store.held`). A folder takes the
place of another one in one step where the system can exchange two names (Linux, on most file systems); elsewhere the
old one steps aside within the held folder, and the next writer, or who looks for it in vain, puts it back.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import uuid
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.errors import InvalidParameterError, PagGraphError, SinkError
from pag_graph.runtime.locks import Lock, lock
from pag_graph.store.held import Use, claimed, held_folder, remove, remove_claimed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

_NEW, _OLD, _NAMES = "new", "old", "names"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# A name may have 255 bytes, and 38 characters come to it here.
_NAME_CHARACTERS = 50
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp\b")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a file system that is full, or a file that may not become larger."""


@contextmanager
def refusals(place: Path, subject: str, kind: type[PagGraphError]) -> Iterator[None]:
    """Turn what the file system says against writing into one of our errors.

    Parameters
    ----------
    place
        What is being written.
    subject
        What it is, such as ``The trace``; may be empty.
    kind
        Class of the error.

    Yields
    ------
    None
        While the block runs.

    Raises
    ------
    PagGraphError
        Of the class `kind`; errors of our own pass as they are.
    BrokenPipeError
        As it is: who reads a pipe has seen enough.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    try:
        yield
    except (PagGraphError, BrokenPipeError):
        raise
    except OSError as error:
        raise refused(place, subject, error, kind) from error


def refused(place: Path, noun: str, error: Exception, kind: type[PagGraphError]) -> PagGraphError:
    """Return what to raise where the file system refuses to write.

    Parameters
    ----------
    place
        What was to be written.
    noun
        What it is, such as ``The trace``; may be empty.
    error
        What the system said.
    kind
        Class of the error.

    Returns
    -------
    PagGraphError
        Of the class `kind`; it says what to do.
    """
    subject = f"{noun} {place}" if noun else str(place)
    reason: object = error
    if isinstance(error, OSError) and _TEMPORARY.search(str(error.filename)):
        # Nobody but us knows the temporary file.
        reason = error.strerror
    message = f"{subject} cannot be written: {reason}."
    hint = "Choose a place that can be written."
    if getattr(error, "errno", None) in NO_ROOM:
        hint = "Make room, or choose a place with more of it."
    return kind(message, hint, {"path": str(place), "file": str(place)})


# --- Files ------------------------------------------------------------------------------------------------------------


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Write a file whole or not at all.

    Parameters
    ----------
    target
        The file; its parents are made. What is there is replaced when the block ends well. A link is followed; a device
        or a pipe is written to as it is.

    Yields
    ------
    Path
        Where to write.

    Raises
    ------
    SinkError
        If there is a folder at `target`, or the file system refuses.
    """
    with refusals(target, "", SinkError):
        if _is_device(target):
            yield target
            return
        place = Path(os.path.realpath(target))
        check_file_place(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        clean_beside(place)
        temporary = place.with_name(f".{place.name[:_NAME_CHARACTERS]}.{uuid.uuid4().hex}.tmp")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            lock(descriptor)
            yield temporary
            # A disk over a network says only now that it is full.
            os.fsync(descriptor)
            if place.exists():
                with suppress(OSError):
                    os.fchmod(descriptor, place.stat().st_mode & 0o7777)
            temporary.replace(place)
        finally:
            try:
                temporary.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def write_whole(target: Path, content: str | bytes) -> None:
    """Write a file of text or bytes whole or not at all.

    Parameters
    ----------
    target
        As for `whole_file`.
    content
        Text is encoded as UTF-8.

    Raises
    ------
    SinkError
        As of `whole_file`.
    """
    data = content.encode() if isinstance(content, str) else content
    with whole_file(target) as file:
        file.write_bytes(data)


def check_file_place(target: Path) -> None:
    """Refuse what cannot become a file, before the work that is to be written there.

    Parameters
    ----------
    target
        The file; it need not exist, nor its folder.

    Raises
    ------
    SinkError
        If there is a folder at `target`, something that may not be written, or a file where its folder should be.
    """
    with refusals(target, "", SinkError):
        place = Path(os.path.realpath(target))
        if _is_device(target):
            return
        if place.is_dir():
            message = f"{target} is a folder, and a file is to be written."
            raise SinkError(message, "Name a file in it.", {"path": str(target)})
        if place.is_symlink():
            message = f"{target} is a link that leads to itself."
            raise SinkError(message, "Choose another place.", {"path": str(target)})
        if place.exists() and not os.access(place, os.W_OK):
            message = f"{target} cannot be written: its permissions forbid it."
            raise SinkError(message, "Choose another place, or change them.", {"path": str(target)})
        folder = next(parent for parent in place.parents if parent.exists())
        if not folder.is_dir():
            message = f"{target} cannot be written: {folder} is not a folder."
            raise SinkError(message, "Choose a place that can be written.", {"path": str(target)})


def check_output(file: Path | None, *endings: str) -> None:
    """Refuse a file that cannot be written, or whose name says something else, before the work that it is to hold.

    Parameters
    ----------
    file
        The file; None is none.
    endings
        What its name may end in, if it has an ending.

    Raises
    ------
    InvalidParameterError
        If its name ends in something else.
    SinkError
        If it cannot be written.
    """
    if file is None:
        return
    if file.suffix and file.suffix.lower() not in endings:
        format_name = endings[0].removeprefix(".").upper()
        message = f"{file} ends in {file.suffix}, and {format_name} would be written."
        raise InvalidParameterError(message, f"Choose a name that ends in {endings[0]}.", {"path": str(file)})
    check_file_place(file)


def _is_device(target: Path) -> bool:
    """Tell whether something is no place for a file, but takes what is written: a device, or a pipe."""
    return target.exists() and not target.is_file() and not target.is_dir()


# --- Folders ----------------------------------------------------------------------------------------------------------


@contextmanager
def whole_folder(
    target: Path, *, parts: Collection[str] | None = None, check: Callable[[], None] | None = None
) -> Iterator[Path]:
    """Write a folder whole or not at all.

    Parameters
    ----------
    target
        The folder; its parents are made. What is there is replaced when the block ends well: in one step, where the
        system offers it.
    parts
        What of `target` may be replaced. Where it holds more than that, or cannot change places itself (it is the
        current folder, or a file system begins there), only these come in, one after the other; until all have, those
        that come after the first are absent.
    check
        Called before anything changes at `target`: writing takes a while, and somebody else may have come first.

    Yields
    ------
    Path
        The folder to fill.
    """
    is_whole = parts is None or _is_exchangeable(target, parts)
    clean_beside(target)
    parent = target.parent if is_whole else target
    prefix = f".{target.name[:_NAME_CHARACTERS]}."
    with held_folder(parent, prefix, ".tmp") as folder:
        new_folder = folder / _NEW / target.name if is_whole else folder / _NEW
        new_folder.mkdir(parents=True)
        yield new_folder
        if check is not None:
            check()
        names = [target.name] if is_whole else [name for name in parts or () if (new_folder / name).exists()]
        _put_in_place(folder, parent, names)


def _is_exchangeable(target: Path, parts: Collection[str]) -> bool:
    if not os.path.lexists(target):
        return True
    current = Path.cwd()
    if target.is_symlink() or target.is_mount() or target == current or target in current.parents:
        return False
    return os.access(target.parent, os.W_OK) and all(
        entry.name in parts or _leftover_pattern(target.name).fullmatch(entry.name) for entry in target.iterdir()
    )


def _put_in_place(folder: Path, parent: Path, names: Sequence[str]) -> None:
    """Move what is new from a held folder to its place."""
    new_folder, old_folder = folder / _NEW, folder / _OLD
    if len(names) == 1:
        new_entry, place = new_folder / names[0], parent / names[0]
        if not os.path.lexists(place):
            new_entry.rename(place)
            return
        if _exchange(new_entry, place):
            return
    old_folder.mkdir()
    (folder / _NAMES).write_text("\n".join(names), encoding="utf-8")
    try:
        # The last one, which tells that all is there, goes first and comes last.
        for name in reversed(names):
            if os.path.lexists(parent / name):
                (parent / name).rename(old_folder / name)
        for name in names:
            (new_folder / name).rename(parent / name)
    except BaseException:
        _put_back(folder, parent)
        raise


def _put_back(folder: Path, parent: Path) -> None:
    """Undo a replacement that stopped halfway; one that is complete stays."""
    new_folder, old_folder = folder / _NEW, folder / _OLD
    try:
        names = (folder / _NAMES).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    if not any(os.path.lexists(new_folder / name) for name in names):
        return
    for name in names:
        place = parent / name
        if not os.path.lexists(new_folder / name) and os.path.lexists(place):
            place.rename(new_folder / name)
        if os.path.lexists(old_folder / name) and not os.path.lexists(place):
            (old_folder / name).rename(place)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step; False where the system cannot."""
    rename = _renameat2()
    if rename is None:
        return False
    status = rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    return bool(status == 0)


@cache
def _renameat2() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None


# --- What killed writers left -----------------------------------------------------------------------------------------


def put_back_beside(target: Path) -> None:
    """Where nothing is at a place, put back what a killed writer took from there, if it did.

    Parameters
    ----------
    target
        A file or folder that is written with this module.
    """
    if not os.path.lexists(target):
        clean_beside(target)


def clean_beside(target: Path, *, dry_run: bool = False) -> dict[Path, int]:
    """Put back what a killed writer took from a place, and remove what it left beside and in it.

    Parameters
    ----------
    target
        A file or folder that is written with this module.
    dry_run
        Change nothing.

    Returns
    -------
    dict
        What was removed, or would be, and its bytes. What somebody works on stays, and what may not be touched.
    """
    removed = {}
    pattern = _leftover_pattern(target.name)
    for parent in (target.parent, target):
        try:
            leftovers = sorted(Path(entry) for entry in os.scandir(parent) if pattern.fullmatch(entry.name))
        except OSError:
            # There is no such folder, or another user owns it.
            continue
        for path in leftovers:
            size = size_of(path)
            # Files without permission to remove them stay.
            with suppress(OSError):
                if _clean(path, parent, dry_run=dry_run):
                    removed[path] = size
    return removed


@cache
def _leftover_pattern(name: str) -> re.Pattern[str]:
    short = re.escape(name[:_NAME_CHARACTERS])
    # Earlier releases moved a trace to `.old`, and wrote names in full.
    return re.compile(rf"\.(?:{short}|{re.escape(name)})\.[0-9a-f]{{32}}\.(?:tmp|old)")


def _clean(path: Path, parent: Path, *, dry_run: bool) -> bool:
    """Say whether something was, or would be, removed."""
    if path.is_symlink():
        return False
    if not path.is_dir():
        return _remove_file(path, dry_run=dry_run)
    if path.suffix == ".old":
        # Earlier releases moved a trace there, and then its successor to its place.
        place = parent / path.name[1:-37]
        if os.path.lexists(place):
            if not dry_run:
                remove(path)
            return True
        if not dry_run:
            path.rename(place)
        return False
    with claimed(path) as use:
        if use is Use.DEAD and not dry_run:
            _put_back(path, parent)
            remove_claimed(path)
        return use is Use.DEAD


def _remove_file(path: Path, *, dry_run: bool) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if lock(descriptor) is not Lock.OURS:
            return False
        if not dry_run:
            path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder.

    Parameters
    ----------
    path
        Links are not followed; what vanishes meanwhile counts nothing.

    Returns
    -------
    int
        Sum of the sizes of files, 0 where nothing is.
    """
    total = 0
    with suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            return path.lstat().st_size
        for folder, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):
                    total += (Path(folder) / name).lstat().st_size
    return total
