"""Critical participation: how many of all paths through a window an activity lies on.

Definition: SnailTrail (Hoffmann et al. 2018), ST2 (Sandstede 2019) 2.5; `docs/model.md`, section "Participation".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.expressions import worker_of
from pag_graph.analyses.window_graphs import COLUMNS, window_graph
from pag_graph.errors import CycleError
from pag_graph.graph.needs import Needs
from pag_graph.graph.tiling import ordered
from pag_graph.kernels.participation import LIMB_BITS, Arcs, count_paths_of_windows
from pag_graph.kernels.replay import group_arcs, topological_order
from pag_graph.model.enums import ActivityType
from pag_graph.model.tables import PARTICIPATION

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.analyses.view import View
    from pag_graph.graph.tiling import Tiling

    I64 = NDArray[np.int64]
    F64 = NDArray[np.float64]

_OF_EDGES = ("type", "operator", "channel", "src", "dst")
"""What the rows of `PARTICIPATION` say of their edges."""
_PLAIN_BITS = 1000
"""Fewer paths than two to this are written without an exponent."""


def participation(view: View) -> pl.DataFrame:
    """Say how many of all paths through the window lead over each activity.

    Parameters
    ----------
    view
        Of a run with aligned clocks.

    Returns
    -------
    DataFrame
        Rows of `PARTICIPATION`; the participations add up to 1, unless no path leads through the window, because
        everybody waits and nothing is under way: then all are 0.

    Raises
    ------
    UnsupportedPlanError
        If the run was built with the rule set `st2`, whose clocks are not aligned.
    PagError
        If the graph has a gap; names the vertex.
    CycleError
        If events at one instant wait for each other; names the vertex.

    Notes
    -----
    The cost does not depend on the number of paths: O(edges log edges) for sorting, O(vertices + edges) for counting.
    Counts are floating-point numbers with exponents of their own. They are exact up to 2^53 paths, rounded above, and
    never overflow.
    """
    view.run.require_aligned("Participations need aligned clocks")
    return view.over("touches", COLUMNS, _shares, PARTICIPATION)


def _shares(tiling: Tiling) -> pl.DataFrame:
    base = window_graph(tiling)
    used = np.flatnonzero(~base.is_type(ActivityType.WAITING) & ~base.negative)
    src, dst, t, window_of_row = base.src[used], base.dst[used], base.t, base.of[used]
    order, stuck = topological_order(np.argsort(t, kind="stable"), t, src, dst)
    if stuck >= 0:
        vertex = int(base.ids[stuck])
        name = base.windows[int(np.searchsorted(base.vertex_first, stuck, side="right")) - 1].name
        text = f"What happens in one instant at vertex {vertex} in {name} waits for itself."
        raise CycleError(text, "The clocks are too coarse to tell what came first.", {"vertex": vertex})
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    src, dst, t = number[src], number[dst], t[order]
    first, position = group_arcs(dst, len(order))
    counts = np.diff(base.vertex_first)
    begins = base.t[base.before]
    before, before_limbs, after, after_limbs, paths, paths_limbs = count_paths_of_windows(
        base.vertex_first,
        Arcs(first, src[position], dst[position]),
        t == np.repeat(begins, counts),
        t == np.repeat(begins + base.ends - base.begins, counts),
    )
    mantissa = before[src] * after[dst]
    limbs = before_limbs[src] + after_limbs[dst]
    share = np.zeros(len(used))
    has_paths = paths[window_of_row] > 0
    share[has_paths] = np.ldexp(
        mantissa[has_paths] / paths[window_of_row[has_paths]],
        LIMB_BITS * (limbs[has_paths] - paths_limbs[window_of_row[has_paths]]),
    )
    # Rounding must not make more than all paths.
    share = np.minimum(share, 1)
    mantissa, exponent = _as_floats(mantissa, LIMB_BITS * limbs)
    inside_ns = base.inside[used]
    start = np.maximum(base.number("start_ns")[used], base.begins[window_of_row])
    part = share * (inside_ns / (base.ends - base.begins)[window_of_row])
    ends = (base.number(name)[used] for name in ("src", "dst"))
    # Floating-point numbers that are not negative are in the order of their bits.
    order = ordered(window_of_row, -part.view(np.int64), -share.view(np.int64), start, *ends)
    return (
        base.rows.select(_OF_EDGES)[used]
        .with_columns(
            window=pl.Series(window_of_row),
            participation=pl.Series(part),
            path_share=pl.Series(share),
            paths_mantissa=pl.Series(mantissa),
            paths_exponent=pl.Series(exponent),
            start_ns=pl.Series(start),
            duration_ns=pl.Series(inside_ns),
        )[order]
        .with_columns(pl.col("type").cast(pl.String), worker=worker_of("src"), to_worker=worker_of("dst"))
        .select("window", *PARTICIPATION.names)
    )


def _as_floats(mantissa: F64, exponent: I64) -> tuple[F64, I64]:
    """Return numbers without exponents where they are below 2^1000, else with mantissas from 1 to 2."""
    fraction, bits = np.frexp(mantissa)
    plain = (bits + exponent <= _PLAIN_BITS) | (mantissa == 0)
    value = np.where(plain, np.ldexp(fraction, np.where(plain, bits + exponent, 1)), fraction * 2)
    return value, np.where(plain, 0, bits + exponent - 1)


ANALYSIS: TableAnalysis[None] = TableAnalysis(
    name="participation",
    function=participation,
    schema=PARTICIPATION,
    output="PARTICIPATION",
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5",
    chart=Chart(kind="bars", x=("type", "operator"), y=("participation",), colour=("worker",)),
    standing=Standing.WINDOW,
)
