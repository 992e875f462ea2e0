"""Windows of a run: startup, one round per completed epoch, shutdown; they tile the run (`docs/model.md`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pag_graph.kernels import NEVER
from pag_graph.model.enums import EpochRole
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.builder.state import Life

    I64 = NDArray[np.int64]

_OF_EPOCH = ("worker", "epoch", "events", "entry_ns", "exit_ns", "end_ns", "end_pos", "last_pos", "last_ns", "work_ns")
_WORKER, _EPOCH, _EVENTS, _ENTRY = (_OF_EPOCH.index(name) for name in ("worker", "epoch", "events", "entry_ns"))
_EVER = np.iinfo(np.int64).max


def epoch_frame(parts: Sequence[I64]) -> pl.DataFrame:
    """Return what slices tell of epochs, one row per worker and epoch.

    Parameters
    ----------
    parts
        A row per column: worker, and what `pag_graph.kernels.epochs.epochs_of_rows` returns.

    Returns
    -------
    pl.DataFrame
        Columns ``worker, epoch, events, entry_ns, exit_ns, end_ns, end_pos, last_pos, last_ns, work_ns``.
    """
    columns = np.concatenate([np.empty((len(_OF_EPOCH), 0), np.int64), *parts], axis=1)
    named = zip(_OF_EPOCH, columns, strict=True)
    return pl.DataFrame(pa.table({name: pa.array(values, mask=values == NEVER) for name, values in named}))


def merged_epochs(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return one row per worker and epoch of what several slices tell of them, sorted."""
    # There are few: to ask Polars for this takes longer than to do it.
    columns = np.concatenate([np.empty((len(_OF_EPOCH), 0), np.int64), *map(_columns, parts)], axis=1)
    if not columns.shape[1]:
        return epoch_frame([])
    columns = columns[:, np.lexsort((columns[_EPOCH], columns[_WORKER]))]
    is_new = (np.diff(columns[[_WORKER, _EPOCH]], axis=1) != 0).any(axis=0)
    begins = np.flatnonzero(np.append(True, is_new))
    merged = np.maximum.reduceat(columns, begins, axis=1)
    merged[_EVENTS] = np.add.reduceat(columns[_EVENTS], begins)
    merged[_ENTRY] = np.minimum.reduceat(columns[_ENTRY], begins)
    return epoch_frame([merged])


def _columns(rows: pl.DataFrame) -> I64:
    """Return rows as `epoch_frame` takes them."""
    table = rows.to_arrow()
    return np.vstack([pc.fill_null(table[name], NEVER).to_numpy() for name in _OF_EPOCH])


class Closed(NamedTuple):
    """Epochs that are closed for good: they and their windows never change."""

    epochs: int = 0
    """How many there are."""
    last: int = -1
    """The last of them."""
    end_ns: int = 0
    """When its window ends, which is where the next one begins."""


NONE_CLOSED = Closed()


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
    before: Closed
    """Epochs that are closed for good, whose windows come before these."""
    completed: I64
    """Epochs that every worker has left, ascending; those that are closed for good are not among them."""
    inferred: bool
    """Whether the log lacks the ends of epochs, so that the last event of each stands in for it."""
    unfinished: tuple[int, ...]
    """Epochs that some worker ended and some did not."""

    @property
    def last_left(self) -> int:
        """The last epoch that every worker has left, or -1."""
        return int(self.completed[-1]) if len(self.completed) else self.before.last

    def index_of(self, epoch: I64) -> I64:
        """Return, for epochs of rows, the window that counts them; rows after the last closed epoch are shutdown."""
        return np.clip(np.searchsorted(self.epoch, epoch), 0, len(self.epoch) - 1)


