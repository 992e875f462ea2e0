"""Files of people's tables: CSV, JSON lines or Parquet; damage is named by file and line."""

from __future__ import annotations

import csv
import difflib
import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from pag_graph.errors import TraceFormatError
from pag_graph.sources.activities.table_columns import ENCODING, PLACES, TABLES, Source, schema
from pag_graph.sources.activities.values import UNITS, clean
from pag_graph.sources.foreign_files import iter_batches, parquet_columns, parquet_rows, unreadable
from pag_graph.store.capacity import lacking
from pag_graph.store.safe_files import check_regular, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet")
_ROW_BYTES = 900
"""Memory that a row of a table takes until it is events, at most and about."""
_TEXT_BYTES = 3
"""What each byte of a file of text takes beside."""
_SHORTEST_LINE = 8
"""Bytes of a line of a table of activities or messages, at least."""
_LINES = 1 << 16
"""Rows of JSON lines that are objects of Python at a time."""


def kind_of(file: Path) -> str | None:
    """Return which table a file of a folder holds, by its name."""
    if file.suffix not in SUFFIXES or not file.is_file():
        return None
    return next((name for name in TABLES if re.match(rf"{name}([^a-z]|$)", file.stem)), None)


def read(source: Path) -> tuple[dict[str, Source], list[Path]]:
    """Read all tables; those that are absent are empty."""
    if source.is_dir():
        files = sorted(file for file in source.iterdir() if file.suffix in SUFFIXES)
        for file in files:
            if kind_of(file) is None:
                message = f"{file} is none of the tables {', '.join(TABLES)}, which a file's name begins with."
                close_names = difflib.get_close_matches(file.stem, list(TABLES), n=1)
                hint = f"Call it {close_names[0]}{file.suffix}." if close_names else "Move it out of the folder."
                raise TraceFormatError(message, hint, {"file": str(file)})
        check_regular(files)
        table_of_file = [(file, kind_of(file)) for file in files]
    else:
        files = [source]
        table_of_file = [(source, "activities")]
    _check_size(source, files)
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in TABLES}
    for number, (file, name) in enumerate(table_of_file):
        for table, frame in _tables_of(file, str(name)):
            parts[table].append(clean(TABLES[table], frame, tuple(files), number))
    empty = {name: pl.DataFrame(schema=schema(table)) for name, table in TABLES.items()}
    return {
        name: Source(frame=pl.concat([empty[name], *frames]), files=tuple(files)) for name, frames in parts.items()
    }, files


def _check_size(source: Path, files: Sequence[Path]) -> None:
    """Refuse tables that do not fit in memory, in which they are sorted as a whole, before one is read.

    A few bytes of Parquet can stand for a billion rows, and who takes too much memory is ended without a word.

    Raises
    ------
    TraceFormatError
        Says how much memory they take, and how much there is.
    """
    sizes = {file: file.stat().st_size for file in files}
    stored = {file: parquet_rows(file) for file in files if file.suffix == ".parquet"}
    text = {file: size for file, size in sizes.items() if file not in stored}
    # No row of text is shorter than its commas: lines need not be counted where they fit however short they are.
    if lacking(sum(stored.values()) * _ROW_BYTES + sum(text.values()) * _ROW_BYTES // _SHORTEST_LINE) is None:
        return
    rows = sum(stored.values()) + sum(_count_lines(file) for file in text)
    needed = rows * _ROW_BYTES + sum(text.values()) * _TEXT_BYTES
    if (lack := lacking(needed)) is not None:
        message = f"{source} has {rows} rows, which take {lack}."
        hint = "Give the process more memory, or write down a part of the run."
        raise TraceFormatError(message, hint, {"file": str(source), "rows": rows, "bytes": needed})


def _count_lines(file: Path) -> int:
    with file.open("rb") as content:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: content.read(1 << 20), b""))


def header_of(file: Path) -> list[str]:
    """Return the names of a file's columns."""
    if file.suffix == ".parquet":
        return parquet_columns(file)
    for _, line in _lines(file):
        if file.suffix == ".csv":
            try:
                return [name.strip() for name in next(csv.reader([line]))]
            except csv.Error as error:
                raise TraceFormatError(*unreadable(file, "CSV", error)) from error
        try:
            row = parse_json(line)
        except ValueError:
            return []
        # The first row may be a message or a worker.
        return ["worker", "activity"] if isinstance(row, dict) and {"worker", "from"} & set(row) else []
    return []


