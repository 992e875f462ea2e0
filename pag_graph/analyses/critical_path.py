"""The critical path: the chain of activities that the window's length is made of.

Definitions: CPA (Sager 2016) 3.4 and Theorem 3.13 (every such path is as long as the window), 5.3.1 (prefer the
worker's own edge; follow a message only where a wait ended); `docs/model.md`, section "Critical path".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.analyses.contraction import contract, expanded
from pag_graph.analyses.definition import Chart, ReportAnalysis, Standing
from pag_graph.analyses.expressions import UNKNOWN, WAITING, worker_of
from pag_graph.analyses.reports import Report
from pag_graph.analyses.result_tables import typed_table
from pag_graph.analyses.view import view_of
from pag_graph.errors import CycleError, PagError
from pag_graph.graph.needs import Needs
from pag_graph.graph.tiling import TYPES
from pag_graph.kernels import path as kernel
from pag_graph.kernels.compiling import read_only
from pag_graph.model.enums import MESSAGE_TYPES, RESTING_TYPES, ActivityType
from pag_graph.model.ids import position_of
from pag_graph.model.ids import worker_of as worker_of_id
from pag_graph.model.tables import CRITICAL_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.analyses.view import View
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.tiling import Tiling
    from pag_graph.graph.window import Window

    I64 = NDArray[np.int64]

_RESTING = {str(kind) for kind in RESTING_TYPES}
_COLUMNS = ("operator", "channel", "records", "alternatives")
_STEP_COLUMNS = ["src", "dst", "type", "start_ns", "duration_ns", *_COLUMNS]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath(Report):
    """A critical path with what qualifies it."""

    window: Window
    """The window."""
    steps: pa.Table
    """Rows of `CRITICAL_PATH`."""
    ends: int
    """Workers at work where the window ends; where nobody works, those that rest there (`RESTING_TYPES`). Of a round:
    workers whose work ends at the very instant of its end."""
    all_waiting: bool
    """Whether nobody was active where the window ends (property 3.10 of CPA, if no message was under way either)."""

    @property
    def table(self) -> pa.Table:
        """The steps."""
        return self.steps

    @property
    def ties(self) -> int:
        """Other workers on which a path of the same length ends just as well."""
        return max(self.ends - 1, 0)

    @property
    def rests_at_end(self) -> bool:
        """Whether nobody was at work where the window ends, and the path is that of whoever rested there last."""
        last = self.steps["type"][-1].as_py() if self.steps.num_rows else None
        return self.window.end_vertex is None and not self.all_waiting and last in _RESTING

    def doubts_at_end(self) -> list[str]:
        """Return what is to be said of where the path ends.

        Returns
        -------
        list of str
            Empty where only one path can be meant.
        """
        doubts = []
        if self.all_waiting:
            doubts.append("where the window ends, every worker waited")
        elif self.rests_at_end:
            doubts.append("where the window ends nobody worked: the path ends with who did so last")
        if self.ties:
            did = "rested" if self.rests_at_end else "worked"
            doubts.append(
                f"{self.ends} workers {did} where the window ends: {self.ties} other"
                f" path{'' if self.ties == 1 else 's'} of the same length end{'s' if self.ties == 1 else ''} there"
            )
        return doubts

    @property
    def length_ns(self) -> int:
        """Summed duration of the steps; equal to the window's span."""
        return int(np.sum(self.steps["duration_ns"].to_numpy()))

    @property
    def by_type(self) -> dict[str, int]:
        """Nanoseconds on the path per type, longest first."""
        frame = pl.DataFrame(pl.from_arrow(self.steps))
        sums = (
            frame.group_by("type")
            .agg(pl.col("duration_ns").sum())
            .sort("duration_ns", "type", descending=[True, False])
        )
        return dict(sums.iter_rows())

    @property
    def explained(self) -> float:
        """Share of the path's time that is not `unknown`; the coverage of an epoch is that of all workers' time."""
        return 1 - self.by_type.get(UNKNOWN, 0) / self.window.span_ns if self.window.span_ns else 1.0

    @property
    def alternatives(self) -> int:
        """How often another message may have ended a wait on the path, within the clocks' uncertainty."""
        return int(np.sum(self.steps["alternatives"].to_numpy()))

    def headline(self) -> str:
        """Return what a person reads before the steps."""
        span = self.window.span_ns or 1
        first = (
            f"{self.window.name.capitalize()}: {self.window.span_ns:,} ns, path {self.length_ns:,} ns in"
            f" {self.steps.num_rows:,} steps, {self.explained:.1%} explained, {self.alternatives} alternatives"
        )
        lines = [first, *(f"  {ns / span:6.1%} {kind} ({ns:,} ns)" for kind, ns in self.by_type.items())]
        lines += [f"  {doubt}" for doubt in self.doubts_at_end()]
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """Return everything but the steps as plain values, for programs."""
        return {
            "window": self.window.name,
            "epoch": self.window.epoch,
            "role": str(self.window.role) if self.window.role else None,
            "start_ns": self.window.start_ns,
            "end_ns": self.window.end_ns,
            "span_ns": self.window.span_ns,
            "length_ns": self.length_ns,
            "explained": self.explained,
            "edge_count": self.steps.num_rows,
            "alternatives": self.alternatives,
            "ends": self.ends,
            "ties": self.ties,
            "all_waiting": self.all_waiting,
            "by_type": self.by_type,
        }


