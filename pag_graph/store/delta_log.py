"""Delta's log of one table, as far as a store needs it: read a version, add the next one.

A version is one file of JSON lines that is put there whole, or not at all if there is one of that number: whoever adds
a version knows its number, and no two builds can have the same. Paths are those of the file system throughout; Delta's
own libraries take them for addresses, and cannot work in folders with some characters. What is written is plain Delta,
for any reader.

To read a version, the log is replayed from where the version says (`Base`): one that replaced all that was there, or a
checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

import orjson

from pag_graph.errors import StoreError
from pag_graph.store.delta_actions import (
    PROTOCOL,
    Action,
    read_checkpoint,
    temporary_file,
)
from pag_graph.store.parts import PartFile, damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


FOLDER = "_delta_log"
BASE = "pag_graph_base"
"""Entry of a version that says where reading it begins."""
_NEWEST = "_pag_graph_newest"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PLAIN = re.compile(r"[\w.-]+\.parquet", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Where reading a version begins."""

    version: int
    """The first version to read; or the one whose checkpoint to read, and then the versions after it."""
    checkpoint: tuple[int, str] | None = None
    """Size and CRC-32 of the checkpoint, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What a table holds at a version."""

    version: int
    """Number of the version; -1 where the table does not exist yet."""
    base: Base
    """Where reading the version begins."""
    files: Mapping[str, PartFile]
    """By path, in the order in which they were added."""
    more: bool = False
    """Whether the table holds more files than `files`, all of which stay at the next version (`read_tip`)."""
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Per application: the last transaction that it has done."""
    id: str = ""
    """Delta's name of the table."""


def latest(directory: Path, *, since: int = -1) -> int:
    """Return the number of the newest version of a table, -1 where it has none.

    Parameters
    ----------
    directory
        Of the table.
    since
        A version that may be there. If it is, those behind it are tried one by one.

    Returns
    -------
    int
        Lists the log otherwise.

    Raises
    ------
    StoreError
        If the log cannot be listed.
    """
    if since < 0 or not commit_file(directory, since).exists():
        return max(versions(directory), default=-1)
    while commit_file(directory, since + 1).exists():
        since += 1
    return since


def versions(directory: Path) -> list[int]:
    """Return the numbers of the versions that the log of a table still knows, ascending.

    Parameters
    ----------
    directory
        Of the table.

    Returns
    -------
    list of int
        Empty where there is no log.

    Raises
    ------
    StoreError
        If the log cannot be listed.
    """
    return sorted(int(match[1]) for match in _named(directory, _COMMIT))


def checkpoints(directory: Path) -> list[int]:
    """Return the numbers of the versions of a table that have a checkpoint, ascending.

    Parameters
    ----------
    directory
        Of the table.

    Returns
    -------
    list of int
        Empty where there is no log.

    Raises
    ------
    StoreError
        If the log cannot be listed.
    """
    return sorted(int(match[1]) for match in _named(directory, _CHECKPOINT))


def checkpoint_file(directory: Path, version: int) -> Path:
    """Return the file of the checkpoint of a version of a table.

    Parameters
    ----------
    directory
        Of the table.
    version
        Number of the version.

    Returns
    -------
    Path
        It need not exist.
    """
    return directory / FOLDER / f"{version:020}.checkpoint.parquet"


def newest_known(directory: Path) -> int:
    """Return the number of a version that was there once, as `note_newest` noted it.

    Parameters
    ----------
    directory
        Of the table.

    Returns
    -------
    int
        -1 where nothing was noted.
    """
    try:
        return int((directory / FOLDER / _NEWEST).read_bytes())
    except (OSError, ValueError):
        return -1


def note_newest(directory: Path, version: int) -> None:
    """Note the number of a version, so that its loss shows; where that cannot be, nothing depends on it.

    Parameters
    ----------
    directory
        Of the table.
    version
        Number of the version.
    """
    with contextlib.suppress(OSError), temporary_file(directory / FOLDER) as temporary:
        temporary.write_bytes(str(version).encode())
        temporary.replace(directory / FOLDER / _NEWEST)


