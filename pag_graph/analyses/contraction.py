"""A window's graph drawn together: waits, what ended them, and one edge for all that lies between on a worker.

Paths back in time only leave a worker where a wait ended. So they can be walked on this small graph, which fits into
one process where the window does not, and what lies on them is looked up afterwards, across partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.view import IS_LOCAL, WAITING, end_ns, worker_of
from pag_graph.errors import PagError
from pag_graph.graph.snapshot import Snapshot
from pag_graph.model.enums import ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_EDGES

if TYPE_CHECKING:
    from pag_graph.analyses.view import View

SPAWN = str(ActivityType.SPAWN)
_DRAWN_TOGETHER = -1
"""Operator of an edge that stands for several."""
IS_STRETCH = pl.col("operator").eq_missing(_DRAWN_TOGETHER)
_SCHEMA = pl.DataFrame(pl.from_arrow(PAG_EDGES.empty_table())).schema


def contract(view: View) -> Snapshot:
    """Draw the graph of a window together.

    Parameters
    ----------
    view
        Of a run with aligned clocks.

    Returns
    -------
    Snapshot
        The window's waits, the messages that ended them, births, and what crosses the window's end, as they are; and
        edges for which `IS_STRETCH` holds, each for all edges of a worker between two vertices of these. Rows: some for
        each wait.
    """
    window, edges, names = view.window, view.edges, PAG_EDGES.names
    local, messages = edges.filter(IS_LOCAL), edges.filter(~IS_LOCAL)
    starts = local.with_columns(worker=worker_of("src")).group_by("worker").agg(nw.col("src", "start_ns").min())
    first_starts = view.collect(starts)
    crosses = (nw.col("start_ns") < window.end_ns) & (end_ns() >= window.end_ns)
    is_kept = (nw.col("type") == WAITING) | crosses
    if window.end_vertex is not None:
        is_kept |= nw.col("dst") == window.end_vertex
    local_kept = view.collect(local.filter(is_kept).select(names)).cast(_SCHEMA)
    births = messages.filter(nw.col("type") == SPAWN).select(names)
    messages_kept = view.collect(nw.concat([view.enders.select(names), births])).cast(_SCHEMA)
    end = pl.col("start_ns") + pl.col("duration_ns")
    at_end = local_kept.filter(pl.col("start_ns") < window.end_ns, end >= window.end_ns)
    if window.end_vertex is None and (at_end["type"] == WAITING).all():
        # Everybody waits: the path begins with a message under way.
        messages_kept = pl.concat([messages_kept, view.collect(messages.filter(crosses).select(names)).cast(_SCHEMA)])
    messages_kept = messages_kept.unique()
    vertices = (
        pl.concat(
            [
                first_starts.select("src", t="start_ns"),
                local_kept.select("src", t="start_ns"),
                local_kept.select(src="dst", t=end),
                messages_kept.select("src", t="start_ns").filter(pl.col("t") <= window.end_ns),
                messages_kept.select(src="dst", t=end).filter(pl.col("t") <= window.end_ns),
            ]
        )
        .unique("src")
        .with_columns(worker=(pl.col("src") // (1 << POSITION_BITS)).cast(pl.Int32))
        .join(first_starts.select("worker", first="src"), on="worker")
        .filter(pl.col("src") >= pl.col("first"))
        .sort("src")
    )
    stretches = (
        vertices.with_columns(dst=pl.col("src").shift(-1).over("worker"), until=pl.col("t").shift(-1).over("worker"))
        .drop_nulls("dst")
        .join(local_kept.select("src", "dst"), on=["src", "dst"], how="anti")
        .select(
            "src",
            "dst",
            start_ns="t",
            duration_ns=pl.col("until") - pl.col("t"),
            type=pl.lit(str(ActivityType.BUSY)),
            operator=pl.lit(_DRAWN_TOGETHER),
        )
    )
    absent = {name: kind for name, kind in _SCHEMA.items() if name not in stretches.columns}
    not_null = {field.name for field in PAG_EDGES if not field.nullable}
    stretches = stretches.with_columns(
        pl.lit(0 if name in not_null else None).cast(kind).alias(name) for name, kind in absent.items()
    )
    return Snapshot(
        run=view.run,
        window=window,
        edges=pl.concat([local_kept, messages_kept, stretches.select(names).cast(_SCHEMA)]),
    )


def expanded(view: View, path: pl.DataFrame) -> pl.DataFrame:
    """Put the edges that stretches stand for in their places on a path.

    Parameters
    ----------
    view
        The window.
    path
        Edges of `contract`, in the order of the path: columns of `PAG_EDGES`.

    Returns
    -------
    DataFrame
        The same columns; no edge before the window's start.

    Raises
    ------
    PagError
        If the edges of a stretch do not fill it; names the vertex at its end.
    """
    numbered = path.with_columns(place=pl.int_range(pl.len()))
    stretches = numbered.filter(IS_STRETCH)
    start = view.window.start_ns
    edges = view.within(stretches.select("src", "dst", "place")).filter(end_ns() > start)
    edges_on_stretches = view.collect(edges.select(*path.columns, "place")).cast(numbered.schema)
    end = pl.col("start_ns") + pl.col("duration_ns")
    took = end - pl.max_horizontal("start_ns", pl.lit(start))
    filled = edges_on_stretches.group_by("place").agg(filled=took.sum())
    gaps = (
        stretches.with_columns(took=took)
        .join(filled, on="place", how="left", maintain_order="left")
        .filter(pl.col("took") != pl.col("filled").fill_null(0))
    )
    if gaps.height:
        vertex = int(gaps["dst"][0])
        message = f"The edges that lead to the vertex {vertex} in {view.window.name} leave a gap."
        raise PagError(message, "Build the store again, and look at its findings.", {"vertex": vertex})
    return pl.concat([numbered.filter(~IS_STRETCH), edges_on_stretches]).sort("place", "dst").drop("place")
