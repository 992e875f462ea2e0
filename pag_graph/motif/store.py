"""A committed run as a graph to look for motifs in; only files that can hold rows of the epochs asked for are read."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.errors import InvalidParameterError
from pag_graph.graph.membership import epochs_between
from pag_graph.graph.window import whole_number
from pag_graph.motif.plan import Counts
from pag_graph.motif.polars_query import Graph, shares
from pag_graph.motif.shape import PAG_SHAPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.graph.run import Run
    from pag_graph.motif.plan import Scan

_SAMPLE = 64 * 1024
"""Rows that shares are estimated from where counting would be a job."""


def chosen_epochs(run: Run, epochs: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the epochs that are asked for, ascending; None for all.

    Parameters
    ----------
    run
        A committed run.
    epochs
        Their numbers.

    Returns
    -------
    tuple of int or None
        Each once.

    Raises
    ------
    InvalidParameterError
        If there is no such epoch, or it is no list of whole numbers.
    """
    if epochs is None:
        return None
    if isinstance(epochs, str) or not isinstance(epochs, Iterable):
        message = f"epochs is {epochs!r}, and must be a list of epochs."
        raise InvalidParameterError(message, "Such as epochs=[4], or epochs=range(3, 8).")
    epochs = [whole_number(epoch, "epochs") for epoch in epochs]
    epoch_ids = run.epochs["epoch"].to_list()
    missing = sorted(set(epochs).difference(epoch_ids))
    if missing or not epochs:
        missing_thing = f"epoch {missing[0]}" if missing else "empty choice of epochs"
        message = f"{run.info.path} has no {missing_thing}; it has epochs {epoch_ids[0]} to {epoch_ids[-1]}."
        raise InvalidParameterError(
            message, f"List them: `pag info {shlex.quote(str(run.info.path))}`.", {"epochs": missing}
        )
    return tuple(sorted(set(epochs)))


def edges_of(run: Run, epochs: Sequence[int] | None) -> pl.LazyFrame:
    """Return the edges that end in some epochs.

    Parameters
    ----------
    run
        A committed run.
    epochs
        Numbers of epochs; None for all.

    Returns
    -------
    LazyFrame
        Rows of `PAG_EDGES`. Files and row groups without such edges are skipped.
    """
    if epochs is None:
        return run.scan("edges")
    return run.scan("edges", epochs_between(min(epochs), max(epochs))).filter(in_epochs(epochs))


def in_epochs(epochs: Sequence[int]) -> pl.Expr:
    """Return the condition that a row carries one of some epochs.

    Parameters
    ----------
    epochs
        At least one.

    Returns
    -------
    Expr
        On the column ``epoch``.
    """
    between = pl.col("epoch").is_between(min(epochs), max(epochs))
    is_gapless = len(set(epochs)) == max(epochs) - min(epochs) + 1
    return between if is_gapless else between & pl.col("epoch").is_in(sorted(set(epochs)))


def epochs_around(run: Run, epochs: Sequence[int]) -> tuple[int, int]:
    """Bound the epochs of vertices at the ends of edges that end in some epochs.

    Parameters
    ----------
    run
        A committed run.
    epochs
        At least one.

    Returns
    -------
    low, high
        Bounds from the statistics of files: messages cross epochs. Reads no rows.
    """
    files = run.info.bounds("edges").filter(epochs_between(min(epochs), max(epochs)))
    epochs_seen = [*epochs, *files["min_src_epoch"].drop_nulls(), *files["max_src_epoch"].drop_nulls()]
    return min(epochs_seen), max(epochs_seen)


def ends_of(run: Run, edges: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return the vertices at which edges begin and end.

    Parameters
    ----------
    run
        A committed run.
    edges
        Edges of it, with both ends and their epochs.
    columns
        Columns of vertices.

    Returns
    -------
    DataFrame
        One row per vertex. Only files that can hold vertices of their epochs are read, however old the run is.
    """
    ids = pl.concat([edges["src"].alias("id"), edges["dst"].alias("id")]).unique().sort()
    epochs = pl.concat([edges["src_epoch"].alias("epoch"), edges["epoch"]]).unique().sort()
    if ids.is_empty():
        return run.scan("vertices").select(columns).head(0).collect()
    # A message that was sent long ago must not have all files since then read.
    stretches = epochs.to_frame().with_columns(gap=(pl.col("epoch").diff() > 1).fill_null(value=True).cum_sum())
    bounds = stretches.group_by("gap").agg(low=pl.col("epoch").min(), high=pl.col("epoch").max()).sort("low")
    near = pl.any_horizontal(epochs_between(low, high) for _, low, high in bounds.iter_rows())
    rows = run.scan("vertices", near).filter(pl.col("epoch").is_in(epochs.implode()), pl.col("id").is_in(ids.implode()))
    return rows.select(columns).collect()


def graph_of_run(run: Run, epochs: Sequence[int] | None = None) -> Graph:
    """Return a run's graph, or the part of it that some epochs make.

    Parameters
    ----------
    run
        A committed run.
    epochs
        Epochs that edges must end in; all where absent. Vertices are their events, and the far ends of edges.

    Returns
    -------
    Graph
        No row is read yet; the files that will be are found to be as they were committed.
    """
    chosen = chosen_epochs(run, epochs)
    edges = edges_of(run, chosen)
    if chosen is None:
        return Graph(vertices=run.scan("vertices"), edges=edges, shape=PAG_SHAPE)
    nearby = run.between("vertices", *epochs_around(run, chosen))
    ends = pl.concat([edges.select(id="src"), edges.select(id="dst")])
    ids_in_epochs = nearby.filter(in_epochs(chosen)).select("id")
    exact = nearby.join(pl.concat([ends, ids_in_epochs]).unique(), on="id", how="semi")
    return Graph(vertices=exact, edges=edges, shape=PAG_SHAPE, lookup=nearby)


def expected_counts(run: Run, epochs: Sequence[int] | None, scans: Sequence[Scan]) -> Counts:
    """Estimate what scans give from the epochs' own counts and the first rows; no job, and little is read.

    Parameters
    ----------
    run, epochs
        As for `graph_of_run`.
    scans
        Of a plan.

    Returns
    -------
    Counts
        Totals are exact for edges; shares are those of a sample.
    """
    chosen = chosen_epochs(run, epochs)
    chosen_rows = run.epochs if chosen is None else run.epochs.filter(pl.col("epoch").is_in(chosen))
    edges, vertices = int(chosen_rows["edges"].sum()), int(chosen_rows["vertices"].sum())
    graph = graph_of_run(run, chosen)
    nearby = graph.lookup if graph.lookup is not None else graph.vertices
    sample = Graph(vertices=nearby.head(_SAMPLE), edges=graph.edges.head(_SAMPLE), shape=graph.shape)
    shares_found = shares(sample, scans)
    totals = {scan.element: edges if scan.is_edge else vertices for scan in scans}
    return Counts(
        edges=edges,
        vertices=vertices,
        by_element={name: total * shares_found[name] for name, total in totals.items()},
    )
