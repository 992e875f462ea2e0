"""For how long a load tries again when the server is away: counted from the server's last answer."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import pytest

neo4j = pytest.importorskip("neo4j", reason="Neo4j's driver is not installed")

from pag_graph.neo4j_server.lease import Lease  # noqa: E402
from pag_graph.sinks.neo4j import writer as writers  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

AWAY_S = 30.0
"""For how long the driver itself tries before it gives up."""


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(writers, "time", types.SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep))
    return clock


@pytest.fixture
def writer(clock: Clock) -> writers.Writer:
    del clock
    driver: Any = types.SimpleNamespace(execute_query=lambda *_: types.SimpleNamespace(records=[]))
    return writers.Writer(driver, Lease(run="r", holder="h", lanes=1, lease_ms=1))


def failing(clock: Clock, returns_s: float, before: Callable[[], None] = lambda: None) -> Callable[[], str]:
    """Make a load that works until the server goes away, and again from some instant on."""

    def load() -> str:
        before()
        if clock.now < returns_s:
            clock.now += AWAY_S
            raise neo4j.exceptions.ServiceUnavailable
        return "loaded"

    return load


def test_a_server_that_comes_back_in_time_is_waited_for(clock: Clock, writer: writers.Writer) -> None:
    assert writers.patiently(failing(clock, clock.now + 80), 120.0, writer) == "loaded"


def test_a_server_that_stays_away_is_given_up_after_two_minutes(clock: Clock, writer: writers.Writer) -> None:
    began = clock.now
    with pytest.raises(neo4j.exceptions.ServiceUnavailable):
        writers.patiently(failing(clock, clock.now + 10_000), 120.0, writer)
    assert 80 < clock.now - began <= 120 + AWAY_S


def test_a_long_load_is_as_patient_as_a_short_one(clock: Clock, writer: writers.Writer) -> None:
    """It had been at work for ten minutes when the server went away."""
    attempts = []

    def work() -> None:
        attempts.append(clock.now)
        if len(attempts) == 1:
            clock.now += 600
            writer.read("RETURN 1", {})

    assert writers.patiently(failing(clock, clock.now + 670, work), 120.0, writer) == "loaded"
    assert len(attempts) > 2
