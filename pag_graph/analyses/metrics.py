"""How much of what happened where and between whom, per epoch: counts, times and records.

Definition: ST2 (Sandstede 2019) 5.1.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.frames import Frames, delivered_ns, frames_of, rows, where, worker_of
from pag_graph.analyses.windows import over
from pag_graph.model.enums import ActivityType, RuleSet
from pag_graph.model.tables import MATRIX, METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pag_graph.analyses.frames import Frame
    from pag_graph.graph.snapshot import Run, Snapshot, Window
    from pag_graph.graph.tiling import Tiling

_KEYS = ["epoch", "from_worker", "to_worker", "type"]
_COLUMNS = ("records", "read", "receive_buffer_ns")
_DATA = str(ActivityType.DATA_MESSAGE)


def metrics(snapshot: Snapshot | Frames) -> pa.Table:
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
    frames = frames_of(snapshot)
    summed = frames.collect(_summed(frames.labelled, frames.run.rules, _KEYS)).sort(_KEYS)
    return summed.select(METRICS.names).to_arrow().cast(METRICS)


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
    keys = ["window", *_KEYS]

    def rows_of(tiling: Tiling) -> pl.DataFrame:
        edges = tiling.edges.lazy().with_columns(window=pl.Series(tiling.window))
        summed = _summed(nw.from_native(edges), run.rules, keys).to_native()
        found: pl.DataFrame = summed.with_columns(pl.col("type").cast(pl.String)).sort(keys).collect()
        return found

    return over(run, windows, _COLUMNS, "labels", rows_of)


def _summed(edges: Frame, rules: RuleSet, keys: list[str]) -> Frame:
    took = nw.col("duration_ns")
    if rules is RuleSet.ST2:
        took = nw.max_horizontal(took, nw.lit(0))
    return (
        edges.with_columns(
            from_worker=worker_of("src"),
            to_worker=worker_of("dst"),
            duration_ns=took,
            delivered_ns=delivered_ns(rules),
        )
        .group_by(keys)
        .agg(nw.col("duration_ns", "delivered_ns", "records").sum(), rows().alias("activities"))
    )


def matrix(snapshot: Snapshot | Frames) -> pa.Table:
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
    frames = frames_of(snapshot)
    data = nw.col("type") == _DATA
    sent = frames.collect(
        frames.sent.with_columns(delivered_ns=delivered_ns(frames.run.rules))
        .select(
            "from_worker",
            "to_worker",
            data_messages=data.cast(nw.Int64),
            records=where(data, "records"),
            delivered_ns=where(data, "delivered_ns"),
        )
        .group_by("from_worker", "to_worker")
        .agg(nw.col("data_messages", "records", "delivered_ns").sum(), rows().alias("messages"))
    )
    workers = pl.DataFrame({"from_worker": frames.run.workers}, schema={"from_worker": pl.Int32})
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