def _tables_of(file: Path, name: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """Read a file's rows as they are written, with the column `_row`; JSON lines can hold rows of several tables."""
    if file.suffix == ".csv":
        yield name, _read_csv(file)
    elif file.suffix == ".parquet":
        yield name, _read_parquet(file)
    else:
        yield from _read_lines(file, name)


def _read_csv(file: Path) -> pl.DataFrame:
    _check_names(file, header_of(file))
    try:
        # By its path Polars opens no file whose name is not text.
        with file.open("rb") as content:
            # After comments Polars takes an empty line for the header.
            before = next((number - 1 for number, _ in _lines(file)), 0)
            frame = pl.read_csv(content, infer_schema=False, comment_prefix="#", skip_lines=before)
    except (pl.exceptions.PolarsError, OSError) as error:
        # Polars names no line; the slower reader of the standard library finds it.
        if (line := _ragged_line(file)) is not None:
            message = f"{file.name}, line {line[0]}: {line[1]} values, but the header has {line[2]} columns."
            raise TraceFormatError(message, "Put values with commas in quotes.", {"file": str(file)}) from error
        # What follows the first line is how Polars would be called.
        message = f"{file} cannot be read as CSV: {str(error).partition(chr(10))[0].rstrip('.')}."
        hint = "Close every quote, and write a header before the rows."
        raise TraceFormatError(message, hint, {"file": str(file)}) from error
    names = [name.strip() for name in frame.columns]
    _check_names(file, names)
    frame = frame.rename(dict(zip(frame.columns, names, strict=True)))
    frame = frame.with_row_index("_row").with_columns(pl.col("_row").cast(pl.Int64))
    # Lines without any value are nothing.
    return frame.filter(pl.any_horizontal(pl.exclude("_row").is_not_null())) if frame.width > 1 else frame


def _read_parquet(file: Path) -> pl.DataFrame:
    _check_names(file, parquet_columns(file))
    try:
        frames = [pl.DataFrame(batch) for batch in iter_batches(file)]
        frame = pl.concat(frames) if frames else pl.DataFrame(schema=parquet_columns(file))
    except TraceFormatError:
        raise
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, ValueError) as error:
        raise TraceFormatError(*unreadable(file, "Parquet", error)) from error
    return frame.with_row_index("_row").with_columns(pl.col("_row").cast(pl.Int64))


def _check_names(file: Path, names: Sequence[str]) -> None:
    """Refuse names of columns that stand for several, or for what this package notes about rows itself."""
    for name in names:
        if name in PLACES:
            message = f"{file.name} has the unknown column {name!r}."
            raise TraceFormatError(message, "Give it another name, or leave it out.", {"file": str(file)})
    if repeated_names := [name for name in names if names.count(name) > 1]:
        message = f"{file.name} has the column {repeated_names[0]!r} twice."
        raise TraceFormatError(message, "Leave one of them out.", {"file": str(file)})


def _read_lines(file: Path, name: str) -> Iterator[tuple[str, pl.DataFrame]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    frames: dict[str, list[pl.DataFrame]] = {}
    for number, line in _lines(file):
        try:
            row = parse_json(line)
        except json.JSONDecodeError as error:
            message = f"{file.name}, line {number}: {error.msg}, at column {error.colno}."
            raise TraceFormatError(message, "Write one JSON object per line.", {"file": str(file)}) from error
        except ValueError as error:
            message = f"{file.name}, line {number}: {error}."
            raise TraceFormatError(message, "Write one JSON object per line.", {"file": str(file)}) from error
        if not isinstance(row, dict) or any(isinstance(value, list | dict) for value in row.values()):
            message = f"{file.name}, line {number}: expected an object with plain values."
            raise TraceFormatError(message, 'Such as {"worker": "a", "start": "1ms", ...}.', {"file": str(file)})
        if not row.keys().isdisjoint(PLACES):
            _check_names(file, list(row))
        table = name if "worker" in row and ("activity" in row or name != "activities") else _table_of(row, name)
        row["_row"] = number
        rows_read = rows.setdefault(table, [])
        rows_read.append(row)
        if len(rows_read) == _LINES:
            # Objects of Python take ten times the memory of columns.
            frames.setdefault(table, []).append(_columns(rows_read))
            rows_read.clear()
    for table, rows_left in rows.items():
        parts = [*frames.get(table, []), *([_columns(rows_left)] if rows_left else [])]
        yield table, pl.concat(parts, how="diagonal") if len(parts) > 1 else parts[0]


def _columns(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return rows of JSON as columns of text, plus `_row`."""
    names = dict.fromkeys(key for row in rows for key in row)
    # Values of one column may be of several types, as people write them: "1ms" here and 5 there.
    columns = [pl.Series(key, [_as_text(row.get(key)) for row in rows], pl.String) for key in names if key != "_row"]
    return pl.DataFrame([*columns, pl.Series("_row", [row["_row"] for row in rows], pl.Int64)])


def _table_of(row: dict[str, Any], name: str) -> str:
    """Return the table that a JSON row belongs to, by its keys."""
    if name != "activities":
        return name
    keys = {key.rpartition("_")[0] if key.rpartition("_")[2] in UNITS else key for key in row}
    if "from" in keys or "to" in keys:
        return "messages"
    if "worker" in keys and not {"start", "activity"} & keys:
        return "workers"
    return "epochs" if {"epoch", "end"} <= keys <= set(TABLES["epochs"].columns) else name


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with file.open(encoding=ENCODING) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and not line.startswith("#"):
                    yield number, line
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be read as text: {error}."
        raise TraceFormatError(message, None, {"file": str(file)}) from error


def _ragged_line(file: Path) -> tuple[int, int, int] | None:
    try:
        with file.open(encoding=ENCODING, newline="") as lines:
            reader = csv.reader(line if not line.startswith("#") else "\n" for line in lines)
            header = next((row for row in reader if row), [])
            for row in reader:
                if len(row) > len(header):
                    return reader.line_num, len(row), len(header)
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    return None