def _named(directory: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    try:
        names = os.listdir(directory / FOLDER)  # noqa: PTH208  (a log may have ten thousand files)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        message = f"{directory / FOLDER} cannot be listed: {error}."
        raise StoreError(message, "See who may read it.", {"path": str(directory)}) from error
    return [match for name in names if (match := pattern.fullmatch(name))]


def commit_file(directory: Path, version: int) -> Path:
    """Return the file of a version of a table.

    Parameters
    ----------
    directory
        Of the table.
    version
        Number of the version.

    Returns
    -------
    Path
        It need not exist.
    """
    return directory.joinpath(FOLDER, f"{version:020}.json")


def read_commit(directory: Path, version: int) -> list[Action]:
    """Return what a version says, line by line.

    Parameters
    ----------
    directory
        Of the table.
    version
        Its number.

    Returns
    -------
    list of dict
        Delta's actions; the first key of each is its name.

    Raises
    ------
    StoreError
        If it is missing or no JSON.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    file = commit_file(directory, version)
    try:
        actions = [orjson.loads(line) for line in file.read_bytes().splitlines() if line]
    except FileNotFoundError as error:
        raise damaged(file, "it is missing") from error
    except (OSError, ValueError) as error:
        raise damaged(file, f"it cannot be read: {error}") from error
    if not actions or not all(isinstance(action, dict) for action in actions):
        raise damaged(file, "it holds no commit of Delta")
    return actions


def commit_info(actions: Iterable[Action]) -> Action:
    """Return what a version says of itself.

    Parameters
    ----------
    actions
        From `read_commit`.

    Returns
    -------
    dict
        Empty where it says nothing.
    """
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), None)
    return info if isinstance(info, dict) else {}


def read_state(directory: Path, version: int) -> TableState:
    """Return what a table holds at a version.

    Parameters
    ----------
    directory
        Of the table.
    version
        Its number; -1 for a table that does not exist yet.

    Returns
    -------
    TableState
        Reads the log from the version's base on.

    Raises
    ------
    StoreError
        If the log is damaged, or another program has used what this one does not know; names the file.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    files: dict[str, PartFile] = {}
    transactions: dict[str, int] = {}
    id_ = ""
    if version < 0:
        return TableState(version=-1, base=Base(version=0), files=files)
    newest = read_commit(directory, version)
    base = base_of(directory, version, newest)
    steps = range(base.version, version)
    file = commit_file(directory, version)
    try:
        if base.checkpoint is not None:
            file, steps = checkpoint_file(directory, base.version), range(base.version + 1, version)
            id_ = _replay(read_checkpoint(file, base.checkpoint), files, transactions) or id_
        for step in steps:
            file = commit_file(directory, step)
            id_ = _replay(read_commit(directory, step), files, transactions) or id_
        file = commit_file(directory, version)
        id_ = _replay(newest, files, transactions) or id_
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged(file, f"it holds no commit of this package ({error!r})") from error
    return TableState(version=version, base=base, files=files, transactions=transactions, id=id_)


def read_tip(directory: Path, version: int) -> TableState:
    """Return what a version itself says of a table: enough to add the next one, if that leaves all other files alone.

    Parameters
    ----------
    directory
        Of the table.
    version
        Its number.

    Returns
    -------
    TableState
        With the files that came with the version; `more` where there were others. Reads one file.

    Raises
    ------
    StoreError
        If the log is damaged; names the file.
    """
    newest = read_commit(directory, version)
    base = base_of(directory, version, newest)
    return _after(directory, newest, TableState(version=version - 1, base=base, files={}, more=base.version != version))


def read_next(directory: Path, before: TableState) -> TableState:
    """Return what a table holds at the version after one that was read: only what is new is read.

    Parameters
    ----------
    directory
        Of the table.
    before
        What it holds at the version before.

    Returns
    -------
    TableState
        As of `read_state`.

    Raises
    ------
    StoreError
        If the log is damaged; names the file.
    """
    version = before.version + 1
    newest = read_commit(directory, version)
    base = base_of(directory, version, newest)
    if base.version not in {before.base.version, before.version} or before.version < 0:
        return read_state(directory, version)
    return _after(directory, newest, replace(before, base=base))


def _after(directory: Path, newest: Iterable[Action], before: TableState) -> TableState:
    """Do what the next version says, of which the base is known."""
    version, files, transactions = before.version + 1, dict(before.files), dict(before.transactions)
    try:
        id_ = _replay(newest, files, transactions) or before.id
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged(commit_file(directory, version), f"it holds no commit of this package ({error!r})") from error
    return replace(before, version=version, files=files, transactions=transactions, id=id_)


def base_of(directory: Path, version: int, newest: list[Action]) -> Base:
    """Return where reading a version begins.

    Parameters
    ----------
    directory
        Of the table.
    version
        Number of the version.
    newest
        What it says, from `read_commit`.

    Returns
    -------
    Base
        As this package wrote it down. For a version of another program the last checkpoint, or version 0.

    Raises
    ------
    StoreError
        If it does not say so properly, or the log cannot be listed.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    statement = commit_info(newest).get(BASE)
    if statement is not None:
        try:
            checkpoint = statement["checkpoint"]
            base = Base(
                version=int(statement["version"]),
                checkpoint=checkpoint and (int(checkpoint["size"]), str(checkpoint["crc32"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(commit_file(directory, version), "it does not say where reading begins") from error
        if 0 <= base.version <= version:
            return base
        raise damaged(commit_file(directory, version), f"it says that reading begins at {base.version}")
    # Written by another program.
    newest_checkpoint = max((number for number in checkpoints(directory) if number <= version), default=None)
    return Base(version=0) if newest_checkpoint is None else Base(version=newest_checkpoint, checkpoint=(-1, ""))


def _replay(actions: Iterable[Action], files: dict[str, PartFile], transactions: dict[str, int]) -> str:
    """Do what a version did, and return the table's name, where it says."""
    id_ = ""
    # Within a version the order does not count.
    for action in actions:
        if remove := action.get("remove"):
            files.pop(_path(remove), None)
        elif transaction := action.get("txn"):
            transactions[transaction["appId"]] = int(transaction["version"])
        elif metadata := action.get("metaData"):
            id_ = str(metadata["id"])
        elif (protocol := action.get("protocol")) and int(protocol["minReaderVersion"]) > PROTOCOL["minReaderVersion"]:
            message = f"protocol {protocol['minReaderVersion']}"
            raise ValueError(message)
    for action in actions:
        if add := action.get("add"):
            path, statistics = _path(add), str(add["stats"])
            rows = int(orjson.loads(statistics)["numRecords"])
            files[path] = PartFile(path=path, size_bytes=int(add["size"]), rows=rows, statistics=statistics)
    return id_


def changes(directory: Path, version: int) -> tuple[list[str], list[str]]:
    """Return the files that came to a table with a version, and those that left it.

    Parameters
    ----------
    directory
        Of the table.
    version
        Its number.

    Returns
    -------
    added, removed
        Paths relative to the directory.

    Raises
    ------
    StoreError
        If the version is missing or damaged.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    try:
        actions = read_commit(directory, version)
        added = [_path(action["add"]) for action in actions if action.get("add")]
        return added, [_path(action["remove"]) for action in actions if action.get("remove")]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged(commit_file(directory, version), f"it holds no commit of this package ({error!r})") from error


def _path(action: Action) -> str:
    path = unquote(action["path"])
    if not _PLAIN.fullmatch(path):
        message = f"file {path!r}"
        raise ValueError(message)
    return path
