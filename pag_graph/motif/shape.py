"""What the planner knows of a graph: its columns, and what follows from what."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_EDGES, PAG_VERTICES
from pag_graph.motif.conditions import Binary, Column, Literal, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    Derivation = Callable[[str], Node]
    """From the name of an edge to the value of a column of one of its ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Columns of a graph, and facts about them that make queries cheaper; without the facts answers are the same."""

    vertices: pa.Schema
    """With a column ``id``, unique."""
    edges: pa.Schema
    """With columns ``src`` and ``dst``."""
    closed: bool = False
    """Whether both ends of every edge are vertices."""
    edge_key: tuple[str, ...] = ()
    """Columns that tell edges apart; empty where two edges may be the same in everything."""
    of_source: Mapping[str, Derivation] = field(default_factory=dict)
    """Columns of a vertex that can be read off an edge that starts there."""
    of_target: Mapping[str, Derivation] = field(default_factory=dict)
    """Columns of a vertex that can be read off an edge that ends there."""


OF_VERTEX, OF_EDGE = ("id", "worker", "t_ns", "kind"), ("type", "start_ns", "duration_ns")
"""Columns that people are shown of elements, where they do not say which they want."""


def _worker(end: str) -> Derivation:
    return lambda edge: Binary(">>", Column(edge, end), Literal(POSITION_BITS))


PAG_SHAPE = Shape(
    vertices=PAG_VERTICES,
    edges=PAG_EDGES,
    closed=True,
    edge_key=("src", "dst", "type"),
    of_source=MappingProxyType(
        {
            "worker": _worker("src"),
            "t_ns": lambda edge: Column(edge, "start_ns"),
            "epoch": lambda edge: Column(edge, "src_epoch"),
        }
    ),
    of_target=MappingProxyType(
        {
            "worker": _worker("dst"),
            "t_ns": lambda edge: Binary("+", Column(edge, "start_ns"), Column(edge, "duration_ns")),
            "epoch": lambda edge: Column(edge, "epoch"),
        }
    ),
)
"""A program activity graph as a store keeps it."""
