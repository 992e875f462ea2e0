"""Reading foreign files so that whatever is wrong with them is said with the file's name."""

from __future__ import annotations

import csv
import hashlib
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.errors import MissingColumnError, SchemaError, TraceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

Schema = dict[str, type[pl.DataType]]
"""Columns to read, and what to read them as."""


def parquet_columns(file: Path) -> list[str]:
    """Return the names of a Parquet file's columns.

    Raises
    ------
    TraceFormatError
        If the file is absent, or truncated, or something else.
    """
    try:
        return list(pq.read_schema(file).names)
    except (pa.ArrowException, OSError) as error:
        raise TraceFormatError(*_unreadable(file, "Parquet", error)) from error


def read_frame(file: Path, columns: Schema) -> pl.DataFrame:
    """Read some columns of a Parquet file, one row per row, in the file's order.

    Raises
    ------
    TraceFormatError
        If the file is absent or damaged.
    SchemaError
        If a column is absent, or holds what does not fit the type asked for.
    """
    frames = list(iter_frames(file, columns))
    return pl.concat(frames) if frames else pl.DataFrame(schema=columns)


def iter_frames(file: Path, columns: Schema, rows: int | None = None) -> Iterator[pl.DataFrame]:
    """Read some columns of a Parquet file in pieces of `rows` rows, the last one shorter.

    Raises
    ------
    TraceFormatError
        If the file is absent or damaged.
    SchemaError
        If a column is absent, or holds what does not fit the type asked for.
    """
    _check_columns(file, columns)
    try:
        with pq.ParquetFile(file) as parquet:
            size = rows or max(parquet.metadata.num_rows, 1)
            for batch in parquet.iter_batches(size, columns=list(columns)):
                yield pl.DataFrame(batch).select(pl.col(name).cast(kind) for name, kind in columns.items())
    except (pa.ArrowException, OSError) as error:
        raise TraceFormatError(*_unreadable(file, "Parquet", error)) from error
    except pl.exceptions.PolarsError as error:
        message = f"{file} holds values that do not fit: {error}."
        raise SchemaError(message, None, {"file": str(file)}) from error


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
    found = frame.select(pl.arg_where(condition)).to_series()
    if found.len():
        row = int(found[0])
        message = f"{file}, row {first_row + row}: {problem.format(**frame.row(row, named=True))}."
        raise TraceFormatError(message, "The log contradicts itself.", {"file": str(file), "row": first_row + row})


def read_rows(file: Path, columns: Mapping[str, type[int | str]]) -> list[dict[str, Any]]:
    """Read a small CSV file with a header, one dictionary per line, values converted to the given types.

    Raises
    ------
    TraceFormatError
        If the file is absent, lacks a column, or has a line that does not fit.
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
        raise TraceFormatError(*_unreadable(file, "CSV", error)) from error


def read_facts(file: Path, entries: Mapping[str, type[int | str]]) -> dict[str, Any]:
    """Read a JSON object and check that it has the given entries with the given types.

    Raises
    ------
    TraceFormatError
        If the file is absent, is no JSON object, or an entry is absent or of another type.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TraceFormatError(*_unreadable(file, "JSON", error)) from error
    if not isinstance(found, dict):
        message = f"{file} holds {type(found).__name__}, not an object."
        raise TraceFormatError(message, None, {"file": str(file)})
    for key, kind in entries.items():
        if not isinstance(found.get(key), kind) or isinstance(found[key], bool):
            message = f"{file}: the entry {key!r} must be of type {kind.__name__}, but is {found.get(key)!r}."
            raise TraceFormatError(message, None, {"file": str(file), "entry": key})
    return found


def fingerprint(parts: Iterable[tuple[str, bytes]]) -> str:
    """Return 32 hexadecimal digits that depend on names and contents, and on where one ends and the next begins."""
    digest = hashlib.sha256()
    for name, content in parts:
        digest.update(f"{name}:{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def _check_columns(file: Path, columns: Iterable[str]) -> None:
    available = parquet_columns(file)
    if missing := [name for name in columns if name not in available]:
        raise MissingColumnError.from_missing_and_available(where=str(file), missing=missing, available=available)


def _unreadable(file: Path, form: str, error: Exception) -> tuple[str, str, dict[str, object]]:
    return (
        f"{file} cannot be read as {form}: {error}.",
        "The file is missing, truncated or damaged: record the run again.",
        {"file": str(file)},
    )


def _convert_line(
    line: dict[str, str | None], columns: Mapping[str, type[int | str]], *, file: Path, number: int
) -> dict[str, Any]:
    try:
        # A short line gives None, which no type takes but str.
        return {name: kind(line[name] or "") for name, kind in columns.items()}
    except ValueError as error:
        message = f"{file}, line {number}: {error}."
        raise TraceFormatError(message, None, {"file": str(file), "line": number}) from error
