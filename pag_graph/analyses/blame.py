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

from pag_graph.analyses.constraints import require_aligned
from pag_graph.analyses.contraction import IS_STRETCH, contract
from pag_graph.analyses.expressions import SPAWN, WAITING, worker_of
from pag_graph.analyses.frames import Frames, end_ns
from pag_graph.analyses.frames import worker_of as worker_in
from pag_graph.errors import CycleError, PagError
from pag_graph.kernels.arranging import spread
from pag_graph.kernels.blame import walk_waits
from pag_graph.kernels.compiling import read_only
from pag_graph.kernels.path import CYCLE, REACHED_START, enders
from pag_graph.model.ids import POSITION_BITS, position_of
from pag_graph.model.ids import worker_of as worker_of_id
from pag_graph.model.tables import BLAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pag_graph.graph.snapshot import Run, Snapshot, Window

_EDGE = ["src", "dst", "type", "operator", "channel", "start_ns", "end_ns"]


def blame(snapshot: Snapshot | Frames) -> pa.Table:
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
    if isinstance(snapshot, Frames):
        wide = _frames_until_waits_end(snapshot)
        rows = _charged(contract(wide), [snapshot.window], wide)
    else:
        rows = _charged(_until_waits_end(snapshot), [snapshot.window])
    return rows.select(BLAME.names).to_arrow().cast(BLAME)


def blame_of_windows(run: Run, windows: Sequence[Window]) -> pa.Table:
    """Return who is to blame in many windows, read once: rows of `BLAME` with the place of their ``window``.

    Parameters
    ----------
    run
        A run with aligned clocks.
    windows
        In time order, none overlapping another.

    Returns
    -------
    pa.Table
        In the order of the windows.
    """
    parts, before = [], 0
    for part in run.stretches(windows):
        start, end = part[0].start_ns, part[-1].end_ns
        if start < end:
            wide = _until_waits_end(run.snapshot(run.window(between=(start, end))))
            parts.append(_charged(wide, part).with_columns(pl.col("window") + before))
        before += len(part)
    return pl.concat(parts).to_arrow()


