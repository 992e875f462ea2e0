"""Motifs beside joins written by hand: two and three hops on a random graph of a million edges, Polars and Spark."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from bench.harness import Bench, Session, Yardstick
from pag_graph.engines.motif import SparkGraph, SparkMotifQuery
from pag_graph.motif.polars_query import Graph, MotifQuery
from pag_graph.motif.query import ask
from pag_graph.motif.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

EDGES, QUICK_EDGES = 1_000_000, 50_000
SEED = 7
TARGET = "1.1 x by hand"

NARROW = {
    2: ["a.id", "e.weight", "b.id", "f.weight", "c.id"],
    3: ["a.id", "e.weight", "b.id", "f.weight", "c.id", "g.weight", "d.id"],
}
HOPS = {2: "(a)-[e]->(b); (b)-[f]->(c)", 3: "(a)-[e]->(b); (b)-[f]->(c); (c)-[g]->(d)"}
NAMES = {2: ("a", "e", "b", "f", "c"), 3: ("a", "e", "b", "f", "c", "g", "d")}


def tables(edges: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make a graph with about as many vertices as edges, as program activity graphs have."""
    random = np.random.default_rng(SEED)
    vertices = edges * 9 // 10
    kinds = np.array(["processing", "busy", "waiting", "data_message", "progress_message"])
    return (
        pl.DataFrame(
            {"id": np.arange(vertices), "t_ns": np.arange(vertices) * 100, "worker": random.integers(0, 8, vertices)}
        ),
        pl.DataFrame(
            {
                "src": random.integers(0, vertices, edges),
                "dst": random.integers(0, vertices, edges),
                "weight": random.integers(0, 1_000_000, edges),
                "type": kinds[random.integers(0, len(kinds), edges)],
                "channel": random.integers(0, 50, edges),
            }
        ),
    )


def shape_of(vertices: pl.DataFrame, edges: pl.DataFrame) -> Shape:
    """Return the columns of the graph, with what its maker knows."""
    kinds = {pl.Int64: pa.int64(), pl.String: pa.string()}
    vertex_schema, edge_schema = (
        pa.schema({name: kinds[kind] for name, kind in frame.schema.items()}) for frame in (vertices, edges)
    )
    return Shape(vertices=vertex_schema, edges=edge_schema, closed=True)


def by_hand_polars(vertices: pl.DataFrame, edges: pl.DataFrame, hops: int, *, wide: bool) -> pl.DataFrame:
    """Join the edges one after the other, carrying along what the answer needs."""
    names = NAMES[hops]
    edge_columns = edges.columns if wide else ["src", "dst", "weight"]
    frame: pl.LazyFrame | None = None
    for name, src, dst in zip(names[1::2], names[0:-1:2], names[2::2], strict=True):
        row_columns = {f"{name}.{column}": pl.col(column) for column in edge_columns if column not in {"src", "dst"}}
        hop = edges.lazy().select(pl.col("src").alias(f"{src}.id"), pl.col("dst").alias(f"{dst}.id"), **row_columns)
        frame = hop if frame is None else frame.join(hop, on=f"{src}.id")
    assert frame is not None
    if wide:
        for name in names[0::2]:
            row_columns = vertices.lazy().select(pl.all().name.prefix(f"{name}."))
            frame = frame.join(row_columns, on=f"{name}.id")
    structs = []
    for index, name in enumerate(names):
        if index % 2 == 0:
            fields = {column: pl.col(f"{name}.{column}") for column in (vertices.columns if wide else ["id"])}
        elif wide:
            ends = {"src": pl.col(f"{names[index - 1]}.id"), "dst": pl.col(f"{names[index + 1]}.id")}
            fields = ends | {
                column: pl.col(f"{name}.{column}") for column in edge_columns if column not in {"src", "dst"}
            }
        else:
            fields = {"weight": pl.col(f"{name}.weight")}
        structs.append(pl.struct(**fields).alias(name))
    return frame.select(structs).collect()


def by_hand_spark(vertices: Any, edges: Any, hops: int, *, wide: bool) -> Any:
    """Do the same with Spark's DataFrames; nothing runs yet."""
    from pyspark.sql import functions as f

    names = NAMES[hops]
    edge_columns = [c for c in (edges.columns if wide else ["weight"]) if c not in {"src", "dst"}]
    frame = None
    for name, src, dst in zip(names[1::2], names[0:-1:2], names[2::2], strict=True):
        row_columns = [f.col(column).alias(f"{name}_{column}") for column in edge_columns]
        hop = edges.select(f.col("src").alias(f"{src}_id"), f.col("dst").alias(f"{dst}_id"), *row_columns)
        frame = hop if frame is None else frame.join(hop, on=f"{src}_id")
    assert frame is not None
    if wide:
        for name in names[0::2]:
            row_columns = vertices.select(*(f.col(column).alias(f"{name}_{column}") for column in vertices.columns))
            frame = frame.join(row_columns, on=f"{name}_id")
    structs = []
    for index, name in enumerate(names):
        if index % 2 == 0:
            fields = [f.col(f"{name}_{column}").alias(column) for column in (vertices.columns if wide else ["id"])]
        else:
            ends = [
                f.col(f"{names[index - 1]}_id").alias("src"),
                f.col(f"{names[index + 1]}_id").alias("dst"),
            ]
            fields = (ends if wide else []) + [f.col(f"{name}_{column}").alias(column) for column in edge_columns]
        structs.append(f.struct(*fields).alias(name))
    return frame.select(*structs)


