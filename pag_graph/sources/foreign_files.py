"""Reading foreign files so that whatever is wrong with them is said with the file's name."""

from __future__ import annotations

import csv
import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.errors import MissingColumnError, SchemaError, TraceFormatError
from pag_graph.store.safe_files import parse_json
from pag_graph.store.trace_files import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

Schema = dict[str, type[pl.DataType]]
"""Columns to read, and what to read them as."""
BATCH_ROWS = 1 << 20
"""Rows of a Parquet file that are read at a time: a few bytes of it can stand for a billion rows."""
_PIECE = 1 << 20
_INT64 = (-(2**63), 2**63 - 1)
_EXACT = 2.0**53
"""Up to there floats are whole numbers without a gap."""


def parquet_columns(file: Path) -> list[str]:
    """Return the names of a Parquet file's columns.

    Raises
    ------
    TraceFormatError
        If the file is absent, or truncated, or something else.
    """
    with _opened(file) as parquet:
        return list(parquet.schema_arrow.names)


def parquet_rows(file: Path) -> int:
    """Return how many rows a Parquet file has, by its footer.

    Raises
    ------
    TraceFormatError
        If the file is absent, or truncated, or something else.
    """
    with _opened(file) as parquet:
        return int(parquet.metadata.num_rows)


def iter_batches(file: Path, columns: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Read columns of a Parquet file in pieces; text is checked.

    Parameters
    ----------
    file
        The file.
    columns
        Names of columns, all if absent; those that the file does not have are passed over.
    rows
        A piece has so many rows at most.

    Yields
    ------
    RecordBatch
        Rows in the order of the file. Of its schema nothing is kept but names and types.

    Raises
    ------
    TraceFormatError
        If the file is absent or damaged, holds more or fewer rows than its footer states, or a piece takes more memory
        than there is. Pieces may have been yielded before.
    """
    rows_read = 0
    with _opened(file) as parquet:
        stated = parquet.metadata.num_rows
        for batch in parquet.iter_batches(rows, columns=None if columns is None else list(columns)):
            for column in batch.columns:
                # Any bytes are valid numbers; the bytes of text are checked nowhere else.
                if not pa.types.is_primitive(column.type):
                    column.validate(full=True)
            rows_read += batch.num_rows
            # Only the names are taken from the schema: its metadata may hold anything.
            yield pa.RecordBatch.from_arrays(batch.columns, names=list(batch.schema.names))
    if rows_read != stated:
        lack = OSError(f"its footer states {stated} rows, but it holds {rows_read}")
        raise TraceFormatError(*unreadable(file, "Parquet", lack))


@contextmanager
def _opened(file: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; what its reading raises becomes an error that names it."""
    try:
        with pq.ParquetFile(pa.OSFile(os.fsencode(file)), pre_buffer=False) as parquet:
            yield parquet
    except DAMAGE as error:
        raise TraceFormatError(*unreadable(file, "Parquet", error)) from error


def iter_frames(file: Path, columns: Schema, rows: int = BATCH_ROWS) -> Iterator[pl.DataFrame]:
    """Read some columns of a Parquet file in pieces; those of a row group's end may be shorter.

    Parameters
    ----------
    file
        The file.
    columns
        Names, and the type of each, to which a column is cast if none of its values changes. Whole numbers may be
        stored as floats, with NaN for a gap.
    rows
        Rows of a piece.

    Yields
    ------
    DataFrame
        These columns in this order, rows in the order of the file.

    Raises
    ------
    TraceFormatError
        If the file is absent or damaged.
    SchemaError
        If a column is absent (`MissingColumnError`), or holds what does not fit the type asked for.
    """
    _check_columns(file, columns)
    for batch in iter_batches(file, list(columns), rows):
        try:
            frame = pl.DataFrame(batch)
            fitting = [_fitting(frame[name], kind) for name, kind in columns.items()]
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, ValueError) as error:
            message = f"{file} holds values that do not fit: {error}."
            raise SchemaError(message, None, {"file": str(file)}) from error
        yield pl.DataFrame(fitting)


def _fitting(values: pl.Series, kind: type[pl.DataType]) -> pl.Series:
    """Give a column the type asked for where no value changes by it."""
    if values.dtype.is_float() and kind == pl.Int64:
        # Some writers store whole numbers with gaps as floats, and a gap as NaN.
        values = values.fill_nan(None)
        broken = (values.round(0) != values) | (values.abs() > _EXACT)
        if broken.any():
            message = f"{values.name} holds {values.filter(broken)[0]!r}, and must hold whole numbers"
            raise ValueError(message)
    is_refused = values.dtype.is_nested() or values.dtype.is_temporal() or values.dtype == pl.Binary
    is_other_kind = values.dtype.is_numeric() if kind == pl.String else values.dtype == pl.Boolean
    if is_other_kind and values.dtype.is_float():
        values = values.fill_nan(None)
    # A column of nothing may be of any type.
    is_refused |= is_other_kind and values.null_count() < values.len()
    if is_refused:
        message = f"{values.name} is of type {values.dtype}, and must be of type {kind.__name__}"
        raise ValueError(message)
    return values.cast(kind)


