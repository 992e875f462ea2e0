"""Percentiles by nearest rank: one of the values themselves, so that each was observed."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FINEST = 1_000_000
"""Shares are multiples of one over a number up to this, so that 0.07 of a hundred values is seven and no more."""


def rank_of(share: float, count: int) -> int:
    """Return which value, in ascending order, is the first that a share of all does not exceed.

    Parameters
    ----------
    share
        From 0 to 1. It is taken for the nearest fraction whose denominator is at most a million.
    count
        How many values there are.

    Returns
    -------
    int
        Place of the value, from 1; 1 also where the share is 0, or there is no value.

    Examples
    --------
    >>> rank_of(0.5, 3), rank_of(0.07, 100), rank_of(0.0, 5)
    (2, 7, 1)
    """
    return max(1, math.ceil(Fraction(share).limit_denominator(_FINEST) * count))


def nearest_rank(values: NDArray[np.int64], share: float, weights: NDArray[np.int64] | None = None) -> int | None:
    """Return the smallest value that a share of all does not exceed; with weights, that share of their sum.

    Parameters
    ----------
    values
        In any order.
    share
        From 0 to 1.
    weights
        Per value: how often it counts; once each where absent.

    Returns
    -------
    int or None
        None where there is no value. O(values log values).

    Examples
    --------
    >>> values = np.array([30, 10, 20])
    >>> nearest_rank(values, 0.5), nearest_rank(values, 0.5, np.array([8, 1, 1]))
    (20, 30)
    """
    if not len(values):
        return None
    if weights is None:
        place = rank_of(share, len(values)) - 1
        return int(np.partition(values, place)[place])
    order = np.argsort(values, kind="stable")
    weighed = np.cumsum(weights[order])
    total = int(weighed[-1])
    return int(values[order[np.searchsorted(weighed, min(rank_of(share, total), total), side="left")]])
