"""Constraints and indexes that another client makes at the same time."""

from __future__ import annotations

import types
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

errors = pytest.importorskip("neo4j.exceptions", reason="Neo4j's driver is not installed")

from pag_graph.sinks.neo4j import load_steps  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

TAKEN = "Neo.ClientError.Schema.IndexWithNameAlreadyExists"


def refused(code: str) -> Any:
    return errors.Neo4jError._hydrate_neo4j(code=code, message="There already exists an index called 'trace_key'.")


class Server:
    """Refuses to make the constraint `trace_key` for some time."""

    def __init__(self, code: str, times: int) -> None:
        self.code, self.times = code, times
        self.made: list[str] = []

    def execute_query(self, _text: str, _: dict[str, Any]) -> tuple[list[Any], None, None]:
        return [], None, None

    @contextmanager
    def session(self) -> Iterator[Any]:
        yield types.SimpleNamespace(execute_write=lambda work: work(self))

    def run(self, text: str) -> Any:
        if "trace_key" in text and self.times:
            self.times -= 1
            raise refused(self.code)
        self.made.append(text)
        return types.SimpleNamespace(consume=lambda: None)


def prepare(server: Server, patience_s: float) -> None:
    driver: Any = server
    load_steps.prepare_schema(driver, patience_s)


def test_what_is_half_made_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(load_steps, "time", types.SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append))
    server = Server(TAKEN, times=3)
    prepare(server, 10.0)
    assert len(pauses) == 3
    assert any("trace_key" in text for text in server.made)


def test_other_refusals_and_too_long_ones_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(load_steps, "time", types.SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append))
    with pytest.raises(errors.ClientError):
        prepare(Server("Neo.ClientError.Schema.ConstraintValidationFailed", times=1), 10.0)
    assert not pauses
    with pytest.raises(errors.ClientError):
        prepare(Server(TAKEN, times=10**6), 1.0)
    assert 1.0 < sum(pauses) < 1.5
