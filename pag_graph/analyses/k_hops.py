"""k-hops: what happened shortly before the waits ended, hop by hop, on all workers.

Definition: ST2 (Sandstede 2019) 3.6.1 and 5.1.4, joined on vertices instead of times; `docs/model.md`, section
"k-hops". The first hop never is local: the messages that ended waits, and the data messages read right after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import polars as pl

from pag_graph.analyses.definition import Flags
from pag_graph.errors import AnalysisError, InvalidParameterError
from pag_graph.kernels.hops import count_walks_by_window
from pag_graph.model.enums import ActivityType, RuleSet
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import K_HOPS
from pag_graph.pag.tiling import ranks, tile, tilings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.pag.snapshot import Run, Snapshot, Window
    from pag_graph.pag.tiling import Tiling

    I64 = NDArray[np.int64]

_COLUMNS = ("operator", "read", "receive_buffer_ns")
_TYPE_NAMES = sorted(ActivityType)
_TYPE_ORDER = np.array([_TYPE_NAMES.index(kind) for kind in ActivityType])
"""Place of every type in the order of their names."""
_NO_ROWS = pl.Schema(
    {"window": pl.Int64, **dict.fromkeys(K_HOPS.names, pl.Int64), "type": pl.String, "worker": pl.Int32}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KHopsParameters:
    """Parameters of `k_hops`."""

    k: Annotated[int, "Number of hops, in edges.", Flags(("-k", "--hops"))] = 10
    through_waits: Annotated[
        bool, "Follow waits as well; without them hops are causes only.", Flags(("--through-waits/--causes-only",))
    ] = True
    weight: Annotated[
        Literal["delivered", "transfer"], "A message weighs the time from send to read, or from send to arrival."
    ] = "delivered"


def k_hops(snapshot: Snapshot, parameters: KHopsParameters | None = None) -> pa.Table:
    """Summarise the activities within k hops before the ends of the window's waits.

    Parameters
    ----------
    snapshot
        Of any run.
    parameters
        Number of hops, and what to follow and to weigh.

    Returns
    -------
    pa.Table
        Rows of `K_HOPS`. Hops stop at the window's start; an edge that crosses it counts with its part inside.

    Raises
    ------
    InvalidParameterError
        If `k` is not positive.
    AnalysisError
        If so many walks exist that 64 bits cannot count them.

    Notes
    -----
    O(k x edges): walks are counted per vertex, never listed.
    """
    rows = _count(tile(snapshot, "ends"), _checked(parameters))
    return rows.select(K_HOPS.names).to_arrow().cast(K_HOPS)


def k_hops_of_windows(run: Run, windows: Sequence[Window], parameters: KHopsParameters | None = None) -> pa.Table:
    """Return the k-hops of many windows, read once: rows of `K_HOPS` with the place of their ``window``.

    Parameters
    ----------
    run
        Any run.
    windows
        In time order, none overlapping another.
    parameters
        As for `k_hops`.

    Returns
    -------
    pa.Table
        In the order of the windows.

    Raises
    ------
    InvalidParameterError
        If `k` is not positive.
    AnalysisError
        If so many walks exist that 64 bits cannot count them.
    """
    parameters = _checked(parameters)
    parts, before = [_NO_ROWS.to_frame()], 0
    for tiling in tilings(run, windows, _COLUMNS, "ends"):
        parts.append(_count(tiling, parameters).with_columns(pl.col("window") + before))
        before += len(tiling.windows)
    return pl.concat(parts).to_arrow()


def _checked(parameters: KHopsParameters | None) -> KHopsParameters:
    parameters = parameters or KHopsParameters()
    if parameters.k < 1:
        message = f"k is {parameters.k}, and must be at least 1."
        raise InvalidParameterError(message, "k_hops(k=10)")
    return parameters


def _count(tiling: Tiling, parameters: KHopsParameters) -> pl.DataFrame:
    """Return the k-hops of all windows of a tiling, in the order of windows, hops and names."""
    group, names = _groups(tiling)
    window, hop, number, walks, edges, walk_ns, edge_ns, inexact = count_walks_by_window(
        tiling.first,
        tiling.edges["src"].to_numpy(),
        tiling.edges["dst"].to_numpy(),
        _weights(tiling, parameters),
        group,
        names.height,
        tiling.is_type(ActivityType.WAITING),
        tiling.is_type(ActivityType.DATA_MESSAGE),
        parameters.k,
        parameters.through_waits,
    )
    if inexact >= 0:
        name = tiling.windows[inexact].name
        message = f"More walks of up to {parameters.k} hops end in {name} than 64 bits can count."
        raise AnalysisError(message, "Ask for fewer hops, or a shorter window.", {"k": parameters.k})
    counts = {"window": window, "hop": hop, "walks": walks, "edges": edges, "walk_ns": walk_ns, "edge_ns": edge_ns}
    rows = pl.DataFrame({name: pl.Series(values, dtype=pl.Int64) for name, values in counts.items()})
    return rows.hstack(names[number]).select(_NO_ROWS.names())


def _groups(tiling: Tiling) -> tuple[I64, pl.DataFrame]:
    """Return the group of every edge, and one row per group, sorted by type, worker and operator."""
    kind = _TYPE_ORDER[tiling.edges["type"].to_physical().to_numpy()]
    worker, workers = ranks(tiling.edges["src"].to_numpy() >> POSITION_BITS)
    operator, operators = ranks(tiling.number("operator"))
    group, keys = ranks((kind * len(workers) + worker) * len(operators) + operator)
    known = operators[keys % len(operators)]
    return group, pl.DataFrame(
        {
            "type": pl.Series([str(kind) for kind in _TYPE_NAMES])[keys // (len(operators) * len(workers))],
            "worker": pl.Series(workers[keys // len(operators) % len(workers)], dtype=pl.Int32),
            "operator": pl.Series(known),
        }
    ).with_columns(pl.when(pl.col("operator") >= 0).then("operator"))


def _weights(tiling: Tiling, parameters: KHopsParameters) -> I64:
    """Return durations inside the window; of a message that ended a wait also, if `delivered`, until it was read."""
    took = tiling.edges["duration_ns"].to_numpy()
    if tiling.run.rules is not RuleSet.ST2:
        start = tiling.edges["start_ns"].to_numpy()
        starts = np.array([window.start_ns for window in tiling.windows], np.int64)
        took = took - np.maximum(0, starts[tiling.window] - start)
    read, buffered = tiling.number("read"), tiling.edges["receive_buffer_ns"]
    apart = read != tiling.edges["dst"].to_numpy()
    if parameters.weight == "transfer":
        # Without a log of arrivals the transfer of a message that ended no wait is unknown; in one process it is 0.
        at_once = buffered.is_not_null().to_numpy() & ~apart
        return np.asarray(np.where(at_once, took - np.minimum(took, buffered.fill_null(0).to_numpy()), took))
    return np.asarray(took + np.where(apart & (read >= 0), buffered.fill_null(0).to_numpy(), 0))
