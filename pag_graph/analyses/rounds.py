"""What a round was like, in one row: how long it took, what of it is known, and what workers did not do.

Only standing queries ask for it, mostly for alerts; offline the table `epochs` and `metrics` say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl
import pyarrow as pa

from pag_graph.analyses.definition import Standing, TableAnalysis
from pag_graph.analyses.view import where
from pag_graph.model.enums import ActivityType

if TYPE_CHECKING:
    from pag_graph.analyses.view import View

_SHARES = {
    "waiting_share": ActivityType.WAITING,
    "input_share": ActivityType.INPUT_WAIT,
    "unknown_share": ActivityType.UNKNOWN,
}
SCHEMA = pa.schema(
    [
        pa.field("span_ns", pa.int64(), nullable=False, metadata={"doc": "length of the window"}),
        pa.field(
            "coverage", pa.float64(), nullable=False, metadata={"doc": "share of the workers' time that is known"}
        ),
        pa.field("waiting_share", pa.float64(), nullable=False, metadata={"doc": "share spent waiting for workers"}),
        pa.field("input_share", pa.float64(), nullable=False, metadata={"doc": "share spent waiting for input"}),
        pa.field("unknown_share", pa.float64(), nullable=False, metadata={"doc": "share that could not be typed"}),
    ]
)
"""One row per round."""


def rounds(view: View) -> pl.DataFrame:
    """Say of each round how long it took, and which shares of the workers' time were waiting, input and unknown.

    Parameters
    ----------
    view
        Of any run.

    Returns
    -------
    DataFrame
        Rows of `SCHEMA`, one per window. O(edges).
    """
    share_columns = {name: where(nw.col("type") == str(kind), "inside_ns") for name, kind in _SHARES.items()}
    sums = (
        view.local.select("window", all_ns="inside_ns", **share_columns)
        .group_by("window")
        .agg(nw.col("all_ns", *_SHARES).sum())
    )
    sums_of_rounds = view.spans.join(view.collect(sums), on="window", how="left").fill_null(0)
    all_time = pl.when(pl.col("all_ns") > 0).then("all_ns").otherwise(1)
    spans = pl.Series([window.span_ns for window in view.windows], dtype=pl.Int64)
    shares = sums_of_rounds.sort("window").with_columns(pl.col(*_SHARES) / all_time, span_ns=spans)
    return shares.with_columns(coverage=1 - pl.col("unknown_share"))


ROUNDS: TableAnalysis[None] = TableAnalysis(
    name="rounds", function=rounds, schema=SCHEMA, output="ROUNDS", standing=Standing.WINDOW
)
