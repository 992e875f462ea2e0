"""Between which values the rows of files lie: by this, readers leave files out. A process remembers it of each file."""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from pag_graph.store.parts import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from pag_graph.store.parts import PartFile

_FIRST = 1 << 10
"""Files for which there is room at first."""
_OLD, _FEW = 4, 1 << 16
"""All is forgotten when more files are known than so many times those that are asked for, and than so many."""
_LEAST = -(1 << 63)
_STATISTICS = attrgetter("statistics")


class _Known:
    """Bounds of the files of one table, which many states of many stores ask for: commit after commit, the same ones.

    Parameters
    ----------
    table
        Name out of `BOUNDS`.
    """

    def __init__(self, table: str) -> None:
        self._names = [name.removeprefix("min_") for name in BOUNDS[table] if name.startswith("min_")]
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        # Files are told apart by their statistics: those of equal statistics have equal bounds.
        self._places: dict[str, int] = {}
        self._values = np.zeros((2 * len(self._names), _FIRST), np.int64)
        self._told = np.zeros(self._values.shape, np.bool_)

    def look_up(self, parts: Collection[PartFile]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return where files stand, and per column of `BOUNDS` the values there and whether the statistics tell them.

        Parameters
        ----------
        parts
            Files of the table.

        Returns
        -------
        places
            Per file its place in a row of the other two.
        values, told
            A row per column of `BOUNDS`. They may grow longer, but what stands at `places` does not change any more.
        """
        with self._lock:
            if len(self._places) > max(_OLD * len(parts), _FEW):
                self._forget()
            statistics = list(map(_STATISTICS, parts))
            try:
                places = self._places_of(statistics)
            except KeyError:
                self._add([text for text in dict.fromkeys(statistics) if text not in self._places])
                places = self._places_of(statistics)
            return places, self._values, self._told

    def _places_of(self, statistics: Sequence[str]) -> NDArray[np.int64]:
        return np.fromiter(map(self._places.__getitem__, statistics), np.int64, len(statistics))

    def _add(self, new_statistics: Sequence[str]) -> None:
        """Read statistics that are not known yet."""
        begin, end = len(self._places), len(self._places) + len(new_statistics)
        if end > self._values.shape[1]:
            room = ((0, 0), (0, max(end, 2 * begin) - self._values.shape[1]))
            self._values, self._told = np.pad(self._values, room), np.pad(self._told, room)
        contents = [orjson.loads(statistics) for statistics in new_statistics]
        bounds = [[content.get(f"{bound}Values", {}) for content in contents] for bound in ("min", "max")]
        columns = [(values, name) for values in bounds for name in self._names]
        for row, (values, name) in enumerate(columns):
            integers = _integers([of_file.get(name) for of_file in values])
            self._told[row, begin:end] = integers.is_valid()
            self._values[row, begin:end] = integers.fill_null(0)
        self._places |= zip(new_statistics, range(begin, end), strict=True)


def _integers(values: Sequence[Any]) -> pa.Array:
    """Return values that statistics tell; those that another program wrote, and we cannot use, tell nothing."""
    if set(map(type, values)) <= {int, type(None)}:
        # All of them, as a rule; Arrow refuses those that are too large.
        with suppress(pa.ArrowInvalid, OverflowError):
            return pa.array(values, pa.int64())
    usable = (isinstance(value, int) and _LEAST <= value <= -_LEAST - 1 for value in values)
    return pa.array([value if ok else None for value, ok in zip(values, usable, strict=True)], pa.int64())


_known = {table: _Known(table) for table in BOUNDS}


def file_bounds(table: str, parts: Collection[PartFile], columns: Collection[str] | None = None) -> pl.DataFrame:
    """Return the least and the largest value of each column of integers, per file.

    Parameters
    ----------
    table
        Name out of `BOUNDS`.
    parts
        Its files.
    columns
        Those of `BOUNDS` to return; all where absent.

    Returns
    -------
    DataFrame
        One row per file, in their order: ``_at``, its place among them, and ``min_X`` and ``max_X`` for each column X
        of integers; null where the statistics do not tell. O(parts); statistics are read once per process.
    """
    places, values, told = _known[table].look_up(parts)
    asked = [(row, name) for row, name in enumerate(BOUNDS[table]) if columns is None or name in columns]
    bounds = {name: pl.Series(pa.array(values[row, places], mask=~told[row, places])) for row, name in asked}
    return pl.DataFrame({"_at": np.arange(len(places), dtype=np.uint32), **bounds})
