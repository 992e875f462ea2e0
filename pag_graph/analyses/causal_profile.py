"""What would pay: the window's length for every operator, worker and pair of workers, if it were faster.

The idea is Coz' (Curtsinger and Berger 2015), without running the program again: each virtual speed-up is a replay of
the window. Definition: `docs/model.md`, section "Replay and slack".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import polars as pl

from pag_graph.analyses.constraints import Arrival, ConstraintGraph, Loop, constraint_graph, require_aligned
from pag_graph.analyses.what_if import WORK
from pag_graph.errors import InvalidParameterError
from pag_graph.kernels.replay import scaled_ends
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import CAUSAL_PROFILE

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.pag.snapshot import Snapshot

    I64 = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_MOST_STEPS = 1_000
_PAIR_BITS = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalProfileParameters:
    """Parameters of `causal_profile`."""

    steps: Annotated[int, "Number of virtual speed-ups: 10 are 10 %, 20 % and so on."] = 10
    loop: Annotated[Loop, "Input comes as long after it is asked for as it did (closed), or when it came (open)."] = (
        "closed"
    )
    arrival: Annotated[
        Arrival, "A message without a logged arrival took as long as the shortest one, or until it was read."
    ] = "shortest"


def causal_profile(snapshot: Snapshot, parameters: CausalProfileParameters | None = None) -> pa.Table:
    """Say by how much the window would be shorter if an operator, worker or link were faster.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    parameters
        How many virtual speed-ups, and what input and unlogged messages do.

    Returns
    -------
    pa.Table
        Rows of `CAUSAL_PROFILE`, from 0 to 100 % for everything that happens in the window; that which saves most at
        100 % comes first. A row says the same as `what_if` with this factor.

    Raises
    ------
    InvalidParameterError
        If there are no steps, or too many.
    UnsupportedPlanError
        If the run was built with the rule set `st2`, whose clocks are not aligned.
    PagError
        If the recording contradicts itself; names the vertex.
    CycleError
        If events at one instant wait for each other; names the vertex.

    Notes
    -----
    What is not on the critical path saves nothing, because the path stays as long as it is; it is not replayed.
    O(things on the path x steps x (vertices + edges)), with one order of the vertices for all.
    """
    parameters = parameters or CausalProfileParameters()
    steps = parameters.steps
    if not 1 <= steps <= _MOST_STEPS:
        message = f"steps is {steps}, and must be from 1 to {_MOST_STEPS:,}."
        raise InvalidParameterError(message, "causal_profile(steps=10)")
    require_aligned(snapshot, "Causal profiles")
    window = snapshot.window
    if window.span_ns <= 0:
        return CAUSAL_PROFILE.empty_table()
    graph = constraint_graph(snapshot, loop=parameters.loop, arrival=parameters.arrival)
    base = graph.base
    arc = graph.path(graph.weight, graph.t)
    on_path = np.zeros(base.rows.height, np.bool_)
    on_path[graph.element[arc[graph.element[arc] >= 0]]] = True
    source, target = (base.number(column) >> POSITION_BITS for column in ("src", "dst"))
    operator = base.number("operator")
    kinds = {
        "operator": (operator, graph.movable & base.is_local & (operator >= 0)),
        "worker": (source, graph.movable & base.is_type(*WORK)),
        "message": ((source << _PAIR_BITS) | target, graph.movable & ~base.is_local),
    }
    parts = [_profile(graph, kind, key, rows, on_path, steps) for kind, (key, rows) in kinds.items()]
    table = pl.concat(parts).with_columns(
        saved_ns=window.span_ns - pl.col("span_ns"),
        saved_percent=100 * (window.span_ns - pl.col("span_ns")) / window.span_ns,
        best=window.span_ns - pl.col("span_ns").last().over("kind", "key"),
    )
    order = ["best", "path_ns", "time_ns", "kind", "key", "virtual_speedup_percent"]
    table = table.sort(order, descending=[True, True, True, False, False, False])
    return table.select(CAUSAL_PROFILE.names).to_arrow().cast(CAUSAL_PROFILE)


def _profile(graph: ConstraintGraph, kind: str, key: I64, rows: Bools, on_path: Bools, steps: int) -> pl.DataFrame:
    """Return the profile of all things of a kind; `rows` says what belongs to any, and `key` to which."""
    chosen = np.flatnonzero(rows)
    keys, thing = np.unique(key[chosen], return_inverse=True)
    time, path = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    np.add.at(time, thing, graph.duration[chosen])
    np.add.at(path, thing, np.where(on_path[chosen], graph.duration[chosen], 0))
    ends = np.full((len(keys), steps), graph.window.end_ns)
    replayed = np.flatnonzero(path > 0)
    number = np.full(len(keys), -1)
    number[replayed] = np.arange(len(replayed))
    # Per row, and for arcs of no row at its end: the thing to replay.
    wanted = np.full(len(rows) + 1, -1)
    wanted[chosen] = number[thing]
    group = wanted[graph.element]
    arcs = np.flatnonzero(group >= 0)
    arcs = arcs[np.argsort(group[arcs], kind="stable")]
    first = np.searchsorted(group[arcs], np.arange(len(replayed) + 1))
    ends[replayed] = scaled_ends(
        graph.first,
        graph.src,
        graph.weight,
        graph.window.start_ns,
        graph.end,
        first,
        arcs,
        graph.duration[graph.element[arcs]],
        steps,
    )
    spans = np.hstack([np.full((len(keys), 1), graph.window.span_ns), ends - graph.window.start_ns])
    each = steps + 1
    named = {
        "operator": pl.col("key") if kind == "operator" else None,
        "worker": pl.col("key") if kind == "worker" else None,
        "from_worker": pl.col("key") // (1 << _PAIR_BITS) if kind == "message" else None,
        "to_worker": pl.col("key") % (1 << _PAIR_BITS) if kind == "message" else None,
    }
    return pl.DataFrame(
        {
            "kind": [kind] * (len(keys) * each),
            "key": np.repeat(keys, each),
            "virtual_speedup_percent": np.tile(100 * np.arange(each) / steps, len(keys)),
            "span_ns": spans.ravel(),
            "time_ns": np.repeat(time, each),
            "path_ns": np.repeat(path, each),
        },
        schema_overrides={"kind": pl.String},
    ).with_columns(
        (pl.lit(None) if value is None else value).cast(pl.Int64).alias(name) for name, value in named.items()
    )
