"""Event logs from object stores: copied to disk, within bounds, by the file systems that Arrow has."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import pyarrow as pa
from pyarrow import fs

from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.sources.spark.history import Bounds, spool
from pag_graph.store.access import address_parts

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["fetch_logs", "is_address"]

_ADDRESS = re.compile(r"(?:s3a?|gs|abfss?|hdfs|file)://\S+", re.ASCII)
_PARAMETERS = frozenset({"endpoint_override", "region", "scheme"})
"""What an address may say of its store: nothing that is secret."""
_SAME_AS = {"s3a": "s3"}
"""Names that Hadoop has for file systems, and Arrow's."""
_DEEPEST = 2
"""A folder of logs has files, and folders with the parts of one log."""


def is_address(text: str) -> bool:
    """Say whether a text names something in an object store, and not a file.

    Examples
    --------
    >>> is_address("s3://bucket/eventlogs"), is_address("eventlogs/app-1")
    (True, False)
    """
    return _ADDRESS.fullmatch(text) is not None


def fetch_logs(address: str, folder: Path, *, bounds: Bounds | None = None) -> Path:
    """Copy a log, or a folder of logs, from an object store to a folder.

    Parameters
    ----------
    address
        Such as ``s3://bucket/eventlogs/app-1``, ``gs://...`` or ``abfss://container@account.dfs.core.windows.net/...``.
        Who may read it is up to the store's own environment variables and files; an address with a password is refused.
    folder
        Where to put it, under its own name.
    bounds
        How much it may be; as for what a History Server sends where absent.

    Returns
    -------
    Path
        The file, or a folder with event logs.

    Raises
    ------
    TraceFormatError
        If the store does not answer, there is nothing, or too much.
    InvalidParameterError
        If the address is none, or holds a password.
    StoreError
        If there is no room for the log.
    """
    url = address_parts(address)
    if not url.scheme:
        message = f"{address!r} is not an address of an object store."
        raise InvalidParameterError(message, "Write it as in s3://bucket/eventlogs.", {})
    shown_address = f"{url.scheme}://{url.hostname or ''}{url.path}"
    if url.password or url.fragment or not {name for name, _ in parse_qsl(url.query)} <= _PARAMETERS:
        message = (
            f"The address {shown_address} holds a password, or parameters other than {', '.join(sorted(_PARAMETERS))}."
        )
        raise InvalidParameterError(message, "Give credentials by the store's own environment variables.", {})
    scheme = _SAME_AS.get(url.scheme, url.scheme)
    try:
        store, root = fs.FileSystem.from_uri(address.replace(f"{url.scheme}://", f"{scheme}://", 1))
        return _copied(store, PurePosixPath(root), folder, shown_address, bounds or Bounds())
    except (OSError, pa.ArrowException, NotImplementedError) as error:
        message = f"{shown_address} cannot be read: {type(error).__name__}."
        raise TraceFormatError(
            message, "Look at the address, and at who may read it.", {"address": shown_address}
        ) from error


def _copied(store: fs.FileSystem, root: PurePosixPath, folder: Path, shown_address: str, bounds: Bounds) -> Path:
    """Copy what lies at a place of a store."""
    target = folder / (root.name or "logs")
    files = _files(store, root)
    if not files:
        message = f"There is no event log at {shown_address}."
        raise TraceFormatError(
            message, "Give the file or directory below spark.eventLog.dir.", {"address": shown_address}
        )
    if len(files) > bounds.members:
        message = f"{shown_address} holds more than {bounds.members:,} files, which is the limit."
        raise TraceFormatError(message, "Give one application's log.", {"files": len(files)})
    bytes_left = bounds.content_bytes
    for below, path in files:
        place = target / below
        place.parent.mkdir(parents=True, exist_ok=True)
        with store.open_input_stream(path, compression=None) as source, place.open("xb") as file:
            bytes_left -= spool(source, file, bytes_left, f"What lies at {shown_address}")
    return target


def _files(store: fs.FileSystem, root: PurePosixPath) -> list[tuple[PurePosixPath, str]]:
    """Return the files of a log or a folder of logs: by their places below `root`, and in the store."""
    info = store.get_file_info(str(root))
    if info.type == fs.FileType.File:
        return [(PurePosixPath(), info.path)]
    if info.type == fs.FileType.NotFound:
        return []
    listed = store.get_file_info(fs.FileSelector(str(root), recursive=True))
    files = [(PurePosixPath(entry.path).relative_to(root), entry.path) for entry in listed if entry.is_file]
    # Nothing that a store calls its objects leads out of the folder.
    return sorted((below, path) for below, path in files if len(below.parts) <= _DEEPEST and ".." not in below.parts)
