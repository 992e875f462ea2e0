"""What must be known of a whole log of SnailTrail 2 before its events are written.

The workers and channels that occur, and what the log lacks: rows by their numbers, starts and stops of activations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.model.enums import EventKind, Severity
from pag_graph.store.findings import findings

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_DEEPEST = 1 << 14
"""Activations of a worker that are open at the end of a piece and remembered."""


class _Activations(NamedTuple):
    """Starts (step 1) and stops (-1) of activations, in the order of the log."""

    step: NDArray[np.int8]
    operator: NDArray[np.int64]
    seq: NDArray[np.int64]


class Survey:
    """What must be known of a log before its events are written, piece by piece; refuses rows that are no events."""

    def __init__(self, source: Path, *, numbered: bool) -> None:
        self._source = source
        self._numbered = numbered
        self._numbers = pl.DataFrame(schema={"worker": pl.Int64, "rows": pl.Int64, "last": pl.Int64})
        self._firsts: dict[int, pl.DataFrame] = {}
        self._open: dict[int, _Activations] = {}
        self._broken: dict[int, tuple[int, int]] = {}
        self._forgotten: dict[int, tuple[int, int]] = {}
        self.channels: set[int] = set()
        self.operators: set[int] = set()

    def add_numbers(self, frame: pl.DataFrame) -> None:
        """Take the numbers of rows, whatever they are: SnailTrail numbers those of a worker 1, 2, 3 and so on."""
        counted = frame.group_by("worker").agg(rows=pl.len().cast(pl.Int64), last=pl.col("seq_no").max())
        all_numbers = pl.concat([self._numbers, counted.filter(pl.col("worker").is_not_null())])
        self._numbers = all_numbers.group_by("worker").agg(pl.col("rows").sum(), pl.col("last").max())

    def add(self, part: list[pl.DataFrame]) -> None:
        """Take events of the next rows, apart by worker."""
        for worker_events in part:
            self._firsts.setdefault(worker_of(worker_events), worker_events.head(1).drop("row"))
            message = worker_events["kind"].is_in([EventKind.SEND.value, EventKind.RECEIVE.value])
            self.channels |= set(worker_events["channel"].filter(message).unique().to_list())
            self.operators |= set(worker_events["operator"].drop_nulls().unique().to_list())
            self._add_activations(worker_of(worker_events), worker_events)

    def _add_activations(self, worker: int, events: pl.DataFrame) -> None:
        """Pair starts with stops: in a log that lost nothing each stop is of the operator that was started last."""
        starts = events["kind"] == EventKind.START.value
        is_activation = starts | (events["kind"] == EventKind.STOP.value)
        rows = _Activations(
            (starts.filter(is_activation).cast(pl.Int8) * 2 - 1).to_numpy(),
            events["operator"].filter(is_activation).to_numpy(),
            events["seq"].filter(is_activation).to_numpy(),
        )
        if (open_before := self._open.get(worker)) is not None:
            # Activations that are still open come before the new rows.
            rows = _Activations(
                np.concatenate((open_before.step, rows.step)),
                np.concatenate((open_before.operator, rows.operator)),
                np.concatenate((open_before.seq, rows.seq)),
            )
        depth = np.cumsum(rows.step, dtype=np.int64) - np.minimum(rows.step, 0)
        # At each depth starts and stops alternate, whatever lies deeper.
        small = len(depth) < 1 << 15 or (depth.min() > -(1 << 15) and depth.max() < 1 << 15)
        order = np.argsort(depth.astype(np.int16) if small else depth, kind="stable")
        step, operator, depth = rows.step[order], rows.operator[order], depth[order]
        is_same_depth = depth[1:] == depth[:-1]
        started = np.concatenate(([False], is_same_depth & (step[:-1] > 0)))
        stopped = np.concatenate((is_same_depth, [False]))
        is_same_operator = np.concatenate(([False], operator[1:] == operator[:-1]))
        unmatched_stops = order[(step < 0) & ~(started & is_same_operator)]
        if len(unmatched_stops):
            count, first = self._broken.get(worker, (0, int(rows.seq[unmatched_stops.min()])))
            self._broken[worker] = (count + len(unmatched_stops), first)
        open_rows = np.sort(order[(step > 0) & ~stopped])
        if (surplus := len(open_rows) - _DEEPEST) > 0:
            # No dataflow nests so deep: stops were not logged, and what began first is only counted.
            count, first = self._forgotten.get(worker, (0, int(rows.seq[open_rows[0]])))
            self._forgotten[worker] = (count + surplus, first)
            open_rows = open_rows[surplus:]
        self._open[worker] = _Activations(rows.step[open_rows], rows.operator[open_rows], rows.seq[open_rows])

    @property
    def firsts(self) -> pl.DataFrame:
        """The first event of every worker, by worker."""
        if not self._firsts:
            return pl.DataFrame(schema={"worker": pl.Int64})
        return pl.concat([self._firsts[worker] for worker in sorted(self._firsts)])

    def findings(self) -> pa.Table:
        """Return what the log lacks: numbers of rows, and starts or stops of activations; a row per worker each."""
        gaps = self._numbers.with_columns(missing=pl.col("last") - pl.col("rows")).filter(pl.col("missing") > 0)
        gaps = gaps.sort("worker") if self._numbered else gaps.clear()
        tables = [
            findings(
                "events_missing",
                Severity.ERROR,
                "built from what is there; what the missing events would have told is not known",
                rows=gaps.height,
                worker=gaps["worker"].to_list(),
                file=self._source.name,
                observed=gaps["missing"].to_list(),
                limit=0,
                unit="events",
            )
        ]
        open_activations = {
            worker: (len(rows.seq), int(rows.seq[0])) for worker, rows in self._open.items() if len(rows.seq)
        }
        for worker, (count, first) in self._forgotten.items():
            open_activations[worker] = (count + len(self._open[worker].seq), first)
        for name, severity, lacking in (
            ("stop_without_start", Severity.WARNING, self._broken),
            ("activation_not_stopped", Severity.INFO, open_activations),
        ):
            workers = sorted(lacking)
            tables.append(
                findings(
                    name,
                    severity,
                    "built as it is; `seq` is the first of `observed` events whose other end the log lacks",
                    rows=len(workers),
                    worker=workers,
                    seq=[lacking[worker][1] for worker in workers],
                    file=self._source.name,
                    observed=[lacking[worker][0] for worker in workers],
                    limit=0,
                    unit="activations",
                )
            )
        return pa.concat_tables(tables)


def worker_of(worker_events: pl.DataFrame) -> int:
    """Return the worker of events that are all of one worker."""
    return int(worker_events["worker"][0])
