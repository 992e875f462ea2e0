"""What threads work on in a window: the own time of operators, and what else there is in the threads' lives.

Definitions: `docs/model.md`, section "Advice"; after Tang and Gedik (2013) 3.1.1 and 6, measured and not sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.model.enums import COUNTED_TYPES, MESSAGE_TYPES, ActivityType
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pag_graph.graph.tiling import Tiling

    I64 = NDArray[np.int64]
    Bools = NDArray[np.bool_]

RUNTIME = -1
"""Stands for the operator of time that belongs to none."""


class Bounds(NamedTuple):
    """A number that is known, or lies in an interval."""

    low: float
    likely: float
    high: float


class LocalRows(NamedTuple):
    """Local edges of a window, in the order of their threads."""

    src: I64
    """Vertex at which it starts, also where that is before the window."""
    worker: I64
    operator: I64
    """Innermost operator; `RUNTIME` for none."""
    activation: I64
    records: I64
    """Records read in the activation, on its first edge; 0 elsewhere."""
    inside: I64
    """Nanoseconds inside the window."""
    counted: Bools
    """Whether the thread is utilised."""
    unknown: Bools
    """Whether nobody knows."""


def local_rows(tiling: Tiling) -> LocalRows:
    """Return the local edges that a window shows.

    Parameters
    ----------
    tiling
        Edges that touch one window of a run with aligned clocks.
    """
    [window] = tiling.windows
    start, took = tiling.number("start_ns"), tiling.number("duration_ns")
    inside_ns = np.minimum(start + took, window.end_ns) - np.maximum(start, window.start_ns)
    rows = np.flatnonzero(~tiling.is_type(*MESSAGE_TYPES) & (inside_ns > 0))
    src = tiling.number("src")[rows]
    return LocalRows(
        src=src,
        worker=src >> POSITION_BITS,
        operator=tiling.number("operator")[rows],
        activation=tiling.number("activation")[rows],
        records=np.maximum(tiling.number("records")[rows], 0),
        inside=inside_ns[rows],
        counted=tiling.is_type(*COUNTED_TYPES)[rows],
        unknown=tiling.is_type(ActivityType.UNKNOWN)[rows],
    )


@dataclass(frozen=True, kw_only=True)
class ThreadWork:
    """The threads of a window, and their time by innermost operator."""

    rows: LocalRows
    """All their edges; the operator as far as operators are told apart."""

    def _sums(self, chosen: Bools) -> dict[int, int]:
        rows = self.rows
        summed = np.zeros(int(rows.worker.max(initial=-1)) + 1, np.int64)
        np.add.at(summed, rows.worker[chosen], rows.inside[chosen])
        return {int(worker): int(summed[worker]) for worker in np.unique(rows.worker)}

    @cached_property
    def life(self) -> Mapping[int, int]:
        """Per thread: nanoseconds of its life inside the window, T(t)."""
        return self._sums(np.ones(len(self.rows.src), np.bool_))

    @cached_property
    def longest_ns(self) -> int:
        """The longest life, which is that of a new thread; at least 1."""
        return max(self.life.values(), default=0) or 1

    @cached_property
    def recorded(self) -> tuple[int, ...]:
        """Threads of which anything is recorded, ascending: their time is not all `unknown`."""
        return tuple(worker for worker, life in self.life.items() if self.unknown[worker] < life)

    @property
    def life_shares(self) -> dict[int, float]:
        """Per thread: its life as a share of the longest; 0 where nothing is recorded of it, as it may do nothing."""
        return {
            worker: life / self.longest_ns if worker in self.recorded else 0.0 for worker, life in self.life.items()
        }

    @cached_property
    def counted(self) -> Mapping[int, int]:
        """Per thread: nanoseconds in which it is utilised, mu(t) T(t)."""
        return self._sums(self.rows.counted)

    @cached_property
    def unknown(self) -> Mapping[int, int]:
        """Per thread: nanoseconds in which nobody knows what it did."""
        return self._sums(self.rows.unknown)

    @cached_property
    def own(self) -> pl.DataFrame:
        """One row per operator and thread: ``operator``, ``worker``, ``own_ns`` with it innermost, and ``records``."""
        rows = self.rows
        columns = {"operator": rows.operator, "worker": rows.worker, "records": rows.records}
        rows_own = pl.DataFrame({**columns, "own_ns": np.where(rows.counted, rows.inside, 0)})
        return rows_own.group_by("operator", "worker").sum().sort("operator", "worker")

    @property
    def busy(self) -> dict[int, Bounds]:
        """Per thread: mu(t). What nobody knows may have been work."""
        return {
            worker: Bounds(
                self.counted[worker] / life, self.counted[worker] / life, (self.counted[worker] + unknown) / life
            )
            for worker, life in self.life.items()
            for unknown in [self.unknown[worker]]
        }

    @property
    def coverage(self) -> float:
        """The share of all threads' time of which it is known what they did."""
        life = sum(self.life.values())
        return 1 - sum(self.unknown.values()) / life if life else 1.0
