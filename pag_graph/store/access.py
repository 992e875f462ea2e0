"""Who may reach a server, and what a secret in a file must be."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from pag_graph.errors import InvalidParameterError, SinkError

if TYPE_CHECKING:
    from pathlib import Path

_SHORTEST_TOKEN = 16


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches a host.

    Parameters
    ----------
    host
        A name or an address.

    Returns
    -------
    bool
        False for any name but ``localhost``, whatever it leads to: it is not looked up.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_parts(address: str) -> SplitResult:
    """Return the parts of an address.

    Parameters
    ----------
    address
        As a person wrote it.

    Returns
    -------
    SplitResult
        All parts are empty of what is no address at all, such as ``http://[::1``.
    """
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def check_private(file: Path) -> None:
    """Refuse a file that other users may read.

    Parameters
    ----------
    file
        Holds a secret.

    Raises
    ------
    InvalidParameterError
        If others may read it.
    OSError
        If it is not there.
    """
    if file.stat().st_mode & 0o077:
        message = f"Other users can read {file}."
        raise InvalidParameterError(message, f"chmod 600 {file}")


def read_token(file: Path) -> str:
    """Read a secret from a file that nobody else may read.

    Parameters
    ----------
    file
        Holds the secret alone; space around it does not count.

    Returns
    -------
    str
        At least 16 letters, digits and signs of ASCII.

    Raises
    ------
    InvalidParameterError
        If others may read it, or it is too short.
    SinkError
        If it cannot be read.
    """
    try:
        check_private(file)
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"The token in {file} cannot be read: {error}."
        raise SinkError(message) from error
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        message = f"The token in {file} must be {_SHORTEST_TOKEN} or more letters, digits and signs."
        raise InvalidParameterError(message, "Make one: python -c 'import secrets; print(secrets.token_urlsafe())'")
    return token
