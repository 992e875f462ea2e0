"""Maps an event log to the canonical trace: driver lanes and executor cores as workers (`docs/spark.md`).

Worker numbers: driver lanes first, then the cores executor by executor. All rows are made of columns; the events are
yielded in parts, so that memory does not grow with the length of the log beyond its tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.model.enums import ActivityType, EventKind, RuleSet, Severity
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.spark.operators import APPLICATION, Operators, name_operators
from pag_graph.sources.spark.schedule import MS, Schedule
from pag_graph.sources.spark.shuffles import FIRST_SHUFFLE, Shuffles, shuffle_messages
from pag_graph.store.findings import findings as make_findings
from pag_graph.store.findings import no_findings
from pag_graph.store.trace import TraceMeta, TraceSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pag_graph.sources.spark.reader import LogFinding

    I64 = NDArray[np.int64]

__all__ = ["FORMAT", "Mapped", "map_schedule"]

FORMAT = "spark"
"""Name of the format of Spark's event logs."""

LAUNCH, RESULT, LANES, EXECUTORS, OFFERS = range(5)
"""Channels: task launched, task done, between driver lanes, executor came or went, core free for another lane's job."""

_CHUNK = 8_000
_MOST_EPOCH_ROWS = 2_000_000

# What happens at an instant on a lane.
_NOTE, _JOB_START, _JOB_END, _SEND, _RECEIVE, _GOT, _SPAWN, _EXIT, _EPOCH = range(9)
# What a lane does from an instant on; otherwise it goes on as before.
_SAME, _IN_JOB, _BUSY, _WAIT = range(-1, 3)

_PHASES: tuple[tuple[str, ActivityType], ...] = (
    ("before", ActivityType.SCHEDULING),
    ("deserialize", ActivityType.DESERIALIZATION),
    ("fetch_wait", ActivityType.INPUT_WAIT),
    ("work", ActivityType.PROCESSING),
    ("gc", ActivityType.GC),
    ("write", ActivityType.IO),
    ("serialize", ActivityType.SERIALIZATION),
    ("after", ActivityType.SCHEDULING),
)
"""Parts of a task on its core, in the order in which they are placed."""

