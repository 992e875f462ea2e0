"""Progress of streams: what Spark says of every batch at its end."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pag_graph.sources.spark.event_values import integer

if TYPE_CHECKING:
    from pag_graph.sources.spark.texts import Texts

__all__ = ["progress_row"]

_PARTS = {
    "trigger_ms": "triggerExecution",
    "add_batch_ms": "addBatch",
    "planning_ms": "queryPlanning",
    "latest_offset_ms": "latestOffset",
    "wal_ms": "walCommit",
    "commit_offsets_ms": "commitOffsets",
}
"""Columns, and Spark's names of what a batch took."""
_STATE_TIMES = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")


def progress_row(event: dict[str, Any], texts: Texts) -> dict[str, Any]:
    """Return what is kept of a batch's progress.

    Parameters
    ----------
    event
        ``QueryProgressEvent``.
    texts
        What to keep of the query's id.

    Returns
    -------
    dict
        A row of `PROGRESS`. Times of state operators are sums over tasks.

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError
        If it is no progress.
    """
    progress = event["progress"]
    took = progress["durationMs"]
    states = [state for state in progress.get("stateOperators") or () if isinstance(state, dict)]
    event_time = progress.get("eventTime") or {}
    sources = [source for source in progress.get("sources") or () if isinstance(source, dict)]
    return {
        "query": texts.query(progress["id"]),
        "batch": integer(progress["batchId"]),
        "started_ms": _instant(progress["timestamp"]),
        **{column: integer(took.get(name, 0)) for column, name in _PARTS.items()},
        "input_rows": _total(sources, "numInputRows"),
        "state_rows": _total(states, "numRowsTotal"),
        "state_bytes": _total(states, "memoryUsedBytes"),
        "state_ms": sum(_total(states, name) for name in _STATE_TIMES),
        "dropped_rows": _total(states, "numRowsDroppedByWatermark"),
        "watermark_ms": _instant(event_time["watermark"]) if "watermark" in event_time else None,
    }


def _total(entries: list[dict[str, Any]], name: str) -> int:
    return sum(max(0, integer(entry.get(name)) or 0) for entry in entries)


def _instant(text: Any) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
