"""The actions of Delta's log that a store writes, and the files that they stand in."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.store.durable import to_disk
from pag_graph.store.parts import PartFile, damaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Action = dict[str, Any]
"""A line of the log."""

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
"""What of Delta a reader and a writer of the log must know."""
_DELTA_TYPES = {pa.int32(): "integer", pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}
_DELTA_TYPES |= {pa.bool_(): "boolean"}

_WORDS = pa.map_(pa.string(), pa.string())
_CHECKPOINT_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _WORDS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
        "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _WORDS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "createdTime": pa.int64(),
                "configuration": _WORDS,
            }
        ),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)


def add_action(part: PartFile, now: int) -> Action:
    """Return the action that adds a file.

    Parameters
    ----------
    part
        The file.
    now
        When it was added, in milliseconds of Unix time.

    Returns
    -------
    dict
        The content of an ``add``.
    """
    return {
        "path": part.path,
        "partitionValues": {},
        "size": part.size_bytes,
        "modificationTime": now,
        "dataChange": True,
        "stats": part.statistics,
    }


def metadata_action(schema: pa.Schema, id_: str, now: int) -> Action:
    """Return the action that says what a table is.

    Parameters
    ----------
    schema
        Columns of the types that contract 2 has: int32, int64, float64, string and bool.
    id_
        Delta's name of the table.
    now
        When it was made, in milliseconds of Unix time.

    Returns
    -------
    dict
        The content of a ``metaData``.
    """
    fields = [
        {"name": field.name, "type": _DELTA_TYPES[field.type], "nullable": field.nullable, "metadata": {}}
        for field in schema
    ]
    return {
        "id": id_,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "createdTime": now,
        "configuration": {},
    }


def read_checkpoint(file: Path, expected: tuple[int, str]) -> list[Action]:
    """Read a checkpoint, once its bytes are found to be those that were written.

    Parameters
    ----------
    file
        The checkpoint.
    expected
        Size and CRC-32, in hexadecimal; where the latter is empty, another program wrote it and nothing is compared.

    Returns
    -------
    list of dict
        Delta's actions, one per file, transaction and so on; the only key of each is its name.

    Raises
    ------
    StoreError
        If it is missing or damaged.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise damaged(file, f"it cannot be read: {error}") from error
    # Those of other programs are not known.
    if expected[1] and (len(content), f"{zlib.crc32(content):08x}") != expected:
        raise damaged(file, "its bytes are not those that were committed")
    try:
        # A file of Parquet's is opened only now: a damaged one may ask for any amount of memory.
        with pq.ParquetFile(pa.BufferReader(content)) as parquet:
            columns = [name for name in _CHECKPOINT_SCHEMA.names if name in parquet.schema_arrow.names]
            rows = parquet.read(columns).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise damaged(file, f"it is not a checkpoint: {error}") from error
    return [{name: value} for row in rows for name, value in row.items() if value is not None]


def packed(rows: list[Action]) -> bytes:
    """Turn actions into the content of a checkpoint.

    Parameters
    ----------
    rows
        One action each; changed here.

    Returns
    -------
    bytes
        A file of Parquet.
    """
    for row in rows:
        # Arrow wants maps as pairs.
        for action in row.values():
            if "partitionValues" in action:
                action["partitionValues"] = []
            if "configuration" in action:
                action |= {"configuration": [], "format": {"provider": "parquet", "options": []}}
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, _CHECKPOINT_SCHEMA), buffer, compression="zstd")
    content: bytes = buffer.getvalue().to_pybytes()
    return content


def put(file: Path, content: bytes) -> None:
    """Make a file appear whole, and only if there is none of its name.

    Parameters
    ----------
    file
        Its folder exists.
    content
        What it holds.

    Raises
    ------
    FileExistsError
        If there is a file of that name.
    OSError
        If the file system refuses.
    """
    with temporary_file(file.parent) as temporary:
        temporary.write_bytes(content)
        to_disk(temporary)
        os.link(temporary, file)
        to_disk(file.parent)


@contextlib.contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """Name a file to be written before it gets its place, and remove it where it has not been renamed.

    If it cannot be removed, that changes nothing of what was done: a commit that is linked is a commit. Then it stays
    until a build that follows a dead one, or `pag vacuum`, removes it.

    Parameters
    ----------
    folder
        Where to write it: that of the log.

    Yields
    ------
    Path
        A name that nothing has.
    """
    temporary = folder / f"_commit_{uuid.uuid4().hex}.json.tmp"
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
