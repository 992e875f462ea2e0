"""Paths of k hops back from the ends of waits: as a motif, for small k, with a limit that the answer states.

Hops and seeds are those of the analysis `k_hops`, which counts walks of any length and lists none. Here the walks of
exactly k hops are counted in the same way, so that the answer can say how many there are; the first of them are then
found as a motif.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl
import pyarrow as pa

from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import K_HOP_PATHS, PAG_EDGES
from pag_graph.motif.polars_query import Graph, MotifQuery
from pag_graph.motif.query import ask
from pag_graph.motif.shape import PAG_SHAPE, Shape

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.motif.query import Question

MOST_HOPS = 8
"""Longest paths: each hop is a join, and their number grows like a power."""
_WAITING, _DATA = str(ActivityType.WAITING), str(ActivityType.DATA_MESSAGE)
_KEY = ("src", "dst", "type")


@dataclass(frozen=True, slots=True, kw_only=True)
class KHopPaths:
    """Paths of exactly k hops, and how many there are."""

    k: int
    """Hops of each path."""
    limit: int
    """How many paths are listed at most."""
    total: int
    """Paths of k hops that end in a seed, listed or not."""
    paths: pa.Table
    """Rows of `K_HOP_PATHS`."""

    @property
    def shown(self) -> int:
        """How many paths are listed."""
        return int(self.paths.num_rows) // self.k

    @property
    def cut(self) -> int:
        """How many paths are not listed, because of the limit."""
        return self.total - self.shown

    def __str__(self) -> str:
        """Return what the answer holds, as a sentence."""
        left_out = f"; {self.cut:,} are cut off by the limit of {self.limit:,}" if self.cut else ""
        return f"{self.shown:,} of {self.total:,} paths of {self.k} hops{left_out}"


def check_hops(k: int, limit: int) -> None:
    """Check that paths of `k` hops can be listed.

    Parameters
    ----------
    k
        Number of hops.
    limit
        How many paths are listed at most.

    Raises
    ------
    InvalidParameterError
        If `k` or `limit` is out of its range.
    """
    if not 1 <= k <= MOST_HOPS:
        message = f"k is {k}; paths are listed for 1 to {MOST_HOPS} hops."
        raise InvalidParameterError(message, "k_hops() counts walks of any length without listing them.", {"k": k})
    if limit < 1:
        message = f"limit is {limit}, and must be at least 1."
        raise InvalidParameterError(message, None, {"limit": limit})


def k_hop_paths(snapshot: Snapshot, k: int = 2, *, limit: int = 1000, through_waits: bool = True) -> KHopPaths:
    """List paths of exactly k hops back from the ends of a window's waits.

    Parameters
    ----------
    snapshot
        Of any run.
    k
        Number of hops, in edges; at most `MOST_HOPS`.
    limit
        Most paths to list: those of the seeds that end first.
    through_waits
        Follow waits as well; without them hops are causes only.

    Returns
    -------
    KHopPaths
        The first paths, and the number of all.

    Raises
    ------
    InvalidParameterError
        If `k` or `limit` is out of its range.

    Notes
    -----
    Counting is O(k x edges). Listing reads the walks of as many seeds as the limit needs, and no others.
    """
    check_hops(k, limit)
    edges = pl.concat([snapshot.local, snapshot.messages]).lazy().select(*PAG_EDGES.names, "end_ns")
    if not snapshot.run.epochs_are_islands:
        # There times of different workers cannot be compared; the epoch is the whole window.
        edges = edges.filter(snapshot.window.holds(pl.col("end_ns")))
    vertices = pl.DataFrame(snapshot.vertices()).lazy()
    total, first = count_paths(
        nw.from_native(edges), nw.from_native(vertices), k=k, limit=limit, through_waits=through_waits
    )
    marked = edges.drop("end_ns").join(first.lazy(), on=_KEY, how="left")
    question = question_of(k, through_waits=through_waits)
    graph = Graph(vertices=vertices, edges=marked, shape=question.shape)
    return listed(MotifQuery(question=question, graph=graph).table(), k=k, limit=limit, total=total)


def count_paths(
    edges: nw.LazyFrame[Any],
    vertices: nw.LazyFrame[Any],
    *,
    k: int,
    limit: int,
    through_waits: bool,
    keep: Callable[[nw.LazyFrame[Any]], nw.LazyFrame[Any]] = lambda frame: frame,
) -> tuple[int, pl.DataFrame]:
    """Count the paths of k hops, and choose the seeds whose paths are listed first.

    Parameters
    ----------
    edges
        Rows of `PAG_EDGES` that end in the window, with ``end_ns``.
    vertices
        With columns ``id`` and ``segment``; the edges' ends are among them.
    k, limit, through_waits
        See `k_hop_paths`.
    keep
        What to do with the counts after every round; an engine whose plans grow with the rounds breaks them off here.

    Returns
    -------
    total : int
        Paths of exactly k hops.
    first : pl.DataFrame
        One row per chosen seed: ``src``, ``dst``, ``type``, and ``seed``, its rank in time from 0.
    """
    waits = edges.filter(nw.col("type") == _WAITING).select(nw.col("dst").alias("segment")).unique()
    segments = vertices.select(nw.col("id").alias("dst"), "segment")
    seeds = (
        edges.join(segments, on="dst", how="inner")
        .join(waits, on="segment", how="inner")
        .filter((nw.col("type") == _DATA) | ((nw.col("dst") == nw.col("segment")) & (nw.col("type") != _WAITING)))
        .select(*_KEY, "end_ns")
    )
    if k > 1:
        followed = (edges if through_waits else edges.filter(nw.col("type") != _WAITING)).select("src", "dst")
        counts = keep(followed.group_by("dst").agg(nw.len().cast(nw.Int64).alias("walks")))
        for _ in range(k - 2):
            before = counts.select(nw.col("dst").alias("src"), "walks")
            counts = keep(followed.join(before, on="src", how="inner").group_by("dst").agg(nw.col("walks").sum()))
        seeds = seeds.join(counts.select(nw.col("dst").alias("src"), "walks"), on="src", how="inner")
    else:
        seeds = seeds.with_columns(walks=nw.lit(1, nw.Int64))
    seeds = keep(seeds)
    summed = seeds.select(nw.col("walks").sum()).collect("pyarrow").to_native()["walks"][0].as_py()
    # Every seed has a path at least, so no more seeds than paths are needed.
    ordered = seeds.sort("end_ns", *_KEY).head(limit).collect("pyarrow").to_native()
    first = pl.DataFrame(pl.from_arrow(ordered)).with_row_index("seed")
    first = first.filter(pl.col("walks").cum_sum() - pl.col("walks") < limit)
    return int(summed or 0), first.select(*_KEY, pl.col("seed").cast(pl.Int64))


def question_of(k: int, *, through_waits: bool) -> Question:
    """Return the motif of paths of k hops.

    Parameters
    ----------
    k
        Number of hops.
    through_waits
        Whether hops may be waits.

    Returns
    -------
    Question
        Edge ``e1`` is the last one of a path. Edges have a column ``seed``, null for all but the seeds.
    """
    shape = Shape(
        vertices=PAG_SHAPE.vertices,
        edges=PAG_EDGES.append(pa.field("seed", pa.int64())),
        closed=True,
        edge_key=PAG_SHAPE.edge_key,
    )
    hops = range(1, k + 1)
    pattern = "; ".join(f"(v{hop})-[e{hop}]->(v{hop - 1})" for hop in hops)
    conditions = ["e1.seed is not null", *([] if through_waits else [f"e{hop}.type != '{_WAITING}'" for hop in hops])]
    shown = [name for name in K_HOP_PATHS.names if name in PAG_EDGES.names]
    columns = ["e1.seed", *(f"e{hop}.{name}" for hop in hops for name in shown)]
    return ask(pattern, conditions, shape, columns=columns)


def listed(matches: pa.Table, *, k: int, limit: int, total: int) -> KHopPaths:
    """Bring found matches in order, cut them at the limit, and write a row per hop.

    Parameters
    ----------
    matches
        Answer to `question_of`.
    k, limit, total
        Of the answer.

    Returns
    -------
    KHopPaths
        Rows in the order of the seeds, and then of the edges' ends.
    """
    rows = pl.DataFrame(pl.from_arrow(matches))
    hops = [f"e{hop}" for hop in range(1, k + 1)]
    order = [pl.col("e1").struct.field("seed").alias("seed")]
    order += [pl.col(hop).struct.field(name).alias(f"{hop} {name}") for hop in hops for name in _KEY]
    keys = rows.select(order).with_row_index("row").sort([key.meta.output_name() for key in order])
    chosen = rows[keys["row"].head(limit)].with_row_index("path")
    shown = [name for name in K_HOP_PATHS.names if name in PAG_EDGES.names]
    parts = [
        chosen.select("path", hop=pl.lit(number, pl.Int64), part=pl.struct(pl.col(hop).struct.field(shown)))
        for number, hop in enumerate(hops, 1)
    ]
    flat = pl.concat(parts).unnest("part").sort("path", "hop")
    flat = flat.with_columns(
        pl.col("path").cast(pl.Int64),
        worker=pl.col("src") // (1 << POSITION_BITS),
        to_worker=pl.col("dst") // (1 << POSITION_BITS),
    )
    table = flat.select(K_HOP_PATHS.names).to_arrow().cast(K_HOP_PATHS)
    return KHopPaths(k=k, limit=limit, total=total, paths=table)
