"""Work on several columns at a time: kernels, Arrow and NumPy leave Python while they compute."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")

# Of the machine's cores a container or `taskset` may leave some only; not every system can tell.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""How many cores this process may use, and so how many tasks run at the same time."""


_allowed = {"threads": CORES}


def allow(threads: int) -> None:
    """Let this process work with so many threads at a time, from now on; there are never more than cores."""
    _allowed["threads"] = max(1, min(threads, CORES))


def allowed() -> int:
    """Return with how many threads this process may work at a time: as many as it has cores, if nobody said less."""
    return _allowed["threads"]


def each(task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Run a task on every item, several at a time; worth it where most of the work is done outside Python.

    Parameters
    ----------
    task, items
        What to run, and on what.

    Returns
    -------
    list
        Results in the order of the items; an error is that of the first item that has one.
    """
    threads = min(len(items), allowed())
    if threads <= 1:
        return [task(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(task, items))
