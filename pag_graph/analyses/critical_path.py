"""The critical path: the chain of activities that the window's length is made of.

Definitions: CPA (Sager 2016) 3.4 and Theorem 3.13 (every such path is as long as the window), 5.3.1 (prefer the
worker's own edge; follow a message only where a wait ended); `docs/model.md`, section "Critical path".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.errors import CycleError, PagError, UnsupportedPlanError
from pag_graph.kernels.path import CYCLE, GAP, NO_ENDER, REACHED_START, walk_back
from pag_graph.model.enums import ActivityType, RuleSet
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import CRITICAL_PATH

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.pag.snapshot import Snapshot, Window

_WAITING, _UNKNOWN = str(ActivityType.WAITING), str(ActivityType.UNKNOWN)
_STEP_COLUMNS = ["src", "dst", "type", "start_ns", "end_ns", "operator", "channel", "records", "alternatives"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """A critical path with what qualifies it."""

    window: Window
    steps: pa.Table
    """Rows of `CRITICAL_PATH`."""
    ends: int
    """Workers that were active where the window ends: the path begins with the lowest of them, or with the one whose
    `epoch_end` closes the window; each other one is the end of another path of the same length."""
    all_waiting: bool
    """Whether nobody was active where the window ends (property 3.10 of CPA, if no message was under way either)."""

    @property
    def table(self) -> pa.Table:
        """The steps."""
        return self.steps

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
    def coverage(self) -> float:
        """Share of the path's time that is not `unknown`."""
        return 1 - self.by_type.get(_UNKNOWN, 0) / self.window.span_ns if self.window.span_ns else 1.0

    @property
    def alternatives(self) -> int:
        """How often another message may have ended a wait on the path, within the clocks' uncertainty."""
        return int(np.sum(self.steps["alternatives"].to_numpy()))

    def headline(self) -> str:
        """Return what a person reads before the steps."""
        span = self.window.span_ns or 1
        first = (
            f"{self.window.name.capitalize()}: {self.window.span_ns:,} ns, path {self.length_ns:,} ns in"
            f" {self.steps.num_rows:,} steps, {self.coverage:.1%} explained, {self.alternatives} alternatives"
        )
        lines = [first, *(f"  {ns / span:6.1%} {kind} ({ns:,} ns)" for kind, ns in self.by_type.items())]
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
            "coverage": self.coverage,
            "edge_count": self.steps.num_rows,
            "alternatives": self.alternatives,
            "ends": self.ends,
            "all_waiting": self.all_waiting,
            "by_type": self.by_type,
        }


def critical_path(snapshot: Snapshot) -> CriticalPath:
    """Show the chain of activities that a window's length is made of.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.

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
    A worker's time is cut into segments at the ends of its waits; from a segment one comes back only over the message
    that ended the wait. O(edges log edges) for sorting, O(waits on the path) for the walk. Ties: a round ends at its
    own `epoch_end`, another window with the lowest worker that is not waiting.
    """
    if snapshot.run.rules is RuleSet.ST2:
        message = "Critical paths need aligned clocks, and runs of the rule set st2 keep every worker's own."
        raise UnsupportedPlanError(message, "Build the trace with `--rules timely`.")
    window = snapshot.window
    local, messages = snapshot.local, snapshot.messages
    if window.span_ns <= 0:
        return CriticalPath(window=window, steps=CRITICAL_PATH.empty_table(), ends=0, all_waiting=False)
    first, in_flight, ends = last_edge(snapshot)
    path: list[pl.DataFrame] = []
    last = local.clear()
    if ends == 0:
        # Everybody waits: the walk begins with the message under way, or with the wait itself.
        last = local[first : first + 1] if in_flight is None else messages[in_flight : in_flight + 1]
        first = int(np.searchsorted(local["dst"].to_numpy(), int(last["src"][0])))
        if int(last["start_ns"][0]) <= window.start_ns:
            first = -1
    if first >= 0:
        path.append(_walk(snapshot, first))
    path.append(last.select(_STEP_COLUMNS))
    steps = _steps(pl.concat(path), window)
    return CriticalPath(window=window, steps=steps, ends=ends, all_waiting=ends == 0)


