"""Motifs found by Polars, in this process.

What matches is found on row numbers and ids alone; the columns of the answer are gathered for the rows that it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import polars as pl
import pyarrow as pa

from pag_graph.motif.conditions import Column, Node, whole_numbers
from pag_graph.motif.plan import Counts, Exclude, Join, Scan, identity
from pag_graph.motif.polars_conditions import all_of, of_row, to_polars
from pag_graph.motif.query import PlannedQuery
from pag_graph.motif.syntax import must_exist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pag_graph.motif.shape import Shape

_ROW = "row"
_FEW_COLUMNS = 1


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Vertices and edges to look for motifs in, as Polars frames."""

    vertices: pl.LazyFrame
    """Rows of `PAG_VERTICES`, or of another table that `shape` describes."""
    edges: pl.LazyFrame
    """Rows of `PAG_EDGES` likewise, with `src` and `dst`."""
    shape: Shape
    """Columns of both."""
    lookup: pl.LazyFrame | None = None
    """Where the graph is closed: vertices among which all ends of edges are; may hold more, and be cheaper to read."""

    def rows_of(self, scan: Scan) -> pl.LazyFrame:
        """Return the vertices that a scan of vertices is about.

        Parameters
        ----------
        scan
            Of a vertex.

        Returns
        -------
        LazyFrame
            `lookup` where that will do.
        """
        return self.vertices if scan.exact or self.lookup is None else self.lookup


def shares(graph: Graph, scans: Sequence[Scan]) -> dict[str, float]:
    """Return which share of the edges or vertices each scan keeps.

    Parameters
    ----------
    graph
        Is read once.
    scans
        Of edges and vertices, each of another element.

    Returns
    -------
    dict
        Per element: from 0 to 1; 1 for a scan without conditions, or of an empty table.
    """
    nearby = graph.lookup if graph.lookup is not None else graph.vertices
    shares_found = {scan.element: 1.0 for scan in scans}
    for frame, schema, group in (
        (graph.edges, graph.shape.edges, [scan for scan in scans if scan.is_edge and scan.where]),
        (nearby, graph.shape.vertices, [scan for scan in scans if not scan.is_edge and scan.where]),
    ):
        if group:
            # A condition that is null keeps no row.
            share_kept = [all_of(scan, schema).fill_null(value=False).mean().alias(scan.element) for scan in group]
            row = frame.select(share_kept).collect().row(0, named=True)
            shares_found |= {name: 1.0 if share is None else float(share) for name, share in row.items()}
    return shares_found


