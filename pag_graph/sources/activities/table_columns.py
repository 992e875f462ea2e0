"""The tables that people write: which columns they may hold, and where each row came from."""

from __future__ import annotations

import csv
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import polars as pl

from pag_graph.errors import TraceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

PLACES = ("_file", "_row")
"""Columns that say where a row came from, which no file may have itself."""
ENCODING = "utf-8-sig"
"""Of files of text: spreadsheets write a mark of the encoding (BOM) before the first column's name."""
TEXT, TIME, COUNT, FLAG = "text", "time", "count", "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What one of the tables may hold."""

    columns: dict[str, str]
    """Columns, and what their values are."""
    needed: tuple[str, ...]
    """Columns that it must have."""
    filled: tuple[str, ...]
    """Columns that need a value in every row."""


TABLES = {
    "activities": Table(
        columns={
            "worker": TEXT,
            "start": TIME,
            "end": TIME,
            "duration": TIME,
            "activity": TEXT,
            "operator": TEXT,
            "epoch": COUNT,
            "records": COUNT,
            "inferred": FLAG,
        },
        needed=("worker", "start", "activity"),
        filled=("worker", "start", "end", "activity"),
    ),
    "messages": Table(
        columns={
            "from": TEXT,
            "to": TEXT,
            "sent": TIME,
            "received": TIME,
            "arrived": TIME,
            "channel": TEXT,
            "type": TEXT,
            "records": COUNT,
            "bytes": COUNT,
        },
        needed=("from", "to", "sent"),
        filled=("from", "to", "sent"),
    ),
    "workers": Table(
        columns={"worker": TEXT, "process": TEXT, "host": TEXT, "end": TIME},
        needed=("worker",),
        filled=("worker",),
    ),
    "epochs": Table(
        columns={"epoch": COUNT, "end": TIME, "due": TIME}, needed=("epoch", "end"), filled=("epoch", "end")
    ),
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """One of the tables as read: clean columns, and where each row came from."""

    frame: pl.DataFrame
    """Columns of the table, times in nanoseconds, plus `_file` and `_row`: number of the file, and row in it."""
    files: tuple[Path, ...]

    def where(self, index: int) -> str:
        """Name the place of a row, for a message to the user."""
        file, row = self.files[self.frame["_file"][index]], int(self.frame["_row"][index])
        if file.suffix == ".parquet":
            return f"{file.name}, row {row}"
        return f"{file.name}, line {_line(file, row)}"

    def refuse(self, is_refused: pl.Series, problem: str, hint: str | None = None) -> None:
        """Refuse the first row that is marked, if there is one.

        Parameters
        ----------
        is_refused
            One truth value per row of `frame`; null marks nothing.
        problem
            What is wrong with the row, without a full stop. Names of columns in braces become its values, or
            ``nothing`` where it has none.
        hint
            What to do about it.

        Raises
        ------
        TraceFormatError
            Names file and line of the row.
        """
        rows = is_refused.fill_null(value=False).arg_true()
        if rows.len():
            index = int(rows[0])
            values = {k: "nothing" if v is None else v for k, v in self.frame.row(index, named=True).items()}
            self.fail(index, problem.format(**values), hint)

    def fail(self, index: int, problem: str, hint: str | None = None) -> NoReturn:
        """Refuse a row.

        Parameters
        ----------
        index
            Number of the row in `frame`, from 0.
        problem
            What is wrong with it, without a full stop.
        hint
            What to do about it.

        Raises
        ------
        TraceFormatError
            Always; names file and line.
        """
        message = f"{self.where(index)}: {problem}."
        file = self.files[self.frame["_file"][index]]
        raise TraceFormatError(message, hint, {"file": str(file), "row": int(self.frame["_row"][index])})


def schema(table: Table) -> dict[str, type[pl.DataType]]:
    """Return the columns of a table as read, and their types."""
    kinds = {TEXT: pl.String, TIME: pl.Int64, COUNT: pl.Int64, FLAG: pl.Boolean}
    columns = {name: kinds[kind] for name, kind in table.columns.items() if name != "duration"}
    return {**columns, "_file": pl.Int64, "_row": pl.Int64}


def places(source: Source, indices: Sequence[int]) -> dict[int, str]:
    """Name the places of many rows.

    Parameters
    ----------
    source
        The table.
    indices
        Numbers of rows in its `frame`, from 0; the same one may come again.

    Returns
    -------
    dict
        Per number: ``FILE, line N``, where the row begins as an editor counts; ``FILE, row N`` of a Parquet file.

    Notes
    -----
    Of each file of CSV the lines are gone through once, up to the last one that is asked for.
    """
    by_file: dict[int, list[int]] = {}
    for index in dict.fromkeys(indices):
        by_file.setdefault(int(source.frame["_file"][index]), []).append(index)
    place_of_index: dict[int, str] = {}
    for number, file_indices in by_file.items():
        file = source.files[number]
        rows = {index: int(source.frame["_row"][index]) for index in file_indices}
        lines = _csv_lines(file, list(rows.values())) if file.suffix == ".csv" else {}
        word = "row" if file.suffix == ".parquet" else "line"
        place_of_index |= {index: f"{file.name}, {word} {lines.get(row, row)}" for index, row in rows.items()}
    return place_of_index


def _line(file: Path, row: int) -> int:
    """Return the line of a text file that holds a row, as an editor counts."""
    return row if file.suffix != ".csv" else _csv_lines(file, [row])[row]


def _csv_lines(file: Path, rows: Sequence[int]) -> dict[int, int]:
    """Return the lines on which rows of a CSV file begin; quoted values may span several."""
    wanted_rows = set(rows)
    line_by_row: dict[int, int] = {}
    comments = 0

    def without_comments(lines: Iterable[str]) -> Iterator[str]:
        nonlocal comments
        is_header_read = False
        for line in lines:
            # Empty lines before the header are no rows.
            if line.startswith("#") or not (is_header_read or line.strip()):
                comments += 1
            else:
                is_header_read = True
                yield line

    # Values that the reader takes for too long are no reason to name no line: the rows after them are counted.
    with suppress(csv.Error), file.open(encoding=ENCODING, newline="", errors="replace") as lines:
        reader, last_line = csv.reader(without_comments(lines)), 0
        # Row -1 is the header; an empty line is a row without values.
        for row, _ in enumerate(reader, start=-1):
            if row in wanted_rows:
                line_by_row[row] = last_line + comments + 1
            last_line = reader.line_num
            if len(line_by_row) == len(wanted_rows):
                break
    return {row: line_by_row.get(row, row + 2) for row in rows}
