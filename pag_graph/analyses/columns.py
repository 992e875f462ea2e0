"""Expressions and frames that several analyses share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from pag_graph.model.enums import LOCAL_TYPES, MESSAGE_TYPES, ActivityType, EpochRole, RuleSet
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.units import printable

if TYPE_CHECKING:
    from pag_graph.pag.snapshot import Run, Snapshot, Window

LOCAL = [str(kind) for kind in LOCAL_TYPES]
MESSAGES = [str(kind) for kind in MESSAGE_TYPES]
WAITING, UNKNOWN = str(ActivityType.WAITING), str(ActivityType.UNKNOWN)
SPAWN = str(ActivityType.SPAWN)
IS_MESSAGE = pl.col("type").is_in(MESSAGES)
END = pl.col("start_ns") + pl.col("duration_ns")


def worker_of(vertex: str) -> pl.Expr:
    """Return the worker of the vertex in a column."""
    return (pl.col(vertex) // (1 << POSITION_BITS)).cast(pl.Int32)


def inside_ns(window: Window) -> pl.Expr:
    """Return how long an edge lasts inside a window; needs ``end_ns``."""
    end = pl.min_horizontal("end_ns", pl.lit(window.end_ns))
    return end - pl.max_horizontal("start_ns", pl.lit(window.start_ns))


def local_inside(snapshot: Snapshot) -> pl.DataFrame:
    """Return the local edges of a window with ``worker`` and ``inside_ns``, cut at its borders.

    Under the rule set `st2` the epoch is the whole window, and nothing is cut.
    """
    inside = pl.col("duration_ns") if snapshot.run.rules is RuleSet.ST2 else inside_ns(snapshot.window)
    return snapshot.local.with_columns(worker=worker_of("dst"), inside_ns=inside)


def ends_inside(snapshot: Snapshot) -> pl.Expr:
    """Return whether an edge ends in the window, so that every edge does in exactly one of windows that tile the run.

    Needs ``end_ns``. The window that begins with the run includes its origin.
    """
    if snapshot.run.rules is RuleSet.ST2:
        return pl.lit(value=True)
    window = snapshot.window
    after = pl.col("end_ns") > window.start_ns if window.start_ns else pl.lit(value=True)
    return after & (pl.col("end_ns") <= window.end_ns)


def sent_inside(snapshot: Snapshot) -> pl.Expr:
    """Return whether a message was sent in the window; that of the run's origin includes it."""
    if snapshot.run.rules is RuleSet.ST2:
        return pl.lit(value=True)
    window = snapshot.window
    after = pl.col("start_ns") > window.start_ns if window.start_ns else pl.col("start_ns") >= 0
    return after & (pl.col("start_ns") <= window.end_ns)


def labelled_edges(snapshot: Snapshot) -> pl.DataFrame:
    """Return the edges that are counted for a window, each in exactly one epoch, with ``end_ns``.

    For the round of an epoch these are the edges that carry the epoch, wherever they lie in time (contracts section 3:
    metrics sum by the edges' own epoch); for a free window those that end in it.
    """
    run, window = snapshot.run, snapshot.window
    if run.rules is RuleSet.ST2 or window.epoch is None:
        return snapshot.edges.with_columns(end_ns=END).filter(ends_inside(snapshot))
    # A row of `epochs` stands for all epochs after the row before it, the last row also for all later ones.
    known = run.epochs["epoch"].to_list()
    at = known.index(window.epoch)
    wanted = pl.col("epoch") > (known[at - 1] if at else -1)
    if at + 1 < len(known):
        wanted &= pl.col("epoch") <= window.epoch
    return run.scan("edges").filter(wanted).with_columns(end_ns=END).collect()


def delivered_ns(rules: RuleSet) -> pl.Expr:
    """Return what an edge took; for a message from send to read. Under `st2` negative times count nothing."""
    if rules is RuleSet.ST2:
        return pl.col("duration_ns").clip(lower_bound=0)
    after_arrival = pl.when(pl.col("read") != pl.col("dst")).then(pl.col("receive_buffer_ns").fill_null(0))
    return pl.col("duration_ns") + after_arrival.otherwise(0).fill_null(0)


def operator_names(run: Run) -> pl.DataFrame:
    """Return one row per operator: ``operator``, ``address`` and ``operator_name``."""
    return run.operators.select("operator", "address", operator_name="name").unique("operator", keep="first")


def operator_labels(run: Run) -> dict[int, str]:
    """Return what people call each operator: its name and address, or its number where it has no name."""
    return {
        row["operator"]: printable(f"{row['name']} ({row['address']})")
        if row["name"]
        else f"operator {row['operator']}"
        for row in run.operators.iter_rows(named=True)
    }


def with_epoch(table: pa.Table, window: Window) -> pa.Table:
    """Add the window's epoch to its rows, unless they have one."""
    if "epoch" in table.column_names:
        return table
    epoch = pa.array([window.epoch] * table.num_rows, pa.int64())
    return table.append_column(pa.field("epoch", pa.int64(), nullable=False), epoch)


def rounds(run: Run) -> pl.DataFrame:
    """Return the rows of `epochs` that analyses of a whole run look at: rounds; all rows where there is no round."""
    of_rounds = run.epochs.filter(pl.col("role") == str(EpochRole.ROUND))
    return of_rounds if of_rounds.height else run.epochs
