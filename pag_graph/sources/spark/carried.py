"""What the mapping of a portion of a log needs to know of the portions before: numbers that go on, and who is there."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Carried"]


@dataclass(slots=True, kw_only=True)
class Carried:
    """Numbers that go on from portion to portion, as JSON can hold them: how many there are so far of each."""

    origin_ms: int | None = None
    """When the application began, in milliseconds since 1970; None before the first portion."""
    portions: int = 0
    epochs: int = 0
    events: int = 0
    tasks: int = 0
    """Tasks so far: messages about tasks bear their numbers."""
    lane_messages: int = 0
    executor_messages: int = 0
    shuffle_messages: int = 0
    lanes: int = 0
    """Driver lanes, which stay."""
    workers: int = 0
    operators: int = 0
    channels: int = 0
    alive: dict[str, int] = field(default_factory=dict)
    """Numbers of the workers that have not gone, by name."""
    seq: dict[int, int] = field(default_factory=dict)
    """Events of each of them so far."""
    cores: dict[str, int] = field(default_factory=dict)
    """Cores of each executor that is there."""
    open_operators: dict[str, int] = field(default_factory=dict)
    """Operators that may come again, by address."""
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What was odd so far, by name."""

    def state(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        numbers = asdict(self)
        return numbers | {"seq": [[worker, count] for worker, count in self.seq.items()]}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Carried:
        """Return what `state` returned."""
        return cls(**{**state, "seq": dict(state["seq"])})
