"""Windows of a run: startup, one round per completed epoch, shutdown; they tile the run (`docs/model.md`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.model.enums import EpochRole
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows of a run, in time order, and what is known of them before the graph is assembled."""

    epoch: I64
    role: tuple[EpochRole, ...]
    bounds: I64
    """Window i is ``(bounds[i], bounds[i + 1]]``; the first includes the run's origin."""
    end_vertex: I64
    """Vertex that closes the window, or -1."""
    entry: I64
    exit: I64
    events: I64
    closed_epochs: int
    """Epochs that every worker has left, and that nothing can change any more."""
    last_closed: int
    """The last of them, or -1."""
    last_left: int
    """The last that every worker has left, settled or not, or -1."""
    inferred: bool
    """Whether the log lacks the ends of epochs, so that the last event of each stands in for it."""
    unfinished: tuple[int, ...]
    """Epochs that some worker ended and some did not."""

    def index_of(self, epoch: I64) -> I64:
        """Return, for epochs of rows, the window that counts them; rows after the last closed epoch are shutdown."""
        return np.clip(np.searchsorted(self.epoch, epoch), 0, len(self.epoch) - 1)


def windows(
    epochs: pl.DataFrame,
    *,
    end_ns: int,
    settled: int | None = None,
    lives: Mapping[int, tuple[int, int | None]] | None = None,
) -> Windows:
    """Find the windows of a run.

    Parameters
    ----------
    epochs
        One row per slice, worker and epoch, as `Scan.epochs`.
    end_ns
        The run's end.
    settled
        For a log that goes on: the last epoch that more of it cannot change; none beside it counts as closed, nor does
        the last that every worker left (a worker that is ahead may have sent something that is not on disk yet).
    lives
        Per worker that comes or goes while the run lasts: when it begins, and when it exits (None: never).

    Returns
    -------
    Windows
        The round of epoch e closes with the earliest `epoch_end` of e on any worker (ties: one that is a vertex, then
        one of a worker that did something else at that instant than to end a rest, then the lowest worker). Only epochs
        that every worker with events that exists at that time has ended have a round; what follows is `shutdown`.
    """
    merged = (
        epochs.sort("worker", "epoch", "entry_ns")
        .group_by("worker", "epoch", maintain_order=True)
        .agg(
            pl.col("events").sum(),
            pl.col("entry_ns").min(),
            pl.col("exit_ns").max(),
            pl.col("end_ns").max(),
            pl.col("end_pos").max(),
            pl.col("last_pos").max(),
            pl.col("last_ns").max(),
            pl.col("work_ns").max(),
        )
    )
    inferred = bool(merged["end_ns"].is_null().all())
    if inferred:
        merged = merged.with_columns(end_ns="last_ns", end_pos="last_pos")
    ended = merged.filter(pl.col("end_ns").is_not_null())
    present = merged["worker"].n_unique()
    # Who did nothing more when the epoch ended did not close it.
    rested = (pl.col("work_ns") < pl.col("end_ns")).fill_null(value=True)
    by_epoch = (
        ended.sort("epoch", "end_ns", pl.col("end_pos").is_null(), rested, "worker")
        .group_by("epoch", maintain_order=True)
        .agg(pl.len().alias("count"), pl.col("end_ns").first(), pl.col("worker").first(), pl.col("end_pos").first())
    )
    # Who was not born yet, or had gone, need not have ended an epoch.
    for worker, (begin, gone) in (lives or {}).items():
        mine = ended.filter(pl.col("worker") == worker)["epoch"]
        absent = (pl.col("end_ns") < begin) | (pl.col("end_ns") > (end_ns if gone is None else gone))
        excused = absent & ~pl.col("epoch").is_in(mine.implode())
        by_epoch = by_epoch.with_columns(count=pl.col("count") + excused.cast(pl.UInt32))
    closed = by_epoch.filter(pl.col("count") == present)
    # An epoch is closed only if all before it are: rounds must follow each other.
    unfinished = tuple(by_epoch.filter(pl.col("count") < present)["epoch"].to_list())
    if unfinished:
        closed = closed.filter(pl.col("epoch") < min(unfinished))
    epoch = closed["epoch"].to_list()
    ends = np.maximum.accumulate(np.array([0, *closed["end_ns"].to_list()], np.int64))
    roles = [EpochRole.STARTUP if i == 0 else EpochRole.ROUND for i in range(len(epoch))]
    vertex = [
        -1 if p is None else w << POSITION_BITS | p
        for w, p in zip(closed["worker"].to_list(), closed["end_pos"].to_list(), strict=True)
    ]
    if ends[-1] < end_ns or not epoch:
        first = int(merged["epoch"].to_numpy().min())
        epoch.append(epoch[-1] + 1 if epoch else first)
        roles.append(EpochRole.SHUTDOWN if len(epoch) > 1 else EpochRole.STARTUP)
        ends = np.append(ends, end_ns)
        vertex.append(-1)
    result_epoch = np.array(epoch, np.int64)
    at = np.clip(np.searchsorted(result_epoch, merged["epoch"].to_numpy()), 0, len(epoch) - 1)
    counted = (
        merged.with_columns(window=pl.Series(at))
        .group_by("window")
        .agg(pl.col("events").sum(), pl.col("entry_ns").min(), pl.col("exit_ns").max())
    )
    entry, exit_, events = (np.full(len(epoch), absent, np.int64) for absent in (-1, -1, 0))
    where = counted["window"].to_numpy()
    entry[where], exit_[where], events[where] = (counted[name].to_numpy() for name in ("entry_ns", "exit_ns", "events"))
    final = [e for e in closed["epoch"].to_list() if settled is None or e <= settled]
    if settled is not None and len(final) == closed.height:
        final = final[:-1]
    return Windows(
        epoch=result_epoch,
        role=tuple(roles),
        bounds=ends,
        end_vertex=np.array(vertex, np.int64),
        entry=entry,
        exit=exit_,
        events=events,
        closed_epochs=len(final),
        last_closed=int(final[-1]) if final else -1,
        last_left=int(closed["epoch"][-1]) if closed.height else -1,
        inferred=inferred,
        unfinished=unfinished,
    )


def epochs_table(
    windows: Windows, *, alive_ns: I64, vertices: I64, edges: I64, waiting_ns: I64, unknown_ns: I64
) -> pa.Table:
    """Return the rows of `PAG_EPOCHS`.

    Parameters
    ----------
    windows
        The windows.
    alive_ns
        Per window: time that workers existed in it, summed.
    vertices, edges, waiting_ns, unknown_ns
        Per window, summed over all slices.

    Returns
    -------
    pa.Table
        One row per window, in time order.
    """
    coverage = np.where(alive_ns > 0, 1 - unknown_ns / np.maximum(alive_ns, 1), 1.0)
    frame = pl.DataFrame(
        {
            "epoch": windows.epoch,
            "role": [str(role) for role in windows.role],
            "start_ns": windows.bounds[:-1],
            "end_ns": windows.bounds[1:],
            "end_vertex": windows.end_vertex,
            "entry_ns": windows.entry,
            "exit_ns": windows.exit,
            "events": windows.events,
            "vertices": vertices,
            "edges": edges,
            "waiting_ns": waiting_ns,
            "unknown_ns": unknown_ns,
            "coverage": coverage,
        }
    ).with_columns(pl.when(pl.col(c) >= 0).then(pl.col(c)).alias(c) for c in ("end_vertex", "entry_ns", "exit_ns"))
    return frame.to_arrow().cast(PAG_EPOCHS)
