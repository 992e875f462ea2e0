"""The graph as GraphFrames sees it: DataFrames with ``id``, ``src`` and ``dst``, and a `GraphFrame` over them."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import polars as pl
import pyarrow as pa

from pag_graph.analyses.critical_path import critical_path
from pag_graph.engines.frames import read_table
from pag_graph.engines.motif import SparkGraph, to_spark
from pag_graph.engines.session import GRAPHFRAMES_COORDINATE, GRAPHFRAMES_JAR_VARIABLE, graphframes_jar
from pag_graph.errors import InvalidParameterError, MissingExtraError, UnsupportedPlanError
from pag_graph.graph.membership import epochs_between
from pag_graph.model.enums import LOCAL_TYPES, ActivityType
from pag_graph.model.tables import STORE_TABLES
from pag_graph.motif.plan import chosen_fields
from pag_graph.motif.planner import in_evaluation_order
from pag_graph.motif.shape import PAG_SHAPE
from pag_graph.motif.store import chosen_epochs, epochs_around, expected_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window
    from pag_graph.motif.conditions import Column
    from pag_graph.motif.query import Question

Detail = Literal["full", "waits", "critical"]
"""How much of the graph: every event, segments and what released them, or the critical path and what touches it."""


def _read(run: Run, spark: SparkSession, table: str, epochs: tuple[int, int] | None = None) -> DataFrame:
    """Read a table; of files, those that can hold rows of the epochs from the first to the second."""
    return read_table(run, spark, table, epochs and epochs_between(*epochs))


def _ends(edges: DataFrame) -> DataFrame:
    return edges.select(edges.src.alias("id")).union(edges.select(edges.dst.alias("id")))


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
    chosen = chosen_epochs(run, epochs)
    if chosen is None:
        return _read(run, spark, "vertices")
    nearby = _vertices_around(run, spark, chosen)
    ids_in_epochs = nearby.filter(nearby.epoch.isin(list(chosen))).select("id")
    touched = _ends(edges(run, spark, chosen)).union(ids_in_epochs).distinct()
    return nearby.join(touched, on="id", how="left_semi")


def _vertices_around(run: Run, spark: SparkSession, epochs: Sequence[int]) -> DataFrame:
    """Return vertices among which all ends of the epochs' edges are."""
    low, high = epochs_around(run, epochs)
    frame = _read(run, spark, "vertices", (low, high))
    return frame.filter(frame.epoch.between(low, high))


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
    chosen = chosen_epochs(run, epochs)
    if chosen is None:
        return _read(run, spark, "edges")
    frame = _read(run, spark, "edges", (chosen[0], chosen[-1]))
    return frame.filter(frame.epoch.isin(list(chosen)))


def edges_in_window(run: Run, spark: SparkSession, window: Window) -> DataFrame:
    """Return the edges that end in a window, rows of `PAG_EDGES`.

    Parameters
    ----------
    run, spark
        The run, and the session to read it with.
    window
        From `Run.window`. Of runs of the rule set ``st2``, whose clocks are not aligned, the epoch is the window.

    Returns
    -------
    DataFrame
        One row per edge.
    """
    if run.epochs_are_islands:
        return edges(run, spark, [window.epoch or 0])
    last = int(run.epochs["epoch"].to_list()[-1])
    frame = _read(run, spark, "edges", (window.lowest_epoch, last))
    return frame.filter(window.holds(frame.start_ns + frame.duration_ns))


def motif_graph(run: Run, spark: SparkSession, epochs: Sequence[int] | None = None) -> SparkGraph:
    """Return the graph to look for motifs in with Spark (see `pag_graph.engines.motif`).

    Parameters
    ----------
    run, spark, epochs
        See `vertices` and `edges`.

    Returns
    -------
    SparkGraph
        Sizes are estimated from the store's own counts, without a Spark job.
    """
    chosen = chosen_epochs(run, epochs)
    return SparkGraph(
        vertices=vertices(run, spark, chosen),
        edges=edges(run, spark, chosen),
        shape=PAG_SHAPE,
        lookup=None if chosen is None else _vertices_around(run, spark, chosen),
        count=partial(expected_counts, run, chosen),
    )


