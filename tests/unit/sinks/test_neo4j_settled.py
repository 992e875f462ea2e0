"""Reads that are done again while loads change what they look at, and what is said if that never ends."""

from __future__ import annotations

import types
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.sinks.neo4j.query import Answer
from pag_graph.sinks.neo4j.settled import read_settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Session:
    """Counts transactions, which see the state that a list of states gives each of them."""

    def __init__(self, states: list[int]) -> None:
        self.states = states
        self.transactions = 0

    def execute_read(self, work: Callable[[int], Any]) -> Any:
        state = self.states[min(self.transactions, len(self.states) - 1)]
        self.transactions += 1
        return work(state)


@pytest.mark.parametrize(
    ("states", "transactions", "value"),
    [
        # Look, work, look.
        ([1], 3, 1),
        # Changed before the work, while it was done, and after it: done once more.
        ([1, 2, 2], 5, 2),
        ([1, 1, 2], 5, 2),
        ([1, 2, 3, 3], 5, 3),
        # Changed all the time: five tries.
        (list(range(100)), 11, 9),
    ],
)
def test_reads_are_done_again_while_the_state_changes(states: list[int], transactions: int, value: int) -> None:
    session = Session(states)

    @contextmanager
    def opened(**_: Any) -> Iterator[Session]:
        yield session

    driver: Any = types.SimpleNamespace(session=opened, execute_query_bookmark_manager=None)
    settled = read_settled(driver, lambda state: state, look=lambda state: state)
    assert (session.transactions, settled.value, settled.is_whole) == (transactions, value, transactions < 11)


def test_an_answer_says_that_it_may_be_of_two_states() -> None:
    assert Answer(columns=(), rows=[]).lines() == []
    (line,) = Answer(columns=(), rows=[], mixed=True).lines()
    assert "state before" in line
