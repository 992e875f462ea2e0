"""Work on several columns at a time: kernels, Arrow and NumPy leave Python while they compute."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from threading import local
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")

# A container or `taskset` may allow only some of the machine's cores; not every system can tell.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""How many cores this process may use, and so how many tasks run at the same time."""


_allowed = {"threads": CORES}


def allow(threads: int) -> None:
    """Set with how many threads this process may work at a time, from now on.

    Parameters
    ----------
    threads
        How many; at least one is allowed, and never more than there are cores.
    """
    _allowed["threads"] = max(1, min(threads, CORES))


def allowed() -> int:
    """Return with how many threads this process may work at a time.

    Returns
    -------
    int
        `CORES`, if nobody said less.
    """
    return _allowed["threads"]


class _Here(local):
    """What holds for the calling thread."""

    alone = False


_here = _Here()


@contextmanager
def alone(*, when: bool = True) -> Iterator[None]:
    """Let `each` run in the calling thread while the block does: little work is done before another thread begins.

    Parameters
    ----------
    when
        Whether to do so; blocks may lie in each other, and one that says so is enough.

    Yields
    ------
    None
        While the block runs.
    """
    before, _here.alone = _here.alone, when or _here.alone
    try:
        yield
    finally:
        _here.alone = before


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

    Raises
    ------
    BaseException
        What the first item fails with whose task fails; items after it may not have been begun.
    """
    threads = 1 if _here.alone else min(len(items), allowed())
    if threads <= 1:
        return [task(item) for item in items]
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    places = count()

    def work() -> None:
        # Places are given out in order: when one fails, all before it have begun, and none after it needs to.
        while not errors and (place := next(places)) < len(items):
            try:
                results[place] = task(items[place])
            except BaseException as error:  # noqa: BLE001  (raised again where the results are asked for)
                errors[place] = error

    # The calling thread works too, so no call waits for a free thread. It does what no thread has begun.
    helpers = [_pool().submit(work) for _ in range(threads - 1)]
    work()
    for helper in helpers:
        if not helper.cancel():
            helper.result()
    if errors:
        raise errors[min(errors)]
    return [results[place] for place in range(len(items))]


_pools: list[ThreadPoolExecutor] = []
"""The threads of this process, once there are some: to start one takes as long as some of what they do."""


def _pool() -> ThreadPoolExecutor:
    if not _pools:
        # Twice as many as can compute: while one part of a build reads ahead, another one asks as well.
        _pools.append(ThreadPoolExecutor(2 * CORES, thread_name_prefix="pag-graph"))
    return _pools[0]


if hasattr(os, "register_at_fork"):
    # A process that is forked off has none of its parent's threads.
    os.register_at_fork(after_in_child=_pools.clear)
