"""Collectives, joined across ranks (`docs/torch.md`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pag_graph.sources.kineto.operators import Operators
    from pag_graph.sources.kineto.spans import Spans

__all__ = ["Joined"]


@dataclass(slots=True)
class Joined:
    """A rank's part of a collective."""

    def write(self, spans: Spans, operators: Operators, worker: int, begin: int, end: int) -> None:
        """Write it."""
