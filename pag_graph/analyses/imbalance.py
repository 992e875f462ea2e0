"""Where the critical path does more of something than the workers on average.

Definition: CPA (Sager 2016) 8.2 (imbalance indicator); `docs/analyses.md`, section "imbalance".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.critical_path import path_steps
from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.expressions import WAITING, share_of
from pag_graph.graph.needs import Needs
from pag_graph.model.tables import IMBALANCE

if TYPE_CHECKING:
    from pag_graph.analyses.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class ImbalanceParameters:
    """Parameters of `imbalance`."""

    by: Annotated[Literal["type", "operator"], "Divide by types, or by types and operators."] = "type"


def imbalance(view: View, parameters: ImbalanceParameters) -> pl.DataFrame:
    """Compare the time of each activity on the critical path with its mean over the workers.

    Parameters
    ----------
    view
        Of a run with aligned clocks.
    parameters
        What to divide by.

    Returns
    -------
    DataFrame
        Rows of `IMBALANCE`, one per type (and operator), largest imbalance first. Waiting has no row: it never is on
        the path.

    Notes
    -----
    imbalance(k) = path_ns(k) - mean over the workers in the window of their time in k. A worker that comes or goes
    during the window counts in proportion to the time that it is there. Workers count whatever they run; if they run
    different operators, `stragglers` and `skew` tell who is out of balance.

    Both terms cover the whole window, so the sum over all rows is the mean waiting per worker. The positive part is
    the most that perfect balance could take off the path. O(edges).
    """
    keys = ["window", "type", "operator"] if parameters.by == "operator" else ["window", "type"]
    local = view.collect(view.local.group_by("window", "type", "operator").agg(nw.col("inside_ns").sum()))
    all_time = dict(local.group_by("window").agg(pl.col("inside_ns").sum()).iter_rows())
    workers = [all_time.get(place, 0) / span or 1.0 for place, span in view.spans.iter_rows()]
    windows = view.spans.with_columns(workers=pl.Series(workers, dtype=pl.Float64))
    on_path = path_steps(view).group_by(keys).agg(path_ns=pl.col("duration_ns").sum())
    by_all = (
        local.filter(pl.col("type") != WAITING, pl.col("inside_ns") > 0)
        .group_by(keys)
        .agg(all_ns=pl.col("inside_ns").sum())
    )
    difference = pl.col("path_ns") - pl.col("mean_ns")
    result = (
        on_path.join(by_all, on=keys, how="full", coalesce=True, nulls_equal=True)
        .join(windows, on="window")
        .with_columns(
            pl.col("path_ns").fill_null(0),
            mean_ns=share_of("all_ns", pl.col("workers")).fill_null(0.0),
        )
        .with_columns(imbalance_ns=difference, excess_ns=difference.clip(lower_bound=0))
        .with_columns(share=share_of("excess_ns", pl.col("span_ns")))
    )
    if parameters.by == "type":
        result = result.with_columns(operator=pl.lit(None, pl.Int64))
    return result.sort("window", "imbalance_ns", "type", "operator", descending=[False, True, False, False])


ANALYSIS = TableAnalysis(
    name="imbalance",
    function=imbalance,
    parameters=ImbalanceParameters,
    schema=IMBALANCE,
    output="IMBALANCE",
    across=True,
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5",
    chart=Chart(kind="bars", x=("type", "operator"), y=("path_ns", "mean_ns")),
    standing=Standing.WINDOW,
)
