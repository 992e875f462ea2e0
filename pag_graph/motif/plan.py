"""The steps that find a motif, the same for all engines, and what they say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pag_graph.errors import InvalidParameterError
from pag_graph.motif.conditions import Column, Node, columns_of, replace_columns, written
from pag_graph.motif.syntax import Edge, Motif, must_exist

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pag_graph.motif.shape import Shape

ID, SRC, DST = "id", "src", "dst"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Rows of the edges or of the vertices that can stand for one element."""

    element: str
    """Name of the edge or the vertex."""
    edge: Edge | None = None
    """None for a vertex."""
    where: tuple[Node, ...] = ()
    """Conditions in terms of the row's own columns."""
    exact: bool = True
    """For a vertex: whether the row alone makes it a vertex of the graph; else an edge already did."""

    @property
    def is_edge(self) -> bool:
        """Whether rows of the edges are meant."""
        return self.edge is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Put rows of one scan beside what was found so far; the first join has nothing to put them beside."""

    scan: Scan
    """Which rows."""
    shared: tuple[str, ...] = ()
    """Vertices that both sides have."""
    keys: tuple[tuple[Node, Node], ...] = ()
    """Equations: what they say of the rows so far, and of the new ones."""
    reads: tuple[tuple[str, str, Node], ...] = ()
    """Columns of new vertices that the edge tells and later conditions need: vertex, column, value."""
    lookups: tuple[Scan, ...] = ()
    """New vertices whose rows are looked up for the scan's own, before the join."""
    where: tuple[Node, ...] = ()
    """Conditions that can be applied now and not before."""
    estimate: float | None = None
    """Rows expected after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclude:
    """Remove matches that the negated edges would fit, and duplicates."""

    edges: tuple[Edge, ...]
    """The negated edges."""
    estimate: float | None = None
    """Rows expected after it."""


Step = Join | Exclude


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps that find the matches of a motif, and what the answer is made of."""

    motif: Motif
    """What is looked for."""
    steps: tuple[Step, ...]
    """In the order in which they are done."""
    fields: Mapping[str, tuple[str, ...]]
    """Columns of the answer: elements, each with the columns of its own that are asked for."""
    needs: Mapping[str, tuple[str, ...]]
    """Columns of each element that conditions speak of after the element's own scan."""
    shape: Shape
    """Of the graph."""

    @property
    def edge_columns(self) -> tuple[str, ...]:
        """Columns of the edges that any step or the answer needs, in the table's order."""
        used = {SRC, DST}
        if self.compares_edges:
            used |= set(self.shape.edges.names)
        for step in self.steps:
            if isinstance(step, Join) and step.scan.is_edge:
                conditions = [*step.scan.where, *(node for _, _, node in step.reads)]
                used |= {column.name for node in conditions for column in columns_of(node)}
        for element in self.motif.edges:
            used |= {*self.needs.get(element, ()), *self.fields.get(element, ())}
        return tuple(name for name in self.shape.edges.names if name in used)

    @property
    def compares_edges(self) -> bool:
        """Whether duplicates have to be told apart by all columns: some are removed, and edges have no key."""
        return not self.shape.edge_key and any(isinstance(step, Exclude) for step in self.steps)

    @property
    def schema(self) -> pa.Schema:
        """The answer: one struct per named element, as in GraphFrames."""
        columns = []
        edges = self.motif.edges
        for name, fields in self.fields.items():
            table = self.shape.edges if name in edges else self.shape.vertices
            # A field's documentation would get lost in the engines.
            parts = [table.field(field).with_metadata(None) for field in fields]
            columns.append(pa.field(name, pa.struct(parts), nullable=False))
        return pa.schema(columns)

    @property
    def vertices_at_end(self) -> tuple[str, ...]:
        """Vertices whose rows are joined when all matches are known: for the answer, or because they must exist."""
        looked_up = self._scanned_vertices()
        late = []
        for name in self.motif.vertices:
            if not must_exist(name):
                continue
            columns = [column for column in self.fields.get(name, ()) if column != ID]
            unsure = not self.shape.closed and name not in looked_up
            if columns or unsure:
                late.append(name)
        return tuple(late)

    def _scanned_vertices(self) -> set[str]:
        vertices: set[str] = set()
        for step in self.steps:
            if isinstance(step, Join):
                vertices |= {scan.element for scan in (step.scan, *step.lookups) if not scan.is_edge}
        return vertices

    def explain(self, counted: Sequence[int | None] = (), rows: int | None = None) -> str:
        """Return the plan as text.

        Parameters
        ----------
        counted
            Rows that there really were after each step, where they were counted.
        rows
            Rows of the answer, where they are known.

        Returns
        -------
        str
            One line per step, with its conditions below.
        """
        lines = [f"motif {self.motif}"]
        for index, step in enumerate(self.steps):
            real = counted[index] if index < len(counted) else None
            lines.append(f"{index + 1}. {_title(step)}{_rows(step.estimate, real)}")
            if isinstance(step, Join):
                lines += [f"     only {_of_row(node)}" for node in step.scan.where]
                for scan in step.lookups:
                    conditions = " and ".join(_of_row(node) for node in scan.where)
                    lines.append(f"     look up vertex {scan.element}{': ' + conditions if conditions else ''}")
                lines += [f"     where {written(left)} = {written(right)}" for left, right in step.keys]
                lines += [f"     where {written(node)}" for node in step.where]
        if self.vertices_at_end:
            lines.append(f"{len(self.steps) + 1}. look up the vertices {', '.join(self.vertices_at_end)}")
        lines.append(f"answer: {', '.join(self.fields)}{_rows(None, rows)}")
        return "\n".join(lines)


