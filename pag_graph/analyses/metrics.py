"""How much of what happened where and between whom, per epoch: counts, times and records.

Definition: ST2 (Sandstede 2019) 5.1.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw

from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.expressions import known_records
from pag_graph.analyses.view import count_rows, delivered_ns, records_told, worker_of
from pag_graph.model.tables import METRICS

if TYPE_CHECKING:
    import polars as pl

    from pag_graph.analyses.view import View

_KEYS = ["window", "epoch", "from_worker", "to_worker", "type"]


def metrics(view: View) -> pl.DataFrame:
    """Count activities, their time and records per epoch, pair of workers and type.

    Parameters
    ----------
    view
        Of any run.

    Returns
    -------
    DataFrame
        Rows of `METRICS`, one per epoch, worker or pair of workers, and type, sorted by these. The round of an epoch
        counts the edges that carry the epoch, whole, wherever they lie in time; a free window those that end in it. So
        every edge of a run is counted once.

    Notes
    -----
    The definition is that of ST2, 5.1.2. Under the rule set `st2` the numbers are those that SnailTrail 2 writes to
    ``metrics.csv``, but for records that nobody counts, which are 0 there. A message that arrives before it was sent
    takes no time. O(edges).
    """
    took = nw.col("duration_ns")
    edges = view.labelled("records", "read", "receive_buffer_ns").with_columns(
        from_worker=worker_of("src"),
        to_worker=worker_of("dst"),
        duration_ns=took if view.run.aligned else nw.max_horizontal(took, nw.lit(0)),
        delivered_ns=delivered_ns(view.run),
    )
    times = nw.col("duration_ns", "delivered_ns").sum()
    sums = edges.group_by(_KEYS).agg(times, *records_told(), count_rows().alias("activities"))
    return view.collect(sums).with_columns(records=known_records("activities")).sort(_KEYS)


ANALYSIS: TableAnalysis[None] = TableAnalysis(
    name="metrics",
    function=metrics,
    schema=METRICS,
    output="METRICS",
    across=True,
    example="--epoch 5 --format csv",
    heaviest="duration_ns",
    chart=Chart(kind="bars", x=("from_worker",), y=("duration_ns",), colour=("type",)),
    standing=Standing.LABEL,
)
