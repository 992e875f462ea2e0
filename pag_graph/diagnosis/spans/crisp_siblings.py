"""Siblings as CRISP sees them: who precedes whom (policy `crisp`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_OVERLAP = 0.01
"""How much two children that follow each other may overlap, as a share of their parent."""
_BOTH_EVENTS = 2


@dataclass(slots=True)
class Node:
    """A span in the making: CRISP cuts times and durations independently."""

    span: int
    start: int
    end: int
    duration: int
    parent: int | None
    children: list[int]
    error: bool


class Siblings:
    """Children of one parent, or some of them: who precedes whom.

    Parameters
    ----------
    nodes
        The children.
    duration
        Of their parent, in the format's unit of time; overlaps count in shares of it.
    """

    def __init__(self, nodes: Sequence[Node], duration: int) -> None:
        self._starts, self._ends = sorted(node.start for node in nodes), sorted(node.end for node in nodes)
        self._duration = duration

    def precedes(self, before: Node, later: Node) -> bool:
        """Tell whether one child ended before another one began, as far as clocks can tell.

        Parameters
        ----------
        before, later
            Two of the children.

        Returns
        -------
        bool
            True also where they overlap by less than a hundredth of their parent, and no other child begins or ends
            meanwhile. O(log children).

        Raises
        ------
        ZeroDivisionError
            Where CRISP raises it: the parent takes no time.
        """
        if before.end < later.start:
            return True
        if before.end >= later.end or before.start >= later.start:
            return False
        if (before.end - later.start) / self._duration >= _OVERLAP:
            return False
        low, high = later.start, before.end
        events = sum(bisect_right(times, high) - bisect_left(times, low) for times in (self._starts, self._ends))
        return events == _BOTH_EVENTS
