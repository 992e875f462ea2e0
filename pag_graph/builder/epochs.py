"""Windows of a run: startup, one round per completed epoch, shutdown; they tile the run (`docs/model.md`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pag_graph.kernels import NEVER
from pag_graph.model.enums import EpochRole
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pag_graph.builder.state import Life

I64 = NDArray[np.int64]
_EVER = np.iinfo(np.int64).max


class EpochRows(NamedTuple):
    """What the rows of workers say of epochs: one element per worker and epoch; `NEVER` stands for what is not there.

    Times are nanoseconds since the run's origin. There are few elements: to ask a library of frames for anything about
    them takes longer than to do it.
    """

    worker: I64
    """Whose rows."""
    epoch: I64
    """The epoch."""
    events: I64
    """Rows that carry the epoch."""
    entry_ns: I64
    """The first of them."""
    exit_ns: I64
    """The last of them."""
    end_ns: I64
    """When the worker ended the epoch for the last time."""
    end_pos: I64
    """Position of the last such row that is a vertex."""
    last_pos: I64
    """Position of the last vertex of the epoch."""
    last_ns: I64
    """Its time."""
    work_ns: I64
    """The last row that is no end of an epoch, nor of a rest."""

    @classmethod
    def of(cls, parts: Sequence[I64]) -> EpochRows:
        """Take what slices tell of the epochs of their workers.

        Parameters
        ----------
        parts
            Shape (10, epochs) each: the worker, and what `pag_graph.kernels.epochs.epochs_of_rows` returns.

        Returns
        -------
        EpochRows
            In the order of `parts`; a worker and epoch may come up several times.
        """
        return cls(*np.concatenate([np.empty((len(cls._fields), 0), np.int64), *parts], axis=1))

    @classmethod
    def merged(cls, parts: Iterable[EpochRows]) -> EpochRows:
        """Join what several slices tell of the same epochs.

        Parameters
        ----------
        parts
            In any order.

        Returns
        -------
        EpochRows
            One element per worker and epoch, sorted by both. O(n log n).
        """
        columns = np.concatenate([np.empty((len(cls._fields), 0), np.int64), *map(np.array, parts)], axis=1)
        if not columns.shape[1]:
            return cls(*columns)
        unsorted = cls(*columns)
        columns = columns[:, np.lexsort((unsorted.epoch, unsorted.worker))]
        is_new = (columns[:2, 1:] != columns[:2, :-1]).any(axis=0)
        begins = np.flatnonzero(np.append(True, is_new))
        merged = cls(*np.maximum.reduceat(columns, begins, axis=1))
        rows = cls(*columns)
        return merged._replace(
            events=np.add.reduceat(rows.events, begins), entry_ns=np.minimum.reduceat(rows.entry_ns, begins)
        )

    def where(self, selection: NDArray[np.bool_] | NDArray[np.intp]) -> EpochRows:
        """Return some of the elements, or all of them in another order.

        Parameters
        ----------
        selection
            A mask, or places.

        Returns
        -------
        EpochRows
            A copy.
        """
        return EpochRows(*(values[selection] for values in self))

    def after(self, last: int) -> EpochRows:
        """Return those of later epochs than `last`.

        Parameters
        ----------
        last
            An epoch.

        Returns
        -------
        EpochRows
            Those of later epochs, in the same order.
        """
        return self.where(self.epoch > last)


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
    """The windows of a run, in time order, and what is known of them before the graph is assembled.

    One element per window; times are nanoseconds since the run's origin.
    """

    epoch: I64
    """The epoch that it is named after."""
    role: tuple[EpochRole, ...]
    """`startup`, `round` or `shutdown`."""
    bounds: I64
    """Window i is ``(bounds[i], bounds[i + 1]]``; the first includes the run's origin."""
    end_vertex: I64
    """Vertex that closes the window, or -1."""
    entry: I64
    """First event that carries its epoch, or -1."""
    exit: I64
    """Last such event, or -1."""
    events: I64
    """How many there are."""
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
        """Say which window counts the rows of epochs.

        Parameters
        ----------
        epoch
            Epochs that rows carry.

        Returns
        -------
        array of int
            Per epoch: the place of the window; those after the last closed epoch are counted by the shutdown.
        """
        return np.clip(np.searchsorted(self.epoch, epoch), 0, len(self.epoch) - 1)


