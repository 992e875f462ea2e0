"""Many applications at once: a row for each log, kept in a file, so that only new logs are read the next time."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.builder.engine import silent
from pag_graph.diagnosis.spark.causes import diagnose
from pag_graph.diagnosis.spark.look import Thresholds
from pag_graph.errors import TraceFormatError
from pag_graph.model.columns import column
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.memory_errors import enough_memory
from pag_graph.sources.spark.reader import read_log
from pag_graph.store.in_place import check_file_place, whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pag_graph.sources.spark.logfiles import LogFiles

__all__ = ["FLEET", "Fleet", "survey"]

_CAUSE = pa.struct(
    [
        pa.field("cause", pa.string()),
        pa.field("saved_ns", pa.int64()),
        pa.field("stage", pa.int64()),
        pa.field("text", pa.string()),
    ]
)

FLEET = pa.schema(
    [
        column("path", pa.string(), "where the log lies"),
        column("bytes", pa.int64(), "size of its files"),
        column("modified_ns", pa.int64(), "when they last changed, Unix time"),
        column("read_by", pa.string(), "digest of the product's version and the thresholds"),
        column("log", pa.string(), "name of the log"),
        column("error", pa.string(), "why it could not be read; null where it was", null=True),
        column("app_id", pa.string(), "id of the application", null=True),
        column("app_name", pa.string(), "name that the program gave", null=True),
        column("program", pa.string(), "the same without its numbers", null=True),
        column("spark", pa.string(), "Spark's version", null=True),
        column("complete", pa.bool_(), "whether the log has the application's end", null=True),
        column("started_ms", pa.int64(), "when it started, Unix time", null=True),
        column("span_ns", pa.int64(), "the application's time", null=True),
        column("active_ns", pa.int64(), "its time since the first job", null=True),
        column("busy_ns", pa.int64(), "of cores since then, for tasks that counted", null=True),
        column("wasted_ns", pa.int64(), "of cores, for others", null=True),
        column("idle_ns", pa.int64(), "of cores, for none", null=True),
        column("replay_error", pa.float64(), "how far off the replay is, of the time since the first job", null=True),
        column("causes", pa.list_(_CAUSE), "causes of lost time, greatest saving first", null=True),
    ]
)
"""One row per log, in the order of their paths.