def critical_path(subject: Snapshot | View) -> CriticalPath:
    """Show the chain of activities that makes the window as long as it is.

    Parameters
    ----------
    subject
        A window of a run with aligned clocks.

    Returns
    -------
    CriticalPath
        Its steps connect, never are `waiting` (but where every worker waits and nothing is under way), and their
        durations add up to the window's span, to the nanosecond.

    Raises
    ------
    UnsupportedPlanError
        If the run was built with the rule set `st2`, whose clocks are not aligned.
    PagError
        If the graph has a gap, or a wait that no message ended; names the vertex.
    CycleError
        If the walk comes back to where it was; names the vertex.

    Notes
    -----
    The time of a worker is cut into segments at the ends of its waits. The path is walked backward. It leaves a
    segment only over the message that ended the wait, or over the spawn that started the worker.

    A round ends at its own `epoch_end`. Another window ends with the lowest worker that is at work at its end; if no
    worker is, with the worker that was at work last. `ends` says how many workers there are to choose from; for a
    round it says how many workers end their work with it.

    O(edges log edges) for sorting, O(waits on the path) for the walk. On frames across partitions, only waits, what
    ended them, and the rows of the path come to this process.
    """
    view = view_of(subject)
    _require_aligned(view.run)
    if view.spread is not None:
        edges, place, ends, all_waiting = _walked_spread(view)
    else:
        edges, place, ends, all_waiting = _walked(view.blocks("touches", _COLUMNS))
    table = typed_table(_cut(edges, view.windows, place), CRITICAL_PATH)
    return CriticalPath(window=view.window, steps=table, ends=int(ends[0]), all_waiting=bool(all_waiting[0]))


def path_steps(view: View) -> pl.DataFrame:
    """Return the steps of the critical paths of all windows of a view: rows of `CRITICAL_PATH`.

    Parameters
    ----------
    view
        Of a run with aligned clocks.

    Returns
    -------
    DataFrame
        In the order of the windows, with the place of each step's ``window``.
    """
    _require_aligned(view.run)
    if view.spread is not None:
        edges, place, _, _ = _walked_spread(view)
        return _cut(edges, view.windows, place)

    def steps_of(tiling: Tiling) -> pl.DataFrame:
        edges, place, _, _ = _walked(tiling)
        return _cut(edges, tiling.windows, place)

    return view.over("touches", _COLUMNS, steps_of, CRITICAL_PATH)


def paths_of(view: View) -> tuple[pl.DataFrame, NDArray[np.bool_]]:
    """Return the critical paths of all windows of a view whose edges are in memory, as `critical_path` gives each.

    Parameters
    ----------
    view
        Of a run with aligned clocks; not spread.

    Returns
    -------
    steps : DataFrame
        Rows of `CRITICAL_PATH` in the order of the windows, with the place of each step's ``window``; also those of
        windows without length.
    all_waiting : array of bool
        Per window: `CriticalPath.all_waiting`.

    Raises
    ------
    PagError
        As `critical_path`.
    """
    _require_aligned(view.run)
    edges, place, _, all_waiting = _walked(view.blocks("touches", _COLUMNS))
    return _cut(edges, view.windows, place), all_waiting


def _require_aligned(run: Run) -> None:
    run.require_aligned("Critical paths need aligned clocks")


def _walked_spread(view: View) -> tuple[pl.DataFrame, I64, I64, NDArray[np.bool_]]:
    """Do what `_walked` does on the waits of the window and what ended them; edges between are looked up afterwards."""
    edges, _, ends, all_waiting = _walked(contract(view).tiling)
    edges = expanded(view, edges)
    return edges, np.zeros(edges.height, np.int64), ends, all_waiting


def no_end(window: Window) -> PagError:
    """Return the error of a window where no edge ends at, or crosses, its end.

    Parameters
    ----------
    window
        The window.

    Returns
    -------
    PagError
        To be raised by the caller.
    """
    hint = "Build the store again."
    if window.end_vertex is not None:
        message = f"The vertex {window.end_vertex} that closes {window.name} has no edge that ends at it."
        return PagError(message, hint, {"vertex": window.end_vertex})
    message = f"No worker has an edge where {window.name} ends, at {window.end_ns} ns."
    return PagError(message, hint, {"t_ns": window.end_ns})


