"""Who waited for whom, on which channel, for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.analyses.columns import WAITING, inside_ns, worker_of
from pag_graph.model.tables import WAITS

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.pag.snapshot import Snapshot


def waits(snapshot: Snapshot) -> pa.Table:
    """Sum the waits in a window by the messages that ended them.

    Parameters
    ----------
    snapshot
        Of any run.

    Returns
    -------
    pa.Table
        Rows of `WAITS`; only the part of a wait inside the window counts. O(edges).
    """
    window = snapshot.window
    enders = snapshot.enders.unique("dst", keep="first", maintain_order=True).select(
        "dst", "channel", from_worker=worker_of("src"), message="type"
    )
    summed = (
        # A wait that begins in the instant in which the window ends is no part of it.
        snapshot.local.filter(
            pl.col("type") == WAITING,
            (pl.col("start_ns") < window.end_ns) | (pl.col("end_ns") <= window.end_ns),
        )
        .select("dst", worker=worker_of("dst"), waiting_ns=inside_ns(window))
        .join(enders, on="dst", how="left")
        .group_by("worker", "from_worker", "message", "channel")
        .agg(pl.len().alias("waits"), pl.col("waiting_ns").sum())
        .rename({"message": "type"})
        .sort("waiting_ns", "worker", "from_worker", "type", "channel", descending=[True, False, False, False, False])
    )
    return summed.select(WAITS.names).to_arrow().cast(WAITS)
