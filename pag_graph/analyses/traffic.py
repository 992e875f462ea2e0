"""Who sent how much to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.frames import Frames, frames_of, rows
from pag_graph.model.tables import TRAFFIC

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.snapshot import Snapshot


def traffic(snapshot: Snapshot | Frames) -> pa.Table:
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
    frames = frames_of(snapshot)
    known = nw.col("records").count().cast(nw.Int64)
    keys = ["from_worker", "to_worker", "type", "channel"]
    summed = (
        frames.collect(frames.sent.group_by(keys).agg(rows().alias("messages"), nw.col("records").sum(), known=known))
        .with_columns(records=pl.when(pl.col("known") > 0).then("records"))
        .sort("records", *keys, descending=[True, *[False] * 4], nulls_last=True)
    )
    return summed.select(TRAFFIC.names).to_arrow().cast(TRAFFIC)
