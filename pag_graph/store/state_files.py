"""Where a build stood when it was committed: one file per commit, beside the table `epochs`, which pins it.

Sends that nobody has read for long stand in files of their own, which the commits name that still wait for readers. So
does what stays known of removed epochs (`pag_graph.store.remembered`). All of them are written once and never changed;
`pag vacuum` removes them with the last commit that names them.
"""

from __future__ import annotations

import re
import uuid
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pag_graph.errors import StoreError
from pag_graph.store.durable import to_disk
from pag_graph.store.in_place import refusals
from pag_graph.store.parts import damaged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SENDS_NAME = re.compile(r"sends-[0-9a-f]{32}-[0-9a-f]{8}\.arrow")
STATE_NAME = re.compile(r"state-[0-9a-f]{32}-[0-9a-f]{8}\.json")
_TABLE = "epochs"
_OTHER_BYTES = "its bytes are not those that were committed"


def write_state(store: Path, content: bytes, sends: Sequence[str] = ()) -> dict[str, Any]:
    """Write a state, without committing it.

    Parameters
    ----------
    store
        Directory of the store.
    content
        What to write.
    sends
        Names of files of sends that it needs.

    Returns
    -------
    dict
        What the commit says of it: `file`, `size` and, if there are some, `sends`.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    name = f"state-{uuid.uuid4().hex}-{zlib.crc32(content):08x}.json"
    directory = store / _TABLE
    with refusals(directory / name, "", StoreError):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return {"file": name, "size": len(content)} | ({"sends": list(sends)} if sends else {})


def with_sends(pin: Mapping[str, Any] | None, more: Sequence[str], *, instead: Sequence[str]) -> dict[str, Any] | None:
    """Let a commit name other files beside a state.

    Parameters
    ----------
    pin
        As from `write_state`.
    more
        Names of files, as from `write_sends`.
    instead
        Names of those that it no longer needs.

    Returns
    -------
    dict or None
        What the commit says; None where it keeps no state.
    """
    if pin is None:
        return None
    sends = [name for name in pin.get("sends", ()) if name not in instead]
    return {key: value for key, value in {**pin, "sends": [*sends, *more]}.items() if value or key != "sends"}


def discard_sends(store: Path, names: Sequence[str]) -> None:
    """Delete files that no commit names.

    Parameters
    ----------
    store
        Directory of the store.
    names
        As from `write_sends`.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    for name in names:
        with refusals(store / _TABLE / name, "", StoreError):
            (store / _TABLE / name).unlink(missing_ok=True)


def files_of_state(pin: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the files from which an append goes on.

    Parameters
    ----------
    pin
        As from `write_state`; None where a commit kept no state.

    Returns
    -------
    list of str
        The state, then the files of sends; names in the directory of the table `epochs`.
    """
    return [] if pin is None else [str(pin.get("file")), *map(str, pin.get("sends", ()))]


def state_to_disk(store: Path, pin: Mapping[str, Any] | None) -> None:
    """Have the files from which an append goes on reach the disk, where that is asked for (`durable`).

    Parameters
    ----------
    store
        Directory of the store.
    pin
        As for `files_of_state`.
    """
    if names := files_of_state(pin):
        to_disk(*(store / _TABLE / name for name in names), store / _TABLE)


def write_sends(store: Path, sends: pa.Table) -> str:
    """Write sends that nobody has read, or what stays known of removed epochs.

    Parameters
    ----------
    store
        Directory of the store.
    sends
        Rows of any schema.

    Returns
    -------
    str
        Name of the file, in the directory of the table `epochs`; it holds the checksum of its bytes.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, sends.schema) as writer:
        writer.write_table(sends)
    content = sink.getvalue()
    name, directory = f"sends-{uuid.uuid4().hex}-{zlib.crc32(content):08x}.arrow", store / _TABLE
    with refusals(directory / name, "", StoreError):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return name


def read_sends(store: Path, name: str) -> pa.Table:
    """Read a file of `write_sends`.

    Parameters
    ----------
    store
        Directory of the store.
    name
        As from `write_sends`.

    Returns
    -------
    Table
        Its rows.

    Raises
    ------
    StoreError
        If it is missing or damaged.
    """
    content = _read(store, name, SENDS_NAME, "a state names the sends")
    with pa.ipc.open_file(pa.py_buffer(content)) as reader:
        return reader.read_all()


def read_state_file(store: Path, pin: Mapping[str, Any]) -> bytes:
    """Read a state that a commit names.

    Parameters
    ----------
    store
        Directory of the store.
    pin
        As from `write_state`.

    Returns
    -------
    bytes
        Compared with size and checksum.

    Raises
    ------
    StoreError
        If the file is missing or damaged.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    name = str(pin.get("file"))
    content = _read(store, name, STATE_NAME, "a commit names the state")
    if len(content) != pin.get("size"):
        raise damaged(store / _TABLE / name, _OTHER_BYTES)
    return content


def _read(store: Path, name: str, shape: re.Pattern[str], named_by: str) -> bytes:
    """Read a file whose name holds the checksum of its bytes; `named_by` tells who names it."""
    file = store / _TABLE / name
    if not shape.fullmatch(name):
        raise damaged(store / _TABLE / "_delta_log", f"{named_by} {name!r}")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise damaged(file, f"it cannot be read: {error}") from error
    if f"{zlib.crc32(content):08x}" != name.rpartition("-")[2].partition(".")[0]:
        raise damaged(file, _OTHER_BYTES)
    return content
