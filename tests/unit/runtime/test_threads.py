"""How many columns are worked on at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from pag_graph.runtime import threads

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = threads.allowed()
    yield
    threads.allow(before)


def test_one_thread_is_the_one_that_asks() -> None:
    threads.allow(1)
    assert threads.each(lambda _: threading.current_thread(), range(3)) == [threading.current_thread()] * 3


@pytest.mark.parametrize(("wanted", "got"), [(0, 1), (1, 1), (threads.CORES, threads.CORES), (10_000, threads.CORES)])
def test_there_are_never_more_threads_than_cores(wanted: int, got: int) -> None:
    threads.allow(wanted)
    assert threads.allowed() == got


@pytest.mark.parametrize("allowed", [1, 10_000])
def test_results_come_in_the_order_of_the_items(allowed: int) -> None:
    threads.allow(allowed)
    assert threads.each(lambda item: item * item, range(50)) == [item * item for item in range(50)]


def test_the_error_is_that_of_the_first_item_that_has_one() -> None:
    threads.allow(10_000)

    def fails(item: int) -> int:
        if item > 3:
            message = str(item)
            raise ValueError(message)
        return item

    for _ in range(50):
        with pytest.raises(ValueError, match=r"^4$"):
            threads.each(fails, range(20))
    # Whoever failed left the threads to others.
    assert threads.each(abs, range(20)) == list(range(20))


def test_work_inside_work_waits_for_nobody() -> None:
    threads.allow(10_000)

    def sums(depth: int) -> int:
        return sum(threads.each(sums, [depth - 1] * 4)) if depth else 1

    assert threads.each(sums, [3] * 8) == [64] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked off on this system")
def test_a_process_that_is_forked_off_has_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["28", "28"], done.stderr
    assert done.returncode == 0


_FORK = """
import os, time
from pag_graph.runtime import threads
threads.CORES = 4
threads.allow(4)
def slow(item):
    time.sleep(0.01)
    return item
print(sum(threads.each(slow, range(8))), flush=True)
child = os.fork()
if child == 0:
    print(sum(threads.each(slow, range(8))), flush=True)
    os._exit(0 if threads._pools and threads._pools[0]._threads else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
