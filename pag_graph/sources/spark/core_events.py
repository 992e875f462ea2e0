"""Events of executor cores: their tasks part by part, what is told and sent in between, and their ends.

Definitions stand in `docs/spark.md`, "The mapping".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.sources.spark.operators import APPLICATION
from pag_graph.sources.spark.points import EXECUTORS, LAUNCH, OFFERS, RECEIVE, RESULT
from pag_graph.sources.spark.task_rows import widened
from pag_graph.sources.spark.trace_rows import (
    ACTIVITIES,
    KINDS,
    ROW,
    Epochs,
    Lives,
    finished,
    in_order,
    of_activity,
    of_kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.sources.spark.driver import DriverPoints
    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = ["core_events"]

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

_COLUMNS = (
    *("job", "receipt", "begin", "free", "delivered", "deserialize", "run", "serialize", "fetch_wait", "work", "gc"),
    *("write", "result_bytes", "input_bytes", "remote_bytes", "local_bytes", "input_records", "shuffle_read_records"),
)


_MOST_CORES = 1_000
"""Cores in a part at most."""


def core_events(
    schedule: Schedule,
    driver: DriverPoints,
    epochs: Epochs,
    lives: Lives,
    messages: pl.DataFrame,
    *,
    lost: int | None,
    size: int,
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the events of all cores part by part, with a name for each part's file.

    Parameters
    ----------
    schedule, driver, epochs, lives
        Of one log.
    messages
        Those of shuffles.
    lost
        Operator of what a core does at the instant at which its executor is seen to be lost.
    size
        How many tasks a part has at most.
    """
    making = _Making(schedule, driver, epochs, lives, messages, lost)
    for number, stretches in enumerate(_parts(np.diff(making.bounds).tolist(), size)):
        yield f"worker-{driver.lanes + stretches[0].core:07}-{number:06}", making.table(stretches)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Some of the tasks of one core, from one until before another, in their order."""

    core: int
    start: int
    stop: int
    last: bool
    """Whether none follow."""


def _parts(counts: list[int], size: int) -> Iterator[list[_Stretch]]:
    """Cut the tasks of all cores in parts of at most `size` tasks; a core without tasks is in a part as well."""
    stretches: list[_Stretch] = []
    room = size
    for core, count in enumerate(counts):
        start = -1
        while start < count:
            start = max(start, 0)
            stop = min(count, start + room)
            stretches.append(_Stretch(core, start, stop, last=stop == count))
            room -= stop - start
            start = stop
            if room <= 0 or len(stretches) >= _MOST_CORES:
                yield stretches
                stretches, room = [], size
    if stretches:
        yield stretches


class _Making:
    """What all parts are made of: the tasks in the order of cores and time, and what goes with them."""

    def __init__(
        self,
        schedule: Schedule,
        driver: DriverPoints,
        epochs: Epochs,
        lives: Lives,
        messages: pl.DataFrame,
        lost: int | None,
    ) -> None:
        self.lost = lost
        self.tasks = schedule.tasks.select(_COLUMNS)
        self.lanes, self.epochs, self.lives, self.messages = driver.lanes, epochs, lives, messages
        self.operators = driver.operators
        self.job_lane = np.array([job.lane for job in schedule.jobs] or [0], np.int64)
        self.job_end = np.array([job.end_ns for job in schedule.jobs] or [0], np.int64)
        received = driver.few.filter(pl.col("kind") == RECEIVE)
        self.offers = received.filter(pl.col("channel") == OFFERS).select("number", offer_lane="lane")
        self.states = received.filter(pl.col("channel") == EXECUTORS).select("lane", "number", "peer", "t")
        self.core = schedule.tasks["core"].to_numpy()
        self.receipt, self.free, begin = (schedule.tasks[name].to_numpy() for name in ("receipt", "free", "begin"))
        count = len(schedule.cores)
        self.order = np.lexsort((begin, self.receipt, self.core)).astype(np.int32)
        self.bounds = _bounds(self.core, count)
        cores = {"source": "source_core", "target": "target_core"}
        self.message_orders = {end: messages[name].arg_sort().to_numpy() for end, name in cores.items()}
        self.message_bounds = {end: _bounds(messages[name].to_numpy(), count) for end, name in cores.items()}
        self.seq = 0

    def table(self, stretches: list[_Stretch]) -> pa.Table:
        """Return the events of some stretches, which follow each other."""
        low, high = (
            int(self.bounds[end.core]) + offset
            for end, offset in ((stretches[0], stretches[0].start), (stretches[-1], stretches[-1].stop))
        )
        tasks = self._chunk(np.arange(low, high))
        frames = [
            _task_rows(tasks, self.job_lane, self.job_end),
            *self._shuffle_rows(tasks, stretches[0].core, stretches[-1].core),
            _offer_rows(tasks, self.offers),
            *(self._epoch_ends(stretch) for stretch in stretches if self.epochs.told[self.lanes + stretch.core].size),
            *self._first_rows([stretch.core for stretch in stretches if not stretch.start]),
            *self._last_rows([stretch.core for stretch in stretches if stretch.last]),
        ]
        rows = pl.concat([pl.DataFrame(schema=ROW), *(frame for frame in frames if frame.height)], how="diagonal")
        del frames, tasks
        rows = in_order(self._with_nothing(rows, stretches))
        first_worker, seq = self.lanes + stretches[0].core, self.seq if stretches[0].start else 0
        of_last = int((rows["worker"] == self.lanes + stretches[-1].core).sum())
        self.seq = of_last + (seq if len(stretches) == 1 else 0)
        return finished(self.epochs, rows, {first_worker: seq})

    def _chunk(self, places: I64) -> pl.DataFrame:
        """Return the tasks at some places of the order, each with what is before and after it on its core."""
        rows = self.order[places]
        core = self.core[rows]
        following = np.minimum(places + 1, max(self.order.size - 1, 0))
        before = np.maximum(places - 1, 0)
        has_next, has_before = places + 1 < self.bounds[core + 1], places > self.bounds[core]
        return widened(self.tasks[rows]).with_columns(
            worker=pl.Series(core + self.lanes).cast(pl.Int32),
            number=pl.Series(rows).cast(pl.Int64),
            operator=pl.Series(self.operators[rows]),
            i=pl.Series(places - self.bounds[core]),
            next_receipt=pl.when(pl.Series(has_next)).then(pl.Series(self.receipt[self.order[following]])),
            previous_free=pl.when(pl.Series(has_before)).then(pl.Series(self.free[self.order[before]])),
        )

    def _shuffle_rows(self, tasks: pl.DataFrame, first_core: int, last_core: int) -> Iterator[pl.DataFrame]:
        sides = tasks.select("number", "worker", "i", "free", read=pl.col("begin") + pl.col("deserialize"))
        for end, key, t, kind, core in (
            ("source", 45, "free", EventKind.SEND, "target_core"),
            ("target", 15, "read", EventKind.RECEIVE, "source_core"),
        ):
            bounds = self.message_bounds[end]
            message_rows = np.sort(self.message_orders[end][bounds[first_core] : bounds[last_core + 1]])
            own_messages = self.messages[message_rows].join(
                sides, left_on=end, right_on="number", how="inner", maintain_order="left"
            )
            yield own_messages.select(
                worker="worker",
                key=pl.col("i") * 64 + key,
                t_ns=t,
                kind=of_kind(kind),
                channel="channel",
                peer=(pl.col(core) + self.lanes).cast(pl.Int32),
                message_seq="message_seq",
                records="records",
                bytes="bytes",
            )

    def _epoch_ends(self, stretch: _Stretch) -> pl.DataFrame:
        """Return the ends of epochs that a core is told from its first task of the part to that of the next."""
        first_task = int(self.bounds[stretch.core])
        low = int(self.receipt[self.order[first_task + stretch.start]]) if stretch.start else -1
        high = None if stretch.last else int(self.receipt[self.order[first_task + stretch.stop]])
        return self.epochs.told_between(self.lanes + stretch.core, low, high)

    def _first_rows(self, cores: list[int]) -> list[pl.DataFrame]:
        """Return what cores do before their first task, and the messages by which the driver learns that they came."""
        workers = np.array(cores, np.int64) + self.lanes
        low, high = self.bounds[cores], self.bounds[np.array(cores, np.int64) + 1]
        busy = high > low
        until = self.lives.end[workers].copy()
        until[busy] = self.receipt[self.order[low[busy]]]
        # A wait ends after the receive of the first task, whose key is 0.
        keys = np.full(workers.size, -8), np.where(busy, 1, -7)
        idle = _idle_rows(workers, self.lives.birth[workers], until, keys, busy)
        return [idle, self._state_rows(workers, self.lives.birth, -9)]

    def _last_rows(self, cores: list[int]) -> list[pl.DataFrame]:
        """Return what cores do after their last task, and how they go."""
        workers = np.array(cores, np.int64) + self.lanes
        low, high = self.bounds[cores], self.bounds[np.array(cores, np.int64) + 1]
        end = self.lives.end[workers]
        since = end.copy()
        busy = high > low
        since[busy] = self.free[self.order[high[busy] - 1]]
        keys = (high - low) * 64
        idle = _idle_rows(workers, since, end, (keys, keys + 1), np.zeros(workers.size, bool))
        gone_workers = workers[self.lives.exits[workers]]
        announced = gone_workers[self.lives.birth[gone_workers] != self.lives.end[gone_workers]]
        exits = pl.DataFrame({"worker": gone_workers, "t_ns": self.lives.end[gone_workers]}).select(
            worker=pl.col("worker").cast(pl.Int32),
            key=pl.lit(1 << 62, pl.Int64),
            t_ns="t_ns",
            kind=of_kind(EventKind.EXIT),
        )
        return [idle, *self._lost_rows(gone_workers), self._state_rows(announced, self.lives.end, 1 << 61), exits]

    def _lost_rows(self, gone_workers: I64) -> list[pl.DataFrame]:
        """Return what the cores of lost executors do at the instant at which that is seen."""
        workers = gone_workers[self.lives.lost[gone_workers]]
        rows = pl.DataFrame({"worker": workers, "t_ns": self.lives.end[workers]}).select(
            pl.col("worker").cast(pl.Int32), "t_ns", operator=pl.lit(self.lost, pl.Int64)
        )
        busy = of_activity(ActivityType.BUSY)
        return [
            rows.with_columns(key=pl.lit((1 << 61) - 2, pl.Int64), kind=of_kind(EventKind.START), activity=busy),
            rows.with_columns(key=pl.lit((1 << 61) - 1, pl.Int64), kind=of_kind(EventKind.STOP)),
        ]

    def _state_rows(self, workers: I64, instants: I64, key: int) -> pl.DataFrame:
        """Return the messages by which the driver learns, at an instant of its life, that a worker came or went."""
        peer = self.states["peer"].to_numpy()
        announcements = self.states.filter(np.isin(peer, workers) & (self.states["t"].to_numpy() == instants[peer]))
        return announcements.select(
            worker=pl.col("peer").cast(pl.Int32),
            key=pl.lit(key, pl.Int64),
            t_ns="t",
            kind=of_kind(EventKind.SEND),
            activity=of_activity(ActivityType.CONTROL_MESSAGE),
            channel=pl.lit(EXECUTORS, pl.Int64),
            peer=pl.col("lane").cast(pl.Int32),
            message_seq="number",
        )

    def _with_nothing(self, rows: pl.DataFrame, stretches: list[_Stretch]) -> pl.DataFrame:
        """Give workers that have no rows some: they were there for an instant."""
        workers = np.array([self.lanes + stretch.core for stretch in stretches], np.int64)
        empty = workers[~np.isin(workers, rows["worker"].to_numpy())]
        if not empty.size:
            return rows
        birth = self.lives.birth[empty]
        keys = np.zeros(empty.size, np.int64), np.ones(empty.size, np.int64)
        presence = _idle_rows(empty, birth, birth, keys, np.zeros(empty.size, bool), chosen=np.ones(empty.size, bool))
        return pl.concat([rows, presence], how="diagonal")


def _bounds(cores: I64, count: int) -> I64:
    """Return where each core's rows begin once they are sorted by core, and where the last one's end."""
    return np.concatenate([[0], np.cumsum(np.bincount(cores, minlength=count))]).astype(np.int64)


def _idle_rows(
    workers: I64,
    start: I64,
    stop: I64,
    keys: tuple[I64, I64],
    waits: NDArray[np.bool_],
    *,
    chosen: NDArray[np.bool_] | None = None,
) -> pl.DataFrame:
    """Return time without a task, where it is any: before its first one a core waits for it, after its last idles."""
    present = stop > start if chosen is None else chosen
    activity = np.where(waits[present], str(ActivityType.WAITING), str(ActivityType.IDLE))
    none = pl.Series([None] * int(present.sum()), dtype=ACTIVITIES)
    return pl.concat(
        pl.DataFrame(
            {
                "worker": pl.Series(workers[present]).cast(pl.Int32),
                "key": pl.Series(key[present]).cast(pl.Int64),
                "t_ns": t[present],
                "kind": pl.Series([str(kind)] * int(present.sum()), dtype=KINDS),
                "activity": none if kind is EventKind.STOP else pl.Series(activity.tolist(), dtype=ACTIVITIES),
                "operator": np.full(int(present.sum()), APPLICATION, np.int64),
            }
        )
        for kind, key, t in ((EventKind.START, keys[0], start), (EventKind.STOP, keys[1], stop))
    )


def _task_rows(tasks: pl.DataFrame, job_lane: I64, job_end: I64) -> pl.DataFrame:
    """Return what tasks are: launches and results, their parts, and the waits between them."""
    if not tasks.height:
        return pl.DataFrame(schema=ROW)
    job = tasks["job"].fill_null(0).to_numpy()
    tasks = tasks.with_columns(
        peer=pl.Series(job_lane[job]).cast(pl.Int32),
        seen=(pl.col("delivered") <= pl.Series(job_end[job])) & pl.col("job").is_not_null(),
        before=pl.col("begin") - pl.col("receipt"),
        after=pl.col("free") - (pl.col("begin") + pl.col("deserialize") + pl.col("run") + pl.col("serialize")),
    )
    return pl.concat([*_launch_rows(tasks), *_phase_rows(tasks), *_wait_rows(tasks)], how="diagonal")


def _launch_rows(tasks: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the messages by which tasks come, and their results go."""
    sent = {
        "worker": pl.col("worker"),
        "activity": of_activity(ActivityType.CONTROL_MESSAGE),
        "peer": pl.col("peer"),
        "message_seq": pl.col("number"),
    }
    return [
        tasks.filter(pl.col("job").is_not_null()).select(
            **sent,
            key=pl.col("i") * 64,
            t_ns="receipt",
            kind=of_kind(EventKind.RECEIVE),
            channel=pl.lit(LAUNCH, pl.Int64),
        ),
        tasks.filter("seen").select(
            **sent,
            key=pl.col("i") * 64 + 44,
            t_ns="free",
            kind=of_kind(EventKind.SEND),
            channel=pl.lit(RESULT, pl.Int64),
            bytes="result_bytes",
        ),
    ]


