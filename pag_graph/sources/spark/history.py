"""Event logs from a History Server: spooled to disk, within bounds, from the one host that was named."""

from __future__ import annotations

import os
import re
import shutil
import urllib.error
import urllib.request
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from pag_graph.errors import InvalidParameterError, StoreError, TraceFormatError
from pag_graph.store.access import address_parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["HEADER", "Bounds", "choose_applications", "fetch_application", "spool"]

HEADER = "PAG_HISTORY_HEADER"
"""Environment variable with a header of all requests, as in ``Authorization: Bearer ...``; it is never shown."""

_APPLICATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}", re.ASCII)
_PIECE = 1 << 20
_LONGEST_LIST = 64 << 20
_PATIENCE_SECONDS = 60
_ELSEWHERE = 3
"""Hundreds of an HTTP status that says to look elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a server may send."""

    archive_bytes: int = 4 << 30
    """Of an archive, as it is sent."""
    content_bytes: int = 64 << 30
    """Of all that is in it."""
    ratio: int = 1_000
    """How many times larger a member may be than it is in the archive."""
    members: int = 100_000


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Is never sent elsewhere: the header is for the host that was named."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nowhere: the answer is an error with its status."""


class _Body:
    """What a server sends; where it breaks off, the error says so."""

    def __init__(self, answer: Any, host: str) -> None:
        self._answer, self._host = answer, host

    def read(self, size: int) -> bytes:
        try:
            content: bytes = self._answer.read(size)
        except (OSError, HTTPException) as error:
            message = f"The History Server at {self._host} broke off: {type(error).__name__}."
            raise TraceFormatError(message, "Try again, or take the log from the server's own folder.", {}) from None
        return content


