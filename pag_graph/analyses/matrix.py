"""How many messages and records went from each worker to each other one.

Definition: ST2 (Sandstede 2019) 5.1.2, and the figures of 5.2.2.
"""

from __future__ import annotations

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.expressions import share_of
from pag_graph.analyses.view import View, count_rows, delivered_ns, where
from pag_graph.model.enums import ActivityType
from pag_graph.model.tables import MATRIX

_DATA = str(ActivityType.DATA_MESSAGE)


def matrix(view: View) -> pl.DataFrame:
    """Count the messages and records that each worker sent to each other worker.

    Parameters
    ----------
    view
        Of any run.

    Returns
    -------
    DataFrame
        Rows of `MATRIX`, one per pair of two different workers, sorted by these; also of pairs without messages. A
        message counts in the window in which it was sent, as for `traffic`: the epoch that it carries is that of the
        reader, who may be behind.

    Notes
    -----
    The definition is that of ST2, 5.1.2, with the figures of 5.2.2. O(messages + workers^2).
    """
    data, pair = nw.col("type") == _DATA, ["window", "from_worker", "to_worker"]
    sent = view.collect(
        view.sent.with_columns(delivered_ns=delivered_ns(view.run))
        .select(
            *pair,
            data_messages=data.cast(nw.Int64),
            uncounted=(data & nw.col("records").is_null()).cast(nw.Int64),
            records=where(data, "records"),
            delivered_ns=where(data, "delivered_ns"),
        )
        .group_by(pair)
        .agg(nw.col("data_messages", "uncounted", "records", "delivered_ns").sum(), count_rows().alias("messages"))
    )
    workers = pl.DataFrame({"from_worker": view.run.workers}, schema={"from_worker": pl.Int32})
    pairs = view.spans.join(workers, how="cross").join(workers.rename({"from_worker": "to_worker"}), how="cross")
    records = pl.col("records")
    total = pl.when(records.is_not_null().all().over("window")).then(records.sum().over("window"))
    return (
        pairs.filter(pl.col("from_worker") != pl.col("to_worker"))
        .join(sent, on=pair, how="left")
        .with_columns(pl.col("messages", "data_messages", "uncounted", "records", "delivered_ns").fill_null(0))
        .with_columns(records=pl.when(pl.col("uncounted") == 0).then("records"))
        .with_columns(records_share=share_of("records", pl.when(total == 0).then(1).otherwise(total)))
        .sort(pair)
    )


ANALYSIS: TableAnalysis[None] = TableAnalysis(
    name="matrix",
    function=matrix,
    schema=MATRIX,
    output="MATRIX",
    across=True,
    example="--epoch 5",
    chart=Chart(kind="matrix", x=("to_worker",), y=("from_worker",), value="records"),
    standing=Standing.WINDOW,
)
