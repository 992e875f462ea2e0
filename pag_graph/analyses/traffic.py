"""Who sent how much to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.model.enums import RuleSet
from pag_graph.model.ids import POSITION_BITS
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
    window, sent = snapshot.window, snapshot.messages
    if snapshot.run.rules is not RuleSet.ST2:
        sent = sent.filter(pl.col("start_ns") > window.start_ns, pl.col("start_ns") <= window.end_ns)
    known = pl.col("records").is_not_null().any()
    summed = (
        sent.with_columns(
            from_worker=pl.col("src") // (1 << POSITION_BITS), to_worker=pl.col("dst") // (1 << POSITION_BITS)
        )
        .group_by("from_worker", "to_worker", "type", "channel")
        .agg(pl.len().alias("messages"), pl.when(known).then(pl.col("records").sum()).alias("records"))
        .sort(
            "records", "from_worker", "to_worker", "type", "channel", descending=[True, *[False] * 4], nulls_last=True
        )
    )
    return summed.select(TRAFFIC.names).to_arrow().cast(TRAFFIC)