def computed(frame: Any) -> None:
    """Have Spark compute every column of every row, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def cases() -> Iterator[tuple[int, bool, str]]:
    """Yield the questions: hops, whether all columns are asked for, and a name."""
    for hops in HOPS:
        for wide in (False, True):
            yield hops, wide, f"{hops} hops, {'all columns' if wide else 'ids and weights'}"


def with_polars(session: Session, vertices: pl.DataFrame, edges: pl.DataFrame) -> None:
    """Measure the motifs in this process; both sides have to give the same rows."""
    shape = shape_of(vertices, edges)
    graph = Graph(vertices=vertices.lazy(), edges=edges.lazy(), shape=shape)
    for hops, wide, name in cases():

        def motif(hops: int = hops, *, wide: bool = wide) -> pl.DataFrame:
            question = ask(HOPS[hops], None, shape, columns=None if wide else NARROW[hops])
            return MotifQuery(question=question, graph=graph).frame()

        by_hand = partial(by_hand_polars, vertices, edges, hops, wide=wide)
        motif_rows, hand_rows = motif(), by_hand()
        ids = [pl.col(vertex).struct.field("id").alias(vertex) for vertex in NAMES[hops][0::2]]
        # Rows come in any order; the sum of their hashes does not depend on it.
        is_same = motif_rows.select(ids).hash_rows().sum() == hand_rows.select(ids).hash_rows().sum()
        assert is_same
        assert motif_rows.schema == hand_rows.schema
        stick = Yardstick(name="joins by hand", run=by_hand)
        session.measure(f"Polars, {name}", motif, against=stick, items=motif_rows.height, unit="matches", target=TARGET)


def with_spark(session: Session, vertices: pl.DataFrame, edges: pl.DataFrame) -> None:
    """Measure the motifs on Spark, on tables that it has in memory."""
    from pag_graph.engines.session import spark_session

    spark = spark_session(master="local[2]")
    shape = shape_of(vertices, edges)
    # Through files: Spark sends rows that it is handed to its tasks one object at a time, which takes minutes.
    folder = session.new_folder("graph")
    folder.mkdir(parents=True)
    for name, frame in (("vertices", vertices), ("edges", edges)):
        frame.write_parquet(folder / f"{name}.parquet")
    v, e = (
        spark.read.parquet(str(folder / f"{name}.parquet")).repartition(4).cache() for name in ("vertices", "edges")
    )
    computed(v)
    computed(e)
    graph = SparkGraph(vertices=v, edges=e, shape=shape)
    for hops, wide, name in cases():

        def motif(hops: int = hops, *, wide: bool = wide) -> Any:
            question = ask(HOPS[hops], None, shape, columns=None if wide else NARROW[hops])
            return SparkMotifQuery(question=question, graph=graph).frame()

        by_hand = partial(by_hand_spark, v, e, hops, wide=wide)
        match_count = motif().count()
        assert match_count == by_hand().count()
        stick = Yardstick(name="joins by hand", run=lambda by_hand=by_hand: computed(by_hand()))
        session.measure(
            f"Spark, {name}",
            lambda motif=motif: computed(motif()),
            against=stick,
            items=match_count,
            unit="matches",
            target=TARGET,
            most_seconds=120,
        )
    spark.stop()


def run(session: Session) -> None:
    """Make the measurements."""
    vertices, edges = tables(QUICK_EDGES if session.quick else EDGES)
    with_polars(session, vertices, edges)
    with_spark(session, vertices, edges)


BENCH = Bench(
    name="motif",
    title="Motifs",
    about=(
        "Chains of two and three edges in a random graph of 1,000,000 edges and 900,000 vertices are planned and"
        " run as motifs. They are compared with joins that were written by hand for just this question. Both give"
        " the same rows and the same structs: either the ids of the vertices and one column of each edge, or all"
        " columns of all elements, which takes a join with the vertices for each named vertex. Planning is part of"
        " the time; reading the tables is not."
    ),
    run=run,
    needs=lambda: "" if importlib.util.find_spec("pyspark") else "PySpark",
)
