"""What executors and the driver held of their memory at most: peaks that task ends and stages' ends state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.sources.spark.task_rows import LARGEST

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ExecutorMemory"]

_PEAKS = (
    ("heap_bytes", "JVMHeapMemory"),
    ("execution_bytes", "OnHeapExecutionMemory"),
    ("storage_bytes", "OnHeapStorageMemory"),
    ("off_heap_bytes", "OffHeapUnifiedMemory"),
    ("resident_bytes", "ProcessTreeJVMRSSMemory"),
    ("gc_ms", "TotalGCTime"),
)
"""Columns, and Spark's names of the peaks: sampled with heartbeats, so short tasks have none."""

_UNSAMPLED = (None, 0, -1)
"""What Spark writes for a heap that nobody looked at."""


class ExecutorMemory:
    """The peaks of a log in the making: the largest that was stated, by executor."""

    def __init__(self) -> None:
        self.odd_values = 0
        """Peaks that are no numbers; they are left out."""
        self._peaks: dict[str, list[int]] = {}
        self._tasks: dict[str, int] = {}

    def add(self, executor: Any, stated: dict[str, Any]) -> None:
        """Take in the peaks of an executor that an event states.

        Parameters
        ----------
        executor
            The executor's id; ``driver`` for the driver.
        stated
            ``Executor Metrics`` of the event, in bytes, its garbage collection in milliseconds. Nothing is taken in
            where nobody looked at the heap; values that are no sizes are counted in `odd_values`.
        """
        if stated.get("JVMHeapMemory") in _UNSAMPLED and not stated.get("TotalGCTime"):
            # Most tasks end before they are sampled.
            return
        peaks = self._peaks.setdefault(str(executor), [0] * len(_PEAKS))
        for place, (_, name) in enumerate(_PEAKS):
            peak = stated.get(name, 0)
            if type(peak) is not int or not 0 <= peak <= LARGEST:
                self.odd_values += 1
            elif peak > peaks[place]:
                peaks[place] = peak

    def add_task(self, executor: Any, peak: Any) -> None:
        """Take in what a task held for its execution at most; it is measured whatever the task's length.

        Parameters
        ----------
        executor
            Where the task ran.
        peak
            In bytes; what is no size is passed over.
        """
        name = str(executor)
        if type(peak) is int and 0 <= peak <= LARGEST and peak >= self._tasks.get(name, 0):
            self._tasks[name] = peak

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per executor of which anything is known; what nobody sampled is null."""
        for executor in dict.fromkeys((*self._peaks, *self._tasks)):
            peaks = self._peaks.get(executor, [None] * len(_PEAKS))
            sampled = {column: peak for (column, _), peak in zip(_PEAKS, peaks, strict=True)}
            yield {"executor": executor, **sampled, "task_bytes": self._tasks.get(executor)}