def graphframe(run: Run, spark: SparkSession, epochs: Sequence[int] | None = None, detail: Detail = "full") -> Any:
    """Return the graph as a `graphframes.GraphFrame`.

    Parameters
    ----------
    run, spark, epochs
        See `vertices` and `edges`.
    detail
        ``full``: every event, edges as `PAG_EDGES`. ``critical``: the critical paths of the epochs' rounds and the
        edges that touch them, with a column ``critical``. ``waits``: see `waits`.

    Returns
    -------
    graphframes.GraphFrame
        Over both frames.

    Raises
    ------
    InvalidParameterError
        If there is no such detail or epoch.
    MissingExtraError
        If the Python package or the jar is absent.
    UnsupportedPlanError
        If critical paths are asked for and the run's rules have none.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    if detail not in get_args(Detail):
        message = f"There is no detail {detail!r}; there are {', '.join(get_args(Detail))}."
        raise InvalidParameterError(message)
    chosen_epochs(run, epochs)
    if importlib.util.find_spec("graphframes") is None:
        raise MissingExtraError.from_extra(what="A GraphFrame", extra="graphframes")
    jar = graphframes_jar(spark)
    if not jar.present:
        message = f"GraphFrames' jar ({GRAPHFRAMES_COORDINATE}) is not on Spark's class path: {jar.how}."
        hint = (
            f"Start Spark with --packages {GRAPHFRAMES_COORDINATE}, or name a local copy in {GRAPHFRAMES_JAR_VARIABLE}"
            " before the session starts. Without the jar, spark_vertices() and spark_edges() give the same DataFrames,"
            " and motif() finds motifs."
        )
        raise MissingExtraError(message, hint, {"coordinate": GRAPHFRAMES_COORDINATE})
    from graphframes import GraphFrame

    if detail == "waits":
        return GraphFrame(*waits(run, spark, epochs))
    if detail == "critical":
        return GraphFrame(*critical(run, spark, epochs))
    return GraphFrame(vertices(run, spark, epochs), edges(run, spark, epochs))


def waits(run: Run, spark: SparkSession, epochs: Sequence[int] | None = None) -> tuple[DataFrame, DataFrame]:
    """Return who waited for whom: the graph of the segments, stretches of a worker's time between two waits.

    Parameters
    ----------
    run, spark
        The run, and the session to read it with.
    epochs
        Epochs that a wait must end in; all where absent.

    Returns
    -------
    vertices, edges : DataFrame
        One row per segment (``id`` is its first vertex; ``worker``, ``epoch``, ``start_ns``, ``end_ns``, ``events``);
        and two rows per wait, both into the segment that begins with its end: ``then`` from the worker's segment
        before, and ``released`` from the segment that sent the message which ended it. Columns: ``src``, ``dst``,
        ``type``, ``message`` (its type), ``epoch``, ``start_ns``, ``duration_ns`` (of the wait, or of the message),
        ``waited_ns``, ``channel``, ``records``.
    """
    from pyspark.sql import functions as f

    local = [str(kind) for kind in LOCAL_TYPES]
    edges_read = edges(run, spark, epochs)
    ends = edges_read.filter(f.col("type") == str(ActivityType.WAITING))
    columns = ("src", "dst", "epoch", "start_ns", "duration_ns")
    null = f.lit(None)
    then_links = ends.select(
        *columns,
        f.lit("then").alias("type"),
        null.cast("string").alias("message"),
        f.col("duration_ns").alias("waited_ns"),
        null.cast("bigint").alias("channel"),
        null.cast("bigint").alias("records"),
    )
    waited = ends.select("dst", f.col("duration_ns").alias("waited_ns"))
    released_links = (
        edges_read.filter(~f.col("type").isin(local))
        .join(waited, on="dst")
        .select(
            *columns,
            f.lit("released").alias("type"),
            f.col("type").alias("message"),
            *("waited_ns", "channel", "records"),
        )
    )
    all_links = then_links.unionByName(released_links)
    everything = (
        _read(run, spark, "vertices")
        if epochs is None
        else _vertices_around(run, spark, chosen_epochs(run, epochs) or ())
    )
    source = everything.select(f.col("id").alias("src"), f.col("segment").alias("source"))
    # The vertex that ends a wait begins a segment and gives it its id.
    links = all_links.join(source, on="src").drop("src").withColumnRenamed("source", "src")
    links = links.select("src", "dst", *(name for name in links.columns if name not in {"src", "dst"}))
    segments = (
        _read(run, spark, "vertices")
        .groupBy(f.col("segment").alias("id"))
        .agg(
            f.first("worker").alias("worker"),
            f.min_by("epoch", "pos").alias("epoch"),
            f.min("t_ns").alias("start_ns"),
            f.max("t_ns").alias("end_ns"),
            f.count("*").alias("events"),
        )
    )
    if epochs is not None:
        segments = segments.join(_ends(links).distinct(), on="id", how="left_semi")
    return segments, links


def critical(run: Run, spark: SparkSession, epochs: Sequence[int] | None = None) -> tuple[DataFrame, DataFrame]:
    """Return the critical paths of the epochs' windows, and what touches them.

    Parameters
    ----------
    run, spark
        The run, and the session to read it with.
    epochs
        Epochs whose rounds to take; all windows where absent.

    Returns
    -------
    vertices, edges : DataFrame
        Rows of `PAG_VERTICES` and `PAG_EDGES`; edges have a column ``critical`` more, and each is on a path or touches
        a vertex of one.

    Raises
    ------
    UnsupportedPlanError
        If the run's rules have no critical path.
    """
    from pyspark.sql import functions as f

    if not run.aligned:
        message = f"Runs of the rule set {run.rules} have no critical path, so there is nothing to take its edges from."
        raise UnsupportedPlanError(message, "Build the trace with `--rules timely`, or ask for another detail.")
    chosen = chosen_epochs(run, epochs) or tuple(run.epochs["epoch"].to_list())
    steps = [
        pl.DataFrame(critical_path(run.snapshot(run.window(epoch=epoch))).steps).select(
            pl.col("edge_src").alias("src"), pl.col("edge_dst").alias("dst"), "type"
        )
        for epoch in chosen
    ]
    path = pl.concat(steps).unique().sort("src", "dst")
    on_path = spark.createDataFrame(
        path.to_arrow().cast(pa.schema([("src", pa.int64()), ("dst", pa.int64()), ("type", pa.string())]))
    )
    ids = f.broadcast(_ends(on_path).distinct())
    # The path of a round may use edges that end in an epoch before or after it.
    everything = _read(run, spark, "edges")
    touching = everything.join(ids.withColumnRenamed("id", "src"), on="src", how="left_semi").unionByName(
        everything.join(ids.withColumnRenamed("id", "dst"), on="dst", how="left_semi")
    )
    marked = f.broadcast(on_path.withColumn("critical", f.lit(True)))  # noqa: FBT003  (Spark's own signature)
    links = touching.distinct().join(marked, on=["src", "dst", "type"], how="left").fillna({"critical": False})
    links = links.select(*STORE_TABLES["edges"].names, "critical")
    return _read(run, spark, "vertices").join(_ends(links).distinct(), on="id", how="left_semi"), links


def find(graph: Any, question: Question) -> DataFrame:
    """Let GraphFrames itself find a motif, with a filter of ours.

    Parameters
    ----------
    graph
        A `graphframes.GraphFrame`.
    question
        From `pag_graph.motif.query.ask`.

    Returns
    -------
    DataFrame
        The same rows and columns as those that `pag_graph.engines.motif` gives.
    """
    from pyspark.sql import functions as f

    shape = question.shape
    edge_names = question.motif.edges

    def is_whole(column: Column) -> bool:
        schema = shape.edges if column.element in edge_names else shape.vertices
        return bool(pa.types.is_integer(schema.field(column.name).type))

    matches: DataFrame = graph.find(str(in_evaluation_order(question.motif)))
    if question.condition is not None:
        matches = matches.filter(
            to_spark(question.condition, lambda column: f.col(column.element).getField(column.name), is_whole)
        )
    chosen = chosen_fields(question.motif, shape, question.columns)
    return matches.select(
        *(
            f.struct(*(f.col(name).getField(field).alias(field) for field in fields)).alias(name)
            for name, fields in chosen.items()
        )
    )
