"""How long epochs took from the recorder to the answer, of a run that was followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

SPANS = {
    "published to read": ("published_ns", "read_ns"),
    "read to closed": ("read_ns", "closed_ns"),
    "closed to committed": ("closed_ns", "committed_ns"),
    "committed to answered": ("committed_ns", "answered_ns"),
    "published to answered": ("published_ns", "answered_ns"),
}
"""Per name: the columns of `TIMINGS` that it goes from and to."""


class Lag(NamedTuple):
    """How long one step took, over epochs. Quantiles are exact: each is the time of some epoch."""

    span: str
    """Out of `SPANS`."""
    size: int
    """Epochs of at least so many events, and fewer than ten times as many; 0: all epochs."""
    epochs: int
    """How many epochs there are."""
    p50_ns: int
    """At least half of the epochs took no longer."""
    p99_ns: int
    """At least 99 of 100 epochs took no longer."""
    max_ns: int
    """No epoch took longer."""


def lags(timings: pa.Table, *, by_size: bool = False) -> list[Lag]:
    """Return how long each step took.

    Parameters
    ----------
    timings
        Rows of `TIMINGS`.
    by_size
        Whether to tell epochs of different sizes apart, by powers of ten.

    Returns
    -------
    list of Lag
        One per span, or per span and size; none without epochs.
    """
    if not timings.num_rows:
        return []
    rows = timings["rows"].to_numpy()
    sizes = 10 ** np.floor(np.log10(np.maximum(rows, 1))).astype(np.int64) if by_size else np.zeros(len(rows), np.int64)
    lags_found = []
    for span, (begin, end) in SPANS.items():
        took = timings[end].to_numpy() - timings[begin].to_numpy()
        for size in np.unique(sizes).tolist():
            ordered = np.sort(took[sizes == size])
            ranks = (_rank(len(ordered), share) for share in (50, 99, 100))
            lags_found.append(Lag(span, size, len(ordered), *(int(ordered[rank]) for rank in ranks)))
    return lags_found


def _rank(count: int, percent: int) -> int:
    """Return the place, from 0, of the least value that so many of a hundred do not exceed."""
    return max(-(-count * percent // 100), 1) - 1


def distribution(timings: pa.Table, span: str) -> list[tuple[int, float]]:
    """Return the distribution of one step's time.

    Parameters
    ----------
    timings
        Rows of `TIMINGS`.
    span
        Out of `SPANS`.

    Returns
    -------
    list of tuple
        Per time that occurs, ascending: nanoseconds, and the share of epochs that took no longer.
    """
    begin, end = SPANS[span]
    values, counts = np.unique(timings[end].to_numpy() - timings[begin].to_numpy(), return_counts=True)
    shares = np.cumsum(counts) / max(counts.sum(), 1)
    return list(zip(values.tolist(), shares.tolist(), strict=True))
