"""How much of an epoch is loaded, and what people call a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Detail(StrEnum):
    """How much of an epoch is loaded; each holds what the one before it holds."""

    SUMMARY = "summary"
    """What is known of the epoch as a whole: its times, its path in sums, findings."""
    WAITS = "waits"
    """And segments and what released them."""
    CRITICAL = "critical"
    """And the events on the critical path with their neighbours."""
    FULL = "full"
    """And all events."""

    def covers(self, detail: Detail) -> bool:
        """Return whether it holds all that `detail` holds."""
        order = list(Detail)
        return order.index(self) >= order.index(detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabels:
    """What people call a run, to find it among others; what is absent stays as an earlier load has left it."""

    name: str | None = None
    """The store's where nobody has ever given one."""
    tags: tuple[str, ...] | None = None
    program: str | None = None
    """What ran."""
