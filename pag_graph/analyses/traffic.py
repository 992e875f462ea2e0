"""Who sent how much to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.analyses.columns import sent_inside, worker_of
from pag_graph.model.tables import TRAFFIC

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.pag.snapshot import Snapshot


def traffic(snapshot: Snapshot) -> pa.Table:
    """Sum the messages that were sent from worker to worker in a window.

    Parameters
    ----------
    snapshot
        Of any run.

    Returns
    -------
    pa.Table
        Rows of `TRAFFIC`; a message counts where it was sent. O(messages).
    """
    sent = snapshot.messages.filter(sent_inside(snapshot))
    known = pl.col("records").is_not_null().any()
    summed = (
        sent.with_columns(from_worker=worker_of("src"), to_worker=worker_of("dst"))
        .group_by("from_worker", "to_worker", "type", "channel")
        .agg(pl.len().alias("messages"), pl.when(known).then(pl.col("records").sum()).alias("records"))
        .sort(
            "records", "from_worker", "to_worker", "type", "channel", descending=[True, *[False] * 4], nulls_last=True
        )
    )
    return summed.select(TRAFFIC.names).to_arrow().cast(TRAFFIC)
