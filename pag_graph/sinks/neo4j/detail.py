"""How much of an epoch is loaded."""

from __future__ import annotations

from enum import StrEnum


class Detail(StrEnum):
    """How much of an epoch is loaded; each holds what the one before it holds."""

    WAITS = "waits"
    """Segments and what released them."""
    CRITICAL = "critical"
    """And the events on the critical path with their neighbours."""
    FULL = "full"
    """And all events."""

    def covers(self, other: Detail) -> bool:
        """Return whether it holds all that `other` holds."""
        order = list(Detail)
        return order.index(self) >= order.index(other)
