"""The two distributions that intervals of samples need, so that nobody has to install a library for them."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

_LARGE = 1_000
_HALVINGS = 60


def student_quantile(share: float, freedom: int) -> float:
    """Return the value below which Student's t distribution has a share of its mass.

    Parameters
    ----------
    share
        Between 0 and 1.
    freedom
        Degrees of freedom; NaN without any.

    Returns
    -------
    float
        NaN without any degrees of freedom.

    Notes
    -----
    The distribution of the angle atan(t / sqrt(freedom)) is a finite sum of powers of its cosine (Abramowitz and
    Stegun, 26.7.3 and 26.7.4), and is searched by halving. From 1,000 degrees on, five terms of the expansion about
    the normal distribution (26.7.5) differ from it by less than 1e-12.
    """
    if freedom < 1:
        return math.nan
    if share < 0.5:  # noqa: PLR2004  (it is symmetric)
        return -student_quantile(1 - share, freedom)
    if freedom >= _LARGE:
        return _near_normal(NormalDist().inv_cdf(share), freedom)
    within, low, high = 2 * share - 1, 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_mass(middle, freedom) < within else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _central_mass(angle: float, freedom: int) -> float:
    """Return how much of the mass lies between an angle and its negative."""
    odd = freedom % 2
    # Per term its ratio to the one before: (2 / 3) (4 / 5) ... for odd numbers, (1 / 2) (3 / 4) ... for even ones.
    step = np.arange(1, (freedom - odd) // 2, dtype=np.float64)
    ratio = (2 * step - 1 + odd) / (2 * step + odd) * math.cos(angle) ** 2
    total = 1 + float(np.cumprod(ratio).sum())
    if not odd:
        return math.sin(angle) * total
    inner = math.sin(angle) * math.cos(angle) * total if freedom > 1 else 0.0
    return 2 / math.pi * (angle + inner)


def _near_normal(z: float, freedom: int) -> float:
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))


def hypergeometric(population: int, marked: int, drawn: int) -> F64:
    """Return the chances of drawing 0, 1, ... and `drawn` marked ones, without putting any back.

    Parameters
    ----------
    population, marked, drawn
        How many there are, how many of them are marked, and how many are drawn.

    Returns
    -------
    array of float
        Shape (drawn + 1,); they add up to 1.

    Notes
    -----
    From the likeliest number outwards, by the ratio of neighbours, and divided by their sum: O(drawn), and no large
    number occurs.
    """
    chance = np.zeros(drawn + 1)
    low, high = max(0, drawn - (population - marked)), min(drawn, marked)
    likeliest = min(max((drawn + 1) * (marked + 1) // (population + 2), low), high)
    # The chance of k + 1 marked ones, divided by that of k.
    marked_drawn = np.arange(low, high, dtype=np.float64)
    ratio = (
        (marked - marked_drawn)
        * (drawn - marked_drawn)
        / ((marked_drawn + 1) * (population - marked - drawn + marked_drawn + 1))
    )
    ratios_above, ratios_below = ratio[likeliest - low :], ratio[: likeliest - low]
    chance[likeliest] = 1
    chance[likeliest + 1 : high + 1] = np.cumprod(ratios_above)
    chance[low:likeliest] = np.cumprod(1 / ratios_below[::-1])[::-1]
    chance /= chance.sum()
    return chance
