"""Motifs found by Spark, with joins of DataFrames: GraphFrames' jar is not needed."""

from __future__ import annotations

import operator as operators
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from pag_graph.motif.conditions import Binary, Column, In, IsNull, Literal, Node, Unary, whole_numbers
from pag_graph.motif.paths import check_hops, count_paths, listed, question_of
from pag_graph.motif.plan import Counts, Exclude, Join, Scan, identity
from pag_graph.motif.query import PlannedQuery
from pag_graph.motif.syntax import must_exist

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from pag_graph.motif.paths import KHopPaths
    from pag_graph.motif.shape import Shape


@dataclass(frozen=True, kw_only=True)
class SparkGraph:
    """Vertices and edges to look for motifs in, as Spark DataFrames."""

    vertices: DataFrame
    """Rows of `PAG_VERTICES`, or of another table that `shape` describes."""
    edges: DataFrame
    """Rows of `PAG_EDGES` likewise, with `src` and `dst`."""
    shape: Shape
    """Columns of both."""
    lookup: DataFrame | None = None
    """Where the graph is closed: vertices among which all ends of edges are; may hold more, and be cheaper to read."""
    count: Callable[[Sequence[Scan]], Counts] | None = None
    """Tells how many rows scans give, where that is known without a Spark job."""


@dataclass(kw_only=True)
class SparkMotifQuery(PlannedQuery):
    """A motif to be found in a graph by Spark; nothing runs before an answer is asked for."""

    graph: SparkGraph
    """Where to look."""

    @property
    def total(self) -> int:
        """How many matches there are, whatever the limit."""
        if self._total is None:
            self._total = self._complete(self._matches()).count()
        return self._total

    def frame(self) -> DataFrame:
        """Return the matches, lazily.

        Returns
        -------
        DataFrame
            One row per match, one struct per named element, as `GraphFrame.find` gives them; in no order unless
            there is a `limit`.
        """
        from pyspark.sql import functions as f

        plan = self.plan
        frame = self._complete(self._matches())
        if self.limit is not None:
            frame = frame.orderBy(*self._order()).limit(self.limit)
        columns = [
            f.struct(*(f.col(self._flat_name(name, field)).alias(field) for field in fields)).alias(name)
            for name, fields in plan.fields.items()
        ]
        return frame.select(*columns)

    def table(self) -> pa.Table:
        """Return the matches as an Arrow table of exactly the plan's schema.

        Returns
        -------
        Table
            One row per match, a struct per named element; in no order unless there is a `limit`.
        """
        matches = self.frame().toArrow()
        self._total = matches.num_rows if self.limit is None else self._total
        schema = self.plan.schema
        columns = []
        for field in schema:
            part = matches[field.name].combine_chunks()
            if isinstance(part, pa.ChunkedArray):
                part = pa.concat_arrays(part.chunks) if part.num_chunks else pa.array([], part.type)
            arrays = [part.field(index).cast(child.type) for index, child in enumerate(field.type)]
            columns.append(pa.StructArray.from_arrays(arrays, fields=list(field.type)))
        return pa.Table.from_arrays(columns, schema=schema)

    def _counted_matches(self) -> tuple[list[int | None], int]:
        # A job per step: what Spark observes inside one job depends on how it reorders the work.
        counted: list[int | None] = [self._matches(index + 1).count() for index in range(len(self.plan.steps))]
        return counted, self._complete(self._matches()).count()

    def _count(self, scans: Sequence[Scan]) -> Counts:
        """Count what every scan gives, in one job over the edges and one over the vertices."""
        from pyspark.sql import functions as f

        if self.graph.count is not None:
            return self.graph.count(scans)
        shape = self.question.shape
        lookup = self.graph.lookup if self.graph.lookup is not None else self.graph.vertices
        result: dict[str, float] = {}
        totals = []
        for frame, group, schema in (
            (self.graph.edges, [scan for scan in scans if scan.is_edge], shape.edges),
            (lookup, [scan for scan in scans if not scan.is_edge], shape.vertices),
        ):
            sums = [f.count_if(_all(scan, schema)) for scan in group if scan.where]
            row = iter(frame.select(f.count(f.lit(1)), *sums).collect()[0])
            totals.append(next(row))
            result |= {scan.element: next(row) if scan.where else totals[-1] for scan in group}
        return Counts(edges=totals[0], vertices=totals[1], by_element=result)

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        """A number for every element; names of a motif would not all do as names of Spark's columns."""
        motif = self.plan.motif
        return {name: index for index, name in enumerate((*motif.vertices, *motif.edges))}

    def _flat_name(self, element: str, column: str) -> str:
        """Return the column that holds an element's column while matches are put together."""
        vertex = identity(self.plan.motif, Column(element, column))
        return f"_{self._numbers[element]}_{column}" if vertex is None else f"_{self._numbers[vertex]}_id"

    def _matches(self, steps: int | None = None) -> DataFrame:
        frame: DataFrame | None = None
        for step in self.plan.steps[:steps]:
            if isinstance(step, Exclude):
                assert frame is not None  # noqa: S101  (a plan begins with a join)
                frame = self._excluded(frame, step)
            else:
                frame = self._joined(frame, step)
        assert frame is not None  # noqa: S101
        return frame

    def _complete(self, frame: DataFrame) -> DataFrame:
        """Join what the answer has of the vertices; this also drops matches whose named vertices do not exist."""
        from pyspark.sql import functions as f

        source = self.graph.lookup if self.graph.lookup is not None else self.graph.vertices
        for name in self.plan.vertices_at_end:
            columns = tuple(dict.fromkeys(("id", *self.plan.fields.get(name, ()))))
            vertex_rows = source.select(*(f.col(column).alias(self._flat_name(name, column)) for column in columns))
            frame = frame.join(vertex_rows, on=self._flat_name(name, "id"))
        return frame

    def _joined(self, left: DataFrame | None, step: Join) -> DataFrame:
        from pyspark.sql import functions as f

        plan, scan = self.plan, step.scan
        if scan.edge is not None:
            schema = plan.shape.edges
            right = self.graph.edges
            if scan.where:
                right = right.filter(_all(scan, schema))
            edge = scan.edge
            ends = {
                self._flat_name(name, "id"): f.col(side)
                for name, side in ((edge.dst, "dst"), (edge.src, "src"))
                if must_exist(name)
            }
            kept_columns = (*plan.needs.get(edge.name, ()), *plan.fields.get(edge.name, ()))
            if edge.named and self.limit is not None:
                # Only an order of all matches says which of them come first.
                kept_columns += self.edge_order
            if edge.named and any(isinstance(lookup, Exclude) for lookup in plan.steps):
                # Duplicates are found by all columns of an edge.
                kept_columns = tuple(schema.names)
            edge_columns = {self._flat_name(edge.name, name): f.col(name) for name in dict.fromkeys(kept_columns)}
            read = {self._looked_up(vertex, column): _of_row(node, schema) for vertex, column, node in step.reads}
            columns = edge_columns | ends | read
            right = right.select(*(value.alias(name) for name, value in columns.items()))
        else:
            right = self._scanned(scan)
        for lookup in step.lookups:
            right = right.join(self._scanned(lookup), on=self._flat_name(lookup.element, "id"))
        if left is None:
            return self._filtered(right, step.where)
        on = [self._flat_name(name, "id") for name in step.shared]
        extra = [f"_key_{index}" for index in range(len(step.keys))]
        if on or extra:
            for name, (old, new) in zip(extra, step.keys, strict=True):
                left, right = left.withColumn(name, self._key(old)), right.withColumn(name, self._key(new))
            return self._filtered(left.join(right, on=[*on, *extra]).drop(*extra), step.where)
        if step.where:
            condition = self._of_match(step.where[0])
            for node in step.where[1:]:
                condition &= self._of_match(node)
            return left.join(right, on=condition)
        return left.crossJoin(right)

    def _scanned(self, scan: Scan) -> DataFrame:
        from pyspark.sql import functions as f

        frame = self.graph.vertices if scan.exact or self.graph.lookup is None else self.graph.lookup
        if scan.where:
            frame = frame.filter(_all(scan, self.plan.shape.vertices))
        names = ("id", *self.plan.needs.get(scan.element, ()))
        # Columns of a vertex that only the answer needs are looked up when the answer is complete.
        return frame.select(*(f.col(name).alias(self._looked_up(scan.element, name)) for name in names))

    def _looked_up(self, vertex: str, column: str) -> str:
        """Return the column that holds a vertex' column for conditions; that of the answer comes at the end."""
        name = self._flat_name(vertex, column)
        return name if column == "id" else f"{name}_early"

    def _excluded(self, frame: DataFrame, step: Exclude) -> DataFrame:
        from pyspark.sql import functions as f

        for edge in step.edges:
            ends = [(name, side) for name, side in ((edge.src, "src"), (edge.dst, "dst")) if must_exist(name)]
            matching_edges = self.graph.edges
            if edge.src == edge.dst:
                ends = ends[:1]
                matching_edges = matching_edges.filter(f.col("src") == f.col("dst"))
            names = [self._flat_name(name, "id") for name, _ in ends]
            matching_edges = matching_edges.select(
                *(f.col(side).alias(name) for name, (_, side) in zip(names, ends, strict=True))
            )
            frame = frame.join(matching_edges, on=names, how="left_anti")
        return frame.dropDuplicates()

    def _filtered(self, frame: DataFrame, conditions: Sequence[Node]) -> DataFrame:
        for node in conditions:
            frame = frame.filter(self._of_match(node))
        return frame

    def _key(self, node: Node) -> SparkColumn:
        value = self._of_match(node)
        return value.cast("bigint") if whole_numbers(node, self._is_integer) else value

    def _of_match(self, node: Node) -> SparkColumn:
        from pyspark.sql import functions as f

        return to_spark(node, lambda column: f.col(self._of_element(column)), self._is_integer)

    def _of_element(self, column: Column) -> str:
        edge = column.element in self.plan.motif.edges
        return (self._flat_name if edge else self._looked_up)(column.element, column.name)

    def _order(self) -> list[str]:
        """Return the columns to sort by: the same order as in `pag_graph.motif.query`."""
        plan, key = self.plan, self.edge_order
        order: list[str] = []
        for name in plan.motif.columns:
            order += [self._flat_name(name, field) for field in (key if name in plan.motif.edges else ("id",))]
        return order


