"""What would pay: the window's length for every operator, worker and pair of workers, if it were faster.

The idea is Coz' (Curtsinger and Berger 2015), without running the program again: each virtual speed-up is a replay of
the window. Definition: `docs/model.md`, section "Replay and slack".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import polars as pl

from pag_graph.analyses.constraints import ArrivalParameter, ConstraintGraph, LoopParameter, constraint_graph_of
from pag_graph.analyses.definition import Chart, TableAnalysis
from pag_graph.analyses.what_if import WORK
from pag_graph.analyses.window_graphs import COLUMNS
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.needs import Needs
from pag_graph.graph.tiling import ranks
from pag_graph.kernels.replay import Arcs, Groups, group_arcs, scaled_ends
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import CAUSAL_PROFILE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.analyses.view import View
    from pag_graph.graph.tiling import Tiling

    I64 = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_MOST_STEPS = 1_000
_PAIR_BITS = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalProfileParameters:
    """Parameters of `causal_profile`."""

    steps: Annotated[int, "Number of virtual speed-ups: 10 gives 10 %, 20 % and so on."] = 10
    loop: LoopParameter = "closed"
    arrival: ArrivalParameter = "shortest"

    def __post_init__(self) -> None:
        """Check the range.

        Raises
        ------
        InvalidParameterError
            If `steps` is less than 1, or too large.
        """
        if not 1 <= self.steps <= _MOST_STEPS:
            message = f"steps is {self.steps}, and must be from 1 to {_MOST_STEPS:,}."
            raise InvalidParameterError(message, "causal_profile(steps=10)")


def causal_profile(view: View, parameters: CausalProfileParameters) -> pl.DataFrame:
    """Say by how much the window would be shorter if an operator, worker or link were faster.

    Parameters
    ----------
    view
        Of a run with aligned clocks.
    parameters
        How many virtual speed-ups, and what input and unlogged messages do.

    Returns
    -------
    DataFrame
        Rows of `CAUSAL_PROFILE`, from 0 to 100 % for everything that happens in the window; that which saves most at
        100 % comes first. A row says the same as `what_if` with this factor.

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
    What is not on the critical path saves nothing, because the path stays as long as it is. So it is not replayed.
    O(things on the path x steps x (vertices + edges)), with one order of the vertices for all.
    """
    view.run.require_aligned("Causal profiles need aligned clocks")

    def profiles_of(tiling: Tiling) -> pl.DataFrame:
        graph = constraint_graph_of(view.run, tiling, loop=parameters.loop, arrival=parameters.arrival)
        return _profiles(graph, parameters.steps)

    return view.over("touches", COLUMNS, profiles_of, CAUSAL_PROFILE)


def _profiles(graph: ConstraintGraph, steps: int) -> pl.DataFrame:
    base = graph.base
    on_path = graph.on_path()
    source, target = (base.number(column) >> POSITION_BITS for column in ("src", "dst"))
    operator = base.number("operator")
    kinds = {
        "operator": (operator, graph.movable & base.is_local & (operator >= 0)),
        "worker": (source, graph.movable & base.is_type(*WORK)),
        "message": ((source << _PAIR_BITS) | target, graph.movable & ~base.is_local),
    }
    parts = [_profile(graph, kind, key, rows, on_path, steps) for kind, (key, rows) in kinds.items()]
    spans = np.vstack([part for _, part in parts])
    targets = pl.concat([part for part, _ in parts]).with_columns(
        best=pl.Series(spans[:, 0] - spans[:, -1]), place=pl.int_range(pl.len())
    )
    order = ["window", "best", "path_ns", "time_ns", "kind", "key"]
    targets = targets.sort(order, descending=[False, True, True, True, False, False])
    pair = pl.col("key") // (1 << _PAIR_BITS), pl.col("key") % (1 << _PAIR_BITS)
    key_columns = {"operator": ("operator", pl.col("key")), "worker": ("worker", pl.col("key"))}
    key_columns |= {"from_worker": ("message", pair[0]), "to_worker": ("message", pair[1])}
    targets = targets.with_columns(
        pl.when(pl.col("kind") == kind).then(value).alias(name) for name, (kind, value) in key_columns.items()
    )
    spans = spans[targets["place"].to_numpy()]
    saved = spans[:, :1] - spans
    return (
        targets[np.repeat(np.arange(targets.height), steps + 1)]
        .with_columns(
            virtual_speedup_percent=pl.Series(np.tile(100 * np.arange(steps + 1) / steps, targets.height)),
            span_ns=pl.Series(spans.ravel()),
            saved_ns=pl.Series(saved.ravel()),
            saved_percent=pl.Series((100 * saved / spans[:, :1]).ravel()),
        )
        .select("window", *CAUSAL_PROFILE.names)
    )


def _profile(
    graph: ConstraintGraph, kind: str, key: I64, rows: Bools, on_path: Bools, steps: int
) -> tuple[pl.DataFrame, I64]:
    """Return all targets of a kind, and the window's length at each speed-up, in ns, of shape (targets, steps + 1).

    `rows` says which rows belong to a target, and `key` to which.
    """
    base = graph.base
    chosen = np.flatnonzero(rows)
    rank, names = ranks(key[chosen])
    # One name in two windows is two targets.
    target_number, targets = ranks(base.of[chosen] * max(1, len(names)) + rank)
    window, keys = targets // max(1, len(names)), names[targets % max(1, len(names))]
    time, path = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    np.add.at(time, target_number, graph.duration[chosen])
    np.add.at(path, target_number, np.where(on_path[chosen], graph.duration[chosen], 0))
    begins = graph.t[base.before]
    ends = np.repeat((begins + base.ends - base.begins)[window, None], steps, axis=1)
    replayed = np.flatnonzero(path > 0)
    number = np.full(len(keys), -1)
    number[replayed] = np.arange(len(replayed))
    # Per row: the target to replay. The last element is for arcs of no row.
    replay_number = np.full(len(rows) + 1, -1)
    replay_number[chosen] = number[target_number]
    group = replay_number[graph.element]
    arcs = np.flatnonzero(group >= 0)
    first, position = group_arcs(group[arcs], len(replayed))
    arcs = arcs[position]
    ends[replayed] = scaled_ends(
        Arcs(graph.first, graph.src, graph.weight),
        graph.dst,
        graph.t,
        Groups(
            base.before[window[replayed]],
            graph.ends[window[replayed]],
            first,
            arcs,
            graph.duration[graph.element[arcs]],
        ),
        steps,
    )
    spans = np.hstack([(base.ends - base.begins)[window, None], ends - begins[window, None]])
    columns = {"kind": [kind] * len(keys), "window": window, "key": keys, "time_ns": time, "path_ns": path}
    return pl.DataFrame(columns, schema_overrides={"kind": pl.String}), spans


ANALYSIS = TableAnalysis(
    name="causal-profile",
    function=causal_profile,
    parameters=CausalProfileParameters,
    schema=CAUSAL_PROFILE,
    output="CAUSAL_PROFILE",
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5",
    chart=Chart(
        kind="lines",
        x=("virtual_speedup_percent",),
        y=("saved_percent",),
        colour=("operator", "worker", "from_worker", "to_worker"),
    ),
)
