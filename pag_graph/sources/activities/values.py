"""Values as people write them: names of columns, times with units, counts and truth values."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.errors import MissingColumnError, TraceFormatError
from pag_graph.sources.activities.tables import COUNT, TEXT, TIME, Source, Table, schema

if TYPE_CHECKING:
    from pathlib import Path

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000, "h": 3_600_000_000_000}
"""Units of times, in nanoseconds."""

_NUMBER = r"^([+-]?)(\d{1,19})(?:\.(\d+))?\s*(ns|us|µs|μs|ms|s|min|h)?$"


def clean(table: Table, frame: pl.DataFrame, files: tuple[Path, ...]) -> pl.DataFrame:
    """Give a table as written its declared columns and types."""
    source = Source(frame=frame, files=files)
    file = files[int(frame["_file"][0])] if frame.height else files[0]
    columns: dict[str, pl.Series] = {}
    for written in frame.columns:
        if written in {"_file", "_row"}:
            continue
        name, unit = _column_name(table, written, file)
        if name in columns:
            message = f"{file.name} has the column {name} twice: {written} is the second one."
            raise TraceFormatError(message, None, {"file": str(file)})
        columns[name] = _convert(source, written, table.columns[name], unit)
    if missing := [name for name in table.needed if name not in columns]:
        raise MissingColumnError.from_missing_and_available(where=str(file), missing=missing, available=list(columns))
    if "duration" in table.columns:
        if ("end" in columns) == ("duration" in columns):
            found = "both" if "end" in columns else "neither of"
            message = f"{file.name} has {found} the columns end and duration."
            raise TraceFormatError(message, "Give one of them.", {"file": str(file)})
        if "duration" in columns:
            columns["end"] = columns["start"] + columns.pop("duration")
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


def _column_name(table: Table, written: str, file: Path) -> tuple[str, str | None]:
    """Return which column is meant, and the unit that its name states."""
    name, _, unit = written.lower().rpartition("_")
    if table.columns.get(name) == TIME and unit in UNITS:
        return name, unit
    if written.lower() in table.columns:
        return written.lower(), None
    near = difflib.get_close_matches(written.lower(), list(table.columns), n=1)
    message = f"{file.name} has the unknown column {written!r}."
    hint = f"Did you mean {near[0]}? " if near else ""
    raise TraceFormatError(message, f"{hint}Known are {', '.join(table.columns)}.", {"file": str(file)})


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
    numbers = values.cast(pl.Int64, strict=False)
    if values.dtype.is_float():
        numbers = numbers.set(values != values.round(0), None)
    numbers = numbers.set(numbers < 0, None)
    _refuse_values(source, name, values, numbers, "must be a whole number, and not negative")
    return numbers


def _times(source: Source, name: str, values: pl.Series, unit: str | None) -> pl.Series:
    """Convert times to nanoseconds, exactly: 1.5ms, 0.25 s, 120; or points in time such as 2024-05-01T12:00:00.5Z."""
    scale = UNITS[unit or "ns"]
    if isinstance(values.dtype, pl.Datetime):
        return values.dt.cast_time_unit("ns").dt.timestamp("ns")
    if isinstance(values.dtype, pl.Duration):
        return values.dt.cast_time_unit("ns").cast(pl.Int64)
    if values.dtype.is_integer():
        numbers = values.cast(pl.Int64, strict=False)
        return numbers * scale if scale > 1 else numbers
    if values.dtype.is_float():
        if unit is None:
            message = f"{source.where(0)}: {name} holds numbers with a point and without a unit."
            raise TraceFormatError(message, f"Call the column {name}_ms, or {name}_s, or whatever its unit is.")
        return (values * scale).round(0).cast(pl.Int64)
    if values.dtype != pl.String:
        values = values.cast(pl.String)
    numbers = _spelled(values, unit)
    rest = values.set(numbers.is_not_null(), None)
    if rest.null_count() < rest.len():
        moments = rest.str.to_datetime(time_unit="ns", time_zone="UTC", strict=False, format="%+")
        numbers = pl.select(pl.coalesce(numbers, moments.dt.timestamp("ns"))).to_series()
    expected = "must be a time such as 1.5ms, 20us, 3s, or whole nanoseconds"
    _refuse_values(source, name, values, numbers, expected)
    return numbers


def _spelled(values: pl.Series, unit: str | None) -> pl.Series:
    """Read numbers with units; null where a value is none, or is finer than whole nanoseconds without a unit."""
    parts = values.to_frame("value").select(
        sign=pl.col("value").str.extract(_NUMBER, 1),
        whole=pl.col("value").str.extract(_NUMBER, 2).cast(pl.Int64, strict=False),
        digits=pl.col("value").str.extract(_NUMBER, 3),
        unit=pl.col("value").str.extract(_NUMBER, 4).replace({"µs": "us", "μs": "us"}),
    )
    scale = pl.col("unit").fill_null(unit or "ns").replace_strict(UNITS, return_dtype=pl.Int64)
    # Nine digits after the point are exact for seconds; what is below a nanosecond is cut off.
    fraction = pl.col("digits").fill_null("").str.head(9).str.pad_end(9, "0").cast(pl.Int64)
    small = pl.when(scale < UNITS["s"]).then(fraction * scale // UNITS["s"]).otherwise(fraction * (scale // UNITS["s"]))
    fits = (pl.col("whole") <= (2**62) // scale) & ~(pl.col("digits").is_not_null() & (scale == 1))
    sign = pl.when(pl.col("sign") == "-").then(-1).otherwise(1)
    return parts.select(pl.when(fits).then(sign * (pl.col("whole") * scale + small)).alias("t")).to_series()


def _refuse_values(source: Source, name: str, values: pl.Series, converted: pl.Series, expected: str) -> None:
    bad = (values.is_not_null() & converted.is_null()).arg_true()
    if bad.len():
        index = int(bad[0])
        source.fail(index, f"{name} is {values[index]!r}, and {expected}")