def last_edge(snapshot: Snapshot) -> tuple[int, int | None, int]:
    """Choose the edge on which the critical path ends.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.

    Returns
    -------
    local
        Its index in the snapshot's local edges, or -1.
    message
        Its index in the messages, where everybody waits and one is under way.
    ends
        How many workers are active where the window ends.

    Raises
    ------
    PagError
        If no edge ends at, or crosses, the window's end.
    """
    window, local, messages = snapshot.window, snapshot.local, snapshot.messages
    start, end = local["start_ns"].to_numpy(), local["end_ns"].to_numpy()
    dst = local["dst"].to_numpy()
    covering = (start < window.end_ns) & (end >= window.end_ns)
    active = np.flatnonzero(covering & (local["type"] != _WAITING).to_numpy())
    # Several edges of one worker can touch the end only if some have no length; the first of them is taken.
    ends = len(np.unique(dst[active] >> POSITION_BITS))
    if window.end_vertex is not None:
        at = int(np.searchsorted(dst, window.end_vertex))
        if at < len(dst) and dst[at] == window.end_vertex:
            return at, None, max(ends, 1)
        message = f"The vertex {window.end_vertex} that closes {window.name} has no edge that ends at it."
        raise PagError(message, "Build the store again.", {"vertex": window.end_vertex})
    if len(active):
        return int(active[0]), None, ends
    under_way = messages.with_row_index().filter(pl.col("start_ns") < window.end_ns, pl.col("end_ns") >= window.end_ns)
    if under_way.height:
        latest = under_way.sort("start_ns", "src", "dst", descending=[True, False, False])
        return -1, int(latest["index"][0]), 0
    waiting = np.flatnonzero(covering)
    if not len(waiting):
        message = f"No worker has an edge where {window.name} ends, at {window.end_ns} ns."
        raise PagError(message, "Build the store again.", {"t_ns": window.end_ns})
    return int(waiting[0]), None, 0


def _walk(snapshot: Snapshot, first: int) -> pl.DataFrame:
    """Return the path's edges in time order, uncut."""
    window, local, messages = snapshot.window, snapshot.local, snapshot.messages
    waits = local.filter(pl.col("type") == _WAITING)
    # A wait has one ender; were there several message edges to its end (a corrupt log), the first would count.
    wait_dst = waits["dst"].to_numpy()
    message_dst = messages["dst"].to_numpy()
    at = np.searchsorted(message_dst, wait_dst)
    hit = at < len(message_dst)
    hit[hit] = message_dst[at[hit]] == wait_dst[hit]
    low, high, message, outcome, vertex = walk_back(
        first,
        local["dst"].to_numpy(),
        local["end_ns"].to_numpy(),
        wait_dst,
        waits["end_ns"].to_numpy(),
        np.where(hit, at, -1),
        messages["src"].to_numpy(),
        messages["start_ns"].to_numpy(),
        window.start_ns,
    )
    if outcome != REACHED_START:
        worker, position = int(vertex) >> POSITION_BITS, int(vertex) & ((1 << POSITION_BITS) - 1)
        context = {"vertex": int(vertex), "worker": worker, "pos": position}
        where = f"worker {worker}, position {position} (vertex {vertex}) in {window.name}"
        if outcome == CYCLE:
            text = f"The walk along the critical path comes back to {where}."
            raise CycleError(text, "The clocks contradict the messages; check the findings of the store.", context)
        what = {GAP: "No edge leads to", NO_ENDER: "No message ended the wait that ends at"}[int(outcome)]
        message_text = f"{what} {where}."
        raise PagError(message_text, "Build the store again, and look at its findings.", context)
    # Hops come latest first; each is a message, where there is one, and the local edges after it.
    low, high, message = low[::-1], high[::-1], message[::-1]
    lengths, sent = high - low, message >= 0
    begins = np.cumsum(lengths + sent) - (lengths + sent)
    nth = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    place = np.concatenate((np.repeat(begins + sent, lengths) + nth, begins[sent]))
    both: pl.DataFrame = pl.concat(
        [
            local.select(_STEP_COLUMNS)[np.repeat(low, lengths) + nth],
            messages.select(_STEP_COLUMNS)[message[sent]],
        ]
    )
    return both[np.argsort(place)]


def _steps(edges: pl.DataFrame, window: Window) -> pa.Table:
    """Cut the edges, in time order, at the window's borders and number them."""
    cut_start, cut_end = pl.col("start_ns") < window.start_ns, pl.col("end_ns") > window.end_ns
    start = pl.max_horizontal("start_ns", pl.lit(window.start_ns))
    end = pl.min_horizontal("end_ns", pl.lit(window.end_ns))
    framed = edges.with_row_index("step").with_columns(
        worker=pl.col("src") // (1 << POSITION_BITS),
        to_worker=pl.col("dst") // (1 << POSITION_BITS),
        edge_src="src",
        edge_dst="dst",
        # A cut vertex exists in the snapshot only: -1 where the window starts, -2 where it ends.
        src=pl.when(cut_start).then(-1).otherwise("src"),
        dst=pl.when(cut_end).then(-2).otherwise("dst"),
        # Where everybody waits, time that nobody used is all that there is to walk.
        type=pl.when(pl.col("type") == _WAITING).then(pl.lit(_UNKNOWN)).otherwise("type"),
        start_ns=start,
        duration_ns=end - start,
    )
    return framed.select(CRITICAL_PATH.names).to_arrow().cast(CRITICAL_PATH)
