"""How many tasks ran beside each task on its host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    F64 = NDArray[np.float64]

__all__ = ["tasks_at_once"]


def tasks_at_once(tasks: pl.DataFrame) -> F64:
    """Return per task how many tasks ran on its host on average while it ran, itself included; at least 1.

    A task runs from its receipt until its core is free. Rows are sorted once per host: O(n log n).
    """
    at_once = np.ones(tasks.height)
    for host_tasks in tasks.partition_by("host"):
        begin, end = host_tasks["receipt"].to_numpy(), host_tasks["free"].to_numpy()
        times = np.concatenate([begin, end])
        order = np.argsort(times, kind="stable")
        running = np.cumsum(np.repeat([1, -1], host_tasks.height)[order])
        passed = np.concatenate([[0], np.cumsum(np.diff(times[order]) * running[:-1])])
        work = np.interp(end, times[order], passed) - np.interp(begin, times[order], passed)
        at_once[host_tasks["number"].to_numpy()] = work / np.maximum(end - begin, 1)
    return np.maximum(at_once, 1.0)
