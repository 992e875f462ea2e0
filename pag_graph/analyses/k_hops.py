"""k-hops: what happened shortly before the waits ended, hop by hop, on all workers.

Definition: ST2 (Sandstede 2019) 3.6.1 and 5.1.4, joined on vertices instead of times; `docs/model.md`, section
"k-hops". The first hop never is local: the messages that ended waits, and the data messages read right after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.parameters import Flags
from pag_graph.analyses.view import WAITING, count_rows, worker_of
from pag_graph.errors import AnalysisError, InvalidParameterError
from pag_graph.graph.tiling import ranks
from pag_graph.kernels.compiling import read_only
from pag_graph.kernels.hops import COLUMNS, Edges, count_walks_by_window
from pag_graph.model.enums import ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import K_HOPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.analyses.view import View
    from pag_graph.graph.run import Run
    from pag_graph.graph.tiling import Tiling
    from pag_graph.graph.window import Window

    I64 = NDArray[np.int64]

MOST_HOPS = 10_000
"""Most hops that are counted: each has sums of its own in memory."""
_COLUMNS = ("operator", "read", "receive_buffer_ns")
_TYPE_NAMES = sorted(ActivityType)
_TYPE_ORDER = np.array([_TYPE_NAMES.index(kind) for kind in ActivityType])
"""Place of every type in the order of their names."""
_LIMIT = 2.0**62
"""Larger numbers may not be exact."""
_NO_ROWS = pl.Schema(
    {"window": pl.Int64, **dict.fromkeys(K_HOPS.names, pl.Int64), "type": pl.String, "worker": pl.Int32}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KHopsParameters:
    """Parameters of `k_hops`."""

    k: Annotated[int, "Number of hops, in edges.", Flags(("-k", "--hops"))] = 10
    through_waits: Annotated[
        bool, "Also follow waits; without them, hops are causes only.", Flags(("--through-waits/--causes-only",))
    ] = True
    weight: Annotated[
        Literal["delivered", "transfer"],
        "Weight of a message: its time from send to read (delivered), or from send to arrival (transfer).",
    ] = "delivered"

    def __post_init__(self) -> None:
        """Check the range.

        Raises
        ------
        InvalidParameterError
            If `k` is not positive, or too large.
        """
        if not 1 <= self.k <= MOST_HOPS:
            message = f"k is {self.k}, and must be at least 1 and at most {MOST_HOPS:,}."
            raise InvalidParameterError(message, "k_hops(k=10)")


def k_hops(view: View, parameters: KHopsParameters) -> pl.DataFrame:
    """Summarise the activities within k hops before the ends of the window's waits.

    Parameters
    ----------
    view
        Of any run.
    parameters
        Number of hops, and what to follow and to weigh.

    Returns
    -------
    DataFrame
        Rows of `K_HOPS`. Hops stop at the window's start; an edge that crosses it counts with its part inside.

    Raises
    ------
    AnalysisError
        If so many walks exist that 64 bits cannot count them.

    Notes
    -----
    Walks are counted per vertex, and never listed: O(k x edges). On frames across partitions, every hop is a join of
    the edges with the vertices that walks have reached.
    """
    if view.spread is not None:
        return _joined(view, parameters)
    return view.over("ends", _COLUMNS, lambda tiling: _count(tiling, parameters), K_HOPS)


def _count(tiling: Tiling, parameters: KHopsParameters) -> pl.DataFrame:
    """Return the k-hops of all windows of a tiling, in the order of windows, hops and names."""
    group, names = _groups(tiling)
    src, dst = read_only(tiling.edges["src"].to_numpy(), tiling.edges["dst"].to_numpy())
    edges = Edges(
        tiling.first,
        src,
        dst,
        _weights(tiling, parameters),
        group,
        tiling.is_type(ActivityType.WAITING),
        tiling.is_type(ActivityType.DATA_MESSAGE),
    )
    counted, inexact = count_walks_by_window(edges, names.height, parameters.k, parameters.through_waits)
    if inexact >= 0:
        error = _too_many(tiling.windows[inexact], parameters)
        raise error
    rows = pl.DataFrame(counted.reshape(-1, len(COLUMNS)), schema=dict.fromkeys(COLUMNS, pl.Int64))
    rows = rows.rename({"walk_weight": "walk_ns", "edge_weight": "edge_ns"})
    return rows.hstack(names[rows["group"].to_numpy()]).select(_NO_ROWS.names())


def _too_many(window: Window, parameters: KHopsParameters) -> AnalysisError:
    message = f"More walks of up to {parameters.k} hops end in {window.name} than 64 bits can count."
    return AnalysisError(message, "Ask for fewer hops, or a shorter window.", {"k": parameters.k})


def _groups(tiling: Tiling) -> tuple[I64, pl.DataFrame]:
    """Return the group of every edge, and one row per group, sorted by type, worker and operator."""
    kind = _TYPE_ORDER[tiling.edges["type"].to_physical().to_numpy()]
    worker, workers = ranks(tiling.edges["src"].to_numpy() >> POSITION_BITS)
    operator, operators = ranks(tiling.number("operator"))
    group, keys = ranks((kind * len(workers) + worker) * len(operators) + operator)
    operator_of_key = operators[keys % len(operators)]
    return group, pl.DataFrame(
        {
            "type": pl.Series([str(kind) for kind in _TYPE_NAMES])[keys // (len(operators) * len(workers))],
            "worker": pl.Series(workers[keys // len(operators) % len(workers)], dtype=pl.Int32),
            "operator": pl.Series(operator_of_key),
        }
    ).with_columns(pl.when(pl.col("operator") >= 0).then("operator"))


def _weight(run: Run, parameters: KHopsParameters) -> nw.Expr:
    """Return durations inside the window; of a message that ended a wait also, if `delivered`, until it was read."""
    took = nw.col("duration_ns")
    if not run.epochs_are_islands:
        took = took - nw.max_horizontal(nw.lit(0), nw.col("window_start_ns") - nw.col("start_ns"))
    read, buffered = nw.col("read"), nw.col("receive_buffer_ns")
    # What is null is neither read at once nor later.
    if parameters.weight == "transfer":
        # Without a log of arrivals the transfer of a message that ended no wait is unknown; in one process it is 0.
        read_at_once = (read == nw.col("dst")) & ~buffered.is_null()
        return took - nw.when(read_at_once).then(nw.min_horizontal(took, buffered)).otherwise(nw.lit(0))
    return took + nw.when(read != nw.col("dst")).then(buffered.fill_null(0)).otherwise(nw.lit(0))


def _weights(tiling: Tiling, parameters: KHopsParameters) -> I64:
    edges = tiling.edges
    if not tiling.run.epochs_are_islands:
        starts = np.array([window.start_ns for window in tiling.windows], np.int64)[tiling.window]
        edges = edges.with_columns(window_start_ns=pl.Series(starts))
    return nw.from_native(edges).select(weight=_weight(tiling.run, parameters))["weight"].to_numpy()


def _joined(view: View, parameters: KHopsParameters) -> pl.DataFrame:
    """Count walks hop by hop, each a join of all edges with the vertices that the hop before has reached.

    For a window whose edges are on other machines. In memory `_count` does the same, some ten times as fast: it follows
    the edges of a vertex where they lie.

    Raises
    ------
    AnalysisError
        If so many walks exist that 64 bits cannot count them.
    """
    edges = view.engine.settle(
        view.edges.filter(view.ends_inside).select(
            "src",
            "dst",
            "type",
            "operator",
            worker=worker_of("src"),
            to_worker=worker_of("dst"),
            weight=_weight(view.run, parameters),
        )
    )
    waiting = nw.col("type") == WAITING
    ends = edges.filter(waiting).select("dst", "to_worker")
    first = ends.group_by("to_worker").agg(first=nw.col("dst").min())
    # The data messages of a segment that a wait's end opens: those after the worker's first.
    opened = (nw.col("type") == str(ActivityType.DATA_MESSAGE)) & (nw.col("dst") >= nw.col("first"))
    seeds = (
        edges.filter(~waiting)
        .join(first, on="to_worker", how="left")
        .join(ends.select("dst").unique("dst").with_columns(ends=nw.lit(1)), on="dst", how="left")
        .filter(~nw.col("ends").is_null() | opened)
        .drop("first", "ends")
        .with_columns(walks=nw.lit(1).cast(nw.Int64))
    )
    followed = edges if parameters.through_waits else edges.filter(~waiting)
    keys = ["type", "worker", "operator"]
    parts = []
    for hop in range(1, parameters.k + 1):
        seeds = view.engine.settle(seeds)
        counts = view.collect(
            seeds.with_columns(
                walk_ns=nw.col("walks") * nw.col("weight"),
                size=nw.col("walks").cast(nw.Float64) * nw.max_horizontal(nw.col("weight").abs(), nw.lit(1)),
            )
            .group_by(keys)
            .agg(nw.col("walks", "walk_ns", "weight", "size").sum(), edges=count_rows())
        )
        if counts.is_empty():
            break
        if float(counts["size"].max()) > _LIMIT:  # type: ignore[arg-type]
            error = _too_many(view.window, parameters)
            raise error
        parts.append(counts.rename({"weight": "edge_ns"}).with_columns(hop=pl.lit(hop, pl.Int64)))
        reached = seeds.group_by("src").agg(nw.col("walks").sum()).rename({"src": "dst"})
        seeds = followed.join(reached, on="dst", how="inner")
    if not parts:
        return _NO_ROWS.to_frame()
    counted = pl.concat(parts).with_columns(window=pl.lit(0, pl.Int64))
    return counted.select(_NO_ROWS.names()).sort("hop", *keys)


ANALYSIS = TableAnalysis(
    name="k-hops",
    function=k_hops,
    parameters=KHopsParameters,
    schema=K_HOPS,
    output="K_HOPS",
    across=True,
    example="--epoch 5 -k 10",
    rows="hops",
    heaviest="walk_ns",
    chart=Chart(kind="bars", x=("hop",), y=("walk_ns",), colour=("type",)),
    standing=Standing.WINDOW,
)
