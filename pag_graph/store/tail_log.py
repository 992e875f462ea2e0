"""A trace that is being written, and its log, as far as they were read (`pag_graph.store.tail`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pag_graph.store.chunks import chunks_of, place_of
from pag_graph.store.log import TraceLog
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingTrace(Trace):
    """A trace as far as it was written; of its files, those that are still needed."""

    read: int
    """Events that were read since its beginning."""

    @property
    def rows(self) -> int:
        """Number of events in the trace so far."""
        return self.read


class Arrival(NamedTuple):
    """A file of events, or what came to it later, as rows of one worker."""

    first_row: int
    """Place of its first row in the worker's log, from 0."""
    file: str
    """Path inside the trace."""
    published_ns: int
    """When the recorder wrote it, Unix time."""
    read_ns: int
    """When it was seen, Unix time."""
    t_max: int
    """The latest time of its rows, on the worker's own clock."""


@dataclass(frozen=True, slots=True)
class TailLog(TraceLog):
    """A log without the rows that nobody needs again; what is new of it is in memory."""

    arrivals: Mapping[int, Sequence[Arrival]] = field(default_factory=dict)
    """Per worker, in the order of its log: all files since the trace's beginning."""
    content: Mapping[tuple[str, int], pa.Table] = field(default_factory=dict, compare=False, repr=False)
    """Row groups, by file and number, that were read."""
    awaited: frozenset[int] = frozenset()
    """Workers of which a file lacks that may still come."""

    def forward(self) -> TailLog:  # type: ignore[override]  # what it keeps it keeps for every reader
        """Return the log itself: what is asked for again and again is in memory.

        Returns
        -------
        TailLog
            This one.
        """
        return self

    def files_of(self, worker: int | NDArray[np.int64], row: NDArray[np.int64]) -> pa.Array:
        """Return the files that hold rows.

        Parameters
        ----------
        worker, row
            As for `TraceLog.files_of`; rows that are done may be named as well.

        Returns
        -------
        Array
            Per row: path inside the trace; dictionary-encoded.
        """
        workers = np.broadcast_to(worker, len(row))
        names = [
            known[place_of(known, place)].file
            for known, place in zip((self.arrivals[int(w)] for w in workers), row.tolist(), strict=True)
        ]
        return pa.array(names, pa.string()).dictionary_encode()

    def tables(self, worker: int, low: int, high: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read rows `low` to `high` (exclusive) of `worker` as `TraceLog.tables` does.

        Parameters
        ----------
        worker, low, high, columns
            As for `TraceLog.tables`.

        Yields
        ------
        Table
            As of `TraceLog.tables`; from memory where it is there.

        Raises
        ------
        TraceFormatError
            If a file is damaged.
        """
        for chunk in chunks_of(self.chunks.get(worker, ()), low, high):
            begin, end = max(low, chunk.first_row), min(high, chunk.first_row + chunk.rows)
            kept = self.content.get((chunk.file, chunk.row_group))
            if kept is None:
                yield from TraceLog.tables(self, worker, begin, end, columns)
                continue
            present = set(kept.schema.names)
            rows = kept.slice(chunk.offset + begin - chunk.first_row, end - begin)
            yield rows.select([name for name in columns if name in present])