def k_hop_paths(vertices: DataFrame, edges: DataFrame, *, k: int, limit: int, through_waits: bool) -> KHopPaths:
    """List paths of exactly k hops back from the ends of waits, on Spark (see `pag_graph.motif.paths.k_hop_paths`).

    Parameters
    ----------
    vertices
        Rows of `PAG_VERTICES`; the edges' ends are among them.
    edges
        Rows of `PAG_EDGES` that end in the window.
    k, limit, through_waits
        See `pag_graph.motif.paths.k_hop_paths`.

    Returns
    -------
    KHopPaths
        The same as in this process.
    """
    import narwhals.stable.v2 as nw
    from pyspark.sql import functions as f

    check_hops(k, limit)
    ended = edges.withColumn("end_ns", f.col("start_ns") + f.col("duration_ns"))
    total, first = count_paths(
        nw.from_native(ended),
        nw.from_native(vertices),
        k=k,
        limit=limit,
        through_waits=through_waits,
        # Rounds repeat: without a checkpoint Spark would plan all of them again in each.
        keep=lambda frame: nw.from_native(frame.to_native().localCheckpoint()),
    )
    question = question_of(k, through_waits=through_waits)
    seeds = first.to_arrow().cast(
        pa.schema([*((name, question.shape.edges.field(name).type) for name in first.columns)])
    )
    marked = edges.join(f.broadcast(edges.sparkSession.createDataFrame(seeds)), on=["src", "dst", "type"], how="left")
    graph = SparkGraph(vertices=vertices, edges=marked, shape=question.shape)
    return listed(SparkMotifQuery(question=question, graph=graph).table(), k=k, limit=limit, total=total)