def _charged(wide: Snapshot, windows: Sequence[Window], frames: Frames | None = None) -> pl.DataFrame:
    """Charge the waiting in each window, in the order of the windows; `frames` have what stretches stand for."""
    begins, ends = (np.array([getattr(w, name) for w in windows], np.int64) for name in ("start_ns", "end_ns"))
    births = wide.messages.filter(pl.col("type") == SPAWN)
    local, messages = wide.local, pl.concat([wide.enders, births]).sort("dst", "src")
    # The way back leaves a worker where a wait ended, or where it was born.
    begun = pl.concat([local.filter(pl.col("type") == WAITING), births]).sort("dst")
    waited = np.flatnonzero((begun["type"] == WAITING).to_numpy() & (begun["duration_ns"] > 0).to_numpy())
    start, end = (begun[name].to_numpy()[waited] for name in ("start_ns", "end_ns"))
    # A wait counts in every window of which it has a part.
    wait, window = spread(np.searchsorted(ends, start, side="right"), np.searchsorted(begins, end) - 1)
    since = np.maximum(start[wait], begins[window])
    vertex_of, is_born = begun["dst"].to_numpy(), (begun["type"] == SPAWN).to_numpy()
    to, sent, arrived = (messages[name].to_numpy() for name in ("dst", "start_ns", "end_ns"))
    local_dst, local_end = read_only(local["dst"].to_numpy(), local["end_ns"].to_numpy())
    vertex_of, wait_end = read_only(vertex_of, begun["end_ns"].to_numpy())
    to, sent, arrived, sender = read_only(to, sent, arrived, messages["src"].to_numpy())
    ender = enders(vertex_of, is_born, to, sent, arrived, (messages["type"] == SPAWN).to_numpy())
    index, low, high, message, outcome, vertex = walk_waits(
        waited[wait],
        since,
        local_dst,
        local_end,
        vertex_of,
        wait_end,
        ender,
        sender,
        sent,
    )
    if outcome != REACHED_START:
        where = f"worker {worker_of_id(int(vertex))}, position {position_of(int(vertex))} (vertex {vertex})"
        kind, what = (CycleError, "comes back to") if outcome == CYCLE else (PagError, "finds no edge into")
        text = f"The walk back from a wait between {begins[0]} and {ends[-1]} ns {what} {where}."
        raise kind(text, "Build the store again, and look at its findings.", {"vertex": int(vertex)})
    lengths = high - low
    nth = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = np.repeat(low, lengths) + nth
    path = pl.concat([local.select(_EDGE)[rows], messages.select(_EDGE)[message]])
    number = np.concatenate([np.repeat(index, lengths), index])
    path = path.with_columns(
        index=pl.Series(number, dtype=pl.Int64),
        since=pl.Series(since[number], dtype=pl.Int64),
        until=pl.Series(ends[window[number]], dtype=pl.Int64),
    )
    inside = pl.min_horizontal("end_ns", "until") - pl.max_horizontal("start_ns", "since")
    pieces = path.select(
        "type",
        "operator",
        "channel",
        "index",
        by_worker=worker_of("src"),
        to_worker=worker_of("dst"),
        blamed_ns=inside,
    )
    if frames is not None:
        pieces = pl.concat([pieces.filter(~IS_STRETCH), _on_stretches(frames, path.filter(IS_STRETCH), pieces.schema)])
    of_piece = pieces["index"].to_numpy()
    keys = ["worker", "by_worker", "to_worker", "type", "operator", "channel"]
    charged: pl.DataFrame = (
        pieces.with_columns(
            window=pl.Series(window[of_piece], dtype=pl.Int64),
            worker=pl.Series(vertex_of[waited[wait[of_piece]]] >> POSITION_BITS, dtype=pl.Int32),
        )
        .filter(pl.col("blamed_ns") > 0)
        .group_by("window", *keys)
        .agg(waits=pl.col("index").n_unique().cast(pl.Int64), blamed_ns=pl.col("blamed_ns").sum())
        .sort("window", "blamed_ns", *keys, descending=[False, True, *[False] * 6])
        .select("window", *BLAME.names)
    )
    return charged


def _on_stretches(frames: Frames, path: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Sum what happened on stretches of paths, per path, type and operator."""
    found = frames.within(path.select("src", "dst", "index", "since", "until"))
    inside = nw.min_horizontal(end_ns(), "until") - nw.max_horizontal("start_ns", "since")
    keys = ["index", "worker", "type", "operator"]
    summed = frames.collect(
        found.with_columns(worker=worker_in("dst"), blamed_ns=inside)
        .filter(nw.col("blamed_ns") > 0)
        .group_by(keys)
        .agg(nw.col("blamed_ns").sum())
    )
    whole = summed.with_columns(channel=pl.lit(None, pl.Int64), by_worker="worker", to_worker="worker")
    return whole.select(schema.names()).cast(schema)


def _frames_until_waits_end(frames: Frames) -> Frames:
    """Do the same as `_until_waits_end`."""
    cut = frames.edges.filter(nw.col("type") == WAITING, end_ns() > frames.window.end_ns)
    last = frames.collect(cut.select(end_ns=end_ns().max()))["end_ns"][0]
    return frames if last is None else frames.until(int(last))


def _until_waits_end(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot, continued to the end of waits that the window's end cuts: their causes lie behind it."""
    window = snapshot.window
    cut = snapshot.local.filter(pl.col("type") == WAITING, pl.col("end_ns") > window.end_ns)
    if not cut.height:
        return snapshot
    last = int(cut["end_ns"].max())  # type: ignore[arg-type]
    return snapshot.run.snapshot(replace(window, end_ns=last, end_vertex=None, epoch=None, role=None))
