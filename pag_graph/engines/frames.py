"""A window's edges as Spark DataFrames, for analyses of windows that are too large for one task."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import polars as pl
import pyarrow as pa

from pag_graph.analyses.view import Engine, View
from pag_graph.errors import AnalysisError, EngineError
from pag_graph.formats.spark import struct_type
from pag_graph.model.tables import STORE_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from pag_graph.analyses.view import Frame
    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

_PATTERN = re.compile(r"[][{}*?\\]")
_FEW = 1_000_000
"""Rows from here that every executor gets a copy of, so that the edges stay where they are when they are joined."""


def spark_view(run: Run, spark: SparkSession, window: Window) -> View:
    """Return a view of a window that Spark spreads, nothing read yet.

    Parameters
    ----------
    run
        A committed run.
    spark
        The session whose executors read it.
    window
        From `Run.window`.

    Returns
    -------
    View
        For analyses of which `Analysis.across` holds.
    """
    return View(run=run, windows=[window], spread=on_spark(run, spark))


def on_spark(run: Run, spark: SparkSession) -> Engine:
    """Return the engine that runs frames on the executors of a Spark session.

    Parameters
    ----------
    run
        A committed run.
    spark
        The session.

    Returns
    -------
    Engine
        What it collects is in this process; errors of Spark become `EngineError`, overflow of sums `AnalysisError`.
    """
    return _engine(spark, lambda near: read_table(run, spark, "edges", near))


def read_table(run: Run, spark: SparkSession, table: str, near: pl.Expr | None = None) -> DataFrame:
    """Return a table of a run as a DataFrame, or those of its files that can hold certain rows.

    Parameters
    ----------
    run, spark
        The run, and the session to read it with.
    table, near
        As for `StoreInfo.files`.

    Returns
    -------
    DataFrame
        The files are checked here, by the driver; executors read them as they are.
    """
    schema, files = struct_type(STORE_TABLES[table]), run.info.files(table, near)
    return parquet(spark.read.schema(schema), files) if files else spark.createDataFrame([], schema)


def parquet(reader: DataFrameReader, files: Sequence[str]) -> DataFrame:
    """Read Parquet files by their plain paths, which Spark otherwise takes for patterns.

    Parameters
    ----------
    reader
        Of a session, with the schema set where it is known.
    files
        Absolute paths; ``[``, ``{``, ``?`` and ``*`` in them mean themselves.

    Returns
    -------
    DataFrame
        Nothing is read yet.
    """
    # Spark's option not to look for patterns gives every row as often as there are files.
    return reader.parquet(*(_PATTERN.sub(r"\\\g<0>", file) for file in files))


def _engine(spark: SparkSession, edges: Callable[[pl.Expr], DataFrame]) -> Engine:

    def collect(frame: Frame) -> pl.DataFrame:
        return pl.DataFrame(pl.from_arrow(_run(lambda: frame.to_native().toArrow())))

    def settle(frame: Frame) -> Frame:
        # Without this every hop would run all hops before it again, and its plan would double in length.
        settled: Frame = nw.from_native(_run(lambda: frame.to_native().localCheckpoint()))
        return settled

    def load(rows: pl.DataFrame) -> Frame:
        from pyspark.sql.functions import broadcast

        table = rows.to_arrow()
        # Spark knows no string views.
        fields = [
            pa.field(field.name, pa.string() if not pa.types.is_primitive(field.type) else field.type)
            for field in table.schema
        ]
        loaded = spark.createDataFrame(table.cast(pa.schema(fields)))
        return nw.from_native(broadcast(loaded) if rows.height <= _FEW else loaded)

    return Engine(edges=lambda near: nw.from_native(edges(near)), collect=collect, settle=settle, load=load)


def _run(action: Callable[[], Any]) -> Any:
    """Run something on Spark; its errors become ours."""
    from pyspark.errors import ArithmeticException, PySparkException

    try:
        return action()
    except ArithmeticException as error:
        message = "A sum over the edges of the window is larger than 64 bits can count."
        raise AnalysisError(message, "Ask for a shorter window, or for fewer hops.") from error
    except PySparkException as error:
        message = f"Spark failed: {str(error).splitlines()[0]}"
        raise EngineError(message, "The executors' logs have the details.") from error
