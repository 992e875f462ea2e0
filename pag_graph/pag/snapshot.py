"""Windows of a committed run, and the part of the graph that each shows.

A snapshot is the projection of the run's graph on a window (CPA Def. 3.4 and 3.5): what lies inside is kept, what
crosses a border is cut there, the rest is dropped. Analyses work on snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.model.enums import LOCAL_TYPES, ActivityType, EpochRole, RuleSet
from pag_graph.store.delta import StoreInfo, open_store

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

_LOCAL = [str(kind) for kind in LOCAL_TYPES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of a run's time, open at its start: ``(start_ns, end_ns]``; only at the run's origin it is closed."""

    start_ns: int
    end_ns: int
    epoch: int | None = None
    """Epoch that the window is the round (or startup, or shutdown) of."""
    role: EpochRole | None = None
    end_vertex: int | None = None
    """Vertex that closes the window, where one is defined."""
    lowest_epoch: int = 0
    """No event at or after the window's start has a lower epoch."""

    @property
    def span_ns(self) -> int:
        """Length of the window."""
        return self.end_ns - self.start_ns

    @property
    def name(self) -> str:
        """What people call the window."""
        if self.epoch is None:
            return f"{self.start_ns}..{self.end_ns} ns"
        return str(self.role) if self.role in {EpochRole.STARTUP, EpochRole.SHUTDOWN} else f"epoch {self.epoch}"