def windows(
    merged: pl.DataFrame,
    *,
    end_ns: int,
    present: int,
    lives: Mapping[int, Life],
    before: Closed = NONE_CLOSED,
) -> Windows:
    """Find the windows of a run, or those that follow the windows of closed epochs.

    Parameters
    ----------
    merged
        One row per worker and epoch, as of `merged_epochs`; none of a closed epoch.
    end_ns
        The run's end.
    present
        How many workers have logged anything.
    lives
        Workers that come or go while the run lasts.
    before
        Epochs that are closed for good.

    Returns
    -------
    Windows
        The round of epoch e closes with the earliest `epoch_end` of e on any worker (ties: one that is a vertex, then
        one of a worker that did something else at that instant than to end a rest, then the lowest worker). Only epochs
        that every worker with events that exists at that time has ended have a round; what follows is `shutdown`.
    """
    # An end that was logged once keeps being asked for.
    inferred = not before.epochs and bool(merged["end_ns"].is_null().all())
    if inferred:
        merged = merged.with_columns(end_ns="last_ns", end_pos="last_pos")
    by_epoch = _ends(merged, end_ns=end_ns, lives=lives)
    closed = by_epoch.filter(pl.col("count") == present)
    # An epoch is closed only if all before it are: rounds must follow each other.
    unfinished = tuple(by_epoch.filter(pl.col("count") < present)["epoch"].to_list())
    if unfinished:
        closed = closed.filter(pl.col("epoch") < min(unfinished))
    epoch = closed["epoch"].to_list()
    completed = np.array(epoch, np.int64)
    ends = np.maximum.accumulate(np.array([before.end_ns, *closed["end_ns"].to_list()], np.int64))
    first = 0 if not before.epochs else -1
    roles = [EpochRole.STARTUP if i == first else EpochRole.ROUND for i in range(len(epoch))]
    vertex = [
        -1 if p is None else w << POSITION_BITS | p
        for w, p in zip(closed["worker"].to_list(), closed["end_pos"].to_list(), strict=True)
    ]
    if ends[-1] < end_ns or not (epoch or before.epochs):
        follows = [before.last, *epoch] if before.epochs else list(epoch)
        epoch.append(follows[-1] + 1 if follows else int(merged["epoch"].to_numpy().min()))
        roles.append(EpochRole.SHUTDOWN if follows else EpochRole.STARTUP)
        ends = np.append(ends, end_ns)
        vertex.append(-1)
    result_epoch = np.array(epoch, np.int64)
    entry, exit_, events = _counted(merged, result_epoch)
    return Windows(
        epoch=result_epoch,
        role=tuple(roles),
        bounds=ends,
        end_vertex=np.array(vertex, np.int64),
        entry=entry,
        exit=exit_,
        events=events,
        before=before,
        completed=completed,
        inferred=inferred,
        unfinished=unfinished,
    )


def _ends(merged: pl.DataFrame, *, end_ns: int, lives: Mapping[int, Life]) -> pl.DataFrame:
    """Return one row per epoch that some worker ended: how many did or need not, who did first, when, and where."""
    ended = merged.filter(pl.col("end_ns").is_not_null())
    # Who did nothing more when the epoch ended did not close it.
    rested = (pl.col("work_ns") < pl.col("end_ns")).fill_null(value=True)
    by_epoch = (
        ended.sort("epoch", "end_ns", pl.col("end_pos").is_null(), rested, "worker")
        .group_by("epoch", maintain_order=True)
        .agg(pl.len().alias("count"), pl.col("end_ns").first(), pl.col("worker").first(), pl.col("end_pos").first())
    )
    # Who was not born yet, or had gone, need not have ended an epoch.
    for worker, life in lives.items():
        left = ended.filter(pl.col("worker") == worker)["epoch"]
        gone = end_ns if life.exit_ns is None else life.exit_ns
        absent = (pl.col("end_ns") < life.begin_ns) | (pl.col("end_ns") > gone)
        excused = absent & ~pl.col("epoch").is_in(left.implode())
        by_epoch = by_epoch.with_columns(count=pl.col("count") + excused.cast(pl.UInt32))
    return by_epoch


def _counted(merged: pl.DataFrame, epochs: I64) -> tuple[I64, I64, I64]:
    """Return, per window, its first and its last event, -1 where it has none, and how many there are."""
    at = np.clip(np.searchsorted(epochs, merged["epoch"].to_numpy()), 0, len(epochs) - 1)
    entry, exit_, events = (np.full(len(epochs), absent, np.int64) for absent in (_EVER, -1, 0))
    np.minimum.at(entry, at, merged["entry_ns"].to_numpy())
    np.maximum.at(exit_, at, merged["exit_ns"].to_numpy())
    np.add.at(events, at, merged["events"].to_numpy())
    return np.where(entry == _EVER, -1, entry), exit_, events


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
    columns = {
        "epoch": windows.epoch,
        "role": pa.array([str(role) for role in windows.role]),
        "start_ns": windows.bounds[:-1],
        "end_ns": windows.bounds[1:],
        "end_vertex": _or_null(windows.end_vertex),
        "entry_ns": _or_null(windows.entry),
        "exit_ns": _or_null(windows.exit),
        "events": windows.events,
        "vertices": vertices,
        "edges": edges,
        "waiting_ns": waiting_ns,
        "unknown_ns": unknown_ns,
        "coverage": coverage,
    }
    return pa.table(columns).cast(PAG_EPOCHS)


def _or_null(values: I64) -> pa.Array:
    return pa.array(values, mask=values < 0)
