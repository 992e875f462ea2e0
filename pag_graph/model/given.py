"""What callers of the Python API give: of a wrong type, it is misuse like any other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pag_graph.errors import InvalidParameterError
from pag_graph.model.units import short

__all__ = ["listed", "mapping", "path_of", "text_of", "texts_of"]

_LONGEST = 80


def path_of(value: Any, name: str) -> Path:
    """Return a path that somebody gave.

    Parameters
    ----------
    value
        What was given: a text, or what stands for a path.
    name
        What it is called, for the message.

    Returns
    -------
    Path
        As it was given.

    Raises
    ------
    InvalidParameterError
        If it is none.

    Examples
    --------
    >>> path_of("run.pag", "store").name
    'run.pag'
    """
    if not isinstance(value, str) and not (isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)):
        _refuse(value, name, "a path", "Such as 'run.pag', or pathlib.Path('run.pag').")
    return Path(value)


def text_of(value: Any, name: str) -> str:
    """Return a text that somebody gave.

    Parameters
    ----------
    value, name
        As for `path_of`.

    Returns
    -------
    str
        The same.

    Raises
    ------
    InvalidParameterError
        If it is none.
    """
    if not isinstance(value, str):
        _refuse(value, name, "a text", None)
    return value


def texts_of(value: Any, name: str) -> list[str]:
    """Return texts that somebody gave, such as names of columns.

    Parameters
    ----------
    value, name
        As for `path_of`.

    Returns
    -------
    list of str
        In their order.

    Raises
    ------
    InvalidParameterError
        If they are none. One text is no list of texts: its letters are not meant.

    Examples
    --------
    >>> texts_of(("a", "b"), "columns")
    ['a', 'b']
    """
    values = listed(value, name, "texts")
    if any(not isinstance(text, str) for text in values):
        _refuse(value, name, "a list of texts", None)
    return values


def listed(value: Any, name: str, what: str) -> list[Any]:
    """Return several things that somebody gave.

    Parameters
    ----------
    value, name
        As for `path_of`.
    what
        What they are, for the message.

    Returns
    -------
    list
        In their order.

    Raises
    ------
    InvalidParameterError
        If it is one thing.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | os.PathLike):
        _refuse(value, name, f"a list of {what}", f"{name}=[{short(repr(value), _LONGEST)}]")
    return list(value)


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Return values by name that somebody gave.

    Parameters
    ----------
    value, name
        As for `path_of`.

    Returns
    -------
    Mapping
        The same; empty for None.

    Raises
    ------
    InvalidParameterError
        If it is no mapping whose keys are texts.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        _refuse(value, name, "a mapping of names to values", f"Such as {name}={{'k': 3}}.")
    return value


def _refuse(value: Any, name: str, wanted: str, hint: str | None) -> NoReturn:
    message = f"{name} is {short(repr(value), _LONGEST)}, and must be {wanted}."
    raise InvalidParameterError(message, hint, {name: value})
