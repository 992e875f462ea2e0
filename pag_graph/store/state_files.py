"""Where a build stood when it was committed: one file per commit, beside the table `epochs`, which pins it.

It is written once and never changed; `pag vacuum` removes it with the last commit that names it.
"""

from __future__ import annotations

import re
import uuid
import zlib
from typing import TYPE_CHECKING, Any

from pag_graph.errors import StoreError
from pag_graph.store.in_place import refusals
from pag_graph.store.parts import damaged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

STATE_NAME = re.compile(r"state-[0-9a-f]{32}-[0-9a-f]{8}\.json")
_TABLE = "epochs"


def write_state(store: Path, content: bytes) -> dict[str, Any]:
    """Write a state, without committing it.

    Parameters
    ----------
    store
        Directory of the store.
    content
        What to write.

    Returns
    -------
    dict
        What the commit says of it: `file` and `size`.

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
    return {"file": name, "size": len(content)}


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
    file = store / _TABLE / name
    if not STATE_NAME.fullmatch(name):
        raise damaged(store / _TABLE / "_delta_log", f"a commit names the state {name!r}")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise damaged(file, f"it cannot be read: {error}") from error
    if len(content) != pin.get("size") or f"{zlib.crc32(content):08x}" != name[-13:-5]:
        raise damaged(file, "its bytes are not those that were committed")
    return content