def _phase_rows(tasks: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the begins and ends of the tasks' parts, in the order of `_PHASES`."""
    frames = []
    fixed = {"worker": pl.col("worker"), "operator": pl.col("operator")}
    read_bytes = pl.col("input_bytes") + pl.col("remote_bytes") + pl.col("local_bytes")
    phase_start: pl.Expr = pl.col("receipt")
    for phase, (column, activity_type) in enumerate(_PHASES):
        length, key = pl.col(column), pl.col("i") * 64 + 8 + 4 * phase
        with_phase, works = tasks.filter(length > 0), column == "work"
        frames += [
            with_phase.select(
                **fixed,
                key=key,
                t_ns=phase_start,
                kind=of_kind(EventKind.START),
                activity=of_activity(activity_type),
                records=pl.col("input_records") + pl.col("shuffle_read_records") if works else pl.lit(None, pl.Int64),
                bytes=read_bytes if works else pl.lit(None, pl.Int64),
                inferred=pl.lit(True),  # noqa: FBT003 a literal column
            ),
            with_phase.select(**fixed, key=key + 1, t_ns=phase_start + length, kind=of_kind(EventKind.STOP)),
        ]
        phase_start += length
    # A task of no duration is an activity of none: it keeps the launch before it apart from the one after it.
    nothing = tasks.filter(pl.col("free") == pl.col("receipt"))
    for place, kind, stated in ((8, EventKind.START, str(ActivityType.PROCESSING)), (9, EventKind.STOP, None)):
        activity = pl.lit(stated, ACTIVITIES)
        frames.append(
            nothing.select(**fixed, key=pl.col("i") * 64 + place, t_ns="receipt", kind=of_kind(kind), activity=activity)
        )
    return frames


def _wait_rows(tasks: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the begins of waits after tasks, and the ends of those before them."""
    fixed = {"worker": pl.col("worker"), "operator": pl.lit(APPLICATION, pl.Int64)}
    return [
        tasks.filter(pl.col("next_receipt") > pl.col("free")).select(
            **fixed,
            key=pl.col("i") * 64 + 50,
            t_ns="free",
            kind=of_kind(EventKind.START),
            activity=of_activity(ActivityType.WAITING),
        ),
        tasks.filter(pl.col("previous_free") < pl.col("receipt")).select(
            **fixed, key=pl.col("i") * 64 + 1, t_ns="receipt", kind=of_kind(EventKind.STOP)
        ),
    ]


def _offer_rows(tasks: pl.DataFrame, offers: pl.DataFrame) -> pl.DataFrame:
    if not offers.height or not tasks.height:
        return pl.DataFrame(schema=ROW)
    with_offer = tasks.select("number", "worker", "i", "free").join(
        offers, on="number", how="inner", maintain_order="left"
    )
    return with_offer.select(
        worker="worker",
        key=pl.col("i") * 64 + 46,
        t_ns="free",
        kind=of_kind(EventKind.SEND),
        activity=of_activity(ActivityType.CONTROL_MESSAGE),
        channel=pl.lit(OFFERS, pl.Int64),
        peer=pl.col("offer_lane").cast(pl.Int32),
        message_seq="number",
    )