def _of_row(node: Node, schema: pa.Schema) -> SparkColumn:
    """Translate a condition in terms of a row's own columns."""
    from pyspark.sql import functions as f

    return to_spark(
        node,
        lambda column: f.col(column.name),
        lambda column: bool(pa.types.is_integer(schema.field(column.name).type)),
    )


def _all(scan: Scan, schema: pa.Schema) -> SparkColumn:
    first, *further = (_of_row(node, schema) for node in scan.where)
    for condition in further:
        first &= condition
    return first


def to_spark(node: Node, column: Callable[[Column], SparkColumn], is_whole: Callable[[Column], bool]) -> SparkColumn:
    """Translate a filter for Spark.

    Parameters
    ----------
    node
        A filter that passed `pag_graph.motif.filters.check`.
    column
        Gives the expression of a column.
    is_whole
        Tells which columns hold integers.

    Returns
    -------
    Column
        Same values as `pag_graph.motif.polars_conditions.to_polars` gives, null for null.
    """
    from pyspark.sql import functions as f

    compare: dict[str, Callable[[SparkColumn, SparkColumn], SparkColumn]] = {
        "=": operators.eq,
        "!=": operators.ne,
        "<": operators.lt,
        "<=": operators.le,
        ">": operators.gt,
        ">=": operators.ge,
    }
    arithmetic = {"+": f.try_add, "-": f.try_subtract, "*": f.try_multiply, "/": f.try_divide, "%": f.try_mod}

    def number(part: Node, *, integral: bool) -> SparkColumn:
        return translate(part).cast("bigint" if integral else "double")

    def translate(part: Node) -> SparkColumn:
        match part:
            case Literal(None):
                return f.lit(None).cast("boolean")
            case Literal(bool() | str() as constant):
                return f.lit(constant)
            case Literal(constant):
                return f.lit(constant).cast("bigint" if isinstance(constant, int) else "double")
            case Column():
                return column(part)
            case Unary("not", operand):
                return ~translate(operand)
            case Unary("-", operand):
                integral = whole_numbers(operand, is_whole)
                return f.try_subtract(
                    f.lit(0).cast("bigint" if integral else "double"), number(operand, integral=integral)
                )
            case Unary(_, operand):
                integral = whole_numbers(operand, is_whole)
                value = number(operand, integral=integral)
                opposite = f.try_subtract(f.lit(0).cast("bigint" if integral else "double"), value)
                return f.when(value < 0, opposite).otherwise(value)
            case Binary("and", left, right):
                return translate(left) & translate(right)
            case Binary("or", left, right):
                return translate(left) | translate(right)
            case Binary(">>", left, Literal(int() as bits)):
                return f.shiftright(translate(left), bits)
            case Binary(operator, left, right) if operator in compare:
                return compare[operator](translate(left), translate(right))
            case Binary(operator, left, right):
                integral = operator != "/" and all(whole_numbers(side, is_whole) for side in (left, right))
                return arithmetic[operator](number(left, integral=integral), number(right, integral=integral))
            case In(operand, values):
                value = translate(operand)
                first, *further = (compare["="](value, translate(item)) for item in values)
                for comparison in further:
                    first |= comparison
                return first
            case IsNull(operand):
                return translate(operand).isNull()

    return translate(node)
