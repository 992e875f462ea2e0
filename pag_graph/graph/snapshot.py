"""Windows of a committed run, and the part of the graph that each shows.

A snapshot is the projection of the run's graph on a window (CPA Def. 3.4 and 3.5): what lies inside is kept, what
crosses a border is cut there, the rest is dropped. Analyses work on snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.graph.peers import peers_of, time_in_operators
from pag_graph.model.enums import LOCAL_TYPES, ActivityType, EpochRole, RuleSet
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.units import printable
from pag_graph.store.readers import open_held

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.graph.tiling import Tiling

_LOCAL = [str(kind) for kind in LOCAL_TYPES]
STRETCH = 1_000_000
"""About how many edges are read at once where many windows are."""
_MOST_WINDOWS = 100_000
"""Windows of a series: each costs a look at the edges of all."""
_DENSE = 4
FEWEST = 100_000
"""Edges for which another task is worth its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of a run's time, open at its start: ``(start_ns, end_ns]``; only at the run's origin it is closed.

    Where the first round has no length, the origin is all that it holds, and the one after it is open there as well.
    """

    start_ns: int
    end_ns: int
    epoch: int | None = None
    """Epoch that the window is the round (or startup, or shutdown) of; without a role, its latency window."""
    role: EpochRole | None = None
    end_vertex: int | None = None
    """Vertex that closes the window, where one is defined."""
    lowest_epoch: int = 0
    """No event at or after the window's start has a lower epoch."""
    follows: bool = False
    """Whether an epoch's window lies before this one: the first may have no length, and then holds just the origin."""
    alone: bool = False
    """Whether the run has no round but its startup, which then is known by its epoch."""

    @property
    def after_ns(self) -> int:
        """All instants of the window, and no earlier ones, are later than this one."""
        return self.start_ns - (self.start_ns == 0 and not self.follows)

    def holds(self, t_ns: Any) -> Any:
        """Return the condition that an instant lies in the window, for a number or an expression of any engine."""
        return (t_ns > self.after_ns) & (t_ns <= self.end_ns)

    @property
    def span_ns(self) -> int:
        """Length of the window."""
        return self.end_ns - self.start_ns

    @property
    def name(self) -> str:
        """What people call the window."""
        if self.epoch is None:
            return f"{self.start_ns}..{self.end_ns} ns"
        if self.role is None:
            return f"latency of epoch {self.epoch}"
        if self.role is EpochRole.SHUTDOWN or (self.role is EpochRole.STARTUP and not self.alone):
            return str(self.role)
        return f"epoch {self.epoch}"


def whole_number(value: Any, name: str) -> int:
    """Return a whole number that somebody gave, such as an epoch.

    Raises
    ------
    InvalidParameterError
        If it is none.
    """
    # Numbers of NumPy and Arrow are whole numbers too; a truth value is not meant to be one.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        message = f"{name} is {value!r}, and must be a whole number."
        raise InvalidParameterError(message, None, {name: value})
    return index(value)


def _two_instants(between: Any) -> tuple[int, int]:
    """Return the ends of a free window.

    Raises
    ------
    InvalidParameterError
        If they are not two whole numbers.
    """
    if isinstance(between, str) or not hasattr(between, "__len__") or len(between) != 2:  # noqa: PLR2004
        message = f"between is {between!r}, and must be two instants in nanoseconds from the run's origin."
        raise InvalidParameterError(message, "Such as between=(5_000_000, 7_500_000).")
    return whole_number(between[0], "between"), whole_number(between[1], "between")


