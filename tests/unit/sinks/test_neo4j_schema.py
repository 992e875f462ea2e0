"""Constraints and indexes: in which order they are made, and what another client makes at the same time."""

from __future__ import annotations

import threading
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


class SlowServer(Server):
    """Makes the constraints of many nodes only after something else was done."""

    def __init__(self) -> None:
        super().__init__(TAKEN, times=0)
        self.done = threading.Event()

    def run(self, text: str) -> Any:
        if load_steps._schema_name(text) in load_steps._OF_MANY:
            assert self.done.wait(30)
        return super().run(text)


def test_what_is_few_is_written_while_constraints_of_many_nodes_are_filled() -> None:
    """A constraint of few nodes that came after those of many would wait for them."""
    server = SlowServer()
    driver: Any = server
    made_before: list[str] = []

    def write() -> None:
        made_before.extend(load_steps._schema_name(text) for text in server.made)
        server.done.set()

    load_steps.prepare_schema(driver, meanwhile=write)
    made = {load_steps._schema_name(text) for text in server.made}
    assert made - set(made_before) == load_steps._OF_MANY
    constraints = [name for name in made_before if name.startswith("CONSTRAINT")]
    assert made_before[: len(constraints)] == constraints
