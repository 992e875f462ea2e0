"""The graph as GraphFrames sees it: DataFrames with ``id``, ``src`` and ``dst``, and a `GraphFrame` over them."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from pag_graph.engines.session import GRAPHFRAMES_COORDINATE, GRAPHFRAMES_JAR_VARIABLE, graphframes_jar
from pag_graph.errors import MissingExtraError
from pag_graph.formats.spark import struct_type
from pag_graph.model.tables import STORE_TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pag_graph.pag.snapshot import Run


def _read(run: Run, spark: SparkSession, table: str) -> DataFrame:
    files = run.info.files(table)
    schema = struct_type(STORE_TABLES[table])
    return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)


def vertices(run: Run, spark: SparkSession, epochs: Sequence[int] | None = None) -> DataFrame:
    """Return the run's vertices, rows of `PAG_VERTICES`.

    Parameters
    ----------
    run, spark
        The run, and the session to read it with.
    epochs
        Epochs whose events to take, with the far ends of messages that cross into them; all where absent.

    Returns
    -------
    DataFrame
        One row per vertex; key ``id``.
    """
    frame = _read(run, spark, "vertices")
    if epochs is None:
        return frame
    inside = frame.filter(frame.epoch.isin(list(epochs)))
    chosen = edges(run, spark, epochs)
    ends = chosen.select(chosen.src.alias("id")).union(chosen.select(chosen.dst.alias("id")))
    touched = ends.union(inside.select("id")).distinct()
    return frame.join(touched, on="id", how="left_semi")


def edges(run: Run, spark: SparkSession, epochs: Sequence[int] | None = None) -> DataFrame:
    """Return the run's edges, rows of `PAG_EDGES`.

    Parameters
    ----------
    run, spark
        The run, and the session to read it with.
    epochs
        Epochs that an edge must end in; all where absent.

    Returns
    -------
    DataFrame
        One row per edge.
    """
    frame = _read(run, spark, "edges")
    return frame if epochs is None else frame.filter(frame.epoch.isin(list(epochs)))


def graphframe(run: Run, spark: SparkSession, epochs: Sequence[int] | None = None) -> Any:
    """Return the graph as a `graphframes.GraphFrame`.

    Parameters
    ----------
    run, spark, epochs
        See `vertices` and `edges`.

    Returns
    -------
    graphframes.GraphFrame
        Over both frames.

    Raises
    ------
    MissingExtraError
        If the Python package or the jar is absent.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    if importlib.util.find_spec("graphframes") is None:
        raise MissingExtraError.from_extra(what="A GraphFrame", extra="graphframes")
    if not graphframes_jar(spark).present:
        message = f"GraphFrames' jar ({GRAPHFRAMES_COORDINATE}) is not on Spark's class path."
        hint = (
            f"Start Spark with --packages {GRAPHFRAMES_COORDINATE}, or name a local copy in {GRAPHFRAMES_JAR_VARIABLE}"
            " before the session starts. Without the jar, spark_vertices() and spark_edges() give the same DataFrames."
        )
        raise MissingExtraError(message, hint, {"coordinate": GRAPHFRAMES_COORDINATE})
    from graphframes import GraphFrame

    return GraphFrame(vertices(run, spark, epochs), edges(run, spark, epochs))
