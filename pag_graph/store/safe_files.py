"""What somebody else's file could do to whoever opens it: make them wait, nest without end, hold no text."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any, NoReturn

from pag_graph.errors import TraceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pag_graph.errors import PagGraphError

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""What is neither a file nor a folder, in words."""


def check_regular(paths: Iterable[Path]) -> None:
    """Refuse what is neither a regular file nor a folder, before anybody opens it: a pipe would be waited for.

    Parameters
    ----------
    paths
        What will be opened; links are followed. What does not exist is left to whoever opens it.

    Raises
    ------
    TraceFormatError
        Names the first pipe, socket or device.
    """
    for path in paths:
        try:
            _check_kind(path, path.stat())
        except OSError:
            continue


def _check_kind(path: Path, status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind in _KINDS:
        message = f"{path} is {_KINDS[kind]}, not a file."
        raise TraceFormatError(message, "Write its content to a file, and give that.", {"file": str(path)})


def check_utf8(place: Path, kind: type[PagGraphError]) -> None:
    """Refuse a place whose name holds a NUL, or bytes that are no text: Polars and Arrow open no file there.

    Parameters
    ----------
    place
        Of a trace or a store.
    kind
        Class of the error.

    Raises
    ------
    PagGraphError
        Of the class `kind`.
    """
    try:
        str(place).encode()
    except UnicodeEncodeError as error:
        message = f"{place} has a name that is not UTF-8, under which no trace or store can be read."
        raise kind(message, "Give the folder another name.", {"path": str(place), "file": str(place)}) from error
    if "\0" in str(place):
        message = f"{place} has a NUL in its name, which no file system has."
        raise kind(message, "Give the folder's name.", {"path": str(place), "file": str(place)})


def check_folder(folder: Path) -> dict[str, os.stat_result | None]:
    """Refuse a folder that holds, right below it, what `check_regular` refuses.

    Parameters
    ----------
    folder
        Is listed.

    Returns
    -------
    dict
        By name, ascending, what the system says of each entry; None of a link that leads nowhere.

    Raises
    ------
    TraceFormatError
        As `check_regular`; or if the folder cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            statuses = {entry.name: _status(entry) for entry in entries}
    except OSError as error:
        message = f"{folder} cannot be listed: {error}."
        raise TraceFormatError(message, None, {"file": str(folder)}) from error
    for name, status in sorted(statuses.items()):
        if status is not None and stat.S_IFMT(status.st_mode) in _KINDS:
            _check_kind(folder / name, status)
    return {name: statuses[name] for name in sorted(statuses)}


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError:
        return None


def parse_json(text: str) -> Any:
    """Read JSON that every later reader can hold: no depth without end, no NaN, one value per name, proper text.

    Parameters
    ----------
    text
        A whole document.

    Returns
    -------
    Any
        What it says.

    Raises
    ------
    ValueError
        Says what is wrong.
    json.JSONDecodeError
        A `ValueError` too, where it is no JSON.

    Examples
    --------
    >>> parse_json('{"a": [1]}')
    {'a': [1]}
    """
    try:
        value = _DECODER.decode(text)
        # Only an escape can name half of a character: text itself was decoded before.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        message = "it is nested too deeply"
        raise ValueError(message) from None
    except UnicodeEncodeError:
        message = "it holds half of a character (a lone surrogate)"
        raise ValueError(message) from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        # Python's own message says how to lift its limit of digits, which does not help the writer of the file.
        if "digits" not in str(error):
            raise
        message = "it holds a number of thousands of digits"
        raise ValueError(message) from None
    return value


def _refuse_constant(word: str) -> NoReturn:
    message = f"it holds {word}, which is no JSON"
    raise ValueError(message)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        message = f"it states {repeated!r} twice"
        raise ValueError(message)
    return entries


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object)
