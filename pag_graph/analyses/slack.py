"""Slack: by how much an activity may last longer before the window does.

Definition: `docs/model.md`, section "Replay and slack"; asked for in CPA (Sager 2016) 8.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import polars as pl

from pag_graph.analyses.constraints import Arrival, Loop, constraint_graph, require_aligned
from pag_graph.kernels.replay import NONE, latest, slacks
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import SLACK

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.pag.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackParameters:
    """Parameters of `slack`."""

    loop: Annotated[Loop, "Input comes as long after it is asked for as it did (closed), or when it came (open)."] = (
        "closed"
    )
    arrival: Annotated[
        Arrival, "A message without a logged arrival took as long as the shortest one, or until it was read."
    ] = "shortest"


def slack(snapshot: Snapshot, parameters: SlackParameters | None = None) -> pa.Table:
    """Say by how much each activity may last longer before the window does.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    parameters
        What input and unlogged messages do.

    Returns
    -------
    pa.Table
        Rows of `SLACK`. An activity that lasts x longer, all else as recorded, moves the window's end by
        ``max(0, x - slack)``. Null where nothing leads from the activity to the end, for `waiting` (it lasts as
        long as what it waits for), and for messages with negative transfer. Slacks do not add up: activities that
        follow each other share theirs.

    Raises
    ------
    UnsupportedPlanError
        If the run was built with the rule set `st2`, whose clocks are not aligned.
    PagError
        If the recording contradicts itself; names the vertex.
    CycleError
        If events at one instant wait for each other; names the vertex.

    Notes
    -----
    O(edges log edges) for sorting, O(vertices + edges) for the rest.
    """
    parameters = parameters or SlackParameters()
    require_aligned(snapshot, "Slacks")
    window = snapshot.window
    if window.span_ns <= 0:
        return SLACK.empty_table()
    graph = constraint_graph(snapshot, loop=parameters.loop, arrival=parameters.arrival)
    late = latest(graph.first, graph.src, graph.weight, graph.end, window.end_ns)
    rows = graph.base.rows
    found = slacks(graph.first, graph.src, graph.weight, graph.element, rows.height, graph.t, late)
    known = found != NONE
    # A message from before the window may have arrived before it, too.
    used = np.maximum(np.where(graph.elements, graph.duration, graph.base.inside), 0)
    table = rows.with_columns(
        worker=pl.col("src") // (1 << POSITION_BITS),
        to_worker=pl.col("dst") // (1 << POSITION_BITS),
        start_ns=pl.max_horizontal("start_ns", pl.lit(window.start_ns)),
        duration_ns=pl.Series(used),
        slack_ns=pl.when(pl.Series(known)).then(pl.Series(found)),
    ).sort(
        "slack_ns",
        "duration_ns",
        "start_ns",
        "src",
        "dst",
        descending=[False, True, False, False, False],
        nulls_last=True,
    )
    return table.select(SLACK.names).to_arrow().cast(SLACK)
