"""How much of what happened where and between whom, per epoch: counts, times and records.

Definition: ST2 (Sandstede 2019) 5.1.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.analyses.columns import delivered_ns, sent_inside, worker_of
from pag_graph.model.enums import ActivityType, RuleSet
from pag_graph.model.tables import MATRIX, METRICS
from pag_graph.pag.tiling import tile, tilings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pag_graph.pag.snapshot import Run, Snapshot, Window
    from pag_graph.pag.tiling import Tiling

_COLUMNS = ("records", "read", "receive_buffer_ns")
_DATA = str(ActivityType.DATA_MESSAGE)


def metrics(snapshot: Snapshot) -> pa.Table:
    """Count activities, their time and records per epoch, pair of workers and type.

    Parameters
    ----------
    snapshot
        Of any run.

    Returns
    -------
    pa.Table
        Rows of `METRICS`, one per epoch, worker or pair of workers, and type, sorted by these. The round of an epoch
        counts the edges that carry the epoch, whole, wherever they lie in time; a free window those that end in it. So
        every edge of a run is counted once.

    Notes
    -----
    ST2 5.1.2. Under the rule set `st2` the numbers are those that SnailTrail 2 writes to ``metrics.csv``, where a
    message that arrives before it was sent takes no time. O(edges).
    """
    rows = _summed(tile(snapshot, "ends") if snapshot.window.epoch is None else _of_epoch(snapshot))
    return rows.select(METRICS.names).to_arrow().cast(METRICS)


def metrics_of_windows(run: Run, windows: Sequence[Window]) -> pa.Table:
    """Return the metrics of many windows, read once: rows of `METRICS` with the place of their ``window``.

    Parameters
    ----------
    run
        Any run.
    windows
        In time order, none overlapping another: all of epochs, or none.

    Returns
    -------
    pa.Table
        In the order of the windows.
    """
    parts, before = [], 0
    for tiling in tilings(run, windows, _COLUMNS, "labels"):
        parts.append(_summed(tiling).with_columns(pl.col("window") + before))
        before += len(tiling.windows)
    return pl.concat(parts).to_arrow()


def _of_epoch(snapshot: Snapshot) -> Tiling:
    [tiling] = tilings(snapshot.run, [snapshot.window], _COLUMNS, "labels")
    return tiling


def _summed(tiling: Tiling) -> pl.DataFrame:
    took = pl.col("duration_ns")
    if tiling.run.rules is RuleSet.ST2:
        took = took.clip(lower_bound=0)
    keys = ["window", "epoch", "from_worker", "to_worker", "type"]
    return (
        tiling.edges.lazy()
        .select(
            "epoch",
            "records",
            "type",
            window=pl.Series(tiling.window),
            from_worker=worker_of("src"),
            to_worker=worker_of("dst"),
            duration_ns=took,
            delivered_ns=delivered_ns(tiling.run.rules),
        )
        .group_by(keys)
        .agg(pl.col("duration_ns", "delivered_ns", "records").sum(), activities=pl.len().cast(pl.Int64))
        .with_columns(pl.col("type").cast(pl.String))
        .sort(keys)
        .collect()
    )


def matrix(snapshot: Snapshot) -> pa.Table:
    """Count the messages and records that went from each worker to each other one.

    Parameters
    ----------
    snapshot
        Of any run.

    Returns
    -------
    pa.Table
        Rows of `MATRIX`, one per pair of two different workers, sorted by these; also of pairs without messages. A
        message counts in the window in which it was sent, as for `traffic`: the epoch that it carries is that of the
        reader, who may be behind.

    Notes
    -----
    ST2 5.1.2 and the figures of 5.2.2. O(messages + workers^2).
    """
    data = pl.col("type") == _DATA
    sent = (
        snapshot.messages.filter(sent_inside(snapshot))
        .with_columns(from_worker=worker_of("src"), to_worker=worker_of("dst"), delivered_ns=_whole(snapshot))
        .group_by("from_worker", "to_worker")
        .agg(
            messages=pl.len().cast(pl.Int64),
            data_messages=data.sum().cast(pl.Int64),
            records=pl.col("records").filter(data).sum(),
            delivered_ns=pl.col("delivered_ns").filter(data).sum(),
        )
    )
    workers = pl.DataFrame({"from_worker": snapshot.run.workers}, schema={"from_worker": pl.Int32})
    pairs = workers.join(workers.rename({"from_worker": "to_worker"}), how="cross")
    total = sent["records"].sum() or 1
    result = (
        pairs.filter(pl.col("from_worker") != pl.col("to_worker"))
        .join(sent, on=["from_worker", "to_worker"], how="left")
        .with_columns(pl.col("messages", "data_messages", "records", "delivered_ns").fill_null(0))
        .with_columns(records_share=pl.col("records") / total)
        .sort("from_worker", "to_worker")
    )
    return result.select(MATRIX.names).to_arrow().cast(MATRIX)


def _whole(snapshot: Snapshot) -> pl.Expr:
    return delivered_ns(snapshot.run.rules)
