"""How long inputs took, counted from when they were due.

A program that is held up is also late to give what came meanwhile. In an open loop an input is due by the clock, so
that its latency holds the time for which it lay about before the program took it up; counted from when it was given,
that time is lost (coordinated omission). An input that was not done when the log ends took at least until then: it is
*censored*, and stays in the distribution with that bound. So does one that was passed over: the worker says that those
before some later one are done, but never gave it. It took at least until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.model.input_tables import INPUT_LATENCIES, LOAD_CURVE
from pag_graph.model.ranks import nearest_rank
from pag_graph.model.units import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_STABLE = 0.99
_MOST_DUE = 1 << 30
"""Inputs of a worker that were due: a second of one each nanosecond, which take about 100 bytes each."""
QUANTILES = {"p50_ns": 0.5, "p99_ns": 0.99, "max_ns": 1.0}
"""Columns of quantiles, by their share."""


class Quantile(NamedTuple):
    """A quantile of latencies."""

    ns: int
    """Nanoseconds."""
    at_least: bool
    """Whether it is a lower bound: an input that was not done may belong further up."""

    def __str__(self) -> str:
        """Return it as people read it, after ``>=`` if it is a bound."""
        return f">= {duration(self.ns)}" if self.at_least else duration(self.ns)


class Schedule(NamedTuple):
    """What a worker says of its inputs, on its own clock."""

    first_ns: int
    """When the first input is due (ns of the worker's own clock)."""
    interval_ns: int | None
    """From one input to the next; None where each says itself when it is due."""
    inputs: int
    """How many there are."""
    offered_ns: int | None
    """For how long input is offered by the clock; None in a closed loop."""


@dataclass(frozen=True, kw_only=True)
class LatencyReport:
    """How long the inputs of one run took."""

    run: str
    """What the run is called."""
    table: pa.Table
    """Rows of `INPUT_LATENCIES`, of each worker by number."""
    schedules: Mapping[int, Schedule]
    """Per worker, on the common clock."""
    ends_ns: Mapping[int, int]
    """Per worker: the end of its log, on the common clock."""
    not_due: int
    """Inputs that were not due yet when the log ended, or were never given in a closed loop: they count nowhere."""

    @property
    def loop(self) -> str:
        """`closed` where inputs are due when they are given, else `open`."""
        return "closed" if all(schedule.offered_ns is None for schedule in self.schedules.values()) else "open"

    def rows(self, worker: int | None = None) -> pl.DataFrame:
        """Return the rows of the table, of one worker or of all.

        Parameters
        ----------
        worker
            Number of the worker; None for all.

        Returns
        -------
        DataFrame
            Rows of the report's table.
        """
        rows = pl.from_arrow(self.table)
        assert isinstance(rows, pl.DataFrame)  # noqa: S101
        return rows if worker is None else rows.filter(pl.col("worker") == worker)

    def first_due(self) -> dict[int, int]:
        """Return when each input was due first on any worker.

        Returns
        -------
        dict
            Nanoseconds of Unix time by number, ascending.
        """
        return dict(self.rows().group_by("number").agg(pl.col("due_ns").min()).sort("number").iter_rows())

    def slowest(self) -> dict[str, Any] | None:
        """Return the row of the input that took longest.

        Returns
        -------
        dict or None
            Ties: the lowest worker and number. None without inputs.
        """
        rows = self.rows().sort("latency_ns", "worker", "number", descending=[True, False, False])
        return rows.row(0, named=True) if len(rows) else None

    def curve(self) -> list[dict[str, Any]]:
        """Return its points of a load curve.

        Returns
        -------
        list of dict
            Rows of `LOAD_CURVE`: one per worker, ascending, and one of all together.
        """
        return [*(_point(self, worker) for worker in sorted(self.schedules)), _point(self, None)]


def quantile(latency_ns: NDArray[np.int64], censored: NDArray[np.bool_], share: float) -> Quantile:
    """Return the smallest latency that a share of the inputs does not exceed (nearest rank).

    Parameters
    ----------
    latency_ns
        Per input, at least one: how long it took, or has taken so far.
    censored
        Per input: whether it was not done.
    share
        From 0 to 1.

    Returns
    -------
    Quantile
        A lower bound if an input that was not done has a bound no larger: what it really took may be more.

    Examples
    --------
    >>> latency, censored = np.array([5, 7, 9]), np.array([False, False, True])
    >>> quantile(latency, censored, 0.5), quantile(latency, censored, 1.0)
    (Quantile(ns=7, at_least=False), Quantile(ns=9, at_least=True))
    """
    value = nearest_rank(latency_ns, share)
    assert value is not None  # noqa: S101  (there is an input)
    return Quantile(value, bool((censored & (latency_ns <= value)).any()))


def latencies(run: str, inputs: pa.Table, offsets_ns: Mapping[int, int], ends_ns: Mapping[int, int]) -> LatencyReport:
    """Measure the inputs of one run from when they were due.

    Parameters
    ----------
    run
        What the run is called.
    inputs
        Rows of `TRACE_INPUTS`.
    offsets_ns
        Per worker: what leads from its clock to the common one.
    ends_ns
        Per worker that has events: the last one of its log, on its own clock.

    Returns
    -------
    LatencyReport
        O(rows log rows).

    Raises
    ------
    TraceFormatError
        If a worker has no schedule, several, or one that runs backward.
    """
    rows = pl.from_arrow(inputs)
    assert isinstance(rows, pl.DataFrame)  # noqa: S101
    parts, schedules, ends, left_out = [], {}, {}, 0
    for (number,), part in rows.group_by("worker", maintain_order=True):
        worker = int(number)
        offset = offsets_ns[worker]
        schedule = _schedule(worker, part)
        said = (part.select(pl.max_horizontal(pl.col("given_ns", "noticed_ns").max())).item(), ends_ns.get(worker))
        # Of who says nothing at all, no input was due.
        last = max((int(moment) for moment in said if moment is not None), default=schedule.first_ns - 1)
        measured = _measured(part, schedule, last)
        left_out += schedule.inputs - len(measured)
        schedules[worker] = schedule._replace(first_ns=schedule.first_ns + offset)
        ends[worker] = last + offset
        shifted = [(pl.col(name) + offset) for name in ("due_ns", "given_ns", "noticed_ns")]
        parts.append(measured.with_columns(shifted).with_columns(worker=pl.lit(worker, pl.Int32)))
    table = pl.concat(parts).sort("worker", "number").select(INPUT_LATENCIES.names).to_arrow().cast(INPUT_LATENCIES)
    return LatencyReport(run=run, table=table, schedules=schedules, ends_ns=ends, not_due=left_out)


def _schedule(worker: int, rows: pl.DataFrame) -> Schedule:
    declared = rows.filter(pl.col("count").is_not_null())
    if len(declared) != 1:
        message = f"Worker {worker} declares {len(declared)} schedules of input; one is needed."
        raise TraceFormatError(message, "Call `tracer.inputs` once on each worker.", {"worker": worker})
    row = declared.row(0, named=True)
    first, interval, count = int(row["due_ns"]), row["interval_ns"], int(row["count"])
    if count < 0 or (interval or 0) < 0:
        message = f"Worker {worker} declares a schedule of {count} inputs, one each {interval} ns."
        raise TraceFormatError(message, "Neither can be negative.", {"worker": worker})
    inputs = rows.filter(pl.col("number").is_not_null())
    offered = None if interval is None else count * int(interval)
    if interval is None and inputs.select(pl.col("due_ns").ne_missing(pl.col("given_ns")).any()).item():
        # Each was due at an instant of its own: the last is offered for as long as the others are on average.
        last = int(inputs.select(pl.col("due_ns").max()).item())
        offered = (last - first) * count // max(count - 1, 1)
    return Schedule(first, interval, count, offered)


def _due(schedule: Schedule, end_ns: int) -> int:
    """Count the inputs of a schedule by the clock that were due by its worker's end: a schedule may never end."""
    passed_ns = end_ns - schedule.first_ns
    if passed_ns < 0:
        return 0
    return min(schedule.inputs, passed_ns // schedule.interval_ns + 1) if schedule.interval_ns else schedule.inputs


def _measured(rows: pl.DataFrame, schedule: Schedule, end_ns: int) -> pl.DataFrame:
    """Return the inputs of one worker that were due by the end, on its own clock."""
    inputs = rows.filter(pl.col("number").is_not_null()).unique("number", keep="first", maintain_order=True)
    if schedule.interval_ns is not None:
        due = _due(schedule, end_ns)
        if due > _MOST_DUE:
            message = f"A worker's schedule has {due:,} inputs that were due; at most {_MOST_DUE:,} can be measured."
            raise TraceFormatError(message, "Record the schedule that the program follows, or a shorter run.")
        numbers = pl.DataFrame({"number": np.arange(due, dtype=np.int64)})
        due_ns = schedule.first_ns + pl.col("number") * schedule.interval_ns
        inputs = numbers.join(inputs, on="number", how="left").with_columns(due_ns=due_ns)
    inputs = inputs.select("number", "due_ns", "given_ns", "epoch", "records").filter(pl.col("due_ns") <= end_ns)
    looks = rows.filter(pl.col("frontier").is_not_null())
    reached = np.maximum.accumulate(looks["frontier"].to_numpy()) if len(looks) else np.empty(0, np.int64)
    place = np.searchsorted(reached, inputs["number"].to_numpy(), side="right")
    noticed_at = np.append(looks["noticed_ns"].to_numpy(), np.int64(-1))
    is_done = place < len(reached)
    noticed = pl.Series("noticed_ns", noticed_at[place]).set(pl.Series(~is_done), None)
    done_ns = pl.col("noticed_ns").fill_null(end_ns)
    return inputs.with_columns(noticed).with_columns(
        latency_ns=(done_ns - pl.col("due_ns")).clip(lower_bound=0),
        # An input that was never given was not processed either, though the worker passed its number.
        censored=pl.col("noticed_ns").is_null() | pl.col("given_ns").is_null(),
    )


def _point(report: LatencyReport, worker: int | None) -> dict[str, Any]:
    """Return one row of `LOAD_CURVE`."""
    rows = report.rows(worker)
    latency, censored = rows["latency_ns"].to_numpy(), rows["censored"].to_numpy()
    done_rows = rows.filter(~pl.col("censored"))
    begin_ns, clocked = _offer(
        report, [scheduled for scheduled in report.schedules if worker in (None, scheduled)], rows
    )
    offered_ns = max(clocked.values(), default=0)
    noticed_ns = done_rows["noticed_ns"].to_list()
    seconds = (max([begin_ns + offered_ns, *noticed_ns]) - begin_ns) / 1e9 or 1e-9
    # What a worker takes in a closed loop beside others is offered by no clock.
    offered, done = (part.filter(pl.col("worker").is_in(list(clocked))).height for part in (rows, done_rows))
    offered_per_s = offered / offered_ns * 1e9 if offered_ns else None
    has_records = done_rows["records"].null_count() == 0 and len(done_rows) > 0
    quantiles = {name: quantile(latency, censored, share) for name, share in QUANTILES.items()} if len(rows) else {}
    return {
        "run": report.run,
        "worker": worker,
        "loop": "open" if clocked else "closed",
        "inputs": len(rows),
        "censored": int(censored.sum()),
        "offered_per_s": offered_per_s,
        "achieved_per_s": len(done_rows) / seconds,
        "records_per_s": float(done_rows["records"].sum()) / seconds if has_records else None,
        "mean_ns": float(latency.mean()) if len(rows) else 0.0,
        **{name: quantiles[name].ns if quantiles else 0 for name in QUANTILES},
        "at_least": [name for name, value in quantiles.items() if value.at_least] + ["mean_ns"] * bool(censored.any()),
        "stable": None if offered_per_s is None else done / seconds >= _STABLE * offered_per_s,
    }


def _offer(report: LatencyReport, workers: Sequence[int], rows: pl.DataFrame) -> tuple[int, dict[int, int]]:
    """Return when input began, and until when after that each worker was offered some by the clock."""
    scheduled = {worker: report.schedules[worker] for worker in workers}
    clocked = {worker: schedule for worker, schedule in scheduled.items() if schedule.offered_ns is not None}
    if not clocked:
        return min(rows["given_ns"].to_list(), default=0), {}
    begin = min(schedule.first_ns for schedule in clocked.values())
    ends = {
        worker: min(schedule.first_ns + (schedule.offered_ns or 0), report.ends_ns[worker])
        for worker, schedule in clocked.items()
    }
    return begin, {worker: max(end - begin, 1) for worker, end in ends.items()}


def load_curve(reports: Sequence[LatencyReport]) -> pa.Table:
    """Put runs beside each other, by what was offered.

    Parameters
    ----------
    reports
        One per run, at least one.

    Returns
    -------
    pyarrow.Table
        Rows of `LOAD_CURVE`: open loops first, by offered load; closed ones by what they achieved.

    Raises
    ------
    InvalidParameterError
        If there is no run.
    """
    if not reports:
        message = "There is no run to be put beside others."
        raise InvalidParameterError(message, "Give traces: pag load-curve 100k 200k 400k")
    groups = sorted((report.curve() for report in reports), key=_load)
    return pa.Table.from_pylist([row for group in groups for row in group], LOAD_CURVE)


def _load(rows: list[dict[str, Any]]) -> tuple[bool, float, str]:
    pooled = rows[-1]
    closed = pooled["loop"] == "closed"
    return closed, pooled["achieved_per_s"] if closed else pooled["offered_per_s"], pooled["run"]
