"""Graphs of any frames, as GraphFrames takes them: edges may dangle, and be the same in everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pag_graph.engines.motif import SparkGraph
from pag_graph.motif.polars_query import Graph
from pag_graph.motif.shape import Shape

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame


def graph_of(vertices: pl.DataFrame, edges: pl.DataFrame) -> Graph:
    """Return a graph for Polars; vertices have an `id`, edges a `src` and a `dst`."""
    shape = Shape(vertices=_plain(vertices), edges=_plain(edges))
    return Graph(vertices=vertices.lazy(), edges=edges.lazy(), shape=shape)


def spark_graph_of(vertices: DataFrame, edges: DataFrame) -> SparkGraph:
    """Return a graph for Spark."""
    from pyspark.sql.pandas.types import to_arrow_schema

    shape = Shape(vertices=to_arrow_schema(vertices.schema), edges=to_arrow_schema(edges.schema))
    return SparkGraph(vertices=vertices, edges=edges, shape=shape)


def _plain(frame: pl.DataFrame) -> pa.Schema:
    """Return columns in the types that all engines share."""
    text = (pa.large_string(), pa.string_view())
    columns = frame.clear().to_arrow().schema
    return pa.schema([pa.field(field.name, pa.string() if field.type in text else field.type) for field in columns])
