"""Who is to blame for waiting: every wait charged to what happened meanwhile on the path that led to its end.

Definition: contracts section 7. It is not Scalasca's delay cost, which needs points at which all workers synchronise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.analyses.columns import WAITING, worker_of
from pag_graph.analyses.constraints import require_aligned
from pag_graph.errors import CycleError, PagError
from pag_graph.kernels.blame import walk_waits
from pag_graph.kernels.path import CYCLE, REACHED_START
from pag_graph.model.ids import position_of
from pag_graph.model.ids import worker_of as worker_of_id
from pag_graph.model.tables import BLAME

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.pag.snapshot import Snapshot

_EDGE = ["src", "dst", "type", "operator", "channel", "start_ns", "end_ns"]


def blame(snapshot: Snapshot) -> pa.Table:
    """Charge the waiting in a window to what other workers did meanwhile.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.

    Returns
    -------
    pa.Table
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
    A wait [a, z] is charged, instant by instant, to the path that leads backward from z: over the message that ended
    the wait, down what its sender did, and where that one waited itself, over the message that ended that wait, until
    a. So nobody is blamed for time in which he waited himself. O(workers x edges), as the path of a wait has at most
    the edges of the time that the wait lasts.
    """
    require_aligned(snapshot, "Charges for waiting")
    window = snapshot.window
    wide = _until_waits_end(snapshot)
    local, messages = wide.local, wide.enders
    waits = local.with_row_index("edge").filter(pl.col("type") == WAITING)
    chosen = waits.with_row_index("wait").filter(
        pl.col("end_ns") > window.start_ns, pl.col("start_ns") < window.end_ns, pl.col("duration_ns") > 0
    )
    if not chosen.height:
        return BLAME.empty_table()
    since = np.maximum(chosen["start_ns"].to_numpy(), window.start_ns)
    wait_dst, message_dst = waits["dst"].to_numpy(), messages["dst"].to_numpy()
    at = np.searchsorted(message_dst, wait_dst)
    known = at < len(message_dst)
    known[known] = message_dst[at[known]] == wait_dst[known]
    index, low, high, message, outcome, vertex = walk_waits(
        chosen["wait"].to_numpy().astype(np.int64),
        since,
        local["dst"].to_numpy(),
        local["end_ns"].to_numpy(),
        wait_dst,
        np.where(known, at, -1),
        messages["src"].to_numpy(),
        messages["start_ns"].to_numpy(),
    )
    if outcome != REACHED_START:
        where = f"worker {worker_of_id(int(vertex))}, position {position_of(int(vertex))} (vertex {vertex})"
        kind, what = (CycleError, "comes back to") if outcome == CYCLE else (PagError, "finds no edge into")
        text = f"The walk back from a wait in {window.name} {what} {where}."
        raise kind(text, "Build the store again, and look at its findings.", {"vertex": int(vertex)})
    lengths = high - low
    nth = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = np.repeat(low, lengths) + nth
    path = pl.concat(
        [
            local.select(_EDGE)[rows].with_columns(index=pl.Series(np.repeat(index, lengths))),
            messages.select(_EDGE)[message].with_columns(index=pl.Series(index)),
        ]
    )
    begin = pl.Series(since)[path["index"]]
    worker = chosen.select(worker_of("dst")).to_series()[path["index"]]
    inside = pl.min_horizontal("end_ns", pl.lit(window.end_ns)) - pl.max_horizontal("start_ns", begin)
    result = (
        path.select(
            "index",
            "type",
            "operator",
            "channel",
            by_worker=worker_of("src"),
            to_worker=worker_of("dst"),
            worker=worker,
            blamed_ns=inside,
        )
        .filter(pl.col("blamed_ns") > 0)
        .group_by("worker", "by_worker", "to_worker", "type", "operator", "channel")
        .agg(waits=pl.col("index").n_unique().cast(pl.Int64), blamed_ns=pl.col("blamed_ns").sum())
        .sort(
            "blamed_ns",
            "worker",
            "by_worker",
            "to_worker",
            "type",
            "operator",
            "channel",
            descending=[True, *[False] * 6],
        )
    )
    return result.select(BLAME.names).to_arrow().cast(BLAME)


def _until_waits_end(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot, continued to the end of waits that the window's end cuts: their causes lie behind it."""
    window = snapshot.window
    cut = snapshot.local.filter(pl.col("type") == WAITING, pl.col("end_ns") > window.end_ns)
    if not cut.height:
        return snapshot
    last = int(cut["end_ns"].max())  # type: ignore[arg-type]
    return snapshot.run.snapshot(replace(window, end_ns=last, end_vertex=None, epoch=None, role=None))
