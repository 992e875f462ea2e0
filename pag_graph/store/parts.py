"""Parquet files of a store: written once, named after their content, and checked before anything reads them."""

from __future__ import annotations

import json
import os
import re
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.errors import StoreError
from pag_graph.model.live_tables import ALL_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

PROVISIONAL = "open-"
"""How names of files begin that hold rows of epochs that are still open: the next append takes their place."""
_FINAL = "part-"
_CHECKSUM = re.compile(r"-([0-9a-f]{8})\.parquet")
ROW_GROUP = 64 * 1024
"""Rows of a row group: few enough that one epoch is read without much of its neighbours."""
_ANSWERS = ("changes", "row")
_KINDS = {
    table: (
        schema,
        [column.name for column in schema if pa.types.is_integer(column.type)],
        # A row of an answer is a text that hardly comes twice: a dictionary of such texts is made and thrown away.
        [column.name for column in schema if pa.types.is_string(column.type) and (table, column.name) != _ANSWERS],
    )
    for table, schema in ALL_TABLES.items()
}
"""Per table: its schema, the columns of integers, those of words."""
WORDS = {table: words for table, (_, _, words) in _KINDS.items()}
"""Per table: its columns of words that come again and again; files hold them as dictionaries."""
BOUNDS = {
    table: {f"{bound}_{column}": pl.Int64 for bound in ("min", "max") for column in integers}
    for table, (_, integers, _) in _KINDS.items()
}
"""Per table: the least and the largest value of each column of integers, as columns ``min_X`` and ``max_X``."""
_BLOCK = 1 << 20
_SEVERAL = 8 << 20
"""Bytes from which files are checked side by side."""
MENDING = "Restore the store from a copy, or delete it and build it again."
"""What helps where a store is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """A Parquet file that a task wrote and nobody sees until it is committed."""

    path: str
    """Relative to the directory of its table; ends with the checksum of its bytes."""
    size_bytes: int
    """Size of the file."""
    rows: int
    """How many rows it has; at least one."""
    statistics: str
    """JSON as Delta keeps it: `numRecords`, `minValues`, `maxValues`, `nullCount`."""

    @property
    def provisional(self) -> bool:
        """Whether the next append takes its place."""
        return self.path.startswith(PROVISIONAL)

    @property
    def checksum(self) -> str | None:
        """CRC-32 of its bytes, in hexadecimal; None for files of releases that kept none."""
        match = _CHECKSUM.search(self.path)
        return match[1] if match else None


def write_part(store: Path, table: str, content: pa.Table, *, provisional: bool = False) -> PartFile | None:
    """Write rows of a table as one new Parquet file of its directory, without committing it.

    Parameters
    ----------
    store
        Directory of the store.
    table
        Name out of `ALL_TABLES`.
    content
        Its rows, in the order to be kept.
    provisional
        Whether these rows belong to epochs that are still open: the next append takes their place.

    Returns
    -------
    PartFile or None
        None where there are no rows.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    return write_portions(store, table, [content], provisional=provisional)