def _walked(tiling: Tiling) -> tuple[pl.DataFrame, I64, I64, NDArray[np.bool_]]:
    """Return the edges of all windows' paths with their windows, in time order; and how many are active at each end."""
    edges, windows = tiling.edges, tiling.windows
    src, dst, start, duration = (edges[name].to_numpy() for name in ("src", "dst", "start_ns", "duration_ns"))
    begins, ends = (np.array([getattr(w, name) for w in windows], np.int64) for name in ("start_ns", "end_ns"))
    src, dst, start, end = read_only(src, dst, start, start + duration)
    paths = kernel.walk_windows(
        kernel.Edges(tiling.first, src, dst, start, end, roles(tiling.is_type)),
        kernel.Windows(
            begins, ends, np.array([-1 if w.end_vertex is None else w.end_vertex for w in windows], np.int64)
        ),
    )
    if paths.outcome != kernel.REACHED_START:
        raise _stopped(windows[paths.failed], paths.outcome, paths.vertex)
    return edges.select(_STEP_COLUMNS)[paths.edge], paths.window, paths.ends, paths.all_waiting


def roles(is_type: Callable[..., NDArray[np.bool_]]) -> NDArray[np.int8]:
    """Say per edge what workers do on it.

    Parameters
    ----------
    is_type
        Tells per edge whether it is of one of some types, as of a `Tiling`.

    Returns
    -------
    array of int8
        Per edge: `WORK` to `SPAWN` of `pag_graph.kernels.path`.
    """
    role = np.int8(kernel.REST) * is_type(*RESTING_TYPES).view(np.int8)
    role += np.int8(kernel.WAIT) * is_type(ActivityType.WAITING).view(np.int8)
    role += np.int8(kernel.MESSAGE) * is_type(*MESSAGE_TYPES).view(np.int8)
    # A birth is a message as well.
    role += np.int8(kernel.SPAWN - kernel.MESSAGE) * is_type(ActivityType.SPAWN).view(np.int8)
    return np.asarray(role, dtype=np.int8)


def _stopped(window: Window, outcome: int, vertex: int) -> PagError:
    if outcome == kernel.NO_END:
        return no_end(window)
    worker, position = worker_of_id(vertex), position_of(vertex)
    context = {"vertex": vertex, "worker": worker, "pos": position}
    place = f"worker {worker}, position {position} (vertex {vertex}) in {window.name}"
    if outcome == kernel.CYCLE:
        text = f"The walk along the critical path comes back to {place}."
        return CycleError(text, "The clocks contradict the messages; check the findings of the store.", context)
    problem = {kernel.GAP: "No edge leads to", kernel.NO_ENDER: "No message ended the wait that ends at"}[outcome]
    return PagError(f"{problem} {place}.", "Build the store again, and look at its findings.", context)


def _cut(edges: pl.DataFrame, windows: Sequence[Window], window: I64) -> pl.DataFrame:
    """Cut edges, in time order, at the borders of their windows, and number them in each."""
    begins, ends = (np.array([getattr(w, name) for w in windows], np.int64) for name in ("start_ns", "end_ns"))
    begin, end = pl.Series(begins[window], dtype=pl.Int64), pl.Series(ends[window], dtype=pl.Int64)
    counts = np.bincount(window, minlength=len(windows))
    step = np.arange(len(window)) - np.repeat(np.cumsum(counts) - counts, counts)
    edges = edges.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    cut_start, cut_end = pl.col("start_ns") < begin, pl.col("end_ns") > end
    start = pl.max_horizontal("start_ns", begin)
    return edges.with_columns(
        window=pl.Series(window, dtype=pl.Int64),
        step=pl.Series(step, dtype=pl.Int64),
        worker=worker_of("src"),
        to_worker=worker_of("dst"),
        edge_src="src",
        edge_dst="dst",
        # A cut vertex exists in the snapshot only: -1 where the window starts, -2 where it ends.
        src=pl.when(cut_start).then(-1).otherwise("src"),
        dst=pl.when(cut_end).then(-2).otherwise("dst"),
        # Where all workers wait, the path walks over unused time, whose type is unknown.
        type=pl.when(pl.col("type") == WAITING).then(pl.lit(UNKNOWN, TYPES)).otherwise("type").cast(pl.String),
        start_ns=start,
        duration_ns=pl.min_horizontal("end_ns", end) - start,
    ).select("window", *CRITICAL_PATH.names)


ANALYSIS: ReportAnalysis[None] = ReportAnalysis(
    name="critical-path",
    function=critical_path,
    steps=path_steps,
    schema=CRITICAL_PATH,
    output="CRITICAL_PATH",
    across=True,
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5 --format json",
    rows="path",
    heaviest="duration_ns",
    columns=("step", "type", "worker", "to_worker", "start_ns", "duration_ns", "operator", "channel"),
    cypher="analyses/critical_path",
    chart=Chart(kind="timeline"),
    standing=Standing.WINDOW,
)
