"""Which operators read their records on few workers.

Definition: ST2 (Sandstede 2019) 5.2.2 (the data-skew study), made a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.expressions import operator_names, peers_there, presence
from pag_graph.analyses.view import where
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import ActivityType
from pag_graph.model.tables import SKEW

if TYPE_CHECKING:
    from pag_graph.analyses.view import View

_PROCESSING = str(ActivityType.PROCESSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewParameters:
    """Parameters of `skew`."""

    above: Annotated[float, "An operator is skewed if a worker reads more than this many times the mean."] = 1.5

    def __post_init__(self) -> None:
        """Check the range.

        Raises
        ------
        InvalidParameterError
            If `above` is less than 1.
        """
        if self.above < 1:
            message = f"above is {self.above}, and must be at least 1: no largest value is below the mean."
            raise InvalidParameterError(message, "skew(above=1.5)")


def skew(view: View, parameters: SkewParameters) -> pl.DataFrame:
    """Compare the records that each worker read in each operator.

    Parameters
    ----------
    view
        Of any run whose log has numbers of records.
    parameters
        What is called skewed.

    Returns
    -------
    DataFrame
        Rows of `SKEW`, one per operator that read records and worker that is there in the window, not `unknown` all the
        time, and runs the same as a reader of it, most skewed operator first.

    Notes
    -----
    skew_ratio = most records of a worker / mean over all workers that run the same (`Run.peers`) and are there in the
    window for any time. It goes from 1 (balance) to the number of these workers (one reads everything). Records count
    in the window in which their activation ends, also records that a scope read itself. Processing time is cut at the
    window's borders. O(edges).
    """
    processing, read, ended = nw.col("type") == _PROCESSING, ~nw.col("records").is_null(), view.ends_inside
    key = ["window", "operator", "worker"]
    counts = ["records", "activations", "processing_ns"]
    per_worker = view.collect(
        view.local.filter(view.shows_worker)
        .select(
            *key,
            records=where(ended, "records"),
            activations=(read & ended).cast(nw.Int64),
            processing_ns=where(processing, "inside_ns"),
            **presence(),
        )
        .group_by(key)
        .agg(nw.col(*counts, "inside_ns", "unknown_ns").sum())
    )
    peers = peers_there(view, per_worker)
    of_operator = ["window", "operator"]
    readers = per_worker.filter(pl.col("records") > 0).join(peers, on=["window", "worker"])
    total, mean = pl.col("records").sum().over(of_operator), pl.col("records").mean().over(*of_operator, "group")
    return (
        readers.select(*of_operator, "group")
        .unique()
        .join(peers, on=["window", "group"])
        .join(per_worker, on=key, how="left", nulls_equal=True)
        .with_columns(pl.col(counts).fill_null(0))
        .with_columns(share=pl.col("records") / total, mean_ratio=pl.col("records") / mean)
        .with_columns(skew_ratio=pl.col("mean_ratio").max().over(of_operator))
        .with_columns(skewed=pl.col("skew_ratio") > parameters.above)
        .join(operator_names(view.run), on="operator", how="left")
        .sort("window", "skew_ratio", "operator", "records", "worker", descending=[False, True, False, True, False])
    )


ANALYSIS = TableAnalysis(
    name="skew",
    function=skew,
    parameters=SkewParameters,
    schema=SKEW,
    output="SKEW",
    across=True,
    example="--epoch 5 --above 2",
    chart=Chart(kind="bars", x=("operator",), y=("records",), colour=("worker",)),
    standing=Standing.WINDOW,
    compares_workers=True,
)
