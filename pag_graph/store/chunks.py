"""Chunks of a worker's log: rows that stand together in one row group of one file, and which of them hold some rows."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one worker that stand together in one row group of one file."""

    file: str
    """Path inside the trace."""
    row_group: int
    """Its number in the file."""
    offset: int
    """First row inside the row group."""
    rows: int
    """How many."""
    first_row: int
    """Number of rows of the same worker in earlier chunks."""
    t_min: int
    """Their least time (ns of the worker's own clock)."""
    t_max: int
    """Their greatest time."""
    of_file: tuple[int, int] = field(default=(-1, -1), compare=False)
    """Size of the file, and when it was last changed: another file may take its name."""


class Stretch(Protocol):
    """Rows that stand together in a worker's log, such as a `Chunk`."""

    @property
    def first_row(self) -> int:
        """Place of its first row in the log, from 0."""
        ...


def place_of(chunks: Sequence[Stretch], row: int) -> int:
    """Find the chunk that holds a row.

    Parameters
    ----------
    chunks
        Of one worker, in the order of its log; or other stretches of it.
    row
        Its place in that log, from 0; before the end of the last chunk.

    Returns
    -------
    int
        Place of the chunk; -1 for a row before all of them. O(log chunks).
    """
    return bisect_right(chunks, row, key=attrgetter("first_row")) - 1


def chunks_of(chunks: Sequence[Chunk], low: int, high: int) -> Sequence[Chunk]:
    """Find the chunks that hold rows.

    Parameters
    ----------
    chunks
        Of one worker, in the order of its log.
    low, high
        The first row, and the one after the last.

    Returns
    -------
    sequence of Chunk
        In the same order. O(log chunks + their number).
    """
    if low >= high or not chunks or low >= chunks[-1].first_row + chunks[-1].rows:
        return ()
    return chunks[max(place_of(chunks, low), 0) : place_of(chunks, high - 1) + 1]