class Run:
    """A committed run, for reading.

    Parameters
    ----------
    path
        Directory of the store.
    """

    def __init__(self, path: Path) -> None:
        self.info: StoreInfo = open_store(path)
        self._scans: dict[str, pl.LazyFrame] = {}

    @property
    def rules(self) -> RuleSet:
        """Rule set that the run was built with."""
        return RuleSet(self.info.run["rules"])

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a lazy frame over one of the store's tables, at the committed version."""
        if table not in self._scans:
            self._scans[table] = pl.scan_delta(self.info.delta(table))
        return self._scans[table]

    @cached_property
    def epochs(self) -> pl.DataFrame:
        """Rows of `PAG_EPOCHS`, in time order."""
        return self.scan("epochs").sort("epoch").collect()

    @cached_property
    def operators(self) -> pl.DataFrame:
        """Rows of `TRACE_OPERATORS`."""
        return self.scan("operators").collect()

    @cached_property
    def channels(self) -> pl.DataFrame:
        """Rows of `TRACE_CHANNELS`."""
        return self.scan("channels").collect()

    @cached_property
    def workers(self) -> list[int]:
        """Numbers of all workers, ascending."""
        return sorted(self.scan("workers").collect()["worker"].to_list())

    @property
    def end_ns(self) -> int:
        """The run's end."""
        return int(self.info.run["end_ns"])

    def window(
        self, *, epoch: int | None = None, role: EpochRole | None = None, between: tuple[int, int] | None = None
    ) -> Window:
        """Return the window of an epoch, of the startup or shutdown, or a free one.

        Parameters
        ----------
        epoch
            Number of the epoch, as in the `epochs` table.
        role
            ``startup`` or ``shutdown``, instead.
        between
            Start and end in nanoseconds from the run's origin, instead.

        Returns
        -------
        Window
            O(epochs).

        Raises
        ------
        InvalidParameterError
            If there is no such window; the message says which there are.
        UnsupportedPlanError
            If a free window is asked for and the run's clocks are not aligned.
        """
        if between is not None:
            return self._free(*between)
        wanted = pl.col("epoch") == epoch if role is None else pl.col("role") == str(role)
        rows = self.epochs.filter(wanted).to_dicts()
        if not rows:
            known = self.epochs["epoch"].to_list()
            what = f"epoch {epoch}" if role is None else str(role)
            message = f"{self.info.path} has no {what}; it has epochs {known[0]} to {known[-1]}."
            raise InvalidParameterError(message, f"List them: `pag info {self.info.path}`.", {"epoch": epoch})
        row = rows[0]
        return self._labelled(
            row["start_ns"],
            row["end_ns"],
            epoch=row["epoch"],
            role=EpochRole(row["role"]),
            end_vertex=row["end_vertex"],
        )

    def windows(self) -> list[Window]:
        """Return the windows of all epochs, in time order."""
        return [self.window(epoch=epoch) for epoch in self.epochs["epoch"].to_list()]

    def slowest(self) -> Window:
        """Return the longest round (ties: the first); startup or shutdown only where the run has no round."""
        rounds = self.epochs.filter(pl.col("role") == str(EpochRole.ROUND))
        ranked = (rounds if rounds.height else self.epochs).with_columns(span=pl.col("end_ns") - pl.col("start_ns"))
        return self.window(epoch=ranked.sort("span", "epoch", descending=[True, False])["epoch"][0])

    def _free(self, start_ns: int, end_ns: int) -> Window:
        if self.rules is RuleSet.ST2:
            message = "Free windows need aligned clocks, and runs of the rule set st2 keep every worker's own."
            raise UnsupportedPlanError(message, "Ask for an epoch, or build the trace with `--rules timely`.")
        if not 0 <= start_ns < end_ns <= self.end_ns:
            message = f"The window {start_ns}..{end_ns} ns does not lie in the run, which goes from 0 to {self.end_ns}."
            raise InvalidParameterError(message)
        return self._labelled(start_ns, end_ns)

    def _labelled(self, start_ns: int, end_ns: int, **more: Any) -> Window:
        """Bound the epochs that events in the window can have, so that files without them are not read."""
        if self.rules is RuleSet.ST2:
            return Window(start_ns=start_ns, end_ns=end_ns, **more)
        # A row stands for all epochs after the row before it: those that nobody ended have none of their own.
        lowest = self.epochs.with_columns(lowest=pl.col("epoch").shift(1, fill_value=-1) + 1)
        after = lowest.filter(pl.col("exit_ns") >= start_ns)["lowest"].to_list()
        return Window(start_ns=start_ns, end_ns=end_ns, lowest_epoch=min(after, default=0), **more)

    def snapshot(self, window: Window) -> Snapshot:
        """Read the part of the graph that a window shows.

        Parameters
        ----------
        window
            From `window`.

        Returns
        -------
        Snapshot
            Reads only files and row groups that can hold edges of the window.
        """
        edges = self.scan("edges")
        if self.rules is RuleSet.ST2:
            edges = edges.filter(pl.col("epoch") == window.epoch)
        else:
            # A message with negative transfer ends before it starts; it is in the window if either end is. Comparing
            # plain columns first lets whole row groups be skipped.
            near = (pl.col("epoch") >= window.lowest_epoch) & (pl.col("start_ns") <= window.end_ns)
            end = pl.col("start_ns") + pl.col("duration_ns")
            begins = pl.max_horizontal("start_ns", end) > window.start_ns if window.start_ns else pl.lit(value=True)
            ends = pl.min_horizontal("start_ns", end) <= window.end_ns
            edges = edges.filter(near | (pl.col("duration_ns") < 0), begins, ends)
        return Snapshot(run=self, window=window, edges=edges.collect())


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The edges that a window shows, as stored; analyses cut them at its borders."""

    run: Run
    window: Window
    edges: pl.DataFrame
    """Rows of `PAG_EDGES` that touch the window."""

    @cached_property
    def local(self) -> pl.DataFrame:
        """Edges that stay on a worker, sorted by `dst`, with ``end_ns``."""
        return (
            self.edges.filter(pl.col("type").is_in(_LOCAL))
            .with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
            .sort("dst")
        )

    @cached_property
    def messages(self) -> pl.DataFrame:
        """Edges between workers, sorted by `dst`, with ``end_ns``."""
        return (
            self.edges.filter(~pl.col("type").is_in(_LOCAL))
            .with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
            .sort("dst", "src")
        )

    @cached_property
    def enders(self) -> pl.DataFrame:
        """Messages that ended the window's waits, sorted by `dst`; also those read after the window."""
        waits = self.local.filter(pl.col("type") == str(ActivityType.WAITING))["dst"]
        known = self.messages.filter(pl.col("dst").is_in(waits.implode()))
        missing = waits.filter(~waits.is_in(known["dst"].implode()))
        if missing.len() and self.run.rules is not RuleSet.ST2:
            later = self.run.scan("edges").filter(
                pl.col("epoch") >= self.window.lowest_epoch, pl.col("dst").is_in(missing.implode())
            )
            later = later.filter(~pl.col("type").is_in(_LOCAL)).with_columns(
                end_ns=pl.col("start_ns") + pl.col("duration_ns")
            )
            known = pl.concat([known, later.collect()])
        return known.sort("dst", "src")

    def vertices(self) -> pa.Table:
        """Return the vertices that the edges touch, rows of `PAG_VERTICES` sorted by `id`."""
        ids = pl.concat([self.edges["src"], self.edges["dst"]]).unique()
        # A message can lead into a lower epoch: workers are not in step.
        epochs = pl.concat([self.edges["src_epoch"], self.edges["epoch"]])
        near = self.run.scan("vertices").filter(pl.col("epoch").is_between(epochs.min(), epochs.max()))
        return near.join(pl.LazyFrame({"id": ids}), on="id", how="semi").sort("id").collect().to_arrow()
