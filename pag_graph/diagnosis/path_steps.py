"""A log's store and the steps of its critical path, as the diagnoses of all systems need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.builder.build import build
from pag_graph.engines.local import LocalEngine
from pag_graph.graph.run import Run
from pag_graph.model.enums import EdgeFlags, RuleSet
from pag_graph.sources.spark.keep import STORE, TRACE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["built", "marked_steps", "shares"]


_SLICE_EVENTS = 1 << 16
"""Rows of a slice: a few of them are in memory, and beside the log they shall not count."""


def built(write: Callable[[Path], None], place: Path, progress: Callable[[str, int, int], None]) -> Run:
    """Write trace and store of a log, whose activities are stated, and open the store.

    Parameters
    ----------
    write
        Writes the trace to a folder.
    place
        Folder for both.
    progress
        Called with (label, done, all).
    """
    write(place / TRACE)
    build(
        place / TRACE,
        place / STORE,
        engine=LocalEngine(),
        rules=RuleSet.STATED,
        mode="replace",
        slice_events=_SLICE_EVENTS,
        progress=progress,
    )
    return Run(place / STORE)


def marked_steps(run: Run, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of a path with what their edges are marked with.

    Parameters
    ----------
    run
        The run, whose edges have the marks; only those of the path are read.
    steps
        Its critical path: rows of `CRITICAL_PATH`, of which `edge_src` and `edge_dst` are needed.

    Returns
    -------
    DataFrame
        The same rows, in order, with `flags` of their edges (`EdgeFlags`; null where there is no such edge) and whether
        these are `inferred`.
    """
    keys = steps.select(src="edge_src", dst="edge_dst")
    # There are many edges; only those of the path are read.
    edges = (
        run.scan("edges")
        .select("src", "dst", "flags")
        .join(keys.lazy(), on=["src", "dst"], how="semi", maintain_order="left")
    )
    known = edges.collect().unique(["src", "dst"], keep="first")
    flags = keys.join(known, on=["src", "dst"], how="left", maintain_order="left")["flags"]
    return steps.with_columns(flags=flags, inferred=(flags.fill_null(0) & int(EdgeFlags.INFERRED)) != 0)


def shares(steps: pl.DataFrame, column: str, span: int) -> list[dict[str, Any]]:
    """Return the time of steps by the values of a column.

    Parameters
    ----------
    steps
        Steps of a path, with `duration_ns`.
    column
        What to add up by.
    span
        What shares are of, in nanoseconds.

    Returns
    -------
    list of dict
        One per value that took any time, longest first: `key`, `path_ns`, and `share` of the span.
    """
    rows = (
        steps.group_by(column)
        .agg(pl.col("duration_ns").sum().alias("path_ns"))
        .filter(pl.col("path_ns") > 0)
        .sort("path_ns", column, descending=[True, False])
    )
    return [{"key": key, "path_ns": ns, "share": ns / span} for key, ns in rows.iter_rows()]
