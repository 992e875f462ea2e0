"""How long batches of streams took, so that one that takes much longer is named while it runs."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BatchTimes", "Ended"]

_KEPT = 20
"""Batches of a stream that are remembered."""
_FEWEST = 5
"""So many must be known before one is called slow."""
_SLOW = 2.0
"""A batch is slow that takes so many times the median of those before it."""


class Ended(NamedTuple):
    """A batch that has ended."""

    batch: int
    took_ms: int
    """As the stream says."""
    state_rows: int


class BatchTimes:
    """The last batches of each stream.

    Parameters
    ----------
    known
        What `state` returned; nothing if absent.
    """

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        self._ended: dict[str, deque[Ended]] = {
            query: deque((Ended(*batch) for batch in rows), _KEPT) for query, rows in (known or {}).items()
        }

    def add(self, query: str, ended: Ended) -> None:
        """Take in a batch that has ended; only the last 20 of a stream are remembered.

        Parameters
        ----------
        query
            The stream's id, which stays the same when its query is started again.
        ended
            The batch.
        """
        self._ended.setdefault(query, deque(maxlen=_KEPT)).append(ended)

    def state(self) -> dict[str, Any]:
        """Return what is known, as JSON can hold it."""
        return {query: [list(batch) for batch in batches] for query, batches in self._ended.items()}

    def compared(self, query: str, took_ms: int) -> dict[str, Any]:
        """Compare a batch that is under way with those of its stream that have ended.

        Parameters
        ----------
        query
            The stream's id.
        took_ms
            How long the batch has taken so far, in milliseconds.

        Returns
        -------
        dict
            `usual_ms`, the median of the last 20 (None where fewer than 5 are known), `slow`, whether it has taken more
            than twice that, and rows of the state after the last and the first of them, `state_rows` and
            `state_rows_before` (None where nothing is known).
        """
        batches = self._ended.get(query, deque())
        usual = round(median(batch.took_ms for batch in batches)) if len(batches) >= _FEWEST else None
        return {
            "usual_ms": usual,
            "slow": usual is not None and took_ms > _SLOW * usual,
            "state_rows": batches[-1].state_rows if batches else None,
            "state_rows_before": batches[0].state_rows if batches else None,
        }
