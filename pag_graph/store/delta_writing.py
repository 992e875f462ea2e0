"""The next version of Delta's log of one table, and a checkpoint before it every hundred versions."""

from __future__ import annotations

import uuid
import zlib
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Any

import orjson

from pag_graph.store.delta_actions import PROTOCOL, Action, add_action, metadata_action, packed, put, temporary_file
from pag_graph.store.delta_log import BASE, FOLDER, Base, TableState, checkpoint_file, commit_file, read_state

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import pyarrow as pa

    from pag_graph.store.parts import PartFile

CHECKPOINT_EVERY = 100
"""Versions after which what a table holds is written down whole."""

_product = cache(lambda: version_of("pag-graph"))
"""Returns the version of this package, which takes a while to find out."""


def write_version(
    directory: Path,
    schema: pa.Schema,
    before: TableState,
    files: Mapping[str, PartFile],
    *,
    info: Mapping[str, Any],
    transaction: tuple[str, int],
    moved: Collection[str] = (),
) -> int:
    """Add a version to a table with which it holds certain files and no others.

    Parameters
    ----------
    directory
        Of the table.
    schema
        Its columns.
    before
        What it holds at the version before, or what `read_tip` says of that.
    files
        What it shall hold, by path, beside the files that `before` does not name.
    info
        More to be said about the version; values are text.
    transaction
        The application, and the number of its transaction.
    moved
        Paths of files that come or go without any row coming or going.

    Returns
    -------
    int
        The number of the version: the one after `before`.

    Raises
    ------
    FileExistsError
        If somebody else added that version.
    StoreError
        If the checkpoint before it is damaged.
    OSError
        If the file system refuses.

    Notes
    -----
    Reads and writes what is new, but for one version of `CHECKPOINT_EVERY`.
    """
    version, now = before.version + 1, int(datetime.now(UTC).timestamp() * 1000)
    (directory / FOLDER).mkdir(parents=True, exist_ok=True)
    checkpoint = None
    if before.version > 0 and before.version % CHECKPOINT_EVERY == 0:
        checkpoint = _write_checkpoint(directory, schema, _with_all_files(directory, before))
    if appends := before.more or bool(before.files.keys() & files.keys()):
        base = before.base if checkpoint is None else Base(version=before.version, checkpoint=checkpoint)
    else:
        base = Base(version=version)
    actions: list[Action] = [
        {
            "commitInfo": {
                "timestamp": now,
                "operation": "WRITE",
                "operationParameters": {"mode": "Append" if appends else "Overwrite", "partitionBy": "[]"},
                "engineInfo": f"pag-graph/{_product()}",
                BASE: {
                    "version": base.version,
                    "checkpoint": base.checkpoint and {"size": base.checkpoint[0], "crc32": base.checkpoint[1]},
                },
                **info,
            }
        },
        {"txn": {"appId": transaction[0], "version": transaction[1], "lastUpdated": now}},
    ]
    if base.version == version:
        # A reader that begins here has to know what the table is.
        id_ = before.id or _with_all_files(directory, before).id or str(uuid.uuid4())
        actions += [{"protocol": PROTOCOL}, {"metaData": metadata_action(schema, id_, now)}]
    actions += [
        {"add": add_action(part, now) | {"dataChange": path not in moved and path not in before.files}}
        for path, part in files.items()
        # The next version looks here for what it replaces.
        if path not in before.files or part.provisional
    ]
    actions += [
        {"remove": {"path": path, "deletionTimestamp": now, "dataChange": path not in moved, "size": part.size_bytes}}
        for path, part in before.files.items()
        if path not in files
    ]
    put(commit_file(directory, version), b"".join(orjson.dumps(action) + b"\n" for action in actions))
    return version


def _with_all_files(directory: Path, state: TableState) -> TableState:
    """Return a state with all its files and the table's name, which a tip need not say."""
    return read_state(directory, state.version) if state.more else state


def _write_checkpoint(directory: Path, schema: pa.Schema, state: TableState) -> tuple[int, str] | None:
    """Write down what a table holds at a version, and return the file's size and CRC-32.

    Tombstones are left out: only a clean-up asks for them, and it goes by what the store pins.
    """
    file = checkpoint_file(directory, state.version)
    rows: list[Action] = [
        {"protocol": PROTOCOL},
        {"metaData": metadata_action(schema, state.id or str(uuid.uuid4()), 0)},
        *({"txn": {"appId": app, "version": number}} for app, number in state.transactions.items()),
        *({"add": add_action(part, 0)} for part in state.files.values()),
    ]
    content = packed(rows)
    try:
        put(file, content)
    except FileExistsError:
        # Another build was faster, or another program has its own; the latter's is not needed.
        if file.read_bytes() != content:
            return None
    with temporary_file(file.parent) as temporary:
        temporary.write_bytes(orjson.dumps({"version": state.version, "size": len(rows)}))
        temporary.replace(file.parent / "_last_checkpoint")
    return len(content), f"{zlib.crc32(content):08x}"