def refuse_rows(frame: pl.DataFrame, condition: pl.Expr, *, file: Path, problem: str, first_row: int = 0) -> None:
    """Refuse a file if a condition, which must not be null, holds for any row.

    Parameters
    ----------
    frame
        Rows of the file.
    condition
        What must hold for no row.
    file
        The file, for the message.
    problem
        What it means; column names in braces are replaced by the row's values.
    first_row
        Number of the frame's first row in the file.

    Raises
    ------
    TraceFormatError
        Names file and row of the first row for which the condition holds.
    """
    refused_rows = frame.select(pl.arg_where(condition)).to_series()
    if refused_rows.len():
        row = int(refused_rows[0])
        message = f"{file}, row {first_row + row}: {problem.format(**frame.row(row, named=True))}."
        raise TraceFormatError(message, "The log contradicts itself.", {"file": str(file), "row": first_row + row})


def read_rows(file: Path, columns: Mapping[str, type[int | str]]) -> list[dict[str, Any]]:
    """Read a small CSV file with a header.

    Parameters
    ----------
    file
        The file, in UTF-8.
    columns
        Names of the columns to read, and ``int`` or ``str`` for each; others are left out.

    Returns
    -------
    list of dict
        One per line: value by column. An absent text is empty.

    Raises
    ------
    TraceFormatError
        If the file is absent or no CSV, lacks a column, or a line holds no whole number of 64 bits where one must be;
        names the line.
    """
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            header = list(reader.fieldnames or [])
            if missing := [name for name in columns if name not in header]:
                message = f"{file} lacks the column(s) {', '.join(missing)}; it has {', '.join(header) or 'none'}."
                raise TraceFormatError(message, None, {"file": str(file), "missing": missing})
            return [_convert_line(line, columns, file=file, number=reader.line_num) for line in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceFormatError(*unreadable(file, "CSV", error)) from error


def read_facts(file: Path, entries: Mapping[str, type[int | str]]) -> dict[str, Any]:
    """Read a JSON object and check some of its entries.

    Parameters
    ----------
    file
        The file, in UTF-8.
    entries
        Names of entries that must be there, and ``int`` or ``str`` for each; true and false are no numbers.

    Returns
    -------
    dict
        The whole object, other entries unchecked.

    Raises
    ------
    TraceFormatError
        If the file is absent, is no JSON object, or an entry is absent, of another type, or a number beyond 64 bits.
    """
    try:
        facts = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TraceFormatError(*unreadable(file, "JSON", error)) from error
    if not isinstance(facts, dict):
        message = f"{file} holds {type(facts).__name__}, not an object."
        raise TraceFormatError(message, None, {"file": str(file)})
    for key, kind in entries.items():
        if not isinstance(facts.get(key), kind) or isinstance(facts[key], bool):
            message = f"{file}: the entry {key!r} must be of type {kind.__name__}, but is {facts.get(key)!r}."
            raise TraceFormatError(message, None, {"file": str(file), "entry": key})
        if kind is int and not _INT64[0] <= facts[key] <= _INT64[1]:
            message = f"{file}: the entry {key!r} is {facts[key]}, which no integer of 64 bits can be."
            raise TraceFormatError(message, None, {"file": str(file), "entry": key})
    return facts


def fingerprint(parts: Iterable[tuple[str, bytes | Path]]) -> str:
    """Return 32 hexadecimal digits that depend on names and contents, and on where one ends and the next begins.

    Parameters
    ----------
    parts
        Names, and their contents: bytes, or the file that holds them, which is read piece by piece.
    """
    digest = hashlib.sha256()
    for name, content in parts:
        if isinstance(content, bytes):
            digest.update(f"{name}:{len(content)}\n".encode(errors="surrogateescape"))
            digest.update(content)
            continue
        digest.update(f"{name}:{content.stat().st_size}\n".encode(errors="surrogateescape"))
        with content.open("rb") as content_file:
            while chunk := content_file.read(_PIECE):
                digest.update(chunk)
    return digest.hexdigest()[:32]


def unreadable(file: Path, form: str, error: Exception) -> tuple[str, str, dict[str, object]]:
    """Return what a `TraceFormatError` says of a file that is absent, damaged, or takes too much memory.

    Parameters
    ----------
    file
        The file.
    form
        What it is to be, such as ``Parquet``.
    error
        What its reading raised; a MemoryError is told apart.

    Returns
    -------
    message, hint, context
        The arguments of the error.
    """
    if isinstance(error, MemoryError):
        return (
            f"{file} takes more memory to read than there is: {error}.",
            "Give the process more memory, or convert a part of the file.",
            {"file": str(file)},
        )
    return (
        f"{file} cannot be read as {form}: {error}.",
        "The file is missing, truncated or damaged: record the run again.",
        {"file": str(file)},
    )


def _check_columns(file: Path, columns: Iterable[str]) -> None:
    available = parquet_columns(file)
    if missing := [name for name in columns if name not in available]:
        hint = "Look at whether the file is of this format."
        raise MissingColumnError.from_missing_and_available(
            where=str(file), missing=missing, available=available, hint=hint
        )


def _convert_line(
    line: dict[str, str | None], columns: Mapping[str, type[int | str]], *, file: Path, number: int
) -> dict[str, Any]:
    try:
        # A short line gives None, which no type takes but str.
        row = {name: kind(line[name] or "") for name, kind in columns.items()}
    except ValueError as error:
        message = f"{file}, line {number}: {error}."
        raise TraceFormatError(message, None, {"file": str(file), "line": number}) from error
    for name, value in row.items():
        if isinstance(value, int) and not _INT64[0] <= value <= _INT64[1]:
            message = f"{file}, line {number}: {name} is {value}, which no integer of 64 bits can be."
            raise TraceFormatError(message, None, {"file": str(file), "line": number})
    return row
