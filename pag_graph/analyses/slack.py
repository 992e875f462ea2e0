"""Slack: by how much an activity may last longer before the window does.

Definition: `docs/model.md`, section "Replay and slack"; asked for in CPA (Sager 2016) 8.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.analyses.constraints import ArrivalParameter, ConstraintGraph, LoopParameter, constraint_graph_of
from pag_graph.analyses.definition import Standing, TableAnalysis
from pag_graph.analyses.expressions import worker_of
from pag_graph.analyses.window_graphs import COLUMNS
from pag_graph.graph.needs import Needs
from pag_graph.graph.tiling import ordered
from pag_graph.kernels.replay import NONE, Arcs, latest, slacks
from pag_graph.model.tables import SLACK

if TYPE_CHECKING:
    from pag_graph.analyses.view import View
    from pag_graph.graph.tiling import Tiling

_OF_EDGES = ("type", "operator", "activation", "channel", "src", "dst")
"""What the rows of `SLACK` say of their edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackParameters:
    """Parameters of `slack`."""

    loop: LoopParameter = "closed"
    arrival: ArrivalParameter = "shortest"


def slack(view: View, parameters: SlackParameters) -> pl.DataFrame:
    """Say how much longer each activity may last before the window gets longer.

    Parameters
    ----------
    view
        Of a run with aligned clocks.
    parameters
        What input and unlogged messages do.

    Returns
    -------
    DataFrame
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
    view.run.require_aligned("Slacks need aligned clocks")

    def slacks_of(tiling: Tiling) -> pl.DataFrame:
        return _slacks(constraint_graph_of(view.run, tiling, loop=parameters.loop, arrival=parameters.arrival))

    return view.over("touches", COLUMNS, slacks_of, SLACK)


def _slacks(graph: ConstraintGraph) -> pl.DataFrame:
    base = graph.base
    arcs = Arcs(graph.first, graph.src, graph.weight)
    latest_ns = latest(arcs, graph.ends, graph.t[graph.ends])
    rows = base.rows
    slack_ns = slacks(arcs, graph.element, rows.height, graph.t, latest_ns)
    has_slack = slack_ns != NONE
    # A message from before the window may have arrived before it, too.
    used = np.maximum(np.where(graph.elements, graph.duration, base.inside), 0)
    start = np.maximum(base.number("start_ns"), base.begins[base.of])
    # Last is what leads to no end.
    order = ordered(base.of, slack_ns, -used, start, base.number("src"), base.number("dst"))
    return (
        rows.select(_OF_EDGES)
        .with_columns(
            window=pl.Series(base.of),
            start_ns=pl.Series(start),
            duration_ns=pl.Series(used),
            slack_ns=pl.when(pl.Series(has_slack)).then(pl.Series(slack_ns)),
        )[order]
        .with_columns(pl.col("type").cast(pl.String), worker=worker_of("src"), to_worker=worker_of("dst"))
        .select("window", *SLACK.names)
    )


ANALYSIS = TableAnalysis(
    name="slack",
    function=slack,
    parameters=SlackParameters,
    schema=SLACK,
    output="SLACK",
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5",
    standing=Standing.WINDOW,
)
