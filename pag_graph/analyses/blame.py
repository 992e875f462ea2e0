"""Who is to blame for waiting: every wait charged to what happened meanwhile on the path that led to its end.

Definition: `docs/analyses.md`, section "blame". It is not Scalasca's delay cost, which needs points at which all
workers synchronise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.analyses.contraction import IS_STRETCH, contract
from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.expressions import SPAWN, WAITING, worker_of
from pag_graph.analyses.view import end_ns
from pag_graph.analyses.view import worker_of as worker_in
from pag_graph.errors import CycleError, PagError
from pag_graph.graph.needs import Needs
from pag_graph.kernels.arranging import spread
from pag_graph.kernels.compiling import read_only
from pag_graph.kernels.path import (
    CYCLE,
    REACHED_START,
    Begun,
    Local,
    Messages,
    Sends,
    Waits,
    enders,
    walk_waits,
)
from pag_graph.model.ids import POSITION_BITS, position_of
from pag_graph.model.ids import worker_of as worker_of_id
from pag_graph.model.tables import BLAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.analyses.view import View
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window

    I64 = NDArray[np.int64]

_EDGE = ["src", "dst", "type", "operator", "channel", "start_ns", "end_ns"]


def blame(view: View) -> pl.DataFrame:
    """Charge the waiting in a window to what other workers did in that time.

    Parameters
    ----------
    view
        Of a run with aligned clocks.

    Returns
    -------
    DataFrame
        Rows of `BLAME`, one per waiting worker and cause. The times add up to the waiting in the window, to the
        nanosecond.

    Raises
    ------
    UnsupportedPlanError
        If the run was built with the rule set `st2`, whose clocks are not aligned.
    PagError
        If the graph has a gap, or a wait that no message ended; names the vertex.
    CycleError
        If a walk comes back to where it was; names the vertex.

    Notes
    -----
    A wait from a to z is charged, instant by instant, to the path that leads backward from z. The path goes over the
    message that ended the wait and down what its sender did. Where the sender waited itself, the path goes over the
    message that ended that wait, and so on until a. So no worker is blamed for time in which it waited itself.
    O(workers x edges), because the path of a wait has at most the edges of the time that the wait lasts.
    """
    view.run.require_aligned("Charges for waiting need aligned clocks")
    if view.spread is not None:
        wide = _view_until_waits_end(view)
        return _charged(contract(wide), view.windows, wide)
    return _charged(_until_waits_end(view.shown), view.windows)


def _charged(wide: Snapshot, windows: Sequence[Window], spread_view: View | None = None) -> pl.DataFrame:
    """Charge the waiting in each window, in the order of the windows; `spread_view` has what stretches stand for."""
    begins, ends = (np.array([getattr(w, name) for w in windows], np.int64) for name in ("start_ns", "end_ns"))
    births = wide.messages.filter(pl.col("type") == SPAWN)
    # The way back leaves a worker where a wait ended, or where it was born.
    starts = pl.concat([wide.local.filter(pl.col("type") == WAITING), births]).sort("dst")
    waited = np.flatnonzero((starts["type"] == WAITING).to_numpy() & (starts["duration_ns"] > 0).to_numpy())
    start, end = (starts[name].to_numpy()[waited] for name in ("start_ns", "end_ns"))
    # A wait counts in every window of which it has a part.
    wait, window = spread(np.searchsorted(ends, start, side="right"), np.searchsorted(begins, end) - 1)
    counted_from = np.maximum(start[wait], begins[window])
    messages = pl.concat([wide.enders, births]).sort("dst", "src")
    between = f"{begins[0]} and {ends[-1]} ns"
    path, number = _paths_back(wide.local, messages, starts, waits=(waited[wait], counted_from), between=between)
    path = path.with_columns(
        index=pl.Series(number, dtype=pl.Int64),
        since=pl.Series(counted_from[number], dtype=pl.Int64),
        until=pl.Series(ends[window[number]], dtype=pl.Int64),
    )
    charges = path.select(
        "type",
        "operator",
        "channel",
        "index",
        by_worker=worker_of("src"),
        to_worker=worker_of("dst"),
        blamed_ns=pl.min_horizontal("end_ns", "until") - pl.max_horizontal("start_ns", "since"),
    )
    if spread_view is not None:
        on_stretches = _on_stretches(spread_view, path.filter(IS_STRETCH), charges.schema)
        charges = pl.concat([charges.filter(~IS_STRETCH), on_stretches])
    path_of_charge = charges["index"].to_numpy()
    keys = ["worker", "by_worker", "to_worker", "type", "operator", "channel"]
    return (
        charges.with_columns(
            window=pl.Series(window[path_of_charge], dtype=pl.Int64),
            worker=pl.Series(starts["dst"].to_numpy()[waited[wait[path_of_charge]]] >> POSITION_BITS, dtype=pl.Int32),
        )
        .filter(pl.col("blamed_ns") > 0)
        .group_by("window", *keys)
        .agg(waits=pl.col("index").n_unique().cast(pl.Int64), blamed_ns=pl.col("blamed_ns").sum())
        .sort("window", "blamed_ns", *keys, descending=[False, True, *[False] * 6])
    )


def _paths_back(
    local: pl.DataFrame, messages: pl.DataFrame, starts: pl.DataFrame, *, waits: tuple[I64, I64], between: str
) -> tuple[pl.DataFrame, I64]:
    """Return the edges of the path back from the end of each of some waits until an instant, and whose path it is.

    Parameters
    ----------
    local, messages
        Edges by `dst`: those of workers, and those that ended waits or gave birth.
    starts
        Waits and births by `dst`.
    waits
        Per path: the row of its wait in `starts`, and the instant.
    between
        Which time is looked at, for errors.

    Returns
    -------
    DataFrame
        One row per path and edge on it.
    I64
        Per row: the number of its path.

    Raises
    ------
    PagError
        If no edge leads to a vertex on a path.
    CycleError
        If a path comes back to where it was.
    """
    read_at, sent, arrived = (messages[name].to_numpy() for name in ("dst", "start_ns", "end_ns"))
    local_dst, local_end = read_only(local["dst"].to_numpy(), local["end_ns"].to_numpy())
    vertex_of, wait_end = read_only(starts["dst"].to_numpy(), starts["end_ns"].to_numpy())
    read_at, sent, arrived, sender = read_only(read_at, sent, arrived, messages["src"].to_numpy())
    begun_first, sent_first = np.array([0, starts.height]), np.array([0, messages.height])
    is_born, is_spawn = ((rows["type"] == SPAWN).to_numpy() for rows in (starts, messages))
    ender = enders(Begun(begun_first, vertex_of, is_born), Messages(sent_first, read_at, sent, arrived, is_spawn))
    (index, low, high, message), outcome, vertex = walk_waits(
        *waits,
        Local(np.array([0, local.height]), local_dst, local_end),
        Waits(begun_first, vertex_of, wait_end, ender),
        Sends(sender, sent),
    )
    if outcome != REACHED_START:
        place = f"worker {worker_of_id(int(vertex))}, position {position_of(int(vertex))} (vertex {vertex})"
        kind, problem = (CycleError, "comes back to") if outcome == CYCLE else (PagError, "finds no edge into")
        text = f"The walk back from a wait between {between} {problem} {place}."
        raise kind(text, "Build the store again, and look at its findings.", {"vertex": int(vertex)})
    lengths = high - low
    nth = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = np.repeat(low, lengths) + nth
    path = pl.concat([local.select(_EDGE)[rows], messages.select(_EDGE)[message[message >= 0]]])
    return path, np.concatenate([np.repeat(index, lengths), index[message >= 0]])


def _on_stretches(view: View, path: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Sum what happened on stretches of paths, per path, type and operator."""
    edges = view.within(path.select("src", "dst", "index", "since", "until"))
    inside_ns = nw.min_horizontal(end_ns(), "until") - nw.max_horizontal("start_ns", "since")
    keys = ["index", "worker", "type", "operator"]
    summed = view.collect(
        edges.with_columns(worker=worker_in("dst"), blamed_ns=inside_ns)
        .filter(nw.col("blamed_ns") > 0)
        .group_by(keys)
        .agg(nw.col("blamed_ns").sum())
    )
    columns = summed.with_columns(channel=pl.lit(None, pl.Int64), by_worker="worker", to_worker="worker")
    return columns.select(schema.names()).cast(schema)


def _view_until_waits_end(view: View) -> View:
    """Do the same as `_until_waits_end` where the edges are on other machines."""
    cut = view.edges.filter(nw.col("type") == WAITING, end_ns() > view.window.end_ns)
    last = view.collect(cut.select(end_ns=end_ns().max()))["end_ns"][0]
    return view if last is None else view.until(int(last))


def _until_waits_end(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot, continued to the end of waits that the window's end cuts: their causes lie behind it."""
    window = snapshot.window
    cut = snapshot.local.filter(pl.col("type") == WAITING, pl.col("end_ns") > window.end_ns)
    if not cut.height:
        return snapshot
    last = int(cut["end_ns"].max())  # type: ignore[arg-type]
    return snapshot.run.snapshot(replace(window, end_ns=last, end_vertex=None, epoch=None, role=None))


ANALYSIS: TableAnalysis[None] = TableAnalysis(
    name="blame",
    function=blame,
    schema=BLAME,
    output="BLAME",
    across=True,
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5",
    columns=("worker", "by_worker", "to_worker", "type", "operator", "channel", "waits", "blamed_ns"),
    chart=Chart(kind="matrix", x=("by_worker",), y=("worker",), value="blamed_ns"),
    standing=Standing.WINDOW,
)
