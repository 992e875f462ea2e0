"""When latencies have settled after a change, and how far apart medians must lie to differ.

Definition: `docs/model.md`, section "Rescaling".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64] | NDArray[np.int64]

WIDTH = 5
"""Epochs of a running median, and running medians that must lie inside the band."""
LEAST = 8 * WIDTH
"""Epochs below which nothing is said."""
TOLERANCE = 0.1
"""Share of the median that makes no difference."""
_MAD, _MEDIAN_ERROR, _DEVIATIONS = 1.4826, 1.2533, 3.0
SETTLED, NOT_SETTLED, TOO_FEW = "settled", "not_settled", "too_few"


class Settling(NamedTuple):
    """Whether and when latencies settled."""

    status: str
    """``settled``, ``not_settled`` or ``too_few``."""
    first: int | None
    """Place of the first settled one."""


def settling(latencies: Numbers) -> Settling:
    """Find the first of some latencies that is like those at their end.

    Parameters
    ----------
    latencies
        In time order.

    Returns
    -------
    Settling
        The second half is the reference. It must not drift itself: the medians of its halves differ by no more than
        `margin`. Then the first place counts from which on `WIDTH` running medians lie among those of the reference,
        or within `TOLERANCE` of its median. O(n).
    """
    count = len(latencies)
    if count < LEAST:
        return Settling(TOO_FEW, None)
    middle = count // 2
    reference = latencies[middle:]
    half = len(reference) // 2
    head, tail = reference[:half], reference[-half:]
    level = float(np.median(reference))
    drift = abs(float(np.median(head)) - float(np.median(tail)))
    if drift > max(TOLERANCE * level, _DEVIATIONS * _MEDIAN_ERROR * noise(reference) * math.sqrt(2 / half)):
        return Settling(NOT_SETTLED, None)
    running = np.median(np.lib.stride_tricks.sliding_window_view(latencies, WIDTH), axis=1)
    low = min(float(running[middle:].min()), level * (1 - TOLERANCE))
    high = max(float(running[middle:].max()), level * (1 + TOLERANCE))
    is_level = (running >= low) & (running <= high)
    together = np.lib.stride_tricks.sliding_window_view(is_level, WIDTH).all(axis=1)
    # The stretch of reference is one of these, so at least one fits.
    return Settling(SETTLED, int(together.argmax()))


def noise(latencies: Numbers) -> float:
    """Return the standard deviation of single latencies, from what neighbours differ by.

    Parameters
    ----------
    latencies
        In time order.

    Returns
    -------
    float
        In their unit; 0 for fewer than two. A drift hardly counts.
    """
    if len(latencies) < 2:  # noqa: PLR2004
        return 0.0
    return _MAD * float(np.median(np.abs(np.diff(latencies)))) / math.sqrt(2)


def margin(before: Numbers, after: Numbers) -> float:
    """Return how far the medians of two lists of latencies lie apart at most that do not differ.

    Parameters
    ----------
    before, after
        Latencies, at least one each.

    Returns
    -------
    float
        In their unit.
    """
    spread = math.sqrt(noise(before) ** 2 / len(before) + noise(after) ** 2 / len(after))
    return max(TOLERANCE * float(np.median(before)), _DEVIATIONS * _MEDIAN_ERROR * spread)
