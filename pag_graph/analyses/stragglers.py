"""Workers that the others wait for because they have more to do, or are slower.

Definition: `docs/analyses.md`, section "stragglers", for the users' question for slow nodes; a straggler is relative to
the median.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.blame import blame
from pag_graph.analyses.critical_path import path_steps
from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.expressions import IS_MESSAGE, UNKNOWN, WAITING, peers_there, presence
from pag_graph.analyses.view import count_rows, where, worker_of
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.needs import Needs
from pag_graph.model.enums import ActivityType
from pag_graph.model.tables import STRAGGLERS

if TYPE_CHECKING:
    from pag_graph.analyses.view import View

_DATA = str(ActivityType.DATA_MESSAGE)
_NO_WORK = [WAITING, UNKNOWN, *(str(k) for k in (ActivityType.IDLE, ActivityType.INPUT_WAIT, ActivityType.SPINNING))]


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglersParameters:
    """Parameters of `stragglers`."""

    above: Annotated[
        float, "A straggler works more than this many times the median of the workers that run the same."
    ] = 1.5

    def __post_init__(self) -> None:
        """Check the range.

        Raises
        ------
        InvalidParameterError
            If `above` is less than 1.
        """
        if self.above < 1:
            message = f"above is {self.above}, and must be at least 1."
            raise InvalidParameterError(message, "stragglers(above=1.5)")


def stragglers(view: View, parameters: StragglersParameters) -> pl.DataFrame:
    """Compare how much each worker worked, and how long the others waited for it.

    Parameters
    ----------
    view
        Of a run with aligned clocks.
    parameters
        What is called a straggler.

    Returns
    -------
    DataFrame
        Rows of `STRAGGLERS`, one per worker that is there in the window and not `unknown` all the time, most work
        first.

    Notes
    -----
    Workers are compared with those that run the same (`Run.peers`) and are there in the window for any time. If all run
    one dataflow, these are all workers but those that have left, those that are not born yet, and those whose whole
    time in the window is `unknown`: nobody can say that they had nothing to do. A straggler works more than `above`
    times their median, and waiting is charged to it (see `blame`). If it also read more than `above` times the median's
    records, the cause is `data`. Otherwise the worker, or its machine, takes longer for the same work, and the cause is
    `speed`. If its records are not known, the two cannot be told apart, and the cause is `speed`.

    Records are those that a worker's activities tell. If none of them tells, nothing was read if those of others in the
    window do, unless the worker read a data message of which nobody says how much it holds; else they are not known.

    The median of an even number of workers is the mean of the middle two. Messages of a worker to itself cost nothing
    here. The cost is that of `blame`.
    """
    key, ended = ["window", "worker"], view.ends_inside
    local = view.collect(
        view.local.filter(view.shows_worker)
        .select(
            *key,
            work_ns=where(~nw.col("type").is_in(_NO_WORK), "inside_ns"),
            waiting_ns=where(nw.col("type") == WAITING, "inside_ns"),
            records=where(ended, "records"),
            telling=(ended & ~nw.col("records").is_null()).cast(nw.Int64),
            **presence(),
        )
        .group_by(key)
        .agg(nw.col("work_ns", "waiting_ns", "records", "telling", "inside_ns", "unknown_ns").sum())
    )
    uncounted = view.edges.filter((nw.col("type") == _DATA) & nw.col("records").is_null(), ended)
    unknown_reads = view.collect(
        uncounted.with_columns(worker=worker_of("dst")).group_by(key).agg(count_rows().alias("unknown_reads"))
    )
    on_path = path_steps(view).filter(~IS_MESSAGE).group_by(key).agg(path_ns=pl.col("duration_ns").sum())
    charged = blame(view).filter(pl.col("by_worker") == pl.col("to_worker"))
    blamed = charged.group_by("window", worker="by_worker").agg(blamed_ns=pl.col("blamed_ns").sum())
    joined = peers_there(view, local)
    for counted in (local, unknown_reads, on_path, blamed):
        joined = joined.join(counted, on=key, how="left")
    counts = ["work_ns", "waiting_ns", "records", "unknown_reads", "path_ns", "blamed_ns"]
    # Who tells nothing has read nothing, if others tell, and no message says otherwise.
    nothing_read = (pl.col("unknown_reads") == 0) & (pl.col("telling") > 0).any().over("window")
    work_median, records_median = (pl.col(name).median().over("window", "group") for name in ("work_ns", "records"))
    data_or_speed = pl.when(pl.col("more")).then(pl.lit("data")).otherwise(pl.lit("speed"))
    return (
        joined.with_columns(pl.col(counts).fill_null(0))
        .with_columns(records=pl.when((pl.col("telling") > 0) | nothing_read).then("records"))
        .with_columns(
            ns_per_record=pl.when(pl.col("records") > 0).then(pl.col("work_ns") / pl.col("records")),
            work_ratio=pl.when(work_median > 0).then(pl.col("work_ns") / work_median),
            more=pl.col("records") > parameters.above * records_median,
            straggler=(pl.col("work_ns") > parameters.above * work_median) & (pl.col("blamed_ns") > 0),
        )
        .with_columns(cause=pl.when(pl.col("straggler")).then(data_or_speed))
        .sort("window", "work_ns", "worker", descending=[False, True, False])
    )


ANALYSIS = TableAnalysis(
    name="stragglers",
    function=stragglers,
    parameters=StragglersParameters,
    schema=STRAGGLERS,
    output="STRAGGLERS",
    across=True,
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5 --above 1.5",
    chart=Chart(kind="bars", x=("worker",), y=("work_ns", "waiting_ns", "blamed_ns")),
    standing=Standing.WINDOW,
    compares_workers=True,
)