_ROW: dict[str, Any] = {
    "worker": pl.Int32,
    "key": pl.Int64,
    "t_ns": pl.Int64,
    "kind": pl.String,
    "activity": pl.String,
    "operator": pl.Int64,
    "channel": pl.Int64,
    "peer": pl.Int32,
    "message_seq": pl.Int64,
    "records": pl.Int64,
    "bytes": pl.Int64,
    "inferred": pl.Boolean,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """A trace that is ready to be written."""

    schedule: Schedule
    meta: TraceMeta
    operators: Operators
    epochs: list[tuple[int, str]]
    """Per epoch: when it ends, in nanoseconds from the origin, and what it is called."""
    lanes: int
    """Workers that are driver lanes: the first ones."""
    workers: pa.Table
    operator_table: pa.Table
    channels: pa.Table
    findings: pa.Table
    shuffles: Shuffles
    _points: pl.DataFrame = field(repr=False)
    _epoch_rows: dict[int, I64] = field(repr=False)

    def events(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the events, part by part, with a name for each part's file."""
        yield from _lane_events(self)
        yield from _core_events(self)

    def core_worker(self, core: int) -> int:
        """Return the worker that is a core."""
        return self.lanes + core


def map_schedule(schedule: Schedule, trace_id: str) -> Mapped:
    """Map a log whose open questions are decided.

    Parameters
    ----------
    schedule
        Of one log.
    trace_id
        Identity of the run.

    Returns
    -------
    Mapped
        Small tables, and the events to be had part by part.
    """
    log = schedule.log
    operators = name_operators(schedule)
    shuffles = shuffle_messages(schedule, operators)
    lanes = len(schedule.lanes)
    points = _points(schedule, operators, lanes)
    points, epochs = _mark_epochs(schedule, points)
    lives = _lives(schedule, lanes)
    epoch_rows = _epoch_rows(points, epochs, lives)
    found = [*log.findings, *schedule.findings, *shuffles.findings]
    return Mapped(
        schedule=schedule,
        meta=TraceMeta(
            trace_id=trace_id,
            source=TraceSource(system="spark", version=log.version, format=FORMAT),
            workers=lanes + len(schedule.cores),
            complete=log.complete,
            dropped=dict(sorted(log.unknown.items())),
            rules=RuleSet.STATED,
        ),
        operators=operators,
        epochs=epochs,
        lanes=lanes,
        workers=_workers(schedule, lanes),
        operator_table=pa.Table.from_pylist(operators.rows(), TRACE_OPERATORS),
        channels=_channels(shuffles, operators),
        findings=_finding_table(found, log.name),
        shuffles=shuffles,
        _points=points,
        _epoch_rows=epoch_rows,
    )


def _finding_table(found: list[LogFinding], file: str) -> pa.Table:
    tables = [
        make_findings(
            finding.finding,
            Severity(finding.severity),
            finding.detail,
            file=file,
            observed=finding.observed,
            unit=finding.unit,
        )
        for finding in found
    ]
    return pa.concat_tables(tables) if tables else no_findings()


def _workers(schedule: Schedule, lanes: int) -> pa.Table:
    log = schedule.log
    host = log.properties.get("spark.driver.host")
    offset = schedule.origin_ms * MS
    rows: list[dict[str, Any]] = [
        {
            "worker": lane,
            "process": 0,
            "host": host,
            "name": "driver" if lane == 0 else f"driver lane {lane + 1}",
        }
        for lane in range(lanes)
    ]
    executors = schedule.executors.to_dicts()
    for index, core in enumerate(schedule.cores):
        executor = executors[core.executor]
        name = executor["executor"]
        label = "local" if name == "driver" else f"executor {name}"
        rows.append(
            {
                "worker": lanes + index,
                # In local mode the executor is the driver's process.
                "process": 0 if name == "driver" else core.executor + 1,
                "host": executor["host"] or None,
                "name": f"{label} core {core.number + 1}",
            }
        )
    for row in rows:
        # All times in a log are the driver's.
        row.update(clock_domain="driver", offset_ns=offset, uncertainty_ns=0)
    return pa.Table.from_pylist(rows, TRACE_WORKERS)


def _channels(shuffles: Shuffles, operators: Operators) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {"channel": channel, "scope": "0", "type": text}
        for channel, text in (
            (LAUNCH, "task launch"),
            (RESULT, "task result"),
            (LANES, "driver lanes"),
            (EXECUTORS, "executor state"),
            (OFFERS, "free core"),
        )
    ]
    rows += [
        {
            "channel": FIRST_SHUFFLE + index,
            "scope": "0",
            "source_operator": operators.stages.get(source),
            "target_operator": operators.stages.get(target),
            "type": "shuffle",
        }
        for index, (source, target) in enumerate(shuffles.channels)
    ]
    return pa.Table.from_pylist(rows, TRACE_CHANNELS)


@dataclass(slots=True)
class _Lives:
    """When each worker begins and ends; the run's end for those that never end."""

    birth: I64
    end: I64
    exits: NDArray[np.bool_]


def _lives(schedule: Schedule, lanes: int) -> _Lives:
    count = lanes + len(schedule.cores)
    birth, end = np.zeros(count, np.int64), np.full(count, schedule.end_ns)
    exits = np.zeros(count, bool)
    for lane in schedule.lanes[1:]:
        birth[lane.lane] = lane.forks[0][0]
        end[lane.lane] = schedule.jobs[lane.jobs[-1]].end_ns
        exits[lane.lane] = True
    gone = executor_ends(schedule)
    added = schedule.executors["added"].to_list()
    removed = schedule.executors["removed"].to_list()
    for index, core in enumerate(schedule.cores):
        birth[lanes + index] = added[core.executor]
        end[lanes + index] = gone[core.executor]
        exits[lanes + index] = removed[core.executor] is not None
    return _Lives(birth, end, exits)


def executor_ends(schedule: Schedule) -> list[int]:
    """Return when each executor ended; the last of its tasks may have ended after it was seen to be gone."""
    last = dict(schedule.tasks.group_by("executor").agg(pl.col("free").max()).iter_rows())
    return [
        schedule.end_ns
        if row["removed"] is None
        else min(max(row["removed"], last.get(row["code"], 0)), schedule.end_ns)
        for row in schedule.executors.iter_rows(named=True)
    ]


# --- The driver ------------------------------------------------------------------------------------------------------


class _PointRows:
    """Points in the making: columns of lists."""

    names = ("lane", "stretch", "t", "rank", "kind", "peer", "channel", "number", "operator", "mode", "unit")

    def __init__(self) -> None:
        self.columns: dict[str, list[int]] = {name: [] for name in self.names}

    def add(
        self,
        lane: int,
        stretch: int,
        t: int,
        rank: int,
        kind: int,
        *,
        peer: int = -1,
        channel: int = -1,
        number: int = -1,
        operator: int = -1,
        mode: int = _SAME,
        unit: int = -1,
    ) -> None:
        values = (lane, stretch, t, rank, kind, peer, channel, number, operator, mode, unit)
        for name, value in zip(self.names, values, strict=True):
            self.columns[name].append(value)

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame(self.columns, schema=dict.fromkeys(self.names, pl.Int64))


def _points(schedule: Schedule, operators: Operators, lanes: int) -> pl.DataFrame:
    """Return what happens on the driver's lanes: one row per instant, in order.

    A lane's time is cut in stretches: 2k is what precedes its job k, 2k + 1 is job k.
    """
    rows = _PointRows()
    place = _Places(schedule)
    _skeleton(schedule, operators, rows, place)
    _executors(schedule, lanes, rows, place)
    tasks = _task_points(schedule, operators, lanes)
    points = pl.concat([rows.frame(), tasks])
    points = points.sort("lane", "stretch", "t", "rank", maintain_order=True)
    return points.with_columns(
        mode=pl.when(pl.col("mode") == _SAME).then(None).otherwise("mode").forward_fill().over("lane").fill_null(_BUSY)
    )


class _Places:
    """Finds the stretch of a lane that an instant lies in."""

    def __init__(self, schedule: Schedule) -> None:
        self._starts = [np.array([schedule.jobs[j].start_ns for j in lane.jobs]) for lane in schedule.lanes]
        self._ends = [np.array([schedule.jobs[j].end_ns for j in lane.jobs]) for lane in schedule.lanes]

    def stretch(self, lane: int, t: int) -> int:
        """Return 2k + 1 within job k, else 2k before it; the instant of a job's end is its own."""
        before = int(np.searchsorted(self._ends[lane], t, side="left"))
        inside = before < len(self._starts[lane]) and self._starts[lane][before] <= t
        return 2 * before + (1 if inside else 0)


def _skeleton(schedule: Schedule, operators: Operators, rows: _PointRows, place: _Places) -> None:
    """Add jobs, the driver's work between them, and what lanes tell each other."""
    jobs = schedule.jobs
    busy = _Busy(schedule, operators)
    messages = 0
    main = schedule.lanes[0]
    rows.add(0, 0, 0, 0, _NOTE, operator=APPLICATION, mode=_BUSY)
    joins: dict[int, list[tuple[int, int]]] = {}
    for lane in schedule.lanes[1:]:
        for (_, _, _), join in zip(lane.forks, lane.joins, strict=True):
            if join >= 0:
                # The stretch of lane 0 that the end of this group falls in.
                joins.setdefault(place.stretch(0, join), []).append((join, lane.lane))
    before = 0
    for k, index in enumerate(main.jobs):
        before = _between(rows, busy, 0, 2 * k, before, jobs[index].start_ns, joins.get(2 * k, []), main, k)
        _job(rows, operators, 0, 2 * k + 1, index, schedule)
        before = jobs[index].end_ns
    last = 2 * len(main.jobs)
    _between(rows, busy, 0, last, before, schedule.end_ns, joins.get(last, []), main, len(main.jobs))
    rows.add(0, last, schedule.end_ns, 100, _NOTE, operator=APPLICATION)
    for lane in schedule.lanes[1:]:
        firsts = {first: (t, parent, join) for (t, parent, first), join in zip(lane.forks, lane.joins, strict=True)}
        open_join = -1
        for k, index in enumerate(lane.jobs):
            if index in firsts:
                t, parent, open_join_next = firsts[index]
                # The parent tells it just before it begins the job that it was itself about to begin.
                stretch = place.stretch(parent, t)
                stretch = _stretch_before_job(schedule, parent, t)
                if k == 0:
                    rows.add(parent, stretch, t, 60, _SPAWN, peer=lane.lane)
                else:
                    messages += 1
                    rows.add(parent, stretch, t, 60, _SEND, peer=lane.lane, channel=LANES, number=messages)
                    rows.add(lane.lane, 2 * k, t, 5, _RECEIVE, peer=parent, channel=LANES, number=messages)
                before, open_join = t, open_join_next
            _between(rows, busy, lane.lane, 2 * k, before, jobs[index].start_ns, [], lane, k)
            _job(rows, operators, lane.lane, 2 * k + 1, index, schedule)
            before = jobs[index].end_ns
            following = lane.jobs[k + 1] if k + 1 < len(lane.jobs) else None
            if following is None or following in firsts:
                if open_join >= 0:
                    messages += 1
                    rows.add(lane.lane, 2 * k + 1, before, 110, _SEND, peer=0, channel=LANES, number=messages)
                    rows.add(
                        0,
                        place.stretch(0, open_join),
                        open_join,
                        20,
                        _RECEIVE,
                        peer=lane.lane,
                        channel=LANES,
                        number=messages,
                    )
                if following is None:
                    rows.add(lane.lane, 2 * k + 1, before, 130, _EXIT)
                else:
                    rows.add(lane.lane, 2 * k + 1, before, 120, _NOTE, operator=APPLICATION, mode=_WAIT)


def _stretch_before_job(schedule: Schedule, lane: int, t: int) -> int:
    """Return the stretch that ends where the lane's job that began at `t` begins."""
    own = schedule.lanes[lane].jobs
    return 2 * next(k for k, index in enumerate(own) if schedule.jobs[index].start_ns == t)


def _between(
    rows: _PointRows,
    busy: _Busy,
    lane: int,
    stretch: int,
    start: int,
    end: int,
    joins: list[tuple[int, int]],
    own: Any,
    k: int,
) -> int:
    """Add the driver's own work from `start` to `end`, after it has waited for other lanes."""
    if joins:
        rows.add(lane, stretch, start, 0, _NOTE, operator=APPLICATION, mode=_WAIT)
        start = max(t for t, _ in joins)
    for t, operator, unit in busy.cuts(
        start, end, own.jobs[k - 1] if k else None, own.jobs[k] if k < len(own.jobs) else None
    ):
        rows.add(lane, stretch, t, 40, _NOTE, operator=operator, mode=_BUSY, unit=unit)
    return end


def _job(rows: _PointRows, operators: Operators, lane: int, stretch: int, index: int, schedule: Schedule) -> None:
    job, operator = schedule.jobs[index], operators.jobs[index]
    rows.add(lane, stretch, job.start_ns, 0, _JOB_START, operator=operator, mode=_IN_JOB)
    rows.add(lane, stretch, job.end_ns, 100, _JOB_END, operator=operator, mode=_BUSY, unit=index)


class _Busy:
    """Says what the driver works for outside of jobs: a SQL execution, or the program itself."""

    def __init__(self, schedule: Schedule, operators: Operators) -> None:
        self._jobs = schedule.jobs
        self._operators = operators.executions
        self._spans: dict[int, tuple[int, int]] = {}
        for row in schedule.log.executions.iter_rows(named=True):
            start, end = row["started_ms"], row["ended_ms"]
            if start is None or row["execution"] not in self._operators:
                continue
            first = (start - schedule.origin_ms) * MS
            last = schedule.end_ns if end is None else (end - schedule.origin_ms) * MS
            if 0 <= first <= last:
                self._spans[row["execution"]] = (first, min(last, schedule.end_ns))
        order = sorted(self._spans.items(), key=lambda item: item[1])
        self._starts = np.array([span[0] for _, span in order], np.int64)
        self._ends = np.array([span[1] for _, span in order], np.int64)
        self._order = [execution for execution, _ in order]
        # The latest end of all that started up to here: where it lies before an instant, none of them is active.
        self._reach = np.maximum.accumulate(self._ends) if order else self._ends

    def cuts(self, start: int, end: int, before: int | None, after: int | None) -> list[tuple[int, int, int]]:
        """Return from when on the driver works for which operator between two instants."""
        near = [e for j in (after, before) if j is not None and (e := self._jobs[j].execution) in self._spans]
        high = int(np.searchsorted(self._starts, end, side="right"))
        low = int(np.searchsorted(self._reach[:high], start, side="left"))
        active = [self._order[i] for i in range(low, high) if self._ends[i] >= start]
        times = sorted({t for e in [*near, *active] for t in self._spans[e] if start < t < end} | {start})
        out: list[tuple[int, int, int]] = []
        for t in times:
            operator = APPLICATION
            chosen = next((e for e in near if self._spans[e][0] <= t < self._spans[e][1]), None)
            if chosen is None:
                chosen = max(
                    (e for e in active if self._spans[e][0] <= t < self._spans[e][1]),
                    key=lambda e: (self._spans[e][0], e),
                    default=None,
                )
            if chosen is not None:
                operator = self._operators[chosen]
            if not out or out[-1][1] != operator:
                out.append((t, operator, -1))
        return out


def _executors(schedule: Schedule, lanes: int, rows: _PointRows, place: _Places) -> None:
    """Add what the driver learns of executors: they come, they go, others take their place."""
    workers: dict[int, list[int]] = {}
    for index, core in enumerate(schedule.cores):
        workers.setdefault(core.executor, []).append(lanes + index)
    ends = executor_ends(schedule)
    main = schedule.lanes[0]
    starts = np.array([schedule.jobs[j].start_ns for j in main.jobs], np.int64)
    losses = sorted(
        (ends[i], i) for i, t in enumerate(schedule.executors["removed"].to_list()) if t is not None and i in workers
    )
    messages = 0
    lost_at: list[tuple[int, int]] = []
    for t, executor in losses:
        if t >= schedule.end_ns:
            continue
        stretch = place.stretch(0, t)
        messages += 1
        rows.add(
            0, stretch, t, 15, _RECEIVE, peer=workers[executor][0], channel=EXECUTORS, number=messages, unit=executor
        )
        lost_at.append((t, stretch))
    dynamic = schedule.log.properties.get("spark.dynamicAllocation.enabled") == "true"
    launches = _lane_launches(schedule)
    taken = 0
    for executor, row in sorted(
        enumerate(schedule.executors.iter_rows(named=True)), key=lambda item: (item[1]["added"], item[0])
    ):
        if executor not in workers:
            continue
        added = row["added"]
        cause, stretch, rank = 0, 0, 45
        if taken < len(lost_at) and lost_at[taken][0] <= added:
            # It takes the place of one that was lost.
            cause, stretch = lost_at[taken]
            rank = 16 if stretch % 2 else 45
            taken += 1
        elif dynamic and len(starts) and starts[0] <= added:
            at = int(np.searchsorted(launches, added, side="right")) - 1
            cause = max(
                int(starts[np.searchsorted(starts, added, side="right") - 1]), int(launches[at]) if at >= 0 else 0
            )
            stretch = place.stretch(0, cause)
            rank = 28 if stretch % 2 else 45
        for worker in workers[executor]:
            rows.add(0, stretch, cause, rank, _SPAWN, peer=worker)
    _registrations(schedule, workers, rows, place, messages)


def _lane_launches(schedule: Schedule) -> I64:
    """Return the launches on lane 0, sorted."""
    lane = np.array([job.lane for job in schedule.jobs] or [0], np.int64)
    tasks = schedule.tasks.filter(pl.col("job").is_not_null()).select("job", "launch")
    return np.sort(tasks["launch"].to_numpy()[lane[tasks["job"].to_numpy()] == 0])


def _registrations(
    schedule: Schedule, workers: dict[int, list[int]], rows: _PointRows, place: _Places, messages: int
) -> None:
    """Let a job that nobody could run wait for the executor that came."""
    tasks = schedule.tasks.filter(pl.col("job").is_not_null())
    first = tasks.group_by("executor").agg(pl.col("launch").min(), pl.col("job").sort_by("launch").first())
    firsts = {code: (launch, job) for code, launch, job in first.iter_rows()}
    job_first = dict(tasks.group_by("job").agg(pl.col("launch").min()).iter_rows())
    for executor, row in enumerate(schedule.executors.iter_rows(named=True)):
        launch, job = firsts.get(row["code"], (None, None))
        if launch is None or executor not in workers:
            continue
        started = schedule.jobs[job].start_ns
        if started < row["added"] <= launch == job_first[job]:
            lane = schedule.jobs[job].lane
            messages += 1
            rows.add(
                lane,
                place.stretch(lane, row["added"]),
                row["added"],
                10,
                _RECEIVE,
                peer=workers[executor][0],
                channel=EXECUTORS,
                number=messages,
                unit=executor,
            )


def _task_points(schedule: Schedule, operators: Operators, lanes: int) -> pl.DataFrame:
    """Return the launches, results and offers of all tasks."""
    job_lane = np.array([job.lane for job in schedule.jobs] or [0], np.int64)
    job_end = np.array([job.end_ns for job in schedule.jobs] or [0], np.int64)
    job_start = np.array([job.start_ns for job in schedule.jobs] or [0], np.int64)
    order = {index: k for lane in schedule.lanes for k, index in enumerate(lane.jobs)}
    stretch = np.array([2 * order.get(i, 0) + 1 for i in range(len(schedule.jobs))] or [0], np.int64)
    tasks = schedule.tasks.with_row_index("number").filter(pl.col("job").is_not_null())
    job = tasks["job"].to_numpy()
    base = tasks.select(
        lane=pl.Series(job_lane[job]),
        stretch=pl.Series(stretch[job]),
        job_end=pl.Series(job_end[job]),
        job_start=pl.Series(job_start[job]),
        peer=pl.col("core") + lanes,
        number=pl.col("number").cast(pl.Int64),
        operator=pl.Series(operators.of_tasks(tasks)),
        launch="launch",
        delivered="delivered",
        done="done",
        core="core",
    )
    seen = base.filter(pl.col("delivered") <= pl.col("job_end"))
    # A task of no duration answers after it was launched; all others before anything is launched at that instant.
    rank = pl.when(pl.col("delivered") > pl.col("launch")).then(10).otherwise(30)
    sent = base.select(**_point(t=pl.col("launch"), rank=pl.lit(20), kind=_SEND, channel=LAUNCH))
    got = seen.select(**_point(t=pl.col("delivered"), rank=rank, kind=_RECEIVE, channel=RESULT))
    fetched = seen.filter(pl.col("done") > pl.col("delivered")).select(
        **_point(t=pl.min_horizontal("done", "job_end"), rank=pl.lit(40), kind=_GOT, channel=-1)
    )
    points = pl.concat([sent, got, fetched])
    return pl.concat([points, _offers(base, points)])


def _point(*, t: pl.Expr, rank: pl.Expr, kind: int, channel: int) -> dict[str, pl.Expr]:
    fixed = {"kind": kind, "channel": channel, "mode": _SAME, "unit": -1}
    values = {
        "lane": pl.col("lane"),
        "stretch": pl.col("stretch"),
        "t": t,
        "rank": rank,
        "peer": pl.col("peer"),
        "number": pl.col("number"),
        "operator": pl.col("operator"),
        **{name: pl.lit(value) for name, value in fixed.items()},
    }
    return {name: values[name].cast(pl.Int64) for name in _PointRows.names}


def _offers(base: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Return the messages by which a job learns that another lane's task left a core.

    Only where the job was launching nothing in between: it waited for the core.
    """
    before = (
        base.sort("core", "launch", "number")
        .with_columns(
            previous=pl.col("number").shift(1).over("core"),
            freed=pl.col("delivered").shift(1).over("core"),
            began=pl.col("launch").shift(1).over("core"),
            other=pl.col("lane").shift(1).over("core"),
        )
        .filter(
            (pl.col("other") != pl.col("lane"))
            & (pl.col("freed") <= pl.col("launch"))
            & (pl.col("began") < pl.col("freed"))
            & (pl.col("freed") >= pl.col("job_start"))
        )
    )
    if not before.height:
        return points.clear()
    last = (
        points.sort("lane", "t")
        .select("lane", "t", "stretch")
        .unique(["lane", "t"], keep="last", maintain_order=True)
        .with_columns(
            previous_t=pl.col("t").shift(1).over("lane"), previous_stretch=pl.col("stretch").shift(1).over("lane")
        )
        .select("lane", "t", "previous_t", "previous_stretch")
    )
    blocked = before.join(last, left_on=["lane", "launch"], right_on=["lane", "t"], how="left").filter(
        pl.col("previous_t").is_null()
        | (pl.col("previous_stretch") != pl.col("stretch"))
        | (pl.col("previous_t") < pl.col("freed"))
    )
    return blocked.with_columns(number=pl.col("previous")).select(
        **_point(t=pl.col("freed"), rank=pl.lit(10), kind=_RECEIVE, channel=OFFERS)
    )


def _mark_epochs(schedule: Schedule, points: pl.DataFrame) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Decide when epochs end, and mark the instants on the lanes where they do."""
    jobs = schedule.jobs
    last: dict[str, int] = {}
    for index in sorted(range(len(jobs)), key=lambda i: (jobs[i].end_ns, jobs[i].job)):
        last[jobs[index].unit] = index
    ends: dict[int, tuple[int, str]] = {}
    for unit, index in last.items():
        ends.setdefault(jobs[index].end_ns, (index, unit))
    times = sorted(t for t in ends if t < schedule.end_ns)
    workers = len(schedule.lanes) + len(schedule.cores)
    if len(times) * workers > _MOST_EPOCH_ROWS:
        # So many rows would say little: every so many units make an epoch.
        step = len(times) * workers // _MOST_EPOCH_ROWS + 1
        times = [*times[step - 1 : -1 : step], times[-1]]
    closing = {ends[t][0]: number for number, t in enumerate(times)}
    marks = pl.DataFrame(
        {"unit": list(closing), "epoch_end": list(closing.values())},
        schema={"unit": pl.Int64, "epoch_end": pl.Int64},
    ).with_columns(kind=pl.lit(_JOB_END, pl.Int64))
    points = points.join(marks, on=["unit", "kind"], how="left", maintain_order="left")
    return points, [(t, ends[t][1]) for t in times]


def _epoch_rows(points: pl.DataFrame, epochs: list[tuple[int, str]], lives: _Lives) -> dict[int, I64]:
    """Return for every worker the epochs whose end it is told, an instant after the lane that ended them."""
    ends = np.array([t for t, _ in epochs], np.int64)
    owner = dict(points.filter(pl.col("epoch_end").is_not_null()).select("epoch_end", "lane").iter_rows())
    out: dict[int, I64] = {}
    for worker in range(lives.birth.size):
        alive = (lives.birth[worker] <= ends + 1) & (ends + 1 <= lives.end[worker])
        numbers = np.flatnonzero(alive)
        out[worker] = numbers[[owner.get(int(n), -1) != worker for n in numbers]] if numbers.size else numbers
    return out


def _label(epochs: list[tuple[int, str]], t: I64) -> I64:
    """Return the epoch of each instant."""
    return np.searchsorted(np.array([end + 1 for end, _ in epochs], np.int64), t, side="left").astype(np.int64)


def _finish(mapped: Mapped, rows: pl.DataFrame, first_seq: int) -> pa.Table:
    """Order rows of one worker, number them, and give them their epochs."""
    rows = rows.sort("t_ns", "key", maintain_order=True)
    t = rows["t_ns"].to_numpy()
    epoch = pl.Series(_label(mapped.epochs, t))
    if "ends" in rows.columns:
        epoch = rows.select(pl.coalesce("ends", epoch)).to_series()
    return (
        rows.with_columns(
            seq=pl.int_range(first_seq, first_seq + rows.height, dtype=pl.Int64),
            epoch=epoch,
        )
        .drop("key", "ends", strict=False)
        .to_arrow()
    )


def _told(mapped: Mapped, worker: int, low: int, high: int | None) -> pl.DataFrame:
    """Return the epoch ends that a worker is told between two instants."""
    numbers = mapped._epoch_rows[worker]  # noqa: SLF001 of this module
    ends = np.array([end + 1 for end, _ in mapped.epochs], np.int64)[numbers] if numbers.size else numbers
    keep = (ends >= low) & ((ends < high) if high is not None else True)
    return pl.DataFrame(
        {"worker": np.full(int(keep.sum()), worker, np.int32), "t_ns": ends[keep], "ends": numbers[keep]}
    ).with_columns(kind=pl.lit(str(EventKind.EPOCH_END)), key=pl.lit(1 << 60, pl.Int64))


def _lane_events(mapped: Mapped) -> Iterator[tuple[str, pa.Table]]:
    for (lane,), frame in mapped._points.group_by("lane", maintain_order=True):  # noqa: SLF001 of this module
        number = int(lane)
        points = frame.with_row_index("i").with_columns(
            pl.col("i").cast(pl.Int64),
            next_t=pl.col("t").shift(-1),
            next_kind=pl.col("kind").shift(-1),
            next_operator=pl.col("operator").shift(-1),
            next_channel=pl.col("channel").shift(-1),
            previous_t=pl.col("t").shift(1),
            previous_kind=pl.col("kind").shift(1),
            fetching=(
                (
                    (pl.col("kind") == _RECEIVE)
                    & (pl.col("channel") == RESULT)
                    & pl.col("number").is_in(frame.filter(pl.col("kind") == _GOT)["number"].implode())
                ).cast(pl.Int64)
                - (pl.col("kind") == _GOT).cast(pl.Int64)
            ).cum_sum(),
        )
        points = _gaps(points)
        seq = 0
        for part, start in enumerate(range(0, points.height, _CHUNK)):
            chunk = points.slice(start, _CHUNK)
            low = int(chunk["t"][0]) if start else -1
            after = points.slice(start + _CHUNK, 1)
            high = int(after["t"][0]) if after.height else None
            rows = pl.concat([_lane_rows(chunk, number), _told(mapped, number, low, high)], how="diagonal")
            table = _finish(mapped, rows, seq)
            seq += table.num_rows
            yield f"worker-{number:07}-{part:06}", table


def _gaps(points: pl.DataFrame) -> pl.DataFrame:
    """Decide what a lane does after each instant."""
    in_job, receives = pl.col("mode") == _IN_JOB, pl.col("next_kind") == _RECEIVE
    activity = (
        pl.when(pl.col("mode") == _BUSY)
        .then(pl.lit(str(ActivityType.BUSY)))
        .when(pl.col("mode") == _WAIT)
        .then(pl.lit(str(ActivityType.WAITING)))
        .when(in_job & (pl.col("fetching") > 0))
        .then(pl.lit(str(ActivityType.IO)))
        .when(in_job & receives)
        .then(pl.lit(str(ActivityType.WAITING)))
        .otherwise(pl.lit(str(ActivityType.SCHEDULING)))
    )
    # Between jobs the operator is the last one noted; within a job it is that of what comes next.
    noted = pl.when(pl.col("kind").is_in([_NOTE, _JOB_START, _JOB_END])).then("operator").otherwise(None).forward_fill()
    operator = (
        pl.when(in_job & (pl.col("next_operator") >= 0) & (activity != str(ActivityType.WAITING)))
        .then("next_operator")
        .otherwise(noted)
    )
    # A gap that the next part of the file begins with is cut there, for the next instant is not known to it.
    return points.with_columns(
        gap=pl.when(pl.col("next_t") > pl.col("t")).then(activity).otherwise(None), gap_operator=operator
    ).with_columns(previous_gap=pl.col("gap").shift(1), previous_operator=pl.col("gap_operator").shift(1))


def _lane_rows(points: pl.DataFrame, lane: int) -> pl.DataFrame:
    waiting = str(ActivityType.WAITING)
    i = pl.col("i")
    worker = pl.lit(lane, pl.Int32)
    starts = points.filter(pl.col("gap").is_not_null()).select(
        worker=worker,
        key=i * 4 + 3,
        t_ns="t",
        kind=pl.lit(str(EventKind.START)),
        activity="gap",
        operator=pl.col("gap_operator"),
    )
    ends_wait = (pl.col("previous_gap") == waiting) & (pl.col("kind") == _RECEIVE)
    stops = points.filter(pl.col("previous_gap").is_not_null()).select(
        worker=worker,
        key=i * 4 + pl.when(ends_wait).then(2).otherwise(0),
        t_ns="t",
        kind=pl.lit(str(EventKind.STOP)),
        operator=pl.col("previous_operator"),
    )
    # What arrives after something was sent at the same instant may be an answer to it: an activity without duration
    # keeps it apart from a wait that ended at this instant.
    after_send = points.filter(
        (pl.col("kind") == _RECEIVE) & (pl.col("previous_t") == pl.col("t")) & (pl.col("previous_kind") != _RECEIVE)
    )
    apart = {"worker": worker, "key": i * 4 - 1, "t_ns": pl.col("t"), "operator": pl.lit(APPLICATION, pl.Int64)}
    begun = after_send.select(**apart, kind=pl.lit(str(EventKind.START)), activity=pl.lit(str(ActivityType.SCHEDULING)))
    ended = after_send.select(**apart, kind=pl.lit(str(EventKind.STOP)))
    kinds = {
        _SEND: EventKind.SEND,
        _RECEIVE: EventKind.RECEIVE,
        _SPAWN: EventKind.SPAWN,
        _EXIT: EventKind.EXIT,
        _JOB_END: EventKind.EPOCH_END,
    }
    own = points.filter(
        pl.col("kind").is_in([_SEND, _RECEIVE, _SPAWN, _EXIT])
        | ((pl.col("kind") == _JOB_END) & pl.col("epoch_end").is_not_null())
    )
    is_message = pl.col("kind").is_in([_SEND, _RECEIVE])
    marks = own.select(
        worker=worker,
        key=i * 4 + 1,
        t_ns="t",
        kind=pl.col("kind").replace_strict({k: str(v) for k, v in kinds.items()}, return_dtype=pl.String),
        activity=pl.when(is_message).then(pl.lit(str(ActivityType.CONTROL_MESSAGE))),
        channel=pl.when(is_message).then("channel"),
        peer=pl.when(is_message | (pl.col("kind") == _SPAWN)).then(pl.col("peer").cast(pl.Int32)),
        message_seq=pl.when(is_message).then("number"),
        ends=pl.col("epoch_end"),
    )
    return pl.concat([starts, stops, begun, ended, marks], how="diagonal")


# --- Cores -----------------------------------------------------------------------------------------------------------


def _core_events(mapped: Mapped) -> Iterator[tuple[str, pa.Table]]:
    schedule, lanes = mapped.schedule, mapped.lanes
    job_lane = np.array([job.lane for job in schedule.jobs] or [0], np.int64)
    job_end = np.array([job.end_ns for job in schedule.jobs] or [0], np.int64)
    offers = mapped._points.filter(  # noqa: SLF001 of this module
        (pl.col("kind") == _RECEIVE) & (pl.col("channel") == OFFERS)
    ).select("number", offer_lane="lane")
    states = mapped._points.filter(  # noqa: SLF001 of this module
        (pl.col("kind") == _RECEIVE) & (pl.col("channel") == EXECUTORS)
    ).select("lane", "number", "peer", "t")
    tasks = schedule.tasks.with_row_index("number").with_columns(pl.col("number").cast(pl.Int64))
    lives = _lives(schedule, lanes)
    order = np.argsort(tasks["core"].to_numpy(), kind="stable")
    bounds = np.searchsorted(tasks["core"].to_numpy()[order], np.arange(len(schedule.cores) + 1))
    for core in range(len(schedule.cores)):
        worker = lanes + core
        mine = order[bounds[core] : bounds[core + 1]]
        own = tasks[mine].sort("receipt", "begin", "number") if mine.size else tasks.clear()
        own = own.with_columns(next_receipt=pl.col("receipt").shift(-1), previous_free=pl.col("free").shift(1))
        end, seq = int(lives.end[worker]), 0
        for part, start in enumerate(range(0, max(own.height, 1), _CHUNK)):
            chunk = own.slice(start, _CHUNK).with_row_index("i", offset=start).with_columns(pl.col("i").cast(pl.Int64))
            after = own.slice(start + _CHUNK, 1)
            following = int(after["receipt"][0]) if after.height else None
            rows = [
                _task_rows(chunk, worker, job_lane, job_end, mapped),
                _shuffle_rows(chunk, worker, mapped),
                _offer_rows(chunk, worker, offers),
                _told(mapped, worker, int(chunk["receipt"][0]) if start else -1, following),
            ]
            if not start:
                first = int(own["receipt"][0]) if own.height else end
                rows.append(_idle_rows(worker, int(lives.birth[worker]), first, -8, waits=bool(own.height)))
                came = states.filter((pl.col("peer") == worker) & (pl.col("t") == int(lives.birth[worker])))
                rows.append(_state_rows(came, worker, -9))
            if following is None:
                last = int(own["free"][-1]) if own.height else end
                key = own.height * 64
                rows.append(_idle_rows(worker, last, end, key, waits=False))
                if lives.exits[worker]:
                    went = states.filter((pl.col("peer") == worker) & (pl.col("t") == end))
                    if int(lives.birth[worker]) != end:
                        rows.append(_state_rows(went, worker, (1 << 61)))
                    rows.append(
                        pl.DataFrame(
                            {"worker": [worker], "key": [1 << 62], "t_ns": [end], "kind": [str(EventKind.EXIT)]},
                            schema={k: _ROW[k] for k in ("worker", "key", "t_ns", "kind")},
                        )
                    )
            filled = [frame for frame in rows if frame.height] or [_nothing(worker, int(lives.birth[worker]))]
            table = _finish(mapped, pl.concat(filled, how="diagonal"), seq)
            seq += table.num_rows
            yield f"worker-{worker:07}-{part:06}", table


def _idle_rows(worker: int, start: int, end: int, key: int, *, waits: bool) -> pl.DataFrame:
    """Return a core's time without a task: before its first one it waits for the launch, after its last for nothing."""
    activity = ActivityType.WAITING if waits else ActivityType.IDLE
    if end <= start:
        return pl.DataFrame(schema=_ROW)
    # The wait ends after the receive of the first task, whose key is 0.
    return pl.DataFrame(
        {
            "worker": [worker] * 2,
            "key": [key, 1 if waits else key + 1],
            "t_ns": [start, end],
            "kind": [str(EventKind.START), str(EventKind.STOP)],
            "activity": [str(activity), None],
            "operator": [APPLICATION] * 2,
        },
        schema={k: _ROW[k] for k in ("worker", "key", "t_ns", "kind", "activity", "operator")},
    )


def _nothing(worker: int, at: int) -> pl.DataFrame:
    """Return the rows of a worker that has no others: it was there for an instant."""
    return pl.DataFrame(
        {
            "worker": [worker] * 2,
            "key": [0, 1],
            "t_ns": [at] * 2,
            "kind": [str(EventKind.START), str(EventKind.STOP)],
            "activity": [str(ActivityType.IDLE), None],
            "operator": [APPLICATION] * 2,
        },
        schema={k: _ROW[k] for k in ("worker", "key", "t_ns", "kind", "activity", "operator")},
    )


def _state_rows(states: pl.DataFrame, worker: int, key: int) -> pl.DataFrame:
    """Return the messages by which the driver learns that an executor came or went."""
    return states.select(
        worker=pl.lit(worker, pl.Int32),
        key=pl.lit(key, pl.Int64),
        t_ns="t",
        kind=pl.lit(str(EventKind.SEND)),
        activity=pl.lit(str(ActivityType.CONTROL_MESSAGE)),
        channel=pl.lit(EXECUTORS, pl.Int64),
        peer=pl.col("lane").cast(pl.Int32),
        message_seq="number",
    )


def _task_rows(tasks: pl.DataFrame, worker: int, job_lane: I64, job_end: I64, mapped: Mapped) -> pl.DataFrame:
    if not tasks.height:
        return pl.DataFrame(schema=_ROW)
    job = tasks["job"].fill_null(0).to_numpy()
    tasks = tasks.with_columns(
        peer=pl.Series(job_lane[job]).cast(pl.Int32),
        seen=(pl.col("delivered") <= pl.Series(job_end[job])) & pl.col("job").is_not_null(),
        operator=pl.Series(mapped.operators.of_tasks(tasks)),
        before=pl.col("begin") - pl.col("receipt"),
        after=pl.col("free") - (pl.col("begin") + pl.col("deserialize") + pl.col("run") + pl.col("serialize")),
    )
    base, fixed = pl.col("i") * 64, {"worker": pl.lit(worker, pl.Int32)}
    control = pl.lit(str(ActivityType.CONTROL_MESSAGE))
    frames = [
        tasks.filter(pl.col("job").is_not_null()).select(
            **fixed,
            key=base,
            t_ns="receipt",
            kind=pl.lit(str(EventKind.RECEIVE)),
            activity=control,
            channel=pl.lit(LAUNCH, pl.Int64),
            peer="peer",
            message_seq="number",
        ),
        tasks.filter("seen").select(
            **fixed,
            key=base + 44,
            t_ns="free",
            kind=pl.lit(str(EventKind.SEND)),
            activity=control,
            channel=pl.lit(RESULT, pl.Int64),
            peer="peer",
            message_seq="number",
            bytes="result_bytes",
        ),
    ]
    at: pl.Expr = pl.col("receipt")
    for phase, (column, activity) in enumerate(_PHASES):
        length = pl.col(column)
        own = tasks.filter(length > 0)
        works = column == "work"
        read = pl.col("input_bytes") + pl.col("remote_bytes") + pl.col("local_bytes")
        frames.append(
            own.select(
                **fixed,
                key=base + 8 + 4 * phase,
                t_ns=at,
                kind=pl.lit(str(EventKind.START)),
                activity=pl.lit(str(activity)),
                operator="operator",
                records=pl.col("input_records") + pl.col("shuffle_read_records") if works else pl.lit(None, pl.Int64),
                bytes=read if works else pl.lit(None, pl.Int64),
                inferred=pl.lit(True),  # noqa: FBT003 a literal column
            )
        )
        frames.append(
            own.select(
                **fixed,
                key=base + 9 + 4 * phase,
                t_ns=at + length,
                kind=pl.lit(str(EventKind.STOP)),
                operator="operator",
            )
        )
        at += length
    # A task of no duration is an activity of none: it keeps the launch before it apart from the one after it.
    nothing = tasks.filter(pl.col("free") == pl.col("receipt"))
    for key, kind, stated in ((8, EventKind.START, str(ActivityType.PROCESSING)), (9, EventKind.STOP, None)):
        frames.append(
            nothing.select(
                **fixed,
                key=base + key,
                t_ns="receipt",
                kind=pl.lit(str(kind)),
                activity=pl.lit(stated, pl.String),
                operator="operator",
            )
        )
    frames.append(
        tasks.filter(pl.col("next_receipt") > pl.col("free")).select(
            **fixed,
            key=base + 50,
            t_ns="free",
            kind=pl.lit(str(EventKind.START)),
            activity=pl.lit(str(ActivityType.WAITING)),
            operator=pl.lit(APPLICATION, pl.Int64),
        )
    )
    frames.append(
        tasks.filter(pl.col("previous_free") < pl.col("receipt")).select(
            **fixed,
            key=base + 1,
            t_ns="receipt",
            kind=pl.lit(str(EventKind.STOP)),
            operator=pl.lit(APPLICATION, pl.Int64),
        )
    )
    return pl.concat(frames, how="diagonal")


def _shuffle_rows(tasks: pl.DataFrame, worker: int, mapped: Mapped) -> pl.DataFrame:
    messages = mapped.shuffles.messages
    if not messages.height or not tasks.height:
        return pl.DataFrame(schema=_ROW)
    own = tasks.select("number", "i", "free", read=pl.col("begin") + pl.col("deserialize"))
    data = {"worker": pl.lit(worker, pl.Int32), "activity": pl.lit(None, pl.String)}
    sent = messages.join(own, left_on="source", right_on="number", how="inner", maintain_order="left").select(
        **data,
        key=pl.col("i") * 64 + 45,
        t_ns="free",
        kind=pl.lit(str(EventKind.SEND)),
        channel="channel",
        peer=(pl.col("target_core") + mapped.lanes).cast(pl.Int32),
        message_seq="message_seq",
        records="records",
        bytes="bytes",
    )
    got = messages.join(own, left_on="target", right_on="number", how="inner", maintain_order="left").select(
        **data,
        key=pl.col("i") * 64 + 15,
        t_ns="read",
        kind=pl.lit(str(EventKind.RECEIVE)),
        channel="channel",
        peer=(pl.col("source_core") + mapped.lanes).cast(pl.Int32),
        message_seq="message_seq",
        records="records",
        bytes="bytes",
    )
    return pl.concat([sent, got])


def _offer_rows(tasks: pl.DataFrame, worker: int, offers: pl.DataFrame) -> pl.DataFrame:
    if not offers.height or not tasks.height:
        return pl.DataFrame(schema=_ROW)
    own = tasks.select("number", "i", "free").join(offers, on="number", how="inner", maintain_order="left")
    return own.select(
        worker=pl.lit(worker, pl.Int32),
        key=pl.col("i") * 64 + 46,
        t_ns="free",
        kind=pl.lit(str(EventKind.SEND)),
        activity=pl.lit(str(ActivityType.CONTROL_MESSAGE)),
        channel=pl.lit(OFFERS, pl.Int64),
        peer=pl.col("offer_lane").cast(pl.Int32),
        message_seq="number",
    )