def choose_applications(server: str, *, name: str | None = None, last: int = 1) -> list[str]:
    """Return the applications of a server whose name fits, the newest first.

    Parameters
    ----------
    server
        Its address, such as ``http://127.0.0.1:18080``.
    name
        Regular expression that the whole name fits; all fit without.
    last
        How many at most.

    Raises
    ------
    TraceFormatError
        If the server does not answer, or with something else.
    InvalidParameterError
        If the address or the expression is none.
    """
    try:
        fits = re.compile(name or ".*")
    except re.error as error:
        message = f"{name!r} is not a regular expression: {error}."
        raise InvalidParameterError(message, None, {"name": name}) from error
    with _response(server, "/api/v1/applications") as answer:
        content = answer.read(_LONGEST_LIST + 1)
    try:
        applications = [application_row for application_row in _listed(content) if fits.fullmatch(application_row[2])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = "The History Server's list of applications cannot be read."
        raise TraceFormatError(message, "Look at whether the address is that of a History Server.", {}) from error
    return [application for _, application, _ in sorted(applications, reverse=True)[:last]]


def _listed(content: bytes) -> list[tuple[int, str, str]]:
    """Return start, id and name of all applications; what no log could be fetched of is left out."""
    if len(content) > _LONGEST_LIST:
        raise ValueError
    return [
        (
            max((int(run.get("startTimeEpoch", 0)) for run in application.get("attempts") or ()), default=0),
            str(application["id"]),
            str(application.get("name", "")),
        )
        for application in orjson.loads(content)
        if _APPLICATION.fullmatch(str(application["id"]))
    ]


def fetch_application(server: str, application: str, folder: Path, *, bounds: Bounds = Bounds()) -> Path:
    """Bring the logs of an application, of all its attempts, to a folder.

    Parameters
    ----------
    server
        Its address.
    application
        The application's id.
    folder
        Where to put a folder with the application's name.
    bounds
        What the server may send.

    Returns
    -------
    Path
        A folder with event logs.

    Raises
    ------
    TraceFormatError
        If the server does not answer, breaks off, has no such application, or sends what is no archive, beyond the
        bounds, or has two files of one name.
    InvalidParameterError
        If the address, or the id, is none.
    StoreError
        If there is no room for it.
    """
    if _APPLICATION.fullmatch(application) is None:
        message = f"{application!r} is not an id of an application."
        raise InvalidParameterError(message, "Give it as the History Server lists it.", {"app": application})
    target = folder / application
    target.mkdir(parents=True)
    archive = folder / f"{application}.zip"
    with (
        _response(server, f"/api/v1/applications/{quote(application)}/logs") as answer,
        archive.open("wb") as archive_file,
    ):
        spool(answer, archive_file, bounds.archive_bytes, "The archive")
    try:
        with zipfile.ZipFile(archive) as members:
            _unpack(members, target, bounds)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        message = "What the History Server sent is not an archive of logs."
        raise TraceFormatError(message, "Look at the server's own log.", {"app": application}) from error
    finally:
        archive.unlink()
    return target


@contextmanager
def _response(server: str, path: str) -> Iterator[_Body]:
    """Ask a server, and give what it answers."""
    address = address_parts(server)
    if (
        address.scheme not in {"http", "https"}
        or not address.hostname
        or address.username
        or address.query
        or address.fragment
    ):
        message = "The History Server's address must be http://HOST:PORT or https://HOST:PORT, without a password."
        raise InvalidParameterError(message, f"Headers come from the environment variable {HEADER}.", {})
    request = urllib.request.Request(f"{server.rstrip('/')}{path}")  # noqa: S310 http or https
    name, colon, value = os.environ.get(HEADER, "").partition(":")
    if colon:
        request.add_header(name.strip(), value.strip())
    try:
        answer = urllib.request.build_opener(_NoRedirect).open(request, timeout=_PATIENCE_SECONDS)
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
        message = f"The History Server answers with HTTP {status}."
        hint = f"Look at the id, and whether {HEADER} must be set." if status in {401, 403, 404} else None
        if status // 100 == _ELSEWHERE:
            message = f"The History Server redirects to another place (HTTP {status})."
            hint = "Give the address that it redirects to."
        raise TraceFormatError(message, hint, {"status": status}) from None
    except (OSError, ValueError, HTTPException) as error:
        message = f"The History Server at {address.hostname} does not answer: {type(error).__name__}."
        raise TraceFormatError(message, "Look at the address.", {}) from None
    with answer:
        yield _Body(answer, address.hostname)


def spool(source: Any, out: IO[bytes], most: int, what: str) -> int:
    """Copy a stream piece by piece.

    Parameters
    ----------
    source
        Has ``read(size)``.
    out
        Where to.
    most
        How many bytes it may have.
    what
        What it is, for the message.

    Returns
    -------
    int
        How many bytes it had.

    Raises
    ------
    TraceFormatError
        If it is larger than it may be. What was read before stays written.
    StoreError
        If there is no room for it.
    """
    size = 0
    while piece := source.read(_PIECE):
        size += len(piece)
        if size > most:
            message = f"{what} is larger than {most:,} bytes, which is the limit."
            raise TraceFormatError(message, "Take the log from the server's own folder.", {"limit": most})
        try:
            out.write(piece)
            out.flush()
        except OSError as error:
            message = f"{what} cannot be kept: {error}."
            raise StoreError(message, "Set TMPDIR to a folder with room.", {}) from error
    return size


def _opened(place: Path, target: Path) -> IO[bytes]:
    """Open a new file for one of an archive; none of them replaces another one."""
    try:
        place.parent.mkdir(exist_ok=True)
        return place.open("xb")
    except FileExistsError as error:
        message = f"The archive holds two files of one name: {place.relative_to(target)}."
        raise TraceFormatError(message, "Take the log from the server's own folder.", {}) from error


def _unpack(members: zipfile.ZipFile, target: Path, bounds: Bounds) -> None:
    """Unpack the files of an archive by the last two parts of their names; nothing leaves the folder."""
    infos = [info for info in members.infolist() if not info.is_dir()]
    if len(infos) > bounds.members:
        message = f"The archive holds more than {bounds.members:,} files, which is the limit."
        raise TraceFormatError(message, "Take the log from the server's own folder.", {"files": len(infos)})
    bytes_left = bounds.content_bytes
    for info in infos:
        names = [name for name in PurePosixPath(info.filename.replace("\\", "/")).parts if _APPLICATION.fullmatch(name)]
        if not names:
            continue
        place = target.joinpath(*names[-2:])
        if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            # No History Server compresses otherwise, and each way has errors of its own.
            raise zipfile.BadZipFile
        # What the archive says of sizes is not believed: what comes out is counted.
        most_bytes = min(bytes_left, max(bounds.ratio * info.compress_size, _PIECE))
        with members.open(info) as source, _opened(place, target) as file:
            bytes_left -= spool(source, file, most_bytes, "A file of the archive")
    if not any(path.is_file() for path in target.rglob("*")):
        shutil.rmtree(target)
        message = "The archive that the History Server sent holds no file."
        raise TraceFormatError(message, "Look at the application's id.", {})
