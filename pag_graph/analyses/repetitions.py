"""Whether repetitions of two programs differ by more than chance: the intervals of all pairs of runs.

Definitions: `docs/model.md`, section "Advice", Evaluation; the chance is that of a permutation test whose statistic is
complete separation (Fisher 1935, The Design of Experiments, 21).
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BY_CHANCE = 0.05
"""The largest chance to tell runs of one program apart at which a difference is believed."""
ENOUGH = 4
"""The fewest runs that are enough where both sides have as many."""


class Ratio(NamedTuple):
    """How many times as much a measure is on the second side as on the first."""

    low: float
    """The least of the second over the most of the first."""
    high: float
    """The most of the second over the least of the first."""
    median: float
    """Of the medians."""


def compared(first: Sequence[float], second: Sequence[float]) -> Ratio:
    """Return the ratios between two sides.

    Parameters
    ----------
    first, second
        One value per run of each side, all above zero.

    Returns
    -------
    Ratio
        Of the second to the first: least, greatest, and that of the medians.
    """
    return Ratio(
        min(second) / max(first), max(second) / min(first), statistics.median(second) / statistics.median(first)
    )


def chance_of_separation(first: int, second: int) -> float:
    """Return how likely it is that all runs of one side lie below all of the other, if both are one program.

    Parameters
    ----------
    first, second
        How many runs there are on each side.

    Returns
    -------
    float
        Of the ways to choose which runs are the first side's, two separate them: ``2 / C(first + second, first)``.

    Examples
    --------
    >>> [round(chance_of_separation(runs, runs), 3) for runs in (3, 4, 5)]
    [0.1, 0.029, 0.008]
    """
    return min(1.0, 2 / math.comb(first + second, first))


def enough(first: int, second: int) -> bool:
    """Return whether so many runs a side can tell a difference from chance.

    Parameters
    ----------
    first, second
        How many runs each side has.

    Returns
    -------
    bool
        Whether chance alone would part the sides at most once in twenty times.
    """
    return chance_of_separation(first, second) <= MOST_BY_CHANCE
