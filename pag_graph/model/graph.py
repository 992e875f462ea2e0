"""A part of a program activity graph in memory, as rule sets return it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """Vertices, edges and findings of one slice of a trace.

    Parts of disjoint slices concatenate to the graph of the run, in any order.
    """

    vertices: pa.Table
    """Rows of `PAG_VERTICES`."""
    edges: pa.Table
    """Rows of `PAG_EDGES`."""
    findings: pa.Table
    """Rows of `PAG_FINDINGS`."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Events that became no vertex, counted by reason; with the vertices that have a `seq` they add up to the rows."""