class Run:
    """A committed run, for reading.

    Parameters
    ----------
    path
        Directory of the store.
    """

    def __init__(self, path: Path) -> None:
        # The hold keeps the version's files from being cleaned away while somebody reads them.
        self.info, self._hold = open_held(path)
        self._scans: dict[str, pl.LazyFrame] = {}

    @property
    def rules(self) -> RuleSet:
        """Rule set that the run was built with."""
        return RuleSet(self.info.run["rules"])

    def scan(self, table: str, near: pl.Expr | None = None) -> pl.LazyFrame:
        """Return a lazy frame over one of the store's tables, as committed (see `StoreInfo.scan`)."""
        # Of a table that was asked for whole, all files are checked.
        if table in self._scans:
            return self._scans[table]
        frame = self.info.scan(table, near)
        if near is None:
            self._scans[table] = frame
        return frame

    def between(self, table: str, low: int, high: int) -> pl.LazyFrame:
        """Return the rows of a table with a column `epoch` that is between two numbers, both included."""
        return self.scan(table, epochs_between(low, high)).filter(pl.col("epoch").is_between(low, high))

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

    @cached_property
    def worker_names(self) -> dict[int, str]:
        """What people call the workers that have a name, as it can be printed."""
        rows = self.scan("workers").collect()
        named = rows.drop_nulls("name").select("worker", "name").iter_rows() if "name" in rows.columns else ()
        return {worker: printable(name) for worker, name in named if name}

    def worker_label(self, worker: int) -> str:
        """Return how to speak of a worker: ``window-0 (worker 3)``, or ``worker 3`` where it has no name."""
        name = self.worker_names.get(worker)
        return f"worker {worker}" if name is None else f"{name} (worker {worker})"

    @cached_property
    def peers(self) -> dict[int, int]:
        """Per worker: the lowest of those that it can be compared with, because they run the same (see `peers_of`).

        Where the source does not state what its workers do, they all run one dataflow.
        """
        if self.rules is not RuleSet.STATED:
            return dict.fromkeys(self.workers, self.workers[0])
        return peers_of(self.workers, time_in_operators(self.scan("edges")))

    def peer_group(self, worker: int) -> list[int]:
        """Return the workers that a worker can be compared with, itself included, ascending."""
        return [other for other, group in self.peers.items() if group == self.peers[worker]]

    @property
    def unlike(self) -> bool:
        """Whether there are workers that cannot be compared with each other."""
        return len(set(self.peers.values())) > 1

    @property
    def end_ns(self) -> int:
        """The run's end."""
        return int(self.info.run["end_ns"])

    def window(
        self,
        *,
        epoch: int | None = None,
        role: EpochRole | str | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
    ) -> Window:
        """Return the window of an epoch, of the startup or shutdown, a free one, or an epoch's latency window.

        Parameters
        ----------
        epoch
            Number of the epoch, as in the `epochs` table.
        role
            ``startup`` or ``shutdown``, instead.
        between
            Start and end in nanoseconds from the run's origin, instead.
        latency
            Number of an epoch, instead: from its first event on any worker to its last. Such windows overlap where
            workers are not in step, so they are never summed.

        Returns
        -------
        Window
            O(epochs).

        Raises
        ------
        InvalidParameterError
            If there is no such window, or it has no length; the message says which there are.
        UnsupportedPlanError
            If a free window is asked for and the run's clocks are not aligned.
        """
        if between is not None:
            return self._free(*_two_instants(between))
        if latency is not None:
            return self._latency(whole_number(latency, "latency"))
        if epoch is not None:
            whole_number(epoch, "epoch")
        if role is not None and str(role) not in set(EpochRole):
            message = f"role is {role!r}, and must be {' or '.join(EpochRole)}."
            raise InvalidParameterError(message)
        row = self._row(epoch, role)
        return self._labelled(
            row["start_ns"],
            row["end_ns"],
            epoch=row["epoch"],
            role=EpochRole(row["role"]),
            end_vertex=row["end_vertex"],
            follows=row["epoch"] != self.epochs["epoch"][0],
            alone=self._one_round,
        )

    def windows(self) -> list[Window]:
        """Return the windows of all epochs, in time order."""
        rows = self.epochs.with_columns(lowest=self._lowest_epochs(self.epochs["start_ns"].to_numpy()))
        return [
            Window(
                start_ns=row["start_ns"],
                end_ns=row["end_ns"],
                epoch=row["epoch"],
                role=EpochRole(row["role"]),
                end_vertex=row["end_vertex"],
                lowest_epoch=row["lowest"],
                follows=number > 0,
                alone=self._one_round,
            )
            for number, row in enumerate(rows.iter_rows(named=True))
        ]

    def series(
        self, every_ns: int, *, step_ns: int | None = None, between: tuple[int, int] | None = None
    ) -> list[Window]:
        """Return windows of one length, side by side or sliding.

        Parameters
        ----------
        every_ns
            Length of a window.
        step_ns
            From one window's start to the next one's; the length where absent, so that they tile. Shorter, they
            overlap; longer, they are samples.
        between
            Start and end of the stretch to look at, in nanoseconds from the run's origin; the run where absent.

        Returns
        -------
        list of Window
            In time order. The first that would reach beyond the stretch's end is cut there, and is the last.

        Raises
        ------
        InvalidParameterError
            If the stretch does not lie in the run, a length is not positive, or there would be more than 100,000
            windows.
        UnsupportedPlanError
            If the run's clocks are not aligned.
        """
        step = every_ns if step_ns is None else step_ns
        if every_ns < 1 or step < 1:
            message = f"Windows of {every_ns} ns, every {step} ns: both must be at least 1 ns."
            raise InvalidParameterError(message)
        whole = self._free(*(between or (0, self.end_ns)))
        # The first start whose window reaches the end is the last one.
        starts = range(whole.start_ns, min(whole.end_ns, max(whole.end_ns - every_ns, whole.start_ns) + step), step)
        if len(starts) > _MOST_WINDOWS:
            message = f"That makes {len(starts):,} windows; at most {_MOST_WINDOWS:,} are made."
            raise InvalidParameterError(message, "Ask for longer steps, or a shorter stretch.")
        return [self._labelled(start, min(start + every_ns, whole.end_ns)) for start in starts]

    @cached_property
    def _one_round(self) -> bool:
        return not (self.epochs["role"] == str(EpochRole.ROUND)).any()

    def slowest(self) -> Window:
        """Return the longest round (ties: the first); startup or shutdown only where the run has no round."""
        rounds = self.epochs.filter(pl.col("role") == str(EpochRole.ROUND))
        ranked = (rounds if rounds.height else self.epochs).with_columns(span=pl.col("end_ns") - pl.col("start_ns"))
        return self.window(epoch=ranked.sort("span", "epoch", descending=[True, False])["epoch"][0])

    def _row(self, epoch: int | None, role: EpochRole | str | None) -> dict[str, Any]:
        wanted = pl.col("epoch") == epoch if role is None else pl.col("role") == str(role)
        rows = self.epochs.filter(wanted).to_dicts()
        if not rows:
            known = self.epochs["epoch"].to_list()
            what = f"epoch {epoch}" if role is None else str(role)
            message = f"{self.info.path} has no {what}; it has epochs {known[0]} to {known[-1]}."
            raise InvalidParameterError(message, f"List them: `pag info {self.info.path}`.", {"epoch": epoch})
        return rows[0]

    def _latency(self, epoch: int) -> Window:
        row = self._row(epoch, None)
        start, end = row["entry_ns"], row["exit_ns"]
        if start is None or start == end:
            events = "no event" if start is None else "all its events at one instant"
            message = f"Epoch {epoch} has {events}, and so no latency window."
            raise InvalidParameterError(message, f"Ask for its round: `--epoch {epoch}`.", {"epoch": epoch})
        return self._labelled(start, end, epoch=epoch)

    def _free(self, start_ns: int, end_ns: int) -> Window:
        if self.rules is RuleSet.ST2:
            message = "Free windows need aligned clocks, and runs of the rule set st2 keep every worker's own."
            raise UnsupportedPlanError(message, "Ask for an epoch, or build the trace with `--rules timely`.")
        if not 0 <= start_ns < end_ns <= self.end_ns:
            message = f"The window {start_ns}..{end_ns} ns does not lie in the run, which goes from 0 to {self.end_ns}."
            raise InvalidParameterError(message)
        return self._labelled(start_ns, end_ns)

    def _labelled(self, start_ns: int, end_ns: int, **more: Any) -> Window:
        lowest = self._lowest_epochs(np.array([start_ns]))
        return Window(start_ns=start_ns, end_ns=end_ns, lowest_epoch=int(lowest[0]), **more)

    def _lowest_epochs(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bound the epochs that events at or after some instants can have, so that files without them are not read."""
        if self.rules is RuleSet.ST2:
            return np.zeros(len(starts), np.int64)
        # A row stands for all epochs after the row before it: those that nobody ended have none of their own.
        lowest = self.epochs.select("exit_ns", lowest=pl.col("epoch").shift(1, fill_value=-1) + 1)
        left = lowest.drop_nulls().sort("exit_ns", descending=True)
        # Row n: the lowest epoch of the n events of epochs that are left last.
        least = np.append(0, np.minimum.accumulate(left["lowest"].to_numpy()))
        count = np.searchsorted(-left["exit_ns"].to_numpy(), -starts, side="right")
        return np.asarray(least[count], dtype=np.int64)

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
        if self.rules is RuleSet.ST2:
            epoch = window.epoch or 0
            edges = self.between("edges", epoch, epoch)
        else:
            edges = self.scan("edges", can_touch(window.lowest_epoch, window.end_ns, window.after_ns))
            edges = edges.filter(_touches(window))
        return Snapshot(run=self, window=window, edges=edges.collect())

    def snapshots(self, windows: Sequence[Window]) -> Iterator[Snapshot]:
        """Read once what many windows show together, and yield the snapshot of each.

        Parameters
        ----------
        windows
            From `series`, or any others.

        Yields
        ------
        Snapshot
            One per window, in their order; the same as `snapshot` gives. Memory holds some windows at a time.
        """
        for part in self.stretches(windows):
            if self.rules is RuleSet.ST2:
                yield from self._of_epochs(part)
                continue
            starts, ends = (np.array([getattr(w, name) for w in part]) for name in ("after_ns", "end_ns"))
            if np.any(np.diff(starts) < 0) or np.any(np.diff(ends) < 0):
                yield from map(self.snapshot, part)
                continue
            from pag_graph.kernels.arranging import spread
            from pag_graph.kernels.replay import group_arcs

            wide = self.snapshot(self._labelled(part[0].start_ns, int(ends[-1])))
            start = wide.edges["start_ns"].to_numpy()
            end = start + wide.edges["duration_ns"].to_numpy()
            # As `_touches` has it.
            first = np.searchsorted(ends, np.minimum(start, end))
            edge, place = spread(first, np.searchsorted(starts, np.maximum(start, end)) - 1)
            begins, order = group_arcs(place, len(part))
            rows = edge[order]
            for number, window in enumerate(part):
                edges = wide.edges[rows[begins[number] : begins[number + 1]]]
                yield Snapshot(run=self, window=window, edges=edges, within=wide)

    def _of_epochs(self, windows: Sequence[Window]) -> Iterator[Snapshot]:
        from pag_graph.kernels.replay import group_arcs

        epochs = np.array([window.epoch for window in windows], np.int64)
        edges = (
            self.between("edges", int(epochs.min()), int(epochs.max())).filter(pl.col("epoch").is_in(epochs)).collect()
        )
        first, order = group_arcs(places(epochs, edges["epoch"].to_numpy()), len(windows))
        for number, window in enumerate(windows):
            yield Snapshot(run=self, window=window, edges=edges[order[first[number] : first[number + 1]]])

    def stretches(
        self, windows: Sequence[Window], edges: int = STRETCH, *, tasks: int = 1
    ) -> Iterator[Sequence[Window]]:
        """Divide windows into lists of neighbours that show about so many edges together, one window at least.

        Where that gives fewer than `tasks` lists they are shorter, though not by much where there is little to do.
        """
        there = int(self.epochs["edges"].sum()) or 1
        edges = min(edges, max(FEWEST, -(-there // tasks)))
        share = max(1, self.end_ns) * edges / there
        begin = 0
        while begin < len(windows):
            end = begin + 1
            while end < len(windows) and windows[end].end_ns - windows[begin].start_ns <= share:
                end += 1
            yield windows[begin:end]
            begin = end


def places(known: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where numbers are in a list of different ones, -1 where they are not."""
    low = int(known.min())
    if int(known.max()) - low <= _DENSE * (len(known) + len(wanted)):
        # Epochs mostly count on by one: a table of all of them takes a quarter of the time of a search.
        table = np.full(int(known.max()) - low + 2, -1)
        table[known - low] = np.arange(len(known))
        return table[np.clip(wanted, low - 1, int(known.max()) + 1) - low]
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    return np.where(known[order[at]] == wanted, order[at], -1)


def epochs_between(low: int, high: int) -> pl.Expr:
    """Say of a file whether it can hold rows of some epochs."""
    return (pl.col("max_epoch") >= low) & (pl.col("min_epoch") <= high)


def can_touch(lowest_epoch: int, end_ns: int, after_ns: int = -1) -> pl.Expr:
    """Say of a file of edges whether any of them can touch a stretch of time (see `_touches`)."""
    near = (pl.col("max_epoch") >= lowest_epoch) & (pl.col("min_start_ns") <= end_ns)
    lasts = pl.max_horizontal("max_duration_ns", 0)
    return (near | (pl.col("min_duration_ns") < 0)) & (pl.col("max_start_ns") + lasts > after_ns)


def _touches(window: Window) -> pl.Expr:
    """Say of edges whether a window of a run with aligned clocks shows any of them."""
    # A message with negative transfer ends before it starts; it is in the window if either end is. Comparing plain
    # columns first lets whole row groups be skipped.
    near = (pl.col("epoch") >= window.lowest_epoch) & (pl.col("start_ns") <= window.end_ns)
    end = pl.col("start_ns") + pl.col("duration_ns")
    begins = pl.max_horizontal("start_ns", end) > window.after_ns if window.after_ns >= 0 else pl.lit(value=True)
    ends = pl.min_horizontal("start_ns", end) <= window.end_ns
    return (near | (pl.col("duration_ns") < 0)) & begins & ends


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The edges that a window shows, as stored; analyses cut them at its borders."""

    run: Run
    window: Window
    edges: pl.DataFrame
    """Rows of `PAG_EDGES` that touch the window."""
    within: Snapshot | None = None
    """A snapshot of a wider window that is in memory already."""

    @cached_property
    def tiling(self) -> Tiling:
        """The edges as kernels walk them."""
        from pag_graph.graph.tiling import tile

        return tile(self, "touches")

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
        if self.within is not None:
            known = self.within.messages.filter(pl.col("dst").is_in(waits.implode()))
        missing = waits.filter(~waits.is_in(known["dst"].implode()))
        if missing.len() and self.run.rules is not RuleSet.ST2:
            lowest = self.window.lowest_epoch
            later = self.run.scan("edges", pl.col("max_epoch") >= lowest).filter(
                pl.col("epoch") >= lowest, pl.col("dst").is_in(missing.implode())
            )
            later = later.filter(~pl.col("type").is_in(_LOCAL)).with_columns(
                end_ns=pl.col("start_ns") + pl.col("duration_ns")
            )
            known = pl.concat([known, later.collect()])
        return known.sort("dst", "src")

    def projection(self) -> pl.DataFrame:
        """Cut the edges at the window's borders (CPA Def. 3.4).

        Returns
        -------
        DataFrame
            One row per edge of which the window shows anything, sorted by `dst` and `src`: the columns of `PAG_EDGES`,
            and ``edge_src`` and ``edge_dst``, the edge's own ends. Where a border cuts it, `src` is ``-1 - 2 * worker``
            and `dst` ``-2 - 2 * worker``: one vertex per worker at the window's start and one at its end. A cut that
            leaves nothing leaves no edge; what has no length at the window's start belongs to the window before. A
            message that was read before it was sent is kept only where no border cuts it.

        Raises
        ------
        UnsupportedPlanError
            If the run's clocks are not aligned.
        """
        if self.run.rules is RuleSet.ST2:
            message = "Edges are cut at instants of one clock, and runs of the rule set st2 keep every worker's own."
            raise UnsupportedPlanError(message, "Build the trace with `--rules timely`.")
        low, high = pl.lit(self.window.start_ns), pl.lit(self.window.end_ns)
        end = pl.col("start_ns") + pl.col("duration_ns")
        before, after = pl.min_horizontal("start_ns", end) < low, pl.max_horizontal("start_ns", end) > high
        from_, to = pl.max_horizontal("start_ns", low), pl.min_horizontal(end, high)
        worker = 1 << POSITION_BITS
        cut = self.edges.with_columns(
            edge_src="src",
            edge_dst="dst",
            src=pl.when(before).then(-1 - 2 * (pl.col("src") // worker)).otherwise("src"),
            dst=pl.when(after).then(-2 - 2 * (pl.col("dst") // worker)).otherwise("dst"),
            start_ns=pl.when(pl.col("duration_ns") < 0).then("start_ns").otherwise(from_),
            duration_ns=pl.when(pl.col("duration_ns") < 0).then("duration_ns").otherwise(to - from_),
        )
        # Against the borders the uncut columns are compared: all expressions above read them too.
        kept = self.edges.select((~before & ~after) | ((pl.col("duration_ns") >= 0) & (to > from_))).to_series()
        return cut.filter(kept).sort("dst", "src", "edge_dst", "edge_src")

    def vertices(self) -> pa.Table:
        """Return the vertices that the edges touch, rows of `PAG_VERTICES` sorted by `id`."""
        ids = pl.concat([self.edges["src"], self.edges["dst"]]).unique()
        # A message can lead into a lower epoch: workers are not in step.
        epochs = pl.concat([self.edges["src_epoch"], self.edges["epoch"]]).to_numpy()
        if not len(epochs):
            return self.run.scan("vertices").head(0).collect().to_arrow()
        near = self.run.between("vertices", int(epochs.min()), int(epochs.max()))
        return near.join(pl.LazyFrame({"id": ids}), on="id", how="semi").sort("id").collect().to_arrow()
