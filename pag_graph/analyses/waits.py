"""Who waited for whom, on which channel, for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import narwhals.stable.v2 as nw

from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.view import WAITING, count_rows, end_ns, inside_ns, worker_of
from pag_graph.model.tables import WAITS

if TYPE_CHECKING:
    import polars as pl

    from pag_graph.analyses.view import View

_Messages = TypeVar("_Messages", "nw.DataFrame[Any]", "nw.LazyFrame[Any]")


def waits(view: View) -> pl.DataFrame:
    """Sum the waits in a window by the messages that ended them.

    Parameters
    ----------
    view
        Of any run.

    Returns
    -------
    DataFrame
        Rows of `WAITS`; only the part of a wait inside the window counts. O(edges).
    """
    enders = last_sent(view.enders, "dst", aligned=view.run.aligned).select(
        "dst", "channel", message="type", from_worker=worker_of("src")
    )
    end = nw.col("window_end_ns")
    waited = view.edges.filter(
        nw.col("type") == WAITING,
        # A wait that begins in the instant in which the window ends is no part of it.
        (nw.col("start_ns") < end) | (end_ns() <= end),
    ).select("window", "dst", worker=worker_of("dst"), waiting_ns=inside_ns())
    sums = (
        waited.join(enders, on="dst", how="left")
        .group_by("window", "worker", "from_worker", "message", "channel")
        .agg(count_rows().alias("waits"), nw.col("waiting_ns").sum())
        .rename({"message": "type"})
    )
    order = ["window", "waiting_ns", "worker", "from_worker", "type", "channel"]
    return view.collect(sums).sort(order, descending=[False, True, False, False, False, False])


def last_sent(messages: _Messages, *keys: str, aligned: bool = True) -> _Messages:
    """Choose the message that ended a wait: of several that are read where it ends, the one that was sent last.

    Parameters
    ----------
    messages
        Edges between workers, as a frame of Narwhals.
    *keys
        Columns that tell waits apart: ``dst``, and ``window`` where there is one.
    aligned
        Whether all times are of one clock: what was read before it was sent ends no wait then.

    Returns
    -------
    frame
        At most one row of `messages` per key (ties: the lowest sender).
    """
    fitting = messages.filter(nw.col("duration_ns") >= 0) if aligned else messages
    last = fitting.group_by(*keys).agg(nw.col("start_ns").max())
    latest = fitting.join(last, on=[*keys, "start_ns"], how="inner")
    lowest = latest.group_by(*keys).agg(nw.col("src").min())
    return latest.join(lowest, on=[*keys, "src"], how="inner")


ANALYSIS: TableAnalysis[None] = TableAnalysis(
    name="waits",
    function=waits,
    schema=WAITS,
    output="WAITS",
    across=True,
    example="--epoch 5",
    cypher="patterns/who_waits_for_whom",
    chart=Chart(kind="matrix", x=("from_worker",), y=("worker",), value="waiting_ns"),
    standing=Standing.WINDOW,
)
