"""Who sent how much to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.expressions import known_records
from pag_graph.analyses.view import count_rows, records_told
from pag_graph.model.tables import TRAFFIC

if TYPE_CHECKING:
    import polars as pl

    from pag_graph.analyses.view import View


def traffic(view: View) -> pl.DataFrame:
    """Sum the messages that were sent from worker to worker in a window.

    Parameters
    ----------
    view
        Of any run.

    Returns
    -------
    DataFrame
        Rows of `TRAFFIC`; a message counts where it was sent. O(messages).
    """
    keys = ["from_worker", "to_worker", "type", "channel"]
    sums = view.sent.group_by("window", *keys).agg(count_rows().alias("messages"), *records_told())
    rows = view.collect(sums).with_columns(records=known_records("messages"))
    return rows.sort("window", "records", *keys, descending=[False, True, *[False] * 4], nulls_last=True)


ANALYSIS: TableAnalysis[None] = TableAnalysis(
    name="traffic",
    function=traffic,
    schema=TRAFFIC,
    output="TRAFFIC",
    across=True,
    example="--epoch 5",
    cypher="patterns/data_messages",
    chart=Chart(kind="matrix", x=("to_worker",), y=("from_worker",), value="records"),
    standing=Standing.WINDOW,
)
