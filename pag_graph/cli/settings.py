"""What `--set` takes, of commands and of jobs."""

from __future__ import annotations

from typing import Any

from pag_graph.analyses.parameters import value_of
from pag_graph.errors import InvalidParameterError


def setting(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE; the value is JSON, or else taken as text.

    Parameters
    ----------
    text
        As on the command line; the name's hyphens stand for underscores.

    Returns
    -------
    tuple
        Name and value.

    Raises
    ------
    InvalidParameterError
        If it is not of that form.

    Examples
    --------
    >>> setting("some-progress=true"), setting("by=all")
    (('some_progress', True), ('by', 'all'))
    """
    name, separator, value = text.partition("=")
    if not (separator and name):
        message = f"--set {text!r} is not of the form NAME=VALUE."
        raise InvalidParameterError(message)
    return name.replace("-", "_"), value_of(value)


def scalar_setting(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE, where the value is one number, text or truth value.

    Parameters
    ----------
    text
        See `setting`.

    Returns
    -------
    tuple
        Name and value.

    Raises
    ------
    InvalidParameterError
        If it has no name, or the value is a list or an object.
    """
    name, value = setting(text)
    if not isinstance(value, bool | int | float | str):
        message = f"--set {text!r}: a parameter is a number, a text, true or false."
        raise InvalidParameterError(message)
    return name, value
