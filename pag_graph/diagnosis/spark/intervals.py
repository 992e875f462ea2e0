"""Sets of instants as sorted lists of disjoint intervals: united, cut out of each other, and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Interval", "common", "length", "united", "without"]

Interval = tuple[int, int]
"""From an instant until before another, in nanoseconds."""


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """Return what is in any of some intervals.

    Examples
    --------
    >>> united([(5, 9), (0, 3), (2, 4), (7, 7)])
    [(0, 4), (5, 9)]
    """
    disjoint: list[Interval] = []
    for start, end in sorted(intervals):
        if disjoint and start <= disjoint[-1][1]:
            disjoint[-1] = (disjoint[-1][0], max(disjoint[-1][1], end))
        elif end > start:
            disjoint.append((start, end))
    return disjoint


def without(intervals: Iterable[Interval], cut: Iterable[Interval]) -> list[Interval]:
    """Return what is in some intervals and not in others.

    Parameters
    ----------
    intervals, cut
        In any order; they may overlap.

    Returns
    -------
    list of Interval
        Disjoint, by start. O(n log n).

    Examples
    --------
    >>> without([(0, 10)], [(2, 3), (8, 12)])
    [(0, 2), (3, 8)]
    """
    remaining: list[Interval] = []
    holes = united(cut)
    first = 0
    for start, end in united(intervals):
        # Holes that end before this interval end before all that follow.
        while first < len(holes) and holes[first][1] <= start:
            first += 1
        reached, place = start, first
        while place < len(holes) and holes[place][0] < end:
            low, high = holes[place]
            if low > reached:
                remaining.append((reached, low))
            reached = max(reached, high)
            place += 1
        if reached < end:
            remaining.append((reached, end))
    return remaining


def common(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return what is in both of two sets of intervals.

    Parameters
    ----------
    intervals, others
        In any order; they may overlap.

    Returns
    -------
    list of Interval
        Disjoint, by start. O(n log n).

    Examples
    --------
    >>> common([(0, 10), (20, 30)], [(5, 25)])
    [(5, 10), (20, 25)]
    """
    disjoint = united(intervals)
    return without(disjoint, without(disjoint, others))


def length(intervals: Iterable[Interval]) -> int:
    """Return how long disjoint intervals are together, in their unit."""
    return sum(end - start for start, end in intervals)
