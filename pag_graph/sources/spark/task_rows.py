"""Tasks of a log as columns: packed row by row while the log is read, most of them as narrow as their numbers allow."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ENDED",
    "FAILED",
    "KILLED",
    "LARGEST",
    "LARGEST_ID",
    "LATEST_MS",
    "LOCALITIES",
    "LOCALITY",
    "MEASURED",
    "SPECULATIVE",
    "TEXTS",
    "TaskRows",
    "measures",
    "widened",
]

# Bytes of packed tasks that become columns at a time.
_FLUSH = 4 << 20

LATEST_MS = (1 << 62) // 1_000_000
"""The year 2116: what is above it is no time, and what is below fits in 64 bits as nanoseconds."""

LARGEST = (1 << 60) - 1
"""Largest number that is taken for one: an exbibyte, and some of them can be added."""

LARGEST_ID = (1 << 31) - 1
"""Largest number of a job, a stage, an attempt or an RDD, and of an executor's cores: Spark has 32 bits for it."""

_LONGEST = 500
"""Characters of a text, such as the name of a host."""

TEXTS = ("executor", "host", "reason")
"""Columns of numbered texts."""

SPECULATIVE, FAILED, KILLED, ENDED, MEASURED = 1, 2, 4, 8, 16
"""Bits of a task's flags: a speculative copy, failed, killed, seen to end, and with metrics."""

LOCALITY = 32
"""What the number of a task's locality is multiplied by in its flags."""

LOCALITIES = {"PROCESS_LOCAL": 1, "NODE_LOCAL": 2, "NO_PREF": 3, "RACK_LOCAL": 4, "ANY": 5}
"""Numbers of localities, the nearest to the data first; 0 is unknown."""

_COLUMNS: tuple[tuple[str, str], ...] = (
    ("task", "q"),
    ("launch_ms", "q"),
    ("finish_ms", "q"),
    ("getting_result_ms", "q"),
    ("stage", "i"),
    ("stage_attempt", "i"),
    ("index", "i"),
    ("attempt", "i"),
    ("executor", "i"),
    ("host", "i"),
    ("reason", "i"),
    ("flags", "i"),
    ("deserialize_ms", "i"),
    ("run_ms", "i"),
    ("cpu_ns", "q"),
    ("gc_ms", "i"),
    ("serialize_ms", "i"),
    ("fetch_wait_ms", "i"),
    ("write_ns", "q"),
    ("result_bytes", "q"),
    ("memory_spilled_bytes", "q"),
    ("disk_spilled_bytes", "q"),
    ("remote_bytes", "q"),
    ("local_bytes", "q"),
    ("shuffle_read_records", "q"),
    ("shuffle_write_bytes", "q"),
    ("input_bytes", "q"),
    ("input_records", "q"),
    ("output_bytes", "q"),
)
_ROW = struct.Struct("<" + "".join(code for _, code in _COLUMNS))
_DTYPE = np.dtype([(name, "<i8" if code == "q" else "<i4") for name, code in _COLUMNS])
_TYPES = {name: pl.Int64() if code == "q" else pl.Int32() for name, code in _COLUMNS}
_NAMES = tuple(name for name, _ in _COLUMNS)
_LIMITS = tuple(LARGEST if code == "q" else 2**31 - 1 for _, code in _COLUMNS)
_KEPT = ("task", "launch_ms", "finish_ms", "stage", "stage_attempt", "executor")
"""Columns of one type in all logs: they are joined with others, and times are reckoned from them."""
_NARROW = tuple(name for name in _NAMES if name not in _KEPT)


def measures(metrics: dict[str, Any]) -> tuple[Any, ...]:
    """Return the last columns of a task's row, which ``Task Metrics`` of its end state; 0 where one is absent."""
    shuffle_read = metrics.get("Shuffle Read Metrics") or {}
    shuffle_write = metrics.get("Shuffle Write Metrics") or {}
    input_metrics = metrics.get("Input Metrics") or {}
    output_metrics = metrics.get("Output Metrics") or {}
    return (
        metrics.get("Executor Deserialize Time", 0),
        metrics.get("Executor Run Time", 0),
        metrics.get("Executor CPU Time", 0),
        metrics.get("JVM GC Time", 0),
        metrics.get("Result Serialization Time", 0),
        shuffle_read.get("Fetch Wait Time", 0),
        shuffle_write.get("Shuffle Write Time", 0),
        metrics.get("Result Size", 0),
        metrics.get("Memory Bytes Spilled", 0),
        metrics.get("Disk Bytes Spilled", 0),
        shuffle_read.get("Remote Bytes Read", 0),
        shuffle_read.get("Local Bytes Read", 0),
        shuffle_read.get("Total Records Read", 0),
        shuffle_write.get("Shuffle Bytes Written", 0),
        input_metrics.get("Bytes Read", 0),
        input_metrics.get("Records Read", 0),
        output_metrics.get("Bytes Written", 0),
    )


