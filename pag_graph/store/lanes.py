"""The log of one worker of which portions come: how far it is there, and which portions share a file."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

JOINED_ROWS = 1 << 17
"""Rows of a file that consists of several portions: each portion writes those before it once more."""
_JOINED_PORTIONS = 64
_JOINED_S = 10.0


@dataclass(slots=True)
class Lane:
    """The log of one worker, as far as it is there."""

    process: int
    """Number of the process that the worker belongs to."""
    next_seq: int = 0
    """The number after the last event that is there or lost."""
    next_file: int = 0
    """Number of the file to be begun next."""
    begun: float = 0.0
    """When the last file was begun, by the clock that never goes back."""
    portions: int = 0
    """Portions in the last file; 0 where an earlier process wrote it."""
    rows: int = 0
    """Rows in the last file."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Stretches that the program could not keep: first and last number, ascending, apart."""
    last: int | None = None
    """The number of the last event, once the worker has ended."""
    finished: bool = False
    """Whether the program came to its end, so that the log is whole."""

    @property
    def ended(self) -> bool:
        """Whether nothing more comes, and all is there."""
        return self.last is not None

    def joins(self, rows: int) -> bool:
        """Say whether the next portion goes into the last file, which must be young and small.

        Parameters
        ----------
        rows
            Rows of the portion.

        Returns
        -------
        bool
            False where the last file was written by an earlier process.
        """
        is_young = 0 < self.portions < _JOINED_PORTIONS and time.monotonic() - self.begun < _JOINED_S
        return is_young and self.rows + rows <= JOINED_ROWS

    def count(self, rows: int, *, joined: bool) -> None:
        """Take note of a portion, in a new file or at the end of the last one.

        Parameters
        ----------
        rows
            Rows of the portion.
        joined
            Whether it is at the end of the last file.
        """
        if not joined:
            self.next_file, self.begun, self.portions, self.rows = self.next_file + 1, time.monotonic(), 0, 0
        self.portions += 1
        self.rows += rows

    def step_over(self) -> None:
        """Go on behind what is lost."""
        for first, last in self.lost:
            if first <= max(self.next_seq, 1) <= last:
                self.next_seq = last + 1


def united(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same numbers in stretches that are ascending and apart.

    Parameters
    ----------
    stretches
        First and last number of each, in any order; they may overlap.

    Returns
    -------
    list of tuple
        First and last number of each. O(n log n).

    Examples
    --------
    >>> united([(7, 9), (1, 3), (4, 5)])
    [(1, 5), (7, 9)]
    """
    apart: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if apart and first <= apart[-1][1] + 1:
            apart[-1] = apart[-1][0], max(apart[-1][1], last)
        else:
            apart.append((first, last))
    return apart
