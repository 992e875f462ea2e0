"""Values as people write them: names of columns, times with units, counts and truth values."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.errors import MissingColumnError, TraceFormatError
from pag_graph.model.units import FARTHEST_NS
from pag_graph.sources.activities.table_columns import COUNT, TEXT, TIME, Source, Table, schema
from pag_graph.store.trace_columns import MOST_COUNT

if TYPE_CHECKING:
    from pathlib import Path

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000, "h": 3_600_000_000_000}
"""Units of times, in nanoseconds."""

_SHOWN = 60
"""Characters of a value that a message shows."""
_FIRST_YEAR, _LAST_YEAR = 1825, 2115
"""Years whose moments are near enough to 1970 for times."""
_NUMBER = r"^([+-]?)(\d{1,19})(?:\.(\d+))?\s*(ns|us|µs|μs|ms|s|min|h)?$"


def clean(table: Table, frame: pl.DataFrame, files: tuple[Path, ...], number: int) -> pl.DataFrame:
    """Give a table as people wrote it its declared columns and types.

    Parameters
    ----------
    table
        Which columns it may have, and which it must have.
    frame
        One row per row of a file, columns as the file calls them, and `_row`.
    files, number
        Files of the table, and which of them this is, from 0.

    Returns
    -------
    DataFrame
        The same rows in the same order, with the columns that `schema` says: times in nanoseconds, `end` also where the
        file has `duration`, null where the file lacks a column.

    Raises
    ------
    MissingColumnError
        If a column is absent that the table must have.
    TraceFormatError
        If a column is unknown, comes twice, or is of a type that has no plain values; if a time has a point and no
        unit; if `end` and `duration` are both there, or neither is; if a value is none of its column's, or absent where
        one must be, or a time is 146 years from zero or more. Names the file, and the line where one row is to blame.
    """  # noqa: DOC501  (what makes an error is taken for one)
    file = files[number]
    frame = frame.with_columns(_file=pl.lit(number, pl.Int64))
    source = Source(frame=frame, files=files)
    columns: dict[str, pl.Series] = {}
    for column in frame.columns:
        if column in {"_file", "_row"}:
            continue
        name, unit = _column_name(table, column, file)
        if name in columns:
            message = f"{file.name} has the column {name} twice: {column} is the second one."
            raise TraceFormatError(message, None, {"file": str(file)})
        _check_type(file, column, frame.schema[column], unit if table.columns[name] == TIME else "")
        columns[name] = _convert(source, column, table.columns[name], unit)
    if missing := [name for name in table.needed if name not in columns]:
        hint = f"The table needs {', '.join(table.needed)}; docs/generic.md has examples."
        raise MissingColumnError.from_missing_and_available(
            where=str(file), missing=missing, available=list(columns), hint=hint
        )
    if "duration" in table.columns:
        if ("end" in columns) == ("duration" in columns):
            which_columns = "both" if "end" in columns else "neither of"
            message = f"{file.name} has {which_columns} the columns end and duration."
            raise TraceFormatError(message, "Give one of them.", {"file": str(file)})
        if "duration" in columns:
            # Two times that are near enough add up to less than 2^63; the sum may still be too far for a time.
            columns["end"] = columns["start"] + columns.pop("duration")
            too_far = (columns["end"].abs() >= FARTHEST_NS).fill_null(value=False).arg_true()
            if too_far.len():
                source.fail(int(too_far[0]), "the activity ends more than 146 years from zero")
    clean = pl.DataFrame(
        [
            columns[name].alias(name) if name in columns else pl.Series(name, [None] * frame.height, kind)
            for name, kind in schema(table).items()
            if not name.startswith("_")
        ]
    ).with_columns(frame["_file"], frame["_row"])
    checked = Source(frame=clean, files=files)
    for name in table.filled:
        checked.refuse(clean[name].is_null(), f"no value for {name}")
    return clean


def _column_name(table: Table, column: str, file: Path) -> tuple[str, str | None]:
    """Return which column is meant, and the unit that its name states."""
    name, _, unit = column.lower().rpartition("_")
    if table.columns.get(name) == TIME and unit in UNITS:
        return name, unit
    if column.lower() in table.columns:
        return column.lower(), None
    close_names = difflib.get_close_matches(column.lower(), list(table.columns), n=1)
    message = f"{file.name} has the unknown column {column!r}."
    hint = f"Did you mean {close_names[0]}? " if close_names else ""
    raise TraceFormatError(message, f"{hint}Known are {', '.join(table.columns)}.", {"file": str(file)})


def _check_type(file: Path, name: str, kind: pl.DataType, unit: str | None) -> None:
    """Refuse a column of values that are not plain; and of a time that is a float, if `unit` is none."""
    if kind.is_nested() or kind in {pl.Binary, pl.Object}:
        message = f"{file.name} has values of type {kind} in the column {name}."
        raise TraceFormatError(message, "Write plain values: text, numbers, times.", {"file": str(file)})
    if kind.is_float() and unit is None:
        message = f"{file.name}: {name} holds numbers with a point and without a unit."
        hint = f"Call the column {name}_ms, or {name}_s, or whatever its unit is."
        raise TraceFormatError(message, hint, {"file": str(file)})


def _convert(source: Source, name: str, kind: str, unit: str | None) -> pl.Series:
    values = source.frame[name]
    if values.dtype == pl.Categorical or isinstance(values.dtype, pl.Enum):
        values = values.cast(pl.String)
    if values.dtype == pl.String:
        values = values.str.strip_chars()
        values = values.set(values == "", None)
    if kind == TEXT:
        return values if values.dtype == pl.String else values.cast(pl.String)
    if kind == TIME:
        return _times(source, name, values, unit)
    if kind == COUNT:
        return _counts(source, name, values)
    flags = values if values.dtype == pl.Boolean else values.cast(pl.String).str.to_lowercase()
    if flags.dtype == pl.String:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        flags = values.cast(pl.String).str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)
        _refuse_values(source, name, values, flags, "must be true or false")
    return flags


def _counts(source: Source, name: str, values: pl.Series) -> pl.Series:
    # True is no number, though Python takes it for one.
    numbers = values.cast(pl.Int64, strict=False)
    if values.dtype == pl.Boolean:
        numbers = numbers.clear(len(values))
    if values.dtype.is_float() or values.dtype.is_decimal():
        numbers = numbers.set(values != values.round(0), None)
    numbers = numbers.set((numbers < 0) | (numbers > MOST_COUNT), None)
    _refuse_values(source, name, values, numbers, f"must be a whole number, from 0 to {MOST_COUNT}")
    return numbers


def _times(source: Source, name: str, values: pl.Series, unit: str | None) -> pl.Series:
    """Convert times to nanoseconds, exactly: 1.5ms, 0.25 s, 120; or points in time such as 2024-05-01T12:00:00.5Z.

    Whatever a file holds, a time that is too far for nanoseconds in 63 bits is refused before it is scaled.
    """
    scale = UNITS[unit or "ns"]
    kind = values.dtype
    if isinstance(kind, pl.Datetime | pl.Duration):
        numbers = _scaled(values.to_physical(), UNITS[str(kind.time_unit)])
    elif kind.is_integer():
        numbers = _scaled(values.cast(pl.Int64, strict=False), scale)
    elif kind.is_float():
        nanoseconds = (values.cast(pl.Float64) * scale).round(0)
        # Comparisons with NaN are false.
        is_too_far = (nanoseconds.abs() < FARTHEST_NS).not_() | nanoseconds.is_nan()
        numbers = nanoseconds.set(is_too_far, None).cast(pl.Int64)
    else:
        text = values if kind == pl.String else values.cast(pl.String)
        numbers = _spelled(text, unit)
        other_text = text.set(numbers.is_not_null(), None)
        if other_text.null_count() < other_text.len():
            moments = other_text.str.to_datetime(time_unit="ns", time_zone="UTC", strict=False, format="%+")
            # Nanoseconds of a far year come round to a near one.
            years = other_text.str.head(4).cast(pl.Int32, strict=False)
            is_near = years.is_between(_FIRST_YEAR, _LAST_YEAR)
            numbers = pl.select(pl.coalesce(numbers, moments.to_physical().set(~is_near, None))).to_series()
    expected = "must be a time such as 1.5ms, 20us, 3s, or whole nanoseconds, less than 146 years from zero"
    _refuse_values(source, name, values, numbers, expected)
    return numbers


def _scaled(numbers: pl.Series, scale: int) -> pl.Series:
    """Multiply; null where the product is out of the range of times."""
    largest = (FARTHEST_NS - 1) // scale
    return numbers.set((numbers < -largest) | (numbers > largest), None) * scale


def _spelled(values: pl.Series, unit: str | None) -> pl.Series:
    """Read numbers with units; null where a value is none, or is finer than whole nanoseconds without a unit."""
    parts = values.to_frame("value").select(
        sign=pl.col("value").str.extract(_NUMBER, 1),
        whole=pl.col("value").str.extract(_NUMBER, 2).cast(pl.Int64, strict=False),
        digits=pl.col("value").str.extract(_NUMBER, 3),
        unit=pl.col("value").str.extract(_NUMBER, 4).replace({"µs": "us", "μs": "us"}),
    )
    scale = pl.col("unit").fill_null(unit or "ns").replace_strict(UNITS, return_dtype=pl.Int64)
    # Nine digits after the point are exact for seconds; digits below a nanosecond are cut off.
    fraction = pl.col("digits").fill_null("").str.head(9).str.pad_end(9, "0").cast(pl.Int64)
    small = pl.when(scale < UNITS["s"]).then(fraction * scale // UNITS["s"]).otherwise(fraction * (scale // UNITS["s"]))
    fits = (pl.col("whole") < FARTHEST_NS // scale) & ~(pl.col("digits").is_not_null() & (scale == 1))
    sign = pl.when(pl.col("sign") == "-").then(-1).otherwise(1)
    return parts.select(pl.when(fits).then(sign * (pl.col("whole") * scale + small)).alias("t")).to_series()


def _refuse_values(source: Source, name: str, values: pl.Series, converted: pl.Series, expected: str) -> None:
    bad = (values.is_not_null() & converted.is_null()).arg_true()
    if bad.len():
        index = int(bad[0])
        # Values of some types exist in files and not in Python.
        value = values.slice(index, 1)
        shown = (value.to_physical() if value.dtype == pl.Duration else value).cast(pl.String)[0]
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        source.fail(index, f"{name} is {shown!r}, and {expected}")