def windows(
    merged: EpochRows,
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
        What all slices tell, as of `EpochRows.merged`; nothing of a closed epoch.
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
    inferred = not before.epochs and bool((merged.end_ns == NEVER).all())
    if inferred:
        merged = merged._replace(end_ns=merged.last_ns, end_pos=merged.last_pos)
    by_epoch = _ends(merged, end_ns=end_ns, lives=lives)
    # An epoch is closed only if all before it are: rounds must follow each other.
    unfinished = by_epoch.epoch[by_epoch.workers < present]
    closed_epochs = by_epoch.where((by_epoch.workers == present) & (by_epoch.epoch < unfinished.min(initial=_EVER)))
    epoch = closed_epochs.epoch.tolist()
    completed = closed_epochs.epoch
    ends = np.maximum.accumulate(np.append(np.int64(before.end_ns), closed_epochs.end_ns))
    first = 0 if not before.epochs else -1
    roles = [EpochRole.STARTUP if i == first else EpochRole.ROUND for i in range(len(epoch))]
    vertex = np.where(
        closed_epochs.end_pos == NEVER, -1, closed_epochs.worker << POSITION_BITS | closed_epochs.end_pos
    ).tolist()
    if ends[-1] < end_ns or not (epoch or before.epochs):
        follows = [before.last, *epoch] if before.epochs else list(epoch)
        epoch.append(follows[-1] + 1 if follows else int(merged.epoch.min()))
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
        unfinished=tuple(unfinished.tolist()),
    )


class _Ends(NamedTuple):
    """Per epoch that some worker ended, ascending."""

    epoch: I64
    workers: I64
    """How many of them ended it, or need not."""
    end_ns: I64
    worker: I64
    end_pos: I64
    """When, by whom and where it was ended first; the position is `NEVER` where that is no vertex."""

    def where(self, mask: NDArray[np.bool_]) -> _Ends:
        """Return some of the epochs."""
        return _Ends(*(values[mask] for values in self))


def _ends(merged: EpochRows, *, end_ns: int, lives: Mapping[int, Life]) -> _Ends:
    """Return who ended each epoch first, and how many did or need not."""
    ended = merged.where(merged.end_ns != NEVER)
    # A worker that did nothing more when the epoch ended did not close it.
    rested = ended.work_ns < ended.end_ns
    ended = ended.where(np.lexsort((ended.worker, rested, ended.end_pos == NEVER, ended.end_ns, ended.epoch)))
    epoch, first, workers = np.unique(ended.epoch, return_index=True, return_counts=True)
    ends = _Ends(epoch, workers, ended.end_ns[first], ended.worker[first], ended.end_pos[first])
    # A worker that was not born yet, or had exited, need not have ended an epoch.
    for worker, life in lives.items():
        exit_ns = end_ns if life.exit_ns is None else life.exit_ns
        absent = (ends.end_ns < life.begin_ns) | (ends.end_ns > exit_ns)
        workers += absent & ~np.isin(epoch, ended.epoch[ended.worker == worker])
    return ends


def _counted(merged: EpochRows, epochs: I64) -> tuple[I64, I64, I64]:
    """Return, per window, its first and its last event, -1 where it has none, and how many there are."""
    places = np.clip(np.searchsorted(epochs, merged.epoch), 0, len(epochs) - 1)
    entry, exit_, events = (np.full(len(epochs), absent, np.int64) for absent in (_EVER, -1, 0))
    np.minimum.at(entry, places, merged.entry_ns)
    np.maximum.at(exit_, places, merged.exit_ns)
    np.add.at(events, places, merged.events)
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
        # Without a type Arrow looks for libraries of dates that Python objects may be of, at each call.
        "role": pa.array([str(role) for role in windows.role], pa.string()),
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
