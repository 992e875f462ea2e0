"""How many columns are worked on at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pag_graph.kernels import threads

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