class TaskRows:
    """The tasks of a log in the making."""

    def __init__(self) -> None:
        self.odd_values = 0
        """Numbers that are out of range."""
        self.twice = 0
        """Ends of tasks that the log states again."""
        self.texts: dict[str, dict[str, int]] = {name: {} for name in TEXTS}
        """Texts with their numbers."""
        self._rows = bytearray()
        self._parts: list[dict[str, pl.Series]] = []

    def code(self, column: str, value: Any) -> int:
        """Return the number of a text in a column, a new one for a new text.

        Parameters
        ----------
        column
            One of `TEXTS`; each has numbers of its own, from 0.
        value
            The text, of which 500 characters count. What is no text becomes one; None is empty.
        """
        if type(value) is not str:
            value = "" if value is None else str(value)
        value = value[:_LONGEST]
        codes = self.texts[column]
        code = codes.get(value)
        if code is None:
            code = codes[value] = len(codes)
        return code

    def add(self, row: tuple[Any, ...]) -> tuple[int, int, int]:
        """Take in a task, with its values in the order of the columns.

        Returns
        -------
        task, launch, finish
            Its number, -1 if a value of it was odd, and its times.

        Raises
        ------
        ValueError
            If a time is none.
        """
        task, launch, finish = row[:3]
        try:
            packed = _ROW.pack(*row)
            fits = min(row) >= 0
        except (struct.error, TypeError):
            fits = False
        if not fits:
            packed = self._pack_odd(row)
            task, launch, finish = -1, *(self._number(value, LARGEST) for value in (launch, finish))
        if not 0 < launch < LATEST_MS or finish >= LATEST_MS:
            raise ValueError
        self._rows += packed
        if len(self._rows) >= _FLUSH:
            self._flush()
        return task, launch, finish

    def add_unended(self, rows: dict[int, tuple[Any, ...]]) -> None:
        """Take in the tasks that were not seen to end: by number, the first columns of each; what is missing is 0."""
        for row in rows.values():
            self._rows += self._pack_odd((*row, *([0] * (len(_COLUMNS) - len(row)))))

    def _pack_odd(self, row: tuple[Any, ...]) -> bytes:
        return _ROW.pack(*map(self._number, row, _LIMITS))

    def _number(self, value: Any, limit: int) -> int:
        """Return a number within its column's range; what is none counts as odd and becomes 0."""
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                value = None
        if isinstance(value, float) and value == value and abs(value) <= limit:  # noqa: PLR0124 not NaN
            value = int(value)
        if not isinstance(value, int) or not 0 <= value <= limit:
            self.odd_values += 1
            return limit if isinstance(value, int) and value > limit else 0
        return value

    def _flush(self) -> None:
        """Turn the rows so far into columns, as narrow as their numbers allow: most metrics of most tasks are 0."""
        rows = np.frombuffer(self._rows, _DTYPE)
        self._rows = bytearray()
        if rows.size:
            # Columns of Polars: what it frees goes back to the system, unlike the many small pieces of NumPy.
            self._parts.append({name: pl.Series(name, rows[name]).shrink_dtype() for name in _NAMES})

    def _column(self, name: str) -> pl.Series:
        """Return a column of all tasks, in the order of the log; a narrow one in the widest type of its parts."""
        parts = [part.pop(name) for part in self._parts]
        column, *more = parts
        if more:
            column = pl.concat((part.to_frame() for part in parts), how="vertical_relaxed", rechunk=True)[name]
        return column if name in _NARROW else column.cast(_TYPES[name])

    def table(self) -> pl.DataFrame:
        """Return one row per task attempt, by launch time; what was taken in is gone afterwards.

        Most columns come in the narrowest type that holds them: `widened` makes them fit to calculate with.
        """
        self._flush()
        if not self._parts:
            return pl.DataFrame(schema={**_TYPES, "output_lost": pl.Boolean})
        key_columns = {name: self._column(name) for name in ("task", "launch_ms", "reason")}
        order, resubmitted = self._order({name: column.to_numpy() for name, column in key_columns.items()})
        rows = pl.Series(order, dtype=pl.UInt32)
        del order
        # Column by column, so that a long log is never in memory twice.
        columns = {}
        for name in _NAMES:
            column = key_columns.pop(name) if name in key_columns else self._column(name)
            columns[name] = column.gather(rows)
        return pl.DataFrame(columns).with_columns(output_lost=pl.col("task").is_in(resubmitted.implode()))

    def _order(self, keys: dict[str, NDArray[Any]]) -> tuple[NDArray[np.int64], pl.Series]:
        """Return the rows that count, by launch, and the tasks whose output was lost."""
        task, launch = keys["task"], keys["launch_ms"]
        order = np.lexsort((task, launch))
        # Spark reports a task again, as resubmitted, when the executor that holds its output is lost.
        resubmitted = keys["reason"] == self.texts["reason"].get("Resubmitted", -1)
        numbers = np.sort(task)
        if not resubmitted.any() and not (numbers[1:] == numbers[:-1]).any():
            return order, pl.Series(dtype=pl.Int64)
        counts = ~resubmitted | ~np.isin(task, task[~resubmitted])
        _, firsts = np.unique(task[counts], return_index=True)
        counted = np.zeros(task.size, bool)
        counted[np.flatnonzero(counts)[firsts]] = True
        self.twice = int(counts.sum() - counted.sum())
        return order[counted[order]], pl.Series(np.unique(task[resubmitted]))


def widened(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return tasks with their narrow columns in 64 bits, in which sums and products fit."""
    return tasks.cast(dict.fromkeys((name for name in _NARROW if name in tasks.columns), pl.Int64))