As long as `path`, `bytes`, `modified_ns` and `read_by` stay, a log is not read again. Of one that could not be read
there is only the error.
"""

_NUMBERS = re.compile(r"[0-9a-f]{8,}|[0-9]+", re.ASCII | re.IGNORECASE)
_FEWEST_RUNS = 5
"""A trend needs so many runs."""
_MOST_RUNS = 500
"""Of more runs the latest count: slopes are taken of all pairs."""
_MS_PER_DAY = 86_400_000
_KEPT_AFTER = 32
"""Logs that are read before the file is replaced: whoever is stopped need not read more than these again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What is known of many applications."""

    rows: pl.DataFrame
    """Rows of `FLEET`."""
    read: int
    """Logs that had to be read; of the others the row was there."""

    @property
    def unread(self) -> pl.DataFrame:
        """The rows of logs that could not be read."""
        return self.rows.filter(pl.col("error").is_not_null())

    @property
    def answered(self) -> pl.DataFrame:
        """The rows of all others."""
        return self.rows.filter(pl.col("error").is_null())

    def programs(self) -> pl.DataFrame:
        """Sum up the runs of each program.

        Returns
        -------
        DataFrame
            One row per program, most lost time of cores first: `program`, `runs`, `median_ns` (since the first job),
            `busy_ns`, `wasted_ns`, `idle_ns` (of cores, all runs), and of programs with five runs or more
            `trend_ns_per_day`: the median slope between all pairs of runs (Theil 1950, Sen 1968); null of the others.
        """
        answered = self.answered
        trends = {
            str(program): _slope(runs.select("started_ms", "active_ns").drop_nulls().sort("started_ms"))
            for (program,), runs in answered.group_by("program")
        }
        return (
            answered.group_by("program")
            .agg(
                runs=pl.len(),
                median_ns=pl.col("active_ns").median().cast(pl.Int64),
                busy_ns=pl.col("busy_ns").sum(),
                wasted_ns=pl.col("wasted_ns").sum(),
                idle_ns=pl.col("idle_ns").sum(),
            )
            .with_columns(
                trend_ns_per_day=pl.col("program").replace_strict(trends, default=None, return_dtype=pl.Float64)
            )
            .sort(pl.col("wasted_ns") + pl.col("idle_ns"), "program", descending=[True, False])
        )

    def repeated(self) -> pl.DataFrame:
        """Sum up the causes that each program has again and again.

        Returns
        -------
        DataFrame
            One row per program and cause, greatest sum of savings first: `program`, `cause`, `runs` that have it, `of`
            how many, and `saved_ns`: the sum of what each of these runs would have saved at most. Savings of different
            causes do not add up.
        """
        answered = self.answered
        run_counts = answered.group_by("program").agg(of=pl.len())
        return (
            answered.select("path", "program", "causes")
            .explode("causes")
            .drop_nulls("causes")
            .unnest("causes")
            .group_by("path", "program", "cause")
            .agg(pl.col("saved_ns").max())
            .group_by("program", "cause")
            .agg(runs=pl.len(), saved_ns=pl.col("saved_ns").sum())
            .join(run_counts, on="program")
            .select("program", "cause", "runs", "of", "saved_ns")
            .sort("saved_ns", "program", "cause", descending=[True, False, False])
        )

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "logs": self.rows.height,
            "read": self.read,
            "unread": self.unread.select("path", "error").to_dicts(),
            "programs": self.programs().to_dicts(),
            "repeated": self.repeated().to_dicts(),
            "applications": self.answered.drop("error", "read_by").to_dicts(),
        }


def survey(
    logs: Sequence[tuple[Path, LogFiles]],
    file: Path,
    *,
    thresholds: Thresholds | None = None,
    progress: Callable[[str, int, int], None] = silent,
) -> Fleet:
    """Give each log a row of a file; those whose row is there are not read.

    Parameters
    ----------
    logs
        Each with the place that tells it from the others.
    file
        Parquet with rows of `FLEET`, replaced whole. Rows of logs that are not among these stay as they are: the file
        may know more than is left in a folder from which old logs are removed.
    thresholds
        From where on something is a cause.
    progress
        Called with (label, done, all).

    Returns
    -------
    Fleet
        Of all rows of the file. One log at a time is in memory.

    Raises
    ------
    TraceFormatError
        If the file is there and is none of these. A log that cannot be read is a row with its error.
    """
    check_file_place(file)
    limits = thresholds or Thresholds()
    read_by = hashlib.sha256(orjson.dumps([version("pag-graph"), asdict(limits)])).hexdigest()[:16]
    known_rows = {known_row["path"]: known_row for known_row in _rows_of(file)}
    read_now = 0
    for logs_read, (place, log) in enumerate(logs):
        progress("reading logs", logs_read, len(logs))
        key = _key(place, log, read_by)
        known_row = known_rows.get(key["path"])
        if known_row is None or any(known_row[name] != value for name, value in key.items()):
            known_rows[key["path"]] = {**key, **_row(log, limits)}
            read_now += 1
            if read_now % _KEPT_AFTER == 0:
                _keep(known_rows, file)
    return Fleet(rows=pl.DataFrame(pl.from_arrow(_keep(known_rows, file))), read=read_now)


def _keep(rows: dict[str, dict[str, Any]], file: Path) -> pa.Table:
    """Replace the file by the rows that are known."""
    table = pa.Table.from_pylist([rows[path] for path in sorted(rows)], FLEET)
    with whole_file(file) as place:
        pq.write_table(table, place)
    return table


def _rows_of(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        message = f"{file} cannot be read: {error}."
        raise TraceFormatError(message, "Name another file.", {"file": str(file)}) from error
    if not table.schema.equals(FLEET):
        message = f"{file} has other columns than a survey of logs."
        raise TraceFormatError(message, "Name another file.", {"file": str(file)})
    return list(table.to_pylist())


def _key(place: Path, log: LogFiles, read_by: str) -> dict[str, Any]:
    states = [file.stat() for file in log.files]
    return {
        "path": str(place),
        "bytes": sum(state.st_size for state in states),
        "modified_ns": max(state.st_mtime_ns for state in states),
        "read_by": read_by,
    }


def _row(files: LogFiles, limits: Thresholds) -> dict[str, Any]:
    try:
        with enough_memory(files):
            log = read_log(files)
            diagnosis = diagnose(map_log(log).schedule, limits)
    except TraceFormatError as error:
        return {"log": files.name, "error": error.message}
    name = log.app_name or log.app_id or files.name
    return {
        "log": files.name,
        "app_id": log.app_id,
        "app_name": log.app_name,
        "program": program_of(name),
        "spark": log.version,
        "complete": log.complete,
        "started_ms": log.start_ms,
        "span_ns": diagnosis.span_ns,
        "active_ns": diagnosis.active_ns,
        **{f"{use}_ns": ns for use, ns in diagnosis.core_ns.items()},
        "replay_error": diagnosis.replay_error,
        "causes": [
            {name: getattr(cause, name) for name in ("cause", "saved_ns", "stage", "text")}
            for cause in diagnosis.causes
        ],
    }


def program_of(name: str) -> str:
    """Return the name of an application without what differs from run to run: numbers, dates and ids.

    Examples
    --------
    >>> program_of("etl 2026-11-20 #17"), program_of("load_3f9a77c0d1")
    ('etl #-#-# ##', 'load_#')
    """
    return _NUMBERS.sub("#", name)


def _slope(runs: pl.DataFrame) -> float | None:
    """Return nanoseconds per day by which runs get longer; None of too few."""
    latest = runs.tail(_MOST_RUNS)
    if latest.height < _FEWEST_RUNS:
        return None
    days = latest["started_ms"].to_numpy() / _MS_PER_DAY
    spans = latest["active_ns"].to_numpy()
    earlier, later = np.triu_indices(len(days), 1)
    apart = days[later] - days[earlier]
    slopes = (spans[later] - spans[earlier])[apart > 0] / apart[apart > 0]
    return float(np.median(slopes)) if slopes.size else None
