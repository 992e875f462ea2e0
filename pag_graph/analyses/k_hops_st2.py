"""k-hops as SnailTrail 2 prints them, coincidences included, for comparison.

Definition: the program behind ST2 (Sandstede 2019) 3.6.1 and 5.1.4, as its output shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import polars as pl

from pag_graph.analyses.definition import Chart, RunAnalysis
from pag_graph.analyses.expressions import END, worker_of
from pag_graph.analyses.parameters import Flags
from pag_graph.errors import AnalysisError, InvalidParameterError
from pag_graph.graph.needs import Needs
from pag_graph.graph.tiling import is_type, tilings
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import K_HOPS_ST2

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.run import Run

_LIMIT = 2.0**62


@dataclass(frozen=True, slots=True, kw_only=True)
class KHopsSt2Parameters:
    """Parameters of `k_hops_st2`."""

    k: Annotated[int, "Number of hops, in edges.", Flags(("-k", "--hops"))] = 10

    def __post_init__(self) -> None:
        """Check the range.

        Raises
        ------
        InvalidParameterError
            If `k` is not positive.
        """
        if self.k < 1:
            message = f"k is {self.k}, and must be at least 1."
            raise InvalidParameterError(message, "k_hops_st2(k=10)")


def k_hops_st2(run: Run, parameters: KHopsSt2Parameters) -> pa.Table:
    """Count k-hops of all epochs as SnailTrail 2 does, by joining on times.

    Parameters
    ----------
    run
        Of the rule set `st2`.
    parameters
        Number of hops.

    Returns
    -------
    pa.Table
        Rows of `K_HOPS_ST2`, one per epoch, hop, type and worker: the lines of ST2's ``khops.txt``, whose epochs are
        higher by one.

    Raises
    ------
    AnalysisError
        If so many walks exist that 64 bits cannot count them.

    Notes
    -----
    The numbers of `k-hops` are exact. These differ from them in three ways:

    - An edge follows another one if it starts at the *time* at which that one ends, on any worker and in any epoch.
      Workers' clocks are not aligned, so events at the same time need not be related. A pair that is joined across
      epochs counts for the later epoch.
    - Walks begin with every edge, except waits, that ends when a wait ends. They also begin with every data message
      that ends when the edge right after a wait ends, if that edge is `processing`. A wait right after a wait begins
      no walk. `k-hops` takes the data messages of the whole segment after the wait.
    - There are no operators and no distinct edges. A message weighs the difference of two clocks, and at least 0.

    O(k x edges), and more if many edges end at the same time.
    """
    # In the order of epochs, and of workers' logs in each.
    tables = [tiling.edges for tiling in tilings(run, run.windows(), (), "labels")]
    if not tables:
        return K_HOPS_ST2.empty_table()
    edges = pl.concat(tables).select(
        "dst",
        "type",
        "epoch",
        "start_ns",
        end_ns=END,
        worker=worker_of("src"),
        weight=pl.col("duration_ns").clip(lower_bound=0),
    )
    waits, after = _starts(edges)
    first = [
        _hop(edges.filter(~is_type(edges, ActivityType.WAITING)), waits),
        _hop(edges.filter(is_type(edges, ActivityType.DATA_MESSAGE)), after),
    ]
    walks, parts = pl.concat(first), []
    for hop in range(1, parameters.k + 1):
        if hop > 1:
            reached = walks.group_by(t_ns="start_ns", epoch="epoch").agg(pl.col("count").sum())
            walks = _hop(edges, reached)
        sums = walks.group_by("epoch", "type", "worker").agg(
            pl.col("count").sum(),
            duration_ns=(pl.col("count") * pl.col("weight")).sum(),
            size=(pl.col("count").cast(pl.Float64) * pl.max_horizontal("weight", pl.lit(1))).sum(),
        )
        if sums.height and float(sums["size"].max()) > _LIMIT:  # type: ignore[arg-type]
            message = f"More walks of up to {parameters.k} hops exist than 64 bits can count."
            raise AnalysisError(message, "Ask for fewer hops.", {"k": parameters.k})
        parts.append(sums.with_columns(hop=pl.lit(hop, pl.Int64)))
    result = pl.concat(parts).with_columns(pl.col("type").cast(pl.String)).sort("epoch", "hop", "type", "worker")
    return result.select(K_HOPS_ST2.names).to_arrow().cast(K_HOPS_ST2)


def _starts(edges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return where walks end: instants at which waits end, and those at which processing right after a wait ends."""
    rows = np.flatnonzero(~is_type(edges, *MESSAGE_TYPES))
    worker = edges["dst"].to_numpy()[rows] >> POSITION_BITS
    # A worker's log, epoch by epoch, and then the next worker's.
    order = np.argsort(worker, kind="stable")
    rows, worker = rows[order], worker[order]
    waiting, place = is_type(edges, ActivityType.WAITING)[rows], np.arange(len(rows))
    # Of waits that follow each other directly, the second is what comes after the first, the third opens anew.
    begins = np.diff(waiting, prepend=~waiting[:1]) | (np.diff(worker, prepend=-1) != 0)
    nth = place - np.maximum.accumulate(np.where(begins, place, 0))
    opens = waiting & (nth % 2 == 0)
    after = np.flatnonzero(opens[:-1] & (worker[1:] == worker[:-1])) + 1
    after = after[is_type(edges, ActivityType.PROCESSING)[rows[after]]]

    def counted(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.group_by(t_ns="end_ns", epoch="epoch").agg(count=pl.len().cast(pl.Int64))

    return counted(edges[rows[waiting]]), counted(edges[rows[after]])


def _hop(edges: pl.DataFrame, reached: pl.DataFrame) -> pl.DataFrame:
    """Follow the edges that end at the times that walks reached, back to their starts."""
    joined = edges.join(reached, left_on="end_ns", right_on="t_ns", how="inner", suffix="_walk")
    return joined.select(
        "start_ns", "type", "worker", "weight", "count", epoch=pl.max_horizontal("epoch", "epoch_walk")
    )


ANALYSIS = RunAnalysis(
    name="k-hops-st2",
    function=k_hops_st2,
    parameters=KHopsSt2Parameters,
    schema=K_HOPS_ST2,
    output="K_HOPS_ST2",
    needs=Needs.ISLANDS,
    example="-k 10 --format csv",
    chart=Chart(kind="bars", x=("hop",), y=("duration_ns",), colour=("type",)),
)