def write_portions(
    store: Path, table: str, portions: Iterable[pa.Table], *, provisional: bool = False
) -> PartFile | None:
    """Write rows of a table that come in portions as one new Parquet file, as `write_part` does.

    Parameters
    ----------
    store, table, provisional
        As for `write_part`.
    portions
        The rows, in the order to be kept; each is asked for when the one before is encoded. All but the last have whole
        row groups, and all give the same columns as dictionaries.

    Returns
    -------
    PartFile or None
        None where there are no rows.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    with_rows = (portion for portion in portions if portion.num_rows)
    if (first := next(with_rows, None)) is None:
        return None
    schema, integers, words = _KINDS[table]
    # Words may come dictionary-encoded: in the file they are anyway.
    for place, name in enumerate(schema.names):
        if pa.types.is_dictionary(kind := first.schema.field(name).type):
            schema = schema.set(place, schema.field(place).with_type(kind))
    footers: list[pq.FileMetaData] = []
    nulls = dict.fromkeys(schema.names, 0)
    # In memory first: the checksum is that of the bytes as they were written, also if the disk damages them.
    file = pa.BufferOutputStream()
    with pq.ParquetWriter(
        file,
        schema,
        compression="lz4",
        # Statistics of words are made for every batch and take longer than the words; no reader skips by them.
        write_batch_size=ROW_GROUP,
        write_statistics=integers,
        metadata_collector=footers,
        use_dictionary=words,
        # Neighbouring ids and times differ by little: all their bytes but the last ones are the same. Differences with
        # zstd took half as long again to write, and a tenth more room.
        column_encoding=dict.fromkeys(integers, "BYTE_STREAM_SPLIT"),
        store_schema=False,
    ) as writer:
        for portion in chain([first], with_rows):
            content = portion.select(schema.names)
            if content.schema != schema:
                content = content.cast(schema)
            writer.write_table(content, row_group_size=ROW_GROUP)
            for name in nulls:
                nulls[name] += content[name].null_count
    buffer, (footer,) = file.getvalue(), footers
    path = f"{PROVISIONAL if provisional else _FINAL}{uuid.uuid4().hex}-{zlib.crc32(buffer):08x}.parquet"
    _put(store / table, path, buffer)
    return PartFile(
        path=path, size_bytes=buffer.size, rows=footer.num_rows, statistics=_statistics(footer, integers, nulls)
    )


def _put(directory: Path, path: str, content: pa.Buffer) -> None:
    """Write a file; its directory is made if it is not there."""
    try:
        try:
            (directory / path).write_bytes(content)
        except FileNotFoundError:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)
    except OSError as error:
        message = f"{directory / path} cannot be written: {error}."
        raise StoreError(message, "Choose a place with enough room that can be written.") from error


def as_provisional(store: Path, table: str, part: PartFile) -> PartFile:
    """Turn a file that `write_part` wrote for good into one with rows of epochs that are still open.

    Parameters
    ----------
    store, table
        As for `write_part`.
    part
        A file that nobody has committed.

    Returns
    -------
    PartFile
        `part` itself if it is provisional already.
    """
    if part.provisional:
        return part
    path = f"{PROVISIONAL}{part.path.removeprefix(_FINAL)}"
    (store / table / part.path).rename(store / table / path)
    return replace(part, path=path)


def discard(store: Path, table: str, parts: Iterable[PartFile]) -> None:
    """Delete files that were written and shall not be committed.

    Parameters
    ----------
    store, table
        As for `write_part`.
    parts
        Its files; those that are gone already do not count.
    """
    for part in parts:
        (store / table / part.path).unlink(missing_ok=True)


def _statistics(footer: pq.FileMetaData, integers: Sequence[str], nulls: Mapping[str, int]) -> str:
    """Return what Delta keeps of a file; its footer knows the bounds of integers already."""
    low, high = {}, {}
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    for place, name in enumerate(nulls):
        if name in integers:
            group_statistics = (group.column(place).statistics for group in groups)
            if bounds := [(column.min, column.max) for column in group_statistics if column.has_min_max]:
                low[name], high[name] = min(lowest for lowest, _ in bounds), max(highest for _, highest in bounds)
    return json.dumps({"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


# --- Checks ---------------------------------------------------------------------------------------------------------

_known: dict[str, tuple[int, int]] = {}
"""By path: size and time of last change of a file that this process has checked."""


def forget_checks(directory: Path, parts: Iterable[PartFile]) -> None:
    """Forget that files were checked: those that are gone would add up in a process that runs for weeks.

    Parameters
    ----------
    directory
        Of their table.
    parts
        The files; should one be asked for again, it is read again.
    """
    for part in parts:
        _known.pop(str(directory / part.path), None)


def check_parts(directory: Path, parts: Sequence[PartFile], *, reread: bool = False) -> None:
    """Compare files with what was committed, byte by byte, each once per process.

    Parameters
    ----------
    directory
        Of their table.
    parts
        The files; of those without a checksum only the size is compared.
    reread
        Whether to read also files that were checked before.

    Raises
    ------
    StoreError
        If a file is missing, or its bytes are not those that were committed; names it.
    """
    if len(parts) > 1 and sum(part.size_bytes for part in parts) > _SEVERAL:
        # Reading and summing both leave the interpreter to others.
        with ThreadPoolExecutor(min(len(parts), len(os.sched_getaffinity(0)))) as threads:
            list(threads.map(lambda part: _check_part(directory, part, reread=reread), parts))
        return
    for part in parts:
        _check_part(directory, part, reread=reread)


def check_sizes(directory: Path, parts: Iterable[PartFile]) -> None:
    """Compare the sizes of files with what their tasks say of them.

    Parameters
    ----------
    directory
        Of their table.
    parts
        The files.

    Raises
    ------
    StoreError
        If a file is missing or has another size; names it.
    """
    for part in parts:
        _check_size(directory / part.path, part)


def _check_size(file: Path, part: PartFile) -> os.stat_result:
    try:
        status = file.stat()
    except FileNotFoundError as error:
        raise damaged(file, "it is missing") from error
    if status.st_size != part.size_bytes:
        raise damaged(file, f"it has {status.st_size:,} bytes, and {part.size_bytes:,} were written")
    return status


def check_rows(directory: Path, part: PartFile) -> None:
    """Read all of a file, and count its rows.

    Parameters
    ----------
    directory
        Of its table.
    part
        The file, its checksum compared before.

    Raises
    ------
    StoreError
        If it cannot be read, or has other rows than were committed; names it.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    file = directory / part.path
    try:
        with pq.ParquetFile(file) as parquet:
            rows = sum(batch.num_rows for batch in parquet.iter_batches())
    except (OSError, pa.ArrowException) as error:
        raise damaged(file, f"it cannot be read: {error}") from error
    if rows != part.rows:
        raise damaged(file, f"it has {rows:,} rows, and {part.rows:,} were committed")


def _check_part(directory: Path, part: PartFile, *, reread: bool) -> None:
    file = directory / part.path
    try:
        status = _check_size(file, part)
        state = (status.st_size, status.st_mtime_ns)
        if part.checksum is None or (_known.get(str(file)) == state and not reread):
            return
        checksum = _checksum(file)
    except FileNotFoundError as error:
        raise damaged(file, "it is missing") from error
    except OSError as error:
        raise damaged(file, f"it cannot be read: {error}") from error
    if checksum != part.checksum:
        raise damaged(file, "its bytes are not those that were committed")
    _known[str(file)] = state


def _checksum(file: Path) -> str:
    total, block = 0, memoryview(bytearray(_BLOCK))
    with file.open("rb", buffering=0) as content:
        while count := content.readinto(block):
            total = zlib.crc32(block[:count], total)
    return f"{total:08x}"


def damaged(file: Path, reason: str) -> StoreError:
    """Return the error for a file that is not as it was written.

    Parameters
    ----------
    file
        A file in a table's directory, or in its log.
    reason
        What is wrong, as words after a colon.

    Returns
    -------
    StoreError
        It names file, table and store, and says what to do.
    """
    directory = file.parent.parent if file.parent.name == "_delta_log" else file.parent
    message = f"{file}, of the table {directory.name} of the store {directory.parent}, is damaged: {reason}."
    return StoreError(message, MENDING, {"file": str(file), "table": directory.name, "path": str(directory.parent)})
