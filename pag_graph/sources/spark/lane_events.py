"""Events of the driver's lanes, made of their points.

Definitions stand in `docs/spark.md`, "The mapping".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.sources.spark.operators import APPLICATION
from pag_graph.sources.spark.points import (
    BUSY,
    EXIT,
    IDLE,
    IN_JOB,
    JOB_END,
    JOB_START,
    NOTE,
    RECEIVE,
    SEND,
    SPAWN,
    WAIT,
)
from pag_graph.sources.spark.trace_rows import ACTIVITIES, KINDS, Epochs, finished, in_order, of_activity, of_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pag_graph.sources.spark.driver import DriverPoints

__all__ = ["lane_events"]


def lane_events(driver: DriverPoints, epochs: Epochs, *, size: int) -> Iterator[tuple[str, pa.Table]]:
    """Yield the events of all lanes part by part, with a name for each part's file.

    Parameters
    ----------
    driver, epochs
        Of one log.
    size
        About how many points a part has.
    """
    for lane in range(driver.lanes):
        so_far, seq = _SoFar(), 0
        stretches = driver.stretches(lane, epochs.marks, size)
        # Each part with the next one, which is empty after the last.
        for part_number, (points, after) in enumerate(pairwise(chain(stretches, [pl.DataFrame()]))):
            low = int(points["t"][0]) if part_number else -1
            high = int(after["t"][0]) if after.height else None
            lane_points, so_far_next = _gaps(points, after, so_far)
            rows = pl.concat([_lane_rows(lane_points, lane), epochs.told_between(lane, low, high)], how="diagonal")
            del lane_points
            rows = in_order(rows)
            table = finished(epochs, rows, {lane: seq})
            seq, so_far = seq + table.num_rows, so_far_next
            name = f"worker-{lane:07}-{part_number:06}"
            del rows
            yield name, table
            # The next part need not find this one in memory.
            del table


@dataclass(frozen=True, slots=True, kw_only=True)
class _SoFar:
    """What the points of a lane before a part leave behind."""

    points: int = 0
    t: int | None = None
    kind: int | None = None
    mode: int = BUSY
    noted: int | None = None
    fetching: int = 0
    """Results that are being fetched."""
    gap: str | None = None
    gap_operator: int | None = None


def _gaps(points: pl.DataFrame, after: pl.DataFrame, so_far: _SoFar) -> tuple[pl.DataFrame, _SoFar]:
    """Decide what a lane does after each instant; return what the part leaves behind as well."""
    ahead = {
        f"next_{name}": pl.col(name).shift(-1, fill_value=after[name][0] if after.height else None)
        for name in ("t", "kind", "operator")
    }
    points = points.with_columns(
        i=pl.int_range(so_far.points, so_far.points + pl.len(), dtype=pl.Int64),
        previous_t=pl.col("t").shift(1, fill_value=so_far.t),
        previous_kind=pl.col("kind").shift(1, fill_value=so_far.kind),
        mode=pl.when(pl.col("mode") >= 0).then("mode").forward_fill().fill_null(so_far.mode),
        fetching=pl.col("fetches").cum_sum() + so_far.fetching,
        **ahead,
    )
    in_job, receives = pl.col("mode") == IN_JOB, pl.col("next_kind") == RECEIVE
    activity = (
        pl.when(pl.col("mode") == BUSY)
        .then(of_activity(ActivityType.BUSY))
        .when(pl.col("mode") == WAIT)
        .then(of_activity(ActivityType.WAITING))
        .when(pl.col("mode") == IDLE)
        .then(of_activity(ActivityType.IDLE))
        .when(in_job & (pl.col("fetching") > 0))
        .then(of_activity(ActivityType.IO))
        .when(in_job & receives)
        .then(of_activity(ActivityType.WAITING))
        .otherwise(of_activity(ActivityType.SCHEDULING))
    )
    # Between jobs the operator is the last one noted; within a job it is that of what comes next.
    noted = pl.when(pl.col("kind").is_in([NOTE, JOB_START, JOB_END])).then("operator").otherwise(None)
    points = points.with_columns(noted=noted.forward_fill().fill_null(pl.lit(so_far.noted, pl.Int64)))
    operator = (
        pl.when(in_job & (pl.col("next_operator") >= 0) & (activity != str(ActivityType.WAITING)))
        .then("next_operator")
        .otherwise("noted")
    )
    points = points.with_columns(
        gap=pl.when(pl.col("next_t") > pl.col("t")).then(activity).otherwise(None), gap_operator=operator
    ).with_columns(
        previous_gap=pl.col("gap").shift(1, fill_value=pl.lit(so_far.gap, ACTIVITIES)),
        previous_operator=pl.col("gap_operator").shift(1, fill_value=so_far.gap_operator),
    )
    last_point = points.row(-1, named=True)
    names = ("t", "kind", "mode", "noted", "fetching", "gap", "gap_operator")
    return points, _SoFar(points=so_far.points + points.height, **{name: last_point[name] for name in names})


def _lane_rows(points: pl.DataFrame, lane: int) -> pl.DataFrame:
    waiting = str(ActivityType.WAITING)
    i = pl.col("i")
    worker = pl.lit(lane, pl.Int32)
    starts = points.filter(pl.col("gap").is_not_null()).select(
        worker=worker,
        key=i * 4 + 3,
        t_ns="t",
        kind=of_kind(EventKind.START),
        activity="gap",
        operator=pl.col("gap_operator"),
    )
    ends_wait = (pl.col("previous_gap") == waiting) & (pl.col("kind") == RECEIVE)
    stops = points.filter(pl.col("previous_gap").is_not_null()).select(
        worker=worker,
        key=i * 4 + pl.when(ends_wait).then(2).otherwise(0),
        t_ns="t",
        kind=of_kind(EventKind.STOP),
        operator=pl.col("previous_operator"),
    )
    # What arrives after something was sent at the same instant may be an answer to it: an activity without duration
    # keeps it apart from a wait that ended at this instant.
    after_send = points.filter(
        (pl.col("kind") == RECEIVE) & (pl.col("previous_t") == pl.col("t")) & (pl.col("previous_kind") != RECEIVE)
    )
    apart = {"worker": worker, "key": i * 4 - 1, "t_ns": pl.col("t"), "operator": pl.lit(APPLICATION, pl.Int64)}
    apart_starts = after_send.select(
        **apart, kind=of_kind(EventKind.START), activity=of_activity(ActivityType.SCHEDULING)
    )
    apart_stops = after_send.select(**apart, kind=of_kind(EventKind.STOP))
    kinds = {
        SEND: EventKind.SEND,
        RECEIVE: EventKind.RECEIVE,
        SPAWN: EventKind.SPAWN,
        EXIT: EventKind.EXIT,
        JOB_END: EventKind.EPOCH_END,
    }
    marked_points = points.filter(
        pl.col("kind").is_in([SEND, RECEIVE, SPAWN, EXIT])
        | ((pl.col("kind") == JOB_END) & pl.col("epoch_end").is_not_null())
    )
    is_message = pl.col("kind").is_in([SEND, RECEIVE])
    marks = marked_points.select(
        worker=worker,
        key=i * 4 + 1,
        t_ns="t",
        kind=pl.col("kind").replace_strict(
            {number: str(event_kind) for number, event_kind in kinds.items()}, return_dtype=KINDS
        ),
        activity=pl.when(is_message).then(of_activity(ActivityType.CONTROL_MESSAGE)),
        channel=pl.when(is_message).then("channel"),
        peer=pl.when(is_message | (pl.col("kind") == SPAWN)).then(pl.col("peer").cast(pl.Int32)),
        message_seq=pl.when(is_message).then("number"),
        ends=pl.col("epoch_end"),
    )
    return pl.concat([starts, stops, apart_starts, apart_stops, marks], how="diagonal")
