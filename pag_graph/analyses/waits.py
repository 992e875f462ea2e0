"""Who waited for whom, on which channel, for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw

from pag_graph.analyses.frames import WAITING, Frames, end_ns, frames_of, inside_ns, rows, worker_of
from pag_graph.model.tables import WAITS

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.snapshot import Snapshot


def waits(snapshot: Snapshot | Frames) -> pa.Table:
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
    frames = frames_of(snapshot)
    window = frames.window
    # Of several messages that end there, the one of the lowest sender.
    messages = frames.enders.select("dst", "src", "channel", message="type")
    first = messages.group_by("dst").agg(nw.col("src").min())
    enders = messages.join(first, on=["dst", "src"], how="inner").with_columns(from_worker=worker_of("src")).drop("src")
    waited = frames.edges.filter(
        nw.col("type") == WAITING,
        # A wait that begins in the instant in which the window ends is no part of it.
        (nw.col("start_ns") < window.end_ns) | (end_ns() <= window.end_ns),
    ).select("dst", worker=worker_of("dst"), waiting_ns=inside_ns(window))
    keys = ["worker", "from_worker", "message", "channel"]
    summed = frames.collect(
        waited.join(enders, on="dst", how="left")
        .group_by(keys)
        .agg(rows().alias("waits"), nw.col("waiting_ns").sum())
        .rename({"message": "type"})
    ).sort("waiting_ns", "worker", "from_worker", "type", "channel", descending=[True, False, False, False, False])
    return summed.select(WAITS.names).to_arrow().cast(WAITS)
