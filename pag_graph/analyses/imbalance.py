"""Where the critical path does more of something than the workers on average.

Definition: CPA (Sager 2016) 8.2 (imbalance indicator); `docs/analyses.md`, section "imbalance".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import WAITING
from pag_graph.analyses.frames import Frames, frames_of
from pag_graph.model.tables import IMBALANCE

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ImbalanceParameters:
    """Parameters of `imbalance`."""

    by: Annotated[Literal["type", "operator"], "Divide by types, or by types and operators."] = "type"


def imbalance(snapshot: Snapshot | Frames, parameters: ImbalanceParameters | None = None) -> pa.Table:
    """Compare the time of each activity on the critical path with its mean over the workers.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    parameters
        What to divide by.

    Returns
    -------
    pa.Table
        Rows of `IMBALANCE`, one per type (and operator), largest imbalance first. Waiting has no row: it never is on
        the path.

    Notes
    -----
    imbalance(k) = path_ns(k) - mean over the workers that exist in the window of their time in k; one that comes or
    goes while it lasts counts for as much of it as it is there. Workers count whatever they run: where they run
    different operators, `stragglers` and `skew` tell who is out of balance. Both cover the whole window, so over all
    rows it adds
    up to the mean waiting per worker. What is positive could at best be taken off the path by perfect balance.
    O(edges).
    """
    parameters = parameters or ImbalanceParameters()
    keys = ["type", "operator"] if parameters.by == "operator" else ["type"]
    frames = frames_of(snapshot)
    local = frames.collect(frames.local.group_by("type", "operator").agg(nw.col("inside_ns").sum()))
    workers = int(local["inside_ns"].sum()) / (snapshot.window.span_ns or 1) or 1
    steps = pl.DataFrame(pl.from_arrow(critical_path(snapshot).steps))
    on_path = steps.group_by(keys).agg(path_ns=pl.col("duration_ns").sum())
    by_all = (
        local.filter(pl.col("type") != WAITING, pl.col("inside_ns") > 0)
        .group_by(keys)
        .agg(mean_ns=pl.col("inside_ns").sum() / workers)
    )
    difference = pl.col("path_ns") - pl.col("mean_ns")
    result = (
        on_path.join(by_all, on=keys, how="full", coalesce=True, nulls_equal=True)
        .with_columns(pl.col("path_ns").fill_null(0), pl.col("mean_ns").fill_null(0.0))
        .with_columns(imbalance_ns=difference, excess_ns=difference.clip(lower_bound=0))
        .with_columns(share=pl.col("excess_ns") / (snapshot.window.span_ns or 1))
    )
    if parameters.by == "type":
        result = result.with_columns(operator=pl.lit(None, pl.Int64))
    result = result.sort("imbalance_ns", "type", "operator", descending=[True, False, False])
    return result.select(IMBALANCE.names).to_arrow().cast(IMBALANCE)
