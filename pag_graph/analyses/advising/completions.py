"""When workers saw epochs completed, and which work that can have depended on.

What a step of Timely consumed and produced is told to all workers, the own one included, when the step is over, and a
worker hears it in its next one. So an epoch that is seen completed between two steps did not wait for what the worker
itself did in the last of them: that was for later epochs. Definition: `docs/model.md`, section "Advice".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.analyses.constraints import ConstraintGraph
    from pag_graph.graph.snapshot import Snapshot

    I64 = NDArray[np.int64]

_LATE = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class Completions:
    """Where workers saw an epoch completed; one element each, in the order of the graph's vertices."""

    vertex: I64
    """Vertices, numbered as in the constraint graph, ascending."""
    epoch: I64
    worker: I64
    t_ns: I64
    """When that was; of other workers' steps those may count that had ended."""
    own_ns: I64
    """Of the worker's own steps those may count that had ended by then; the same instant where nobody marked steps."""
    stops: dict[int, I64]
    """Per worker: when its steps ended, ascending; nothing of workers whose steps nobody marked."""

    def told(self, worker: I64, begin_ns: I64) -> I64:
        """Return when other workers learn of activities that began at some instants, in ns.

        Parameters
        ----------
        worker, begin_ns
            One element per activity.

        Returns
        -------
        I64
            The end of the step that it is in; its begin where nobody marked steps, and never after the last step.
        """
        told_ns = begin_ns.copy()
        for number, stops in self.stops.items():
            rows = np.flatnonzero(worker == number)
            told_ns[rows] = np.append(stops, _LATE)[np.searchsorted(stops, begin_ns[rows], side="left")]
        return told_ns


def completions(snapshot: Snapshot, graph: ConstraintGraph) -> Completions:
    """Find where workers saw epochs completed in a window; O(vertices log vertices).

    Parameters
    ----------
    snapshot, graph
        One window.
    """
    start_ns, end_ns = snapshot.window.start_ns, snapshot.window.end_ns
    kinds = [str(EventKind.EPOCH_END), str(EventKind.STEP_STOP)]
    events = (
        snapshot.run.scan("vertices")
        .filter(pl.col("kind").is_in(kinds), pl.col("t_ns").is_between(start_ns, end_ns))
        .select("id", "epoch", "t_ns", end=pl.col("kind") == kinds[0])
        .sort("id")
        .collect()
    )
    stopped = events.filter(~pl.col("end"))
    step_worker = stopped["id"].to_numpy() >> POSITION_BITS
    stops = {int(worker): stopped["t_ns"].to_numpy()[step_worker == worker] for worker in np.unique(step_worker)}
    ends = events.filter("end")
    ids, t, epoch = (ends[name].to_numpy() for name in ("id", "t_ns", "epoch"))
    order = np.argsort(graph.ids, kind="stable")
    place = np.minimum(np.searchsorted(graph.ids[order], ids), len(order) - 1)
    in_graph = np.flatnonzero(graph.ids[order[place]] == ids)
    in_graph = in_graph[np.argsort(order[place[in_graph]])]
    vertex, t, worker = order[place[in_graph]], t[in_graph], ids[in_graph] >> POSITION_BITS
    own_ns, by_program = t.copy(), _by_program(graph, worker, t)
    for number, step_stops in stops.items():
        rows = np.flatnonzero(worker == number)
        # Between two steps, the last one has just ended, and no other worker knew of it before.
        last = np.searchsorted(step_stops, t[rows], side="right") - 1 - by_program[rows]
        own_ns[rows] = np.where(last >= 0, step_stops[np.maximum(last, 0)], start_ns)
    return Completions(vertex=vertex, epoch=epoch[in_graph], worker=worker, t_ns=t, own_ns=own_ns, stops=stops)


def _by_program(graph: ConstraintGraph, worker: I64, t: I64) -> NDArray[np.bool_]:
    """Say of instants of workers whether the program's own code ran there."""
    base = graph.base
    rows = np.flatnonzero(base.is_type(ActivityType.PROGRAM))
    row_worker = base.number("src")[rows] >> POSITION_BITS
    begin, finish = base.t[base.src[rows]], base.t[base.dst[rows]]
    is_by_program = np.zeros(len(t), np.bool_)
    for number in np.unique(row_worker):
        program_rows, instants = np.flatnonzero(row_worker == number), np.flatnonzero(worker == number)
        program_rows = program_rows[np.argsort(begin[program_rows], kind="stable")]
        place = np.searchsorted(begin[program_rows], t[instants], side="right") - 1
        is_by_program[instants] = (place >= 0) & (
            t[instants] <= np.maximum.accumulate(finish[program_rows])[np.maximum(place, 0)]
        )
    return is_by_program