@dataclass(kw_only=True)
class MotifQuery(PlannedQuery):
    """A motif to be found in a graph; nothing is read before an answer is asked for."""

    graph: Graph
    """Where to look."""
    _of_plan: ClassVar[tuple[str, ...]] = ("_edges", "_vertices", "_carried")

    @property
    def total(self) -> int:
        """How many matches there are, whatever the limit."""
        if self._total is None:
            self._total = int(self._matches().select(pl.len()).collect().item())
        return self._total

    def frame(self) -> pl.DataFrame:
        """Return the matches.

        Returns
        -------
        pl.DataFrame
            One row per match, one struct per named element; in no order unless there is a `limit`.
        """
        edges = self._edges
        matches = self._matches().collect()
        self._total = matches.height
        if self.limit is not None:
            matches = self._first(matches, edges)
        columns = []
        for name, fields in self.plan.fields.items():
            if name in self._carried:
                part = matches.select(**{field: pl.col(column) for field, column in self._carried[name].items()})
            elif name in self.plan.motif.edges:
                part = edges.select(fields)[matches[_edge(name)]]
            else:
                rows = matches.get_column(_vertex_row(name)) if _vertex_row(name) in matches.columns else None
                part = matches.select(id=_vertex(name)) if rows is None else self._vertices.select(fields)[rows]
            columns.append(part.to_struct(name))
        return pl.DataFrame(columns)

    def table(self) -> pa.Table:
        """Return the matches as an Arrow table of exactly the plan's schema.

        Returns
        -------
        Table
            One row per match, a struct per named element; in no order unless there is a `limit`.
        """
        frame, schema = self.frame(), self.plan.schema
        columns = []
        for field in schema:
            part = frame[field.name].struct.unnest().to_arrow()
            arrays = [part[child.name].combine_chunks().cast(child.type) for child in field.type]
            columns.append(pa.StructArray.from_arrays(arrays, fields=list(field.type)))
        return pa.Table.from_arrays(columns, schema=schema)

    def _counted_matches(self) -> tuple[list[int | None], int]:
        counted: dict[int, int] = {}
        total = self._matches(counted).collect().height
        return [counted.get(index) for index in range(len(self.plan.steps))], total

    def _count(self, scans: Sequence[Scan]) -> Counts:
        """Count what every scan gives, in one pass over the edges and one over the vertices."""
        nearby = self.graph.lookup if self.graph.lookup is not None else self.graph.vertices
        edges, vertices = (int(frame.select(pl.len()).collect().item()) for frame in (self.graph.edges, nearby))
        shares_kept = shares(self.graph, scans)
        rows = {scan.element: shares_kept[scan.element] * (edges if scan.is_edge else vertices) for scan in scans}
        return Counts(edges=edges, vertices=vertices, by_element=rows)

    @cached_property
    def _edges(self) -> pl.DataFrame:
        """The edges that can be part of a match, with the columns that anything needs, and a number for each."""
        plan = self.plan
        scans = [step.scan for step in plan.steps if isinstance(step, Join) and step.scan.is_edge]
        names = {*plan.edge_columns, *(self.edge_order if self.limit is not None else ())}
        edges = self.graph.edges
        if scans and all(scan.where for scan in scans) and not any(isinstance(step, Exclude) for step in plan.steps):
            schema = plan.shape.edges
            edges = edges.filter(pl.any_horizontal(all_of(scan, schema) for scan in dict.fromkeys(scans)))
        frame = edges.select(name for name in plan.shape.edges.names if name in names).collect().with_row_index(_ROW)
        if plan.compares_edges:
            # Edges that are the same in everything count as one where duplicates are removed.
            frame = frame.with_columns(pl.col(_ROW).min().over(plan.shape.edges.names))
        return frame

    @cached_property
    def _carried(self) -> dict[str, dict[str, str]]:
        """Edges whose answer goes along through the joins: per field the column that it is in.

        The others leave their number, and are looked up at the end, which costs more than to carry one column, and
        less than to carry many. Duplicates and the order of a limit need the number.
        """
        plan = self.plan
        if self.limit is not None or any(isinstance(step, Exclude) for step in plan.steps):
            return {}
        carried = {}
        for name, edge in plan.motif.edges.items():
            ends = {side: _vertex(end) for side, end in (("src", edge.src), ("dst", edge.dst)) if must_exist(end)}
            columns = {field: ends.get(field, _column(name, field)) for field in plan.fields.get(name, ())}
            if columns and sum(field not in ends for field in columns) <= _FEW_COLUMNS:
                carried[name] = columns
        return carried

    @cached_property
    def _vertices(self) -> pl.DataFrame:
        """The vertices of the answer, with a number for each."""
        columns = {"id"} | {column for name in self.plan.vertices_at_end for column in self.plan.fields.get(name, ())}
        source = self.graph.lookup if self.graph.lookup is not None else self.graph.vertices
        return source.select(name for name in self.plan.shape.vertices.names if name in columns).collect()

    def _matches(self, counted: dict[int, int] | None = None) -> pl.LazyFrame:
        """Return one row per match: ids of vertices, numbers of edges, and numbers of the answer's vertices."""
        plan = self.plan
        frame: pl.LazyFrame | None = None
        for index, step in enumerate(plan.steps):
            if isinstance(step, Exclude):
                assert frame is not None  # noqa: S101  (a plan begins with a join)
                frame = self._excluded(frame, step)
            else:
                frame = self._joined(frame, step)
            if counted is not None:
                frame = frame.map_batches(
                    _counter(counted, index), predicate_pushdown=False, projection_pushdown=False, slice_pushdown=False
                )
        assert frame is not None  # noqa: S101
        if plan.vertices_at_end:
            rows = self._vertices.lazy().select("id").with_row_index(_ROW)
            for name in plan.vertices_at_end:
                vertex_rows = rows.select(pl.col("id").alias(_vertex(name)), pl.col(_ROW).alias(_vertex_row(name)))
                frame = frame.join(vertex_rows, on=_vertex(name))
        return frame

    def _joined(self, left: pl.LazyFrame | None, step: Join) -> pl.LazyFrame:
        plan, scan = self.plan, step.scan
        if scan.edge is not None:
            schema = plan.shape.edges
            right = self._edges.lazy()
            if scan.where:
                right = right.filter(all_of(scan, schema))
            carried = self._carried.get(scan.element, {})
            row_column = {_edge(scan.element): pl.col(_ROW)} if scan.edge.named and not carried else {}
            ends = {
                _vertex(name): pl.col(side)
                for name, side in ((scan.edge.dst, "dst"), (scan.edge.src, "src"))
                if must_exist(name)
            }
            edge_columns = {_column(scan.element, name): pl.col(name) for name in plan.needs.get(scan.element, ())}
            edge_columns |= {column: pl.col(name) for name, column in carried.items() if column not in ends}
            read = {_column(vertex, column): of_row(node, schema) for vertex, column, node in step.reads}
            right = right.select(**row_column, **ends, **edge_columns, **read)
        else:
            right = self._scanned(scan)
        for lookup in step.lookups:
            right = right.join(self._scanned(lookup), on=_vertex(lookup.element))
        if left is None:
            return self._filtered(right, step.where)
        on = [_vertex(name) for name in step.shared]
        if on or step.keys:
            extra = [f"key {index}" for index in range(len(step.keys))]
            left = left.with_columns(**{n: self._key(pair[0]) for n, pair in zip(extra, step.keys, strict=True)})
            right = right.with_columns(**{n: self._key(pair[1]) for n, pair in zip(extra, step.keys, strict=True)})
            return self._filtered(left.join(right, on=[*on, *extra]).drop(extra), step.where)
        if step.where:
            return left.join_where(right, *(self._of_match(node) for node in step.where))
        return left.join(right, how="cross")

    def _scanned(self, scan: Scan) -> pl.LazyFrame:
        """Return the vertices of a scan, with the columns that later conditions need."""
        frame = self.graph.rows_of(scan)
        if scan.where:
            frame = frame.filter(all_of(scan, self.plan.shape.vertices))
        needed = {_column(scan.element, name): pl.col(name) for name in self.plan.needs.get(scan.element, ())}
        return frame.select(pl.col("id").alias(_vertex(scan.element)), **needed)

    def _excluded(self, frame: pl.LazyFrame, step: Exclude) -> pl.LazyFrame:
        edges = self._edges.lazy()
        for edge in step.edges:
            ends = [(name, side) for name, side in ((edge.src, "src"), (edge.dst, "dst")) if must_exist(name)]
            if edge.src == edge.dst:
                ends = ends[:1]
            matching_edges = edges.filter(pl.col("src") == pl.col("dst")) if edge.src == edge.dst else edges
            matching_edges = matching_edges.select(pl.col(side).alias(_vertex(name)) for name, side in ends).unique()
            frame = frame.join(matching_edges, on=[_vertex(name) for name, _ in ends], how="anti")
        names = [name for name in frame.collect_schema().names() if name.startswith((_EDGE, _VERTEX))]
        return frame.unique(names)

    def _filtered(self, frame: pl.LazyFrame, conditions: Sequence[Node]) -> pl.LazyFrame:
        return frame.filter(self._of_match(node) for node in conditions) if conditions else frame

    def _key(self, node: Node) -> pl.Expr:
        value = self._of_match(node)
        # Keys of a join must have one type; all integers are taken for the widest.
        return value.cast(pl.Int64) if whole_numbers(node, self._is_integer) else value

    def _of_match(self, node: Node) -> pl.Expr:
        return to_polars(node, self._flat, self._is_integer)

    def _flat(self, column: Column) -> pl.Expr:
        vertex = identity(self.plan.motif, column)
        return pl.col(_vertex(vertex) if vertex is not None else _column(column.element, column.name))

    def _first(self, matches: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
        """Return the first rows, in an order that no engine and no run changes."""
        keys: dict[str, pl.Series] = {}
        for name in self.plan.motif.columns:
            if name in self.plan.motif.edges:
                part = edges.select(self.edge_order)[matches[_edge(name)]]
                keys |= {f"{name} {column.name}": column for column in part}
            else:
                keys[name] = matches[_vertex(name)]
        order = pl.DataFrame(keys).with_row_index(_ROW).sort(list(keys)).head(self.limit or 0)
        return matches[order[_ROW]]


_EDGE, _VERTEX = "edge ", "vertex "


def _edge(name: str) -> str:
    return f"{_EDGE}{name}"


def _vertex(name: str) -> str:
    return f"{_VERTEX}{name}"


def _vertex_row(name: str) -> str:
    return f"row {name}"


def _column(element: str, name: str) -> str:
    return f"of {element} {name}"


def _counter(counted: dict[int, int], index: int) -> Callable[[pl.DataFrame], pl.DataFrame]:
    def count(frame: pl.DataFrame) -> pl.DataFrame:
        counted[index] = counted.get(index, 0) + frame.height
        return frame

    return count
