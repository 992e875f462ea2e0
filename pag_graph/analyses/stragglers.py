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
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import IS_MESSAGE, UNKNOWN, WAITING, peer_frame
from pag_graph.analyses.frames import Frames, frames_of, where
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import ActivityType
from pag_graph.model.tables import STRAGGLERS

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.snapshot import Snapshot

_NO_WORK = [WAITING, UNKNOWN, *(str(k) for k in (ActivityType.IDLE, ActivityType.INPUT_WAIT, ActivityType.SPINNING))]


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglersParameters:
    """Parameters of `stragglers`."""

    above: Annotated[float, "A straggler works more than so many times the median of its like."] = 1.5


def stragglers(snapshot: Snapshot | Frames, parameters: StragglersParameters | None = None) -> pa.Table:
    """Compare how much each worker worked, and how long the others waited for it.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    parameters
        What is called a straggler.

    Returns
    -------
    pa.Table
        Rows of `STRAGGLERS`, one per worker of the run, most work first.

    Raises
    ------
    InvalidParameterError
        If `above` is less than 1.

    Notes
    -----
    Workers are compared with those that run the same (`Run.peers`), which where all run one dataflow are all. A
    straggler works more than `above` times their median, and waiting is charged to it (see `blame`). If it read more
    than `above` times the median's records as well, the cause is `data`; otherwise the worker, or its machine, takes
    longer for the same: `speed`. Where no records are known nothing tells the two apart, and it is `speed`. A median
    of an even number of workers is the mean of the middle two. Local messages of one worker to itself cost nothing
    here. Cost as of `blame`.
    """
    parameters = parameters or StragglersParameters()
    if parameters.above < 1:
        message = f"above is {parameters.above}, and must be at least 1."
        raise InvalidParameterError(message, "stragglers(above=1.5)")
    frames = frames_of(snapshot)
    local = frames.collect(
        frames.local.select(
            "worker",
            work_ns=where(~nw.col("type").is_in(_NO_WORK), "inside_ns"),
            waiting_ns=where(nw.col("type") == WAITING, "inside_ns"),
            records=where(frames.ends_inside, "records"),
        )
        .group_by("worker")
        .agg(nw.col("work_ns", "waiting_ns", "records").sum())
    )
    steps = pl.DataFrame(pl.from_arrow(critical_path(snapshot).steps)).filter(~IS_MESSAGE)
    on_path = steps.group_by("worker").agg(path_ns=pl.col("duration_ns").sum())
    charged = pl.DataFrame(pl.from_arrow(blame(snapshot))).filter(pl.col("by_worker") == pl.col("to_worker"))
    blamed = charged.group_by(worker="by_worker").agg(blamed_ns=pl.col("blamed_ns").sum())
    workers = peer_frame(snapshot.run)
    counts = ["work_ns", "waiting_ns", "records", "path_ns", "blamed_ns"]
    joined = workers
    for frame in (local, on_path, blamed):
        joined = joined.join(frame, on="worker", how="left")
    work_median, records_median = (pl.col(name).median().over("group") for name in ("work_ns", "records"))
    result = (
        joined.with_columns(pl.col(counts).fill_null(0))
        .with_columns(
            ns_per_record=pl.when(pl.col("records") > 0).then(pl.col("work_ns") / pl.col("records")),
            work_ratio=pl.when(work_median > 0).then(pl.col("work_ns") / work_median),
            more=pl.col("records") > parameters.above * records_median,
        )
        .with_columns(
            straggler=(pl.col("work_ns") > parameters.above * work_median) & (pl.col("blamed_ns") > 0),
        )
        .with_columns(
            cause=pl.when(pl.col("straggler")).then(
                pl.when(pl.col("more")).then(pl.lit("data")).otherwise(pl.lit("speed"))
            )
        )
        .sort("work_ns", "worker", descending=[True, False])
    )
    return result.select(STRAGGLERS.names).to_arrow().cast(STRAGGLERS)