def _of_row(node: Node) -> str:
    """Return a condition on a row's own columns as text."""
    return written(replace_columns(node, lambda column: Column("", column.name)))


def _title(step: Step) -> str:
    if isinstance(step, Exclude):
        return f"remove duplicates, and matches of {', '.join(str(edge) for edge in step.edges)}"
    scanned = str(step.scan.edge) if step.scan.edge is not None else f"vertex ({step.scan.element})"
    if step.shared or step.keys:
        keys = [f"vertex {name}" for name in step.shared] + ["an equation"] * bool(step.keys)
        return f"join {scanned} by {' and '.join(keys)}"
    return f"scan {scanned}"


def _rows(estimate: float | None, real: int | None) -> str:
    counts = ([f"estimated {estimate:,.0f}"] if estimate is not None else []) + (
        [f"found {real:,}"] if real is not None else []
    )
    return f"  [rows: {', '.join(counts)}]" if counts else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many rows scans give."""

    edges: float
    """Rows of the table of edges."""
    vertices: float
    """Rows of the table of vertices."""
    by_element: Mapping[str, float]
    """Rows of the scan of each edge or vertex, its conditions applied."""


def chosen_fields(motif: Motif, shape: Shape, columns: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Return which columns of which elements an answer has.

    Parameters
    ----------
    motif, shape
        Motif and graph.
    columns
        ``element.column``, or ``element`` for all of its columns; everything where absent.

    Returns
    -------
    dict
        Fields by element, both in their natural order.

    Raises
    ------
    InvalidParameterError
        If there is no such element or column.
    """
    edges = motif.edges
    columns_of_element = {name: (shape.edges if name in edges else shape.vertices).names for name in motif.columns}
    if columns is None:
        return {name: tuple(fields) for name, fields in columns_of_element.items()}
    fields_wanted: dict[str, set[str]] = {}
    for text in columns:
        name, _, column = text.partition(".")
        if name not in columns_of_element or (column and column not in columns_of_element[name]):
            have = (
                ", ".join(columns_of_element) if name not in columns_of_element else ", ".join(columns_of_element[name])
            )
            message = f"The answer has no column {text!r}; there are {have}."
            raise InvalidParameterError(message, None, {"column": text})
        fields_wanted.setdefault(name, set()).update([column] if column else columns_of_element[name])
    if not fields_wanted:
        message = "An answer needs a column at least."
        raise InvalidParameterError(message)
    return {
        name: tuple(field for field in columns_of_element[name] if field in fields_wanted[name])
        for name in columns_of_element
        if name in fields_wanted
    }


def identity(motif: Motif, column: Column) -> str | None:
    """Return the vertex whose id a column is, if that vertex is kept track of.

    Parameters
    ----------
    motif
        What is looked for.
    column
        A column that a filter speaks of.

    Returns
    -------
    str or None
        Name of the vertex; None of any other column, and of vertices without a name.
    """
    edge = motif.edges.get(column.element)
    if edge is None:
        return column.element if column.name == ID else None
    end = {SRC: edge.src, DST: edge.dst}.get(column.name)
    return end if end is not None and must_exist(end) else None
